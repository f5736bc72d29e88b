//! What a program says beside its rows: on standard error, in kubectl's words.

use std::error::Error as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use kubecache::Error;
use log::Level;

use crate::log_format;
use crate::outflow::STDERR;

const USAGE: u8 = 2;

/// A line on standard error. Never waits for its reader.
pub(crate) fn tell(text: &str) {
    let level = match text.split_once(':') {
        Some(("error", _)) => Level::Error,
        Some(("warning", _)) => Level::Warn,
        _ => Level::Info,
    };
    STDERR.push(log_format::said(level, text));
}

/// Tells an error as kubectl does: the server's words unchanged, with its reason before them.
pub(crate) fn error(error: &Error) {
    if let Some(status) = error.status() {
        let reason = status.reason_text();
        let reason = if reason.is_empty() { "Unknown" } else { reason };
        tell(&format!(
            "Error from server ({reason}): {}",
            one_line(&status.to_string())
        ));
        return;
    }
    let mut text = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    tell(&text);
}

/// Tells what is wrong with the command line.
pub(crate) fn usage(program: &str, wrong: &str) -> ExitCode {
    tell(&format!(
        "error: {wrong}\nSee '{program} --help' for usage."
    ));
    ExitCode::from(USAGE)
}

/// What was asked for instead of a run, on standard output.
pub(crate) fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_closed) => ExitCode::FAILURE,
    }
}

/// The server's words on one line; what could steer a terminal is left out.
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}
