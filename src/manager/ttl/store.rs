//! The TTL store: a reader who finds nothing fresh fetches, on its own thread; the others wait for that fetch.

mod past;

use std::collections::BTreeMap;
use std::sync::Weak;

use super::record::{Fetch, Fetched, FlightId, Look, Moment, Record, Settled};
use super::report::report;
use crate::clock::{Coarse, Deadline};
use crate::error::Error;
use crate::list_watch::Getter;
use crate::manager::answers::Answers;
use crate::manager::ask::Ask;
use crate::manager::cached::{Cached, Ready};
use crate::manager::changes::Notifier;
use crate::manager::content::News;
use crate::manager::gets::Gets;
use crate::manager::kinds::cache_name;
use crate::manager::metrics::Books;
use crate::manager::options::ManagerOptions;
use crate::manager::references::{Affected, Owner, ReferenceChange, References};
use crate::manager::report::ObjectReport;
use crate::object::{Object, ObjectKey};
use crate::sync::{Arc, Monitor, Mutex};
use crate::worker::{StopSource, StopToken};

/// The store of one manager. It has no thread: fetches are made on the threads of readers.
#[derive(Debug)]
pub(crate) struct TtlStore<K: Object> {
    options: ManagerOptions,
    gets: Gets<K>,
    changes: Notifier,
    answers: Answers<K, Place<K>>,
    references: Arc<Mutex<References<Arc<Place<K>>>>>,
    stop: StopSource,
}

/// One referenced object. A further reference puts a new one in its place, which is how data is dropped (OS-2).
#[derive(Debug)]
struct Place<K: Object> {
    key: ObjectKey,
    record: Arc<Monitor<Record<K>>>,
}

/// What a change of references took out of use, to be let go once all locks are released.
#[derive(Debug)]
struct Orphan<K: Object> {
    place: Arc<Place<K>>,
    _ready: Option<Arc<Ready<K>>>,
}

impl<K: Object> TtlStore<K> {
    /// A store without references. Touches no network.
    pub(crate) fn new(getter: Arc<dyn Getter<K>>, options: ManagerOptions) -> Self
    where
        K: Clone,
    {
        Self {
            options,
            gets: Gets::new(getter),
            changes: Notifier::default(),
            answers: Answers::default(),
            references: Arc::new(Mutex::new(References::default())),
            stop: StopSource::new(),
        }
    }

    pub(crate) fn options(&self) -> &ManagerOptions {
        &self.options
    }

    pub(crate) fn changes(&self) -> &Notifier {
        &self.changes
    }

    /// Counts and takes back references of `owner` (OS-2, OS-3): each added one drops what is cached.
    /// Never blocks.
    pub(crate) fn change_references(&self, owner: &Owner, change: ReferenceChange) {
        let orphans: Vec<Orphan<K>> = {
            let mut references = self.references.lock();
            let renews = self.options.invalidate_on_update;
            let make = |key: &ObjectKey| Place::new(key, Record::default());
            let affected = references.change(owner, change, renews, make);
            let orphans = affected.into_iter().filter_map(|affected| match affected {
                Affected::Made(_) => None,
                Affected::Shared(place) => {
                    let key = place.key.clone();
                    let (orphan, record) = self.orphan(place);
                    references.set_item(&key, Place::new(&key, record));
                    Some(orphan)
                }
                Affected::Released(place) => Some(self.orphan(place).0),
            });
            orphans.collect()
        };
        for orphan in orphans {
            orphan.place.record.notify_all();
            self.changes.tell(&orphan.place.key);
        }
    }

    fn orphan(&self, place: Arc<Place<K>>) -> (Orphan<K>, Record<K>) {
        let mut record = place.record.lock();
        let successor = record.orphan();
        let (ready, _) = self
            .answers
            .publish(&place.key, &place, None, Coarse::default());
        drop(record);
        let orphan = Orphan {
            place,
            _ready: ready,
        };
        (orphan, successor)
    }

    /// The object out of memory while it is fresh, else fetched, until `deadline` (OS-5, OS-6).
    ///
    /// # Errors
    ///
    /// See [`ObjectManager::get_by`](crate::manager::ObjectManager::get_by).
    pub(crate) fn get(
        &self,
        namespace: &str,
        name: &str,
        deadline: impl FnOnce() -> Deadline,
    ) -> Result<Cached<K>, Error> {
        let now = self.options.clock.coarse();
        let ttl = self.options.ttl_now();
        let fresh = |fetched| now.is_surely_within(fetched, ttl);
        if let Some(cached) = self.answers.read_if(namespace, name, fresh) {
            return Ok(cached);
        }
        let deadline = deadline();
        loop {
            let place = self.find(namespace, name)?;
            if let Some(result) = self.read(&place, deadline) {
                return result;
            }
        }
    }

    /// What memory holds, at once and whatever its age.
    ///
    /// # Errors
    ///
    /// `NotRegistered`.
    pub(crate) fn get_cached(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Cached<K>>, Error> {
        let place = self.find(namespace, name)?;
        let record = place.record.lock();
        Ok(record.whatever_there_is(&self.moment()))
    }

    /// What is known of one object; `None` if nobody references it.
    pub(crate) fn inspect(&self, key: &ObjectKey) -> Option<ObjectReport> {
        let references = self.references.lock();
        let place = Arc::clone(references.get(key.namespace(), key.name())?);
        let owners = references.owners_of(key);
        drop(references);
        let record = place.record.lock();
        let mut report = report(&record, key, owners, &self.moment());
        drop(record);
        if report.reason.is_empty() && self.stop.token().is_stopped() {
            "the manager was shut down".clone_into(&mut report.reason);
        }
        Some(report)
    }

    /// Ends the fetches that are under way and makes none any more; what is fresh is still served. Returns at once.
    pub(crate) fn shut_down(&self) {
        self.stop.stop();
        let places: Vec<_> = self.references.lock().items().cloned().collect();
        for place in places {
            // Taking the mutex closes the gap between a waiter's look at the stop and its wait.
            drop(place.record.lock());
            place.record.notify_all();
            self.changes.tell(&place.key);
        }
    }

    /// How many objects are referenced.
    pub(crate) fn len(&self) -> usize {
        self.references.lock().len()
    }

    /// The owners and what each references, sorted.
    pub(crate) fn owners(&self) -> BTreeMap<Owner, Vec<ObjectKey>> {
        self.references.lock().owners()
    }

    /// What a reading of the manager looks at.
    pub(crate) fn books(&self) -> Weak<dyn Books> {
        let books: Weak<Mutex<References<Arc<Place<K>>>>> = Arc::downgrade(&self.references);
        books
    }

    fn find(&self, namespace: &str, name: &str) -> Result<Arc<Place<K>>, Error> {
        let references = self.references.lock();
        let place = references.get(namespace, name).map(Arc::clone);
        place.ok_or_else(|| Error::not_registered(&ObjectKey::new(namespace, name)))
    }

    fn moment(&self) -> Moment<'_> {
        let clock = &self.options.clock;
        // In this order: the table's times are to err on the early side.
        let coarse = clock.coarse();
        Moment {
            clock,
            now: clock.now(),
            coarse,
            ttl: self.options.ttl_now(),
        }
    }

    fn request<'a>(
        &'a self,
        place: &'a Place<K>,
        deadline: Deadline,
        stop: &'a StopToken,
    ) -> Ask<'a> {
        Ask {
            key: &place.key,
            clock: &self.options.clock,
            deadline,
            stop,
        }
    }

    /// Reads one record; `None` when another one has taken its place.
    fn read(&self, place: &Arc<Place<K>>, deadline: Deadline) -> Option<Result<Cached<K>, Error>> {
        let mut followed: Option<FlightId> = None;
        let mut record = place.record.lock();
        loop {
            let at = self.moment();
            let look = record.look(&at, followed);
            let stopped = self.stop.token().is_stopped();
            match look {
                Look::Fresh => return Some(record.in_hand(&place.key, false, &at)),
                Look::Elsewhere => return None,
                _ if stopped => return Some(Err(Error::stopped(&cache_name::<K>()))),
                Look::Absent(error) => return Some(Err(error)),
                Look::Failed(error) => return Some(record.after(&error, &at)),
                Look::Lead | Look::Follow(_) if deadline.has_passed(at.now) => {
                    return Some(record.late(None, &at));
                }
                Look::Lead => {
                    let fetch = record.begin(&at);
                    drop(record);
                    return Some(self.lead(place, fetch, deadline));
                }
                Look::Follow(flight) => {
                    followed = Some(flight);
                    let clock = &self.options.clock;
                    record = clock.wait_until(&place.record, record, deadline);
                }
            }
        }
    }

    /// Makes the fetch that others wait for.
    fn lead(
        &self,
        place: &Arc<Place<K>>,
        mut fetch: Fetch,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let _over = HandOver {
            place,
            flight: fetch.flight(),
        };
        let mut found = self.fetch(place, &fetch, deadline);
        if matches!(found, Fetched::Absent(_)) {
            let confirm = place.record.lock().confirm(&fetch);
            if let Some(again) = confirm {
                fetch = again;
                found = self.fetch(place, &fetch, deadline);
            }
        }
        self.hand_on(place, &found);
        self.change(place, found, |record, found, at| {
            record.land(&fetch, found, &place.key, at)
        })
    }

    /// Who is answered out of a record that is out of use reads its successor next. That one hears of the answer first, so
    /// that nobody goes back behind it; what takes the place of a record after this look fetches
    /// later than this did.
    fn hand_on(&self, place: &Place<K>, found: &Fetched<K>) {
        let Some(object) = found.object() else { return };
        if !place.record.lock().is_orphaned() {
            return;
        }
        if let Ok(successor) = self.find(place.key.namespace(), place.key.name()) {
            let heard = Arc::clone(&object);
            self.update(&successor, |record, at| record.hear(heard, at));
        }
    }

    fn fetch(&self, place: &Place<K>, fetch: &Fetch, deadline: Deadline) -> Fetched<K> {
        let token = self.stop.token();
        let ask = self.request(place, deadline, &token);
        let version = &fetch.version;
        let may = ask.check::<K>(version);
        let result = may.and_then(|()| self.gets.ask_once(&ask, version));
        Fetched::of(result, &ask)
    }

    /// Changes a record by what was found, and what its readers find at once, in one step; tells of it after that.
    fn change(
        &self,
        place: &Arc<Place<K>>,
        found: Fetched<K>,
        change: impl FnOnce(&mut Record<K>, Fetched<K>, &Moment<'_>) -> Settled<K>,
    ) -> Result<Cached<K>, Error> {
        // What is refused is dropped after the lock.
        let _found = found.object();
        self.update(place, |record, at| change(record, found, at))
    }

    fn update<R>(
        &self,
        place: &Arc<Place<K>>,
        update: impl FnOnce(&mut Record<K>, &Moment<'_>) -> Settled<K, R>,
    ) -> R {
        let (settled, _replaced) = {
            let mut record = place.record.lock();
            let at = self.moment();
            let settled = update(&mut record, &at);
            let (ready, fetched) = record.ready(at.clock).unzip();
            let fetched = fetched.unwrap_or_default();
            let replaced = self.answers.publish(&place.key, place, ready, fetched);
            (settled, replaced)
        };
        place.record.notify_all();
        if settled.news == News::Changed {
            self.changes.tell(&place.key);
        }
        settled.result
    }
}

impl<K: Object> Drop for TtlStore<K> {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl<K: Object> Place<K> {
    fn new(key: &ObjectKey, record: Record<K>) -> Arc<Self> {
        Arc::new(Self {
            key: key.clone(),
            record: Arc::new(Monitor::new(record)),
        })
    }
}

/// Ends a leader's fetch however the leader ends: when its getter panics, somebody who waits takes over.
struct HandOver<'a, K: Object> {
    place: &'a Place<K>,
    flight: FlightId,
}

impl<K: Object> Drop for HandOver<'_, K> {
    fn drop(&mut self) {
        let abandoned = self.place.record.lock().abandon(self.flight);
        if abandoned {
            self.place.record.notify_all();
        }
    }
}
