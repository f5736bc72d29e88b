//! The heap's peak while unchanged objects are listed again through a queue. `--nocapture` prints the figures.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::{Clock, Deadline};
use kubecache::informer::{
    Delta, DeltaFifo, DeltaFifoOptions, DeltaFifoWriter, QueueMode, Relisted,
};
use kubecache::list_watch::ObjectEvent;
use kubecache::object::Held;
use kubecache::reflector::{Replacement, Sink};
use kubecache::store::{Indexers, Store, StoreWriter};

use crate::HEAP;
use crate::bodies::{self, Dress, Kind, Random};
use crate::support::alone;

/// Objects listed.
const OBJECTS: usize = 4_000;

/// The budget, in hundredths of the steady state.
const PEAK_MAX_PERCENT: usize = 130;

fn modes(store: &Store<ConfigMap>) -> [QueueMode<ConfigMap>; 3] {
    let known = || Arc::new(store.clone());
    [
        QueueMode::Compressed {
            known: Some(known()),
            relisted: Relisted::Replaced,
            bookmarks: false,
        },
        QueueMode::InOrder {
            known: known(),
            bookmarks: false,
        },
        QueueMode::InOrderAtomic {
            known: Some(known()),
            bookmarks: false,
        },
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
    fn new(number: usize) -> Self {
        let (store, applies) = Store::new(Indexers::new(), Clock::system());
        let mode = modes(&store).into_iter().nth(number).unwrap();
        let (queue, writer) = DeltaFifo::new(mode, DeltaFifoOptions::default());
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
            let object = Arc::new(Held::new(serde_json::from_str(&json).unwrap()));
            let item = ObjectEvent::added(object);
            self.writer.stage(&mut staging, item);
        }
        self.writer
            .commit(staging, &Replacement::default())
            .unwrap();
        let now = Deadline::at(Clock::system().now());
        while let Ok(popped) = self.queue.pop(now) {
            let (deltas, _processing) = popped.into_parts();
            for delta in deltas {
                apply(&mut self.applies, delta);
            }
        }
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
    } else if let Delta::Replaced { object, .. } = delta {
        store.apply(ObjectEvent::modified(object)).unwrap();
    } else {
        panic!("a list is all there is: {delta:?}");
    }
}

#[test]
fn the_peak_of_a_relist_of_unchanged_objects_is_the_steady_state_and_little_more() {
    alone(|| {
        for number in 0..3 {
            let before = HEAP.current_usage();
            let mut follower = Follower::new(number);
            follower.relist();
            let steady = HEAP.current_usage() - before;
            let first = follower.addresses();
            HEAP.reset_peak_usage();
            follower.relist();
            let peak = HEAP.peak_usage() - before;
            let mode = format!("{:?}", follower.writer);
            let percent = peak * 100 / steady;
            println!(
                "{mode}: steady {} KiB, peak {} KiB, {percent} % of steady (budget {PEAK_MAX_PERCENT})",
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
