//! The recording as text: one JSON value per line, with bodies verbatim if they are lines of JSON
//! themselves.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Answer, Chunk, End, Exchange, Recording, Target};
use crate::error::{Error, ErrorKind};
use crate::testing::json;

/// The version of the format. A reader refuses others.
const VERSION: u64 = 1;

impl Recording {
    /// Reads the text of a recording. Errors contain `name` and the line.
    ///
    /// The first line is `{"recording":1,…}`. An exchange has these lines:
    ///
    /// - the question: `{"request":"GET /…","at":…}`;
    /// - the head of its answer: `{"response":200,"after":…}`;
    /// - its chunks: `{"after":…,"line":{…}}` (a JSON text and a newline, verbatim), or
    ///   `{"after":…,"text":"…"}`;
    /// - its end: `{"end":"clean","after":…}`, or `cut`, or `open`.
    ///
    /// Times are in milliseconds: `at` counts from the recording's start, `after` from the request.
    /// Empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`], naming the line and its fault.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let mut reader = RecordingReader::default();
        let mut last = 0_usize;
        for (number, line) in (1_usize..).zip(text.lines()) {
            last = number;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            reader.line(line).map_err(|why| wrong(name, number, &why))?;
        }
        reader.finish().map_err(|why| wrong(name, last, &why))
    }

    /// Reads a recording from a file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`], naming the file and the line.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| {
            Error::new(ErrorKind::Config, format!("{name}: {error}")).with_source(error)
        })?;
        Self::parse(&name, &text)
    }

    /// Writes the recording as the text that [`Recording::parse`] reads.
    pub fn to_text(&self) -> String {
        let head = json!({"recording": VERSION, "server": self.server, "taken": self.taken});
        let mut text = format!("{head}\n");
        for exchange in &self.exchanges {
            let written = write_exchange(exchange, &mut text);
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
        text
    }
}

fn write_exchange(exchange: &Exchange, text: &mut String) -> std::fmt::Result {
    let answer = &exchange.answer;
    let request = json!(format!("{} {}", exchange.method, exchange.target));
    write!(
        text,
        "\n{{\"request\":{request},\"at\":{}",
        exchange.at.as_millis()
    )?;
    write_headers(&exchange.headers, text)?;
    if !exchange.matches.is_empty() {
        write!(text, ",\"match\":{}", json!(exchange.matches))?;
    }
    write!(
        text,
        "}}\n{{\"response\":{},\"after\":{}",
        answer.status,
        answer.after.as_millis()
    )?;
    write_headers(&answer.headers, text)?;
    text.push_str("}\n");
    for chunk in &answer.chunks {
        let after = chunk.after.as_millis();
        match verbatim(&chunk.text) {
            Some(line) => writeln!(text, "{{\"after\":{after},\"line\":{line}}}")?,
            None => writeln!(text, "{{\"after\":{after},\"text\":{}}}", json!(chunk.text))?,
        }
    }
    let end = match answer.end {
        End::Clean => "clean",
        End::Cut => "cut",
        End::Open => "open",
    };
    writeln!(
        text,
        "{{\"end\":\"{end}\",\"after\":{}}}",
        answer.end_after.as_millis()
    )
}

fn write_headers(headers: &[(String, String)], text: &mut String) -> std::fmt::Result {
    if headers.is_empty() {
        return Ok(());
    }
    let map: Map<_, _> = headers
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    write!(text, ",\"headers\":{}", Value::from(map))
}

/// The text of a chunk that is one line of JSON, which the file contains without escapes, so that
/// the reader gets every byte back.
fn verbatim(chunk: &str) -> Option<&str> {
    let line = chunk.strip_suffix('\n')?;
    if !line.starts_with('{') || !line.ends_with('}') || line.contains(['\n', '\r']) {
        return None;
    }
    let scanned = json::scan(line.as_bytes()).ok()?;
    (!scanned.cut).then_some(line)
}

fn wrong(name: &str, line: usize, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("{name}:{line}: {why}"))
}

#[derive(Default)]
struct RecordingReader {
    recording: Option<Recording>,
    open: Option<Open>,
}

/// An exchange whose end is not read yet.
struct Open {
    exchange: Exchange,
    answered: bool,
}

impl RecordingReader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let value: Value =
            serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
        let fields = value.as_object().ok_or("not a JSON object")?;
        let Some(recording) = &mut self.recording else {
            self.recording = Some(read_head(fields)?);
            return Ok(());
        };
        if let Some(request) = fields.get("request") {
            if self.open.is_some() {
                return Err("a request inside an exchange that has no end yet".to_owned());
            }
            let exchange = read_request(request, fields)?;
            self.open = Some(Open {
                exchange,
                answered: false,
            });
            return Ok(());
        }
        let open = self
            .open
            .as_mut()
            .ok_or("no request stands before this line")?;
        if let Some(status) = fields.get("response") {
            if open.answered {
                return Err("a second response to one request".to_owned());
            }
            open.answered = true;
            return read_response(&mut open.exchange.answer, status, fields);
        }
        if !open.answered {
            return Err("no response stands before this line".to_owned());
        }
        let answer = &mut open.exchange.answer;
        if let Some(end) = fields.get("end") {
            answer.end = read_end(end)?;
            answer.end_after = milliseconds(fields, "after")?;
            recording
                .exchanges
                .extend(self.open.take().map(|open| open.exchange));
            return Ok(());
        }
        answer.chunks.push(read_chunk(line, fields)?);
        Ok(())
    }

    fn finish(self) -> Result<Recording, String> {
        if self.open.is_some() {
            return Err("the last exchange has no end".to_owned());
        }
        self.recording
            .ok_or_else(|| "no recording: the file is empty".to_owned())
    }
}

fn read_head(fields: &Map<String, Value>) -> Result<Recording, String> {
    let version = fields
        .get("recording")
        .and_then(Value::as_u64)
        .ok_or("the first line is not the head of a recording, {\"recording\":1,…}")?;
    if version != VERSION {
        return Err(format!(
            "version {version} of the format; this reads version {VERSION}"
        ));
    }
    let text = |key| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    Ok(Recording::new().of_server(text("server"), text("taken")))
}

fn read_request(request: &Value, fields: &Map<String, Value>) -> Result<Exchange, String> {
    let (method, target) = request
        .as_str()
        .and_then(|text| text.split_once(' '))
        .ok_or("a request is a verb, a space and a target")?;
    let matches = match fields.get("match") {
        None => Vec::new(),
        Some(value) => strings(value).ok_or("match is not a list of names of parameters")?,
    };
    Ok(Exchange {
        method: method.to_owned(),
        target: Target::parse(target),
        at: milliseconds(fields, "at")?,
        headers: headers(fields)?,
        matches,
        answer: Answer::new(0),
    })
}

fn read_response(
    answer: &mut Answer,
    status: &Value,
    fields: &Map<String, Value>,
) -> Result<(), String> {
    answer.status = status
        .as_u64()
        .and_then(|status| u16::try_from(status).ok())
        .filter(|status| (100..1000).contains(status))
        .ok_or("response is not an HTTP status")?;
    answer.after = milliseconds(fields, "after")?;
    answer.headers = headers(fields)?;
    Ok(())
}

fn read_chunk(line: &str, fields: &Map<String, Value>) -> Result<Chunk, String> {
    let after = milliseconds(fields, "after")?;
    let text = match (
        fields.get("line"),
        fields.get("text").and_then(Value::as_str),
    ) {
        (None, Some(text)) => text.to_owned(),
        (Some(_), None) => {
            let scanned = json::scan(line.as_bytes())
                .map_err(|error| format!("not JSON at byte {}", error.at))?;
            let span = scanned
                .root
                .member("line")
                .map(|member| member.span.clone());
            let verbatim = span.and_then(|span| line.get(span)).unwrap_or_default();
            format!("{verbatim}\n")
        }
        _ => return Err("neither request, response, line, text nor end".to_owned()),
    };
    Ok(Chunk { after, text })
}

fn read_end(end: &Value) -> Result<End, String> {
    match end.as_str() {
        Some("clean") => Ok(End::Clean),
        Some("cut") => Ok(End::Cut),
        Some("open") => Ok(End::Open),
        _ => Err("end is clean, cut or open".to_owned()),
    }
}

fn milliseconds(fields: &Map<String, Value>, key: &str) -> Result<Duration, String> {
    let value = fields.get(key).and_then(Value::as_u64);
    value
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{key} is not a number of milliseconds"))
}

fn headers(fields: &Map<String, Value>) -> Result<Vec<(String, String)>, String> {
    let Some(value) = fields.get("headers") else {
        return Ok(Vec::new());
    };
    let pairs = value.as_object().and_then(|map| {
        map.iter()
            .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect()
    });
    pairs.ok_or_else(|| "headers are not names and texts".to_owned())
}

fn strings(value: &Value) -> Option<Vec<String>> {
    let list = value.as_array()?;
    list.iter()
        .map(|item| item.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORY: &str = concat!(
        "{\"recording\":1,\"server\":\"v1.36.3\",\"taken\":\"2026-11-20\"}\n",
        "\n",
        "{\"request\":\"GET /api/v1/pods?watch=1&resourceVersion=7\",\"at\":12,",
        "\"match\":[\"resourceVersion\"]}\n",
        "{\"response\":200,\"after\":2,\"headers\":{\"content-type\":\"application/json\"}}\n",
        "{\"after\":3,\"line\":{\"z\":1, \"a\":\"\\u00e9 verbatim\"}}\n",
        "{\"after\":900,\"text\":\"half a li\"}\n",
        "{\"end\":\"cut\",\"after\":901}\n",
    );

    #[test]
    fn what_is_read_is_written_again_to_the_byte() {
        let recording = Recording::parse("story", STORY).unwrap();
        let answer = recording.exchanges()[0].answer();
        assert_eq!(
            answer.chunks()[0].text(),
            "{\"z\":1, \"a\":\"\\u00e9 verbatim\"}\n"
        );
        assert_eq!((answer.status(), answer.end()), (200, End::Cut));
        assert_eq!(recording.to_text(), STORY);
    }

    #[test]
    fn a_chunk_that_is_not_one_line_of_json_is_carried_too() {
        for text in [
            "",
            "\n",
            "{\"a\":",
            "{}",
            "{}\n{}\n",
            "{\n}\n",
            "not json\n",
            " {} \n",
            "é\u{0}\n",
        ] {
            let recording = Recording::new().with(Exchange::get("/a", Answer::text(200, text)));
            assert_eq!(
                Recording::parse("r", &recording.to_text()).unwrap(),
                recording,
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let head = "{\"recording\":1}\n";
        let request = "{\"request\":\"GET /\",\"at\":0}\n";
        let cases = [
            (String::new(), "r:0: no recording: the file is empty"),
            (
                "{\"recording\":2}".into(),
                "r:1: version 2 of the format; this reads version 1",
            ),
            (
                format!("{head}# note\n{{"),
                "r:3: not JSON: EOF while parsing an object at line 1 column 1",
            ),
            (
                format!("{head}{{\"end\":\"clean\"}}"),
                "r:2: no request stands before this line",
            ),
            (
                format!("{head}{request}{{\"after\":1,\"line\":{{}}}}"),
                "r:3: no response stands before this line",
            ),
            (
                format!("{head}{request}{request}"),
                "r:3: a request inside an exchange that has no end yet",
            ),
            (
                format!("{head}{request}"),
                "r:2: the last exchange has no end",
            ),
            (
                format!("{head}{request}{{\"response\":7,\"after\":1}}"),
                "r:3: response is not an HTTP status",
            ),
            (
                format!("{head}{{\"request\":\"GET /\"}}"),
                "r:2: at is not a number of milliseconds",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(
                Recording::parse("r", &text).unwrap_err().to_string(),
                expected
            );
        }
        let missing = Recording::load("no-such-recording").unwrap_err();
        assert!(
            missing.to_string().starts_with("no-such-recording: "),
            "{missing}"
        );
    }

    /// Reading any damaged file returns a recording, or an error that names the line.
    #[test]
    fn a_damaged_recording_is_an_error_and_no_panic() {
        for at in 0..STORY.len() {
            for damage in [&b""[..], b"\"", b"{", b"\n", b"9", b"\xff"] {
                let (front, back) = STORY.as_bytes().split_at(at);
                let damaged = [front, damage, &back[1..]].concat();
                let text = String::from_utf8_lossy(&damaged);
                if let Err(error) = Recording::parse("r", &text) {
                    assert!(error.to_string().starts_with("r:"), "{error}");
                }
            }
        }
    }
}
