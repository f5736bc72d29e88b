//! The state of one fetched object, and the next step of each of its readers (OS-5..OS-17, B17).
//! Pure.

use std::time::{Duration, Instant};

use crate::clock::{Clock, Coarse};
use crate::error::{Error, ErrorKind};
use crate::failures::Failures;
use crate::manager::cached::{Cached, ReadyObject};
use crate::manager::consistent_reads::is_reached;
use crate::manager::entry::content::{EntryContent, ReadPosition};
use crate::manager::entry::object_entry::{AnswerContext, EntryState};
use crate::manager::kinds::KindTraits;
use crate::manager::report::{ObjectState, ObjectSummary, failed_so_far};
use crate::object::{Object, ResourceVersion, StoredObject, resource_name};
use crate::policy::{FIRST_WAIT, doubled};
use crate::reflector::{FORBIDDEN_GRACE, asked_wait};
use crate::sync::Arc;

/// A fetch that times out after less than this says nothing about the server.
const FAIR_TIME: Duration = Duration::from_secs(1);

/// The next step of a reader.
#[derive(Debug)]
pub(crate) enum NextStep<K: Object> {
    /// Return this: the stored object if it is fresh (OS-6), the answer of the fetch that the
    /// reader waited for, or the last failure while its backoff lasts (B17).
    Return(Result<Cached<K>, Error>),
    /// Wait for the fetch of this number.
    Wait(u64),
    /// Fetch.
    Fetch,
    /// Look the object up again: no owner references this entry any more.
    FindAgain,
}

/// How a fetch ended, for the readers that waited for it.
#[derive(Debug)]
enum FetchResult<K: Object> {
    /// The answer was stored: readers take it if it is still fresh when they look.
    Stored,
    /// Its readers share the answer.
    Shared(Result<Cached<K>, Error>),
    /// Only its leader's deadline ended it: the next reader fetches, without a backoff.
    LeaderTimedOut,
}

/// How a reader goes on once its request is answered.
#[derive(Debug)]
pub(crate) enum Completion<K: Object> {
    /// The reader's answer, and whether that is news for subscribers.
    Done(Result<Cached<K>, Error>, bool),
    /// The server's cache lags. The reader sends this read, which goes past it.
    Again(ReadPosition),
}

/// The state of one fetched object.
pub(crate) struct TtlEntry<K: Object> {
    pub(super) content: EntryContent<K>,
    /// With `Get` no object is kept.
    keeps: bool,
    /// With `Get`: the summary of the last object that a read found.
    pub(super) found: Option<ObjectSummary>,
    /// The server's error that there is no such object (OS-11).
    pub(super) absent: Option<Error>,
    /// The newest state of the object does not decode; the content holds the last good one (B12).
    pub(super) undecodable: Option<Error>,
    /// When the server last confirmed the stored answer. An answer that was not confirmed since the
    /// last invalidation is not served.
    updated: Option<(Instant, Coarse)>,
    /// When the request that confirmed it last began. Its age counts from there.
    contact: Option<Instant>,
    /// What was invalidated, until the server answers, or what it answered to a superseded read:
    /// for a snapshot, and for no reader.
    aside: Option<(Arc<StoredObject<K>>, Instant)>,
    /// The reads up to this number began before the last invalidation (OS-2); with `Get`, before
    /// the last recorded read.
    superseded: u64,
    /// The server's cache was behind the known state, so the next fetch reads past it.
    past_cache: bool,
    /// The fetches in flight: their numbers, and their tries that have failed. Readers join no
    /// superseded one.
    in_flight: Vec<(u64, Failures)>,
    completed: Option<(u64, FetchResult<K>)>,
    /// The failures since the last answer.
    pub(super) failures: Failures,
    /// The last pause after a fetch that failed; each further failure doubles it (B17).
    backoff: Option<Duration>,
    /// When the next fetch may be made.
    retry_at: Option<Instant>,
    is_detached: bool,
}

impl<K: Object> TtlEntry<K> {
    pub(crate) fn new(kind: KindTraits<K>, keeps: bool) -> Self {
        Self {
            content: EntryContent::new(kind),
            keeps,
            found: None,
            absent: None,
            undecodable: None,
            updated: None,
            contact: None,
            aside: None,
            superseded: 0,
            past_cache: false,
            in_flight: Vec::new(),
            completed: None,
            failures: Failures::default(),
            backoff: None,
            retry_at: None,
            is_detached: false,
        }
    }

    /// An entry of an object that no owner references, for one read.
    pub(crate) fn detached(kind: KindTraits<K>) -> Self {
        Self {
            is_detached: true,
            ..Self::new(kind, false)
        }
    }

    /// Drops the cached object (OS-2). Reads that began before go on and answer the readers that
    /// wait for them (OS-17). The known version stays, so no reader goes back behind it (B18).
    /// `for_snapshot`: a snapshot keeps the object until the server answers.
    pub(crate) fn invalidate(&mut self, for_snapshot: bool) {
        self.superseded = self.content.reads();
        self.absent = None;
        self.undecodable = None;
        let known = self.object().map(Arc::clone).zip(self.contact);
        let known = known.or_else(|| self.aside.take());
        self.aside = known.filter(|_| for_snapshot);
        (self.updated, self.contact) = (None, None);
        self.past_cache = false;
        self.completed = None;
        self.reset_failures();
        self.content.forget();
    }

    /// Notes that the last reference is gone.
    pub(crate) fn detach(&mut self) {
        self.is_detached = true;
        self.invalidate(false);
    }

    /// The next step of a reader. `waited_for` is the fetch that it has waited for, if any.
    pub(crate) fn next_step(&self, at: &AnswerContext<'_>, waited_for: Option<u64>) -> NextStep<K> {
        if self.is_fresh(at) {
            return NextStep::Return(self.in_memory(false, at));
        }
        let completed = self.completed.as_ref();
        let completed = completed.filter(|(number, _)| waited_for.is_some_and(|id| id <= *number));
        let result_of_fetch = completed.map(|(_, result)| result);
        if let Some(FetchResult::Shared(result)) = result_of_fetch
            && !self.is_behind(result)
        {
            return NextStep::Return(result.clone());
        }
        let mut in_flight = self.in_flight.iter().map(|(number, _)| *number);
        if let Some(number) = waited_for.filter(|id| in_flight.clone().any(|number| number == *id))
        {
            return NextStep::Wait(number);
        }
        if self.is_detached {
            return NextStep::FindAgain;
        }
        if let Some(number) = in_flight.find(|number| *number > self.superseded) {
            return NextStep::Wait(number);
        }
        let backs_off = self.retry_at.is_some_and(|retry_at| at.now < retry_at);
        let backing_off = self.failures.last().filter(|_| backs_off);
        match backing_off.filter(|_| !matches!(result_of_fetch, Some(FetchResult::LeaderTimedOut)))
        {
            Some(failure) => NextStep::Return(self.after(failure, at)),
            None => NextStep::Fetch,
        }
    }

    /// A reader begins to fetch: from the server's cache if an object is stored, else past it
    /// (OS-7).
    pub(crate) fn start_fetch(&mut self, at: &AnswerContext<'_>) -> ReadPosition {
        let cached = self.object().is_some() && !self.past_cache;
        let version = if cached {
            ResourceVersion::any()
        } else {
            ResourceVersion::most_recent()
        };
        let fetch = self.content.begin_read(version, at.now);
        let tries = Failures::none_since(at.now);
        self.in_flight.push((fetch.number, tries));
        fetch
    }

    /// Notes the failed tries of a fetch that waits before the next.
    pub(crate) fn waits(&mut self, fetch: &ReadPosition, tries: &Failures) {
        for (number, told) in &mut self.in_flight {
            if *number == fetch.number {
                *told = tries.clone();
            }
        }
    }

    /// Completes a fetch that readers share, or one reader's own request (R11). It is one step, so
    /// that no reference comes between the look at the answer and its use. `late`: the reader's own
    /// deadline ended the request.
    pub(crate) fn complete(
        &mut self,
        read: &ReadPosition,
        found: Result<Arc<StoredObject<K>>, Error>,
        late: bool,
        at: &AnswerContext<'_>,
    ) -> Completion<K> {
        if self.lags(read, &found) {
            return Completion::Again(self.begin_again(read));
        }
        let before = self.visible_state();
        let (result, written) = match found {
            found if !self.keeps => (self.note(read, found, at), None),
            Ok(object) => self.take_object(read, object, at),
            Err(error) if error.is_not_found() => {
                let written = self.content.found(read, &mut None);
                if written.is_some() {
                    self.confirmed(read, Some(error.clone()), at);
                }
                (Err(error), written)
            }
            Err(error) if error.is_stopped() => (Err(error), None),
            Err(error) => (self.take_failure(read, error, late, at), None),
        };
        if self.is_shared(read) {
            // OS-8..OS-14 with B17.
            let (failed, is_stored) = (self.failures.last().is_some(), written.is_some());
            let outcome = match &result {
                _ if late => FetchResult::LeaderTimedOut,
                Ok(_) if !failed && !self.is_superseded(read) => FetchResult::Stored,
                // It was overtaken. It holds for its own readers, but maybe not for later ones.
                Err(error) if error.is_not_found() && !failed && !is_stored => FetchResult::Stored,
                result => FetchResult::Shared(result.clone()),
            };
            let number = read.number;
            self.in_flight.retain(|(id, _)| *id != number);
            let last = self.completed.as_ref().map(|(last, _)| *last);
            if last < Some(number) {
                self.completed = Some((number, outcome));
            }
        }
        let is_news = written == Some(true) || before != self.visible_state();
        Completion::Done(result, is_news)
    }

    /// Whether readers cannot have a shared answer from the server's cache. It has no such object,
    /// or a state older than readers got before, and memory has nothing in its place.
    fn lags(&self, read: &ReadPosition, found: &Result<Arc<StoredObject<K>>, Error>) -> bool {
        let behind = match found {
            Ok(object) => {
                let version = object.resource_version();
                let older = version.is_older_than(self.content.known_version());
                older && self.is_superseded(read) && self.object().is_none()
            }
            Err(error) => error.is_not_found(),
        };
        behind && self.is_shared(read) && !read.version.is_empty()
    }

    /// The same fetch once more, past the server's cache.
    fn begin_again(&mut self, read: &ReadPosition) -> ReadPosition {
        let latest = ResourceVersion::most_recent();
        let again = self.content.begin_read(latest, read.began);
        for (in_flight, _) in &mut self.in_flight {
            if *in_flight == read.number {
                *in_flight = again.number;
            }
        }
        again
    }

    /// Whether the stored object may be served without a request (OS-6).
    pub(crate) fn is_fresh(&self, at: &AnswerContext<'_>) -> bool {
        let served = self.object().is_some() && self.undecodable.is_none();
        let Some((updated, _)) = self.updated.filter(|_| served) else {
            return false;
        };
        let ends = updated.checked_add(at.ttl);
        ends.is_none_or(|ends| at.now < ends)
    }

    /// Whether there is something to return, or a backoff of failures.
    pub(crate) fn has_begun(&self) -> bool {
        self.object().is_some() || self.content.seed().is_some() || self.failures.count() > 0
    }

    /// The object, once it was fetched since the last invalidation.
    pub(super) fn object(&self) -> Option<&Arc<StoredObject<K>>> {
        self.content.object().filter(|_| self.updated.is_some())
    }

    /// The object whatever its age, the last good copy of one that does not decode included (B12).
    pub(crate) fn cached_copy(&self, at: &AnswerContext<'_>) -> Option<Cached<K>> {
        let failure = self.undecodable.as_ref().or(self.failures.last());
        let ready = self.served(failure.cloned(), !self.is_fresh(at), at.clock);
        ready.map(Cached::of)
    }

    /// The answer to a reader whose deadline has passed; `own` is the reader's own fetch that the
    /// deadline ended.
    pub(crate) fn late(
        &self,
        own: Option<(Instant, &Error)>,
        at: &AnswerContext<'_>,
    ) -> Result<Cached<K>, Error> {
        // Only the first fetch has tries of its own, when no other has failed.
        let tries = self.in_flight.last().map(|(_, tries)| tries);
        let tries = tries.filter(|_| self.failures.count() == 0);
        let mut failures = tries.unwrap_or(&self.failures).clone();
        if let Some((began, error)) = own {
            failures.add(error.clone(), began, at.now);
        }
        self.after(&failures.not_synced(&resource_name::<K>(), at.now), at)
    }

    fn take_object(
        &mut self,
        read: &ReadPosition,
        object: Arc<StoredObject<K>>,
        at: &AnswerContext<'_>,
    ) -> (Result<Cached<K>, Error>, Option<bool>) {
        let shared = self.is_shared(read);
        let from_cache = shared && !read.version.is_empty();
        let is_superseded = self.is_superseded(read);
        let own = Arc::clone(&object);
        let mut object = Some(object);
        let written = if self.absent.is_some() && self.content.has_overtaken(read) {
            // It is not known which came first, and each reader asks again for an absent object
            // (OS-16).
            None
        } else if from_cache {
            self.content.answer(&mut object)
        } else {
            self.content.found(read, &mut object)
        };
        if written.is_some() {
            self.confirmed(read, None, at);
        } else if !is_superseded {
            if self.updated.is_none() && self.content.object().is_some() {
                // The stored object is newer than the fetched one, and so is fresh too.
                self.confirmed(read, None, at);
            }
            if shared {
                self.past_cache = from_cache;
                self.reset_failures();
            }
        }
        // Another reader got a newer state than this answer, and that is not stored either.
        let outrun = read.version.is_empty() && !self.content.was_written_since(read);
        if (is_superseded || outrun) && self.object().is_none() {
            // Not stored for later readers (OS-17), which do not go back behind it either (B18).
            self.content.raise_version(&own.resource_version());
            return (Ok(Cached::confirmed(own, read.began, at.clock)), written);
        }
        let stale = written.is_none() && shared && self.past_cache && !self.is_fresh(at);
        (self.in_memory(stale, at), written)
    }

    fn take_failure(
        &mut self,
        read: &ReadPosition,
        error: Error,
        late: bool,
        at: &AnswerContext<'_>,
    ) -> Result<Cached<K>, Error> {
        let shared = self.is_shared(read);
        let own = late.then(|| self.late(Some((read.began, &error)), at));
        let had_time = at.now.saturating_duration_since(read.began) >= FAIR_TIME;
        if !self.is_superseded(read) && (!late || shared && had_time) {
            let is_told = self.failed(&error, read, at.now);
            if shared && !is_told {
                self.back_off(at);
            }
            if error.kind() == ErrorKind::Undecodable {
                // Later reads return this error until an answer replaces it.
                self.undecodable = Some(error.clone());
            }
        }
        if !shared {
            return Err(error);
        }
        own.unwrap_or_else(|| self.after(&error, at))
    }

    /// Records how a read with `Get` ended, for the object's report. Ignores a read that began
    /// before the last recorded one, and a read that was stopped.
    fn note(
        &mut self,
        read: &ReadPosition,
        found: Result<Arc<StoredObject<K>>, Error>,
        at: &AnswerContext<'_>,
    ) -> Result<Cached<K>, Error> {
        if !self.is_superseded(read) && !found.as_ref().is_err_and(Error::is_stopped) {
            self.superseded = read.number;
            self.note_news(read, &found, at);
        }
        found.map(|object| Cached::confirmed(object, read.began, at.clock))
    }

    fn note_news(
        &mut self,
        read: &ReadPosition,
        found: &Result<Arc<StoredObject<K>>, Error>,
        at: &AnswerContext<'_>,
    ) {
        let error = found.as_ref().err();
        let answered = error.is_none_or(Error::is_not_found);
        match found {
            Ok(object) => {
                self.found = Some(self.content.summary_of(object));
                let mut state = Some(Arc::clone(object));
                self.content.found(read, &mut state);
                self.content.forget();
            }
            Err(_) if answered => self.found = None,
            Err(error) => {
                self.failed(error, read, at.now);
            }
        }
        if answered {
            self.reset_failures();
        }
        self.absent = error.filter(|_| answered).cloned();
        let undecodable = error.filter(|error| error.kind() == ErrorKind::Undecodable);
        self.undecodable = undecodable.cloned();
        // The server has answered for this object, if only with an error.
        let spoke = error.is_some_and(|error| error.status().is_some());
        if answered || spoke || self.undecodable.is_some() {
            self.answered(read, at);
        }
    }

    /// The stored object, or that there is none.
    fn in_memory(&self, stale: bool, at: &AnswerContext<'_>) -> Result<Cached<K>, Error> {
        if let Some(undecodable) = &self.undecodable {
            return Err(undecodable.clone());
        }
        let failure = self.failures.last().cloned();
        let absent = || match &self.absent {
            Some(absent) => absent.clone(),
            None => Error::not_found(&resource_name::<K>(), at.key.name()),
        };
        let ready = self.served(failure, stale, at.clock);
        ready.map(Cached::of).ok_or_else(absent)
    }

    /// The answer after `failure`: the stored object with the failure, or the failure alone
    /// (OS-12..OS-14).
    fn after(&self, failure: &Error, at: &AnswerContext<'_>) -> Result<Cached<K>, Error> {
        if let Some(undecodable) = &self.undecodable {
            return Err(undecodable.clone());
        }
        let stale = !self.is_fresh(at);
        let served = self.served(Some(failure.clone()), stale, at.clock);
        // A refusal is an answer, after which what an earlier process knew does not count.
        let is_refused = self.failures.refusal(FORBIDDEN_GRACE).is_some();
        if let Some(ready) = served.filter(|_| !is_refused || self.object().is_some()) {
            return Ok(Cached::of(ready));
        }
        match &self.absent {
            Some(absent) => Err(absent.clone().with_source(failure.clone())),
            None => Err(failure.clone()),
        }
    }

    fn served(&self, failure: Option<Error>, stale: bool, clock: &Clock) -> Option<ReadyObject<K>> {
        if let Some(seed) = self.content.seed() {
            return Some(seed.ready(failure, clock));
        }
        Some(ReadyObject {
            object: Arc::clone(self.object()?),
            contact: self.contact?,
            failure,
            stale,
            expires: None,
            clock: clock.clone(),
        })
    }

    /// Whether a reader already got a newer state than the fetch found: readers that began to wait
    /// after that must not go back (B18).
    fn is_behind(&self, result: &Result<Cached<K>, Error>) -> bool {
        let known = self.content.known_version();
        let found = result.as_ref().ok().map(Cached::stored);
        found.is_some_and(|found| found.resource_version().is_older_than(known))
    }

    /// Whether readers share the request.
    fn is_shared(&self, read: &ReadPosition) -> bool {
        self.in_flight.iter().any(|(id, _)| *id == read.number)
    }

    fn is_superseded(&self, read: &ReadPosition) -> bool {
        read.number <= self.superseded
    }

    /// Notes that the server has confirmed the stored answer.
    fn confirmed(&mut self, read: &ReadPosition, absent: Option<Error>, at: &AnswerContext<'_>) {
        if self.is_superseded(read) && self.updated.is_none() {
            // Not stored for later readers (OS-17).
            self.aside = self.content.object().map(|it| (Arc::clone(it), read.began));
            return;
        }
        self.absent = absent;
        self.undecodable = None;
        self.answered(read, at);
        self.past_cache = false;
        self.reset_failures();
    }

    fn answered(&mut self, read: &ReadPosition, at: &AnswerContext<'_>) {
        self.updated = Some((at.now, at.coarse));
        self.contact = self.contact.max(Some(read.began));
        self.aside = None;
    }

    fn reset_failures(&mut self) {
        self.failures = Failures::default();
        self.backoff = None;
        self.retry_at = None;
    }

    /// Records a failed request. Others may still be sent, unless the server named a pause. Returns
    /// whether it did.
    fn failed(&mut self, error: &Error, read: &ReadPosition, now: Instant) -> bool {
        self.failures.add(error.clone(), read.began, now);
        let until = asked_wait(error).and_then(|pause| now.checked_add(pause));
        self.retry_at = self.retry_at.max(until);
        until.is_some()
    }

    /// Delays the next fetch after a shared one has failed, by a pause that doubles up to the time
    /// to live.
    fn back_off(&mut self, at: &AnswerContext<'_>) {
        let pause = doubled(self.backoff, FIRST_WAIT, at.ttl);
        self.backoff = Some(pause);
        self.retry_at = self.retry_at.max(at.now.checked_add(pause));
    }

    /// The part of the state that subscribers see besides the object.
    fn visible_state(&self) -> (Option<ErrorKind>, bool, bool, Option<ObjectSummary>) {
        let failure = self.failures.last().map(Error::kind);
        let denied = self.failures.refusal(FORBIDDEN_GRACE).is_some();
        let absent = self.absent.is_some();
        (failure, denied, absent, self.found.clone())
    }
}

impl<K: Object> EntryState<K> for TtlEntry<K> {
    fn content(&mut self) -> &mut EntryContent<K> {
        &mut self.content
    }

    fn ready(&self, clock: &Clock) -> Option<(ReadyObject<K>, Coarse)> {
        let (_, fetched) = self.updated.filter(|_| self.undecodable.is_none())?;
        let ready = self.served(self.failures.last().cloned(), false, clock)?;
        Some((ready, fetched))
    }

    fn kept_answer(&self) -> Option<&Cached<K>> {
        match &self.completed {
            Some((_, FetchResult::Shared(result))) => result.as_ref().ok(),
            Some((_, FetchResult::Stored | FetchResult::LeaderTimedOut)) | None => None,
        }
    }

    fn set_aside(&self) -> Option<&(Arc<StoredObject<K>>, Instant)> {
        self.aside.as_ref()
    }

    fn is_detached(&self) -> bool {
        self.is_detached
    }

    fn reached(
        &self,
        version: &ResourceVersion,
        at: &AnswerContext<'_>,
    ) -> Option<Result<Cached<K>, Error>> {
        if self.is_detached && self.keeps {
            return Some(Err(at.not_registered()));
        }
        let reached = self.is_fresh(at) && is_reached(self.content.known_version(), version);
        reached.then(|| self.in_memory(false, at))
    }

    fn standing(&self, at: &AnswerContext<'_>) -> (ObjectState, String) {
        let failures = &self.failures;
        let failure = failures.last();
        let text = failure.map(Error::to_string).unwrap_or_default();
        if let Some(undecodable) = &self.undecodable {
            return (ObjectState::Undecodable, undecodable.to_string());
        }
        if self.object().is_some() || (self.found.is_some() && failure.is_none()) {
            return (ObjectState::Synced, text);
        }
        if self.absent.is_some() {
            return (ObjectState::NotFound, text);
        }
        if failures.refusal(FORBIDDEN_GRACE).is_some() {
            return (ObjectState::Forbidden, text);
        }
        let reason = failed_so_far(failures, at.now);
        let reason = reason.unwrap_or_else(|| "not read yet".to_owned());
        let restored = self.content.seed().map(|_| ObjectState::Restored);
        (restored.unwrap_or(ObjectState::Waiting), reason)
    }

    fn contact(&self) -> Option<Instant> {
        self.contact
    }

    fn failures(&self, _now: Instant) -> &Failures {
        &self.failures
    }

    fn summary(&self) -> Option<ObjectSummary> {
        let stored = self.object();
        let stored = stored.map(|object| self.content.summary_of(object));
        stored.or_else(|| self.found.clone())
    }
}
