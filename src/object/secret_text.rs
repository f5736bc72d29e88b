//! Text for a program's own types that is overwritten on drop.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// Text that may be secret, for the fields of a program's own [`Object`](super::Object).
///
/// It is copied once from the JSON, and overwritten on drop. That holds even if another field of
/// the object does not decode, when [`wipe`](super::Object::wipe) is not called. Its `Debug` does
/// not show it.
///
/// # Examples
///
/// ```
/// use kubecache::object::SecretText;
///
/// let text = serde_json::from_str::<SecretText>("\"made-up\"")?;
/// assert_eq!(&*text, "made-up");
/// assert_eq!(format!("{text:?}"), "[7 bytes]");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl Deref for SecretText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0.len())
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // A string from the JSON is copied into memory of its exact size.
        String::deserialize(from).map(|text| Self(Zeroizing::new(text)))
    }
}
