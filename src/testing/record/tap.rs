//! Records one answer: takes pieces as they pass, and returns redacted pieces at the end.

use std::time::Duration;

use super::redact::{Redactor, blank};
use crate::sync::{Arc, Mutex};
use crate::testing::recording::Chunk;

/// Pieces of a finite body, or of one line, that come closer than this are one: this machine makes
/// the gap, not the server.
const TOGETHER: Duration = Duration::from_millis(10);

/// Collects a body, and redacts it as soon as it can be read: a watch line by line, another body as
/// a whole.
pub(super) struct Tap {
    redactor: Arc<Mutex<Redactor>>,
    of_secrets: bool,
    lines: bool,
    /// Redacted bytes.
    done: Vec<u8>,
    /// Bytes that cannot be read yet.
    pending: Vec<u8>,
    /// The ends of pieces, and their times.
    ends: Vec<(usize, Duration)>,
}

impl Tap {
    pub(super) fn new(redactor: &Arc<Mutex<Redactor>>, of_secrets: bool, lines: bool) -> Self {
        Self {
            redactor: Arc::clone(redactor),
            of_secrets,
            lines,
            done: Vec::new(),
            pending: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Adds a piece of the body that came `after` the request.
    pub(super) fn piece(&mut self, bytes: &[u8], after: Duration) {
        let mut total = self.done.len().saturating_add(self.pending.len());
        if self.lines {
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                total = total.saturating_add(line.len());
                self.ends.push((total, after));
                self.pending.extend_from_slice(line);
                if line.ends_with(b"\n") {
                    self.redact();
                }
            }
            return;
        }
        self.pending.extend_from_slice(bytes);
        total = total.saturating_add(bytes.len());
        self.ends.push((total, after));
    }

    /// Returns the whole body, redacted, cut into its pieces.
    pub(super) fn finish(mut self) -> Vec<Chunk> {
        self.redact();
        if std::str::from_utf8(&self.done).is_err() {
            blank(&mut self.done);
        }
        let text = String::from_utf8_lossy(&self.done);
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut from = 0_usize;
        let mut ends = self.ends.iter().peekable();
        while let Some((end, after)) = ends.next() {
            // Pieces of one body or line that came together, and pieces that would cut a character,
            // are one.
            let next = ends.peek().map(|(_, next)| next.saturating_sub(*after));
            let whole = self.lines && text.get(..*end).is_some_and(|text| text.ends_with('\n'));
            let together = !whole && next.is_some_and(|gap| gap < TOGETHER);
            if together || !text.is_char_boundary(*end) {
                continue;
            }
            let piece = text.get(from..*end).unwrap_or_default();
            if !piece.is_empty() {
                chunks.push(Chunk {
                    after: *after,
                    text: piece.to_owned(),
                });
            }
            from = *end;
        }
        chunks
    }

    fn redact(&mut self) {
        let mut text = std::mem::take(&mut self.pending);
        if !text.is_empty() {
            self.redactor.lock().redact(&mut text, self.of_secrets);
            self.done.append(&mut text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taped(of_secrets: bool, lines: bool, pieces: &[(&str, u64)]) -> Vec<(String, u64)> {
        let mut tap = Tap::new(&Arc::default(), of_secrets, lines);
        for (piece, after) in pieces {
            tap.piece(piece.as_bytes(), Duration::from_millis(*after));
        }
        let chunks = tap.finish().into_iter();
        chunks
            .map(|chunk| (chunk.text, u64::try_from(chunk.after.as_millis()).unwrap()))
            .collect()
    }

    /// For any cut of a body into pieces, no part of a value passes, and the pieces keep their
    /// places.
    #[test]
    fn values_are_replaced_across_the_borders_of_pieces() {
        let line = "{\"object\":{\"kind\":\"Secret\",\
            \"data\":{\"p\":\"Y2FuYXJ5IGNhbmFyeSBjYW5hcnk=\"}}}\n";
        for lines in [true, false] {
            for at in 1..line.len() {
                let chunks = taped(false, lines, &[(&line[..at], 1), (&line[at..], 50)]);
                assert_eq!(chunks.len(), 2);
                assert_eq!((chunks[0].0.len(), chunks[0].1, chunks[1].1), (at, 1, 50));
                let whole: String = chunks.into_iter().map(|(text, _)| text).collect();
                let parsed: serde_json::Value = serde_json::from_str(&whole).unwrap();
                assert_eq!(
                    parsed["object"]["data"]["p"],
                    "cmVkYWN0ZWQtMS5yZWRhY3RlZC0="
                );
            }
        }
    }

    #[test]
    fn events_that_came_together_are_pieces_of_their_own() {
        assert_eq!(
            taped(
                false,
                true,
                &[("{}\n[]\n{\"a\"", 1), (":1}\n{\"b\"", 2), (":2}\n", 99)]
            ),
            [
                ("{}\n".into(), 1),
                ("[]\n".into(), 1),
                ("{\"a\":1}\n".into(), 2),
                ("{\"b\"".into(), 2),
                (":2}\n".into(), 99),
            ]
        );
    }

    #[test]
    fn a_body_that_came_together_is_one_piece_and_characters_stay_whole() {
        assert_eq!(
            taped(false, false, &[("{\"a\":", 1), ("1}\n", 9)]),
            [("{\"a\":1}\n".into(), 9)]
        );
        let mut tap = Tap::new(&Arc::default(), false, false);
        for (index, byte) in (0..).zip("[\"\u{e9}\"]".bytes()) {
            tap.piece(&[byte], Duration::from_millis(index * 20));
        }
        let chunks: Vec<_> = tap.finish().into_iter().map(|chunk| chunk.text).collect();
        assert_eq!(chunks, ["[", "\"", "\u{e9}", "\"", "]"]);
    }

    #[test]
    fn a_body_cut_in_a_value_shows_none_of_it() {
        let cut = "{\"kind\":\"Secret\",\"data\":{\"p\":\"Y2FuYX";
        for lines in [true, false] {
            let chunks = taped(false, lines, &[(cut, 1)]);
            assert!(!chunks[0].0.contains("Y2Fu"), "{chunks:?}");
        }
    }
}
