//! Bodies that a fault changes on their way: events held back, sent twice or swapped, objects
//! spoilt, gzip without an end.

use std::collections::VecDeque;

use serde_json::Value;

use super::act::Act;
use super::fault::Fault;
use super::objects::{spoil, write};
use crate::clock::Clock;
use crate::testing::http::{Piece, Pieces, Reply};
use crate::worker::StopToken;

/// Applies these faults to the answer.
pub(in crate::testing) fn changed<'a>(
    mut reply: Reply<'a>,
    faults: Vec<Fault>,
    is_watch: bool,
    clock: &Clock,
) -> Reply<'a> {
    if faults.is_empty() || reply.status != 200 {
        return reply;
    }
    reply.headers.retain(|(name, _)| name != "content-length");
    let is_cut = faults.iter().any(|fault| fault.act == Act::GzipCut);
    let pulse = faults.iter().find_map(|fault| {
        if let Act::Heartbeats { every } = fault.act {
            return Some(every);
        }
        None
    });
    if let Some(every) = pulse {
        let clock = clock.clone();
        reply.body = Box::new(Heartbeat {
            inner: reply.body,
            clock,
            every,
        });
        return reply;
    }
    let lines = ContentLines {
        inner: reply.body,
        faults,
        is_watch,
        rest: Vec::new(),
        swapped: None,
        ready: VecDeque::new(),
        end: None,
    };
    reply.body = if is_cut {
        let gzip = ("content-encoding".to_owned(), "gzip".to_owned());
        reply.headers.push(gzip);
        Box::new(EndlessGzip {
            inner: lines,
            has_begun: false,
        })
    } else {
        Box::new(lines)
    };
    reply
}

/// Blank lines instead of a body.
struct Heartbeat<'a> {
    /// The body, which stays open behind them.
    inner: Box<dyn Pieces + 'a>,
    clock: Clock,
    every: std::time::Duration,
}

impl Pieces for Heartbeat<'_> {
    fn next(&mut self, stop: &StopToken) -> Piece {
        let due = self.clock.after(self.every);
        let end = self.inner.withhold(due, &self.clock, stop);
        end.unwrap_or_else(|| Piece::Bytes(b"\n".to_vec()))
    }
}

/// A body taken apart: a watch by its lines, any other as a whole.
struct ContentLines<'a> {
    inner: Box<dyn Pieces + 'a>,
    faults: Vec<Fault>,
    is_watch: bool,
    /// The beginning of the next line.
    rest: Vec<u8>,
    /// The event that the next one overtakes.
    swapped: Option<Vec<u8>>,
    ready: VecDeque<Vec<u8>>,
    end: Option<Piece>,
}

impl Pieces for ContentLines<'_> {
    fn begin(&mut self, stop: &StopToken) -> bool {
        self.inner.begin(stop)
    }

    fn next(&mut self, stop: &StopToken) -> Piece {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Piece::Bytes(ready);
            }
            if let Some(end) = self.end.take() {
                return end;
            }
            match self.inner.next(stop) {
                Piece::Bytes(bytes) => {
                    self.rest.extend_from_slice(&bytes);
                    if self.is_watch {
                        self.take_lines();
                    }
                }
                end @ (Piece::End | Piece::Cut) => {
                    let last = std::mem::take(&mut self.rest);
                    if !last.is_empty() {
                        let last = self.spoilt(&last).unwrap_or(last);
                        self.ready.push_back(last);
                    }
                    self.ready.extend(self.swapped.take());
                    self.end = Some(end);
                }
            }
        }
    }
}

impl ContentLines<'_> {
    fn take_lines(&mut self) {
        while let Some(end) = memchr::memchr(b'\n', &self.rest) {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.event(line);
        }
    }

    fn event(&mut self, line: Vec<u8>) {
        let kind = serde_json::from_slice::<Value>(&line).ok();
        let kind = kind.as_ref().and_then(|event| event.get("type"));
        let kind = kind.and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_change = matches!(kind.as_str(), "ADDED" | "MODIFIED" | "DELETED");
        let has = |act: &Act| self.faults.iter().any(|fault| fault.act == *act);
        if (kind == "BOOKMARK" && has(&Act::NoBookmarks)) || (is_change && has(&Act::NoEvents)) {
            return;
        }
        let (twice, swaps) = (has(&Act::DuplicateEvents), has(&Act::ReorderEvents));
        let line = self.spoilt(&line).unwrap_or(line);
        if swaps && is_change && self.swapped.is_none() {
            self.swapped = Some(line);
            return;
        }
        if twice && is_change {
            self.ready.push_back(line.clone());
        }
        self.ready.push_back(line);
        if is_change {
            self.ready.extend(self.swapped.take());
        }
    }

    /// The text with its objects spoilt; `None` if it is not JSON, or no fault spoils it.
    fn spoilt(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut document: Value = serde_json::from_slice(text).ok()?;
        let before = document.clone();
        match document.get_mut("object") {
            Some(object) if self.is_watch => spoil(object, &self.faults),
            _ => spoil(&mut document, &self.faults),
        }
        if document == before {
            return None;
        }
        let mut written = write(&document, &self.faults);
        written.push(b'\n');
        Some(written)
    }
}

/// A gzip stream of stored blocks, without the last one and the checksum.
struct EndlessGzip<'a> {
    inner: ContentLines<'a>,
    has_begun: bool,
}

impl Pieces for EndlessGzip<'_> {
    fn begin(&mut self, stop: &StopToken) -> bool {
        self.inner.begin(stop)
    }

    fn next(&mut self, stop: &StopToken) -> Piece {
        let bytes = match self.inner.next(stop) {
            Piece::Bytes(bytes) => bytes,
            end @ (Piece::End | Piece::Cut) => return end,
        };
        let mut packed = Vec::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            packed.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
        }
        for block in bytes.chunks(usize::from(u16::MAX)) {
            let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
            packed.push(0);
            packed.extend_from_slice(&length.to_le_bytes());
            packed.extend_from_slice(&(!length).to_le_bytes());
            packed.extend_from_slice(block);
        }
        Piece::Bytes(packed)
    }
}
