//! Random histories of a server into the queue, in every mode: at the end the consumer equals the
//! server, each object's changes came in order, and no deletion was lost.
//!
//! `KUBECACHE_SEEDS=10000 cargo test --features testing --lib delta_fifo::tests::random` plays
//! 10,000 of each mode.

use std::collections::BTreeMap;

use super::*;
use crate::delta_fifo::Deletion;
use crate::object::Object as _;
use crate::tests::dice::Dice;

/// Histories per mode and run of the test, unless more are asked for.
const HISTORIES: u64 = 60;
/// Steps of one history.
const STEPS: usize = 120;

/// A server whose watch may break: later changes show only in the next list.
struct Server {
    objects: BTreeMap<String, u64>,
    /// When each object was last deleted.
    ends: BTreeMap<String, u64>,
    version: u64,
    watched: bool,
}

/// Marks the events that a server repeats.
const REPEATED: &str = "repeated";

impl Server {
    fn object(name: &str, version: u64) -> Arc<StoredObject<ConfigMap>> {
        stored(&format!("{name}{version}"))
    }

    /// One change of one object; the event of it, if the watch is open.
    fn change(&mut self, dice: &mut Dice) -> Option<ObjectEvent<ConfigMap>> {
        let name = ["a", "b", "c", "d", "e"][usize::try_from(dice.roll(5)).unwrap()];
        let version = self.version.checked_add(1).unwrap();
        self.version = version;
        let object = Self::object(name, version);
        let event = if !self.objects.contains_key(name) {
            self.objects.insert(name.to_owned(), version);
            ObjectEvent::added(object)
        } else if dice.roll(3) == 0 {
            self.objects.remove(name);
            self.ends.insert(name.to_owned(), version);
            ObjectEvent::deleted(object)
        } else {
            self.objects.insert(name.to_owned(), version);
            if dice.roll(12) == 0 {
                ObjectEvent::updated(undecodable(&format!("{name}{version}")))
            } else {
                ObjectEvent::updated(object)
            }
        };
        self.watched.then_some(event)
    }

    /// Repeats the deletion of an object that exists again: old news, which a store refuses (B18).
    fn repeat(&self, dice: &mut Dice, writer: &mut DeltaFifoWriter<ConfigMap>) {
        let ends = self.ends.iter();
        let again: Vec<_> = ends
            .filter(|(name, _)| self.objects.contains_key(*name))
            .collect();
        let sides = u64::try_from(again.len()).unwrap().max(1);
        let end = again.get(usize::try_from(dice.roll(sides)).unwrap());
        if let (Some((name, version)), true) = (end, self.watched) {
            let mut object = ConfigMap::clone(&Self::object(name, **version));
            object.metadata.generate_name = Some(REPEATED.to_owned());
            let object = Arc::new(StoredObject::new(object));
            writer.apply(ObjectEvent::deleted(object)).unwrap();
        }
    }

    /// Lists; a list in which an item could not be read changes nothing.
    fn list(&mut self, dice: &mut Dice, writer: &mut DeltaFifoWriter<ConfigMap>) {
        let mut staging = writer.begin();
        for (name, version) in &self.objects {
            let object = Self::object(name, *version);
            writer.stage(&mut staging, ObjectEvent::added(object));
        }
        if dice.roll(6) == 0 {
            return;
        }
        writer
            .commit(staging, &at(&self.version.to_string()))
            .unwrap();
        self.watched = true;
    }
}

/// The consumer, and the view of a handler behind it.
#[derive(Default)]
struct Consumer {
    view: Arc<View>,
    told: BTreeMap<ObjectKey, Told>,
}

/// The last report about an object that exists.
struct Told {
    version: u64,
    /// The last version that decoded.
    good: Option<u64>,
}

impl Consumer {
    fn process(&mut self, deltas: &Deltas<ConfigMap>, context: &str) {
        for delta in deltas.iter() {
            let mut counts = true;
            match delta {
                Delta::ReplacedAll(all) => self.replace(&all.items),
                Delta::SyncAll | Delta::Bookmark(_) => {}
                Delta::Deleted(deletion) if self.is_old_news(deletion) => {
                    let last = deletion.last_known.as_ref().unwrap();
                    let mark = last.metadata.generate_name.as_deref();
                    assert_eq!(mark, Some(REPEATED), "{context}: {deletion:?}");
                    // The list counts where the watch does not.
                    counts = deletion.unlisted;
                    if counts {
                        self.told.remove(&deletion.key);
                    }
                }
                Delta::Deleted(deletion) => self.tell_end(deletion, context),
                Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) => {
                    let version = object.resource_version().as_str().parse().unwrap();
                    let decodes = object.decoded().is_some();
                    self.tell(&object.key(), version, decodes, context);
                }
                Delta::Sync(object) => self.tell(&object.key(), number(object), true, context),
            }
            if counts {
                apply_one(&self.view, delta);
            }
        }
    }

    /// Whether a store refuses this deletion of the watch (B18).
    fn is_old_news(&self, deletion: &Deletion<ConfigMap>) -> bool {
        let told = self.told.get(&deletion.key);
        let last = deletion.last_known.as_ref().map(|object| number(object));
        let end = last.filter(|_| deletion.final_state_known());
        told.zip(end).is_some_and(|(told, end)| end <= told.version)
    }

    /// Takes a change of an object, which must not go back in time.
    fn tell(&mut self, key: &ObjectKey, version: u64, decodes: bool, context: &str) {
        let before = self.told.remove(key);
        if let Some(before) = &before {
            assert!(
                version >= before.version,
                "{context}: {key} went back to {version}"
            );
        }
        let good = if decodes {
            Some(version)
        } else {
            before.and_then(|before| before.good)
        };
        self.told.insert(key.clone(), Told { version, good });
    }

    /// Takes the end of an object: it existed, and ends with its final state or the last reported
    /// one.
    fn tell_end(&mut self, deletion: &Deletion<ConfigMap>, context: &str) {
        let before = self.told.remove(&deletion.key);
        let before = before.unwrap_or_else(|| panic!("{context}: {deletion:?} was not there"));
        let last = deletion.last_known.as_ref().map(|object| number(object));
        if deletion.final_state_known() {
            assert!(last.unwrap() > before.version, "{context}: {deletion:?}");
        } else {
            assert_eq!(last, before.good, "{context}: {deletion:?}");
        }
    }

    fn replace(&mut self, items: &[Listed<ConfigMap>]) {
        let objects = items.iter().map(|item| match item {
            Listed::Object(object) => (object.key(), Arc::clone(object)),
            Listed::Undecodable(why) => panic!("{why:?}"),
        });
        let objects: Objects = objects.collect();
        let told = objects.iter().map(|(key, object)| {
            let version = number(object);
            (
                key.clone(),
                Told {
                    version,
                    good: Some(version),
                },
            )
        });
        self.told = told.collect();
        *self.view.objects.lock() = objects;
        self.view.broken.lock().clear();
    }
}

fn number(object: &ConfigMap) -> u64 {
    object.resource_version().as_str().parse().unwrap()
}

/// Takes one entry or a batch, which another thread then processes.
fn take(stage: &Stage, dice: &mut Dice) -> Option<Vec<Deltas<ConfigMap>>> {
    let max = [1, 2, 9][usize::try_from(dice.roll(3)).unwrap()];
    let taken = stage.handle.state.lock().take(max, other_thread());
    let (first, more, _) = taken?;
    let mut batch: Vec<_> = std::iter::once(first).chain(more).collect();
    for deltas in &mut batch {
        stage.queue.complete(deltas);
    }
    Some(batch)
}

/// Plays one history. During the processing the watch goes on, as on the reflector's thread; lists
/// and resyncs wait.
fn history(options: Options, view: Arc<View>, dice: &mut Dice, context: &str) {
    let mut server = Server {
        objects: BTreeMap::new(),
        ends: BTreeMap::new(),
        version: 0,
        watched: false,
    };
    let mut consumer = Consumer {
        view: Arc::clone(&view),
        ..Consumer::default()
    };
    let mut stage = Stage::new(options, view);
    server.list(dice, &mut stage.writer);
    for _ in 0..STEPS {
        let taken = take(&stage, dice);
        for _ in 0..dice.roll(3) {
            step(&mut server, dice, &mut stage.writer);
        }
        for deltas in taken.iter().flatten() {
            consumer.process(deltas, context);
        }
        finish(&stage.handle);
        for _ in 0..dice.roll(2) {
            pass(&mut server, dice, &mut stage.writer);
        }
    }
    // The history ends with a list that succeeds, while old news may still wait.
    server.repeat(dice, &mut stage.writer);
    server.watched = false;
    while !server.watched {
        drop(server.change(dice));
        server.list(dice, &mut stage.writer);
    }
    let Stage {
        mut queue,
        writer,
        handle,
        ..
    } = stage;
    drop(writer);
    while !handle.is_empty() {
        let process = |deltas: Deltas<_>, _| consumer.process(&deltas, context);
        queue.pop(Deadline::NEVER, process).unwrap();
    }
    let left: BTreeMap<String, u64> = consumer
        .view
        .objects
        .lock()
        .values()
        .map(|object| (object.metadata.name.clone().unwrap(), number(object)))
        .collect();
    assert_eq!(left, server.objects, "{context}");
    assert!(handle.has_synced(), "{context}");
}

/// A step of the watch.
fn step(server: &mut Server, dice: &mut Dice, writer: &mut DeltaFifoWriter<ConfigMap>) {
    match dice.roll(12) {
        10 | 11 => server.repeat(dice, writer),
        0 => server.watched = false,
        1 => writer.bookmark(&ResourceVersion::from(server.version.to_string())),
        _ => {
            if let Some(event) = server.change(dice) {
                writer.apply(event).unwrap();
            }
        }
    }
}

/// A list or a resync. A reflector lists before it watches again.
fn pass(server: &mut Server, dice: &mut Dice, writer: &mut DeltaFifoWriter<ConfigMap>) {
    match dice.roll(4) {
        0 => writer.resync().unwrap(),
        1 => server.list(dice, writer),
        _ if !server.watched => server.list(dice, writer),
        _ => {}
    }
}

fn histories(options: impl Fn(&Arc<View>) -> Options) {
    for (mut dice, seed) in Dice::histories(HISTORIES) {
        let view = Arc::default();
        let context = format!("seed {seed}");
        history(options(&view), view, &mut dice, &context);
    }
}

/// DF-1 to DF-16, RQ-12: no deletion is lost, each object's changes come in order.
#[test]
fn df_1_random_histories_end_equal_when_compressed() {
    histories(compressed_over);
    histories(|view| compressed_over(view).bookmarks());
}

/// RQ-1 to RQ-9, RQ-12: no deletion is lost, each object's changes come in order.
#[test]
fn rq_1_random_histories_end_equal_in_order() {
    histories(in_order_over);
}

/// RQ-10: the same with lists that are one delta.
#[test]
fn rq_10_random_histories_end_equal_when_lists_are_one_delta() {
    histories(|_| Options::default().atomic_lists().bookmarks());
}
