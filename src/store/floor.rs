//! The rule by which older news is refused (B18): pure, shared by every place that holds final content.

use std::collections::VecDeque;

use crate::object::ResourceVersion;
use crate::reflector::Replacement;

/// Deletions remembered, so that a repeated old event does not bring an object back. Uids are never used twice;
/// what repeats is recent.
const GONE_MAX: usize = 64;

/// What identifies one state of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "uid and version are what the rule compares"
)]
pub struct Identity<'a> {
    /// The object's uid.
    pub uid: &'a str,
    /// The version of this state.
    pub resource_version: &'a ResourceVersion,
}

/// The least version a place still accepts: news about the same uid never goes back (B18).
///
/// Versions that are not numbers are always accepted. What is refused is counted.
///
/// # Examples
///
/// ```
/// use kubecache::object::ResourceVersion;
/// use kubecache::store::{Floor, Identity};
///
/// let (old, new) = (ResourceVersion::from("9"), ResourceVersion::from("10"));
/// let held = Identity { uid: "a", resource_version: &new };
/// let mut floor = Floor::default();
/// assert!(!floor.admits_change(Some(held), Identity { uid: "a", resource_version: &old }));
/// assert!(floor.admits_change(Some(held), Identity { uid: "b", resource_version: &old }), "another object");
/// assert_eq!(floor.refused(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Floor {
    position: ResourceVersion,
    gone: VecDeque<(Box<str>, ResourceVersion)>,
    refused: u64,
}

impl Floor {
    /// A floor at what an earlier run knew.
    pub fn at(position: ResourceVersion) -> Self {
        Self {
            position,
            ..Self::default()
        }
    }

    /// The latest version accepted.
    pub fn position(&self) -> &ResourceVersion {
        &self.position
    }

    /// How many events and lists were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether an added or modified state may take the place of what is held under its key.
    pub fn admits_change(&mut self, held: Option<Identity<'_>>, incoming: Identity<'_>) -> bool {
        let stale = held.is_some_and(|held| goes_back(held, incoming)) || self.is_gone(incoming);
        self.judge(!stale, incoming.resource_version)
    }

    /// Whether a deletion may remove what is held under its key. An admitted deletion is remembered.
    pub fn admits_delete(&mut self, held: Option<Identity<'_>>, incoming: Identity<'_>) -> bool {
        let stale = held.is_some_and(|held| {
            incoming
                .resource_version
                .is_older_than(held.resource_version)
        });
        if !stale && !incoming.uid.is_empty() {
            if self.gone.len() >= GONE_MAX {
                self.gone.pop_front();
            }
            self.gone
                .push_back((incoming.uid.into(), incoming.resource_version.clone()));
        }
        self.judge(!stale, incoming.resource_version)
    }

    /// Whether a list may replace the content: one read at the most recent version always may, and resets the floor.
    pub fn admits_replacement(&mut self, of: &Replacement) -> bool {
        if of.consistent || of.history_expired {
            self.position = of.resource_version.clone();
            self.gone.clear();
            return true;
        }
        let stale = of.resource_version.is_older_than(&self.position);
        if !stale {
            self.gone.clear();
        }
        self.judge(!stale, &of.resource_version)
    }

    /// Raises the floor to a version the caller has seen elsewhere, such as in a fresh read; never lowers it.
    pub fn raise(&mut self, version: &ResourceVersion) {
        if self.position.is_unset() || self.position.is_older_than(version) {
            self.position = version.clone();
        }
    }

    fn judge(&mut self, admitted: bool, version: &ResourceVersion) -> bool {
        if admitted {
            self.raise(version);
        } else {
            self.refused = self.refused.saturating_add(1);
        }
        admitted
    }

    fn is_gone(&self, incoming: Identity<'_>) -> bool {
        self.gone.iter().any(|(uid, version)| {
            **uid == *incoming.uid
                && !version.is_older_than(incoming.resource_version)
                && version.numeric_order(incoming.resource_version).is_some()
        })
    }
}

fn goes_back(held: Identity<'_>, incoming: Identity<'_>) -> bool {
    held.uid == incoming.uid
        && incoming
            .resource_version
            .is_older_than(held.resource_version)
}
