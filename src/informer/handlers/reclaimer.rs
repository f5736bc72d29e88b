//! Old states of objects, on their way back to the thread that decodes the next ones.
//!
//! When one thread frees memory while another allocates from the same arena, both wait for the
//! arena's lock. With glibc that takes longer than the decoding. So the reflector's thread frees
//! old states itself while events come without a pause.

use std::any::TypeId;

use k8s_openapi::api::core::v1::Secret;

use super::handler::Notification;
use crate::guard::guard;
use crate::object::{Object, StoredObject};
use crate::sync::{Arc, Mutex, Rank};

/// The maximum number of states that wait.
const RECLAIMED_MAX: usize = 64;

/// Objects whose last pointer an informer's thread held. Empty while the reflector waits, except
/// that a few objects may stay until the next event if expected bytes did not come.
///
/// `None` while the reflector waits. Otherwise more events have come, and it will check here soon.
pub(crate) struct Reclaimer<K: Object>(Mutex<Option<Vec<Arc<StoredObject<K>>>>>);

impl<K: Object> Reclaimer<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::ranked(Rank::OLD_STATES, None))
    }

    /// Drops a pointer to an object. If it was the last one and the reflector is at work, keeps the
    /// object for the reflector's thread instead. A Secret's values are always overwritten here, at
    /// once.
    pub(crate) fn release(&self, object: Arc<StoredObject<K>>) {
        // Another thread may drop its pointer now. Then that thread frees the object, which does no
        // harm.
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

    /// Frees the waiting states, on the thread of the reflector, which is at work.
    pub(crate) fn reclaim(&self) {
        self.turn(Some(Vec::new()));
    }

    /// Notes that the reflector waits: from now on, the thread that drops the last pointer frees
    /// the object.
    pub(crate) fn pause(&self) {
        self.turn(None);
    }

    fn turn(&self, to: Option<Vec<Arc<StoredObject<K>>>>) {
        let objects = std::mem::replace(&mut *self.0.lock(), to);
        // The drop may run code of the program: not under the lock, and its panic must not end the
        // watch.
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
