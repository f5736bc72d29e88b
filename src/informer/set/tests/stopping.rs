//! The end of a set (IS-4, IS-5, SI-4, SI-5).

use super::*;
use crate::informer::AnyInformer;
use crate::tests::until::until;

#[test]
fn si_4_a_stopped_set_leaves_nothing_open_and_its_content_readable() {
    let stage = Stage::new();
    let set = stage.running();
    let pods = set.informer::<Pod>().unwrap();
    set.shutdown(Deadline::NEVER).unwrap();
    assert_eq!(stage.open_watches(), 0);
    assert!(set.members().iter().all(AnyInformer::is_stopped));
    assert_eq!(pods.store().len(), 1);
    assert!(
        set.lister::<Pod>()
            .unwrap()
            .namespace("shop")
            .get("web")
            .is_ok()
    );
    set.shutdown(stage.now()).unwrap();
}

/// The first informer's handler does not return: the others have ended nevertheless, before any
/// thread waits for it.
#[test]
fn is_4_all_stops_are_raised_before_anything_is_waited_for() {
    for drops in [false, true] {
        let stage = Stage::new();
        let set = stage.set();
        let config_maps = set.informer::<ConfigMap>().unwrap();
        let slow = Gated::add(&config_maps, "slow");
        let secrets = set.informer::<Secret>().unwrap();
        let quick = secrets.add_handler(Handlers::new()).unwrap();
        set.start().unwrap();
        slow.begun.recv().unwrap();
        quick.wait_until_synced(Deadline::NEVER).unwrap();
        stage.source.secrets.wait_for_watches(1);
        let (_worker, ended) = apart(move || {
            if drops {
                drop(set);
                Ok(())
            } else {
                set.shutdown(Deadline::NEVER)
            }
        });
        stage.source.secrets.wait_for_watches(0);
        until(|| quick.readings().has_ended);
        assert!(secrets.is_stopped() && config_maps.is_stopped());
        assert!(ended.is_empty() && !slow.registration.readings().has_ended);
        slow.gate.send(()).unwrap();
        ended.recv().unwrap().unwrap();
        assert!(slow.registration.readings().has_ended, "drops: {drops}");
    }
}

#[test]
fn is_5_a_shutdown_has_one_deadline_and_names_every_straggler() {
    let stage = Stage::new();
    let set = stage.set();
    let config_maps = set.informer::<ConfigMap>().unwrap();
    let pods = set.informer::<Pod>().unwrap();
    set.informer::<Secret>().unwrap();
    let slow = [Gated::add(&config_maps, "one"), Gated::add(&pods, "two")];
    set.start().unwrap();
    for slow in &slow {
        slow.begun.recv().unwrap();
    }
    let before = stage.clock.now();
    let (_worker, ended) = {
        let deadline = stage.clock.after(Duration::from_secs(5));
        apart(move || (set.shutdown(deadline), set))
    };
    stage.fake.wait_for_timer(Duration::from_secs(5));
    stage.fake.advance(Duration::from_secs(5));
    let (shut_down, set) = ended.recv().unwrap();
    let error = shut_down.unwrap_err();
    assert_eq!(stage.clock.now() - before, Duration::from_secs(5));
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = error.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("configmaps: ") && lines[0].contains("one (on_add for"));
    assert!(lines[1].starts_with("pods: ") && lines[1].contains("two (on_add for"));
    assert_eq!(stage.open_watches(), 0, "the rest has ended");
    for slow in &slow {
        slow.gate.send(()).unwrap();
    }
    set.shutdown(Deadline::NEVER).unwrap();
}

/// The set owns its informers, also those that others hold.
#[test]
fn is_5_dropping_a_set_ends_everything_it_started() {
    let stage = Stage::new();
    let set = stage.running();
    let pods = set.informer::<Pod>().unwrap();
    let registration = pods.add_handler(Handlers::new()).unwrap();
    drop(set);
    assert_eq!(stage.open_watches(), 0);
    assert!(pods.is_stopped() && registration.readings().has_ended);
    assert_eq!(pods.store().len(), 1);
}

#[test]
fn is_5_dropping_a_set_that_never_ran_ends_its_handlers() {
    let stage = Stage::new();
    let set = stage.set();
    let pods = set.informer::<Pod>().unwrap();
    let registration = pods.add_handler(Handlers::new()).unwrap();
    drop(set);
    assert!(registration.readings().has_ended && pods.is_stopped());
    assert!(stage.source.pods.requests().is_empty());
}

#[test]
fn si_5_a_handler_may_shut_its_own_set_down() {
    let stage = Stage::new();
    let set = Arc::new(stage.set());
    let (tell, told) = unbounded();
    let own = Arc::downgrade(&set);
    let handler = Handlers::<Pod>::new().on_add(move |_, _| {
        let set = own.upgrade().unwrap();
        tell.send(set.shutdown(Deadline::NEVER)).unwrap();
    });
    set.informer::<Secret>().unwrap();
    let pods = set.informer::<Pod>().unwrap();
    let registration = pods.add_handler(handler).unwrap();
    set.start().unwrap();
    told.recv().unwrap().unwrap();
    assert!(set.is_stopped());
    registration.remove(Deadline::NEVER).unwrap();
}

/// The drop of the last pointer to a set ends it, also in a handler. That handler ends when its
/// call returns; all else has ended then.
#[test]
fn is_5_a_set_may_be_dropped_on_a_handlers_own_thread() {
    let stage = Stage::new();
    let set = Arc::new(stage.set());
    let own = Arc::downgrade(&set);
    let (go, pass) = unbounded::<()>();
    let (tell, told) = unbounded();
    let handler = Handlers::<Pod>::new().on_add(move |_, _| {
        let set = own.upgrade().unwrap();
        tell.send(0).unwrap();
        // The test drops it meanwhile.
        let _ = pass.recv();
        drop(set);
        tell.send(1).unwrap();
    });
    let pods = set.informer::<Pod>().unwrap();
    let secrets = set.informer::<Secret>().unwrap();
    let own = pods.add_handler(handler).unwrap();
    let other = secrets.add_handler(Handlers::new()).unwrap();
    set.start().unwrap();
    other.wait_until_synced(Deadline::NEVER).unwrap();
    stage.source.pods.wait_for_watches(1);
    stage.source.secrets.wait_for_watches(1);
    assert_eq!(told.recv(), Ok(0));
    drop(set);
    drop(go);
    assert_eq!(told.recv(), Ok(1));
    assert!(other.readings().has_ended && pods.is_stopped() && secrets.is_stopped());
    assert_eq!(stage.open_watches(), 0);
    own.remove(Deadline::NEVER).unwrap();
}
