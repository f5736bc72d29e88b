//! The rule by which older news is refused (B18): pure, shared by every place that holds final content.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashMap;

use crate::error::{Error, ErrorKind};
use crate::object::ResourceVersion;
use crate::reflector::Replacement;
use crate::sync::Arc;

/// Deletions remembered, so that a repeated old event does not bring an object back. Uids are never used twice;
/// what repeats is recent.
const GONE_MAX: usize = 64;

/// Ends of objects remembered that no event told of. One list may tell of many at once: these are kept in two halves, of
/// which the older one goes when the newer one is full.
const UNSEEN_MAX: usize = 8_192;

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
    unseen: Unseen,
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
        let held = held.filter(|held| held.uid == incoming.uid);
        let held = held.map(|held| held.resource_version);
        let stale = match held.and_then(|held| incoming.resource_version.numeric_order(held)) {
            Some(order) => order.is_lt(),
            // What is held says nothing of this object, which may be one that has ended.
            None => self.is_gone(incoming),
        };
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

    /// Remembers that an object has ended although no event told so: a list at `by` went without it, or another object
    /// has taken its key with `by`. What comes of it later and is not newer than that is refused.
    ///
    /// Bounded: of a list that ends more than some thousands of objects, the last ones are remembered.
    pub fn ended_unseen(&mut self, uid: &str, by: &ResourceVersion) {
        if !uid.is_empty() {
            self.unseen.insert(uid, by);
        }
    }

    /// Whether a list may replace the content: one read at the most recent version always may, and resets the floor.
    pub fn admits_replacement(&mut self, of: &Replacement) -> bool {
        let goes_back = of.resource_version.is_older_than(&self.position);
        if of.consistent || of.history_expired {
            if goes_back {
                self.forget_ends();
            }
            self.position = of.resource_version.clone();
            return true;
        }
        let stale = of.resource_version.is_older_than(&self.position);
        self.judge(!stale, &of.resource_version)
    }

    /// The server went back in time, and with it what it deleted.
    fn forget_ends(&mut self) {
        self.gone.clear();
        self.unseen = Unseen::default();
    }

    /// The refusal of a list in words.
    pub(crate) fn stale(&self, of: &Replacement) -> Error {
        let text = format!(
            "the list at version {} is older than version {}",
            of.resource_version, self.position
        );
        Error::new(ErrorKind::Stale, text)
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
        let is_past = |end: &ResourceVersion| {
            let order = incoming.resource_version.numeric_order(end);
            order.is_some_and(Ordering::is_le)
        };
        let mut gone = self.gone.iter();
        gone.any(|(uid, end)| **uid == *incoming.uid && is_past(end))
            || self.unseen.get(incoming.uid).is_some_and(is_past)
    }
}

/// Which objects have ended without an event, and at which version at the latest.
///
/// A uid is as long as the server likes, so its hash is kept: two of 64 bits are the same by accident once in more
/// objects than a server will have, and then only what is older than the end is refused.
#[derive(Clone, Debug, Default)]
struct Unseen {
    hasher: RandomState,
    newer: HashMap<u64, Arc<ResourceVersion>>,
    older: HashMap<u64, Arc<ResourceVersion>>,
    /// The last version given: the objects that one list ends share it.
    last: Arc<ResourceVersion>,
}

impl Unseen {
    fn get(&self, uid: &str) -> Option<&ResourceVersion> {
        if self.newer.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(uid);
        let end = self.newer.get(&hash).or_else(|| self.older.get(&hash));
        end.map(|end| &**end)
    }

    fn insert(&mut self, uid: &str, by: &ResourceVersion) {
        if *self.last != *by {
            self.last = Arc::new(by.clone());
        }
        if self.newer.len() >= UNSEEN_MAX / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer
            .insert(self.hasher.hash_one(uid), Arc::clone(&self.last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_change_admitted(held: Option<(&str, &str)>, incoming: (&str, &str)) -> bool {
        judge(&mut Floor::default(), held, incoming, Floor::admits_change)
    }

    fn is_delete_admitted(held: Option<(&str, &str)>, incoming: (&str, &str)) -> bool {
        judge(&mut Floor::default(), held, incoming, Floor::admits_delete)
    }

    fn judge(
        floor: &mut Floor,
        held: Option<(&str, &str)>,
        incoming: (&str, &str),
        rule: fn(&mut Floor, Option<Identity<'_>>, Identity<'_>) -> bool,
    ) -> bool {
        let version = held.map(|(_, version)| ResourceVersion::from(version));
        let held = held
            .zip(version.as_ref())
            .map(|((uid, _), version)| Identity {
                uid,
                resource_version: version,
            });
        let version = ResourceVersion::from(incoming.1);
        let incoming = Identity {
            uid: incoming.0,
            resource_version: &version,
        };
        rule(floor, held, incoming)
    }

    /// B18, row by row: what is held, what comes, whether a change and whether a deletion is accepted.
    #[test]
    fn the_table_of_the_rule() {
        let rows = [
            (None, ("a", "5"), true, true),
            (Some(("a", "5")), ("a", "6"), true, true),
            (Some(("a", "5")), ("a", "5"), true, true),
            (Some(("a", "5")), ("a", "4"), false, false),
            (Some(("a", "10")), ("a", "9"), false, false),
            (Some(("a", "5")), ("b", "4"), true, false),
            (Some(("a", "5")), ("b", "6"), true, true),
            (Some(("a", "odd")), ("a", "4"), true, true),
            (Some(("a", "5")), ("a", "odd"), true, true),
            (Some(("a", "5")), ("a", ""), true, true),
        ];
        for (held, incoming, change, delete) in rows {
            assert_eq!(
                is_change_admitted(held, incoming),
                change,
                "change {held:?} {incoming:?}"
            );
            assert_eq!(
                is_delete_admitted(held, incoming),
                delete,
                "delete {held:?} {incoming:?}"
            );
        }
    }

    /// B18: an event from before a deletion does not bring the object back; a later one, and another object, may come.
    #[test]
    fn what_was_deleted_stays_deleted() {
        let mut floor = Floor::default();
        assert!(judge(
            &mut floor,
            Some(("a", "5")),
            ("a", "7"),
            Floor::admits_delete
        ));
        assert!(!judge(&mut floor, None, ("a", "6"), Floor::admits_change));
        assert!(!judge(&mut floor, None, ("a", "7"), Floor::admits_change));
        assert!(judge(&mut floor, None, ("b", "6"), Floor::admits_change));
        assert!(
            judge(&mut floor, None, ("a", "8"), Floor::admits_change),
            "selected again"
        );
        assert!(judge(&mut floor, None, ("a", "odd"), Floor::admits_change));
        assert_eq!(floor.refused(), 2);
        for number in 0..GONE_MAX {
            let uid = format!("other-{number}");
            assert!(judge(&mut floor, None, (&uid, "9"), Floor::admits_delete));
        }
        assert_eq!(floor.gone.len(), GONE_MAX, "bounded");
    }

    /// B18: the same for objects whose end no event told of, as many as one list may end.
    #[test]
    fn b18_what_a_list_ended_stays_ended() {
        let mut floor = Floor::default();
        let by = ResourceVersion::from("9");
        floor.ended_unseen("a", &by);
        floor.ended_unseen("", &by);
        let change = Floor::admits_change;
        assert!(!judge(&mut floor, None, ("a", "8"), change));
        assert!(!judge(&mut floor, None, ("a", "9"), change));
        assert!(
            !judge(&mut floor, Some(("b", "12")), ("a", "8"), change),
            "another object has its key"
        );
        assert!(
            judge(&mut floor, None, ("a", "10"), change),
            "selected again"
        );
        assert!(judge(&mut floor, None, ("a", "odd"), change));
        assert!(
            judge(&mut floor, None, ("b", "8"), change),
            "another object"
        );
        assert!(judge(&mut floor, None, ("", "8"), change), "without a uid");
        assert_eq!(floor.refused(), 3);

        for number in 0..UNSEEN_MAX * 3 {
            floor.ended_unseen(&format!("other-{number}"), &by);
            let remembered = floor.unseen.newer.len() + floor.unseen.older.len();
            assert!(remembered <= UNSEEN_MAX, "bounded");
        }
        let last = format!("other-{}", UNSEEN_MAX * 3 - 1);
        assert!(!judge(&mut floor, None, (&last, "8"), change));
    }

    /// B18: what a server that was put back in time has ended may come once more.
    #[test]
    fn b18_a_list_from_before_forgets_what_has_ended() {
        for expired in [true, false] {
            let mut floor = Floor::at(ResourceVersion::from("9"));
            floor.ended_unseen("a", &ResourceVersion::from("9"));
            let of = Replacement {
                resource_version: ResourceVersion::from("5"),
                consistent: !expired,
                history_expired: expired,
            };
            assert!(floor.admits_replacement(&of));
            assert!(judge(&mut floor, None, ("a", "6"), Floor::admits_change));
        }
    }

    #[test]
    fn the_floor_rises_and_only_a_list_lowers_it() {
        let mut floor = Floor::at(ResourceVersion::from("5"));
        floor.raise(&ResourceVersion::from("9"));
        floor.raise(&ResourceVersion::from("7"));
        assert_eq!(floor.position().as_str(), "9");
        let mut of = Replacement {
            resource_version: ResourceVersion::from("8"),
            ..Replacement::default()
        };
        assert!(!floor.admits_replacement(&of));
        assert_eq!(floor.position().as_str(), "9");
        of.consistent = true;
        assert!(floor.admits_replacement(&of));
        assert_eq!(floor.position().as_str(), "8");
    }
}
