//! Old news that the store refuses, and lists that count all the same (B18): events and lists go
//! into the informer's sink, step by step, without its thread.

use super::*;
use crate::informer::handlers::Processor;
use crate::informer::shared::sink::InformerSink;
use crate::list_watch::{ObjectEvent, Undecodable};
use crate::object::ObjectKey;
use crate::reflector::{Replacement, Sink as _};

/// The path from the reflector to one handler.
struct Path {
    sink: InformerSink<ConfigMap>,
    store: Store<ConfigMap>,
    told: Receiver<Told>,
    _processor: Arc<Processor<ConfigMap>>,
}

impl Path {
    /// A store that holds `a5`, and a handler that knows.
    fn new() -> Self {
        let clock = Clock::system();
        let (store, writer) = Store::new(Indexers::new(), clock.clone());
        let processor = Processor::new("configmaps", store.clone(), Duration::ZERO, clock, None);
        let (handler, told) = Forward::unbounded();
        processor
            .register(handler, HandlerOptions::default())
            .unwrap();
        processor.start();
        let sink = InformerSink::new(store.clone(), writer, &processor, None);
        let mut path = Self {
            sink,
            store,
            told,
            _processor: processor,
        };
        path.list(&["a5"], "5").unwrap();
        assert_eq!(next(&path.told, 1), ["*a5"]);
        path
    }

    fn list(&mut self, words: &[&str], version: &str) -> Result<(), Error> {
        let mut staging = self.sink.begin();
        for word in words {
            let item = ObjectEvent::added(stored(word));
            self.sink.stage(&mut staging, item);
        }
        let of = Replacement {
            resource_version: ResourceVersion::from(version),
            ..Replacement::default()
        };
        self.sink.commit(staging, &of)
    }

    fn send(&mut self, event: ObjectEvent<ConfigMap>) {
        self.sink.apply(event).unwrap();
    }
}

/// A deletion at version 2 whose final state decodes, or does not.
fn old_deletion(decodes: bool) -> ObjectEvent<ConfigMap> {
    if decodes {
        return ObjectEvent::deleted(stored("a2"));
    }
    ObjectEvent::deleted(Undecodable {
        key: ObjectKey::new("", "a"),
        uid: "uid-1".to_owned(),
        resource_version: ResourceVersion::from("2"),
        error: Error::new(ErrorKind::Undecodable, "data: expected a map"),
    })
}

#[test]
fn b18_rq_3_a_list_ends_an_object_whose_deletion_was_refused() {
    for decodes in [true, false] {
        let mut path = Path::new();
        path.send(old_deletion(decodes));
        assert_eq!(words(&path.store), ["a5"]);
        path.list(&[], "9").unwrap();
        assert!(path.store.is_empty());
        assert_eq!(next(&path.told, 1), ["?a5"]);
        assert_eq!(path.store.refused(), 1);
    }
}

/// B18, B4: a list that is older than the last event is refused; no handler gets it.
#[test]
fn b18_rq_3_a_refused_list_takes_nothing_from_a_deletion() {
    let mut path = Path::new();
    path.send(ObjectEvent::deleted(stored("a7")));
    let error = path.list(&["a3"], "3").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert_eq!(next(&path.told, 1), ["-a7"]);
    assert!(path.store.is_empty() && path.told.is_empty());
}

/// A list that may not end the object, then one that may.
#[test]
fn b18_rq_3_of_two_lists_without_an_object_one_that_counts_is_enough() {
    for versions in [["3", "9"], ["9", "3"]] {
        let mut path = Path::new();
        path.send(old_deletion(true));
        let lists = versions.map(|version| path.list(&[], version).is_ok());
        assert_eq!(lists, versions.map(|version| version == "9"));
        assert_eq!(next(&path.told, 1), ["?a5"], "{versions:?}");
        assert!(path.store.is_empty());
    }
}

/// B18: an old event does not bring back an object that only a list ended.
#[test]
fn b18_an_old_event_of_what_a_list_ended_is_refused() {
    let mut path = Path::new();
    path.list(&["b8"], "9").unwrap();
    assert_eq!(next(&path.told, 2), ["?a5", "+b8"]);
    path.send(ObjectEvent::updated(stored("a5")));
    path.send(ObjectEvent::added(stored("a4")));
    path.send(ObjectEvent::updated(stored("b10")));
    assert_eq!(next(&path.told, 1), ["b8>10"]);
    assert_eq!(words(&path.store), ["b10"]);
}

/// A bookmark moves the store's version (ST-9).
#[test]
fn st_9_a_bookmark_moves_the_stores_version() {
    let mut path = Path::new();
    path.send(ObjectEvent::updated(stored("a7")));
    path.sink.bookmark(&ResourceVersion::from("12"));
    assert_eq!(path.store.resource_version().as_str(), "12");
    assert_eq!(words(&path.store), ["a7"]);
}

/// B18, ST-9: only the empty list shows that a server without objects went back in time; its later
/// events count.
#[test]
fn b18_st_9_an_empty_list_that_goes_back_takes_the_version_with_it() {
    let stage = Stage::new();
    let (allow, allowed) = unbounded::<()>();
    let options = stage.options().transform(move |object| {
        if object.key().name() == "b" && allowed.is_empty() {
            return Err(Error::new(ErrorKind::Config, "not this one"));
        }
        Ok(object)
    });
    let informer = stage.informer_with(options);
    let (_, told) = follow(&informer);
    stage.run(&informer);
    stage.source.skip_to(60);
    stage.source.bookmark();
    let store = informer.store();
    let ahead = ResourceVersion::from("60");
    store.wait_until_at_least(&ahead, Deadline::NEVER).unwrap();
    stage.source.end_watches(None);
    stage.source.wait_for_watches(0);
    stage.source.restore(5);
    let lists = stage.lists();
    stage.pass_until(|| stage.lists() > lists);
    stage.pass_until(|| stage.source.open_watches() == 1);
    stage.set("a");
    assert_eq!(next(&told, 1), ["+a6"]);

    // A change that is refused makes the reflector list at a version that the server may choose.
    stage.set("b");
    stage.source.wait_for_watches(0);
    allow.send(()).unwrap();
    stage.pass_until(|| stage.source.open_watches() == 1);
    stage.set("c");
    while next(&told, 1) != ["+c8"] {}
    informer.shutdown(Deadline::NEVER).unwrap();
    assert_eq!(words(store), ["a6", "b7", "c8"]);
    assert_eq!(store.resource_version().as_str(), "8");
}

/// An event that comes after a list is judged by that list.
#[test]
fn b18_a_list_is_not_refused_for_an_event_that_came_after_it() {
    let mut path = Path::new();
    path.send(ObjectEvent::deleted(stored("a6")));
    path.list(&["b7"], "8").unwrap();
    path.send(ObjectEvent::added(stored("a9")));
    assert_eq!(words(&path.store), ["a9", "b7"]);
    assert_eq!(path.store.refused(), 0);
}
