//! The first budget: events through reflector, indexer and one handler, against decoding and
//! dropping them.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kubecache::clock::{Clock, Deadline};
use kubecache::informer::{Deleted, EventHandler, HandlerOptions, InformerOptions, SharedInformer};
use kubecache::list_watch::{
    EventKind, Listed, ListerWatcher, Next, ObjectEvent, WatchEvent, WatchRequest,
};
use kubecache::object::{Object, ObjectKey, ResourceVersion, Scope, StoredObject};
use kubecache::reflector::ReflectorOptions;
use kubecache::store::Indexers;
use kubecache::worker::StopToken;
use rustix::time::{ClockId, clock_gettime};

use crate::bodies::Kind;
use crate::canned::{Canned, Decoding};
use crate::history::{History, LAST};
use crate::served::{Served, chunked};

/// Objects in the list: those of a full node, and those of a cluster.
const OBJECTS: [usize; 2] = [110, 4_000];

/// Repeats per side, in turns; the least counts, as the one that was disturbed least.
const REPEATS: usize = 9;

/// The budget: the floor's wall time over ours.
const RATE_MIN: f64 = 0.8;

/// Whether the budget is kept, from bytes in memory.
pub(crate) fn run(repeats: Option<usize>) -> bool {
    let repeats = repeats.unwrap_or(REPEATS);
    println!(
        "watch events through an informer, against decoding and dropping them (least of {repeats}; \
         no network; rate = the floor's wall time over ours, budget {RATE_MIN:.2})"
    );
    let mut fine = true;
    for objects in OBJECTS {
        fine &= of::<Pod>(Kind::Pod, objects, 12_000, pod_indexers, repeats);
        fine &= of::<ConfigMap>(
            Kind::ConfigMap,
            objects,
            30_000,
            config_map_indexers,
            repeats,
        );
    }
    fine
}

/// The same through the HTTP client, whose threads decode; it has no budget.
pub(crate) fn run_served(repeats: Option<usize>) {
    let repeats = repeats.unwrap_or(REPEATS);
    println!(
        "the same through the HTTP client from loopback, against its stream read and dropped \
         (least of {repeats}; \
         CPU with the sending thread)"
    );
    for objects in OBJECTS {
        served_of::<Pod>(Kind::Pod, objects, 12_000, pod_indexers, repeats);
        served_of::<ConfigMap>(
            Kind::ConfigMap,
            objects,
            30_000,
            config_map_indexers,
            repeats,
        );
    }
}

fn pod_indexers() -> Indexers<Pod> {
    Indexers::new().by_namespace().with("node", |pod: &Pod| {
        let spec = pod.spec.iter();
        spec.filter_map(|spec| spec.node_name.clone()).collect()
    })
}

fn config_map_indexers() -> Indexers<ConfigMap> {
    Indexers::new()
        .by_namespace()
        .with("instance", |object: &ConfigMap| {
            let labels = object.metadata.labels.iter();
            let values = labels.filter_map(|labels| labels.get("app.kubernetes.io/instance"));
            values.cloned().collect()
        })
}

/// Wall time, and CPU time of all threads.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

impl Cost {
    const MAX: Self = Self {
        wall: Duration::MAX,
        cpu: Duration::MAX,
    };

    /// Measured since.
    fn since(before: Self) -> Self {
        let now = Self::now();
        Self {
            wall: now.wall.saturating_sub(before.wall),
            cpu: now.cpu.saturating_sub(before.cpu),
        }
    }

    fn now() -> Self {
        Self {
            wall: clock(ClockId::Monotonic),
            cpu: clock(ClockId::ProcessCPUTime),
        }
    }

    fn least(self, other: Self) -> Self {
        Self {
            wall: self.wall.min(other.wall),
            cpu: self.cpu.min(other.cpu),
        }
    }
}

fn of<K: Object>(
    kind: Kind,
    objects: usize,
    changes: usize,
    indexers: fn() -> Indexers<K>,
    repeats: usize,
) -> bool {
    let history = History::new(kind, objects, changes);
    let events = Arc::new(history.events);
    let list = Arc::new(history.list);
    let (mut floor, mut kept, mut ours) = (Cost::MAX, Cost::MAX, Cost::MAX);
    for _ in 0..repeats {
        kept = kept.least(decode_and_keep::<K>(&list, &events, history.left));
        floor = floor.least(decode_and_drop::<K>(&events, history.count));
        let options = InformerOptions::default().indexers(indexers());
        let through = Through {
            list: &list,
            objects,
            count: history.count,
            left: history.left,
        };
        ours = ours.least(through.canned(options, &events));
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / history.count as f64;
    println!(
        "{objects} {:<11} {} events, {:.1} MB  decoded and dropped: {:.1} us each, {:.0} events/s",
        format!("{kind:?}s"),
        history.count,
        events.len() as f64 / 1e6,
        each(floor.wall),
        1e6 / each(floor.wall),
    );
    println!(
        "  kept in a bare map {:.1} us each, rate {:.2} of the floor",
        each(kept.wall),
        floor.wall.as_secs_f64() / kept.wall.as_secs_f64(),
    );
    let rate = floor.wall.as_secs_f64() / ours.wall.as_secs_f64();
    println!(
        "  informer {:.1} us each, rate {rate:.2} of the floor ({:.2} of the bare map)  CPU of \
         all threads {:.1} us each, {:.2} x the floor's ({:.2} x the bare map's)  {}",
        each(ours.wall),
        kept.wall.as_secs_f64() / ours.wall.as_secs_f64(),
        each(ours.cpu),
        ours.cpu.as_secs_f64() / floor.cpu.as_secs_f64(),
        ours.cpu.as_secs_f64() / kept.cpu.as_secs_f64(),
        crate::verdict(rate >= RATE_MIN),
    );
    rate >= RATE_MIN
}

/// The floor: the decoder alone.
fn decode_and_drop<K: Object>(events: &Arc<Vec<u8>>, count: usize) -> Cost {
    let mut decoding = Decoding::<K>::new(Arc::clone(events));
    let mut seen = 0_usize;
    let before = Cost::now();
    while let Some(event) = decoding.next() {
        seen += 1;
        drop(event);
    }
    let cost = Cost::since(before);
    assert_eq!(seen, count);
    cost
}

/// What any cache does at least: each object's newest state is kept, the one before is dropped.
fn decode_and_keep<K: Object>(list: &[u8], events: &Arc<Vec<u8>>, left: usize) -> Cost {
    let objects = crate::bodies::decode::<K>(list);
    let mut kept: HashMap<ObjectKey, Arc<StoredObject<K>>> = objects
        .into_iter()
        .map(|object| (object.key(), object))
        .collect();
    let mut decoding = Decoding::<K>::new(Arc::clone(events));
    let before = Cost::now();
    while let Some(event) = decoding.next() {
        match event {
            WatchEvent::Object(ObjectEvent {
                kind: EventKind::Deleted,
                object,
            }) => {
                kept.remove(&object.key());
            }
            WatchEvent::Object(ObjectEvent {
                object: Listed::Object(object),
                ..
            }) => {
                kept.insert(object.key(), object);
            }
            other => panic!("{other:?}"),
        }
    }
    let cost = Cost::since(before);
    assert_eq!(kept.len(), left);
    cost
}

fn served_of<K: Object>(
    kind: Kind,
    objects: usize,
    changes: usize,
    indexers: fn() -> Indexers<K>,
    repeats: usize,
) {
    let history = History::new(kind, objects, changes);
    let body = Arc::new(chunked(&history.events));
    let list = Arc::new(history.list);
    let through = Through {
        list: &list,
        objects,
        count: history.count,
        left: history.left,
    };
    let (mut floor, mut ours) = (Cost::MAX, Cost::MAX);
    for _ in 0..repeats {
        floor = floor.least(through.read_and_drop::<K>(&body));
        let options = InformerOptions::default().indexers(indexers());
        ours = ours.least(through.served(options, &body));
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / history.count as f64;
    println!(
        "{objects} {:<11} read and dropped: {:.1} us each (CPU {:.1})  informer {:.1} us each, \
         rate {:.2}  (CPU {:.1}, {:.2} x)",
        format!("{kind:?}s"),
        each(floor.wall),
        each(floor.cpu),
        each(ours.wall),
        floor.wall.as_secs_f64() / ours.wall.as_secs_f64(),
        each(ours.cpu),
        ours.cpu.as_secs_f64() / floor.cpu.as_secs_f64(),
    );
}

/// What goes through an informer, and what is to come of it.
struct Through<'a> {
    list: &'a Arc<Vec<u8>>,
    objects: usize,
    count: usize,
    left: usize,
}

impl Through<'_> {
    fn canned<K: Object>(&self, options: InformerOptions<K>, events: &Arc<Vec<u8>>) -> Cost {
        let list = Arc::clone(self.list);
        let (source, lines) = Canned::new(Box::new(move |piece| piece(&list)));
        self.informer(source, options, || {
            lines.send(Arc::clone(events)).unwrap();
        })
    }

    fn served<K: Object>(&self, options: InformerOptions<K>, body: &Arc<Vec<u8>>) -> Cost {
        let served = Served::new(self.list, body);
        let source = served.client.lister_watcher(Scope::all());
        let reflector = ReflectorOptions::default();
        let options = options.reflector(reflector);
        self.informer(source, options, || served.send())
    }

    /// The floor of the same stream: the client alone.
    fn read_and_drop<K: Object>(&self, body: &Arc<Vec<u8>>) -> Cost {
        let served = Served::new(self.list, body);
        let source: Arc<dyn ListerWatcher<K>> = served.client.lister_watcher(Scope::all());
        let request = WatchRequest {
            resource_version: ResourceVersion::any(),
            timeout: Duration::from_secs(5 * 60),
            head_timeout: Duration::from_secs(5 * 60),
            bookmarks: true,
            send_initial_events: false,
            urgent: false,
        };
        let mut stream = source.watch(&request, &StopToken::never()).unwrap();
        let mut seen = 0_usize;
        let before = Cost::now();
        served.send();
        while seen < self.count {
            match stream.next(Deadline::NEVER).unwrap() {
                Next::Event(event) => drop(event),
                Next::Ended(end) => panic!("{end:?}"),
                Next::DeadlinePassed => panic!("no deadline"),
            }
            seen += 1;
        }
        Cost::since(before)
    }

    /// From the moment at which the bytes are there until the handler has been told of the last
    /// event.
    fn informer<K: Object>(
        &self,
        source: Arc<dyn ListerWatcher<K>>,
        options: InformerOptions<K>,
        send: impl FnOnce(),
    ) -> Cost {
        let informer = SharedInformer::<K>::new(source, options);
        let (handler, done) = Counting::new();
        // Every event is to be told, however far behind the handler's thread is.
        let unbounded = HandlerOptions::default().queue_max(None);
        let registration = informer.add_handler_with(handler, unbounded).unwrap();
        informer.start().unwrap();
        let patient = Clock::system().after(Duration::from_secs(60));
        registration.wait_until_synced(patient).unwrap();
        let before = Cost::now();
        send();
        let told = done.recv().unwrap();
        let cost = Cost::since(before);
        assert_eq!(informer.store().len(), self.left);
        assert_eq!(told, self.count + self.objects);
        cost
    }
}

/// A handler that counts, and says how many calls there were up to the last object.
struct Counting {
    calls: usize,
    done: Sender<usize>,
}

impl Counting {
    fn new() -> (Self, crossbeam_channel::Receiver<usize>) {
        let (done, told) = bounded(1);
        (Self { calls: 0, done }, told)
    }
}

impl<K: Object> EventHandler<K> for Counting {
    fn on_add(&mut self, object: &Arc<StoredObject<K>>, _is_in_initial_list: bool) {
        self.calls += 1;
        if object.name() == LAST {
            self.done.send(self.calls).unwrap();
        }
    }

    fn on_update(&mut self, _old: &Arc<StoredObject<K>>, _new: &Arc<StoredObject<K>>) {
        self.calls += 1;
    }

    fn on_delete(&mut self, _deleted: Deleted<K>) {
        self.calls += 1;
    }
}

pub(crate) fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}
