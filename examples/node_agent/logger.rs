//! The library's log on stderr, as `-v` asks for it.

use std::sync::OnceLock;

use log::kv::{self, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::tell::tell_at;

struct Logger;

static LOGGER: Logger = Logger;

/// Rooms of the library whose warnings the program tells in its own words.
static TOLD_OTHERWISE: OnceLock<&[&str]> = OnceLock::new();

/// Logs from now on: 0 warnings, 1 what happens, 2 and 3 each request, 4 and more everything.
///
/// At 0 the rooms that are `told_otherwise` say nothing but errors.
pub(crate) fn install(verbosity: u8, told_otherwise: &'static [&'static str]) {
    if TOLD_OTHERWISE.set(told_otherwise).is_err() {
        return;
    }
    let level = match verbosity {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        2 | 3 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Below warnings only this project speaks: what the TLS and HTTP libraries trace helps
        // nobody here.
        let target = metadata.target();
        let mut told_otherwise = TOLD_OTHERWISE.get().into_iter().copied().flatten();
        if told_otherwise.any(|room| target.starts_with(room)) {
            return metadata.level() == Level::Error || log::max_level() > LevelFilter::Warn;
        }
        metadata.level() <= Level::Warn
            || target.starts_with("kubecache")
            || target.starts_with(env!("CARGO_CRATE_NAME"))
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            tell_at(record.level(), &line(record));
        }
    }

    fn flush(&self) {}
}

/// Level, target and text, and then the fields as `key=value`; a value that is no plain word is
/// quoted.
fn line(record: &Record<'_>) -> String {
    let level = record.level().as_str().to_ascii_lowercase();
    let text = format!("{level} {}: {}", record.target(), record.args());
    let mut fields = Fields(text);
    // It never refuses a field.
    drop(record.key_values().visit(&mut fields));
    fields.0
}

/// What fields are written behind.
struct Fields(String);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let value = value.to_string();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        let field = if !value.is_empty() && value.chars().all(is_plain) {
            format!(" {key}={value}")
        } else {
            format!(" {key}={value:?}")
        };
        self.0.push_str(&field);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_key_and_value_behind_the_text() {
        let fields = [
            ("failures", Value::from(3_u64)),
            ("name", Value::from("object-\"shop\"/\"db\"")),
            ("resource", Value::from("secrets")),
        ];
        let record = Record::builder()
            .level(Level::Warn)
            .target("kubecache::reflector")
            .args(format_args!("failing: no"))
            .key_values(&fields)
            .build();
        assert_eq!(
            line(&record),
            "warn kubecache::reflector: failing: no failures=3 \
             name=\"object-\\\"shop\\\"/\\\"db\\\"\" resource=secrets"
        );
    }
}
