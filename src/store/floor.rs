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
        let stale = of.resource_version.is_older_than(&self.position);
        if of.consistent || of.history_expired {
            if stale {
                // The server went back in time, and with it what it deleted.
                self.gone.clear();
            }
            self.position = of.resource_version.clone();
            return true;
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
