//! Code of the program that panics or does not return on an informer's thread: it is reported, and
//! no thread runs on uselessly (IX-6, CT-1, CT-2, SI-4, SI-5, SI-26).

use super::custom::{Call, Custom, OnDrop, Touchy};
use super::*;
use crate::hooks::Hook;
use crate::informer::{EventHandler, Handlers, InformerMetric};
use crate::tests::until::{until, until_some};
use crossbeam_channel::Sender;
use k8s_openapi::Metadata as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// IX-6: a bad object loses its place in that index, and nothing else changes.
#[test]
fn ix_6_an_index_function_that_panics_costs_that_object_its_place_in_that_index() {
    let stage = Stage::with(&["a", "b"]);
    let indexers = Indexers::new()
        .by_namespace()
        .with("fussy", |object: &ConfigMap| {
            assert_ne!(object.key().name(), "a", "it does not like it");
            vec!["fine".to_owned()]
        });
    let informer = stage.informer_with(stage.options().indexers(indexers));
    let (registration, told) = follow(&informer);
    stage.run(&informer);
    registration.wait_until_synced(Deadline::NEVER).unwrap();
    assert_eq!(next_sorted(&told, 2), ["*a2", "*b3"]);
    let store = informer.store();
    assert_eq!(store.by_index("fussy", "fine").unwrap().len(), 1);
    assert_eq!(store.by_index("namespace", "").unwrap().len(), 2);
    stage.set("a");
    assert_eq!(next(&told, 1), ["a2>4"], "it goes on");
    assert_eq!(store.index_panics(), 2);
    assert!(!informer.is_stopped());
}

/// SI-26: a transform that panics counts as failed.
#[test]
fn si_26_a_transform_that_panics_is_told_and_leads_to_a_list() {
    let stage = Stage::with(&["a"]);
    let (allow, allowed) = unbounded::<()>();
    let options = stage.options().transform(move |object| {
        let secret = "canary".to_owned();
        assert!(
            object.key().name() != "a" || !allowed.is_empty(),
            "{secret}"
        );
        Ok(object)
    });
    let informer = stage.informer_with(options);
    let (registration, told) = follow(&informer);
    informer.start().unwrap();
    stage.fake.wait_for_timer(Duration::from_millis(800));
    for error in [
        informer.wait_until_synced(stage.now()).unwrap_err(),
        registration.wait_until_synced(stage.now()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotSynced);
        assert_eq!(error.last_error().unwrap().kind(), ErrorKind::Panicked);
        let text = error.to_string();
        assert!(
            text.contains("transforming: the transform of a panicked"),
            "{text}"
        );
        assert!(!text.contains("canary"), "{text}");
    }
    allow.send(()).unwrap();
    stage.pass_until(|| informer.has_synced());
    assert_eq!(next(&told, 1), ["*a2"]);
    // The status is shown before the watch is opened.
    stage.source.wait_for_watches(1);
    assert_eq!(informer.status().failures.last().map(Error::kind), None);
}

/// A source that panics counts as failed: every waiter gets the panic, and the informer goes on.
#[test]
fn a_source_that_panics_is_told_of_and_ends_nothing() {
    let stage = Stage::with(&["a"]);
    let source = Custom::new(&stage, |call| {
        assert!(!matches!(call, Call::List), "a bad source");
    });
    let informer = SharedInformer::new(Arc::new(source), stage.options());
    let (registration, _told) = follow(&informer);
    informer.start().unwrap();
    stage.fake.wait_for_timer(Duration::from_millis(800));
    for error in [
        informer.wait_until_synced(stage.now()).unwrap_err(),
        registration.wait_until_synced(stage.now()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotSynced);
        assert_eq!(error.last_error().unwrap().kind(), ErrorKind::Panicked);
        let text = "the source of reflector configmaps panicked: a bad source";
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(!informer.is_stopped());
    informer.shutdown(Deadline::NEVER).unwrap();
}

/// The content from before a panic of the source stays readable.
#[test]
fn what_came_before_a_panic_of_the_source_is_in_the_store() {
    let stage = Stage::with(&["a", "b"]);
    let fake = stage.source.clone();
    let source = Custom::new(&stage, move |call| {
        assert!(
            !matches!(call, Call::Watch(_)) || fake.version() < 3,
            "a bad source"
        );
    });
    let informer = SharedInformer::new(Arc::new(source), stage.options());
    informer.start().unwrap();
    informer.wait_until_synced(Deadline::NEVER).unwrap();
    stage.fake.wait_for_timer(Duration::from_millis(800));
    let failure = informer.status().failures.last().cloned().unwrap();
    assert_eq!(failure.kind(), ErrorKind::Panicked);
    assert!(!informer.is_stopped() && informer.has_synced());
    assert_eq!(words(informer.store()), ["a2", "b3"]);
}

/// Seen: `Ok` for two minutes, although the server refused every watch.
#[test]
fn the_health_of_an_informer_whose_requests_are_refused_says_why_until_a_watch_serves() {
    for kind in [RequestKind::List, RequestKind::Watch] {
        let stage = Stage::with(&["a"]);
        let refused = crate::object::Status::new(403, "configmaps is forbidden: no rule for it");
        stage.source.fail_all(kind, Error::from_status(refused));
        let informer = stage.informer();
        informer.start().unwrap();
        stage.pass_until(|| informer.health().is_err());
        let error = informer.health().unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("configmaps: "), "{text}");
        assert!(
            text.contains("configmaps is forbidden: no rule for it"),
            "{text}"
        );
        assert!(error.attempts() >= 3 && error.since().is_some(), "{text}");
        assert_eq!(
            error.last_error().map(Error::kind),
            Some(ErrorKind::Forbidden)
        );
        stage.source.heal();
        stage.pass_until(|| stage.source.open_watches() == 1);
        stage.set("b");
        informer
            .wait_until(
                &crate::object::ObjectKey::new("", "b"),
                |object| object.is_some(),
                Deadline::NEVER,
            )
            .unwrap();
        stage.source.bookmark();
        until(|| informer.health().is_ok());
    }
}

fn touchy(name: &str) -> Touchy {
    let mut touchy = Touchy::default();
    touchy.0.name = Some(name.to_owned());
    touchy
}

/// The source keeps its objects. A copy belongs to the informer alone, and calls this on drop.
fn on_drop(
    options: InformerOptions<Touchy>,
    act: impl Fn(&ObjectMeta) + Send + Sync + 'static,
) -> InformerOptions<Touchy> {
    let act: OnDrop = Arc::new(act);
    options.transform(move |touchy: Arc<StoredObject<Touchy>>| {
        let copy = Touchy(touchy.metadata().clone(), Some(Arc::clone(&act)));
        Ok(Arc::new(StoredObject::new(copy)))
    })
}

/// CT-1, CT-2: a panic that ends the reflector's thread ends the informer, with the cause.
#[test]
fn ct_1_a_panic_on_the_reflectors_thread_stops_the_informer() {
    let stage = Stage::new();
    let source = FakeSource::<Touchy>::with_clock(stage.clock.clone());
    source.set(touchy("a"));
    let options = InformerOptions::default().reflector(stage.reflector());
    let options = on_drop(options, |metadata| {
        let first = metadata.resource_version.as_deref() == Some("2");
        let thread = std::thread::current();
        let here = thread.name().is_some_and(|name| name.starts_with("rf-"));
        assert!(!(first && here), "a bad drop");
    });
    let informer = SharedInformer::new(Arc::new(source.clone()), options);
    informer.start().unwrap();
    informer.wait_until_synced(Deadline::NEVER).unwrap();
    source.wait_for_watches(1);
    source.set(touchy("a"));
    let version = ResourceVersion::from("9");
    let error = informer
        .store()
        .wait_until_at_least(&version, Deadline::NEVER)
        .unwrap_err();
    let text = "the thread of reflector touchies.example.com panicked: a bad drop";
    assert!(error.to_string().contains(text), "{error}");
    assert!(informer.is_stopped());
    let last = informer.status().failures.last().map(ToString::to_string);
    assert_eq!(last.as_deref(), Some(text));
    source.wait_for_watches(0);
    informer.shutdown(Deadline::NEVER).unwrap();
    assert_eq!(informer.store().len(), 1, "it stays readable");
}

/// An object's drop, which may be code of the program, can read everything of its informer: no lock
/// is held.
#[test]
fn objects_are_dropped_under_no_lock_of_the_informer() {
    let stage = Stage::new();
    let source = FakeSource::<Touchy>::with_clock(stage.clock.clone());
    let cell: Arc<std::sync::OnceLock<std::sync::Weak<SharedInformer<Touchy>>>> = Arc::default();
    let (dropped, drops) = unbounded();
    let own = Arc::clone(&cell);
    let options = InformerOptions::default()
        .reflector(stage.reflector())
        .indexers(Indexers::new().by_namespace());
    let options = on_drop(options, move |metadata| {
        let informer = own.get().and_then(std::sync::Weak::upgrade);
        if let Some(informer) = informer {
            let read = (informer.is_stopped(), informer.status());
            let stored = (
                informer.store().len(),
                informer.store().by_index("namespace", ""),
            );
            let handlers = informer.registrations();
            let handlers = handlers
                .iter()
                .map(|handler| (handler.readings().queued, handler.readings().lag));
            drop((read, stored, handlers.collect::<Vec<_>>()));
        }
        drop(dropped.send(metadata.resource_version.clone()));
    });
    let informer = Arc::new(SharedInformer::new(Arc::new(source.clone()), options));
    cell.set(Arc::downgrade(&informer)).unwrap();
    let (block, calls, gate) = blocks();
    let handler = Handlers::<Touchy>::new().on_add(move |_, _| block());
    let options = HandlerOptions::default().queue_max(Some(1));
    let slow = informer.add_handler_with(handler, options).unwrap();
    source.set(touchy("a"));
    informer.start().unwrap();
    calls.recv().unwrap();
    source.wait_for_watches(1);
    let wait_for = |version: u64| {
        let version = ResourceVersion::from(version.to_string());
        informer
            .store()
            .wait_until_at_least(&version, Deadline::NEVER)
            .unwrap();
    };
    // While the handler stands still: notifications that join or replace others.
    for _ in 0..3 {
        source.set(touchy("a"));
        source.set(touchy("b"));
    }
    source.delete("", "a");
    wait_for(source.set(touchy("a")));
    wait_for(source.set(touchy("c")));
    let (_removing, removed) = apart(move || slow.remove(Deadline::NEVER));
    // For every further call too: the removal may begin after this one returns.
    drop(gate);
    removed.recv().unwrap().unwrap();
    informer.shutdown(Deadline::NEVER).unwrap();
    drop(informer);
    assert!(drops.len() > 6, "{drops:?}");
}

/// Wants nothing after its first call.
struct Once<F>(F);

impl<F: Fn() + Send + 'static> EventHandler<Touchy> for Once<F> {
    fn on_add(&mut self, _object: &Arc<StoredObject<Touchy>>, _is_in_initial_list: bool) {
        self.0();
    }

    fn is_finished(&self) -> bool {
        true
    }
}

/// SI-18. Seen: the thread of the handler ended without a word, and a wait for its end never did.
#[test]
fn si_18_a_panic_in_the_drop_of_what_a_handler_leaves_is_no_end_of_its_thread() {
    let stage = Stage::new();
    let source = FakeSource::<Touchy>::with_clock(stage.clock.clone());
    let options = InformerOptions::default().reflector(stage.reflector());
    let options = on_drop(options, |metadata| {
        let thread = std::thread::current();
        let here = thread.name().is_some_and(|name| name.starts_with("hd-"));
        let is_left = metadata.name.as_deref() != Some("a");
        assert!(!(here && is_left), "a bad drop");
    });
    let informer = SharedInformer::new(Arc::new(source.clone()), options);
    let (block, calls, gate) = blocks();
    let handler = informer.add_handler(Once(block)).unwrap();
    source.set(touchy("a"));
    informer.start().unwrap();
    calls.recv().unwrap();
    source.wait_for_watches(1);
    for name in ["b", "c", "b", "c"] {
        source.set(touchy(name));
    }
    let version = ResourceVersion::from(source.set(touchy("a")).to_string());
    let store = informer.store();
    store
        .wait_until_at_least(&version, Deadline::NEVER)
        .unwrap();
    drop(gate);
    let (_removing, removed) = apart(move || handler.remove(Deadline::NEVER));
    removed.recv_timeout(OPENS).unwrap().unwrap();
    informer.shutdown(Deadline::NEVER).unwrap();
}

/// A function that reports its call, then blocks until the test releases it.
fn blocks() -> (impl Fn() + Send + Sync + 'static, Receiver<()>, Sender<()>) {
    let (begun, calls) = unbounded();
    let (gate, pass) = unbounded::<()>();
    let call = move || {
        let _gone = begun.send(());
        let _open = pass.recv_timeout(OPENS);
    };
    (call, calls, gate)
}

/// The words of the error about code that holds up a late thread.
const HELD_UP: &str = "held up by a transform, an index function or a call of the source";

/// Shuts the informer down with a deadline that passes while a function of the program blocks.
/// Returns the error once only the thread of that name still runs.
#[track_caller]
fn shut_down_late(stage: &Stage, informer: &Arc<Informer>, thread: &str) -> String {
    let closing = Arc::clone(informer);
    let deadline = stage.clock.after(Duration::from_secs(5));
    let (_worker, closed) = apart(move || closing.shutdown(deadline));
    stage.fake.wait_for_timer(Duration::from_secs(5));
    stage.fake.advance(Duration::from_secs(5));
    let mut error = closed.recv().unwrap().unwrap_err();
    let alone = format!("timed out waiting for informer configmaps: thread {thread}-");
    until_some(|| {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{text}");
        if text.starts_with(&alone) && !text.contains(", thread") && !text.contains("; ") {
            return Some(text);
        }
        error = informer.shutdown(stage.now()).unwrap_err();
        None
    })
}

#[test]
fn si_5_a_shutdown_does_not_wait_for_a_transform_beyond_its_deadline() {
    let stage = Stage::with(&["a"]);
    let (block, calls, gate) = blocks();
    let options = stage.options().transform(move |object| {
        block();
        Ok(object)
    });
    let informer = Arc::new(stage.informer_with(options));
    let (registration, told) = follow(&informer);
    informer.start().unwrap();
    calls.recv().unwrap();
    let text = shut_down_late(&stage, &informer, "rf");
    assert!(text.ends_with(HELD_UP), "{text}");
    let error = informer.wait_until_synced(Deadline::NEVER).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped, "nobody waits for it");
    assert!(registration.readings().has_ended && told.recv().is_err());
    gate.send(()).unwrap();
    informer.shutdown(Deadline::NEVER).unwrap();
    assert!(informer.store().is_empty(), "it told nobody anything more");
}

#[test]
fn si_5_a_shutdown_does_not_wait_for_an_index_function_beyond_its_deadline() {
    let stage = Stage::with(&["a"]);
    let (block, calls, gate) = blocks();
    let indexers = Indexers::new().with("slow", move |_: &ConfigMap| {
        block();
        Vec::new()
    });
    let options = stage.options().indexers(indexers);
    let informer = Arc::new(stage.informer_with(options));
    let (_, told) = follow(&informer);
    informer.start().unwrap();
    calls.recv().unwrap();
    let waiting = Arc::clone(&informer);
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    let text = shut_down_late(&stage, &informer, "rf");
    assert!(text.ends_with(HELD_UP), "{text}");
    assert_eq!(
        waited.recv().unwrap().unwrap_err().kind(),
        ErrorKind::Stopped
    );
    drop(informer);
    assert!(told.recv().is_err(), "the drop did not wait for it either");
    drop(gate);
}

/// A transform that stops its own informer is not waited for on its own thread.
#[test]
fn si_5_a_transform_may_stop_its_own_informer() {
    let stage = Stage::with(&["a"]);
    let cell: Arc<std::sync::OnceLock<Informer>> = Arc::default();
    let (ended, end) = unbounded();
    let own = Arc::clone(&cell);
    let options = stage.options().transform(move |object| {
        let informer = own.get().unwrap();
        ended.send(informer.shutdown(Deadline::NEVER)).unwrap();
        Ok(object)
    });
    let informer = cell.get_or_init(|| stage.informer_with(options));
    informer.start().unwrap();
    end.recv().unwrap().unwrap();
    informer.shutdown(Deadline::NEVER).unwrap();
    assert!(informer.is_stopped());
}

/// Also while another thread waits for that one.
#[test]
fn si_5_a_transform_may_stop_its_own_informer_while_another_thread_does() {
    let stage = Stage::with(&["a"]);
    let cell: Arc<std::sync::OnceLock<Informer>> = Arc::default();
    let (block, calls, gate) = blocks();
    let (ended, end) = unbounded();
    let own = Arc::clone(&cell);
    let options = stage.options().transform(move |object| {
        block();
        let informer = own.get().unwrap();
        ended.send(informer.shutdown(Deadline::NEVER)).unwrap();
        Ok(object)
    });
    let informer = cell.get_or_init(|| stage.informer_with(options));
    informer.start().unwrap();
    calls.recv().unwrap();
    let (theirs, deadline) = (Arc::clone(&cell), stage.clock.after(Duration::from_secs(7)));
    let (_worker, closed) = apart(move || theirs.get().unwrap().shutdown(deadline));
    stage.fake.wait_for_timer(Duration::from_secs(7));
    gate.send(()).unwrap();
    end.recv().unwrap().unwrap();
    closed.recv().unwrap().unwrap();
}

/// If code that the start calls panics, the start returns the panic and ends the informer; nothing
/// hangs.
#[test]
fn ct_1_a_panic_in_the_start_is_its_error_and_the_end_of_the_informer() {
    let stage = Stage::with(&["a"]);
    let source = Custom::new(&stage, |call| {
        assert!(!matches!(call, Call::Describe), "a bad source");
    });
    let informer = SharedInformer::new(Arc::new(source), stage.options());
    let (registration, told) = follow(&informer);
    let error = informer.start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    let text = "the source of reflector configmaps panicked: a bad source";
    assert_eq!(error.to_string(), text);
    assert!(informer.is_stopped() && told.recv().is_err());
    for waited in [
        informer.wait_until_synced(Deadline::NEVER),
        registration.wait_until_synced(Deadline::NEVER),
    ] {
        let waited = waited.unwrap_err().to_string();
        assert!(waited.contains(text), "{waited}");
    }
    assert_eq!(informer.start().unwrap_err().kind(), ErrorKind::Stopped);
    informer.shutdown(Deadline::NEVER).unwrap();
    assert!(stage.source.requests().is_empty());
}

/// The reflector's thread and a handler's would wait for each other's end.
#[test]
fn si_5_an_index_function_and_a_handler_may_stop_their_informer_at_once() {
    let stage = Stage::with(&["a"]);
    let cell: Arc<std::sync::OnceLock<Informer>> = Arc::default();
    let together = Arc::new(std::sync::Barrier::new(2));
    let (ended, end) = unbounded();
    let shut_down = move |own: &std::sync::OnceLock<Informer>| {
        together.wait();
        let informer = own.get().unwrap();
        ended.send(informer.shutdown(Deadline::NEVER)).unwrap();
    };
    let shut_down = Arc::new(shut_down);
    let (own, of_index) = (Arc::clone(&cell), Arc::clone(&shut_down));
    let indexers = Indexers::new().with("stops", move |object: &ConfigMap| {
        if object.metadata.name.as_deref() == Some("b") {
            of_index(&own);
        }
        Vec::new()
    });
    let informer = cell.get_or_init(|| stage.informer_with(stage.options().indexers(indexers)));
    let own = Arc::clone(&cell);
    let handler = Handlers::<ConfigMap>::new();
    let handler = handler.on_add(move |_, _| shut_down(&own));
    informer.add_handler(handler).unwrap();
    informer.start().unwrap();
    stage.source.wait_for_watches(1);
    stage.set("b");
    for _ in 0..2 {
        end.recv().unwrap().unwrap();
    }
    informer.shutdown(Deadline::NEVER).unwrap();
}

/// SI-5: code that the start calls may stop the informer; it cannot wait for the end, since the
/// start would wait for it.
#[test]
fn si_5_a_stop_by_code_that_the_start_calls_is_heeded() {
    for waits in [false, true] {
        let stage = Stage::with(&["a"]);
        let (ended, end) = unbounded();
        let informer = Arc::new_cyclic(|own| {
            let own: std::sync::Weak<Informer> = std::sync::Weak::clone(own);
            let metrics = Hook::new(move |metric| {
                if let InformerMetric::Started(_) = metric {
                    let informer = own.upgrade().unwrap();
                    let end = if waits {
                        informer.shutdown(Deadline::NEVER).err()
                    } else {
                        informer.stop();
                        None
                    };
                    ended.send(end).unwrap();
                }
            });
            stage.informer_with(stage.options().metrics(metrics))
        });
        informer.start().unwrap();
        let text = "informer configmaps ends when its start returns: shutdown was called on the \
            thread that starts it";
        let told = end.recv().unwrap().map(|error| error.to_string());
        assert_eq!(told, waits.then(|| text.to_owned()));
        assert!(informer.is_stopped());
        // The first list may have come before the stop was heeded.
        if let Err(error) = informer.wait_until_synced(Deadline::NEVER) {
            assert!(error.is_stopped(), "{error}");
        }
        informer.shutdown(Deadline::NEVER).unwrap();
    }
}
