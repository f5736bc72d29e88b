//! A collection: a list, then the events of its watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kubecache::clock::Deadline;
use kubecache::informer::{Handlers, InformerOptions, SharedInformer};
use kubecache::object::{Object, Scope};
use kubecache::reflector::ReflectorOptions;
use kubecache::store::{Indexers, Store};

use crate::marks::{Task, look_interval, order, pause, tell};

/// The object that the watch adds last.
const LAST: (&str, &str) = ("team-0", "the-last");

pub(crate) fn run<K: Object>(task: &Task) {
    let client = crate::client(task);
    let source = client.lister_watcher::<K>(Scope::all());
    // The server streams no lists: all sides ask for the same.
    let options = ReflectorOptions::default().watch_list(false);
    tell("up");
    order();
    match task.way.as_str() {
        "store" | "compact" => {
            let spawned = Store::spawn("peers", source, Indexers::new(), options);
            let (store, _reflector) = spawned.unwrap();
            store.wait_until_synced(Deadline::NEVER).unwrap();
            synced(&store, task);
            follow(|| store.get(LAST.0, LAST.1).unwrap().is_some());
        }
        "informer" => {
            let options = InformerOptions::default().reflector(options);
            let informer = SharedInformer::new(source, options);
            let last = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&last);
            let handlers = Handlers::<K>::new().on_add(move |object, _| {
                if object.name() == LAST.1 {
                    seen.store(true, Ordering::SeqCst);
                }
            });
            informer.add_handler(handlers).unwrap();
            informer.start().unwrap();
            informer.wait_until_synced(Deadline::NEVER).unwrap();
            synced(informer.store(), task);
            follow(|| last.load(Ordering::SeqCst));
        }
        other => panic!("unknown way {other}"),
    }
}

fn synced<K: Object>(store: &Store<K>, task: &Task) {
    assert_eq!(store.len(), task.count);
    tell("synced");
}

/// The events, if they are to come; until the comparison has seen enough.
pub(crate) fn follow(has_last: impl Fn() -> bool) {
    if let Some(interval) = look_interval(&order()) {
        while !has_last() {
            pause(interval);
        }
        tell("done");
        order();
    }
}
