//! Whole shared informers, threads and all, against the fake source and the fake clock. The fake
//! server counts its versions from 2 on.

mod bounds;
mod contents;
mod custom;
mod failures;
mod freeing;
mod handlers;
mod lifecycles;
mod metrics;
mod random;
mod refusals;
mod representations;
mod resyncs;
mod syncing;

use std::collections::BTreeMap;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::clock::{Clock, Deadline};
use crate::informer::tests::{Told, apart, next, word, written};
use crate::informer::{
    Forward, HandlerOptions, InformerOptions, Notification, Registration, SharedInformer,
};
use crate::list_watch::ObjectEvent;
use crate::object::{Object as _, ResourceVersion, StoredObject};
use crate::store::{Indexers, Store};
use crate::sync::Arc;
use crate::testing::{FakeSource, RequestKind, SourceFault, objects};
use crate::{Error, ErrorKind};

type Informer = SharedInformer<ConfigMap>;

/// How long a closed gate may take to open. A test that failed may drop its informer before it
/// opens the gate.
const OPENS: Duration = Duration::from_secs(5 * 60);

type Stage = crate::informer::tests::Stage<FakeSource<ConfigMap>>;

impl Stage {
    fn new() -> Self {
        Self::of(|clock| FakeSource::with_clock(clock.clone()))
    }

    /// A server with these objects, at the versions 2, 3, and so on.
    fn with(names: &[&str]) -> Self {
        let stage = Self::new();
        for name in names {
            stage.set(name);
        }
        stage
    }

    fn set(&self, name: &str) -> u64 {
        self.source.set(objects::config_map("", name, "", &[]))
    }

    fn options(&self) -> InformerOptions<ConfigMap> {
        InformerOptions::default().reflector(self.reflector())
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

    /// Makes changes that the watch misses: it ends, and its version is too old for another one, so
    /// the reflector lists.
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
fn stored(word: &str) -> Arc<StoredObject<ConfigMap>> {
    let (name, version) = word.split_at(1);
    let mut object = objects::config_map("", name, version, &[]);
    object.metadata.uid = Some("uid-1".to_owned());
    Arc::new(StoredObject::new(object))
}

/// The next notifications, sorted, because those of one list come in no promised order.
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

/// The versions of objects, by key.
pub(super) type View = BTreeMap<String, u64>;

pub(super) fn number(object: &StoredObject<ConfigMap>) -> u64 {
    object.resource_version().as_str().parse().unwrap()
}

pub(super) fn view_of(objects: &[Arc<StoredObject<ConfigMap>>]) -> View {
    let objects = objects.iter();
    objects
        .map(|object| (object.key().to_string(), number(object)))
        .collect()
}
