//! States of objects without an owner, on their way back to the thread that decodes the
//! next ones.
//!
//! Freeing memory on one thread while another allocates from the same arena makes both wait for the
//! arena's lock, with glibc for longer than the decoding takes. While events come without a pause,
//! the reflector's thread frees them instead.

use std::any::TypeId;

use k8s_openapi::api::core::v1::Secret;

use super::handler::Notification;
use crate::guard::guard;
use crate::object::{Object, StoredObject};
use crate::sync::{Arc, Mutex, Rank};

/// So many wait at most.
const RECLAIMED_MAX: usize = 64;

/// The objects whose last pointer an informer's thread held. It is empty while the reflector waits.
/// Only if the watch expected bytes that did not come, a few objects stay until the next event.
///
/// `None` while the reflector waits. Otherwise more events have come, and it will look here soon.
pub(crate) struct Reclaimer<K: Object>(Mutex<Option<Vec<Arc<StoredObject<K>>>>>);

impl<K: Object> Reclaimer<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::ranked(Rank::OLD_STATES, None))
    }

    /// Drops a pointer to an object: here, unless it was the last one and the reflector is at work.
    /// A Secret's values are overwritten here at once, in any case.
    pub(crate) fn release(&self, object: Arc<StoredObject<K>>) {
        // Another thread may drop its pointer now. Then only the thread that frees is another.
        if Arc::strong_count(&object) > 1 || TypeId::of::<K>() == TypeId::of::<Secret>() {
            return;
        }
        let mut objects = self.0.lock();
        match &mut *objects {
            Some(objects) if objects.len() < RECLAIMED_MAX => objects.push(object),
            Some(_) | None => {
                drop(objects);
                drop(object);
            }
        }
    }

    /// Drops the pointers of a notification.
    pub(crate) fn release_all(&self, notification: Notification<K>) {
        match notification {
            Notification::Added { object, .. } => self.release(object),
            Notification::Updated { old, new } => {
                self.release(old);
                self.release(new);
            }
            Notification::Deleted(deleted) => self.release(deleted.last_known),
        }
    }

    /// The reflector is at work, and frees what was left; on its thread.
    pub(crate) fn reclaim(&self) {
        self.turn(Some(Vec::new()));
    }

    /// The reflector waits: from here on, the thread that drops the last pointer frees.
    pub(crate) fn pause(&self) {
        self.turn(None);
    }

    fn turn(&self, to: Option<Vec<Arc<StoredObject<K>>>>) {
        let objects = std::mem::replace(&mut *self.0.lock(), to);
        // What a program's type does when it is dropped is its own: not under the lock, and no
        // reason for the watch to end.
        for object in objects.into_iter().flatten() {
            if let Err(error) = guard(
                format_args!("the drop of a {}", K::resource().kind()),
                || drop(object),
            ) {
                log::error!("{error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object() -> Arc<StoredObject<ConfigMap>> {
        Arc::new(StoredObject::new(ConfigMap::default()))
    }

    #[test]
    fn what_is_left_while_the_reflector_works_is_freed_by_it() {
        let reclaimer = Reclaimer::new();
        reclaimer.reclaim();
        let last = object();
        let watched = Arc::downgrade(&last);
        reclaimer.release(last);
        assert_eq!(watched.strong_count(), 1, "it waits");
        reclaimer.reclaim();
        assert_eq!(watched.strong_count(), 0);
    }

    #[test]
    fn nothing_waits_while_the_reflector_rests() {
        let reclaimer = Reclaimer::new();
        reclaimer.reclaim();
        let (early, late) = (object(), object());
        let watched = [&early, &late].map(Arc::downgrade);
        reclaimer.release(early);
        reclaimer.pause();
        reclaimer.release(late);
        assert_eq!(watched.map(|object| object.strong_count()), [0, 0]);
    }

    #[test]
    fn what_somebody_else_holds_does_not_wait_and_what_waits_is_bounded() {
        let reclaimer = Reclaimer::new();
        reclaimer.reclaim();
        let shared = object();
        reclaimer.release(Arc::clone(&shared));
        assert_eq!(Arc::strong_count(&shared), 1);
        let left: Vec<_> = (0..=RECLAIMED_MAX).map(|_| object()).collect();
        let watched: Vec<_> = left.iter().map(Arc::downgrade).collect();
        for object in left {
            reclaimer.release(object);
        }
        let waiting = watched.iter().filter(|object| object.strong_count() > 0);
        assert_eq!(waiting.count(), RECLAIMED_MAX);
    }

    /// Promise 5: the thread that drops the last pointer overwrites secret bytes, at once.
    #[test]
    fn a_secret_never_waits() {
        let reclaimer = Reclaimer::new();
        reclaimer.reclaim();
        let secret = Arc::new(StoredObject::new(Secret::default()));
        let watched = Arc::downgrade(&secret);
        reclaimer.release(secret);
        assert_eq!(watched.strong_count(), 0);
    }
}
