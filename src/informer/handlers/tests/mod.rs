//! The handler side, fed like by an informer's reflector.

mod handlers;
mod lifecycles;
mod listening;
mod processor;
mod queue;
mod random;
mod resync;
mod syncing;

use std::collections::BTreeMap;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::clock::{Clock, Deadline, FakeClock};
use crate::informer::tests::{Told, next, word, written};
use crate::informer::{Deleted, EventHandler, HandlerOptions, Notification, Registration};
use crate::list_watch::ObjectEvent;
use crate::object::StoredObject;
use crate::reflector::{Replacement, Sink as _};
use crate::store::{Indexers, Store, StoreWriter};
use crate::sync::{Arc, Mutex};

use super::Processor;
pub(super) use crate::informer::tests::apart;

/// `a1` is the object `a` at version 1; `a` alone has no version. In `a1x` it is another object of
/// that name: the text behind the digits is in its uid.
pub(super) fn stored(word: &str) -> Arc<StoredObject<ConfigMap>> {
    let mut object = ConfigMap::default();
    let (name, version) = word.split_at(1);
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(format!("uid-{name}{}", incarnation(word)));
    object.metadata.resource_version = (!version.is_empty()).then(|| version.to_owned());
    Arc::new(StoredObject::new(object))
}

/// The text of a word behind its version's digits.
pub(super) fn incarnation(word: &str) -> &str {
    word[1..].trim_start_matches(|letter: char| letter.is_ascii_digit())
}

pub(super) fn told(word: &str) -> Told {
    let rest = &word[1..];
    match &word[..1] {
        "+" | "*" => Notification::Added {
            object: stored(rest),
            is_in_initial_list: word.starts_with('*'),
        },
        "-" => Notification::Deleted(Deleted::seen(stored(rest))),
        "?" => Notification::Deleted(Deleted::missed(stored(rest))),
        name => {
            let (old, new) = word.split_once('>').expect("an update");
            Notification::Updated {
                old: stored(old),
                new: stored(&format!("{name}{new}")),
            }
        }
    }
}

/// A handler whose calls each wait until the test ends them.
pub(super) struct Stepped {
    begun: Sender<String>,
    steps: Receiver<Step>,
    alive: Option<Sender<()>>,
}

/// How a call ends.
pub(super) enum Step {
    Return,
    Panic,
    /// Runs this first, on the handler's thread.
    Do(Box<dyn FnOnce() + Send>),
}

/// The test's side of a stepped handler. Dropping the steps lets every further call return at once.
pub(super) struct Steps {
    pub(super) begun: Receiver<String>,
    pub(super) how: Sender<Step>,
    pub(super) dropped: Receiver<()>,
}

impl Stepped {
    pub(super) fn new() -> (Self, Steps) {
        let (begun, calls) = unbounded();
        let (send, steps) = unbounded();
        let (alive, dropped) = unbounded();
        let handler = Self {
            begun,
            steps,
            alive: Some(alive),
        };
        let steps = Steps {
            begun: calls,
            how: send,
            dropped,
        };
        (handler, steps)
    }

    fn call(&mut self, what: String) {
        // A test that has seen enough may be gone.
        drop(self.begun.send(what));
        match self.steps.recv() {
            Ok(Step::Return) | Err(_) => {}
            Ok(Step::Panic) => panic!("the handler does not like it"),
            Ok(Step::Do(act)) => act(),
        }
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        drop(self.alive.take());
    }
}

impl EventHandler<ConfigMap> for Stepped {
    fn on_add(&mut self, object: &Arc<StoredObject<ConfigMap>>, is_in_initial_list: bool) {
        self.call(written(&Notification::Added {
            object: Arc::clone(object),
            is_in_initial_list,
        }));
    }

    fn on_update(
        &mut self,
        old: &Arc<StoredObject<ConfigMap>>,
        new: &Arc<StoredObject<ConfigMap>>,
    ) {
        self.call(written(&Notification::Updated {
            old: Arc::clone(old),
            new: Arc::clone(new),
        }));
    }

    fn on_delete(&mut self, deleted: Deleted<ConfigMap>) {
        self.call(written(&Notification::Deleted(deleted)));
    }
}

impl Steps {
    /// Waits for the next call to begin and lets it return.
    pub(super) fn pass(&self) -> String {
        let call = self.begun.recv().unwrap();
        self.how.send(Step::Return).unwrap();
        call
    }

    /// Ends the running call with a panic.
    pub(super) fn panic(&self) {
        self.how.send(Step::Panic).unwrap();
    }
}

/// Collects its notifications, in order.
pub(super) fn collector() -> (impl EventHandler<ConfigMap>, Receiver<Told>) {
    crate::informer::Forward::unbounded()
}

/// The processor through which a reflector would tell the handlers, and their store.
pub(super) struct Feed {
    pub(super) processor: Arc<Processor<ConfigMap>>,
    pub(super) store: Store<ConfigMap>,
    pub(super) writer: Mutex<StoreWriter<ConfigMap>>,
}

pub(super) type Stage = crate::informer::tests::Stage<Feed>;

impl Stage {
    pub(super) fn new() -> Self {
        Self::with_resync(Duration::ZERO)
    }

    pub(super) fn with_resync(period: Duration) -> Self {
        Self::of(|clock| {
            let (store, writer) = Store::new(Indexers::new(), clock.clone());
            let own = store.clone();
            let processor = Processor::new("configmaps", own, period, clock.clone(), None);
            let writer = Mutex::new(writer);
            Feed {
                processor,
                store,
                writer,
            }
        })
    }

    /// Registers a handler, which joins the present content.
    pub(super) fn add(
        &self,
        handler: impl EventHandler<ConfigMap>,
        options: HandlerOptions,
        there: &[&str],
    ) -> Registration {
        self.hold(there);
        self.source.processor.register(handler, options).unwrap()
    }

    /// Makes this the store's content without notifying the handlers.
    pub(super) fn hold(&self, there: &[&str]) {
        let mut writer = self.source.writer.lock();
        let there = there.iter().map(|word| ObjectEvent::added(stored(word)));
        if self.source.store.is_empty() && !self.source.store.has_synced() {
            there.for_each(|event| writer.apply(event).unwrap());
            return;
        }
        let mut staging = writer.begin();
        there.for_each(|event| writer.stage(&mut staging, event));
        let newest = Replacement {
            consistent: true,
            ..Replacement::default()
        };
        writer.commit(staging, &newest).unwrap();
    }

    pub(super) fn tell(&self, words: &[&str]) {
        self.source.processor.turn(|tell| {
            for word in words {
                tell(told(word));
            }
        });
    }
}

/// Applies a notification to a handler's map by key.
pub(super) fn apply(view: &mut BTreeMap<String, String>, notification: &Told) {
    let key = notification.key().to_string();
    match notification {
        Notification::Added { object, .. } => view.insert(key, word(object)),
        Notification::Updated { new, .. } => view.insert(key, word(new)),
        Notification::Deleted(_) => view.remove(&key),
    };
}
