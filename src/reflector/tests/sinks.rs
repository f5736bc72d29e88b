//! Sinks other than the store: the calls they get, and the effects of their refusals and panics.

use std::time::Instant;

use super::*;
use crate::list_watch::{
    Backlog, EventKind, ListPage, ListRequest, Listed, ListerWatcher, Next, ObjectEvent,
    WatchRequest, WatchStream,
};
use crate::reflector::{Phase, ReflectorStatus, Replacement, Sink};
use crate::sync::Mutex;
use crate::tests::until::until;
use crate::worker::StopToken;

/// Records its calls, and refuses those named in `refuse`.
struct Probe {
    calls: Arc<Mutex<Vec<String>>>,
    refuse: &'static str,
}

impl Probe {
    fn note(&self, call: &str) -> Result<(), Error> {
        self.calls.lock().push(call.to_owned());
        assert_ne!(self.refuse, format!("panic at {call}"));
        if self.refuse == call {
            return Err(Error::new(crate::ErrorKind::Protocol, "the probe refuses"));
        }
        Ok(())
    }
}

impl Sink<ConfigMap> for Probe {
    type Staging = usize;

    fn begin(&mut self) -> usize {
        0
    }

    fn stage(&mut self, staging: &mut usize, _item: ObjectEvent<ConfigMap>) {
        *staging = staging.saturating_add(1);
    }

    fn commit(&mut self, staging: usize, of: &Replacement) -> Result<(), Error> {
        self.note(&format!("commit {staging} at {}", of.resource_version))
    }

    fn apply(&mut self, event: ObjectEvent<ConfigMap>) -> Result<(), Error> {
        let undecodable = match event.object {
            Listed::Object(_) => "",
            Listed::Undecodable(_) => " undecodable",
        };
        self.note(&format!("{:?}{undecodable}", event.kind).to_lowercase())
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.note(&format!("bookmark {version}")).unwrap();
    }

    fn resync(&mut self) -> Result<(), Error> {
        self.note("resync")
    }

    fn report(&mut self, status: &ReflectorStatus) {
        if status.phase == Phase::BackingOff {
            self.note("told of a failure").unwrap();
        }
    }
}

fn probed(stage: &Stage, refuse: &'static str) -> (Reflector, Arc<Mutex<Vec<String>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let probe = Probe {
        calls: Arc::clone(&calls),
        refuse,
    };
    let source = Arc::new(stage.source.clone());
    let reflector = Reflector::spawn("probe", source, probe, stage.options.clone()).unwrap();
    (reflector, calls)
}

/// RF-26, RF-27, RF-30: each event reaches the sink, bookmarks too.
#[test]
fn the_sink_hears_everything_in_order() {
    let stage = Stage::new();
    stage.set("a", "1");
    let (_reflector, calls) = probed(&stage, "");
    stage.source.wait_for_watches(1);
    stage.set("b", "1");
    stage.set("b", "2");
    stage.source.set_undecodable("shop", "c");
    stage.source.delete("shop", "a");
    stage.source.delete("shop", "c");
    stage.source.skip_to(50);
    stage.source.bookmark();
    stage.fake.wait_for_timer(seconds(130));
    assert_eq!(
        *calls.lock(),
        [
            "commit 1 at 2",
            "added",
            "updated",
            "added undecodable",
            "deleted",
            "deleted undecodable",
            "bookmark 50"
        ]
    );
}

/// RF-47, RF-48, RF-39: resync on its period; one that fails ends the watch, after which the list
/// begins anew.
#[test]
fn resync_delivers_what_is_known_and_may_fail() {
    let mut stage = Stage::new();
    stage.options.resync_period = Some(seconds(60));
    let (_reflector, calls) = probed(&stage, "");
    stage.pass(seconds(60));
    stage.pass(seconds(60));
    stage.fake.wait_for_timer(seconds(60));
    assert_eq!(*calls.lock(), ["commit 0 at 1", "resync", "resync"]);

    let mut stage = Stage::new();
    stage.options.resync_period = Some(seconds(60));
    let (_reflector, calls) = probed(&stage, "resync");
    stage.pass(seconds(60));
    stage.pass(millis(800));
    stage.fake.wait_for_timer(seconds(60));
    assert_eq!(
        *calls.lock(),
        [
            "commit 0 at 1",
            "resync",
            "told of a failure",
            "commit 0 at 1"
        ]
    );
    assert_eq!(stage.requests(), ["list 0", "watch 1", "list 1", "watch 1"]);
}

/// RF-17, and RF-26 done better: the reflector lists again after the sink refuses a change.
#[test]
fn what_the_sink_refuses_is_listed_again() {
    let stage = Stage::new();
    let (_reflector, calls) = probed(&stage, "added");
    stage.source.wait_for_watches(1);
    stage.set("a", "1");
    stage.pass(millis(800));
    stage.source.wait_for_requests(4);
    stage.source.wait_for_watches(1);
    assert_eq!(
        *calls.lock(),
        [
            "commit 0 at 1",
            "added",
            "told of a failure",
            "commit 1 at 2"
        ]
    );
}

/// A sink that panics ends its reflector; the panic is reported, the source dropped.
#[test]
fn a_panic_in_the_sink_is_reported() {
    let stage = Stage::new();
    let (reflector, _calls) = probed(&stage, "panic at added");
    stage.source.wait_for_watches(1);
    stage.set("a", "1");
    stage.source.wait_for_watches(0);
    let told = reflector.join().unwrap_err();
    assert_eq!(told.kind(), crate::ErrorKind::Panicked);
    assert!(told.to_string().contains("panic at added"), "{told}");
}

/// IX-6: an index function that panics on the reflector's thread costs that object its place in
/// that index, not the run.
#[test]
fn ix_6_a_panic_in_an_index_function_does_not_end_the_run() {
    let stage = Stage::new();
    stage.set("good", "1");
    let indexers = Indexers::new().with("odd", |object: &ConfigMap| {
        assert_ne!(object.metadata.name.as_deref(), Some("bad"), "made up");
        vec!["even".to_owned()]
    });
    let source = Arc::new(stage.source.clone());
    let (store, reflector) = Store::spawn("t", source, indexers, stage.options.clone()).unwrap();
    store.wait_until_synced(Deadline::NEVER).unwrap();
    stage.source.wait_for_watches(1);
    stage.set("bad", "1");
    stage.set("late", "1");
    let last = ResourceVersion::from(stage.source.version().to_string());
    store.wait_until_at_least(&last, Deadline::NEVER).unwrap();
    assert_eq!(names(&store), ["bad", "good", "late"]);
    assert_eq!(store.by_index("odd", "even").unwrap().len(), 2);
    assert_eq!(store.index_panics(), 1);
    reflector.join().unwrap();
}

/// `rf-<kind>-<number>`, within what Linux keeps.
#[test]
fn threads_have_names_of_fifteen_bytes() {
    for kind in [
        "Secret",
        "ConfigMap",
        "A",
        "ValidatingAdmissionPolicyBinding",
    ] {
        let name = crate::reflector::thread_name(kind);
        assert!(name.starts_with("rf-") && name.len() <= 15, "{name}");
        assert!(
            name.rsplit('-').next().unwrap().parse::<u64>().is_ok(),
            "{name}"
        );
    }
    assert!(crate::reflector::thread_name("Secret").starts_with("rf-secret-"));
}

/// A sink whose every change waits until the test lets it pass.
struct Slow {
    came: crossbeam_channel::Sender<String>,
    pass: crossbeam_channel::Receiver<()>,
}

impl Sink<ConfigMap> for Slow {
    type Staging = ();

    fn begin(&mut self) {}

    fn stage(&mut self, (): &mut (), _item: ObjectEvent<ConfigMap>) {}

    fn commit(&mut self, (): (), _of: &Replacement) -> Result<(), Error> {
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<ConfigMap>) -> Result<(), Error> {
        let ObjectEvent {
            kind: EventKind::Added,
            object: Listed::Object(object),
        } = event
        else {
            panic!("only additions are made");
        };
        self.came
            .send(object.metadata.name.clone().unwrap())
            .unwrap();
        self.pass.recv().unwrap();
        Ok(())
    }
}

/// B11: events that came while the sink was slow, or the program was stopped, are taken before
/// silence counts.
#[test]
fn b11_events_that_have_come_are_no_silence() {
    let mut stage = Stage::new();
    stage.options.idle_limit = seconds(130);
    let source: &dyn ListerWatcher<ConfigMap> = &stage.source;
    source.bookmark_came(seconds(1));
    let (came, told) = crossbeam_channel::unbounded();
    let (let_pass, pass) = crossbeam_channel::bounded(0);
    let source = Arc::new(stage.source.clone());
    let sink = Slow { came, pass };
    let reflector = Reflector::spawn("slow", source, sink, stage.options.clone()).unwrap();
    stage.source.wait_for_watches(1);
    stage.set("a", "1");
    assert_eq!(told.recv().unwrap(), "a");
    stage.set("b", "1");
    stage.fake.advance(seconds(150));
    let_pass.send(()).unwrap();
    assert_eq!(told.recv().unwrap(), "b");
    let_pass.send(()).unwrap();
    stage.fake.wait_for_timer(seconds(130));
    assert_eq!(stage.requests().len(), 2, "the watch is not opened again");
    let status = reflector.status();
    assert_eq!((status.failures.count(), status.watches), (0, 1));
    reflector.join().unwrap();
}

/// An open watch with the beginning of an event that never ends.
struct Cut {
    calls: Arc<Mutex<Vec<String>>>,
    clock: Clock,
    stop: StopToken,
}

impl WatchStream<ConfigMap> for Cut {
    fn next(&mut self, deadline: Deadline) -> Result<Next<ConfigMap>, Error> {
        if self.clock.has_passed(deadline) {
            self.calls.lock().push("looks".to_owned());
            return Ok(Next::DeadlinePassed);
        }
        self.calls.lock().push("waits".to_owned());
        let stopped = self.stop.channel().recv();
        assert!(stopped.is_err());
        Err(Error::stopped("a watch"))
    }

    fn last_contact(&self) -> Instant {
        self.clock.now()
    }

    fn backlog(&self) -> Backlog {
        Backlog::Bytes
    }
}

/// Its watches are cut; as a sink it records the backlog calls.
#[derive(Clone)]
struct CutSource {
    calls: Arc<Mutex<Vec<String>>>,
    clock: Clock,
}

impl ListerWatcher<ConfigMap> for CutSource {
    fn list(
        &self,
        _request: &ListRequest,
        _stop: &StopToken,
        _each: &mut dyn FnMut(Listed<ConfigMap>),
    ) -> Result<ListPage, Error> {
        Ok(ListPage {
            resource_version: "1".into(),
            ..ListPage::default()
        })
    }

    fn watch(
        &self,
        _request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<ConfigMap>>, Error> {
        let (calls, clock) = (Arc::clone(&self.calls), self.clock.clone());
        calls.lock().clear();
        let stop = stop.clone();
        Ok(Box::new(Cut { calls, clock, stop }))
    }

    fn describe(&self) -> String {
        "config maps".to_owned()
    }
}

impl Sink<ConfigMap> for CutSource {
    type Staging = ();

    fn begin(&mut self) {}

    fn stage(&mut self, (): &mut (), _item: ObjectEvent<ConfigMap>) {}

    fn commit(&mut self, (): (), _of: &Replacement) -> Result<(), Error> {
        Ok(())
    }

    fn apply(&mut self, _event: ObjectEvent<ConfigMap>) -> Result<(), Error> {
        Ok(())
    }

    fn backlog(&mut self, backlog: Backlog) {
        self.calls.lock().push(format!("{backlog:?}"));
    }
}

/// Bytes are not an event: work put off until the next event does not wait for the rest of that
/// event.
#[test]
fn the_sink_is_told_that_nothing_has_come_before_the_reflector_waits_for_the_rest_of_an_event() {
    let stage = Stage::new();
    let source = CutSource {
        calls: Arc::new(Mutex::new(Vec::new())),
        clock: stage.options.clock.clone(),
    };
    let (sink, calls) = (source.clone(), Arc::clone(&source.calls));
    let options = stage.options.clone();
    let reflector = Reflector::spawn("cut", Arc::new(source), sink, options).unwrap();
    until(|| calls.lock().last().is_some_and(|call| call == "waits"));
    assert_eq!(*calls.lock(), ["Bytes", "looks", "Unknown", "waits"]);
    reflector.join().unwrap();
}
