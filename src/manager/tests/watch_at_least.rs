//! Reads of the watch-based store that are not older than a version: from memory, from the server,
//! from the watch that comes that far meanwhile; and what they leave behind (R11, B18).

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;

use super::fake::{commit, immutable, pod, secret, too_large, with_uid};
use super::stage::Stage;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::object::{ObjectKey, ResourceVersion};
use crate::reflector::Sink as _;
use crate::worker::Worker;

/// An object whose watch is filled with a list at 10.
fn stage(object: Option<Secret>) -> Stage {
    let stage = Stage::listed(object);
    assert!(stage.getter.versions().is_empty());
    stage
}

fn at_least(stage: &Stage, version: &str) -> Result<String, Error> {
    let version = ResourceVersion::from(version);
    let cached = stage
        .manager
        .get_at_least("ns", "s", &version, Deadline::NEVER)?;
    assert!(!cached.is_stale());
    Ok(cached.metadata.resource_version.clone().unwrap())
}

fn not_found() -> Error {
    Error::not_found("secrets", "s")
}

/// R11: what the watch has brought so far is enough: nothing is asked. Bookmarks count, as lists
/// and events do.
#[test]
fn memory_that_has_come_so_far_answers_at_once() {
    let stage = stage(Some(secret("s", "9")));
    for version in ["8", "9", "10"] {
        assert_eq!(at_least(&stage, version).unwrap(), "9");
    }
    stage.runs.write(0, |writer| writer.bookmark(&"20".into()));
    assert_eq!(at_least(&stage, "20").unwrap(), "9");
    stage.runs.deleted(secret("s", "21"));
    assert!(at_least(&stage, "21").unwrap_err().is_not_found());
    assert_eq!(stage.getter.asked(), 0);
}

/// R11: else the server is asked once, for that version; empty and `0` mean what they mean to the
/// API.
#[test]
fn a_later_version_is_asked_of_the_server() {
    let stage = stage(Some(secret("s", "9")));
    stage.getter.answer(Ok(secret("s", "12")));
    assert_eq!(at_least(&stage, "15").unwrap(), "12");
    assert_eq!(stage.getter.versions(), ["15"]);
    stage.getter.answer(Ok(secret("s", "16")));
    assert_eq!(at_least(&stage, "").unwrap(), "16");
    assert_eq!(stage.getter.versions(), [""]);
    assert_eq!(at_least(&stage, "0").unwrap(), "16");
    let unknown = stage
        .manager
        .get_at_least("ns", "other", &"9".into(), Deadline::NEVER);
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::NotRegistered);
    assert_eq!(stage.getter.asked(), 2);
}

/// R11, B18: the answer is what cached reads give from then on, and nothing from before the version
/// takes its place.
#[test]
fn cached_reads_do_not_go_back_behind_the_answer() {
    let stage = stage(Some(secret("s", "9")));
    stage.getter.answer(Ok(secret("s", "12")));
    assert_eq!(at_least(&stage, "15").unwrap(), "12");
    assert_eq!(stage.version_now("s"), 12);
    stage.runs.modified(secret("s", "11"));
    assert_eq!(stage.version_now("s"), 12);
    let early = stage.runs.list("s", "14", Some(secret("s", "11")));
    assert_eq!(early.unwrap_err().kind(), ErrorKind::Stale);
    assert_eq!(at_least(&stage, "15").unwrap(), "12", "known by now");
    stage.runs.modified(secret("s", "16"));
    assert_eq!(stage.version_now("s"), 16);
    assert_eq!(stage.getter.asked(), 1);
}

/// R11: that there is no such object is an answer, and one that holds up to the version.
#[test]
fn that_there_is_none_is_an_answer() {
    let stage = stage(Some(secret("s", "9")));
    stage.getter.answer(Err(not_found()));
    let gone = at_least(&stage, "15").unwrap_err();
    assert_eq!(gone.cause(), "secrets \"s\" not found");
    assert!(stage.get_now("s").unwrap_err().is_not_found());
    stage.runs.modified(secret("s", "14"));
    assert!(
        stage.get_now("s").unwrap_err().is_not_found(),
        "from before"
    );
    assert!(at_least(&stage, "15").unwrap_err().is_not_found());
    stage.runs.modified(with_uid(secret("s", "16"), "again"));
    assert_eq!(stage.version_now("s"), 16);
    assert_eq!(stage.getter.asked(), 1);
}

/// R11, B18: an answer from a server behind what is known would go back, so the later version is
/// asked for.
#[test]
fn what_is_known_is_the_least_that_is_asked_for() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage
        .runs
        .list("s", "10", Some(immutable("s", "9")))
        .unwrap();
    assert_eq!(stage.version_now("s"), 9);
    stage.getter.versions();
    stage
        .getter
        .answer(Err(Error::new(ErrorKind::Protocol, "no")));
    stage.manager.register_pod(&pod("q", &["s"]));
    stage.getter.wait_for_asked(1);
    assert!(stage.manager.get("ns", "s").unwrap().is_stale());
    stage.getter.answer(Ok(immutable("s", "9")));
    assert_eq!(at_least(&stage, "5").unwrap(), "9");
    assert_eq!(stage.getter.versions(), ["", "10"], "the check, and this");
    assert!(
        !stage.get_now("s").unwrap().is_stale(),
        "that was a check, too"
    );
    stage.runs.wait_for_join(0);
    assert_eq!(stage.runs.count(), 1);
}

/// R11: memory that no watch keeps current does not answer, however far it had come.
#[test]
fn an_idle_object_is_asked_of_the_server() {
    let stage = stage(Some(secret("s", "9")));
    for _ in 0..6 {
        stage.round();
    }
    assert!(stage.runs.is_stopped("s"));
    stage.getter.answer(Ok(secret("s", "9")));
    assert_eq!(at_least(&stage, "8").unwrap(), "9");
    assert_eq!(stage.getter.versions(), ["10"]);
}

type Act<'a> = &'a dyn Fn(&Stage);

/// Reads on a thread of its own, with a minute's time.
fn reader(
    stage: &Stage,
    version: &'static str,
) -> (crossbeam_channel::Receiver<Result<String, Error>>, Worker) {
    let (send, answer) = crossbeam_channel::bounded(1);
    let manager = stage.manager.clone();
    let now = stage.clock.now();
    let deadline = Deadline::at(now.checked_add(Duration::from_secs(60)).unwrap());
    let worker = Worker::spawn("t-at-least", move |_| {
        let found = manager.get_at_least("ns", "s", &version.into(), deadline);
        let found = found.map(|cached| cached.metadata.resource_version.clone().unwrap());
        send.send(found).unwrap();
    });
    (answer, worker.unwrap())
}

/// R11: a watch that comes so far while the server is given time ends the wait.
#[test]
fn the_watch_may_bring_it_first() {
    let bookmark = |stage: &Stage| stage.runs.write(0, |writer| writer.bookmark(&"20".into()));
    let modified = |stage: &Stage| stage.runs.modified(secret("s", "21"));
    let listed = |stage: &Stage| {
        let object = Some(secret("s", "9"));
        stage
            .runs
            .write(0, |writer| commit(writer, "20", object, false).unwrap());
    };
    let ways: [(Act<'_>, &str); 3] = [(&bookmark, "9"), (&modified, "21"), (&listed, "9")];
    for (bring, expected) in ways {
        let stage = stage(Some(secret("s", "9")));
        stage.getter.answer(Err(too_large()));
        let (answer, worker) = reader(&stage, "20");
        stage.clock.wait_for_timer(Duration::from_millis(50));
        bring(&stage);
        assert_eq!(answer.recv().unwrap().unwrap(), expected);
        worker.join().unwrap();
        assert_eq!(stage.getter.asked(), 1);
    }
}

/// R11, OC-7: so does the last reference's end, and the shutdown.
#[test]
fn the_release_and_the_shutdown_end_the_wait() {
    let release = |stage: &Stage| stage.manager.unregister_pod(&pod("p", &[]));
    let shut_down = |stage: &Stage| stage.manager.stop();
    let ways: [(Act<'_>, ErrorKind); 2] = [
        (&release, ErrorKind::NotRegistered),
        (&shut_down, ErrorKind::Stopped),
    ];
    for (end, expected) in ways {
        let stage = stage(Some(secret("s", "9")));
        stage.getter.answer(Err(too_large()));
        let (answer, worker) = reader(&stage, "20");
        stage.clock.wait_for_timer(Duration::from_millis(50));
        end(&stage);
        assert_eq!(answer.recv().unwrap().unwrap_err().kind(), expected);
        worker.join().unwrap();
        assert_eq!(stage.getter.asked(), 1);
    }
}

/// R11, B18: what the watch saw while the answer was on its way is newer; the known version is
/// not raised over it.
#[test]
fn an_answer_that_was_overtaken_raises_no_version() {
    let stage = stage(None);
    let read = stage.begin("s", "15").unwrap();
    stage.runs.modified(secret("s", "12"));
    let gone = stage.complete(&read, Err(not_found()));
    assert!(gone.unwrap_err().is_not_found(), "it was true at 15");
    assert_eq!(stage.version_now("s"), 12, "the watch is on its way there");
    stage.runs.deleted(secret("s", "14"));
    assert!(stage.get_now("s").unwrap_err().is_not_found());
}

/// OC-18: it counts as a read, so the watch goes on.
#[test]
fn a_read_not_older_than_a_version_counts_as_a_read() {
    let stage = stage(Some(secret("s", "9")));
    for _ in 0..9 {
        assert_eq!(at_least(&stage, "9").unwrap(), "9");
        stage.round();
    }
    let row = stage.manager.inspect_object(&ObjectKey::new("ns", "s"));
    assert!(row.unwrap().watched, "it was never idle");
}
