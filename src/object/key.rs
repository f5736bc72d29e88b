//! Namespace and name, which identify an object of a kind.

use std::fmt;
use std::str::FromStr;

use hashbrown::Equivalent;

use crate::error::{Error, visible};
use crate::sync::Arc;

/// Namespace and name of an object; the namespace is empty for cluster-scoped objects.
///
/// Written `namespace/name`, or `name` alone when the namespace is empty.
///
/// # Examples
///
/// ```
/// use kubecache::object::ObjectKey;
///
/// assert_eq!(ObjectKey::new("shop", "db").to_string(), "shop/db");
/// assert_eq!(ObjectKey::parse("node-1"), Some(ObjectKey::new("", "node-1")));
/// assert_eq!(ObjectKey::parse("a/b/c"), None);
/// let error = "a/b/c".parse::<ObjectKey>().unwrap_err();
/// assert_eq!(error.to_string(), "unexpected key format: \"a/b/c\"");
/// ```
#[doc(alias = "MetaNamespaceKey")]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    namespace: Box<str>,
    name: Box<str>,
}

impl ObjectKey {
    /// Makes a key of two parts, without validating them.
    pub fn new(namespace: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Reads `namespace/name` or `name`; `None` with more than one slash.
    #[doc(alias = "SplitMetaNamespaceKey")]
    pub fn parse(key: &str) -> Option<Self> {
        match key.split_once('/') {
            None => Some(Self::new("", key)),
            Some((_, name)) if name.contains('/') => None,
            Some((namespace, name)) => Some(Self::new(namespace, name)),
        }
    }

    /// The namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = visible(&self.name);
        if self.namespace.is_empty() {
            f.write_str(&name)
        } else {
            write!(f, "{}/{name}", visible(&self.namespace))
        }
    }
}

/// Namespace and name of an object, borrowed, to find an [`ObjectKey`] in a map of `hashbrown`
/// without an allocation.
///
/// Hashes as [`ObjectKey`] does.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct KeyRef<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Equivalent<ObjectKey> for KeyRef<'_> {
    fn equivalent(&self, key: &ObjectKey) -> bool {
        self.name == key.name() && self.namespace == key.namespace()
    }
}

impl Equivalent<Arc<ObjectKey>> for KeyRef<'_> {
    fn equivalent(&self, key: &Arc<ObjectKey>) -> bool {
        self.equivalent(&**key)
    }
}

impl<'a> From<&'a ObjectKey> for KeyRef<'a> {
    fn from(key: &'a ObjectKey) -> Self {
        Self {
            namespace: key.namespace(),
            name: key.name(),
        }
    }
}

impl FromStr for ObjectKey {
    type Err = Error;

    /// As [`ObjectKey::parse`]; the error, `Config`, quotes the key (KEY-3).
    fn from_str(key: &str) -> Result<Self, Error> {
        Self::parse(key).ok_or_else(|| Error::config(format!("unexpected key format: {key:?}")))
    }
}

#[cfg(test)]
mod tests {
    use hashbrown::HashMap;

    use super::*;
    use crate::error::ErrorKind;

    /// KEY-1, KEY-5: with and without a namespace; nothing is validated.
    #[test]
    fn key_1_key_5_a_key_is_written_as_namespace_and_name() {
        let rows = [
            ("shop", "db", "shop/db"),
            ("", "node-1", "node-1"),
            ("", "", ""),
            ("a", "", "a/"),
        ];
        for (namespace, name, text) in rows {
            assert_eq!(ObjectKey::new(namespace, name).to_string(), text);
        }
    }

    #[test]
    fn a_borrowed_key_finds_what_stands_under_the_whole_one() {
        let key = ObjectKey::new("shop", "db");
        let by_key: HashMap<_, _> = [(key.clone(), 1)].into_iter().collect();
        let by_shared_key: HashMap<_, _> = [(Arc::new(key.clone()), 2)].into_iter().collect();
        let borrowed = KeyRef::from(&key);
        assert_eq!(by_key.get(&borrowed), Some(&1));
        assert_eq!(by_shared_key.get(&borrowed), Some(&2));
        for (namespace, name) in [("sho", "pdb"), ("shop", "web"), ("", "db"), ("db", "shop")] {
            let other = KeyRef { namespace, name };
            assert_eq!(by_key.get(&other), None);
            // A map asks only for a key with the same bits of its hash, which chance makes.
            assert!(!other.equivalent(&key));
        }
    }

    /// KEY-3, KEY-5, `TestObjectNames`: a written key reads back.
    #[test]
    fn key_3_key_5_a_written_key_is_read_back() {
        for (namespace, name) in [
            ("shop", "db"),
            ("", "node-1"),
            ("kube-system", "coredns-x2k.v1"),
        ] {
            let key = ObjectKey::new(namespace, name);
            assert_eq!(ObjectKey::parse(&key.to_string()), Some(key));
        }
    }

    /// Row by row. A key that begins with a slash is written without it, so it does not read back
    /// the same.
    #[test]
    fn key_4_the_split_table_of_upstream() {
        let rows = [
            ("", Some(("", ""))),
            ("a", Some(("", "a"))),
            ("a/b", Some(("a", "b"))),
            ("/b", Some(("", "b"))),
            ("a/", Some(("a", ""))),
            ("a/b/c", None),
            ("//", None),
        ];
        for (key, parts) in rows {
            let expected = parts.map(|(namespace, name)| ObjectKey::new(namespace, name));
            assert_eq!(ObjectKey::parse(key), expected, "{key:?}");
            assert_eq!(key.parse().ok(), expected, "{key:?}");
        }
        let written = ObjectKey::parse("/b").map(|key| key.to_string());
        assert_eq!(written.as_deref(), Some("b"));
    }

    #[test]
    fn key_3_a_key_with_more_parts_is_an_error_that_quotes_it() {
        for (key, text) in [
            ("a/b/c", r#"unexpected key format: "a/b/c""#),
            ("//", r#"unexpected key format: "//""#),
            ("a/\n/\"", r#"unexpected key format: "a/\n/\"""#),
        ] {
            let error = key.parse::<ObjectKey>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert_eq!(error.to_string(), text);
        }
    }
}
