//! A caller's wait until one object in a store has the state that the caller wants.

use std::time::Instant;

use crate::clock::{Deadline, IntoDeadline};
use crate::error::{Error, ErrorKind, visible};
use crate::guard::guard;
use crate::list_watch::Listed;
use crate::object::{KeyRef, Object, ObjectKey, ResourceVersion, StoredObject};
use crate::store::Store;
use crate::store::state::StoreContent;
use crate::sync::Arc;

/// The object with `key` in the store, as it is or set aside.
fn held<'a, K: Object>(state: &'a StoreContent<K>, key: &ObjectKey) -> Option<&'a Listed<K>> {
    let entry = state.items.get(&KeyRef::from(key));
    entry.map(|entry| &entry.item)
}

fn is_same<K: Object>(one: Option<&Listed<K>>, other: Option<&Listed<K>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(Listed::Object(one)), Some(Listed::Object(other))) => Arc::ptr_eq(one, other),
        (Some(Listed::Undecodable(one)), Some(Listed::Undecodable(other))) => {
            one.error.to_string() == other.error.to_string()
        }
        (None | Some(_), _) => false,
    }
}

fn describe<K: Object>(seen: Option<&Listed<K>>) -> String {
    match seen {
        None => "absent".to_owned(),
        Some(Listed::Object(object)) => format!("version {}", object.resource_version_text()),
        Some(Listed::Undecodable(why)) => format!("undecodable: {}", why.error),
    }
}

impl<K: Object> Store<K> {
    /// Blocks until `predicate` holds for the object with `key`, at most until `deadline`. Returns
    /// the object for which it held; `None` for its absence.
    ///
    /// Once the store is synced, the method calls `predicate` on the caller's thread with the
    /// present state. It calls again with each newer state. `None` stands for absence. It may skip
    /// states that follow each other quickly, but never the last one. An undecodable object does
    /// not count as a state. The wait also ends when a refusal of the server has outlasted the
    /// grace period, and when the reflector ends.
    ///
    /// # Errors
    ///
    /// [`Timeout`](ErrorKind::Timeout) at the deadline names the object, how long the call waited,
    /// and the last state: absent, or its version and how long ago the wait saw it. It has the
    /// reflector's last failure, if its requests fail. [`NotSynced`](ErrorKind::NotSynced) if the
    /// store had no state, with the last failure. `Forbidden` or `NotFound` for the server's
    /// refusal. `Stopped` when nothing will change the store any more. `Panicked` if `predicate`
    /// panics.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kubecache::object::{Object as _, ObjectKey};
    /// # use kubecache::reflector::ReflectorOptions;
    /// # use kubecache::store::{Indexers, Store};
    /// # use kubecache::testing::{FakeSource, objects};
    /// # let source = FakeSource::<ConfigMap>::new();
    /// # source.set(objects::config_map("shop", "settings", "", &[("tax", "7")]));
    /// # let (options, from) = (ReflectorOptions::default(), Arc::new(source.clone()));
    /// let (store, _reflector) = Store::spawn("settings", from, Indexers::new(), options)?;
    /// let key = ObjectKey::new("shop", "settings");
    /// let has_tax = |it: Option<&ConfigMap>| {
    ///     it.and_then(|it| it.data.as_ref()).is_some_and(|data| data.contains_key("tax"))
    /// };
    /// let settings = store.wait_until(&key, has_tax, Duration::from_secs(10))?;
    /// assert_eq!(settings.map(|it| it.key()), Some(key.clone()));
    ///
    /// # source.delete("shop", "settings");
    /// // Its end, too:
    /// assert!(store.wait_until(&key, |it| it.is_none(), Duration::from_secs(10))?.is_none());
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn wait_until(
        &self,
        key: &ObjectKey,
        mut predicate: impl FnMut(Option<&K>) -> bool,
        deadline: impl IntoDeadline,
    ) -> Result<Option<Arc<StoredObject<K>>>, Error> {
        let deadline = deadline.into_deadline(self.clock());
        let (what, began) = (format!("{} {key}", self.name()), self.clock().now());
        let mut last: Option<(Option<Listed<K>>, _)> = None;
        loop {
            // An object that changes all the time must not keep the caller beyond the deadline.
            let is_late = last.is_some() && self.clock().has_passed(deadline);
            let is_new = |state: &StoreContent<K>| {
                let last = last.as_ref();
                state.synced
                    && !is_late
                    && last.is_none_or(|(last, _)| !is_same(last.as_ref(), held(state, key)))
            };
            if let Err(error) = self.wait_for(deadline, is_new) {
                return Err(self.unmet(&what, began, last, error));
            }
            let seen = self.look(|state| held(state, key).cloned());
            let object = match &seen {
                None => Some(None),
                Some(Listed::Object(object)) => Some(Some(object)),
                Some(Listed::Undecodable(_)) => None,
            };
            if let Some(object) = object {
                let port = format_args!("the predicate of a wait for {what}").to_string();
                if guard(port, || predicate(object.map(|object| &***object)))? {
                    return Ok(object.map(Arc::clone));
                }
            }
            last = Some((seen, self.clock().now()));
        }
    }

    /// Blocks until there is no object with this key and uid, at most until `deadline`. An object
    /// that does not decode has a uid too.
    ///
    /// # Errors
    ///
    /// As [`wait_until`](Self::wait_until), without the predicate's.
    pub(crate) fn wait_until_gone(
        &self,
        key: &ObjectKey,
        uid: &str,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let began = self.clock().now();
        let is_gone = |state: &StoreContent<K>| {
            state.synced && held(state, key).is_none_or(|item| *item.identity().0 != *uid)
        };
        self.wait_for(deadline, is_gone).map_err(|error| {
            let what = format!("{} {key}", self.name());
            let last = self.look(|state| state.synced.then(|| held(state, key).cloned()));
            self.unmet(&what, began, last.map(|last| (last, began)), error)
        })
    }

    /// The error of a wait that ended with `error`, plus the last state.
    fn unmet(
        &self,
        what: &str,
        began: Instant,
        last: Option<(Option<Listed<K>>, Instant)>,
        error: Error,
    ) -> Error {
        let Some((seen, since)) = last else {
            return error.context(&format!("waiting for {what}"));
        };
        let now = self.clock().now();
        let [waited, age] = [began, since].map(|then| now.saturating_duration_since(then));
        let seen = describe(seen.as_ref());
        if error.kind() != ErrorKind::NotSynced {
            return error.context(&format!("waiting for {what}, last seen {seen}"));
        }
        let wait = format!(
            "{what} to fulfil the condition: waited {waited:.1?}; last seen {seen}, {age:.1?} ago"
        );
        self.late(ErrorKind::Timeout, &wait, since)
    }

    /// The error of a wait for `version` that ended with `error`.
    pub(super) fn not_reached(&self, version: &ResourceVersion, error: Error) -> Error {
        if error.kind() != ErrorKind::NotSynced || !self.has_synced() {
            return error;
        }
        let (name, held) = (self.name(), self.resource_version());
        let wait = format!("the {name} cache to reach version {version}: it is at {held}");
        self.late(ErrorKind::NotSynced, &wait, self.clock().now())
    }

    /// The error of a wait on a synced store that reached its deadline, and that began at `since`
    /// as far as the failures matter.
    fn late(&self, kind: ErrorKind, wait: &str, since: Instant) -> Error {
        let now = self.clock().now();
        let (failures, silence) = self.look(|state| {
            let status = &state.status;
            (status.failures_of_wait(since, now), status.silence(now))
        });
        let text = format!(
            "timed out waiting for {}; the server was last heard {silence:.1?} ago",
            visible(wait)
        );
        if failures.last().is_none() {
            return Error::new(kind, text);
        }
        failures.explain(kind, text, now)
    }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::clock::{Clock, Deadline, FakeClock};
    use crate::reflector::ReflectorOptions;
    use crate::store::Indexers;
    use crate::testing::{FakeSource, RequestKind, objects};
    use crate::tests::until::until;

    const SECONDS: std::time::Duration = std::time::Duration::from_secs(7);

    fn key() -> ObjectKey {
        ObjectKey::new("shop", "settings")
    }

    #[test]
    fn a_wait_meets_absence_each_state_and_the_end_again() {
        let source = Arc::new(FakeSource::<ConfigMap>::new());
        let options = ReflectorOptions::default();
        let from = Arc::clone(&source);
        let (store, _reflector) = Store::spawn("s", from, Indexers::new(), options).unwrap();
        let mut met = Vec::new();
        let found = store.wait_until(
            &key(),
            |object| {
                met.push(object.map(|object| object.data.clone().unwrap()["step"].clone()));
                let step = met.len();
                if step < 3 {
                    // The change comes while the predicate runs, and must not be missed.
                    let data = [("step", format!("{step}"))];
                    let data = data.each_ref().map(|(name, text)| (*name, text.as_str()));
                    source.set(objects::config_map("shop", "settings", "", &data));
                } else if step == 3 {
                    source.delete("shop", "settings");
                }
                step > 3 && object.is_none()
            },
            Deadline::NEVER,
        );
        assert!(found.unwrap().is_none());
        let step = |step: &str| Some(step.to_owned());
        assert_eq!(met, [None, step("1"), step("2"), None]);
    }

    /// Waits with this predicate until a deadline that has passed.
    fn error_of(
        source: FakeSource<ConfigMap>,
        predicate: impl FnMut(Option<&ConfigMap>) -> bool,
    ) -> Error {
        let options = ReflectorOptions::default();
        let (store, _reflector) =
            Store::spawn("s", Arc::new(source), Indexers::new(), options).unwrap();
        store.wait_until_synced(Deadline::NEVER).unwrap();
        let past = Deadline::at(Clock::system().now());
        store.wait_until(&key(), predicate, past).unwrap_err()
    }

    #[test]
    fn a_wait_in_vain_tells_the_last_state() {
        let source = FakeSource::new();
        let error = error_of(source, |_| false);
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let start =
            "timed out waiting for configmap shop/settings to fulfil the condition: waited ";
        assert!(error.to_string().starts_with(start), "{error}");
        assert!(
            error.to_string().contains("; last seen absent, "),
            "{error}"
        );

        let source = FakeSource::new();
        source.set(objects::config_map("shop", "settings", "", &[]));
        let error = error_of(source, |_| false).to_string();
        assert!(error.contains("last seen version 2"), "{error}");

        let source = FakeSource::new();
        source.set_undecodable("shop", "settings");
        let error = error_of(source, |_| true);
        assert!(
            error.to_string().contains("last seen undecodable: "),
            "{error}"
        );
    }

    /// Advances the clock from timer to timer until it is so.
    #[track_caller]
    fn pass_until(time: &FakeClock, is_so: impl Fn() -> bool) {
        until(|| {
            let is_so = is_so();
            if !is_so {
                time.advance(time.wait_for_next_timer());
            }
            is_so
        });
    }

    /// The object is known, and then its server goes.
    #[test]
    fn a_wait_in_vain_tells_how_long_it_took_and_how_the_requests_fail() {
        let time = FakeClock::new();
        let clock = Clock::from(time.clone());
        let source = Arc::new(FakeSource::<ConfigMap>::with_clock(clock.clone()));
        source.set(objects::config_map("shop", "settings", "", &[]));
        let from = Arc::clone(&source);
        let options = ReflectorOptions::default().clock(clock);
        let (store, _reflector) = Store::spawn("s", from, Indexers::new(), options).unwrap();
        store.wait_until_synced(Deadline::NEVER).unwrap();
        source.wait_for_watches(1);
        for kind in [RequestKind::List, RequestKind::Watch] {
            source.fail_all(kind, Error::new(ErrorKind::Unreachable, "no route to host"));
        }
        source.end_watches(None);
        // Else the wait could be over before the first request fails.
        let is_unreachable = |error: &Error| error.kind() == ErrorKind::Unreachable;
        pass_until(&time, || {
            store.status().failures.last().is_some_and(is_unreachable)
        });
        let error = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| store.wait_until(&key(), |_| false, SECONDS));
            pass_until(&time, || waiter.is_finished());
            waiter.join().unwrap().unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let text = error.to_string();
        for part in [
            "configmap shop/settings",
            ": waited ",
            "; last seen version 2",
            "no route",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(
            error.last_error().map(Error::kind),
            Some(ErrorKind::Unreachable)
        );
    }

    #[test]
    fn a_predicate_that_panics_is_the_error_of_its_call() {
        let error = error_of(FakeSource::new(), |_| panic!("mine"));
        assert_eq!(error.kind(), ErrorKind::Panicked);
        let expected = "the predicate of a wait for configmap shop/settings panicked: mine";
        assert_eq!(error.to_string(), expected);
    }

    /// Each call of the predicate writes the next state, so that there always is a new one.
    #[test]
    fn an_object_that_always_changes_keeps_no_caller_beyond_the_deadline() {
        let source = Arc::new(FakeSource::<ConfigMap>::new());
        let (options, from) = (ReflectorOptions::default(), Arc::clone(&source));
        let (store, _reflector) = Store::spawn("s", from, Indexers::new(), options).unwrap();
        let clock = Clock::system();
        let until = clock.now() + std::time::Duration::from_millis(50);
        let never = |_: Option<&ConfigMap>| {
            let version = source.set(objects::config_map("shop", "settings", "", &[]));
            let version = version.to_string().as_str().into();
            store
                .wait_until_at_least(&version, Deadline::NEVER)
                .unwrap();
            false
        };
        let error = store
            .wait_until(&key(), never, Deadline::at(until))
            .unwrap_err();
        assert!(clock.now() >= until);
        assert!(
            matches!(error.kind(), ErrorKind::Timeout | ErrorKind::NotSynced),
            "{error}"
        );
    }

    #[test]
    fn a_store_that_has_ended_ends_the_wait() {
        let (store, writer) = Store::<ConfigMap>::new(Indexers::new(), Clock::system());
        drop(writer);
        let error = store
            .wait_until(&key(), |_| true, Deadline::NEVER)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        let start = "waiting for configmap shop/settings: ";
        assert!(error.to_string().starts_with(start), "{error}");
    }
}
