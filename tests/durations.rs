//! A duration as the limit of a wait counts from the call, by the clock of what is waited for.

#![cfg(feature = "testing")]

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::FakeClock;
use kubecache::delta_fifo::{DeltaFifo, DeltaFifoOptions};
use kubecache::fence::WriteFence;
use kubecache::informer::{InformerOptions, InformerSet, InformerSetOptions, SharedInformer};
use kubecache::manager::{ConfigMapManager, ManagerOptions, Owner};
use kubecache::object::ObjectKey;
use kubecache::pod_status::{PodStatus, PodStatusCache, Timestamp};
use kubecache::reflector::ReflectorOptions;
use kubecache::store::{Indexers, Store};
use kubecache::testing::{FakeSource, RequestKind};
use kubecache::worker::StopToken;
use kubecache::{Error, ErrorKind};

const LIMIT: Duration = Duration::from_secs(7);

/// Calls on a thread, and sees it end once the limit has passed on the clock.
fn ends_at_the_limit(
    clock: &FakeClock,
    what: &str,
    wait: impl FnOnce() -> Result<(), Error> + Send,
) {
    // The time before the call does not count.
    clock.advance(Duration::from_secs(1));
    std::thread::scope(|scope| {
        let waits = scope.spawn(wait);
        clock.wait_for_timer(LIMIT);
        clock.advance(LIMIT.saturating_sub(Duration::from_millis(1)));
        clock.wait_for_timer(Duration::from_millis(1));
        assert!(!waits.is_finished(), "{what}");
        clock.advance(Duration::from_millis(1));
        let error = waits.join().unwrap().unwrap_err();
        let kinds = [ErrorKind::Timeout, ErrorKind::NotSynced];
        assert!(kinds.contains(&error.kind()), "{what}: {error}");
    });
}

/// A server that answers no list.
fn silent(clock: &FakeClock) -> FakeSource<ConfigMap> {
    let source = FakeSource::with_clock(clock.clone().into());
    let refusal = Error::new(ErrorKind::Unreachable, "made up");
    source.fail_all(RequestKind::List, refusal);
    source
}

#[test]
fn a_duration_counts_from_the_call_by_the_clock_of_the_cache() {
    let clock = FakeClock::new();
    let key = ObjectKey::new("shop", "settings");
    let (store, _writer) = Store::<ConfigMap>::new(Indexers::new(), clock.clone().into());
    ends_at_the_limit(&clock, "a store", || store.wait_until_synced(LIMIT));
    ends_at_the_limit(&clock, "a store's version", || {
        store.wait_until_at_least(&"7".into(), LIMIT)
    });
    ends_at_the_limit(&clock, "a store's object", || {
        store.wait_until(&key, |_| true, LIMIT).map(drop)
    });
    let fence = WriteFence::new(clock.clone().into());
    let owner = Owner::new("Test", key.clone());
    fence.wrote(&owner, &store, &"7".into()).unwrap();
    ends_at_the_limit(&clock, "a fence", || fence.wait_until_seen(&owner, LIMIT));
    let options = DeltaFifoOptions::default().clock(clock.clone().into());
    let (mut queue, _writer) = DeltaFifo::<ConfigMap>::new(options);
    let handle = queue.handle();
    ends_at_the_limit(&clock, "a queue", || handle.wait_until_synced(LIMIT));
    ends_at_the_limit(&clock, "a queue's item", || queue.pop(LIMIT, |_, _| ()));
    let statuses = PodStatusCache::<PodStatus>::new(clock.clone().into());
    ends_at_the_limit(&clock, "a pod's status", || {
        let now = Timestamp::now(&clock.clone().into());
        statuses.get_newer_than_by("uid", now, LIMIT).map(drop)
    });
    let stop = StopToken::never();
    ends_at_the_limit(&clock, "a stop", || {
        stop.wait_until(&clock.clone().into(), LIMIT);
        Err(Error::new(ErrorKind::Timeout, "no stop"))
    });
}

#[test]
fn a_duration_counts_from_the_call_by_the_clock_of_what_follows_a_server() {
    let clock = FakeClock::new();
    let reflector = ReflectorOptions::default().clock(clock.clone().into());
    let source = silent(&clock);
    let options = InformerSetOptions::default().reflector(reflector.clone());
    let set = InformerSet::new(source.clone(), options);
    set.informer::<ConfigMap>().unwrap();
    set.start().unwrap();
    ends_at_the_limit(&clock, "a set", || {
        set.wait_until_synced(LIMIT).into_result()
    });
    let options = InformerOptions::default().reflector(reflector);
    let informer = SharedInformer::new(Arc::new(source.clone()), options);
    informer.start().unwrap();
    ends_at_the_limit(&clock, "an informer", || informer.wait_until_synced(LIMIT));
    let handler = informer.add_handler(informer.handlers()).unwrap();
    ends_at_the_limit(&clock, "a handler", || handler.wait_until_synced(LIMIT));
    let options = ManagerOptions::default().clock(clock.clone().into());
    let maps = ConfigMapManager::new(source, options).unwrap();
    let key = ObjectKey::new("shop", "settings");
    maps.add_reference(&Owner::new("Test", key.clone()), &key);
    ends_at_the_limit(&clock, "a manager", || {
        maps.get_by("shop", "settings", LIMIT).map(drop)
    });
}
