//! Walks the members of one whole JSON object, each as the bytes that stand there.

use super::scan::{Misplaced, Scan, is_space};

/// The members of an object, strict about what stands between them.
pub(super) struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
    opened: bool,
    scan: Scan,
}

/// The bytes are no JSON object, or it is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotAnObject;

impl From<Misplaced> for NotAnObject {
    fn from(_: Misplaced) -> Self {
        Self
    }
}

impl From<serde_json::Error> for NotAnObject {
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

impl<'a> Members<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            opened: false,
            scan: Scan::default(),
        }
    }

    /// The next key, quotes included; `None` when the object ended and nothing stands behind it.
    pub(super) fn key(&mut self) -> Result<Option<&'a [u8]>, NotAnObject> {
        let before = self.token()?;
        match (before, self.opened) {
            (b'{', false) => {
                self.opened = true;
                if self.peek() == Some(b'}') {
                    self.at = self.at.saturating_add(1);
                    return self.end();
                }
            }
            (b',', true) => {}
            (b'}', true) => return self.end(),
            _ => return Err(NotAnObject),
        }
        if self.peek() != Some(b'"') {
            return Err(NotAnObject);
        }
        let key = self.value()?;
        match self.token()? {
            b':' => Ok(Some(key)),
            _ => Err(NotAnObject),
        }
    }

    /// The value of the key that came last.
    pub(super) fn value(&mut self) -> Result<&'a [u8], NotAnObject> {
        let mut scan = std::mem::take(&mut self.scan);
        scan.begin();
        let value = self.value_by(&mut scan);
        self.scan = scan;
        value.map(|(_, value)| value)
    }

    /// The value of the key that came last, by a scan that has begun, and where it starts.
    pub(super) fn value_by(&mut self, scan: &mut Scan) -> Result<(usize, &'a [u8]), NotAnObject> {
        self.peek();
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = scan.advance(rest)?.ok_or(NotAnObject)?;
        let start = self.at;
        self.at = start.saturating_add(length);
        Ok((start, rest.get(..length).unwrap_or_default()))
    }

    /// The value of the member of that name, the last one where there are several (as the decoder has it).
    pub(super) fn find(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let mut found = None;
        let mut members = Self::new(bytes);
        while let Some(key) = members.key().ok()? {
            let value = members.value().ok()?;
            if super::scan::spells(key, name) {
                found = Some(value);
            }
        }
        found
    }

    fn end(&mut self) -> Result<Option<&'a [u8]>, NotAnObject> {
        match self.peek() {
            None => Ok(None),
            Some(_) => Err(NotAnObject),
        }
    }

    /// The next byte that is no white space, left where it is.
    fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !is_space(byte) {
                return Some(byte);
            }
            self.at = self.at.saturating_add(1);
        }
        None
    }

    fn token(&mut self) -> Result<u8, NotAnObject> {
        let byte = self.peek().ok_or(NotAnObject)?;
        self.at = self.at.saturating_add(1);
        Ok(byte)
    }
}
