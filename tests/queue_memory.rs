//! The heap's peak while unchanged objects are listed again through a queue. `--nocapture` prints
//! the figures.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::{Clock, Deadline};
use kubecache::delta_fifo::{Delta, DeltaFifo, DeltaFifoOptions, DeltaFifoWriter, Deltas};
use kubecache::list_watch::ObjectEvent;
use kubecache::object::StoredObject;
use kubecache::reflector::{Replacement, Sink};
use kubecache::store::{Indexers, Store, StoreWriter};

use crate::HEAP;
use crate::bodies::{self, Dress, Kind, Random};
use crate::support::alone;

/// Objects listed.
const OBJECTS: usize = 1_000;

/// The budget, in hundredths of the steady state.
const PEAK_MAX_PERCENT: usize = 130;

fn modes() -> [DeltaFifoOptions<ConfigMap>; 3] {
    [
        DeltaFifoOptions::default(),
        DeltaFifoOptions::default().in_order(),
        DeltaFifoOptions::default().atomic_lists(),
    ]
}

/// A store that follows a queue.
struct Follower {
    store: Store<ConfigMap>,
    applies: StoreWriter<ConfigMap>,
    queue: DeltaFifo<ConfigMap>,
    writer: DeltaFifoWriter<ConfigMap>,
}

impl Follower {
    fn new(options: DeltaFifoOptions<ConfigMap>) -> Self {
        let (store, applies) = Store::new(Indexers::new(), Clock::system());
        let (queue, writer) = DeltaFifo::new(options.known(Arc::new(store.clone())));
        Self {
            store,
            applies,
            queue,
            writer,
        }
    }

    /// Lists everything, as decoded one after the other, and applies it.
    fn relist(&mut self) {
        let mut random = Random(0x5eed);
        let mut staging = self.writer.begin();
        for nth in 0..OBJECTS {
            let json = bodies::object(Kind::ConfigMap, Dress::Bare, nth, &mut random);
            let object = Arc::new(StoredObject::new(serde_json::from_str(&json).unwrap()));
            let item = ObjectEvent::added(object);
            self.writer.stage(&mut staging, item);
        }
        self.writer
            .commit(staging, &Replacement::default())
            .unwrap();
        let now = Deadline::at(Clock::system().now());
        let applies = &mut self.applies;
        let mut process = |deltas: Deltas<_>, _| {
            for delta in deltas {
                apply(applies, delta);
            }
        };
        while self.queue.pop(now, &mut process).is_ok() {}
    }

    fn addresses(&self) -> Vec<usize> {
        let objects = self.store.list();
        let mut addresses: Vec<_> = objects
            .iter()
            .map(|object| Arc::as_ptr(object).addr())
            .collect();
        addresses.sort_unstable();
        addresses
    }
}

fn apply(store: &mut StoreWriter<ConfigMap>, delta: Delta<ConfigMap>) {
    if let Delta::ReplacedAll(all) = delta {
        let mut staging = store.begin();
        for item in all.items {
            store.stage(&mut staging, ObjectEvent::added(item));
        }
        store.commit(staging, &all.of).unwrap();
    } else if let Delta::Replaced(object) = delta {
        store.apply(ObjectEvent::updated(object)).unwrap();
    } else {
        panic!("a list is all there is: {delta:?}");
    }
}

#[test]
fn the_peak_of_a_relist_of_unchanged_objects_is_the_steady_state_and_little_more() {
    alone(|| {
        for options in modes() {
            let before = HEAP.current_usage();
            let mut follower = Follower::new(options);
            follower.relist();
            let steady = HEAP.current_usage() - before;
            let first = follower.addresses();
            HEAP.reset_peak_usage();
            follower.relist();
            let peak = HEAP.peak_usage() - before;
            let mode = format!("{:?}", follower.writer);
            let percent = peak * 100 / steady;
            println!(
                "{mode}: steady {} KiB, peak {} KiB, {percent} % of steady (budget \
                 {PEAK_MAX_PERCENT})",
                steady / 1024,
                peak / 1024,
            );
            assert_eq!(first.len(), OBJECTS);
            assert_eq!(
                first,
                follower.addresses(),
                "unchanged objects keep their allocation"
            );
            assert!(percent <= PEAK_MAX_PERCENT, "{mode}: {percent} %");
        }
    });
}
