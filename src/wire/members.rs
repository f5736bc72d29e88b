//! Walks the members of a JSON object, and the items of a list among them, across refills.

use std::iter;

use super::scan::{NotJson, Scan, Span, is_space, spells};

/// A part of the object that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberPart {
    Key,
    Value,
    /// An item of the array that was announced begins here; an object.
    ItemStart,
    /// An item of that array.
    Item,
    /// The object itself.
    End,
}

/// What the next byte of the object can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MemberPlace {
    #[default]
    Start,
    FirstKey,
    NextKey,
    Colon,
    Value,
    AfterValue,
    FirstItem,
    NextItem,
    AfterItem,
    End,
    /// In a part that is not yet whole.
    Inside(MemberPart),
}

/// One object being walked. The same bytes are handed in again with more behind them.
#[derive(Debug, Default)]
pub(super) struct Members {
    at: usize,
    place: MemberPlace,
    /// Whether the value that comes is walked item by item, if it is an array.
    has_items: bool,
    scan: Scan,
}

impl Members {
    /// Begins the next object.
    pub(super) fn begin(&mut self) {
        self.at = 0;
        self.place = MemberPlace::Start;
    }

    /// The value behind the key that came last is walked item by item, if it is an array.
    pub(super) fn expect_items(&mut self) {
        self.has_items = true;
    }

    /// How far the walk has come.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn place(&self) -> MemberPlace {
        self.place
    }

    /// Whether the bytes that came last stand in a string.
    pub(super) fn is_in_text(&self) -> bool {
        matches!(self.place, MemberPlace::Inside(_)) && self.scan.is_in_text()
    }

    /// The item that begins here is so long, so nothing has to look for its end.
    pub(super) fn pass_item(&mut self, length: usize) {
        self.at = self.at.saturating_add(length);
        self.place = MemberPlace::AfterItem;
    }

    /// The first `count` bytes are gone. Within a part they may be those of a value that is passed
    /// over.
    pub(super) fn forget(&mut self, count: usize) {
        self.scan.forget(count.saturating_sub(self.at));
        self.at = self.at.saturating_sub(count);
    }

    /// Goes on in `bytes`, the object from its first byte on, to the next part; `None` asks for
    /// more.
    ///
    /// Behind the end of the object only white space is no error.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Option<(MemberPart, Span)>, NotJson> {
        loop {
            let start = self.at;
            if let MemberPlace::Inside(part) = self.place {
                let rest = bytes.get(start..).unwrap_or_default();
                let Some(length) = self.scan.advance(rest)? else {
                    return Ok(None);
                };
                self.at = start.saturating_add(length);
                self.place = match part {
                    MemberPart::Key => MemberPlace::Colon,
                    MemberPart::Item | MemberPart::ItemStart => MemberPlace::AfterItem,
                    MemberPart::Value | MemberPart::End => MemberPlace::AfterValue,
                };
                let end = self.at;
                return Ok(Some((part, Span { start, end })));
            }
            let Some(&byte) = bytes.get(start) else {
                return Ok(None);
            };
            #[cfg(test)]
            super::tests::steps::count(1);
            if !is_space(byte) {
                self.place = self.follow(byte)?;
                if let MemberPlace::Inside(part) = self.place {
                    // This byte is the scanner's to see.
                    if part == MemberPart::Item {
                        let end = start;
                        return Ok(Some((MemberPart::ItemStart, Span { start, end })));
                    }
                    continue;
                }
            }
            self.at = start.saturating_add(1);
            if self.place == MemberPlace::End && !is_space(byte) {
                let end = self.at;
                return Ok(Some((MemberPart::End, Span { start, end })));
            }
        }
    }

    /// Where a byte of structure leads.
    fn follow(&mut self, byte: u8) -> Result<MemberPlace, NotJson> {
        let part = match (self.place, byte) {
            (MemberPlace::Start, b'{') => return Ok(MemberPlace::FirstKey),
            (MemberPlace::FirstKey | MemberPlace::AfterValue, b'}') => {
                return Ok(MemberPlace::End);
            }
            (MemberPlace::AfterValue, b',') => return Ok(MemberPlace::NextKey),
            (MemberPlace::Colon, b':') => return Ok(MemberPlace::Value),
            (MemberPlace::FirstItem | MemberPlace::AfterItem, b']') => {
                return Ok(MemberPlace::AfterValue);
            }
            (MemberPlace::AfterItem, b',') => return Ok(MemberPlace::NextItem),
            (MemberPlace::Value, b'[') if self.has_items => {
                return Ok(MemberPlace::FirstItem);
            }
            (MemberPlace::FirstKey | MemberPlace::NextKey, b'"') => MemberPart::Key,
            (MemberPlace::FirstItem | MemberPlace::NextItem, b'{') => MemberPart::Item,
            (MemberPlace::Value, _) => MemberPart::Value,
            _ => return Err(NotJson(Some(byte))),
        };
        if part == MemberPart::Key {
            self.has_items = false;
        }
        self.scan.begin();
        Ok(MemberPlace::Inside(part))
    }
}

/// The members of an object that is there whole: keys, quotes included, and values.
///
/// The last one is the error that ends the walk, if there is one.
pub(super) fn members_of(bytes: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), NotJson>> {
    let mut members = Members::default();
    let mut key = Span::default();
    iter::from_fn(move || {
        loop {
            match members.next(bytes) {
                Ok(Some((MemberPart::Key, span))) => key = span,
                Ok(Some((MemberPart::Value | MemberPart::Item, value))) => {
                    return Some(Ok((key.of(bytes), value.of(bytes))));
                }
                Ok(Some((MemberPart::End | MemberPart::ItemStart, _))) => {}
                Ok(None) if members.place == MemberPlace::End => return None,
                Ok(None) => return Some(Err(NotJson(None))),
                Err(error) => return Some(Err(error)),
            }
        }
    })
}

/// The value of the member of that name, the last one where there are several (as the decoder has
/// it).
pub(super) fn find<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut found = None;
    for member in members_of(bytes) {
        let (key, value) = member.ok()?;
        if spells(key, name) {
            found = Some(value);
        }
    }
    found
}
