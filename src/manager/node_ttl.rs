//! The time to live that the cluster gives its nodes through an annotation.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The annotation which the cluster's TTL controller writes on each node.
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// Stands for "no value": longer than any time to live in seconds that an annotation can hold in 63
/// bits.
const NONE: u64 = u64::MAX;

/// The time to live in a node's annotation `node.alpha.kubernetes.io/ttl`.
///
/// Whole seconds, a sign allowed. A negative number counts as zero, which means "ask each time".
/// `None` without the annotation, or when it is not such a number.
fn ttl_of_node(node: &ObjectMeta) -> Option<Duration> {
    let annotations = node.annotations.as_ref()?;
    let seconds: i64 = annotations.get(ANNOTATION)?.parse().ok()?;
    Some(Duration::from_secs(seconds.try_into().unwrap_or_default()))
}

/// A node's time to live for cached objects, shared between the code that watches the node and the
/// managers that use it.
///
/// Cloning is cheap, and clones share one value. It has no value at first.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Node;
/// use kubecache::manager::{ChangeDetection, ManagerOptions, NodeTtl};
/// use std::time::Duration;
///
/// let ttl = NodeTtl::new();
/// let options = ManagerOptions::default().change_detection(ChangeDetection::Cache);
/// let options = options.node_ttl(ttl.clone());
///
/// // A watch of the node passes on each of its states.
/// let mut node = Node::default();
/// let annotation = ("node.alpha.kubernetes.io/ttl".to_owned(), "15".to_owned());
/// node.metadata.annotations = Some([annotation].into());
/// ttl.observe(Some(&node.metadata));
/// assert_eq!(ttl.get(), Some(Duration::from_secs(15)));
/// # drop(options);
/// ```
#[doc(alias = "GetObjectTTLFromNodeFunc")]
#[derive(Clone, Debug)]
pub struct NodeTtl(Arc<AtomicU64>);

impl Default for NodeTtl {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(NONE)))
    }
}

impl NodeTtl {
    /// Makes one without a value: the default time to live applies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the current value, if there is one. Never blocks.
    pub fn get(&self) -> Option<Duration> {
        match self.0.load(Ordering::Relaxed) {
            NONE => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// Sets or clears the value, from the next read on. It is at most five hundred years.
    pub fn set(&self, ttl: Option<Duration>) {
        let longest = NONE.saturating_sub(1);
        let nanos = ttl.map_or(NONE, |ttl| {
            u64::try_from(ttl.as_nanos()).map_or(longest, |nanos| nanos.min(longest))
        });
        self.0.store(nanos, Ordering::Relaxed);
    }

    /// Sets the value from the node's annotation, which is in its metadata. Without a node or an
    /// annotation it is cleared.
    pub fn observe(&self, node: Option<&ObjectMeta>) {
        self.set(node.and_then(ttl_of_node));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    fn node(annotations: Option<&[(&str, &str)]>) -> Node {
        let mut node = Node::default();
        node.metadata.annotations = annotations.map(|pairs| {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        });
        node
    }

    /// OS-18, `TestParseNodeAnnotation`, row by row.
    #[test]
    fn os_18_the_table_of_annotations() {
        let second = Duration::from_secs;
        let rows: [(&str, Option<&str>, Option<Duration>); 11] = [
            ("none", None, None),
            ("empty", Some(""), None),
            ("no number", Some("bad"), None),
            ("zero", Some("0"), Some(second(0))),
            ("a minute", Some("60"), Some(second(60))),
            ("signed", Some("+15"), Some(second(15))),
            ("negative: ask each time", Some("-5"), Some(second(0))),
            ("a unit", Some("60s"), None),
            ("a fraction", Some("1.5"), None),
            ("a space", Some(" 60"), None),
            ("too large", Some("9223372036854775808"), None),
        ];
        for (what, value, expected) in rows {
            let node = match value {
                None => node(Some(&[("other", "60")])),
                Some(value) => node(Some(&[(ANNOTATION, value)])),
            };
            assert_eq!(ttl_of_node(&node.metadata), expected, "{what}");
            let ttl = NodeTtl::new();
            ttl.observe(Some(&node.metadata));
            assert_eq!(ttl.get(), expected, "{what}");
        }
        assert_eq!(ttl_of_node(&node(None).metadata), None, "no annotations");
    }

    /// OS-18: without a node, and when asking for it failed, there is no value, and an old one does
    /// not stay.
    #[test]
    fn os_18_an_unknown_node_has_no_value() {
        let ttl = NodeTtl::new();
        assert_eq!(ttl.get(), None);
        ttl.set(Some(Duration::ZERO));
        assert_eq!(ttl.get(), Some(Duration::ZERO));
        ttl.observe(None);
        assert_eq!(ttl.get(), None);
        ttl.set(Some(Duration::MAX));
        assert!(ttl.get().is_some(), "cut, not lost");
    }
}
