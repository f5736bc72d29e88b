//! Old news among the deltas that wait: what the store refuses, and what a list says all the same (B18, RQ-3, DF-8). Step by
//! step, without the informer's threads.

use super::*;
use crate::informer::handlers::Processor;
use crate::informer::shared::applying::Applying;
use crate::informer::{DeltaFifo, DeltaFifoOptions, DeltaFifoWriter};
use crate::list_watch::{ObjectEvent, Undecodable};
use crate::object::ObjectKey;
use crate::reflector::{Replacement, Sink as _};

/// The path from the queue to one handler.
struct Path {
    queue: DeltaFifo<ConfigMap>,
    writer: DeltaFifoWriter<ConfigMap>,
    applying: Applying<ConfigMap>,
    store: Store<ConfigMap>,
    told: Receiver<Told>,
    _processor: Arc<Processor<ConfigMap>>,
}

impl Path {
    /// A store that holds `a5`, and a handler that knows.
    fn new(order: QueueOrder) -> Self {
        let (store, of_store) = Store::new(Indexers::new(), Clock::system());
        let (queue, writer) = DeltaFifo::new(order.mode(&store), DeltaFifoOptions::default());
        let clock = Clock::system();
        let processor = Arc::new(Processor::new(
            "configmaps",
            store.clone(),
            Duration::ZERO,
            clock,
        ));
        let (handler, told) = Forward::unbounded();
        processor
            .register(handler, HandlerOptions::default())
            .unwrap();
        processor.start();
        let applying = Applying::new(store.clone(), of_store, Arc::clone(&processor), order);
        applying.admit();
        let mut path = Self {
            queue,
            writer,
            applying,
            store,
            told,
            _processor: processor,
        };
        path.list(&["a5"], "5");
        path.apply_all();
        assert_eq!(next(&path.told, 1), ["*a5"]);
        path
    }

    fn list(&mut self, words: &[&str], version: &str) {
        list(&mut self.writer, words, version);
    }

    fn send(&mut self, event: ObjectEvent<ConfigMap>) {
        self.writer.apply(event).unwrap();
    }

    fn apply_all(&mut self) {
        while !self.queue.handle().is_empty() {
            self.apply_one(|_| {});
        }
    }

    /// Takes what waits first, and does `meanwhile` before it is applied.
    fn apply_one(&mut self, meanwhile: impl FnOnce(&mut DeltaFifoWriter<ConfigMap>)) {
        let popped = self.queue.pop(Deadline::NEVER).unwrap();
        let initial = popped.is_in_initial_list();
        let (deltas, processing) = popped.into_parts();
        meanwhile(&mut self.writer);
        self.applying.apply(deltas, initial);
        drop(processing);
    }
}

fn list(writer: &mut DeltaFifoWriter<ConfigMap>, words: &[&str], version: &str) {
    let mut staging = writer.begin();
    for word in words {
        writer.stage(&mut staging, ObjectEvent::added(held(word)));
    }
    let of = Replacement {
        resource_version: ResourceVersion::from(version),
        ..Replacement::default()
    };
    writer.commit(staging, &of).unwrap();
}

/// A deletion at version 2 whose final state decodes, or does not.
fn old_deletion(decodes: bool) -> ObjectEvent<ConfigMap> {
    if decodes {
        return ObjectEvent::deleted(held("a2"));
    }
    ObjectEvent::deleted(Undecodable {
        key: ObjectKey::new("", "a"),
        uid: "uid-1".to_owned(),
        resource_version: ResourceVersion::from("2"),
        error: Error::new(ErrorKind::Undecodable, "data: expected a map"),
    })
}

#[test]
fn b18_rq_3_a_list_ends_an_object_whose_refused_deletion_waits() {
    for order in ORDERS {
        for decodes in [true, false] {
            let mut path = Path::new(order);
            path.send(old_deletion(decodes));
            path.list(&[], "9");
            path.apply_all();
            assert!(path.store.is_empty(), "{order:?}");
            assert_eq!(next(&path.told, 1), ["?a5"], "{order:?}");
            assert_eq!(path.store.refused(), 1);
        }
    }
}

#[test]
fn b18_rq_3_a_list_ends_an_object_whose_refused_deletion_is_in_hand() {
    for order in ORDERS {
        let mut path = Path::new(order);
        path.send(old_deletion(true));
        path.apply_one(|writer| list(writer, &[], "9"));
        path.apply_all();
        assert!(path.store.is_empty(), "{order:?}");
        assert_eq!(next(&path.told, 1), ["?a5"], "{order:?}");
    }
}

/// The other way round: the list is refused, and what the watch told counts.
#[test]
fn b18_rq_3_a_refused_list_takes_nothing_from_a_deletion_that_waits() {
    for order in ORDERS {
        let mut path = Path::new(order);
        path.send(ObjectEvent::deleted(held("a7")));
        path.list(&[], "3");
        path.apply_all();
        assert_eq!(next(&path.told, 1), ["-a7"], "{order:?}");
        assert!(path.store.is_empty());
    }
}

/// A list that may not end it is followed by one that may.
#[test]
fn b18_rq_3_of_two_lists_without_an_object_one_that_counts_is_enough() {
    for order in ORDERS {
        for versions in [["3", "9"], ["9", "3"]] {
            let mut path = Path::new(order);
            path.send(old_deletion(true));
            for version in versions {
                path.list(&[], version);
            }
            path.apply_all();
            assert_eq!(next(&path.told, 1), ["?a5"], "{order:?} {versions:?}");
            assert!(path.store.is_empty());
        }
    }
}

/// B18: what only a list ended is not brought back by an old event, whatever the order.
#[test]
fn b18_an_old_event_of_what_a_list_ended_is_refused() {
    for order in ORDERS {
        let mut path = Path::new(order);
        path.list(&["b8"], "9");
        path.apply_all();
        assert_eq!(next_sorted(&path.told, 2), ["+b8", "?a5"]);
        path.send(ObjectEvent::modified(held("a5")));
        path.send(ObjectEvent::added(held("a4")));
        path.send(ObjectEvent::modified(held("b10")));
        path.apply_all();
        assert_eq!(next(&path.told, 1), ["b8>10"], "{order:?}");
        assert_eq!(words(&path.store), ["b10"], "{order:?}");
    }
}

/// A bookmark moves the store's version in every order, once everything before it is there (RQ-10, ST-9).
#[test]
fn rq_10_st_9_a_bookmark_moves_the_stores_version_in_every_order() {
    for order in ORDERS {
        let mut path = Path::new(order);
        path.send(ObjectEvent::modified(held("a7")));
        path.writer.bookmark(&ResourceVersion::from("12"));
        path.apply_all();
        assert_eq!(path.store.resource_version().as_str(), "12", "{order:?}");
        assert_eq!(words(&path.store), ["a7"]);
    }
}

/// B18, ST-9: a server that went back in time and holds nothing says so by its list alone, of which no object comes; what it
/// says from then on counts.
#[test]
fn b18_st_9_an_empty_list_that_goes_back_takes_the_version_with_it() {
    for order in ORDERS {
        let world = World::new();
        let (allow, allowed) = unbounded::<()>();
        let options = world.options(order).transform(move |object| {
            if object.key().name() == "b" && allowed.is_empty() {
                return Err(Error::new(ErrorKind::Config, "not this one"));
            }
            Ok(object)
        });
        let informer = world.informer_with(options);
        let (_, told) = follow(&informer);
        world.run(&informer);
        world.source.skip_to(60);
        world.source.bookmark();
        let store = informer.store();
        let ahead = ResourceVersion::from("60");
        store.wait_until_at_least(&ahead, Deadline::NEVER).unwrap();
        world.source.end_watches(None);
        world.source.wait_for_watches(0);
        world.source.restore(5);
        let lists = world.lists();
        world.pass_until(|| world.lists() > lists);
        world.pass_until(|| world.source.open_watches() == 1);
        world.set("a");
        assert_eq!(next(&told, 1), ["+a6"], "{order:?}");

        // A change that is refused makes the reflector list at a version that the server may choose.
        world.set("b");
        world.source.wait_for_watches(0);
        allow.send(()).unwrap();
        world.pass_until(|| world.source.open_watches() == 1);
        world.set("c");
        while next(&told, 1) != ["+c8"] {}
        informer.shutdown(Deadline::NEVER).unwrap();
        assert_eq!(words(store), ["a6", "b7", "c8"], "{order:?}");
        assert_eq!(store.resource_version().as_str(), "8", "{order:?}");
    }
}

/// Compressed, an event that came after a list is applied before that list's other objects, where its own object waited
/// before: the list is judged by what was there when it came (B18).
#[test]
fn b18_a_list_is_not_refused_for_an_event_that_came_after_it() {
    for order in ORDERS {
        let mut path = Path::new(order);
        path.send(ObjectEvent::deleted(held("a6")));
        path.list(&["b7"], "8");
        path.send(ObjectEvent::added(held("a9")));
        path.apply_all();
        assert_eq!(words(&path.store), ["a9", "b7"], "{order:?}");
        assert_eq!(path.store.refused(), 0, "{order:?}");
    }
}
