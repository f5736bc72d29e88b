//! The objects that an entry of the configuration selects by their labels. Each is kept like an
//! object that is named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::Error;
use kubecache::http::Client;
use kubecache::list_watch::{EventKind, ObjectEvent};
use kubecache::object::{LabelSelector, Object, ObjectKey, Scope};
use kubecache::reflector::{Reflector, ReflectorOptions, Replacement, Sink};
use parking_lot::Mutex;

use crate::declaration::{Declaration, Entry, Selection};
use crate::layout::Absence;
use crate::managers::{Managers, ObjectId};
use crate::tell::one_line;

/// The keys of a selection.
#[derive(Debug, Default)]
struct Selected {
    /// `None` until the first list.
    here: Option<BTreeSet<ObjectKey>>,
    /// Those that were here: deleted, or of other labels now.
    departed: BTreeSet<ObjectKey>,
}

type Keys = Arc<Mutex<Selected>>;

/// The selections that are followed, one thread and one watch each.
pub(crate) struct Selections {
    client: Client,
    /// Of Secrets and of ConfigMaps.
    options: [ReflectorOptions; 2],
    running: BTreeMap<Selection, (Keys, Arc<Reflector>)>,
    entries: Vec<(Selection, Arc<Entry>)>,
    /// For those who ask whether all is well.
    pub(crate) followed: Followed,
    send: Sender<()>,
    pub(crate) changed: Receiver<()>,
}

/// The reflectors that run.
pub(crate) type Followed = Arc<Mutex<Vec<Arc<Reflector>>>>;

impl Selections {
    /// None yet.
    pub(crate) fn new(client: &Client, options: [ReflectorOptions; 2]) -> Self {
        let (send, changed) = bounded(1);
        Self {
            client: client.clone(),
            options,
            running: BTreeMap::new(),
            entries: Vec::new(),
            followed: Followed::default(),
            send,
            changed,
        }
    }

    /// Follows the selections of the configuration, and no others any more. After an error it
    /// follows those from before.
    pub(crate) fn declare(&mut self, declaration: &Declaration) -> Result<(), Error> {
        let entries = declaration.selections();
        let entries: Vec<_> = entries
            .map(|(of, entry)| (of.clone(), Arc::clone(entry)))
            .collect();
        let mut running = BTreeMap::new();
        for (selection, _) in &entries {
            if running.contains_key(selection) {
                continue;
            }
            let followed = if let Some((keys, reflector)) = self.running.get(selection) {
                (Arc::clone(keys), Arc::clone(reflector))
            } else {
                let keys = Keys::default();
                let [secrets, config_maps] = &self.options;
                let reflector = if selection.kind == "Secret" {
                    self.follow::<Secret>(selection, &keys, secrets)
                } else {
                    self.follow::<ConfigMap>(selection, &keys, config_maps)
                };
                (keys, Arc::new(reflector?))
            };
            running.insert(selection.clone(), followed);
        }
        (self.entries, self.running) = (entries, running);
        let reflectors = self.running.values();
        *self.followed.lock() = reflectors.map(|(_, of)| Arc::clone(of)).collect();
        Ok(())
    }

    fn follow<K: Object>(
        &self,
        of: &Selection,
        keys: &Keys,
        options: &ReflectorOptions,
    ) -> Result<Reflector, Error> {
        let scope = Scope::namespace(of.namespace.as_str());
        let scope = scope.labels(LabelSelector::new(of.labels.as_str()));
        let sink = KeySink {
            keys: Arc::clone(keys),
            changed: self.send.clone(),
        };
        Reflector::spawn(
            format!("selected {}s of {}", of.kind, of.namespace),
            self.client.lister_watcher::<K>(scope),
            sink,
            options.clone(),
        )
    }

    /// The objects that were found, each with the first entry that selects it, and those that the
    /// server has deleted since where the entry keeps their files.
    pub(crate) fn found(&self) -> BTreeMap<ObjectId, Arc<Entry>> {
        let mut found = BTreeMap::new();
        for (selection, entry, keys) in self.first_entries() {
            let keys = keys.lock();
            let here = keys.here.iter().flatten();
            for object in here.chain(&keys.departed).map(|key| object(selection, key)) {
                found.entry(object).or_insert_with(|| Arc::clone(entry));
            }
        }
        found
    }

    /// Forgets those that are not selected any more, unless the server has deleted them and the
    /// entry keeps their files. Returns whether there were any.
    pub(crate) fn forget_departed(&self, managers: &Managers) -> bool {
        let mut has_forgotten = false;
        for (selection, entry, keys) in self.first_entries() {
            let labels = LabelSelector::new(selection.labels.as_str());
            let stays = |key: &ObjectKey| {
                entry.rules.deleted != Absence::Remove
                    && managers.has_labels(&object(selection, key), &labels) != Some(false)
            };
            let mut keys = keys.lock();
            let before = keys.departed.len();
            keys.departed.retain(stays);
            has_forgotten |= keys.departed.len() < before;
        }
        has_forgotten
    }

    /// Each selection with the first entry that has it, and its keys.
    fn first_entries(&self) -> impl Iterator<Item = (&Selection, &Arc<Entry>, &Keys)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(at, (selection, entry))| {
            let mut before = self.entries.iter().take(at);
            let (keys, _) = self.running.get(selection)?;
            let is_first = !before.any(|(of, _)| of == selection);
            is_first.then_some((selection, entry, keys))
        })
    }

    /// The entries whose objects are not known yet, each with the last failure.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let unknown = self.entries.iter().filter_map(|(selection, entry)| {
            let name = format!("entry {:?}", entry.name);
            let Some((keys, reflector)) = self.running.get(selection) else {
                return Some(name);
            };
            if keys.lock().here.is_some() {
                return None;
            }
            Some(match reflector.status().failures.last() {
                Some(error) => format!("{name} ({})", one_line(&error.to_string())),
                None => name,
            })
        });
        unknown.collect()
    }

    /// Whether a selection is about objects of this kind and namespace.
    pub(crate) fn may_find(&self, object: &ObjectId) -> bool {
        self.running.keys().any(|of| of.may_find(object))
    }

    /// Whether the objects of each entry are known.
    pub(crate) fn are_known(&self) -> bool {
        let running = |(selection, _): &(Selection, _)| self.running.get(selection);
        let mut all = self.entries.iter().map(running);
        all.all(|running| running.is_some_and(|(keys, _)| keys.lock().here.is_some()))
    }
}

fn object(of: &Selection, key: &ObjectKey) -> ObjectId {
    ObjectId {
        kind: of.kind.into(),
        key: key.clone(),
    }
}

/// Keeps the keys of what is selected.
struct KeySink {
    keys: Keys,
    changed: Sender<()>,
}

impl KeySink {
    fn changed(&self) {
        // A full channel holds the message this one would have been.
        let _full = self.changed.try_send(()).is_err();
    }
}

/// Changes the keys as an event says. An object that does not decode is there too.
fn apply<K: Object>(keys: &mut BTreeSet<ObjectKey>, event: &ObjectEvent<K>) -> bool {
    let key = event.object.key();
    if event.kind == EventKind::Deleted {
        keys.remove(&key)
    } else {
        keys.insert(key)
    }
}

impl<K: Object> Sink<K> for KeySink {
    type Staging = BTreeSet<ObjectKey>;

    fn begin(&mut self) -> Self::Staging {
        BTreeSet::new()
    }

    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<K>) {
        apply(staging, &event);
    }

    fn commit(&mut self, staging: Self::Staging, _of: &Replacement) -> Result<(), Error> {
        let mut keys = self.keys.lock();
        let before = keys.here.replace(staging);
        keys.departed.extend(before.into_iter().flatten());
        let Selected { here, departed } = &mut *keys;
        departed.retain(|key| !here.iter().any(|here| here.contains(key)));
        drop(keys);
        self.changed();
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        let mut keys = self.keys.lock();
        let has_changed = apply(keys.here.get_or_insert_default(), &event);
        let key = event.object.key();
        if event.kind != EventKind::Deleted {
            keys.departed.remove(&key);
        } else if has_changed {
            keys.departed.insert(key);
        }
        drop(keys);
        if has_changed {
            self.changed();
        }
        Ok(())
    }
}
