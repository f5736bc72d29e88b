//! The fetching store: a request on the reader's thread for each read, and a note of how it ended (SC-2).

use std::collections::BTreeMap;
use std::sync::Weak;

use super::outcome::Outcome;
use crate::clock::Deadline;
use crate::error::Error;
use crate::list_watch::Getter;
use crate::manager::ask::Ask;
use crate::manager::at_least::{Meanwhile, Reached, get_at_least, later};
use crate::manager::cached::{Cached, Ready};
use crate::manager::changes::Notifier;
use crate::manager::gets::Gets;
use crate::manager::metrics::Books;
use crate::manager::options::ManagerOptions;
use crate::manager::references::{Owner, ReferenceChange, References};
use crate::manager::report::ObjectReport;
use crate::object::{Held, Object, ObjectKey, ResourceVersion};
use crate::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};
use crate::worker::StopSource;

/// The store of one manager that keeps no object. It has no thread: what is under way ends with its caller.
#[derive(Debug)]
pub(crate) struct FetchStore<K: Object> {
    options: ManagerOptions,
    changes: Notifier,
    gets: Gets<K>,
    references: Arc<Mutex<References<Arc<Item>>>>,
    reads: AtomicU64,
    stop: StopSource,
}

#[derive(Debug)]
struct Item {
    key: ObjectKey,
    outcome: Mutex<Outcome>,
}

impl<K: Object> FetchStore<K> {
    /// A store without references. Starts no thread; touches no network.
    pub(crate) fn new(getter: Arc<dyn Getter<K>>, options: ManagerOptions) -> Self
    where
        K: Clone,
    {
        Self {
            options,
            changes: Notifier::default(),
            gets: Gets::new(getter),
            references: Arc::new(Mutex::new(References::default())),
            reads: AtomicU64::new(0),
            stop: StopSource::new(),
        }
    }

    pub(crate) fn options(&self) -> &ManagerOptions {
        &self.options
    }

    pub(crate) fn changes(&self) -> &Notifier {
        &self.changes
    }

    /// Counts and takes back references of `owner`: they decide which objects have a row, and
    /// nothing else.
    pub(crate) fn change_references(&self, owner: &Owner, change: ReferenceChange) {
        let make = |key: &ObjectKey| {
            Arc::new(Item {
                key: key.clone(),
                outcome: Mutex::new(Outcome::default()),
            })
        };
        let affected = self.references.lock().change(owner, change, false, make);
        // What was let go is dropped under no lock.
        drop(affected);
    }

    /// The object as the server has it now, by a consistent read (SC-2).
    ///
    /// # Errors
    ///
    /// See [`ObjectManager::get_by`](crate::manager::ObjectManager::get_by) and
    /// [`ObjectManager::get_fresh`](crate::manager::ObjectManager::get_fresh); `NotFound` in the server's words.
    pub(crate) fn get(
        &self,
        namespace: &str,
        name: &str,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let key = ObjectKey::new(namespace, name);
        let stop = self.stop.token();
        let ask = Ask {
            key: &key,
            clock: &self.options.clock,
            deadline,
            stop: &stop,
        };
        let latest = ResourceVersion::most_recent();
        ask.check::<K>(&latest)?;
        let number = self.next_number();
        let found = self.gets.ask(&ask, &latest);
        self.end(&key, number, found)
    }

    /// The object in a state not older than `version`, nor than the last one that was read if it is referenced.
    ///
    /// # Errors
    ///
    /// See [`ObjectManager::get_at_least`](crate::manager::ObjectManager::get_at_least).
    pub(crate) fn get_at_least(
        &self,
        namespace: &str,
        name: &str,
        version: &ResourceVersion,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let key = ObjectKey::new(namespace, name);
        let stop = self.stop.token();
        let ask = Ask {
            key: &key,
            clock: &self.options.clock,
            deadline,
            stop: &stop,
        };
        ask.check::<K>(version)?;
        let mut pausing = Pausing {
            store: self,
            ask: &ask,
            version,
            number: 0,
        };
        let reached = get_at_least(&self.gets, &ask, &mut pausing);
        let number = pausing.number;
        match reached {
            Ok(Reached::Answer(object, _)) => self.end(&key, number, Ok(object)),
            Ok(Reached::Gone(error, _)) | Err(error) => self.end(&key, number, Err(error)),
            Ok(Reached::InMemory(answer)) => answer,
        }
    }

    /// What is known of one object, if it is referenced.
    pub(crate) fn inspect(&self, key: &ObjectKey) -> Option<ObjectReport> {
        let now = self.options.clock.now();
        let (item, owners) = {
            let references = self.references.lock();
            let item = references.get(key.namespace(), key.name())?;
            (Arc::clone(item), references.owners_of(key))
        };
        let outcome = item.outcome.lock();
        let mut report = outcome.report::<K>(key.clone(), owners, now);
        if self.stop.token().is_stopped() && report.reason.is_empty() {
            "the manager was shut down".clone_into(&mut report.reason);
        }
        Some(report)
    }

    /// Ends the requests that are under way, and sends none any more. Returns at once.
    pub(crate) fn shut_down(&self) {
        self.stop.stop();
        let items: Vec<Arc<Item>> = self.references.lock().items().cloned().collect();
        for item in items {
            self.changes.tell(&item.key);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.references.lock().len()
    }

    /// The owners and what each references, sorted.
    pub(crate) fn owners(&self) -> BTreeMap<Owner, Vec<ObjectKey>> {
        self.references.lock().owners()
    }

    /// What a reading of the manager looks at.
    pub(crate) fn books(&self) -> Weak<dyn Books> {
        let books: Weak<Mutex<References<Arc<Item>>>> = Arc::downgrade(&self.references);
        books
    }

    fn next_number(&self) -> u64 {
        self.reads.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Notes how the read went, and wraps up what it gives.
    fn end(
        &self,
        key: &ObjectKey,
        number: u64,
        found: Result<Arc<Held<K>>, Error>,
    ) -> Result<Cached<K>, Error> {
        let now = self.options.clock.now();
        if let Some(item) = self.item(key) {
            let news = item.outcome.lock().note(number, &found, now);
            if news {
                self.changes.tell(&item.key);
            }
        }
        found.map(|object| {
            Cached::new(Arc::new(Ready {
                object,
                contact: now,
                failure: None,
                stale: false,
                clock: self.options.clock.clone(),
            }))
        })
    }

    fn item(&self, key: &ObjectKey) -> Option<Arc<Item>> {
        let references = self.references.lock();
        references.get(key.namespace(), key.name()).cloned()
    }
}

/// Nothing but time goes by between two requests.
struct Pausing<'a, K: Object> {
    store: &'a FetchStore<K>,
    ask: &'a Ask<'a>,
    version: &'a ResourceVersion,
    /// That of the last request.
    number: u64,
}

impl<K: Object> Meanwhile<K> for Pausing<'_, K> {
    fn version(&mut self) -> ResourceVersion {
        self.number = self.store.next_number();
        let Some(item) = self.store.item(self.ask.key) else {
            return self.version.clone();
        };
        let outcome = item.outcome.lock();
        later(self.version, outcome.resource_version())
    }

    fn rest(&mut self, pause: Deadline) -> Option<Result<Cached<K>, Error>> {
        self.ask.stop.wait_until(self.ask.clock, pause);
        None
    }
}
