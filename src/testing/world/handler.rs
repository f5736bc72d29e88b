//! A handler of an informer, called by the world instead of a thread, and the history that it may
//! see.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;

use super::coverage::Counts;
use super::oracle::{BrokenPromise, Oracle};
use super::truth::{Content, KEYS, Shown, Truth, UNDECODABLE, name};
use super::weather::Weather;
use crate::error::Error;
use crate::guard::PlannedPanic;
use crate::informer::handlers::Processor;
use crate::informer::handlers::listener::Listener;
use crate::informer::{Deleted, EventHandler, HandlerOptions};
use crate::object::StoredObject;
use crate::policy::Chance;
use crate::sync::{Arc, Mutex};

/// One call of a handler.
#[derive(Clone, Copy, Debug)]
enum Told {
    Added {
        new: Shown,
        is_initial: bool,
    },
    Updated {
        old: Shown,
        new: Shown,
    },
    Deleted {
        last: Shown,
        is_final: bool,
    },
    /// An object that is none of the world's.
    Foreign,
}

impl Told {
    /// What a handler knows of an object after the call.
    fn news(&self) -> Option<(usize, Option<Shown>)> {
        match self {
            Self::Added { new, .. } | Self::Updated { new, .. } => Some((new.key, Some(*new))),
            Self::Deleted { last, .. } => Some((last.key, None)),
            Self::Foreign => None,
        }
    }
}

/// The handler of a program: it only writes down its calls, and panics when it is told to.
#[derive(Debug, Default)]
struct Notes {
    told: Vec<Told>,
    panics: bool,
}

#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Notes>>);

impl Recorder {
    fn note(&self, told: Option<Told>) {
        let mut notes = self.0.lock();
        notes.told.push(told.unwrap_or(Told::Foreign));
        let panics = std::mem::take(&mut notes.panics);
        drop(notes);
        if panics {
            // Without the hook, which would print it.
            std::panic::resume_unwind(Box::new(PlannedPanic));
        }
    }
}

impl EventHandler<ConfigMap> for Recorder {
    fn on_add(&mut self, object: &Arc<StoredObject<ConfigMap>>, is_initial: bool) {
        let told = Shown::of(object).map(|new| Told::Added { new, is_initial });
        self.note(told);
    }

    fn on_update(
        &mut self,
        old: &Arc<StoredObject<ConfigMap>>,
        new: &Arc<StoredObject<ConfigMap>>,
    ) {
        let states = Shown::of(old).zip(Shown::of(new));
        self.note(states.map(|(old, new)| Told::Updated { old, new }));
    }

    fn on_delete(&mut self, deleted: Deleted<ConfigMap>) {
        let last = Shown::of(&deleted.last_known);
        let is_final = deleted.final_state_known;
        self.note(last.map(|last| Told::Deleted { last, is_final }));
    }
}

/// A handler between two calls.
pub(super) struct SteppedHandler {
    listener: Arc<Listener<ConfigMap>>,
    recorder: Recorder,
    /// What it knows by its calls.
    view: [Option<Shown>; KEYS.len()],
    /// Its call returns then.
    busy_until: Option<Instant>,
    is_removed: bool,
    /// The server went back to an earlier state: a later state may have a lower version.
    has_restored: bool,
}

impl SteppedHandler {
    /// Adds a handler without a thread.
    ///
    /// # Errors
    ///
    /// As [`SharedInformer::add_handler`](crate::informer::SharedInformer::add_handler).
    pub(super) fn add(
        processor: &Arc<Processor<ConfigMap>>,
        options: HandlerOptions,
        resync: Duration,
    ) -> Result<Self, Error> {
        let listener = Arc::new(processor.listener(options, "Recorder", "hd"));
        processor.enter(&listener, None, resync)?;
        processor.let_join();
        Ok(Self {
            listener,
            recorder: Recorder::default(),
            view: [None; KEYS.len()],
            busy_until: None,
            is_removed: false,
            has_restored: false,
        })
    }

    pub(super) fn restored(&mut self) {
        self.has_restored = true;
    }

    /// Removes it. A call that runs may go on.
    pub(super) fn remove(&mut self, processor: &Processor<ConfigMap>) {
        self.listener.end("the world removes it");
        processor.let_leave();
        self.is_removed = true;
    }

    pub(super) fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// When its running call returns.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.busy_until
    }

    /// Whether nothing waits for it, and no call runs.
    pub(super) fn is_idle(&self) -> bool {
        self.busy_until.is_none() && self.listener.readings().queued == 0
    }

    /// Takes the next notification, or ends the running call. Returns whether anything happened.
    pub(super) fn step(
        &mut self,
        now: Instant,
        chance: &mut Chance,
        (weather, truth): (&Weather, &Truth),
        counts: &mut Counts,
    ) -> Result<bool, BrokenPromise> {
        if let Some(until) = self.busy_until {
            if now < until {
                return Ok(false);
            }
            self.busy_until = None;
            self.listener.finish(None);
            return Ok(true);
        }
        let readings = self.listener.readings();
        if readings.queued == 0 {
            return Ok(false);
        }
        if self.is_removed {
            let seen = "a handler was removed and still has a queue";
            let broken = Err(BrokenPromise::new(Oracle::Removed, seen));
            BrokenPromise::unless_off(broken, ())?;
        }
        let Some(notification) = self.listener.next() else {
            return Ok(false);
        };
        let panics = weather.panics && chance.below(8) == 0;
        self.recorder.0.lock().panics = panics;
        let called = self
            .listener
            .guard_notification(notification, &mut self.recorder.clone());
        let told = std::mem::take(&mut self.recorder.0.lock().told);
        for told in told {
            let news = told.news();
            let checked = self.check(told, readings.has_synced, truth, counts);
            if let Some((key, state)) = news {
                self.know(key, state);
            }
            checked?;
        }
        if called.is_err() {
            counts.met("handler", "panicked");
        }
        if weather.slow && called.is_ok() && chance.below(4) == 0 {
            let takes = Duration::from_millis(1 << chance.below(15));
            self.busy_until = now.checked_add(takes);
            counts.met("handler", "slow call");
        } else {
            self.listener.finish(called.err());
        }
        Ok(true)
    }

    /// Holds a call against what the handler knows.
    fn check(
        &self,
        told: Told,
        has_synced: bool,
        truth: &Truth,
        counts: &mut Counts,
    ) -> Result<(), BrokenPromise> {
        let history = |seen: String| Err(BrokenPromise::new(Oracle::History, seen));
        match told {
            Told::Foreign => history("an object that the server never had".to_owned()),
            Told::Added { new, is_initial } => {
                counts.met("handler", if is_initial { "initial add" } else { "add" });
                if is_initial && has_synced {
                    let seen = format!("{} is initial after the sync", name(new.key));
                    return Err(BrokenPromise::new(Oracle::Initial, seen));
                }
                if let Some(Some(known)) = self.view.get(new.key) {
                    let key = name(new.key);
                    return history(format!("{key} is added as {new:?} while {known:?} exists"));
                }
                Ok(())
            }
            Told::Updated { old, new } => {
                let is_resync = old == new;
                counts.met("handler", if is_resync { "resync" } else { "update" });
                let known = self.view.get(new.key).copied().flatten();
                let fits = known == Some(old) && old.uid == new.uid;
                let goes_back = !self.has_restored && new.version < old.version;
                if !fits || goes_back {
                    let key = name(new.key);
                    let text = format!("{key}: an update {old:?} > {new:?}, but known: {known:?}");
                    return history(text);
                }
                Ok(())
            }
            Told::Deleted { last, is_final } => {
                counts.met("handler", if is_final { "delete" } else { "missed delete" });
                let known = self.view.get(last.key).copied().flatten();
                if known.is_none_or(|known| known.uid != last.uid) {
                    let key = name(last.key);
                    return history(format!("{key}: deleted as {last:?}, but known: {known:?}"));
                }
                let server = truth.deleted_at(last.key, last.version);
                if is_final && !self.has_restored {
                    let right = server
                        .is_some_and(|state| state.uid == last.uid && state.serial == last.serial);
                    if !right {
                        let key = name(last.key);
                        let seen = format!("{key}: final {last:?}, the server's {server:?}");
                        return Err(BrokenPromise::new(Oracle::FinalState, seen));
                    }
                }
                Ok(())
            }
        }
    }

    fn know(&mut self, key: usize, state: Option<Shown>) {
        if let Some(place) = self.view.get_mut(key) {
            *place = state;
        }
    }

    /// Whether its view is this content. A state that does not decode hides what it knows.
    pub(super) fn sees(&self, content: &Content) -> bool {
        let mut places = self.view.iter().zip(content);
        places.all(|(view, truth)| {
            let is_hidden = truth.is_some_and(|(_, serial)| serial == UNDECODABLE);
            is_hidden || view.map(|view| (view.uid, view.serial)) == *truth
        })
    }

    pub(super) fn view(&self) -> String {
        let known = self.view.iter().flatten();
        let known: Vec<_> = known
            .map(|known| format!("{} uid-{} #{}", name(known.key), known.uid, known.serial))
            .collect();
        known.join(", ")
    }
}
