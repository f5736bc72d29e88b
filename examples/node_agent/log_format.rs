//! How a line on standard error is written: for people, for programs, or for the journal.

use std::io;
use std::sync::OnceLock;
use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use log::Level;
use serde_json::{Map, Value, json};

/// The fields of a record.
pub(crate) type LogFields = Map<String, Value>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Records have their time.
    Text,
    /// Each line is an object.
    Json,
    /// Each line has its priority. The journal adds the time.
    Journal,
}

/// What the command line chose, else what standard error is.
static CHOSEN: OnceLock<LogFormat> = OnceLock::new();

impl LogFormat {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            "journal" => Some(Self::Journal),
            _ => None,
        }
    }

    /// Writes lines so from now on, if there was none before.
    pub(crate) fn choose(self) {
        let _was_chosen = CHOSEN.set(self).is_err();
    }

    fn chosen() -> Self {
        *CHOSEN.get_or_init(|| {
            if is_journal() {
                Self::Journal
            } else {
                Self::Text
            }
        })
    }

    /// A program's own words.
    fn said(self, level: Level, text: &str) -> String {
        let target = env!("CARGO_CRATE_NAME");
        match self {
            Self::Text => prefixed("", text),
            Self::Json => object(level, target, text, LogFields::new()),
            Self::Journal => prefixed(priority(level), text),
        }
    }

    /// A record of the log.
    fn logged(self, level: Level, target: &str, text: &str, fields: LogFields) -> String {
        let plain = |fields: &LogFields| {
            let mut line = format!("{} {target}: {text}", name(level));
            for (key, value) in fields {
                line.extend([format!(" {key}={}", word(value))]);
            }
            line
        };
        match self {
            Self::Text => format!("{} {}\n", time(), plain(&fields)),
            Self::Json => object(level, target, text, fields),
            Self::Journal => prefixed(priority(level), &plain(&fields)),
        }
    }
}

pub(crate) fn said(level: Level, text: &str) -> Vec<u8> {
    LogFormat::chosen().said(level, text).into_bytes()
}

pub(crate) fn logged(level: Level, target: &str, text: &str, fields: LogFields) -> Vec<u8> {
    LogFormat::chosen()
        .logged(level, target, text, fields)
        .into_bytes()
}

/// Lines of another program, as they are where lines are no objects.
pub(crate) fn passed_on(lines: Vec<u8>) -> Vec<u8> {
    if LogFormat::chosen() != LogFormat::Json {
        return lines;
    }
    let text = String::from_utf8_lossy(&lines);
    let objects = text.lines().flat_map(|line| said(Level::Info, line));
    objects.collect()
}

/// Whether standard error leads to the journal, as its variable says.
fn is_journal() -> bool {
    let Ok(facts) = rustix::fs::fstat(io::stderr()) else {
        return false;
    };
    let ours = format!("{}:{}", facts.st_dev, facts.st_ino);
    std::env::var_os("JOURNAL_STREAM").is_some_and(|stream| stream == *ours)
}

fn priority(level: Level) -> &'static str {
    match level {
        Level::Error => "<3>",
        Level::Warn => "<4>",
        Level::Info => "<6>",
        Level::Debug | Level::Trace => "<7>",
    }
}

fn prefixed(prefix: &str, text: &str) -> String {
    let lines = text.lines().map(|line| format!("{prefix}{line}\n"));
    lines.collect()
}

fn object(level: Level, target: &str, text: &str, fields: LogFields) -> String {
    let mut line = json!({
        "time": time(), "level": name(level), "target": target, "message": text,
    });
    if !fields.is_empty()
        && let Some(line) = line.as_object_mut()
    {
        drop(line.insert("fields".to_owned(), fields.into()));
    }
    format!("{line}\n")
}

fn name(level: Level) -> String {
    level.as_str().to_ascii_lowercase()
}

fn time() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or_default();
    let now = Timestamp::from_millisecond(millis).unwrap_or_default();
    format!("{now:.3}")
}

/// A value; one that is no plain word is quoted.
fn word(value: &Value) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    match value {
        Value::String(text) if !text.is_empty() && text.chars().all(is_plain) => text.clone(),
        Value::String(text) => format!("{text:?}"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_time_level_target_text_and_fields_in_each_format() {
        let fields = [
            ("failures", Value::from(3)),
            ("name", Value::from("object-\"shop\"/\"db\"")),
            ("resource", Value::from("secrets")),
        ];
        let fields = fields.map(|(key, value)| (key.to_owned(), value));
        let fields: LogFields = fields.into_iter().collect();
        let target = "kubecache::reflector";
        let line =
            |format: LogFormat| format.logged(Level::Warn, target, "failing: no", fields.clone());
        let plain = "warn kubecache::reflector: failing: no failures=3 \
            name=\"object-\\\"shop\\\"/\\\"db\\\"\" resource=secrets\n";
        assert_eq!(line(LogFormat::Journal), format!("<4>{plain}"));
        let text = line(LogFormat::Text);
        let (time, rest) = text.split_once(' ').unwrap();
        assert_eq!(rest, plain);
        assert_eq!(time.len(), "2026-11-26T13:50:07.123Z".len());
        assert!(time.parse::<Timestamp>().is_ok(), "{time}");
        let object: Value = serde_json::from_str(&line(LogFormat::Json)).unwrap();
        assert_eq!(object["level"], "warn");
        assert_eq!(object["target"], target);
        assert_eq!(object["message"], "failing: no");
        assert_eq!(object["fields"]["failures"], 3);
        assert!(
            object["time"]
                .as_str()
                .unwrap()
                .parse::<Timestamp>()
                .is_ok()
        );
    }
}
