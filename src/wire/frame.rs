//! Finds events in chunks. Each is one JSON value of bounded size. Between events a stream holds no
//! memory.

use memchr::{memchr, memmem};

use super::buffer::Buffer;
use super::members::{MemberPart, MemberPlace, Members};
use super::options::too_large;
use super::scan::{NotJson, Span, is_space, spells};
use crate::error::Error;

/// The space for a read of a quiet stream: all that it holds while it waits.
const READ_BYTES_MIN: usize = 2048;

/// The space for a read of a busy stream: as much as one read of the transport returns.
const READ_BYTES_MAX: usize = 16 * 1024;

/// The events of one stream.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) buffer: Buffer,
    members: Members,
    /// The key of the next member, and the members of the event so far.
    key: Span,
    kind: Option<Span>,
    object: Option<Span>,
    /// Whether the stream has ended.
    pub(super) at_end: bool,
    /// The number of pending bytes that were searched for a newline.
    searched: usize,
    /// The newline that ends the next line, once it was found.
    newline: Option<usize>,
    /// The number of bytes used up, within events and between them.
    pub(super) used: usize,
    bytes_max: usize,
    /// The option that raises the limit.
    option: &'static str,
}

/// One event, and the spans of its members. Of several members with one name the last counts, as in
/// the decoder.
pub(super) struct Frame<'a> {
    pub(super) bytes: &'a [u8],
    /// The value of `type`.
    pub(super) kind: Option<Span>,
    pub(super) object: Option<Span>,
}

impl Frames {
    /// Creates a stream of events of at most `bytes_max`, a limit that `option` raises.
    pub(super) fn new(bytes_max: usize, option: &'static str) -> Self {
        Self {
            buffer: Buffer::new(READ_BYTES_MIN, READ_BYTES_MAX),
            bytes_max,
            option,
            ..Self::default()
        }
    }

    /// The next line, without its newline. `None` until the whole line has come, and once the scan
    /// of its event has begun.
    pub(super) fn line(&mut self) -> Option<&[u8]> {
        if self.members.place() != MemberPlace::Start {
            return None;
        }
        if self.newline.is_none() {
            self.pass_blanks();
            let pending = self.buffer.pending();
            let bytes = pending.get(..self.bytes_max).unwrap_or(pending);
            let unsearched = bytes.get(self.searched..).unwrap_or_default();
            let newline = memchr(b'\n', unsearched);
            #[cfg(test)]
            super::tests::steps::count(newline.unwrap_or(unsearched.len()));
            let Some(newline) = newline else {
                self.searched = bytes.len();
                return None;
            };
            self.newline = Some(self.searched.saturating_add(newline));
        }
        self.buffer.pending().get(..self.newline?)
    }

    /// Consumes the first `length` pending bytes, which were an event.
    pub(super) fn pass(&mut self, length: usize) -> &[u8] {
        self.searched = 0;
        self.newline = None;
        self.used = self.used.saturating_add(length);
        self.members.begin();
        self.buffer.take(length)
    }

    /// The next whole event, or an error if the bytes are not a JSON object; `None` asks for bytes.
    ///
    /// # Errors
    ///
    /// `TooLarge`, naming the option, when an event exceeds its maximum.
    pub(super) fn next(&mut self) -> Result<Option<Result<Frame<'_>, NotJson>>, Error> {
        let length = match self.advance() {
            Ok(length) => length,
            Err(broken) => return Ok(Some(Err(broken))),
        };
        let Some(length) = length else {
            if self.partial() > self.bytes_max {
                let what = "an event of the watch";
                return Err(too_large(what, self.bytes_max, self.option));
            }
            return Ok(None);
        };
        let (kind, object) = (self.kind.take(), self.object.take());
        let bytes = self.pass(length);
        Ok(Some(Ok(Frame {
            bytes,
            kind,
            object,
        })))
    }

    /// The length of the event, if all of it has come.
    ///
    /// The scan goes line by line. Servers end an event with its only newline. A newline before the
    /// end stands between tokens, or the event was cut off in a string. Such a string would swallow
    /// the events behind it. A short event without a newline is scanned when it may be whole.
    fn advance(&mut self) -> Result<Option<usize>, NotJson> {
        let pending = self.buffer.pending();
        let bytes = pending.get(..self.bytes_max).unwrap_or(pending);
        if self.members.place() == MemberPlace::Start {
            let has_newline = self.searched < bytes.len();
            let must_be_known = self.at_end || pending.len() > READ_BYTES_MAX.min(self.bytes_max);
            if !has_newline && !must_be_known && !may_be_whole(bytes) {
                return Ok(None);
            }
            self.searched = 0;
        }
        loop {
            let unsearched = bytes.get(self.searched..).unwrap_or_default();
            let newline = memchr(b'\n', unsearched);
            let length = newline.map_or(unsearched.len(), |at| at.saturating_add(1));
            let line_end = self.searched.saturating_add(length);
            let lines = bytes.get(..line_end).unwrap_or_default();
            while let Some((part, span)) = self.members.next(lines)? {
                match part {
                    MemberPart::Key => self.key = span,
                    MemberPart::End => return Ok(Some(span.end)),
                    MemberPart::ItemStart => {}
                    MemberPart::Value | MemberPart::Item => {
                        let key = self.key.of(bytes);
                        if spells(key, "object") {
                            self.object = Some(span);
                        } else if spells(key, "type") {
                            self.kind = Some(span);
                        }
                    }
                }
            }
            self.searched = line_end;
            if newline.is_none() {
                return Ok(None);
            }
            if self.members.is_in_text() {
                return Err(NotJson(Some(b'\n')));
            }
        }
    }

    fn pass_blanks(&mut self) {
        let pending = self.buffer.pending();
        let blanks = pending.iter().position(|byte| !is_space(*byte));
        let blanks = blanks.unwrap_or(pending.len());
        #[cfg(test)]
        super::tests::steps::count(blanks);
        self.used = self.used.saturating_add(blanks);
        self.buffer.take(blanks);
    }

    /// The number of bytes of an incomplete event.
    pub(super) fn partial(&self) -> usize {
        self.buffer.pending().len()
    }
}

/// Whether bytes without a newline may hold a whole event, or certainly begin with none.
fn may_be_whole(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| *first != b'{')
        || bytes.trim_ascii_end().ends_with(b"}")
        || memmem::find(bytes, b"}{").is_some()
}
