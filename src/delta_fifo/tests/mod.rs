//! The queue in its modes, written through the sink as a reflector does.
//!
//! Tables are written in the notation that the manual's page about contributing describes. A pop is
//! one word, its deltas joined by `,`.

mod atomic;
mod bounds;
mod compressed;
#[cfg(feature = "testing")]
mod controller;
mod in_order;
mod lists;
mod random;
mod syncing;
mod undecodable;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use k8s_openapi::api::core::v1::ConfigMap;

use super::{
    Delta, DeltaFifo, DeltaFifoHandle, DeltaFifoOptions, DeltaFifoWriter, Deltas, KnownObjects,
};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::list_watch::{Listed, ObjectEvent, Undecodable};
use crate::object::{ObjectKey, ResourceVersion, StoredObject};
use crate::reflector::{Replacement, Sink};
use crate::sync::{Arc, Mutex, ThreadId};
use crate::worker::Worker;
use crate::{Error, ErrorKind};

type Objects = BTreeMap<ObjectKey, Arc<StoredObject<ConfigMap>>>;

/// The content of a consumer; `broken` does not decode.
#[derive(Default)]
pub(super) struct View {
    pub(super) objects: Mutex<Objects>,
    pub(super) broken: Mutex<BTreeSet<ObjectKey>>,
}

impl KnownObjects<ConfigMap> for View {
    fn keys(&self) -> Vec<ObjectKey> {
        let mut keys: BTreeSet<_> = self.objects.lock().keys().cloned().collect();
        keys.extend(self.broken.lock().iter().cloned());
        keys.into_iter().collect()
    }

    fn get(&self, key: &ObjectKey) -> Result<Option<Arc<StoredObject<ConfigMap>>>, Error> {
        if self.broken.lock().contains(key) {
            return Err(Error::new(ErrorKind::Undecodable, "broken"));
        }
        Ok(self.last_good(key))
    }

    fn last_good(&self, key: &ObjectKey) -> Option<Arc<StoredObject<ConfigMap>>> {
        self.objects.lock().get(key).cloned()
    }
}

/// `a1` is the object `a` at version 1.
pub(super) fn stored(word: &str) -> Arc<StoredObject<ConfigMap>> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(word[..1].to_owned());
    object.metadata.uid = Some(format!("uid-{}", &word[..1]));
    object.metadata.resource_version = Some(word[1..].to_owned());
    Arc::new(StoredObject::new(object))
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("", name)
}

fn word(object: &ConfigMap) -> String {
    let metadata = &object.metadata;
    let (name, version) = (metadata.name.clone(), metadata.resource_version.clone());
    name.unwrap() + &version.unwrap()
}

/// The known objects, the input with a resync at its end, and the pops, in both modes.
const RESYNCS: [(&str, &str, &[&str]); 4] = [
    ("a5", "!", &["!a5"]),
    ("a5", "-a10 !", &["-a10"]),
    ("a5", "~a6 !", &["~a6"]),
    ("a5 b6", "~b7 !", &["~b7", "!a5"]),
];

/// A queue with both of its ends, and the view it was given.
pub(super) struct Stage {
    pub(super) queue: DeltaFifo<ConfigMap>,
    pub(super) writer: DeltaFifoWriter<ConfigMap>,
    pub(super) handle: DeltaFifoHandle<ConfigMap>,
    pub(super) known: Arc<View>,
}

pub(super) fn view(known: &str) -> Arc<View> {
    let objects = known.split_whitespace().map(stored);
    Arc::new(View {
        objects: Mutex::new(objects.map(|object| (key(name(&object)), object)).collect()),
        broken: Mutex::default(),
    })
}

fn name(object: &StoredObject<ConfigMap>) -> &str {
    object.metadata.name.as_deref().unwrap()
}

pub(super) type Options = DeltaFifoOptions<ConfigMap>;

pub(super) fn compressed_over(known: &Arc<View>) -> Options {
    Options::default().known(Arc::<View>::clone(known))
}

pub(super) fn in_order_over(known: &Arc<View>) -> Options {
    compressed_over(known).in_order()
}

impl Stage {
    pub(super) fn new(options: Options, known: Arc<View>) -> Self {
        let (queue, writer) = DeltaFifo::new(options);
        Self {
            handle: queue.handle(),
            queue,
            writer,
            known,
        }
    }

    /// Compressed, over a view of these objects.
    pub(super) fn compressed(known: &str) -> Self {
        let known = view(known);
        Self::new(compressed_over(&known), known)
    }

    /// Compressed, without a view.
    pub(super) fn alone() -> Self {
        Self::new(Options::default(), Arc::default())
    }

    pub(super) fn in_order(known: &str) -> Self {
        let known = view(known);
        Self::new(in_order_over(&known), known)
    }

    pub(super) fn atomic(bookmarks: bool) -> Self {
        let options = Options::default().atomic_lists();
        let options = if bookmarks {
            options.bookmarks()
        } else {
            options
        };
        Self::new(options, Arc::default())
    }

    /// Writes the input that the words describe.
    pub(super) fn feed(&mut self, words: &str) -> &mut Self {
        for word in words.split_whitespace() {
            self.write(word).unwrap();
        }
        self
    }

    pub(super) fn write(&mut self, word: &str) -> Result<(), Error> {
        write(&mut self.writer, word)
    }

    /// Takes the first entry and processes it at once. Returns whether it is part of the first
    /// list, too.
    pub(super) fn take(&mut self) -> (Deltas<ConfigMap>, bool) {
        let take = |deltas, is_initial| (deltas, is_initial);
        self.queue.pop(at_once(), take).unwrap()
    }

    pub(super) fn pop(&mut self) -> Deltas<ConfigMap> {
        self.take().0
    }

    /// Takes the first entry on another thread, which processes it until [`finish`].
    pub(super) fn begin(&self) -> Deltas<ConfigMap> {
        let taken = self.handle.state.lock().take(1, other_thread());
        taken.unwrap().0
    }

    /// Pops and processes all waiting entries at once.
    pub(super) fn drain(&mut self) -> Vec<String> {
        let mut popped = Vec::new();
        while !self.handle.is_empty() {
            popped.push(shown(&self.pop()));
        }
        popped
    }
}

/// A thread that is not this one.
pub(super) fn other_thread() -> ThreadId {
    static OTHER: OnceLock<ThreadId> = OnceLock::new();
    *OTHER.get_or_init(|| {
        let other = Worker::spawn("t-other", |_| {}).unwrap();
        other.thread_id()
    })
}

/// Ends the processing of the taken entries.
pub(super) fn finish(queue: &DeltaFifoHandle<ConfigMap>) {
    queue.state.lock().finish(None);
    queue.state.notify_all();
}

/// Writes the input that a word describes.
pub(super) fn write(writer: &mut DeltaFifoWriter<ConfigMap>, word: &str) -> Result<(), Error> {
    let (what, rest) = word.split_at(1);
    match what {
        "+" => writer.apply(ObjectEvent::added(stored(rest))),
        "~" => writer.apply(ObjectEvent::updated(stored(rest))),
        "-" => writer.apply(ObjectEvent::deleted(stored(rest))),
        "!" => writer.resync(),
        "=" => {
            let items = rest.split(',').filter(|item| !item.is_empty());
            replace(writer, items.map(stored).collect())
        }
        other => panic!("no such input: {other}"),
    }
}

pub(super) fn replace(
    writer: &mut DeltaFifoWriter<ConfigMap>,
    objects: Vec<Arc<StoredObject<ConfigMap>>>,
) -> Result<(), Error> {
    let mut staging = writer.begin();
    for object in objects {
        writer.stage(&mut staging, ObjectEvent::added(object));
    }
    writer.commit(staging, &at("100"))
}

pub(super) fn at(version: &str) -> Replacement {
    Replacement {
        resource_version: ResourceVersion::from(version),
        ..Replacement::default()
    }
}

pub(super) fn undecodable(word: &str) -> Undecodable {
    Undecodable {
        key: key(&word[..1]),
        uid: format!("uid-{}", &word[..1]),
        resource_version: word[1..].into(),
        error: Error::new(ErrorKind::Undecodable, "data: expected a map"),
    }
}

/// The deltas of one pop, in the small language.
pub(super) fn shown(deltas: &Deltas<ConfigMap>) -> String {
    let words: Vec<String> = deltas.iter().map(shown_delta).collect();
    words.join(",")
}

fn shown_delta(delta: &Delta<ConfigMap>) -> String {
    match delta {
        Delta::Added(object) => shown_object('+', object),
        Delta::Updated(object) => shown_object('~', object),
        Delta::Replaced(object) => shown_object('=', object),
        Delta::Sync(object) => format!("!{}", word(object)),
        Delta::Deleted(deletion) => {
            let last = deletion.last_known.as_ref();
            let last = last.map_or_else(|| format!("{}?", deletion.key), |object| word(object));
            let letter = if deletion.final_state_known() {
                '-'
            } else {
                '?'
            };
            format!("{letter}{last}")
        }
        Delta::ReplacedAll(all) => {
            let items = all.items.iter().map(|item| match item {
                Listed::Object(object) => word(object),
                Listed::Undecodable(_) => shown_object('=', item),
            });
            let items: Vec<_> = items.collect();
            format!("[{}]@{}", items.join("+"), all.of.resource_version)
        }
        Delta::SyncAll => "!".to_owned(),
        Delta::Bookmark(version) => format!("@{version}"),
    }
}

fn shown_object(letter: char, object: &Listed<ConfigMap>) -> String {
    match object {
        Listed::Object(object) => format!("{letter}{}", word(object)),
        Listed::Undecodable(why) => format!("X{}{}", why.key, why.resource_version),
    }
}

pub(super) fn second() -> Duration {
    Duration::from_secs(1)
}

/// Applies deltas to the view, as a consumer does.
pub(super) fn apply(view: &View, deltas: &Deltas<ConfigMap>) {
    for delta in deltas.iter() {
        apply_one(view, delta);
    }
}

fn apply_one(view: &View, delta: &Delta<ConfigMap>) {
    let (mut objects, mut broken) = (view.objects.lock(), view.broken.lock());
    let Some(key) = delta.key() else { return };
    broken.remove(&key);
    match delta.object() {
        _ if delta.is_deletion() => drop(objects.remove(&key)),
        Some(object) => drop(objects.insert(key, Arc::clone(object))),
        None => drop(broken.insert(key)),
    }
}

/// A deadline that has passed: a pop with it does not wait.
pub(super) fn at_once() -> Deadline {
    Deadline::at(Clock::system().now())
}

/// A function on its own thread, and its result.
pub(super) struct Waiting<T> {
    pub(super) fake: FakeClock,
    pub(super) told: Receiver<T>,
    _worker: Worker,
}

/// Runs a wait on its own thread, until it is parked in the fake clock.
pub(super) fn parked<T: Send + 'static>(
    fake: &FakeClock,
    wait: impl FnOnce() -> T + Send + 'static,
) -> Waiting<T> {
    let (tell, told) = bounded(1);
    let worker = Worker::spawn("t-waiter", move |_| {
        drop(tell.send(wait()));
    });
    fake.wait_for_parked(1);
    Waiting {
        fake: fake.clone(),
        told,
        _worker: worker.unwrap(),
    }
}
