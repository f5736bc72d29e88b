//! The rule that refuses older news (B18): pure, for every owner of final content.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::error::{Error, ErrorKind};
use crate::object::{ResourceVersion, numeric_order};
use crate::reflector::Replacement;

/// How many deletions the guard remembers since the last list of a collection, so that a repeated
/// old event does not bring an object back. Uids are never reused, and only recent events repeat.
const TOMBSTONES_MAX: usize = 64;

/// Refuses states that would take an object back in time (B18), and counts them.
///
/// The guard compares a held object by its own version. An object that is not held had ended, or
/// did not exist yet, at the last list: a state that is not newer than the list is old. A later
/// deletion has a tombstone. The guard always accepts versions that are not numbers. A uid and a
/// version, in that order, identify a state.
#[derive(Clone, Debug, Default)]
pub(crate) struct VersionGuard {
    position: ResourceVersion,
    listed: ResourceVersion,
    tombstones: VecDeque<(Box<str>, Box<str>)>,
    tombstones_max: usize,
    refused: u64,
}

impl VersionGuard {
    /// The guard of many objects.
    pub(crate) fn of_collection() -> Self {
        Self::new(TOMBSTONES_MAX)
    }

    /// The guard of one object. A deletion may end two of its name.
    pub(crate) fn of_entry() -> Self {
        Self::new(2)
    }

    fn new(tombstones_max: usize) -> Self {
        Self {
            tombstones_max,
            ..Self::default()
        }
    }

    /// The latest version accepted.
    pub(crate) fn position(&self) -> &ResourceVersion {
        &self.position
    }

    /// How many events and lists were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether an added or modified state may replace the held one under its key. If that is of
    /// another object, no older state of that object may come back.
    pub(crate) fn admits_change(
        &mut self,
        held: Option<(&str, &str)>,
        incoming: (&str, &str),
    ) -> bool {
        let (uid, version) = incoming;
        let same = held.filter(|(held, _)| *held == uid);
        let stale = match same.and_then(|(_, held)| numeric_order(version, held)) {
            Some(order) => order.is_lt(),
            // The held object is another one. This object may have ended.
            None => self.has_ended(uid, version),
        };
        if let Some((other, _)) = held.filter(|(held, _)| !stale && *held != uid) {
            self.bury(other, version);
        }
        self.judge(!stale, version)
    }

    /// Whether a deletion may remove the held object under its key, which may be another one. The
    /// guard remembers an admitted deletion, and the end of what was held.
    pub(crate) fn admits_delete(
        &mut self,
        held: Option<(&str, &str)>,
        incoming: (&str, &str),
    ) -> bool {
        let (uid, version) = incoming;
        let order = held.and_then(|(_, held)| numeric_order(version, held));
        let stale = order.is_some_and(Ordering::is_lt);
        if !stale {
            self.bury(uid, version);
            if let Some((other, _)) = held.filter(|(held, _)| *held != uid) {
                self.bury(other, version);
            }
        }
        self.judge(!stale, version)
    }

    /// Whether a list may replace the content. A list at the most recent version always may, and so
    /// may one after an expired version. The list accounts for all earlier deletions.
    ///
    /// # Errors
    ///
    /// `Stale`, with both versions.
    pub(crate) fn admits_replacement(&mut self, of: &Replacement) -> Result<(), Error> {
        let is_older = of.resource_version.is_older_than(&self.position);
        if is_older && !of.consistent && !of.history_expired {
            self.refuse();
            return Err(self.stale(of));
        }
        self.replaced(&of.resource_version);
        Ok(())
    }

    /// Notes that a list, or a read at the most recent version, is the content now. It accounts for
    /// all earlier deletions.
    pub(crate) fn replaced(&mut self, version: &ResourceVersion) {
        self.position = version.clone();
        self.listed = version.clone();
        self.tombstones.clear();
    }

    /// Raises the position to a version known from elsewhere, such as a fresh read; never lowers
    /// it.
    pub(crate) fn raise(&mut self, version: &ResourceVersion) {
        if self.is_raised_by(version.as_str()) {
            self.position = version.clone();
        }
    }

    fn is_raised_by(&self, version: &str) -> bool {
        let order = numeric_order(version, self.position.as_str());
        !version.is_empty() && order.is_none_or(Ordering::is_gt)
    }

    fn judge(&mut self, admitted: bool, version: &str) -> bool {
        if !admitted {
            self.refuse();
        } else if self.is_raised_by(version) {
            self.position = ResourceVersion::from(version);
        }
        admitted
    }

    /// The refusal of a list in words.
    pub(crate) fn stale(&self, of: &Replacement) -> Error {
        let (listed, known) = (&of.resource_version, &self.position);
        let text = format!("the list at version {listed} is older than version {known}");
        Error::new(ErrorKind::Stale, text)
    }

    /// Counts a refusal that its owner decides for other reasons.
    pub(crate) fn refuse(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    fn bury(&mut self, uid: &str, end: &str) {
        if uid.is_empty() {
            return;
        }
        if self.tombstones.len() >= self.tombstones_max {
            self.tombstones.pop_front();
        }
        self.tombstones.push_back((uid.into(), end.into()));
    }

    fn has_ended(&self, uid: &str, version: &str) -> bool {
        let is_past = |end: &str| numeric_order(version, end).is_some_and(Ordering::is_le);
        let mut tombstones = self.tombstones.iter();
        is_past(self.listed.as_str())
            || tombstones.any(|(ended, end)| **ended == *uid && is_past(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rule = fn(&mut VersionGuard, Option<(&str, &str)>, (&str, &str)) -> bool;

    fn is_change_admitted(held: Option<(&str, &str)>, incoming: (&str, &str)) -> bool {
        judge(
            &mut VersionGuard::of_collection(),
            held,
            incoming,
            VersionGuard::admits_change,
        )
    }

    fn is_delete_admitted(held: Option<(&str, &str)>, incoming: (&str, &str)) -> bool {
        judge(
            &mut VersionGuard::of_collection(),
            held,
            incoming,
            VersionGuard::admits_delete,
        )
    }

    fn judge(
        guard: &mut VersionGuard,
        held: Option<(&str, &str)>,
        incoming: (&str, &str),
        rule: Rule,
    ) -> bool {
        rule(guard, held, incoming)
    }

    /// B18, row by row: the held state, the new one, whether a change and whether a deletion is
    /// accepted.
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

    /// B18: an event from before a deletion does not bring the object back; a later one, and
    /// another object, may come.
    #[test]
    fn what_was_deleted_stays_deleted() {
        let mut guard = VersionGuard::of_collection();
        assert!(judge(
            &mut guard,
            Some(("a", "5")),
            ("a", "7"),
            VersionGuard::admits_delete
        ));
        assert!(!judge(
            &mut guard,
            None,
            ("a", "6"),
            VersionGuard::admits_change
        ));
        assert!(!judge(
            &mut guard,
            None,
            ("a", "7"),
            VersionGuard::admits_change
        ));
        assert!(judge(
            &mut guard,
            None,
            ("b", "6"),
            VersionGuard::admits_change
        ));
        assert!(
            judge(&mut guard, None, ("a", "8"), VersionGuard::admits_change),
            "selected again"
        );
        assert!(judge(
            &mut guard,
            None,
            ("a", "odd"),
            VersionGuard::admits_change
        ));
        assert_eq!(guard.refused(), 2);
        for number in 0..TOMBSTONES_MAX {
            let uid = format!("other-{number}");
            assert!(judge(
                &mut guard,
                None,
                (&uid, "9"),
                VersionGuard::admits_delete
            ));
        }
        assert_eq!(guard.tombstones.len(), TOMBSTONES_MAX, "bounded");
    }

    fn at(version: &str) -> Replacement {
        Replacement {
            resource_version: version.into(),
            ..Replacement::default()
        }
    }

    /// B18: the same for objects whose end no event reported, as many as one list may end.
    #[test]
    fn b18_what_a_list_went_without_stays_away() {
        let mut guard = VersionGuard::of_collection();
        assert!(guard.admits_replacement(&at("9")).is_ok());
        let change = VersionGuard::admits_change;
        for old in ["8", "9"] {
            assert!(!judge(&mut guard, None, ("a", old), change));
            let held = Some(("b", "12"));
            assert!(
                !judge(&mut guard, held, ("a", old), change),
                "its key is another's"
            );
        }
        assert!(
            judge(&mut guard, None, ("a", "10"), change),
            "selected again"
        );
        assert!(judge(&mut guard, None, ("a", "odd"), change));
        assert!(judge(&mut guard, None, ("a", ""), change));
        assert!(
            judge(&mut guard, Some(("b", "8")), ("b", "9"), change),
            "held"
        );
        assert_eq!(guard.refused(), 4);
    }

    /// B18: an object that gave its key to another one has ended.
    #[test]
    fn b18_what_another_object_replaced_stays_away() {
        let mut guard = VersionGuard::of_entry();
        let change = VersionGuard::admits_change;
        assert!(judge(&mut guard, Some(("a", "5")), ("b", "7"), change));
        assert!(!judge(&mut guard, Some(("b", "7")), ("a", "6"), change));
        assert_eq!(guard.tombstones.len(), 1);
        assert!(judge(&mut guard, Some(("b", "7")), ("b", "8"), change));
        assert!(
            !judge(&mut guard, Some(("b", "8")), ("a", "6"), change),
            "an update of its successor changes nothing about that"
        );
    }

    /// B18: a deletion may be of another object of that name, which the cache never had. Both are
    /// gone then.
    #[test]
    fn b18_what_the_deletion_of_another_object_ended_stays_away() {
        for mut guard in [VersionGuard::of_entry(), VersionGuard::of_collection()] {
            let (change, delete) = (VersionGuard::admits_change, VersionGuard::admits_delete);
            assert!(judge(&mut guard, Some(("a", "5")), ("b", "9"), delete));
            assert!(!judge(&mut guard, None, ("a", "5"), change));
            assert!(!judge(&mut guard, None, ("b", "8"), change));
        }
    }

    /// B18: after the server was put back in time, objects that it had ended may come again.
    #[test]
    fn b18_a_list_from_before_forgets_what_has_ended() {
        for expired in [true, false] {
            let mut guard = VersionGuard::of_collection();
            assert!(guard.admits_replacement(&at("5")).is_ok());
            assert!(judge(
                &mut guard,
                Some(("a", "5")),
                ("a", "9"),
                VersionGuard::admits_delete
            ));
            let of = Replacement {
                consistent: !expired,
                history_expired: expired,
                ..at("5")
            };
            assert!(guard.admits_replacement(&of).is_ok());
            assert!(judge(
                &mut guard,
                None,
                ("a", "6"),
                VersionGuard::admits_change
            ));
        }
    }

    #[test]
    fn the_guard_rises_and_only_a_list_lowers_it() {
        let mut guard = VersionGuard::of_entry();
        guard.raise(&ResourceVersion::from("5"));
        guard.raise(&ResourceVersion::from("9"));
        guard.raise(&ResourceVersion::from("7"));
        assert_eq!(guard.position().as_str(), "9");
        let mut of = Replacement {
            resource_version: ResourceVersion::from("8"),
            ..Replacement::default()
        };
        assert!(guard.admits_replacement(&of).is_err());
        assert_eq!(guard.position().as_str(), "9");
        of.consistent = true;
        assert!(guard.admits_replacement(&of).is_ok());
        assert_eq!(guard.position().as_str(), "8");
    }
}
