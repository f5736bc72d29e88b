//! What a slot takes into its place, and what it refuses as older than what it knows (B18).

use super::{News, Slot, Written};
use crate::list_watch::Undecodable;
use crate::manager::kinds::ManagedKind;
use crate::object::Held;
use crate::store::Identity;
use crate::sync::Arc;

impl<K: ManagedKind> Slot<K> {
    pub(super) fn admits(&mut self, incoming: Identity<'_>) -> bool {
        if self.is_gone(incoming.uid)
            || incoming
                .resource_version
                .is_older_than(self.floor.position())
        {
            self.refused = self.refused.saturating_add(1);
            return false;
        }
        let version = self.object.as_ref().map(|held| held.resource_version());
        let held = self.object.as_ref().zip(version.as_ref());
        let held = held.map(|(object, resource_version)| Identity {
            uid: object.uid(),
            resource_version,
        });
        self.floor.admits_change(held, incoming)
    }

    pub(super) fn is_gone(&self, uid: &str) -> bool {
        self.gone.as_deref() == Some(uid)
    }

    /// An object that is the same one in the same version keeps its allocation and is no news.
    pub(super) fn put(&mut self, object: Option<Arc<Held<K>>>) -> Written<K> {
        let same = match (&self.object, &object) {
            (Some(held), Some(new)) => {
                let version = held.resource_version();
                held.uid() == new.uid() && !version.is_unset() && version == new.resource_version()
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if same && self.undecodable.is_none() {
            return Written {
                news: News::Nothing,
                _old: object,
            };
        }
        self.undecodable = None;
        Written {
            news: News::Changed,
            _old: std::mem::replace(&mut self.object, object),
        }
    }

    pub(super) fn set_aside(&mut self, set_aside: Undecodable) -> Written<K> {
        self.undecodable = Some(set_aside.error);
        // The state before it of another object is no last good copy of this one.
        let other = !set_aside.uid.is_empty()
            && self
                .object
                .as_ref()
                .is_some_and(|held| held.uid() != set_aside.uid);
        Written {
            _old: if other { self.object.take() } else { None },
            ..Written::changed()
        }
    }
}
