//! The queue in its modes, written through the sink as a reflector does.
//!
//! Tables are written in a small language. Inputs: `+a1` adds object `a` at version 1, `~a2` updates it, `-a3` deletes
//! it, `=a1,b2` replaces by a list, `=` by an empty one, `!` resyncs. Outputs: one word per pop, its deltas joined by
//! `,`: `A` added, `U` updated, `D` deleted, `T` deleted by a list (a tombstone), `R` replaced, `S` sync.

mod atomic;
mod compressed;
mod hands;
mod in_order;
mod lists;
mod random;
mod syncing;
mod undecodable;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;

use super::{DeltaFifo, DeltaFifoHandle, DeltaFifoOptions, DeltaFifoWriter, QueueMode, Relisted};
use crate::clock::{Clock, Deadline};
use crate::informer::{Delta, Deltas, KnownObjects};
use crate::list_watch::{Listed, ObjectEvent, Undecodable};
use crate::object::{Held, ObjectKey, ResourceVersion};
use crate::reflector::{Replacement, Sink};
use crate::sync::{Arc, Mutex};
use crate::{Error, ErrorKind};

type Objects = BTreeMap<ObjectKey, Arc<Held<ConfigMap>>>;

/// What a consumer holds; `broken` does not decode.
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

    fn get(&self, key: &ObjectKey) -> Result<Option<Arc<Held<ConfigMap>>>, Error> {
        if self.broken.lock().contains(key) {
            return Err(Error::new(ErrorKind::Undecodable, "broken"));
        }
        Ok(self.last_good(key))
    }

    fn last_good(&self, key: &ObjectKey) -> Option<Arc<Held<ConfigMap>>> {
        self.objects.lock().get(key).cloned()
    }
}

/// `a1` is the object `a` at version 1.
pub(super) fn held(word: &str) -> Arc<Held<ConfigMap>> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(word[..1].to_owned());
    object.metadata.uid = Some(format!("uid-{}", &word[..1]));
    object.metadata.resource_version = Some(word[1..].to_owned());
    Arc::new(Held::new(object))
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("", name)
}

fn word(object: &ConfigMap) -> String {
    let metadata = &object.metadata;
    let (name, version) = (metadata.name.clone(), metadata.resource_version.clone());
    name.unwrap() + &version.unwrap()
}

/// A queue with both of its ends, and the view it was given.
pub(super) struct Rig {
    pub(super) queue: DeltaFifo<ConfigMap>,
    pub(super) writer: DeltaFifoWriter<ConfigMap>,
    pub(super) handle: DeltaFifoHandle<ConfigMap>,
    pub(super) known: Arc<View>,
}

pub(super) fn view(known: &str) -> Arc<View> {
    let objects = known.split_whitespace().map(held);
    Arc::new(View {
        objects: Mutex::new(objects.map(|object| (key(name(&object)), object)).collect()),
        broken: Mutex::default(),
    })
}

fn name(object: &Held<ConfigMap>) -> &str {
    object.metadata.name.as_deref().unwrap()
}

pub(super) fn compressed_mode(
    known: Option<&Arc<View>>,
    relisted: Relisted,
) -> QueueMode<ConfigMap> {
    QueueMode::Compressed {
        known: known.map(|known| {
            let known: Arc<dyn KnownObjects<ConfigMap>> = Arc::<View>::clone(known);
            known
        }),
        relisted,
        bookmarks: false,
    }
}

pub(super) fn in_order_mode(known: &Arc<View>) -> QueueMode<ConfigMap> {
    QueueMode::InOrder {
        known: Arc::<View>::clone(known),
        bookmarks: false,
    }
}

impl Rig {
    pub(super) fn new(
        mode: QueueMode<ConfigMap>,
        known: Arc<View>,
        options: DeltaFifoOptions<ConfigMap>,
    ) -> Self {
        let (queue, writer) = DeltaFifo::new(mode, options);
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
        let mode = compressed_mode(Some(&known), Relisted::Replaced);
        Self::new(mode, known, DeltaFifoOptions::default())
    }

    /// Compressed, without a view, a list becoming `Sync` deltas.
    pub(super) fn alone() -> Self {
        let mode = compressed_mode(None, Relisted::Sync);
        Self::new(mode, Arc::default(), DeltaFifoOptions::default())
    }

    pub(super) fn in_order(known: &str) -> Self {
        let known = view(known);
        Self::new(in_order_mode(&known), known, DeltaFifoOptions::default())
    }

    pub(super) fn atomic(bookmarks: bool) -> Self {
        let mode = QueueMode::InOrderAtomic {
            known: None,
            bookmarks,
        };
        Self::new(mode, Arc::default(), DeltaFifoOptions::default())
    }

    /// Writes what the words say.
    pub(super) fn feed(&mut self, words: &str) -> &mut Self {
        for word in words.split_whitespace() {
            self.write(word).unwrap();
        }
        self
    }

    pub(super) fn write(&mut self, word: &str) -> Result<(), Error> {
        write(&mut self.writer, word)
    }

    /// Everything that waits, popped and processed at once.
    pub(super) fn drain(&mut self) -> Vec<String> {
        let mut popped = Vec::new();
        while !self.handle.is_empty() {
            popped.push(shown(&self.queue.pop(Deadline::NEVER).unwrap()));
        }
        popped
    }
}

/// Writes what a word says.
pub(super) fn write(writer: &mut DeltaFifoWriter<ConfigMap>, word: &str) -> Result<(), Error> {
    let (what, rest) = word.split_at(1);
    match what {
        "+" => writer.apply(ObjectEvent::added(held(rest))),
        "~" => writer.apply(ObjectEvent::modified(held(rest))),
        "-" => writer.apply(ObjectEvent::deleted(held(rest))),
        "!" => writer.resync(),
        "=" => {
            let items = rest.split(',').filter(|item| !item.is_empty());
            replace(writer, items.map(held).collect())
        }
        other => panic!("no such input: {other}"),
    }
}

pub(super) fn replace(
    writer: &mut DeltaFifoWriter<ConfigMap>,
    objects: Vec<Arc<Held<ConfigMap>>>,
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
        Delta::Added(object) => format!("A{}", word(object)),
        Delta::Updated(object) => format!("U{}", word(object)),
        Delta::Replaced { object, .. } => format!("R{}", word(object)),
        Delta::Sync(object) => format!("S{}", word(object)),
        Delta::Deleted(deleted) => {
            let last = deleted.last_known.as_ref();
            let last = last.map_or_else(|| format!("{}?", deleted.key), |object| word(object));
            format!(
                "{}{last}",
                if deleted.final_state_known { 'D' } else { 'T' }
            )
        }
        Delta::Undecodable { why, .. } => format!("X{}{}", why.key, why.resource_version),
        Delta::ReplacedAll(all) => {
            let items = all.items.iter().map(|item| match item {
                Listed::Object(object) => word(object),
                Listed::Undecodable(why) => format!("X{}{}", why.key, why.resource_version),
            });
            format!(
                "[{}]@{}",
                items.collect::<Vec<_>>().join("+"),
                all.of.resource_version
            )
        }
        Delta::SyncAll => "S*".to_owned(),
        Delta::Bookmark(version) => format!("B{version}"),
    }
}

pub(super) fn second() -> Duration {
    Duration::from_secs(1)
}

/// What a consumer does with deltas: the view follows them.
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
        _ if delta.is_deleted() => drop(objects.remove(&key)),
        Some(object) => drop(objects.insert(key, Arc::clone(object))),
        None => drop(broken.insert(key)),
    }
}

/// A deadline that has passed: a pop with it takes what is there, or nothing.
pub(super) fn at_once() -> Deadline {
    Deadline::at(Clock::system().now())
}
