//! The library's log on stderr, as `-v` asks for it.

use std::io::Write as _;
use std::sync::OnceLock;

use log::{Level, LevelFilter, Log, Metadata, Record};

struct Stderr;

static STDERR: Stderr = Stderr;

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
    if log::set_logger(&STDERR).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Stderr {
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
            let level = record.level().as_str().to_ascii_lowercase();
            // Where stderr is gone there is nobody to tell.
            drop(writeln!(
                std::io::stderr().lock(),
                "{level} {}: {}",
                record.target(),
                record.args()
            ));
        }
    }

    fn flush(&self) {}
}
