//! Finds where a watch event ends, across refills, and on the way where its type and its object
//! stand.

use super::members::NotAnObject;
use super::scan::{Cutting, Scan, Shape, Span, is_space, spells};

/// What the next byte of the event can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Start,
    FirstKey,
    NextKey,
    Colon,
    Value,
    AfterValue,
    /// In a key, or in a value, that is not yet whole.
    InKey,
    InValue,
}

/// The member whose value comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Member {
    Type,
    Object,
    #[default]
    Other,
}

/// Where the members of an event stand, the last ones where there are several (as the decoder has
/// it).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Envelope {
    /// The value of `type`.
    pub(super) kind: Option<Span>,
    pub(super) object: Option<Span>,
}

/// One event being scanned. The same bytes are handed in again with more behind them until its end
/// is found.
#[derive(Debug, Default)]
pub(super) struct EventScan {
    at: usize,
    place: Place,
    member: Member,
    envelope: Envelope,
    scan: Scan,
    cutting: Cutting,
}

impl EventScan {
    /// The spans that are to be cut out of objects are noted.
    pub(super) fn new(cutting: Cutting) -> Self {
        Self {
            cutting,
            ..Self::default()
        }
    }

    /// Whether no byte of an event has come.
    pub(super) fn is_between(&self) -> bool {
        self.at == 0
    }

    /// Begins the event anew; it ends where a string of it has a newline, which JSON does not
    /// allow.
    pub(super) fn begin_strictly(&mut self) {
        self.end();
        self.scan.be_strict(true);
    }

    pub(super) fn is_strict(&self) -> bool {
        self.scan.is_strict()
    }

    /// Where the members stand of the event whose end was found; the next one begins. Its object's
    /// shape stays.
    pub(super) fn end(&mut self) -> Envelope {
        self.at = 0;
        self.place = Place::Start;
        self.scan.be_strict(false);
        std::mem::take(&mut self.envelope)
    }

    /// What was seen of the object.
    pub(super) fn shape(&self) -> &Shape {
        self.scan.shape()
    }

    pub(super) fn release(&mut self) {
        self.scan.release();
    }

    pub(super) fn held(&self) -> usize {
        self.scan.held()
    }

    /// Goes on in `bytes`, the event from its first byte on; `None` asks for more of it, `Some` is
    /// its length.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotAnObject> {
        loop {
            if matches!(self.place, Place::InKey | Place::InValue) {
                let rest = bytes.get(self.at..).unwrap_or_default();
                let Some(length) = self.scan.advance(rest)? else {
                    return Ok(None);
                };
                self.ended(bytes, length);
                continue;
            }
            let Some(&byte) = bytes.get(self.at) else {
                return Ok(None);
            };
            if !is_space(byte) {
                self.place = match (self.place, byte) {
                    (Place::Start, b'{') => Place::FirstKey,
                    (Place::AfterValue, b',') => Place::NextKey,
                    (Place::Colon, b':') => Place::Value,
                    (Place::FirstKey | Place::AfterValue, b'}') => {
                        return Ok(Some(self.at.saturating_add(1)));
                    }
                    // These begin a key or a value and stay for the scanner to see.
                    (Place::FirstKey | Place::NextKey, b'"') => {
                        self.scan.begin();
                        self.place = Place::InKey;
                        continue;
                    }
                    (Place::Value, _) => {
                        if self.member == Member::Object {
                            self.scan.begin_object(self.cutting);
                        } else {
                            self.scan.begin();
                        }
                        self.place = Place::InValue;
                        continue;
                    }
                    _ => return Err(NotAnObject),
                };
            }
            self.at = self.at.saturating_add(1);
        }
    }

    /// A key or a value has come whole.
    fn ended(&mut self, bytes: &[u8], length: usize) {
        let start = self.at;
        self.at = start.saturating_add(length);
        let span = Span {
            start,
            end: self.at,
        };
        if self.place == Place::InKey {
            let key = span.of(bytes);
            self.member = if spells(key, "object") {
                Member::Object
            } else if spells(key, "type") {
                Member::Type
            } else {
                Member::Other
            };
            self.place = Place::Colon;
            return;
        }
        match self.member {
            Member::Type => self.envelope.kind = Some(span),
            Member::Object => self.envelope.object = Some(span),
            Member::Other => {}
        }
        self.place = Place::AfterValue;
    }
}
