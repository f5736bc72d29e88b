//! The library's log on stderr, as `-v` asks for it.

use std::sync::OnceLock;

use log::kv::{self, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::log_format::{self, LogFields, LogFormat};
use crate::outflow::STDERR;

struct Logger;

static LOGGER: Logger = Logger;

/// Rooms of the library whose warnings the program tells in its own words.
static TOLD_OTHERWISE: OnceLock<&[&str]> = OnceLock::new();

/// Logs from now on: 0 warnings, 1 what happens, 2 and 3 each request, 4 and more everything.
///
/// At 0 the rooms that are `told_otherwise` say nothing but errors.
pub(crate) fn install(
    verbosity: u8,
    format: Option<LogFormat>,
    told_otherwise: &'static [&'static str],
) {
    if let Some(format) = format {
        format.choose();
    }
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
            let mut fields = Fields(LogFields::new());
            // It never refuses a field.
            drop(record.key_values().visit(&mut fields));
            let text = record.args().to_string();
            let line = log_format::logged(record.level(), record.target(), &text, fields.0);
            STDERR.push(line);
        }
    }

    fn flush(&self) {}
}

/// What fields are collected in.
struct Fields(LogFields);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let number = value.to_u64().map(serde_json::Value::from);
        let value = number.unwrap_or_else(|| value.to_string().into());
        drop(self.0.insert(key.to_string(), value));
        Ok(())
    }
}
