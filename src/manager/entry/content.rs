//! The known state of one object. Decides which answers and events may replace it: an older state
//! never replaces a newer one (B18). Pure.

use std::time::Instant;

use super::seed::{Seed, SeedEnd};
use crate::error::Error;
use crate::list_watch::{Listed, Undecodable};
use crate::manager::kinds::KindTraits;
use crate::manager::report::ObjectSummary;
use crate::object::{Object, ResourceVersion, StoredObject};
use crate::reflector::Replacement;
use crate::store::VersionGuard;
use crate::sync::Arc;

/// The content of one entry.
///
/// A write takes the new state out of the `Option` if it is admitted. A refused state stays there,
/// for the caller to drop under no lock: that may overwrite secrets. A write returns whether
/// subscribers have news, or `None` if the state was refused.
pub(crate) struct EntryContent<K: Object> {
    kind: KindTraits<K>,
    object: Option<Arc<StoredObject<K>>>,
    /// Whether `object`, or the seed, is immutable. The kind decided that before the lock.
    is_immutable: bool,
    /// The same of the state that comes in now.
    judged: bool,
    /// Why the newest state of the object is not in `object`, which is the last good one (B12).
    undecodable: Option<Error>,
    /// The number of admitted writes. It shows whether an answer was overtaken.
    revision: u64,
    /// The number of reads that began.
    reads: u64,
    guard: VersionGuard,
    /// A uid that a consistent read found gone: later events about it are old.
    tombstone: Option<Box<str>>,
    /// The uid of the object that was forgotten, until another comes. It may be gone since.
    forgotten: Option<Box<str>>,
    /// The revision at which a consistent read found that there is no such object.
    absent_at: Option<u64>,
    /// The object as an earlier process knew it, until the first admitted write.
    seed: Option<Seed<K>>,
}

impl<K: Object> EntryContent<K> {
    pub(crate) fn new(kind: KindTraits<K>) -> Self {
        Self {
            kind,
            object: None,
            is_immutable: false,
            judged: false,
            undecodable: None,
            revision: 0,
            reads: 0,
            guard: VersionGuard::of_entry(),
            tombstone: None,
            forgotten: None,
            absent_at: None,
            seed: None,
        }
    }
}

/// The known state when a read was sent, by which its answer is judged.
#[derive(Clone, Debug)]
pub(crate) struct ReadPosition {
    /// The reads of one entry are numbered as they begin.
    pub(crate) number: u64,
    /// The answer is not older than this; empty for the most recent state.
    pub(crate) version: ResourceVersion,
    pub(crate) began: Instant,
    revision: u64,
    /// The latest version that was known.
    known: ResourceVersion,
    uid: Option<Box<str>>,
}

impl<K: Object> EntryContent<K> {
    pub(crate) fn object(&self) -> Option<&Arc<StoredObject<K>>> {
        self.object.as_ref()
    }

    /// Keeps the object as an earlier process knew it. Returns the seed if the server has answered
    /// meanwhile.
    pub(crate) fn set_seed(&mut self, seed: Seed<K>) -> Option<Seed<K>> {
        if self.revision > 0 {
            return Some(seed);
        }
        self.seed.replace(seed)
    }

    /// Notes whether the state that comes in next is immutable. Code of the program has decided
    /// that before the entry's lock was taken.
    pub(crate) fn judge(&mut self, is_immutable: bool) {
        self.judged = is_immutable;
        if self.object.is_none() && self.seed.is_none() {
            self.is_immutable = is_immutable;
        }
    }

    /// The object as an earlier process knew it, while the server has not answered.
    pub(crate) fn seed(&self) -> Option<&Seed<K>> {
        self.seed.as_ref().filter(|_| self.revision == 0)
    }

    /// Removes the seed once the server has answered.
    pub(crate) fn end_seed(&mut self) -> Option<(Seed<K>, SeedEnd)> {
        let seed = self.seed.take_if(|_| self.revision > 0)?;
        let end = match &self.object {
            _ if self.undecodable.is_some() => SeedEnd::Changed,
            None => SeedEnd::Deleted,
            Some(now) if identity(now) == identity(&seed.object) => SeedEnd::Confirmed,
            Some(_) => SeedEnd::Changed,
        };
        Some((seed, end))
    }

    pub(crate) fn undecodable(&self) -> Option<&Error> {
        self.undecodable.as_ref()
    }

    /// The latest version that is known; cached answers are not older.
    pub(crate) fn known_version(&self) -> &ResourceVersion {
        self.guard.position()
    }

    /// Notes that nothing changed up to `version`, or that a reader got that state. This overtakes
    /// the reads under way.
    pub(crate) fn raise_version(&mut self, version: &ResourceVersion) {
        self.guard.raise(version);
    }

    /// How many answers and events were refused (B18).
    pub(crate) fn refused(&self) -> u64 {
        self.guard.refused()
    }

    /// A moment in the life of the content, for [`Self::replace`].
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The report of an object, without its values.
    pub(crate) fn summary_of(&self, object: &K) -> ObjectSummary {
        ObjectSummary::of(self.kind, object, self.is_immutable)
    }

    /// Whether the stored object never changes (OC-17).
    pub(crate) fn is_immutable(&self) -> bool {
        self.undecodable.is_none() && self.object.is_some() && self.is_immutable
    }

    /// Takes in a list of the one object, or of none; `began` is the [revision](Self::revision)
    /// when it began.
    ///
    /// # Errors
    ///
    /// `Stale` for an answer older than the known state (B18).
    pub(crate) fn replace(
        &mut self,
        began: u64,
        listed: &mut Option<Listed<K>>,
        of: &Replacement,
    ) -> Result<bool, Error> {
        let Some(judged) = self.judge_list(began, listed.as_ref(), of) else {
            self.guard.refuse();
            return Err(self.guard.stale(of));
        };
        self.guard.admits_replacement(&judged)?;
        self.tombstone = None;
        Ok(self.take_in(listed))
    }

    /// Refuses a list that [`Self::replace`] would refuse now. Changes nothing.
    ///
    /// # Errors
    ///
    /// `Stale` for an answer older than the known state (B18).
    pub(crate) fn admits_list(
        &self,
        began: u64,
        listed: Option<&Listed<K>>,
        of: &Replacement,
    ) -> Result<(), Error> {
        let judged = self.judge_list(began, listed, of);
        let judged = judged.ok_or_else(|| self.guard.stale(of))?;
        self.guard.clone().admits_replacement(&judged)
    }

    /// How a list counts that began at a revision. `None` if it has an object that is known to be
    /// gone.
    fn judge_list(
        &self,
        began: u64,
        listed: Option<&Listed<K>>,
        of: &Replacement,
    ) -> Option<Replacement> {
        // A fresh read during the list may have found a newer state than any list.
        let overtaken = began != self.revision;
        let consistent = of.consistent && !overtaken;
        // An absence has no version. Of an object that was never held, not even a uid is known.
        let found_none = overtaken && self.absent_at == Some(self.revision);
        let is_gone = listed.is_some_and(|listed| found_none || self.has_tombstone(listed.uid()));
        (!is_gone || consistent).then(|| Replacement {
            resource_version: of.resource_version.clone(),
            consistent,
            history_expired: of.history_expired && !overtaken,
        })
    }

    /// The error for a list that is older than the known state (B18).
    pub(crate) fn stale(&self, of: &Replacement) -> Error {
        self.guard.stale(of)
    }

    /// Takes in an added or modified state of the object, or one that does not decode (B12). `None`
    /// if it is older than the known state.
    pub(crate) fn change(&mut self, state: &mut Option<Listed<K>>) -> Option<bool> {
        let listed = state.as_ref()?;
        let admitted = self.admits(listed.uid(), &listed.resource_version());
        admitted.then(|| self.take_in(state))
    }

    /// Takes in the deletion of the object; `uid` and `version` are those of its last state. `None`
    /// if that is older than the known state.
    pub(crate) fn remove(&mut self, uid: &str, version: &ResourceVersion) -> Option<bool> {
        if version.is_older_than(self.guard.position()) {
            self.guard.refuse();
            return None;
        }
        self.guard.raise(version);
        self.tombstone = (!uid.is_empty()).then(|| uid.into());
        Some(self.put(&mut None))
    }

    /// Takes in an answer that may come from a lagging cache of the server. `None` if it is older
    /// than the known state.
    pub(crate) fn answer(&mut self, answer: &mut Option<Arc<StoredObject<K>>>) -> Option<bool> {
        let object = answer.as_ref()?;
        let (uid, version) = (object.uid(), object.resource_version());
        if self.has_tombstone(uid) || self.is_past(uid, &version) {
            self.guard.refuse();
            return None;
        }
        self.guard.raise(&version);
        Some(self.put(answer))
    }

    /// Notes the known state before a read is sent.
    pub(crate) fn begin_read(&mut self, version: ResourceVersion, began: Instant) -> ReadPosition {
        self.reads = self.reads.saturating_add(1);
        let uid = self.object.as_ref().map(|stored| stored.uid().into());
        ReadPosition {
            number: self.reads,
            version,
            began,
            revision: self.revision,
            known: self.known_version().clone(),
            uid,
        }
    }

    /// How many reads began.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Whether something came in since the read was sent, or a reader got a newer state.
    pub(crate) fn has_overtaken(&self, position: &ReadPosition) -> bool {
        self.was_written_since(position) || *self.known_version() != position.known
    }

    /// Whether something came in since the read was sent.
    pub(crate) fn was_written_since(&self, position: &ReadPosition) -> bool {
        self.revision != position.revision
    }

    /// Drops the known state of the object, and keeps its version and its uid.
    pub(crate) fn forget(&mut self) {
        self.undecodable = None;
        if let Some(object) = self.object.take() {
            self.forgotten = Some(object.uid().into());
        }
    }

    /// Takes in the answer of a consistent read: the object, or that there is none. `None` if a
    /// newer state came in meanwhile. Later answers are not older than the version of the read,
    /// which is not older than the version that was known when it was sent.
    pub(crate) fn found(
        &mut self,
        position: &ReadPosition,
        object: &mut Option<Arc<StoredObject<K>>>,
    ) -> Option<bool> {
        let version = &position.version;
        let uid = object.as_ref().map(|object| object.uid());
        if !version.is_empty() && uid.is_some_and(|uid| self.has_tombstone(uid)) {
            // Only a read of the most recent state shows that the server's history was put back.
            self.guard.refuse();
            return None;
        }
        let written = if object.is_some() {
            self.take_fresh(position, object)?
        } else {
            self.take_absence(position)?
        };
        self.guard.raise(version);
        Some(written)
    }

    /// Takes in an object that a consistent read found and that does not decode (B12). `None` if a
    /// newer state came in meanwhile.
    pub(crate) fn found_undecodable(
        &mut self,
        position: &ReadPosition,
        error: &Error,
    ) -> Option<bool> {
        if self.has_overtaken(position) {
            return None;
        }
        self.revision = self.revision.wrapping_add(1);
        self.undecodable = Some(error.clone());
        Some(true)
    }

    /// A consistent read is always accepted, also when it is older (B18), unless something came in
    /// meanwhile.
    fn take_fresh(
        &mut self,
        position: &ReadPosition,
        fresh: &mut Option<Arc<StoredObject<K>>>,
    ) -> Option<bool> {
        let object = fresh.as_ref()?;
        let version = object.resource_version();
        let known = self.guard.position();
        if self.has_overtaken(position) {
            let newer = known.is_unset() || known.is_older_than(&version);
            if !newer || self.has_tombstone(object.uid()) {
                return None;
            }
        } else if self.is_past(object.uid(), &version) {
            // The server's history was put back.
            self.guard.replaced(&version);
        }
        self.tombstone = None;
        self.guard.raise(&version);
        Some(self.put(fresh))
    }

    /// Whether an answer is older than the known state. Another state of the stored object is
    /// judged by that object's version, since the known version may be ahead of it.
    fn is_past(&self, uid: &str, version: &ResourceVersion) -> bool {
        match self.object.as_ref().filter(|stored| stored.uid() == uid) {
            Some(stored) => version.is_older_than(&stored.resource_version()),
            None => version.is_older_than(self.guard.position()),
        }
    }

    /// `NotFound` has no version: it ends only the object that was stored when the read was sent.
    fn take_absence(&mut self, position: &ReadPosition) -> Option<bool> {
        let stored = self.object.as_ref().map(|stored| stored.uid());
        if self.has_overtaken(position) && (stored.is_none() || stored != position.uid.as_deref()) {
            return None;
        }
        let gone = stored.or(self.forgotten.as_deref());
        if let Some(uid) = gone.filter(|uid| !uid.is_empty()) {
            self.tombstone = Some(uid.into());
        }
        let is_news = self.put(&mut None);
        self.absent_at = Some(self.revision);
        Some(is_news)
    }

    fn admits(&mut self, uid: &str, version: &ResourceVersion) -> bool {
        if self.has_tombstone(uid) || version.is_older_than(self.guard.position()) {
            self.guard.refuse();
            return false;
        }
        let stored = self.object.as_ref().map(|object| identity(object));
        self.guard.admits_change(stored, (uid, version.as_str()))
    }

    fn has_tombstone(&self, uid: &str) -> bool {
        self.tombstone.as_deref() == Some(uid)
    }

    /// Stores an admitted state.
    fn take_in(&mut self, state: &mut Option<Listed<K>>) -> bool {
        let mut object = match state.take() {
            Some(Listed::Object(object)) => Some(object),
            Some(Listed::Undecodable(set_aside)) => {
                self.set_aside(*set_aside);
                return true;
            }
            None => None,
        };
        let is_news = self.put(&mut object);
        *state = object.map(Listed::Object);
        is_news
    }

    /// Stores an object. The same one in the same version keeps its allocation and is no news.
    fn put(&mut self, object: &mut Option<Arc<StoredObject<K>>>) -> bool {
        self.revision = self.revision.wrapping_add(1);
        let same = match (&self.object, &*object) {
            (Some(stored), Some(new)) => {
                !stored.resource_version().is_unset() && identity(stored) == identity(new)
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if same && self.undecodable.is_none() {
            return false;
        }
        self.undecodable = None;
        self.object = object.take();
        self.forgotten.take_if(|_| self.object.is_some());
        self.is_immutable = self.judged;
        true
    }

    /// Keeps the last good copy, unless that is one of another object.
    fn set_aside(&mut self, set_aside: Undecodable) {
        self.revision = self.revision.wrapping_add(1);
        self.undecodable = Some(set_aside.error);
        let is_other = |stored: &mut Arc<StoredObject<K>>| stored.uid() != &*set_aside.uid;
        if !set_aside.uid.is_empty() {
            self.object.take_if(is_other);
        }
    }
}

/// The uid of an object, and its version.
fn identity<K: Object>(object: &StoredObject<K>) -> (&str, &str) {
    (object.uid(), object.resource_version_text())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::clock::Clock;
    use crate::manager::tests::fake::{secret, with_uid};

    fn listed(version: &str) -> Listed<Secret> {
        Listed::Object(Arc::new(StoredObject::new(secret("s", version))))
    }

    type Way = fn(&mut EntryContent<Secret>, Arc<StoredObject<Secret>>) -> Option<bool>;

    /// Subscribers have news of an object that was made again, in the same version too.
    #[test]
    fn another_uid_is_news_and_the_same_state_is_none_whichever_way_it_comes() {
        let ways: [(&str, Way); 4] = [
            ("a list", |content, object| {
                let of = Replacement {
                    resource_version: "9".into(),
                    consistent: true,
                    ..Replacement::default()
                };
                let began = content.revision();
                let mut listed = Some(Listed::Object(object));
                content.replace(began, &mut listed, &of).ok()
            }),
            ("an event", |content, object| {
                content.change(&mut Some(Listed::Object(object)))
            }),
            ("a poll or a get", |content, object| {
                content.answer(&mut Some(object))
            }),
            ("a consistent read", |content, object| {
                let latest = ResourceVersion::most_recent();
                let read = content.begin_read(latest, Clock::system().now());
                content.found(&read, &mut Some(object))
            }),
        ];
        let first = || Arc::new(StoredObject::new(secret("s", "9")));
        let again = || Arc::new(StoredObject::new(with_uid(secret("s", "9"), "again")));
        for (what, way) in ways {
            let mut content = EntryContent::new(KindTraits::default());
            assert_eq!(way(&mut content, first()), Some(true), "{what}");
            assert_eq!(way(&mut content, first()), Some(false), "{what}");
            assert_eq!(way(&mut content, again()), Some(true), "{what}");
            assert_eq!(content.object().unwrap().uid(), "again", "{what}");
        }
    }

    /// B18: also of an object that was never held.
    #[test]
    fn a_list_that_a_fresh_read_overtook_brings_back_no_object_that_it_found_gone() {
        let mut content = EntryContent::<Secret>::new(KindTraits::default());
        let began = content.revision();
        let now = Clock::system().now();
        let position = content.begin_read(ResourceVersion::most_recent(), now);
        assert_eq!(content.found(&position, &mut None), Some(false));
        for consistent in [false, true] {
            let of = Replacement {
                resource_version: "9".into(),
                consistent,
                ..Replacement::default()
            };
            let refused = content.replace(began, &mut Some(listed("8")), &of);
            assert_eq!(refused.unwrap_err().kind(), crate::error::ErrorKind::Stale);
            assert!(content.object().is_none());
        }
        let of = Replacement {
            resource_version: "9".into(),
            ..Replacement::default()
        };
        assert_eq!(
            content.replace(began, &mut None, &of).ok(),
            Some(false),
            "it is gone"
        );
        let began = content.revision();
        let listed = content.replace(began, &mut Some(listed("8")), &of);
        assert_eq!(listed.ok(), Some(true), "begun after the read");
    }

    /// B18. Seen: one more pod referred to an object that was gone, and a read at a version had it
    /// again from a cache of the server that was behind.
    #[test]
    fn what_was_forgotten_and_found_gone_does_not_come_back() {
        let mut content = EntryContent::<Secret>::new(KindTraits::default());
        let now = Clock::system().now();
        let object = || Some(Arc::new(StoredObject::new(secret("s", "9"))));
        let fresh = |content: &mut EntryContent<Secret>| {
            content.begin_read(ResourceVersion::most_recent(), now)
        };
        let read = fresh(&mut content);
        assert_eq!(content.found(&read, &mut object()), Some(true));
        content.forget();
        let read = fresh(&mut content);
        assert_eq!(
            content.found(&read, &mut object()),
            Some(true),
            "it is there"
        );
        content.forget();
        let read = fresh(&mut content);
        assert_eq!(content.found(&read, &mut None), Some(false), "it is gone");
        for _ in 0..2 {
            let read = content.begin_read("9".into(), now);
            assert_eq!(content.found(&read, &mut object()), None);
            assert_eq!(content.answer(&mut object()), None);
            content.forget();
        }
        let read = fresh(&mut content);
        assert_eq!(content.found(&read, &mut object()), Some(true), "put back");
    }

    /// Seen: the object that was forgotten once was taken for the one that had gone.
    #[test]
    fn what_was_found_gone_stays_gone_whatever_was_forgotten_before_it() {
        let mut content = EntryContent::<Secret>::new(KindTraits::default());
        let now = Clock::system().now();
        let of = |uid: &str, version: &str| {
            let mut object = secret("s", version);
            object.metadata.uid = Some(uid.to_owned());
            Some(Arc::new(StoredObject::new(object)))
        };
        let found = |content: &mut EntryContent<Secret>, version: &str, mut object| {
            let read = content.begin_read(version.into(), now);
            content.found(&read, &mut object)
        };
        assert_eq!(found(&mut content, "", of("first", "9")), Some(true));
        content.forget();
        assert_eq!(found(&mut content, "", of("second", "20")), Some(true));
        for _ in 0..2 {
            assert!(found(&mut content, "", None).is_some(), "it is gone");
            assert_eq!(found(&mut content, "20", of("second", "20")), None);
        }
    }

    /// The drop of an object overwrites its secrets: a refused state stays with the caller, which
    /// has no lock then.
    #[test]
    fn what_is_refused_is_left_to_the_caller() {
        let mut content = EntryContent::<Secret>::new(KindTraits::default());
        let mut first = Some(listed("9"));
        assert_eq!(content.change(&mut first), Some(true));
        assert!(first.is_none(), "it was taken");
        let mut old = Some(listed("8"));
        assert!(content.change(&mut old).is_none());
        assert!(old.is_some());
        let of = Replacement {
            resource_version: "7".into(),
            ..Replacement::default()
        };
        let began = content.revision();
        assert!(content.replace(began, &mut old, &of).is_err());
        assert!(old.is_some());
        let now = Clock::system().now();
        let position = content.begin_read(ResourceVersion::most_recent(), now);
        let mut newer = Some(listed("10"));
        assert_eq!(content.change(&mut newer), Some(true));
        let mut late = Some(Arc::new(StoredObject::new(with_uid(
            secret("s", "5"),
            "other",
        ))));
        assert!(content.found(&position, &mut late).is_none());
        assert!(late.is_some());
        assert!(content.answer(&mut late).is_none());
        assert!(late.is_some());
    }
}
