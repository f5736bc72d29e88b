//! Faults as JSON, for files of faults and the control port.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::act::{Act, CertificateFlaw, Part, Unfinished};
use super::fault::{Fault, FaultChance};
use crate::error::{Error, ErrorKind};

const MEBIBYTE: usize = 1024 * 1024;

const FLAWS: [(&str, CertificateFlaw); 4] = [
    ("expired", CertificateFlaw::Expired),
    ("not-yet-valid", CertificateFlaw::NotYetValid),
    ("wrong-host", CertificateFlaw::WrongHost),
    ("unknown-authority", CertificateFlaw::UnknownAuthority),
];

const UNFINISHED: [(&str, Unfinished); 3] = [
    ("line", Unfinished::Line),
    ("item", Unfinished::Item),
    ("body", Unfinished::Body),
];

impl Fault {
    /// Reads a fault: an object with the name of the act, its parameters, and its selection of
    /// requests.
    ///
    /// [`FAULTS`](super::FAULTS) has an example of each act. These fields select connections,
    /// requests and objects, each like the method of the same name: `path` ([`on`](Self::on)),
    /// `pathPrefix` ([`under`](Self::under)), `verb`, `resource`, `namespace`, `name`, `watch`
    /// (`true`: [`watches`](Self::watches), `false`: [`reads`](Self::reads)), `connection`,
    /// `perConnection`, `from`, `every`, `times`, and `seed` with `probability`
    /// ([`by_chance`](Self::by_chance)).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`]; the message names the field.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use kubecache::testing::Fault;
    ///
    /// let json = r#"{"act": "status", "code": 403, "resource": "secrets", "times": 5}"#;
    /// assert_eq!(Fault::from_json(json)?.act().name(), "status");
    /// let error = Fault::from_json(r#"{"act": "status", "code": "403"}"#).unwrap_err();
    /// assert_eq!(error.to_string(), "a fault's field `code` is a whole number, not \"403\"");
    /// # }
    /// # Ok::<_, kubecache::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self, Error> {
        fault(value(text)?)
    }

    /// Reads several faults: an array, or a single one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`]; the message names the fault, from 0 on, and the field.
    pub fn list_from_json(text: &str) -> Result<Vec<Self>, Error> {
        let value = value(text)?;
        let Value::Array(items) = value else {
            return Ok(vec![fault(value)?]);
        };
        let faults = items.into_iter().enumerate().map(|(index, item)| {
            fault(item).map_err(|error| error.context(&format!("fault {index}")))
        });
        faults.collect()
    }

    /// Writes the fault as [`from_json`](Self::from_json) reads it.
    pub fn to_json(&self) -> String {
        let mut fields = act_fields(&self.act);
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        put("act", Some(self.act.name().into()));
        put("path", self.path.clone().map(Value::from));
        put("pathPrefix", self.path_prefix.clone().map(Value::from));
        put("verb", self.verb.clone().map(Value::from));
        put("resource", self.resource.clone().map(Value::from));
        put("namespace", self.namespace.clone().map(Value::from));
        put("name", self.name.clone().map(Value::from));
        put("watch", self.watch.map(Value::from));
        put("connection", self.connection.map(Value::from));
        put(
            "perConnection",
            self.per_connection.then_some(Value::Bool(true)),
        );
        put("from", (self.first != 1).then(|| self.first.into()));
        put("every", (self.every != 1).then(|| self.every.into()));
        put(
            "times",
            (self.times != usize::MAX).then(|| self.times.into()),
        );
        put("seed", self.chance.map(|chance| chance.seed.into()));
        put(
            "probability",
            self.chance.map(|chance| chance.probability.into()),
        );
        Value::Object(fields).to_string()
    }
}

fn value(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|error| wrong(format!("a fault is JSON: {error}")))
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Config, message)
}

fn fault(value: Value) -> Result<Fault, Error> {
    let Value::Object(members) = value else {
        return Err(wrong(format!("a fault is a JSON object, not {value}")));
    };
    let mut fields = FaultFields(members);
    let name = fields.text("act")?.ok_or_else(|| missing("act"))?;
    let mut fault = Fault::new(act(&name, &mut fields)?);
    fault.path = fields.text("path")?;
    fault.path_prefix = fields.text("pathPrefix")?;
    fault.verb = fields.text("verb")?;
    fault.resource = fields.text("resource")?;
    fault.namespace = fields.text("namespace")?;
    fault.name = fields.text("name")?;
    fault.watch = fields.flag("watch")?;
    fault.connection = fields.number("connection")?;
    fault.per_connection = fields.flag("perConnection")?.unwrap_or(false);
    fault.first = fields.number("from")?.unwrap_or(1).max(1);
    fault.every = fields.number("every")?.unwrap_or(1).max(1);
    fault.times = fields.number("times")?.unwrap_or(usize::MAX);
    let seed = fields.number("seed")?;
    fault.chance = match fields.0.remove("probability") {
        None if seed.is_some() => return Err(missing("probability")),
        None => None,
        Some(given) => {
            let probability = given.as_f64().filter(|number| (0.0..=1.0).contains(number));
            let probability = probability
                .ok_or_else(|| mistaken("probability", "a number from 0 to 1", &given))?;
            let seed = seed.unwrap_or_default();
            Some(FaultChance { seed, probability })
        }
    };
    if let Some((field, _)) = fields.0.iter().next() {
        return Err(wrong(format!(
            "a fault with the act `{name}` has no field `{field}`"
        )));
    }
    if fault.names_requests() && fault.is_of_connections() {
        return Err(wrong(format!(
            "a fault with the act `{}` comes before any request: it takes `connection`, `from`, \
             `every`, `times` and `probability` alone",
            fault.act.name()
        )));
    }
    Ok(fault)
}

#[expect(clippy::too_many_lines, reason = "a table of all acts")]
fn act(name: &str, fields: &mut FaultFields) -> Result<Act, Error> {
    Ok(match name {
        "refuse" => Act::Refuse,
        "silent" => Act::Silent,
        "certificate" => Act::Certificate(fields.one_of("flaw", &FLAWS)?),
        "client-certificate" => Act::ClientCertificate,
        "status" => Act::Status {
            code: fields.code()?,
            reason: fields.text("reason")?.unwrap_or_default(),
            retry_after: fields.number("retryAfterSeconds")?.map(Duration::from_secs),
        },
        "hang" => Act::Hang,
        "unauthorized" => Act::Unauthorized,
        "too-large-version" => Act::TooLargeVersion,
        "html" => Act::Html,
        "redirect" => Act::Redirect(fields.text("to")?.ok_or_else(|| missing("to"))?),
        "echo-headers" => Act::EchoHeaders,
        "control-characters" => Act::ControlCharacters,
        "watch-error" => Act::WatchError {
            code: fields.code()?,
            reason: fields.text("reason")?.unwrap_or_default(),
        },
        "unfinished" => Act::Unfinished {
            part: fields.one_of("part", &UNFINISHED)?,
            bytes: fields.size()?,
        },
        "gzip-bomb" => Act::GzipBomb(fields.size()?),
        "wrong-kind" => Act::WrongKind,
        "wrong-names" => Act::WrongNames,
        "unnamed" => Act::Unnamed,
        "undecodable" => Act::Undecodable,
        "not-utf-8" => Act::NotUtf8,
        "deep" => Act::Deep(fields.wanted("levels")?),
        "huge-number" => Act::HugeNumber,
        "older-versions" => Act::OlderVersions(fields.wanted("by")?),
        "no-bookmarks" => Act::NoBookmarks,
        "no-events" => Act::NoEvents,
        "heartbeats" => Act::Heartbeats {
            every: fields.pause()?,
        },
        "duplicate-events" => Act::DuplicateEvents,
        "reorder-events" => Act::ReorderEvents,
        "gzip-cut" => Act::GzipCut,
        "hang-after" => Act::HangAfter(fields.wanted("bytes")?),
        "cut-after" => Act::CutAfter(fields.wanted("bytes")?),
        "drip" => Act::Drip {
            bytes: fields.wanted("bytes")?,
            every: fields.pause()?,
        },
        "stall" => Act::Stall {
            part: fields.part()?,
            after: fields.wanted("after")?,
        },
        "dribble" => Act::Dribble {
            part: fields.part()?,
            bytes: fields.wanted("bytes")?,
            every: fields.pause()?,
        },
        "cut" => Act::Cut {
            part: fields.part()?,
            after: fields.wanted("after")?,
        },
        "reset" => Act::Reset {
            part: fields.part()?,
            after: fields.wanted("after")?,
        },
        "flip-bit" => Act::FlipBit {
            part: fields.part()?,
            at: fields.wanted("at")?,
        },
        "half-open" => Act::HalfOpen,
        "wrong-length" => Act::WrongLength(fields.difference("by")?),
        "interim-flood" => Act::InterimFlood(fields.wanted("count")?),
        _ => {
            return Err(wrong(format!(
                "a fault's `act` is no act of a test server: `{name}`"
            )));
        }
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the others have no fields")]
fn act_fields(act: &Act) -> Map<String, Value> {
    let fields = match act {
        Act::Certificate(flaw) => json!({ "flaw": word(&FLAWS, flaw) }),
        Act::Status {
            code,
            reason,
            retry_after,
        } => {
            let wait = retry_after.map(|wait| wait.as_secs());
            json!({ "code": code, "reason": reason, "retryAfterSeconds": wait })
        }
        Act::Redirect(to) => json!({ "to": to }),
        Act::WatchError { code, reason } => json!({ "code": code, "reason": reason }),
        Act::Unfinished { part, bytes } => {
            json!({ "part": word(&UNFINISHED, part), "bytes": bytes })
        }
        Act::GzipBomb(bytes) | Act::HangAfter(bytes) | Act::CutAfter(bytes) => {
            json!({ "bytes": bytes })
        }
        Act::Deep(levels) => json!({ "levels": levels }),
        Act::OlderVersions(by) => json!({ "by": by }),
        Act::Heartbeats { every } => json!({ "everyMilliseconds": milliseconds(*every) }),
        Act::Drip { bytes, every } => {
            json!({ "bytes": bytes, "everyMilliseconds": milliseconds(*every) })
        }
        Act::Stall { part, after } | Act::Cut { part, after } | Act::Reset { part, after } => {
            of_part(*part, json!({ "after": after }))
        }
        Act::Dribble { part, bytes, every } => {
            let every = milliseconds(*every);
            of_part(*part, json!({ "bytes": bytes, "everyMilliseconds": every }))
        }
        Act::FlipBit { part, at } => of_part(*part, json!({ "at": at })),
        Act::WrongLength(by) => json!({ "by": by }),
        Act::InterimFlood(count) => json!({ "count": count }),
        _ => json!({}),
    };
    let Value::Object(mut fields) = fields else {
        return Map::new();
    };
    fields.retain(|_, value| !value.is_null() && value != "");
    fields
}

fn of_part(part: Part, mut fields: Value) -> Value {
    let (name, event) = match part {
        Part::Handshake => ("handshake", None),
        Part::Head => ("head", None),
        Part::Body => ("body", None),
        Part::Event(number) => ("event", Some(number)),
    };
    if let Value::Object(members) = &mut fields {
        members.insert("part".to_owned(), name.into());
        members.insert("event".to_owned(), event.into());
    }
    fields
}

fn milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    let found = words.iter().find(|(_, known)| known == value);
    found.map_or("", |(word, _)| word)
}

fn missing(field: &str) -> Error {
    wrong(format!("a fault's field `{field}` is missing"))
}

fn mistaken(field: &str, wanted: &str, given: &Value) -> Error {
    wrong(format!(
        "a fault's field `{field}` is {wanted}, not {given}"
    ))
}

/// The members of a fault that are not read yet.
struct FaultFields(Map<String, Value>);

impl FaultFields {
    fn text(&mut self, field: &str) -> Result<Option<String>, Error> {
        match self.0.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(mistaken(field, "a text", &other)),
        }
    }

    fn flag(&mut self, field: &str) -> Result<Option<bool>, Error> {
        match self.0.remove(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(mistaken(field, "true or false", &other)),
        }
    }

    fn number<T: TryFrom<u64>>(&mut self, field: &str) -> Result<Option<T>, Error> {
        let Some(given) = self.0.remove(field) else {
            return Ok(None);
        };
        let number = given.as_u64().and_then(|number| T::try_from(number).ok());
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(mistaken(field, "a whole number", &given)),
        }
    }

    fn wanted<T: TryFrom<u64>>(&mut self, field: &str) -> Result<T, Error> {
        self.number(field)?.ok_or_else(|| missing(field))
    }

    fn difference(&mut self, field: &str) -> Result<i64, Error> {
        let given = self.0.remove(field).ok_or_else(|| missing(field))?;
        given
            .as_i64()
            .ok_or_else(|| mistaken(field, "a whole number", &given))
    }

    fn code(&mut self) -> Result<u16, Error> {
        let code: u16 = self.wanted("code")?;
        if (200..=599).contains(&code) {
            return Ok(code);
        }
        Err(mistaken("code", "a status from 200 to 599", &code.into()))
    }

    fn pause(&mut self) -> Result<Duration, Error> {
        self.wanted("everyMilliseconds").map(Duration::from_millis)
    }

    /// `bytes` or `mebibytes`.
    fn size(&mut self) -> Result<usize, Error> {
        match self.number::<usize>("mebibytes")? {
            Some(count) => Ok(count.saturating_mul(MEBIBYTE)),
            None => self.wanted("bytes"),
        }
    }

    fn part(&mut self) -> Result<Part, Error> {
        let name = self.text("part")?.ok_or_else(|| missing("part"))?;
        Ok(match name.as_str() {
            "handshake" => Part::Handshake,
            "head" => Part::Head,
            "body" => Part::Body,
            "event" => Part::Event(self.wanted("event")?),
            other => {
                let wanted = "`handshake`, `head`, `body` or `event`";
                return Err(mistaken("part", wanted, &other.into()));
            }
        })
    }

    fn one_of<T: Copy>(&mut self, field: &str, words: &[(&str, T)]) -> Result<T, Error> {
        let name = self.text(field)?.ok_or_else(|| missing(field))?;
        let found = words.iter().find(|(word, _)| *word == name);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            mistaken(field, &format!("one of {}", known.join(", ")), &name.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FAULTS;

    #[test]
    fn each_example_of_the_table_is_a_fault_and_comes_back_as_it_was_written() {
        let mut names = std::collections::BTreeSet::new();
        for line in FAULTS {
            let faults = Fault::list_from_json(line.example).unwrap();
            let is_act_of = |fault: &Fault| line.name.starts_with(fault.act().name());
            assert!(faults.iter().any(is_act_of), "{}", line.name);
            for fault in faults {
                assert_eq!(Fault::from_json(&fault.to_json()).unwrap(), fault);
            }
            assert!(names.insert(line.name), "{} stands there twice", line.name);
        }
        let all = r#"{"act":"hang","connection":3,"every":2,"from":2,"name":"db",
            "namespace":"shop","path":"/a","pathPrefix":"/","perConnection":true,
            "probability":0.5,"resource":"secrets","seed":7,"times":1,"verb":"get","watch":false}"#;
        let fault = Fault::from_json(all).unwrap();
        let written: Value = serde_json::from_str(&fault.to_json()).unwrap();
        assert_eq!(written, serde_json::from_str::<Value>(all).unwrap());
    }

    #[test]
    fn a_mistake_is_told_by_its_field() {
        let rows = [
            ("[]", "a fault is a JSON object, not []"),
            ("{}", "a fault's field `act` is missing"),
            (
                r#"{"act":"explode"}"#,
                "a fault's `act` is no act of a test server: `explode`",
            ),
            (
                r#"{"act":"hang","tims":1}"#,
                "a fault with the act `hang` has no field `tims`",
            ),
            (
                r#"{"act":"status","code":99}"#,
                "a fault's field `code` is a status from 200 to 599, not 99",
            ),
            (r#"{"act":"status"}"#, "a fault's field `code` is missing"),
            (
                r#"{"act":"hang","times":-1}"#,
                "a fault's field `times` is a whole number, not -1",
            ),
            (
                r#"{"act":"hang","watch":"yes"}"#,
                "a fault's field `watch` is true or false, not \"yes\"",
            ),
            (
                r#"{"act":"hang","verb":1}"#,
                "a fault's field `verb` is a text, not 1",
            ),
            (
                r#"{"act":"hang","probability":2}"#,
                "a fault's field `probability` is a number from 0 to 1, not 2",
            ),
            (
                r#"{"act":"hang","seed":2}"#,
                "a fault's field `probability` is missing",
            ),
            (
                r#"{"act":"certificate","flaw":"old"}"#,
                "a fault's field `flaw` is one of `expired`, `not-yet-valid`, `wrong-host`, \
                 `unknown-authority`, not \"old\"",
            ),
            (
                r#"{"act":"cut","part":"tail","after":1}"#,
                "a fault's field `part` is `handshake`, `head`, `body` or `event`, not \"tail\"",
            ),
            (
                r#"{"act":"silent","verb":"get"}"#,
                "a fault with the act `silent` comes before any request: it takes `connection`, \
                 `from`, `every`, `times` and `probability` alone",
            ),
        ];
        for (json, expected) in rows {
            let error = Fault::from_json(json).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert_eq!(error.to_string(), expected);
        }
        let listed = Fault::list_from_json(r#"[{"act":"hang"},{"act":"status"}]"#).unwrap_err();
        assert_eq!(
            listed.to_string(),
            "fault 1: a fault's field `code` is missing"
        );
        assert!(Fault::list_from_json("[{]").is_err());
    }
}
