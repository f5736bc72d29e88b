//! The watch-based store: one item per referenced object, read from memory, kept by a watch of its own (OC-1..OC-29).

use std::collections::BTreeMap;
use std::sync::Weak;

use super::housekeeper::keep_house;
use super::item::{Check, Input, Machine, State, Why};
use super::launch::Launcher;
use super::report::report;
use super::slot::{About, Action, Item, Slot};
use super::works::Works;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::list_watch::Getter;
use crate::manager::cached::Cached;
use crate::manager::health::Overdue;
use crate::manager::kinds::cache_name;
use crate::manager::metrics::{Books as Counted, ManagerState};
use crate::manager::options::ManagerOptions;
use crate::manager::references::{Affected, Owner, ReferenceChange, References};
use crate::manager::report::ObjectReport;
use crate::object::{Object, ObjectKey, resource_name};
use crate::reflector::{Demand, DemandGuard};
use crate::sync::{Arc, Monitor, Mutex};
use crate::worker::{StopSource, StopToken, Worker};

/// The store of one manager, and its housekeeper. Dropping it stops and joins everything.
#[derive(Debug)]
pub(crate) struct WatchStore<K: Object> {
    shared: Arc<Shared<K>>,
    housekeeper: Option<Worker>,
    stop: StopSource,
}

/// What the store shares with its housekeeper.
#[derive(Debug)]
pub(crate) struct Shared<K: Object> {
    pub(crate) works: Arc<Works<K>>,
    books: Mutex<Books<K>>,
    /// The housekeeper's panic, until it has been round once more.
    pub(crate) housekeeping: Mutex<Option<Error>>,
}

#[derive(Debug)]
struct Books<K: Object> {
    references: References<Item<K>>,
    shut_down: bool,
}

impl<K: Object> Shared<K> {
    /// Every item that is referenced now.
    pub(crate) fn items(&self) -> Vec<Item<K>> {
        self.books.lock().references.items().cloned().collect()
    }
}

impl<K: Object> Counted for Shared<K> {
    fn state(&self) -> ManagerState {
        let items = self.items();
        let watches = items
            .iter()
            .filter(|item| matches!(item.slot.lock().state(), State::Starting | State::Running));
        ManagerState {
            objects: items.len(),
            references: self.books.lock().references.total(),
            watches: watches.count(),
        }
    }
}

impl<K: Object> WatchStore<K> {
    /// A store without references. Starts the housekeeper's thread; touches no network.
    ///
    /// # Errors
    ///
    /// `Resources` when the system has no thread to give.
    pub(crate) fn new(
        launcher: Box<dyn Launcher<K>>,
        getter: Arc<dyn Getter<K>>,
        options: ManagerOptions,
    ) -> Result<Self, Error>
    where
        K: Clone,
    {
        let mut store = Self::unattended(Works::new(launcher, getter, options));
        let shared = Arc::clone(&store.shared);
        let worker = Worker::spawn(format!("hk-{}", resource_name::<K>()), move |stop| {
            keep_house(&shared, stop);
        });
        store.housekeeper = Some(worker.map_err(|error| {
            Error::new(
                ErrorKind::Resources,
                format!("starting the housekeeper of {}: {error}", cache_name::<K>()),
            )
        })?);
        Ok(store)
    }

    /// A store without a housekeeper, for models that start no thread.
    pub(crate) fn unattended(works: Arc<Works<K>>) -> Self {
        let books = Mutex::new(Books {
            references: References::default(),
            shut_down: false,
        });
        Self {
            shared: Arc::new(Shared {
                works,
                books,
                housekeeping: Mutex::new(None),
            }),
            housekeeper: None,
            stop: StopSource::new(),
        }
    }

    pub(crate) fn works(&self) -> &Arc<Works<K>> {
        &self.shared.works
    }

    /// Counts and takes back references of `owner`, then starts, stops and checks what that asks for
    /// (OC-2, OC-3). Never blocks.
    pub(crate) fn change_references(&self, owner: &Owner, change: ReferenceChange) {
        let works = self.works();
        let due: Vec<(Item<K>, Action)> = {
            let mut books = self.shared.books.lock();
            let shut_down = books.shut_down;
            let make = |key: &ObjectKey| Item {
                about: Arc::new(About {
                    key: key.clone(),
                    demand: Demand::new(),
                }),
                slot: Arc::new(Monitor::new(Slot::new(
                    if shut_down {
                        Machine::shut_down()
                    } else {
                        Machine::starting()
                    },
                    works.clock(),
                ))),
            };
            let affected = books.references.change(owner, change, false, make);
            let due = affected.into_iter().map(|affected| match affected {
                Affected::Made(item) if shut_down => (item, Action::nothing()),
                Affected::Made(item) => (item, Action::first()),
                Affected::Shared(item) => {
                    let action = self.check_again(&item);
                    (item, action)
                }
                Affected::Released(item) => {
                    let action = works.change(&item, |slot| slot.act(Input::Released));
                    (item, action)
                }
            });
            due.collect()
        };
        for (item, action) in due {
            works.perform(&item, action);
        }
    }

    /// A new reference to an immutable object asks whether it is still the same one (B7).
    fn check_again(&self, item: &Item<K>) -> Action {
        if !self.works().options.recheck_immutable {
            return Action::nothing();
        }
        let now = self.works().clock().now();
        self.works()
            .change(item, |slot| slot.try_again(Input::Referenced, now))
    }

    /// The object out of memory, else after a wait until `deadline` (OC-8, B1).
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
        let clock = self.works().clock();
        let now = clock.coarse();
        if let Some(cached) = self.works().answers.read(namespace, name, now) {
            self.expedite(namespace, name, &cached);
            return Ok(cached);
        }
        let item = self.item(namespace, name)?;
        item.slot.lock().note_read(now);
        self.wait(&item, deadline())
    }

    /// What memory holds, at once and whatever its age; counts as a read.
    ///
    /// # Errors
    ///
    /// `NotRegistered`.
    pub(crate) fn get_cached(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Cached<K>>, Error> {
        let clock = self.works().clock();
        let now = clock.coarse();
        let item = self.item(namespace, name)?;
        let (action, cached) = self.works().change(&item, |slot| {
            slot.note_read(now);
            let cached = slot.whatever_there_is(clock);
            // Whoever looks wants the watch to go on (OC-8), though not to wait for it.
            let wanted = slot.want(clock.now());
            (wanted.or(|| slot.given()), cached)
        });
        self.works().perform(&item, action);
        if let Some(cached) = &cached {
            self.expedite(namespace, name, cached);
        }
        Ok(cached)
    }

    /// A reader of an object whose watch fails would rather have something newer (B10).
    fn expedite(&self, namespace: &str, name: &str, cached: &Cached<K>) {
        if cached.last_failure().is_some()
            && let Ok(item) = self.item(namespace, name)
        {
            item.about.demand.expedite();
        }
    }

    /// The item of an object that is referenced.
    ///
    /// # Errors
    ///
    /// `NotRegistered`.
    pub(super) fn item(&self, namespace: &str, name: &str) -> Result<Item<K>, Error> {
        find(&self.shared.books.lock(), namespace, name).cloned()
    }

    /// Ends the requests of readers when the store is shut down.
    pub(super) fn stop_token(&self) -> StopToken {
        self.stop.token()
    }

    /// Stops every watch and starts none any more (OC-25). Returns at once; the threads end within milliseconds.
    pub(crate) fn shut_down(&self) {
        self.stop.stop();
        self.works().checker.stop();
        let items: Vec<Item<K>> = {
            let mut books = self.shared.books.lock();
            books.shut_down = true;
            books.references.items().cloned().collect()
        };
        for item in items {
            let action = self.works().change(&item, |slot| slot.act(Input::ShutDown));
            item.slot.notify_all();
            self.works().perform(&item, action);
            self.works().changes.tell(&item.about.key);
        }
    }

    /// What is known of one object, if it is referenced. Does not count as a read.
    pub(crate) fn inspect(&self, key: &ObjectKey) -> Option<ObjectReport> {
        let now = self.works().clock().now();
        let books = self.shared.books.lock();
        let item = books.references.get(key.namespace(), key.name())?.clone();
        let owners = books.references.owners_of(key);
        drop(books);
        let slot = item.slot.lock();
        Some(report(&slot, &item.about, owners, now))
    }

    /// The objects whose watch should have heard from the server by now and has not (B14).
    pub(crate) fn overdue(&self) -> Vec<Overdue> {
        let now = self.works().clock().now();
        let items = self.shared.items().into_iter();
        let overdue = items.filter_map(|item| {
            let slot = item.slot.lock();
            slot.is_overdue(now).then(|| Overdue {
                key: item.about.key.clone(),
                confirmed: slot.last_contact(),
                began: slot.attempts_since(),
                failure: slot.failure().cloned(),
            })
        });
        overdue.collect()
    }

    /// The owners and what each references, sorted.
    pub(crate) fn owners(&self) -> BTreeMap<Owner, Vec<ObjectKey>> {
        self.shared.books.lock().references.owners()
    }

    /// What keeps the housekeeper from its rounds, if anything does.
    pub(crate) fn housekeeping_failure(&self) -> Option<Error> {
        self.shared.housekeeping.lock().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.shared.books.lock().references.len()
    }

    /// What a reading of the manager looks at.
    pub(crate) fn books(&self) -> Weak<dyn Counted> {
        let shared: Weak<Shared<K>> = Arc::downgrade(&self.shared);
        shared
    }

    fn wait(&self, item: &Item<K>, deadline: Deadline) -> Result<Cached<K>, Error> {
        let clock = self.works().clock();
        let mut waiting: Option<DemandGuard> = None;
        let mut first = true;
        loop {
            let slot = item.slot.lock();
            // What could not be started is tried once per read; what fell idle meanwhile is started again.
            if first || slot.state() == State::Stopped(Why::Idle) {
                first = false;
                drop(slot);
                let action = self.works().change(item, |slot| slot.want(clock.now()));
                self.works().perform(item, action);
                continue;
            }
            let patience = deadline.earlier(slot.patience());
            let patient = !clock.has_passed(patience);
            if slot.answer(&item.about, clock, patient).is_some() {
                drop(slot);
                let (answer, action) = self.works().change(item, |slot| {
                    let answer = slot.answer(&item.about, clock, patient);
                    let given = answer.as_ref().is_some_and(Result::is_ok);
                    (
                        answer,
                        if given {
                            slot.given()
                        } else {
                            Action::nothing()
                        },
                    )
                });
                self.works().perform(item, action);
                let Some(answer) = answer else { continue };
                return answer;
            }
            if clock.has_passed(deadline) {
                let error = slot.not_synced(clock.now());
                // Under the lock: what comes from now on is read by nobody.
                drop(waiting);
                return Err(error);
            }
            if waiting.is_none() {
                drop(slot);
                waiting = Some(item.about.demand.wait());
                continue;
            }
            let checking = slot.state() == State::Rechecking(Check::First);
            let until = if checking { patience } else { deadline };
            drop(clock.wait_until(&item.slot, slot, until));
        }
    }
}

fn find<'a, K: Object>(
    books: &'a Books<K>,
    namespace: &str,
    name: &str,
) -> Result<&'a Item<K>, Error> {
    let item = books.references.get(namespace, name);
    item.ok_or_else(|| Error::not_registered(&ObjectKey::new(namespace, name)))
}

impl<K: Object> Drop for WatchStore<K> {
    fn drop(&mut self) {
        self.shut_down();
        self.works().checker.end();
        // The housekeeper joins what was stopped, then ends.
        drop(self.housekeeper.take());
    }
}
