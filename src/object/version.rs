//! An opaque position in the server's history, with its comparison rule.

use std::cmp::Ordering;
use std::fmt;

use crate::sync::Arc;

/// The beginning of a version that this program made.
const LOCAL: &str = "local-";

/// A version of an object or a list, as the server sent it. Only two decimal numbers have an order.
/// Cheap to clone.
///
/// A source whose server sends no versions makes its own. These are [local](Self::is_local).
///
/// # Examples
///
/// ```
/// use kubecache::object::ResourceVersion;
///
/// let (old, new) = (ResourceVersion::from("9"), ResourceVersion::from("10"));
/// assert!(old.is_older_than(&new));
/// // A version that is no number is never older.
/// assert!(!ResourceVersion::from("odd").is_older_than(&new));
/// ```
#[doc(alias = "resourceVersion")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Arc<str>);

impl ResourceVersion {
    /// Returns the empty version. A list at it is the most recent, read from etcd with quorum.
    pub fn most_recent() -> Self {
        Self::default()
    }

    /// Returns the version `0`. A list at it comes from the server's cache, and may have any age.
    pub fn any() -> Self {
        Self::from("0")
    }

    /// A version that this program makes: `local-poll-7`.
    pub(crate) fn local(what: &str, number: u64) -> Self {
        Self::from(format!("{LOCAL}{what}-{number}"))
    }

    /// Whether this program made the version, because the server sent none that can be relied on.
    /// No version of a server has an order with it, and a server refuses it as a precondition.
    pub fn is_local(&self) -> bool {
        self.0.starts_with(LOCAL)
    }

    /// The version's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the version names no position: empty or `0`.
    pub fn is_unset(&self) -> bool {
        matches!(&*self.0, "" | "0")
    }

    /// Whether this version is the empty one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both are decimal numbers and this one is the smaller.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.numeric_order(other) == Some(Ordering::Less)
    }

    /// Returns the order of two decimal versions of any length; `None` when one is not a number.
    pub fn numeric_order(&self, other: &Self) -> Option<Ordering> {
        numeric_order(&self.0, &other.0)
    }
}

/// The order of two decimal versions, borrowed.
pub(crate) fn numeric_order(a: &str, b: &str) -> Option<Ordering> {
    let (a, b) = (digits(a)?, digits(b)?);
    Some(a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

fn digits(text: &str) -> Option<&str> {
    let numeric = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numeric.then(|| text.trim_start_matches('0'))
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for ResourceVersion {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_text_of_the_server() {
        for text in ["", "0", "007", "5x"] {
            assert_eq!(ResourceVersion::from(text).as_str(), text);
        }
    }

    #[test]
    fn order_is_numeric_and_only_numeric() {
        let order =
            |a: &str, b: &str| ResourceVersion::from(a).numeric_order(&ResourceVersion::from(b));
        assert_eq!(order("9", "10"), Some(Ordering::Less));
        assert_eq!(order("007", "7"), Some(Ordering::Equal));
        assert_eq!(
            order("99999999999999999999999", "5"),
            Some(Ordering::Greater)
        );
        assert_eq!(order("", "5"), None);
        assert_eq!(order("5x", "5"), None);
        let local = ResourceVersion::local("poll", 7);
        assert_eq!(order(local.as_str(), "5"), None);
        assert!(local.is_local() && !ResourceVersion::from("7").is_local());
    }
}
