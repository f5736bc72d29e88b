//! The sealed form of a snapshot: a head that describes it, and a text that only the key opens and
//! protects against changes. Pure.
//!
//! Each write has its own salt. From it and the key come the key of the text, and a mark that
//! identifies the key. The seal covers the head too.

use std::hint::black_box;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::key::{KEY_BYTES, KeyBytes};

const MAGIC: &[u8] = b"kubecache snapshot\n";
/// The number of the format, raised with every change.
const FORM: u8 = 1;
const SALT_BYTES: usize = 32;
const MARK_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
pub(super) const NAME_BYTES_MAX: usize = 1024;

const TEXT_KEY: &[u8] = b"kubecache snapshot text";
const MARK: &[u8] = b"kubecache snapshot mark";

/// Why a file is unusable, in words that follow its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    NoSnapshot,
    OtherForm(u8),
    /// The name in the file.
    OtherName(String),
    OtherKey,
    Truncated,
    Damaged,
}

impl Unusable {
    /// Words the reason; `name` is the expected name.
    pub(super) fn words(self, name: &str) -> String {
        match self {
            Self::NoSnapshot => "it is no snapshot of kubecache".to_owned(),
            Self::OtherForm(form) => {
                format!("it has the form {form}, and this program reads the form {FORM}")
            }
            Self::OtherName(other) => {
                format!("it was written under another name: {other:?}, not {name:?}")
            }
            Self::OtherKey => "it was sealed with another key".to_owned(),
            Self::Truncated => "it is cut off".to_owned(),
            Self::Damaged => "it was changed since it was written".to_owned(),
        }
    }
}

/// The length of a mark, for the cryptographic library.
struct MarkLength;

impl KeyType for MarkLength {
    fn len(&self) -> usize {
        MARK_BYTES
    }
}

/// The secret derived from a key and a salt.
struct Derived(Prk);

impl Derived {
    fn new(key: &KeyBytes, salt: &[u8]) -> Self {
        Self(Salt::new(HKDF_SHA256, salt).extract(&**key.0))
    }

    fn mark(&self) -> Option<[u8; MARK_BYTES]> {
        let mut mark = [0; MARK_BYTES];
        let okm = self.0.expand(&[MARK], MarkLength).ok()?;
        okm.fill(&mut mark).ok()?;
        Some(mark)
    }

    /// Calls `what` with the key of the text, then overwrites that key.
    fn with_key<R>(&self, what: impl FnOnce(&LessSafeKey) -> Option<R>) -> Option<R> {
        let okm = self.0.expand(&[TEXT_KEY], &CHACHA20_POLY1305).ok()?;
        let mut key = Box::new(LessSafeKey::new(UnboundKey::from(okm)));
        let result = what(&key);
        // The library does not overwrite its keys.
        let zeros = UnboundKey::new(&CHACHA20_POLY1305, &[0; KEY_BYTES]).ok()?;
        *key = LessSafeKey::new(zeros);
        black_box(&key);
        result
    }
}

/// Overwrites remains of the key that the library left on the stack, below the caller's frame.
#[inline(never)]
fn overwrite_stack() {
    let mut stack = [0_u8; 16 * 1024];
    stack.fill(0);
    black_box(&mut stack);
}

/// Each text has a key of its own, so that its nonce need not differ.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// Seals `text`, whose memory holds the sealed form afterwards; `None` if the system has no
/// randomness. Returns the head, and the tag that follows the text.
pub(super) fn seal(
    key: &KeyBytes,
    name: &str,
    text: &mut [u8],
) -> Option<(Vec<u8>, [u8; TAG_BYTES])> {
    let sealed = seal_text(key, name, text);
    overwrite_stack();
    sealed
}

#[inline(never)]
fn seal_text(key: &KeyBytes, name: &str, text: &mut [u8]) -> Option<(Vec<u8>, [u8; TAG_BYTES])> {
    let mut salt = [0; SALT_BYTES];
    SystemRandom::new().fill(&mut salt).ok()?;
    let derived = Derived::new(key, &salt);
    let mut head = [MAGIC, &[FORM], &salt, &derived.mark()?].concat();
    head.extend_from_slice(&u16::try_from(name.len()).ok()?.to_be_bytes());
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(&u64::try_from(text.len()).ok()?.to_be_bytes());
    let tag = derived.with_key(|key| {
        let sealed = key.seal_in_place_separate_tag(nonce(), Aad::from(&head), text);
        sealed.ok()
    })?;
    Some((head, tag.as_ref().try_into().ok()?))
}

/// The maximum number of bytes besides the text.
pub(super) const HEAD_BYTES_MAX: usize =
    MAGIC.len() + 1 + SALT_BYTES + MARK_BYTES + 2 + NAME_BYTES_MAX + 8 + TAG_BYTES;

/// Opens a file in its own memory, and returns its text.
pub(super) fn open<'f>(
    key: &KeyBytes,
    name: &str,
    file: &'f mut [u8],
) -> Result<&'f [u8], Unusable> {
    let opened = open_text(key, name, file);
    overwrite_stack();
    opened
}

#[inline(never)]
fn open_text<'f>(key: &KeyBytes, name: &str, file: &'f mut [u8]) -> Result<&'f [u8], Unusable> {
    let head = Head::read(file)?;
    if head.name != name.as_bytes() {
        let other = String::from_utf8_lossy(head.name).into_owned();
        return Err(Unusable::OtherName(other));
    }
    let derived = Derived::new(key, head.salt);
    if derived.mark().as_ref().map(<[u8; MARK_BYTES]>::as_slice) != Some(head.mark) {
        return Err(Unusable::OtherKey);
    }
    let (length, text) = (head.length, head.text);
    let (head, sealed) = file.split_at_mut(length);
    let whole = text.checked_add(TAG_BYTES);
    if whole.is_none_or(|whole| sealed.len() < whole) {
        return Err(Unusable::Truncated);
    }
    let opened = derived.with_key(|key| {
        let opened = key.open_in_place(nonce(), Aad::from(&*head), sealed);
        opened.ok().map(|_text| ())
    });
    match (opened, sealed.get(..text)) {
        (Some(()), Some(text)) => Ok(text),
        _ => Err(Unusable::Damaged),
    }
}

/// The head of a file, with its length and that of the text.
struct Head<'f> {
    salt: &'f [u8],
    mark: &'f [u8],
    name: &'f [u8],
    text: usize,
    length: usize,
}

impl<'f> Head<'f> {
    fn read(file: &'f [u8]) -> Result<Self, Unusable> {
        let mut rest = match file.strip_prefix(MAGIC) {
            Some(rest) => rest,
            None if MAGIC.starts_with(file) => return Err(Unusable::Truncated),
            None => return Err(Unusable::NoSnapshot),
        };
        let mut take = |length: usize| {
            let (taken, after) = rest.split_at_checked(length).ok_or(Unusable::Truncated)?;
            rest = after;
            Ok(taken)
        };
        match take(1)? {
            &[FORM] => {}
            other => return Err(Unusable::OtherForm(other.first().copied().unwrap_or(0))),
        }
        let salt = take(SALT_BYTES)?;
        let mark = take(MARK_BYTES)?;
        let length = take(2)?.try_into().map_or(0, u16::from_be_bytes);
        let name = take(length.into())?;
        let text = take(8)?.try_into().map_or(0, u64::from_be_bytes);
        Ok(Self {
            salt,
            mark,
            name,
            text: usize::try_from(text).map_err(|_too_large| Unusable::Truncated)?,
            length: file.len().saturating_sub(rest.len()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> KeyBytes {
        let mut key = KeyBytes::default();
        key.0.fill(byte);
        key
    }

    fn sealed(text: &[u8]) -> Vec<u8> {
        let mut sealed = text.to_vec();
        let (head, tag) = seal(&key(1), "edge", &mut sealed).unwrap();
        [&head[..], &sealed, &tag].concat()
    }

    #[test]
    fn only_the_same_key_and_name_open_it() {
        let file = sealed(b"the text");
        let open = |key: &KeyBytes, name, file: &[u8]| {
            let mut file = file.to_vec();
            open(key, name, &mut file).map(<[u8]>::to_vec)
        };
        assert_eq!(open(&key(1), "edge", &file).unwrap(), b"the text");
        assert_eq!(open(&key(2), "edge", &file), Err(Unusable::OtherKey));
        let other = Unusable::OtherName("edge".to_owned());
        assert_eq!(open(&key(1), "other", &file), Err(other));
        assert!(memchr::memmem::find(&file, b"the text").is_none());
        assert_ne!(sealed(b"the text"), file, "each has a salt of its own");
    }

    /// No file causes a panic, and only the whole one opens.
    #[test]
    fn a_file_that_was_cut_or_changed_anywhere_is_told_from_a_whole_one() {
        let file = sealed(b"the text");
        for length in 0..file.len() {
            let mut cut = file[..length].to_vec();
            assert_eq!(open(&key(1), "edge", &mut cut), Err(Unusable::Truncated));
        }
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                assert!(
                    open(&key(1), "edge", &mut changed).is_err(),
                    "bit {bit} of {at}"
                );
            }
        }
        let mut foreign = b"-----BEGIN CERTIFICATE-----".to_vec();
        assert_eq!(
            open(&key(1), "edge", &mut foreign),
            Err(Unusable::NoSnapshot)
        );
    }
}
