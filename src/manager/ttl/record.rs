//! What is known of one object since its data was last dropped, and what a reader is to do about it (OS-5..OS-17, B17).
//! Pure.

mod said;

use std::time::{Duration, Instant};

use super::trouble::Trouble;
use crate::clock::{Clock, Coarse};
use crate::error::{Error, ErrorKind};
use crate::manager::ask::Ask;
use crate::manager::at_least::is_reached;
use crate::manager::cached::Cached;
use crate::manager::content::{Asked, Content, News, Written};
use crate::object::{Held, Object, ObjectKey, ResourceVersion};
use crate::sync::Arc;

/// A fetch that was given less time than this says nothing about the server when the time is up.
const FAIR_TIME: Duration = Duration::from_secs(1);

/// When something happens, and how long what was fetched lives at that time (OS-6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) now: Instant,
    /// Read before `now`.
    pub(crate) coarse: Coarse,
    pub(crate) ttl: Duration,
}

/// A fetch that readers share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlightId(u64);

/// What a leader asks the server.
#[derive(Debug)]
pub(crate) struct Fetch {
    flight: FlightId,
    pub(crate) version: ResourceVersion,
    asked: Asked,
    begun: Instant,
}

/// A read past the cache, which one reader makes for itself (R11).
#[derive(Debug)]
pub(crate) struct Past {
    /// Its answer is not older than this.
    pub(crate) version: ResourceVersion,
    asked: Asked,
    begun: Instant,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Fetched<K: Object> {
    Object(Arc<Held<K>>),
    Absent(Error),
    Failed(Error),
    /// The leader's own deadline ended it.
    OutOfTime(Error),
    /// The store was shut down.
    Stopped(Error),
}

impl Fetch {
    pub(crate) fn flight(&self) -> FlightId {
        self.flight
    }
}

impl<K: Object> Fetched<K> {
    /// The object, for whoever is to drop it last, under no lock.
    pub(crate) fn object(&self) -> Option<Arc<Held<K>>> {
        match self {
            Self::Object(object) => Some(Arc::clone(object)),
            Self::Absent(_) | Self::Failed(_) | Self::OutOfTime(_) | Self::Stopped(_) => None,
        }
    }

    pub(crate) fn of(result: Result<Arc<Held<K>>, Error>, ask: &Ask<'_>) -> Self {
        match result {
            Ok(object) => Self::Object(object),
            Err(error) if error.is_not_found() => Self::Absent(error),
            Err(error) if error.is_stopped() => Self::Stopped(error),
            Err(error) if ask.was_ended_by_deadline(&error) => Self::OutOfTime(error),
            Err(error) => Self::Failed(error),
        }
    }
}

/// What a reader is to do.
#[derive(Debug)]
pub(crate) enum Look {
    /// Take what is held: it is fresh (OS-6).
    Fresh,
    /// Take the answer of the fetch that was waited for: there is no such object.
    Absent(Error),
    /// Take the failure of the fetch that was waited for, or of the last one, whose backoff is not over (B17).
    Failed(Error),
    /// Wait for the fetch that is under way.
    Follow(FlightId),
    /// Fetch.
    Lead,
    /// Look for the record that has taken the place of this one (OS-2).
    Elsewhere,
}

/// What a fetch, or a read past the cache, did.
#[derive(Debug)]
#[must_use = "news must be told"]
pub(crate) struct Settled<K: Object, R = Result<Cached<K>, Error>> {
    pub(crate) result: R,
    pub(crate) news: News,
    /// Dropped by the caller, under no lock.
    _written: Option<Written<K>>,
}

/// How the last fetch ended.
#[derive(Debug)]
struct Landed {
    flight: FlightId,
    how: How,
}

#[derive(Debug)]
enum How {
    /// With what readers take if it is still fresh when they look.
    Answered,
    Absent(Error),
    Failed(Error),
    /// Without an answer, by what concerned its leader only: the next reader fetches, backoff or not.
    HandedOver,
}

/// What is known of one object since its data was last dropped.
#[derive(Debug)]
pub(crate) struct Record<K: Object> {
    content: Content<K>,
    /// The server's words that there is no such object (OS-11).
    absent: Option<Error>,
    /// When the server last confirmed what is stored.
    updated: Option<(Instant, Coarse)>,
    /// The server's cache was behind what is known: the next fetch reads past it.
    past_cache: bool,
    /// The newest state of the object does not decode; the content holds the last good one (B12).
    undecodable: Option<Error>,
    /// The fetch that is under way, and since when.
    flight: Option<(FlightId, Instant)>,
    last_flight: FlightId,
    landed: Option<Landed>,
    trouble: Trouble,
    /// Another record has taken its place, or the last reference is gone: what comes in is stored for nobody (OS-17).
    orphaned: bool,
}

impl<K: Object> Default for Record<K> {
    fn default() -> Self {
        Self {
            content: Content::default(),
            absent: None,
            updated: None,
            past_cache: false,
            undecodable: None,
            flight: None,
            last_flight: FlightId::default(),
            landed: None,
            trouble: Trouble::default(),
            orphaned: false,
        }
    }
}

impl<K: Object> Record<K> {
    /// What a reader is to do who has waited for the fetch `followed`, if for one.
    pub(crate) fn look(&self, at: &Moment<'_>, followed: Option<FlightId>) -> Look {
        let waited = followed.is_some();
        if self.is_fresh(at) && (waited || !self.orphaned) {
            return Look::Fresh;
        }
        let landed = self.landed.as_ref();
        let ended = landed.filter(|landed| followed.is_some_and(|id| id <= landed.flight));
        let ended = ended.map(|landed| &landed.how);
        match (ended, self.flight) {
            (Some(How::Absent(error)), _) => Look::Absent(error.clone()),
            (Some(How::Failed(error)), _) => Look::Failed(error.clone()),
            _ if self.orphaned && (!waited || self.flight.is_none()) => Look::Elsewhere,
            (_, Some((flight, _))) => Look::Follow(flight),
            (Some(How::HandedOver), None) => Look::Lead,
            (Some(How::Answered) | None, None) => match self.trouble.backing_off(at.now) {
                Some(failure) => Look::Failed(failure.clone()),
                None => Look::Lead,
            },
        }
    }

    /// A reader begins to fetch: out of the server's cache if an object is held, else past it (OS-7).
    pub(crate) fn begin(&mut self, at: &Moment<'_>) -> Fetch {
        let flight = FlightId(self.last_flight.0.wrapping_add(1));
        self.last_flight = flight;
        self.flight = Some((flight, at.now));
        let cached = self.object().is_some() && !self.past_cache;
        let version = if cached {
            ResourceVersion::any()
        } else {
            ResourceVersion::most_recent()
        };
        Fetch {
            flight,
            version,
            asked: self.content.ask(),
            begun: at.now,
        }
    }

    /// The server's cache knows no such object, but readers were given one, behind which cached
    /// reads do not go back: asks
    /// once more, past the cache, before that is believed.
    pub(crate) fn confirm(&self, fetch: &Fetch) -> Option<Fetch> {
        let doubtful = !fetch.version.is_empty();
        (doubtful && self.content.object().is_some()).then(|| Fetch {
            version: ResourceVersion::most_recent(),
            asked: self.content.ask(),
            ..*fetch
        })
    }

    /// The fetch has come back. This table is OS-8..OS-14 with B17.
    pub(crate) fn land(
        &mut self,
        fetch: &Fetch,
        fetched: Fetched<K>,
        key: &ObjectKey,
        at: &Moment<'_>,
    ) -> Settled<K> {
        let before = self.face();
        let (how, result, written) = match fetched {
            Fetched::Object(object) => {
                let mut object = Some(object);
                let written = if fetch.version.is_empty() {
                    self.content.found(&fetch.asked, &mut object)
                } else {
                    self.content.answer(&mut object)
                };
                let taken = written.is_some();
                if taken {
                    self.confirmed(None, at);
                } else {
                    // Overtaken by a read past the cache, or from before what is known (OS-10).
                    self.refused(fetch, at);
                }
                let stale = !taken && self.past_cache && !self.is_fresh(at);
                (How::Answered, self.in_hand(key, stale, at), written)
            }
            Fetched::Absent(_) if self.confirm(fetch).is_some() => {
                // A read past the cache found the object since the leader looked whether it had to ask again.
                self.refused(fetch, at);
                (
                    How::Answered,
                    self.in_hand(key, !self.is_fresh(at), at),
                    None,
                )
            }
            Fetched::Absent(error) => {
                let any = ResourceVersion::any();
                let written = self.take_absence(&fetch.asked, &error, &any, at);
                // Overtaken, it was true for who asked, and may not be for who came while it was on its way.
                let how = match written {
                    Some(_) => How::Absent(error.clone()),
                    None => How::Answered,
                };
                (how, Err(error), written)
            }
            Fetched::Failed(error) => {
                self.trouble
                    .fetch_failed(&error, fetch.begun, at.now, at.ttl);
                self.note_undecodable(&error);
                let result = self.after(&error, at);
                (How::Failed(error), result, None)
            }
            Fetched::OutOfTime(error) => {
                let result = self.late(Some((fetch.begun, &error)), at);
                if at.now.saturating_duration_since(fetch.begun) >= FAIR_TIME {
                    self.trouble
                        .fetch_failed(&error, fetch.begun, at.now, at.ttl);
                }
                (How::HandedOver, result, None)
            }
            Fetched::Stopped(error) => (How::Failed(error.clone()), Err(error), None),
        };
        self.end(fetch.flight, how);
        self.settled(before, result, written)
    }

    /// The leader is gone; returns whether it left no answer, which is a panic.
    pub(crate) fn abandon(&mut self, flight: FlightId) -> bool {
        let abandoned = self.flight.is_some_and(|(up, _)| up == flight);
        if abandoned {
            self.end(flight, How::HandedOver);
        }
        abandoned
    }

    /// To be called before a read past the cache is sent.
    pub(crate) fn ask(&self, version: ResourceVersion, at: &Moment<'_>) -> Past {
        Past {
            version,
            asked: self.content.ask(),
            begun: at.now,
        }
    }

    /// A read past the cache came back.
    pub(crate) fn take_read(
        &mut self,
        read: &Past,
        fetched: Fetched<K>,
        key: &ObjectKey,
        at: &Moment<'_>,
    ) -> Settled<K> {
        let before = self.face();
        let (result, written) = match fetched {
            Fetched::Object(object) => {
                let written =
                    self.content
                        .found_at_least(&read.asked, &mut Some(object), &read.version);
                if written.is_some() {
                    self.confirmed(None, at);
                } else {
                    self.vouch(at);
                }
                (self.in_hand(key, false, at), written)
            }
            Fetched::Absent(error) => {
                let written = self.take_absence(&read.asked, &error, &read.version, at);
                (Err(error), written)
            }
            Fetched::Failed(error) => {
                self.trouble.failed(&error, read.begun, at.now);
                self.note_undecodable(&error);
                (Err(error), None)
            }
            Fetched::OutOfTime(error) | Fetched::Stopped(error) => (Err(error), None),
        };
        self.settled(before, result, written)
    }

    /// Takes the record out of use: data that is fetched from now on is stored elsewhere, or nowhere. Returns an empty one
    /// to take its place, which keeps how far the server had come.
    pub(crate) fn orphan(&mut self) -> Self {
        self.orphaned = true;
        let mut content = Content::default();
        content.raise_floor(self.content.floor());
        Self {
            content,
            ..Self::default()
        }
    }

    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned
    }

    /// Somebody who asked before this record took the place of another is given `object`: who reads this one next is not
    /// given an older state (B18). That alone makes nothing here fresh: the first reader fetches (OS-17).
    pub(crate) fn hear(&mut self, object: Arc<Held<K>>, at: &Moment<'_>) -> Settled<K, ()> {
        let before = self.face();
        // What is absent here is asked for anew by each reader (OS-16), past every cache.
        let heard = self
            .absent
            .is_none()
            .then(|| self.content.hear(&mut Some(object)));
        let written = heard.flatten();
        if written.is_some() && self.updated.is_some() {
            self.confirmed(None, at);
        }
        self.settled(before, (), written)
    }

    /// Whether what is held may be served without asking (OS-6).
    pub(crate) fn is_fresh(&self, at: &Moment<'_>) -> bool {
        let served = self.object().is_some() && self.undecodable.is_none();
        let Some((updated, _)) = self.updated.filter(|_| served) else {
            return false;
        };
        let ends = updated.checked_add(at.ttl);
        ends.is_none_or(|ends| at.now < ends)
    }

    /// What is held, if it is fresh and not older than `version` (R11).
    pub(crate) fn reached(
        &self,
        version: &ResourceVersion,
        key: &ObjectKey,
        at: &Moment<'_>,
    ) -> Option<Result<Cached<K>, Error>> {
        let reached = self.is_fresh(at) && is_reached(self.content.floor(), version);
        reached.then(|| self.in_hand(key, false, at))
    }

    /// The object, once it was fetched for readers of this record.
    pub(crate) fn object(&self) -> Option<&Arc<Held<K>>> {
        let fetched = self.updated.is_some();
        self.content.object().filter(|_| fetched)
    }

    pub(crate) fn content(&self) -> &Content<K> {
        &self.content
    }

    /// Why the newest state of the object is not held, if it does not decode (B12).
    pub(crate) fn undecodable(&self) -> Option<&Error> {
        self.undecodable.as_ref()
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.absent.is_some()
    }

    pub(crate) fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// When the server last confirmed what is stored.
    pub(crate) fn updated(&self) -> Option<Instant> {
        self.updated.map(|(at, _)| at)
    }

    /// An absence is stored as an answer, too, but the next reader asks again (OS-11, OS-16).
    fn take_absence(
        &mut self,
        asked: &Asked,
        error: &Error,
        version: &ResourceVersion,
        at: &Moment<'_>,
    ) -> Option<Written<K>> {
        let written = self.content.found_at_least(asked, &mut None, version);
        if written.is_some() {
            self.confirmed(Some(error.clone()), at);
        }
        written
    }

    /// An answer that was fetched for this record came behind what was heard before: that may be served, then.
    fn vouch(&mut self, at: &Moment<'_>) {
        if self.updated.is_none() && self.content.object().is_some() {
            self.confirmed(None, at);
        }
    }

    /// The server has answered, with less than what is known.
    fn refused(&mut self, fetch: &Fetch, at: &Moment<'_>) {
        self.vouch(at);
        self.past_cache = !fetch.version.is_empty();
        self.trouble = Trouble::default();
    }

    /// The server has the object, in a state that does not decode: later reads say so until
    /// something else is known.
    fn note_undecodable(&mut self, error: &Error) {
        if error.kind() == ErrorKind::Undecodable {
            self.undecodable = Some(error.clone());
        }
    }

    fn confirmed(&mut self, absent: Option<Error>, at: &Moment<'_>) {
        self.absent = absent;
        self.undecodable = None;
        self.updated = Some((at.now, at.coarse));
        self.past_cache = false;
        self.trouble = Trouble::default();
    }

    fn end(&mut self, flight: FlightId, how: How) {
        self.flight = None;
        self.landed = Some(Landed { flight, how });
    }

    /// What subscribers are told of besides the object itself.
    fn face(&self) -> (Option<ErrorKind>, bool, bool) {
        let failure = self.trouble.failure().map(Error::kind);
        (failure, self.trouble.is_denied(), self.absent.is_some())
    }

    fn settled<R>(
        &self,
        before: (Option<ErrorKind>, bool, bool),
        result: R,
        written: Option<Written<K>>,
    ) -> Settled<K, R> {
        let changed = written
            .as_ref()
            .is_some_and(|written| written.news == News::Changed);
        let news = if changed || before != self.face() {
            News::Changed
        } else {
            News::Nothing
        };
        Settled {
            result,
            news,
            _written: written,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::clock::FakeClock;
    use crate::manager::tests::fake::secret;

    /// R11: an absence out of the server's cache that comes to be stored just behind a fresh read is not believed.
    #[test]
    fn r11_an_absence_that_a_fresh_read_overtook_is_not_stored() {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let at = Moment {
            clock: &clock,
            now: clock.now(),
            coarse: clock.coarse(),
            ttl: Duration::ZERO,
        };
        let key = ObjectKey::new("ns", "s");
        let found = || Fetched::Object(Arc::new(Held::new(secret("s", "7"))));
        let mut record = Record::<Secret>::default();
        let first = record.begin(&at);
        assert!(record.land(&first, found(), &key, &at).result.is_ok());
        let second = record.begin(&at);
        assert_eq!(second.version, ResourceVersion::any());
        let read = record.ask(ResourceVersion::most_recent(), &at);
        assert!(record.take_read(&read, found(), &key, &at).result.is_ok());
        let gone = Fetched::Absent(Error::not_found("secret", "s"));
        let kept = record.land(&second, gone, &key, &at).result.unwrap();
        assert_eq!(kept.metadata.resource_version.as_deref(), Some("7"));
        assert!(
            record.begin(&at).version.is_empty(),
            "the next one asks past the cache"
        );
    }
}
