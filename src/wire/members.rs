//! Walks the members of a JSON object, and the items of a list among them, across refills.

use std::iter;

use super::scan::{NotJson, Scan, Span, is_space, spells};

/// A complete part of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberPart {
    Key,
    Value,
    /// An item of the announced array begins here; it is an object.
    ItemStart,
    /// An item of that array.
    Item,
    /// The object itself.
    End,
}

/// The possible meanings of the next byte of the object.
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
    /// Inside an incomplete part.
    Inside(MemberPart),
}

/// The walk of one object. The caller hands in the same bytes again, with more behind them.
#[derive(Debug, Default)]
pub(super) struct Members {
    at: usize,
    place: MemberPlace,
    /// Whether the next value is walked item by item, if it is an array.
    has_items: bool,
    scan: Scan,
}

impl Members {
    /// Begins the next object.
    pub(super) fn begin(&mut self) {
        self.at = 0;
        self.place = MemberPlace::Start;
    }

    /// Walks the value of the last key item by item, if it is an array.
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

    /// Whether the last bytes are inside a string.
    pub(super) fn is_in_text(&self) -> bool {
        matches!(self.place, MemberPlace::Inside(_)) && self.scan.is_in_text()
    }

    /// Passes the item that begins here. Its length is known, so no scan looks for its end.
    pub(super) fn pass_item(&mut self, length: usize) {
        self.at = self.at.saturating_add(length);
        self.place = MemberPlace::AfterItem;
    }

    /// Notes that the first `count` bytes are gone. Within a part they may belong to a value that
    /// is passed over.
    pub(super) fn forget(&mut self, count: usize) {
        self.scan.forget(count.saturating_sub(self.at));
        self.at = self.at.saturating_sub(count);
    }

    /// Goes on in `bytes`, the object from its first byte on, to the next part; `None` asks for
    /// more.
    ///
    /// Behind the end of the object anything but white space is an error.
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
                    // The scanner must see this byte.
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

    /// The place that follows a byte of structure.
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

/// The members of a complete object: keys, with their quotes, and values.
///
/// If an error ends the walk, it comes last.
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

/// The value of the member of that name. The last of several counts, as in the decoder.
pub(super) fn find<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let [found] = find_all(bytes, [name]);
    found
}

/// The values of the members of these names, in one pass.
pub(super) fn find_all<'a, const N: usize>(
    bytes: &'a [u8],
    names: [&str; N],
) -> [Option<&'a [u8]>; N] {
    let mut all = [None; N];
    for member in members_of(bytes) {
        let Ok((key, value)) = member else {
            return [None; N];
        };
        for (name, found) in names.iter().zip(&mut all) {
            if spells(key, name) {
                *found = Some(value);
            }
        }
    }
    all
}
