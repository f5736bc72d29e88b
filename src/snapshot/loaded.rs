//! The content that an earlier process left, until the program references each object or its time
//! is over.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Weak;

use super::content::Parts;
use super::difference::SnapshotDifference;
use super::object::SnapshotObject;
use crate::clock::Clock;
use crate::guard::guard_call;
use crate::hooks::Hook;
use crate::manager::Owner;
use crate::manager::seeds::{Seed, SeedEnd, SeedSource};
use crate::object::{Object, ObjectKey};
use crate::sync::{Arc, Mutex};
use crate::wire::{DecodeOptions, decode_object};

/// The parts of a file.
pub(super) struct Loaded(pub(super) Mutex<Parts>);

/// The name of a kind in a file.
pub(super) fn kind_of<K: Object>() -> String {
    let resource = K::resource();
    format!("{}/{}", resource.api_version(), resource.plural())
}

impl Loaded {
    /// The owners of a kind, with their references.
    pub(super) fn owners<K: Object>(&self) -> BTreeMap<Owner, Vec<ObjectKey>> {
        let kind = kind_of::<K>();
        let parts = self.0.lock();
        let part = parts.get(&kind);
        part.map(|part| part.owners.clone()).unwrap_or_default()
    }

    /// Notes that the manager has the owner's references now, or that the owner has gone: the next
    /// file has what the manager has. Returns whether they were here.
    pub(super) fn claim_owner<K: Object>(&self, owner: &Owner) -> bool {
        let kind = kind_of::<K>();
        let mut parts = self.0.lock();
        let part = parts.get_mut(&kind);
        part.is_some_and(|part| part.owners.remove(owner).is_some())
    }
}

/// The seeds of one manager.
pub(super) struct Seeds<K> {
    /// It is there until the snapshot ends.
    pub(super) loaded: Weak<Loaded>,
    pub(super) on_difference: Option<Hook<SnapshotDifference>>,
    pub(super) of: PhantomData<fn() -> K>,
}

impl<K: SnapshotObject> SeedSource<K> for Seeds<K> {
    fn look(&self, key: &ObjectKey, clock: &Clock) -> Option<Seed<K>> {
        let kind = kind_of::<K>();
        let kept = {
            let loaded = self.loaded.upgrade()?;
            let parts = loaded.0.lock();
            parts.get(&kind)?.objects.get(key).map(Arc::clone)
        }?;
        let decode = || decode_object::<K>(&kept.json, &DecodeOptions::default(), &mut 0);
        let object = match guard_call(format_args!("decoding {key}"), decode) {
            Ok(object) if object.key() == *key => object,
            other => {
                if let Err(error) = other {
                    log::warn!("{key} of the snapshot is left out: {error}");
                }
                drop(SeedSource::<K>::claim(self, key));
                return None;
            }
        };
        // A clock that was set back says nothing about the age, but the file does.
        let age = kept.contact.elapsed().unwrap_or_default().max(kept.age);
        let now = clock.now();
        Some(Seed {
            object,
            contact: now.checked_sub(age).unwrap_or(now),
        })
    }

    fn claim(&self, key: &ObjectKey) -> Option<Arc<dyn Any + Send + Sync>> {
        let kind = kind_of::<K>();
        let loaded = self.loaded.upgrade()?;
        let kept = loaded.0.lock().get_mut(&kind)?.objects.remove(key)?;
        // The last pointer to the rest would free it under the entry's lock.
        Some(Arc::new((kept, loaded)))
    }

    fn claim_owner(&self, owner: &Owner) {
        if let Some(loaded) = self.loaded.upgrade() {
            loaded.claim_owner::<K>(owner);
        }
    }

    fn is_over(&self) -> bool {
        self.loaded.strong_count() == 0
    }

    fn ended(&self, key: &ObjectKey, end: SeedEnd) {
        let (kind, key) = (K::resource().kind_name(), key.clone());
        let difference = match end {
            SeedEnd::Confirmed => return,
            SeedEnd::Changed => SnapshotDifference::ChangedWhileDown { kind, key },
            SeedEnd::Deleted => SnapshotDifference::DeletedWhileDown { kind, key },
        };
        log::info!("{difference}");
        if let Some(hook) = &self.on_difference {
            hook.tell("the on_difference of a snapshot", &difference);
        }
    }
}
