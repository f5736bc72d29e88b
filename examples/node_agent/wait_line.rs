//! One line on a terminal that says what the agent waits for, until there is something to print.

use std::io::{self, IsTerminal as _, Write};

use crate::outflow::{Pieces, STDERR};

/// Takes the cursor to the line's beginning and empties the line.
const CLEAR: &str = "\r\u{1b}[K";

/// The line. It is empty unless `to` is a terminal.
pub(crate) struct WaitLine<W: Write> {
    to: Option<W>,
    shown: String,
}

/// Whether a terminal knows more than lines.
pub(crate) fn can_move_cursor() -> bool {
    std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

impl WaitLine<Pieces> {
    /// On stderr, if that is a terminal.
    pub(crate) fn on_stderr() -> Self {
        let is_terminal = io::stderr().is_terminal() && can_move_cursor();
        Self::new(is_terminal.then(|| STDERR.writer()))
    }
}

impl<W: Write> WaitLine<W> {
    fn new(to: Option<W>) -> Self {
        Self {
            to,
            shown: String::new(),
        }
    }

    /// Replaces the line.
    pub(crate) fn show(&mut self, text: &str) {
        if text != self.shown {
            text.clone_into(&mut self.shown);
            self.write(&format!("{CLEAR}{text}"));
        }
    }

    /// Takes the line away, so that others can be written.
    pub(crate) fn clear(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            self.write(CLEAR);
        }
    }

    fn write(&mut self, text: &str) {
        if let Some(to) = &mut self.to {
            // Where stderr is gone there is nobody to tell.
            drop(to.write_all(text.as_bytes()).and_then(|()| to.flush()));
        }
    }
}

impl<W: Write> Drop for WaitLine<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_written_when_it_changes_and_leaves_nothing() {
        let mut written = Vec::new();
        let mut line = WaitLine::new(Some(&mut written));
        line.clear();
        line.show("1 of 2");
        line.show("1 of 2");
        line.show("2 of 2");
        drop(line);
        let expected = "\r\u{1b}[K1 of 2\r\u{1b}[K2 of 2\r\u{1b}[K";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
        WaitLine::<Pieces>::new(None).show("nobody sees it");
    }
}
