//! The library's log on stderr, as `-v` asks for it.

use std::io::Write as _;

use log::{Level, LevelFilter, Log, Metadata, Record};

struct Stderr;

static STDERR: Stderr = Stderr;

/// Logs from now on: 0 warnings, 1 what happens, 2 and 3 each request, 4 and more everything.
///
/// At 0 the reflectors are silent: what they meet with is told by the program itself. So is the server of the
/// demonstration.
pub(crate) fn install(verbosity: u8) {
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
        // Below warnings only this project speaks: what the TLS and HTTP libraries trace helps nobody here.
        let target = metadata.target();
        let told_otherwise = ["kubecache::reflector", "kubecache::testing"];
        if told_otherwise.iter().any(|room| target.starts_with(room)) {
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
