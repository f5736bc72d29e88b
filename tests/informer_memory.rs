//! The heap's peak while an informer lists 5,000 unchanged objects again. `--nocapture` prints the
//! figures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::informer::{Handlers, InformerOptions, SharedInformer};
use kubecache::object::{Object, ObjectKey};
use kubecache::reflector::{BackoffOptions, ReflectorOptions};
use kubecache::store::Indexers;

use crate::HEAP;
use crate::bodies::{Dress, Kind, Random, object};
use crate::canned::Canned;
use crate::history::{LAST, last, line};
use crate::support::alone;

/// Objects listed.
const OBJECTS: usize = 5_000;

/// The budget, in hundredths of the steady state.
const PEAK_MAX_PERCENT: usize = 130;

/// What a relist did.
struct Relisted {
    steady_bytes: usize,
    peak_bytes: usize,
    /// Objects of the first list, the one that the watch adds excepted, and how many of them are
    /// where they were.
    objects: usize,
    kept: usize,
}

impl Relisted {
    fn percent(&self) -> usize {
        self.peak_bytes * 100 / self.steady_bytes
    }
}

/// Lists [`OBJECTS`] `ConfigMap`s into an informer with two indices and one handler, lets its watch
/// expire, and watches the heap until the second list has been taken in.
fn relist() -> Relisted {
    let before = HEAP.current_usage();
    let (source, lines) = Canned::new(Box::new(body));
    let backoff = BackoffOptions::default().initial(Duration::from_millis(1));
    let reflector = ReflectorOptions::default().backoff(backoff);
    let indexers = Indexers::new()
        .by_namespace()
        .with("region", |object: &ConfigMap| {
            let data = object.data.iter();
            data.filter_map(|data| data.get("REGION").cloned())
                .collect()
        });
    let options = InformerOptions::default()
        .indexers(indexers)
        .reflector(reflector);
    let informer = SharedInformer::<ConfigMap>::new(source, options);
    let (seen, told) = unbounded();
    let handler = Handlers::<ConfigMap>::new().on_add(move |object, _| {
        if object.metadata.name.as_deref() == Some(LAST) {
            seen.send(()).unwrap();
        }
    });
    informer.add_handler(handler).unwrap();
    informer.start().unwrap();
    // An object that the watch adds says that everything before it has been taken in and told of.
    mark(&lines, &told, "200000");
    let steady_bytes = HEAP.current_usage() - before;
    let first = places(&informer);
    HEAP.reset_peak_usage();
    lines.send(Arc::new(expired())).unwrap();
    mark(&lines, &told, "200001");
    let peak_bytes = HEAP.peak_usage() - before;
    let second = places(&informer);
    let kept = first
        .iter()
        .filter(|(key, place)| second.get(key) == Some(place));
    Relisted {
        steady_bytes,
        peak_bytes,
        objects: first.len(),
        kept: kept.count(),
    }
}

/// The figures as a line.
fn line_of(relisted: &Relisted) -> String {
    format!(
        "steady {} KiB, peak {} KiB, {} % of steady (budget {PEAK_MAX_PERCENT}); {} of {} objects \
         keep their allocation",
        relisted.steady_bytes / 1024,
        relisted.peak_bytes / 1024,
        relisted.percent(),
        relisted.kept,
        relisted.objects,
    )
}

fn mark(lines: &Sender<Arc<Vec<u8>>>, told: &Receiver<()>, version: &str) {
    let mut added = Vec::new();
    let object = last(version.parse().unwrap());
    line(&mut added, "ADDED", Kind::ConfigMap, &object);
    lines.send(Arc::new(added)).unwrap();
    told.recv_timeout(Duration::from_secs(5 * 60)).unwrap();
}

/// Where each object is, by its key.
fn places(informer: &SharedInformer<ConfigMap>) -> BTreeMap<ObjectKey, usize> {
    let objects = informer.store().list();
    let listed = objects
        .iter()
        .filter(|object| object.metadata.name.as_deref() != Some(LAST));
    listed
        .map(|object| (object.key(), Arc::as_ptr(object).addr()))
        .collect()
}

/// The list, an object at a time, so that its text takes no memory.
fn body(piece: &mut dyn FnMut(&[u8])) {
    let mut random = Random(0x5eed);
    piece(
        b"{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\
            \"metadata\":{\"resourceVersion\":\"100000\"},\"items\":[",
    );
    for nth in 0..OBJECTS {
        if nth > 0 {
            piece(b",");
        }
        piece(object(Kind::ConfigMap, Dress::Bare, nth, &mut random).as_bytes());
    }
    piece(b"]}\n");
}

/// What a server says when the history that a watch asks for is gone.
fn expired() -> Vec<u8> {
    let line = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\
                \"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version\",\
                \"reason\":\"Expired\",\"code\":410}}";
    format!("{line}\n").into_bytes()
}

#[test]
fn the_peak_of_an_informers_relist_of_unchanged_objects_is_the_steady_state_and_little_more() {
    alone(|| {
        let relisted = relist();
        println!("{}", line_of(&relisted));
        assert_eq!(relisted.objects, OBJECTS);
        assert_eq!(
            relisted.kept, OBJECTS,
            "unchanged objects keep their allocation"
        );
        assert!(relisted.percent() <= PEAK_MAX_PERCENT);
    });
}
