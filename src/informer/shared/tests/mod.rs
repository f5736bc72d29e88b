//! Whole shared informers, threads and all, against the fake source and the fake clock.
//!
//! Notifications are written in a small language: `+a2` adds object `a` at version 2, `*a2` adds it
//! as part of the initial list, `a2>3` updates it from version 2 to 3, `-a4` deletes it as it was
//! seen, `?a3` was deleted unseen. The fake server counts its versions from 2 on.

mod contents;
mod failures;
mod freeing;
mod handlers;
mod lifecycles;
mod metrics;
mod random;
mod refusals;
mod resyncs;
mod syncing;

use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::clock::{Clock, Deadline, FakeClock};
use crate::informer::tests::{Patience, apart};
use crate::informer::{
    Forward, HandlerOptions, InformerOptions, Notification, Registration, SharedInformer,
};
use crate::list_watch::ObjectEvent;
use crate::object::{Object as _, ResourceVersion, StoredObject};
use crate::reflector::ReflectorOptions;
use crate::store::{Indexers, Store};
use crate::sync::Arc;
use crate::testing::{FakeSource, RequestKind, SourceFault, objects};
use crate::{Error, ErrorKind};

type Told = Notification<ConfigMap>;
type Informer = SharedInformer<ConfigMap>;

/// What a closed gate may take to open: a test that has failed may drop its informer before it
/// opens the gate.
const OPENS: Duration = Duration::from_mins(5);

/// A fake server on a fake clock.
struct World {
    fake: FakeClock,
    clock: Clock,
    source: FakeSource<ConfigMap>,
    _patience: Patience,
}

impl World {
    fn new() -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        Self {
            source: FakeSource::with_clock(clock.clone()),
            fake,
            clock,
            _patience: Patience::new(),
        }
    }

    /// A server with these objects, at the versions 2, 3, and so on.
    fn with(names: &[&str]) -> Self {
        let world = Self::new();
        for name in names {
            world.set(name);
        }
        world
    }

    fn set(&self, name: &str) -> u64 {
        self.source.set(objects::config_map("", name, "", &[]))
    }

    fn options(&self) -> InformerOptions<ConfigMap> {
        let mut reflector = ReflectorOptions {
            clock: self.clock.clone(),
            seed: 1,
            ..ReflectorOptions::default()
        };
        reflector.backoff.jitter = 0.0;
        InformerOptions::default().reflector(reflector)
    }

    fn informer(&self) -> Informer {
        self.informer_with(self.options())
    }

    fn informer_with(&self, options: InformerOptions<ConfigMap>) -> Informer {
        SharedInformer::new(Arc::new(self.source.clone()), options)
    }

    /// An informer that has synced and whose watch is open.
    fn running(&self) -> Informer {
        let informer = self.informer();
        self.run(&informer);
        informer
    }

    fn run(&self, informer: &Informer) {
        informer.start().unwrap();
        informer.wait_until_synced(Deadline::NEVER).unwrap();
        self.source.wait_for_watches(1);
    }

    /// Changes what the watch does not tell: it ends, and its version is too old for another one,
    /// so that the reflector lists once.
    fn behind_its_back(&self, change: impl FnOnce(&Self)) {
        self.source.end_watches(None);
        self.source.wait_for_watches(0);
        change(self);
        self.source.compact();
        let lists = self.lists();
        self.pass_until(|| self.lists() > lists);
        self.pass_until(|| self.source.open_watches() == 1);
    }

    fn lists(&self) -> usize {
        let requests = self.source.requests();
        let lists = requests.iter();
        lists
            .filter(|request| request.kind == RequestKind::List)
            .count()
    }

    /// Lets the clock go on from timer to timer until something holds.
    fn pass_until(&self, holds: impl Fn() -> bool) {
        while !holds() {
            let ahead = self.fake.wait_for_next_timer();
            if holds() {
                return;
            }
            self.fake.advance(ahead);
            std::thread::yield_now();
        }
    }

    fn now(&self) -> Deadline {
        self.clock.after(Duration::ZERO)
    }
}

fn follow(informer: &Informer) -> (Registration, Receiver<Told>) {
    follow_with(informer, HandlerOptions::default())
}

fn follow_with(informer: &Informer, options: HandlerOptions) -> (Registration, Receiver<Told>) {
    let (handler, told) = Forward::unbounded();
    (informer.add_handler_with(handler, options).unwrap(), told)
}

/// `a1` is the object `a` at version 1, with the uid that the fake server gives to its first
/// object.
fn held(word: &str) -> Arc<StoredObject<ConfigMap>> {
    let (name, version) = word.split_at(1);
    let mut object = objects::config_map("", name, version, &[]);
    object.metadata.uid = Some("uid-1".to_owned());
    Arc::new(StoredObject::new(object))
}

fn word(object: &StoredObject<ConfigMap>) -> String {
    format!("{}{}", object.key(), object.resource_version())
}

fn written(notification: &Told) -> String {
    match notification {
        Notification::Added {
            object,
            is_in_initial_list: true,
        } => format!("*{}", word(object)),
        Notification::Added { object, .. } => format!("+{}", word(object)),
        Notification::Updated { old, new } => {
            format!("{}>{}", word(old), new.resource_version())
        }
        Notification::Deleted(deleted) => {
            let mark = if deleted.final_state_known { '-' } else { '?' };
            format!("{mark}{}", word(&deleted.last_known))
        }
    }
}

/// The next notifications, as they come.
fn next(told: &Receiver<Told>, count: usize) -> Vec<String> {
    let told = told.iter().take(count);
    told.map(|notification| written(&notification)).collect()
}

/// The next notifications, sorted: those of one list come in no order that is promised.
fn next_sorted(told: &Receiver<Told>, count: usize) -> Vec<String> {
    let mut words = next(told, count);
    words.sort();
    words
}

fn words(store: &Store<ConfigMap>) -> Vec<String> {
    let mut words: Vec<_> = store.list().iter().map(|object| word(object)).collect();
    words.sort();
    words
}
