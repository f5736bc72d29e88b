//! Registration as the callers see it: CM rows, the upstream count table, and a model that
//! registrations must agree with.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;

use super::fake::{pod, secret};
use super::stage::Stage;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::manager::{ChangeDetection, Changed, ObjectState, Owner};
use crate::object::ObjectKey;
use crate::tests::dice::Dice;
use crate::tests::until::until;
use crate::worker::Worker;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// How many pods reference the object, as the manager sees it.
fn count(stage: &Stage, name: &str) -> usize {
    let report = stage.manager.inspect_object(&key(name));
    report.map_or(0, |report| report.owners)
}

fn with_uid(mut pod: Pod, uid: &str) -> Pod {
    pod.metadata.uid = Some(uid.to_owned());
    pod
}

/// A manager of each strategy.
fn each_strategy(test: impl Fn(Stage, ChangeDetection)) {
    for mode in ChangeDetection::ALL {
        test(Stage::of(mode).by_hand(), mode);
    }
}

/// CM-1, CM-4; `TestRegisterIdempotence`.
#[test]
fn cm_1_registering_and_unregistering_twice_is_once() {
    each_strategy(|stage, mode| {
        let pod = pod("p", &["s"]);
        stage.manager.register_pod(&pod);
        stage.manager.register_pod(&pod);
        assert_eq!(count(&stage, "s"), 1, "{mode}");
        stage.manager.unregister_pod(&pod);
        assert_eq!(count(&stage, "s"), 0, "{mode}");
        if mode != ChangeDetection::Get {
            let gone = stage.get_now("s").unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotRegistered, "{mode}");
        }
        stage.manager.unregister_pod(&pod);
        let runs = usize::from(mode == ChangeDetection::Watch);
        assert_eq!(stage.runs.count(), runs, "{mode}");
        assert_eq!(stage.getter.asked(), 0, "{mode}");
    });
}

/// CM-2; `TestCacheInvalidation`, as the watch-based store has it: an update starts what is new and
/// nothing else.
#[test]
fn cm_2_an_update_starts_what_is_new_and_stops_what_is_not_named_any_more() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s1", "s10", "s2"]));
    assert_eq!(stage.runs.count(), 3);
    stage
        .manager
        .register_pod(&pod("p", &["s2", "s3", "s30", "s2"]));
    assert_eq!(stage.runs.count(), 5);
    assert!(stage.runs.is_stopped("s1") && stage.runs.is_stopped("s10"));
    assert!(
        !stage.runs.is_stopped("s2"),
        "it was never let go in between"
    );
    stage.manager.register_pod(&pod("p", &["s2", "s3", "s30"]));
    assert_eq!(stage.runs.count(), 5);
}

/// CM-2, OS-2: a read between two registrations is asked for again exactly where the strategy says
/// so; no registration asks anything.
#[test]
fn cm_2_an_update_touches_only_what_it_changes() {
    each_strategy(|stage, mode| {
        stage
            .manager
            .register_pod(&pod("p", &["kept", "let-go", "kept"]));
        stage.manager.register_pod(&pod("p", &["kept", "new"]));
        for (name, pods) in [("kept", 1), ("let-go", 0), ("new", 1)] {
            assert_eq!(count(&stage, name), pods, "{mode} {name}");
        }
        stage.manager.register_pod(&pod("p", &[]));
        assert_eq!(count(&stage, "kept"), 0, "{mode}");
        assert_eq!(
            stage.manager.inspect().len(),
            0,
            "{mode}: nothing is kept of it"
        );
        assert_eq!(stage.getter.asked(), 0, "{mode}");
    });
}

/// CM-3: pods of one name with different uids hold references of their own.
#[test]
fn cm_3_a_pod_made_again_is_another_one() {
    each_strategy(|stage, mode| {
        let (old, new) = (
            with_uid(pod("p", &["s"]), "1"),
            with_uid(pod("p", &["s"]), "2"),
        );
        stage.manager.register_pod(&old);
        stage.manager.register_pod(&new);
        assert_eq!(count(&stage, "s"), 2, "{mode}");
        stage.manager.unregister_pod(&old);
        assert_eq!(count(&stage, "s"), 1, "{mode}");
        let at_work = usize::from(mode == ChangeDetection::Watch);
        assert_eq!(stage.runs.at_work("s"), at_work, "{mode}");
    });
}

/// CM-4, and CM-5 which cannot happen here: what was stored is let go, whatever the pod says by
/// then.
#[test]
fn cm_4_a_pod_changed_in_place_lets_go_what_it_held() {
    each_strategy(|stage, mode| {
        let mut pod = pod("p", &["held"]);
        stage.manager.register_pod(&pod);
        let spec = pod.spec.as_mut().unwrap();
        spec.image_pull_secrets.as_mut().unwrap()[0].name = "another".into();
        stage.manager.unregister_pod(&pod);
        assert_eq!(count(&stage, "held"), 0, "{mode}");
        assert_eq!(count(&stage, "another"), 0, "{mode}");
        assert_eq!(stage.runs.at_work("held"), 0, "{mode}");
    });
}

/// Registers and unregisters as upstream's table does.
fn play_upstreams_table(stage: &Stage) {
    let register = |name: &str, names: &[&str]| stage.manager.register_pod(&pod(name, names));
    let unregister = |name: &str| stage.manager.unregister_pod(&pod(name, &[]));
    register("1", &["s1", "s1", "s10", "s2"]);
    register("2", &["s2", "s3", "s3", "s30"]);
    register("3", &["s3", "s4", "s5", "s50"]);
    register("4", &["s5", "s6", "s60"]);
    register("5", &["s1", "s5", "s50", "s6"]);
    // Updates, one of them repeated.
    register("4", &["s5", "s7", "s70", "s2"]);
    register("4", &["s5", "s7", "s70", "s2"]);
    register("5", &["s1", "s5", "s50", "s4"]);
    // Pods that come and go.
    register("6", &["s1", "s3", "s6", "s60"]);
    unregister("6");
    unregister("6");
    register("7", &["s1", "s3", "s30"]);
    register("8", &["s5", "s50"]);
    register("8", &["s5"]);
}

/// CM-6; `TestCacheRefcounts`: the final counts of upstream's table.
#[test]
fn cm_6_the_final_counts_of_upstreams_table() {
    each_strategy(|stage, mode| {
        play_upstreams_table(&stage);
        let expected = [
            ("s1", 3),
            ("s10", 1),
            ("s2", 3),
            ("s3", 3),
            ("s30", 2),
            ("s4", 2),
            ("s5", 4),
            ("s50", 2),
            ("s6", 0),
            ("s60", 0),
            ("s7", 1),
            ("s70", 1),
        ];
        for (name, pods) in expected {
            assert_eq!(count(&stage, name), pods, "{mode} {name}");
        }
    });
}

/// Answers the strategy: the watch with its list, the others with the answer to their get.
fn feed(stage: &Stage, mode: ChangeDetection, version: &str) {
    if mode == ChangeDetection::Watch {
        let object = Some(secret("s", version));
        stage.runs.list("s", version, object).unwrap();
    } else {
        stage.getter.answer(Ok(secret("s", version)));
    }
}

/// CM-7, SC-1, `TestCacheBasedSecretManager`: a read asks whether the name is referenced, not by
/// whom, and only in its own namespace; with `Get` it asks the server whatever is referenced.
#[test]
fn cm_7_reads_are_for_everybody() {
    each_strategy(|stage, mode| {
        stage.manager.register_pod(&pod("p", &["s"]));
        feed(&stage, mode, "1");
        let found = stage.manager.get("ns", "s").unwrap();
        assert_eq!(found.metadata.resource_version.as_deref(), Some("1"));
        if mode == ChangeDetection::Get {
            stage.getter.answer(Err(Error::not_found("secrets", "s")));
        }
        let elsewhere = stage.manager.get("other", "s").unwrap_err();
        let expected = match mode {
            ChangeDetection::Watch | ChangeDetection::Cache => {
                "object \"other\"/\"s\" not registered"
            }
            ChangeDetection::Get => "get secret other/s: secrets \"s\" not found",
        };
        assert_eq!(elsewhere.to_string(), expected, "{mode}");
        assert_eq!(stage.manager.change_detection(), mode);
    });
}

/// CM-8: a registration does not wait for a read that is under way, nor does another read.
#[test]
fn cm_8_registrations_do_not_wait_for_requests() {
    each_strategy(|stage, mode| {
        stage.manager.register_pod(&pod("p", &["s"]));
        let manager = stage.manager.clone();
        let (send, answer) = crossbeam_channel::bounded(1);
        let worker = Worker::spawn("t-slow", move |_| {
            let found = manager.get_by("ns", "s", Deadline::NEVER);
            send.send(found.map(drop)).unwrap();
        });
        if mode == ChangeDetection::Watch {
            stage.clock.wait_for_parked(2);
        } else {
            stage.getter.wait_for_asked(1);
        }
        stage.manager.register_pod(&pod("q", &["t"]));
        stage.manager.unregister_pod(&pod("q", &[]));
        assert_eq!(stage.manager.inspect().len(), 1, "{mode}");
        assert!(answer.try_recv().is_err(), "{mode}");
        feed(&stage, mode, "1");
        answer.recv().unwrap().unwrap();
        worker.unwrap().join().unwrap();
    });
}

/// How often each owner references which objects: what the manager must agree with.
type Naive = BTreeMap<Owner, BTreeMap<String, u32>>;

fn random_step(dice: &mut Dice, stage: &Stage, naive: &mut Naive) {
    let (manager, name) = (&stage.manager, format!("p{}", dice.roll(4)));
    let names: Vec<String> = (0..dice.roll(5))
        .map(|_| format!("s{}", dice.roll(6)))
        .collect();
    let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
    let uid = format!("{name}-{}", dice.roll(3));
    let pod = with_uid(pod(&name, &borrowed), &uid);
    let is_pod = dice.roll(2) == 0;
    let owner = if is_pod {
        Owner::of(&pod)
    } else {
        Owner::new("Route", key(&name))
    };
    let held = naive.entry(owner.clone()).or_default();
    match dice.roll(6) {
        0 => {
            if is_pod {
                manager.unregister_pod(&pod);
            } else {
                manager.set_references(&owner, []);
            }
            held.clear();
        }
        1 => {
            for name in borrowed {
                manager.remove_reference(&owner, &key(name));
                let count = held.remove(name).unwrap_or_default();
                let less = count.saturating_sub(1);
                held.extend((less > 0).then(|| (name.to_owned(), less)));
            }
        }
        2 => {
            for name in borrowed {
                manager.add_reference(&owner, &key(name));
                let count = held.entry(name.to_owned()).or_default();
                *count = count.saturating_add(1);
            }
        }
        _ => {
            if is_pod {
                manager.register_pod(&pod);
            } else {
                manager.set_references(&owner, borrowed.into_iter().map(key));
            }
            *held = names.into_iter().map(|name| (name, 1)).collect();
        }
    }
    naive.retain(|_, held| !held.is_empty());
}

/// R6, CM-1..CM-6, OC-3..OC-5: after any history of references each object has as many owners as
/// hold it, and with `Watch` a run at work exactly if that is not zero.
#[test]
fn any_history_of_references_agrees_with_a_naive_count() {
    for (mut dice, seed) in Dice::histories(5) {
        for mode in ChangeDetection::ALL {
            let stage = Stage::of(mode).by_hand();
            let mut naive = Naive::new();
            for step in 0..200 {
                random_step(&mut dice, &stage, &mut naive);
                assert_agrees(&stage, mode, &naive, &format!("seed {seed} {mode} {step}"));
            }
        }
    }
}

fn assert_agrees(stage: &Stage, mode: ChangeDetection, naive: &Naive, when: &str) {
    for name in (0..6).map(|number| format!("s{number}")) {
        let holders = naive
            .values()
            .filter(|held| held.contains_key(&name))
            .count();
        assert_eq!(count(stage, &name), holders, "{when} {name}");
        let watched = mode == ChangeDetection::Watch && holders > 0;
        let at_work = stage.runs.at_work(&name);
        assert_eq!(at_work, usize::from(watched), "{when} {name}");
    }
    let owners: Vec<_> = stage.manager.inspect().into_keys().collect();
    let expected: Vec<_> = naive.keys().cloned().collect();
    assert_eq!(owners, expected, "{when}");
}

/// The agent's table: a row per pod and object, with what it needs and never a value.
#[test]
fn inspection_tells_where_each_object_stands() {
    let stage = Stage::by_hand();
    stage
        .manager
        .register_pod(&pod("p", &["there", "gone", "slow"]));
    stage
        .runs
        .list("there", "10", Some(secret("there", "9")))
        .unwrap();
    stage.runs.list("gone", "10", None).unwrap();
    let pods = stage.manager.inspect();
    let (_, objects) = pods.first_key_value().unwrap();
    let states: Vec<_> = objects
        .iter()
        .map(|object| (object.key.name(), object.state, object.reason.as_str()))
        .collect();
    assert_eq!(
        states,
        [
            ("gone", ObjectState::NotFound, ""),
            (
                "slow",
                ObjectState::Waiting,
                "no answer from the server yet"
            ),
            ("there", ObjectState::Synced, ""),
        ]
    );
    let there = &objects[2];
    assert_eq!((&*there.kind, there.keys, there.bytes), ("Secret", 1, 6));
    assert_eq!(there.resource_version.as_str(), "9");
    assert_eq!(there.since_contact, Some(std::time::Duration::ZERO));
    assert!(there.watched && !there.immutable);
    assert!(!format!("{pods:?}").contains("canary"));
    let cached = stage.get_now("there").unwrap();
    assert_eq!(format!("{cached:?}"), "Secret ns/there @9");
}

/// A change is told once, a repeated list is none.
#[test]
fn subscribers_hear_of_changes() {
    let stage = Stage::by_hand();
    let changes = stage.manager.subscribe();
    stage.manager.register_pod(&pod("p", &["a", "b"]));
    stage.runs.list("a", "10", Some(secret("a", "9"))).unwrap();
    stage.runs.list("b", "10", None).unwrap();
    changes.signal().recv().unwrap();
    assert_eq!(changes.take(), Changed::Keys([key("a"), key("b")].into()));
    stage.runs.list("a", "11", Some(secret("a", "9"))).unwrap();
    assert_eq!(changes.take(), Changed::Keys(BTreeSet::new()));
    stage.runs.deleted(secret("a", "12"));
    assert_eq!(changes.take(), Changed::Keys([key("a")].into()));
}

/// B16: dropping the manager ends and joins every run, and closes the subscriptions.
#[test]
fn dropping_the_manager_joins_everything() {
    let stage = Stage::by_hand();
    let changes = stage.manager.subscribe();
    stage.manager.register_pod(&pod("p", &["a", "b"]));
    let runs = stage.runs.clone();
    drop(stage.manager);
    assert_eq!((runs.is_joined("a"), runs.is_joined("b")), (true, true));
    while changes.signal().recv().is_ok() {}
}

/// Until these threads alone are late: those that can end have all the time it takes.
#[track_caller]
fn assert_late(stage: &Stage, threads: &str) {
    let text = "timed out waiting for the secret cache: held up by a hook or by a call of the \
                source: ";
    until(|| {
        let now = Deadline::at(stage.clock.now());
        let error = stage.manager.shutdown(now).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        error.to_string() == format!("{text}{threads}")
    });
}

#[test]
fn a_shutdown_joins_everything() {
    each_strategy(|stage, mode| {
        stage.manager.register_pod(&pod("p", &["a", "b"]));
        stage.manager.shutdown(Deadline::NEVER).unwrap();
        let read = stage.get_now("a").unwrap_err();
        assert!(read.is_stopped(), "{mode}: {read}");
        if mode == ChangeDetection::Watch {
            let joined = |name| stage.runs.is_joined(name);
            assert_eq!((joined("a"), joined("b")), (true, true));
        }
        stage.manager.register_pod(&pod("q", &["c"]));
        let runs = stage.runs.count();
        assert!(runs < 3, "{mode}: nothing starts after it");
        stage.manager.shutdown(Deadline::NEVER).unwrap();
    });
}

/// A thread that ends while others are still told to stop would compete with who tells them.
#[test]
fn a_stop_raises_all_stops_before_it_hands_over_a_thread_to_join() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["a", "b", "c"]));
    let (runs, manager) = (stage.runs.clone(), stage.manager.clone());
    runs.shut_gate(true);
    runs.hold(true);
    let stopping = Worker::spawn("t-stop", move |_| manager.stop()).unwrap();
    runs.wait_at_gate();
    let mut early = Vec::new();
    for _ in 0..2 {
        runs.admit_one();
        early.extend(stage.manager.store().keeper().context.work.lock().late());
    }
    runs.shut_gate(false);
    runs.hold(false);
    stopping.join().unwrap();
    stage.manager.shutdown(Deadline::NEVER).unwrap();
    assert_eq!(early, [""; 0]);
}

#[test]
fn a_shutdown_names_the_thread_of_a_run_that_is_late() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.hold(true);
    assert_late(&stage, "run of s");
    stage.runs.hold(false);
    stage.manager.shutdown(Deadline::NEVER).unwrap();
    assert!(stage.runs.is_joined("s"));
}

#[test]
fn a_drop_does_not_wait_for_what_a_shutdown_has_named() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.hold(true);
    assert_late(&stage, "run of s");
    let runs = stage.runs.clone();
    drop(stage.manager);
    assert!(!runs.is_joined("s"));
    runs.hold(false);
    runs.wait_for_join(0);
}

#[test]
fn a_shutdown_names_a_check_that_is_late() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let object = Some(super::fake::immutable("s", "9"));
    stage.runs.list("s", "10", object).unwrap();
    stage.get_now("s").unwrap();
    stage.getter.ignore_stop();
    stage.manager.register_pod(&pod("q", &["s"]));
    stage.getter.wait_for_asked(1);
    assert_late(&stage, "ck-secret");
    stage.getter.answer(Err(Error::not_found("secret", "s")));
    stage.manager.shutdown(Deadline::NEVER).unwrap();
}

/// B16: a run that is just ending itself, because of an immutable object, has no owner when the
/// manager is dropped. The drop waits for it all the same.
#[test]
fn dropping_the_manager_joins_a_run_that_is_ending_itself() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let runs = stage.runs.clone();
    runs.shut_gate(true);
    let item = stage.entry("s");
    let waits = item.waiters.wait();
    let reflector = {
        let runs = runs.clone();
        Worker::spawn("t-rf", move |_| {
            let object = Some(super::fake::immutable("s", "9"));
            runs.list("s", "10", object).unwrap();
        })
    };
    runs.wait_at_gate();
    drop((waits, item));
    let (ended, has_ended) = crossbeam_channel::bounded(1);
    let manager = stage.manager;
    let dropper = Worker::spawn("t-drop", move |_| {
        drop(manager);
        ended.send(()).unwrap();
    });
    let mut too_early = false;
    until(|| {
        let is_over = too_early || stage.clock.has_timeless_waiter();
        too_early |= !is_over && has_ended.try_recv().is_ok();
        is_over
    });
    runs.shut_gate(false);
    dropper.unwrap().join().unwrap();
    reflector.unwrap().join().unwrap();
    assert!(!too_early, "the manager was gone before its run");
    assert!(runs.is_joined("s"));
}
