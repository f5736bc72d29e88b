//! Reads past the watch, and what comes in while their answers are on the way: the watch, lists,
//! checks, a restored server.

use k8s_openapi::api::core::v1::Secret;

use super::fake::{commit, immutable, pod, secret, with_uid};
use super::stage::{SECOND, Stage};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::list_watch::{ObjectEvent, Undecodable};
use crate::manager::ObjectReport;
use crate::manager::watch::keeper::CHECKS_MAX;
use crate::object::ObjectKey;
use crate::reflector::Sink as _;
use crate::sync::Arc;
use crate::tests::until::until;

/// An immutable object whose watch is stopped.
fn stage_at_rest() -> Stage {
    let stage = Stage::listed(Some(immutable("s", "9")));
    assert_eq!(stage.version_now("s"), 9);
    stage.runs.wait_for_join(0);
    stage
}

fn fresh(stage: &Stage, answer: Result<Secret, Error>) -> Result<String, Error> {
    stage.getter.answer(answer);
    let cached = stage.manager.get_fresh("ns", "s", Deadline::NEVER)?;
    Ok(cached.metadata.resource_version.clone().unwrap())
}

/// A fresh read during whose way something else happens.
fn overtaken(
    stage: &Stage,
    happens: impl FnOnce(),
    answer: Result<Secret, Error>,
) -> Result<String, Error> {
    let read = stage.begin("s", "").unwrap();
    happens();
    let cached = stage.complete(&read, answer)?;
    Ok(cached.metadata.resource_version.clone().unwrap())
}

fn not_found() -> Error {
    Error::not_found("secret", "s")
}

fn report(stage: &Stage) -> ObjectReport {
    let key = ObjectKey::new("ns", "s");
    stage.manager.inspect_object(&key).unwrap()
}

/// R11, B7: a stopped immutable object has no watch, so a fresh read that finds it gone starts one
/// again.
#[test]
fn a_fresh_read_that_finds_an_immutable_object_gone_has_it_watched_again() {
    let stage = stage_at_rest();
    assert!(fresh(&stage, Err(not_found())).unwrap_err().is_not_found());
    assert!(report(&stage).watched);
    assert_eq!(stage.runs.count(), 2);
    stage
        .runs
        .list("s", "30", Some(with_uid(secret("s", "29"), "again")))
        .unwrap();
    assert_eq!(stage.version_now("s"), 29);
}

/// The age of what a read past the watch has found counts from the start of its request.
#[test]
fn the_age_of_a_fresh_read_counts_from_the_start_of_its_request() {
    for stage in [Stage::listed(Some(secret("s", "9"))), stage_at_rest()] {
        stage.clock.advance(SECOND);
        let read = stage.begin("s", "").unwrap();
        stage.clock.advance(SECOND);
        let found = immutable("s", "11");
        let cached = stage.complete(&read, Ok(found)).unwrap();
        assert_eq!(cached.age(), SECOND);
        assert_eq!(stage.get_now("s").unwrap().age(), SECOND);
        assert_eq!(report(&stage).since_contact, Some(SECOND));
    }
}

/// R11, B7: the same for another object, and for one that is not immutable, which the API forbids
/// but a server may say.
#[test]
fn a_fresh_read_that_finds_another_object_has_it_watched_again() {
    for found in [
        with_uid(secret("s", "20"), "other"),
        with_uid(immutable("s", "20"), "other"),
        secret("s", "20"),
    ] {
        let stage = stage_at_rest();
        assert_eq!(fresh(&stage, Ok(found)).unwrap(), "20");
        assert!(report(&stage).watched);
        stage
            .runs
            .list("s", "21", Some(with_uid(secret("s", "21"), "other")))
            .unwrap();
        assert_eq!(stage.version_now("s"), 21);
    }
}

/// R11, B7: a fresh read that finds the same immutable object is its check; nothing is started.
#[test]
fn a_fresh_read_that_finds_the_same_immutable_object_starts_nothing() {
    let stage = stage_at_rest();
    assert_eq!(fresh(&stage, Ok(immutable("s", "9"))).unwrap(), "9");
    assert_eq!(stage.runs.count(), 1);
    stage
        .getter
        .answer(Err(Error::new(ErrorKind::Protocol, "refused")));
    stage.manager.register_pod(&pod("q", &["s"]));
    stage.getter.wait_for_asked(2);
    let cached = stage.manager.get("ns", "s").unwrap();
    assert!(cached.is_stale(), "the check failed");
    assert_eq!(fresh(&stage, Ok(immutable("s", "9"))).unwrap(), "9");
    let cached = stage.get_now("s").unwrap();
    assert!(!cached.is_stale() && cached.last_error().is_none());
    assert_eq!(stage.runs.count(), 1);
}

/// R11, B18: an object that the watch saw deleted while the answer was on its way stays deleted.
#[test]
fn an_answer_that_was_overtaken_does_not_bring_a_deleted_object_back() {
    let stage = Stage::listed(Some(secret("s", "9")));
    let deleted = || stage.runs.deleted(secret("s", "11"));
    let answer = overtaken(&stage, deleted, Ok(secret("s", "9")));
    assert!(answer.unwrap_err().is_not_found());
    assert!(stage.get_now("s").unwrap_err().is_not_found());
    let deleted = || stage.runs.deleted(secret("s", "13"));
    let later = overtaken(&stage, deleted, Ok(secret("s", "14")));
    assert!(
        later.unwrap_err().is_not_found(),
        "that uid is gone for good"
    );
}

/// R11, B18: nor does it take the place of a newer state, one that does not decode included; a
/// newer answer does.
#[test]
fn an_answer_that_was_overtaken_replaces_nothing_newer() {
    let stage = Stage::listed(Some(secret("s", "9")));
    let modified = || stage.runs.modified(secret("s", "12"));
    assert_eq!(
        overtaken(&stage, modified, Ok(secret("s", "11"))).unwrap(),
        "12"
    );
    assert_eq!(stage.version_now("s"), 12);
    let modified = || stage.runs.modified(secret("s", "14"));
    assert_eq!(
        overtaken(&stage, modified, Ok(secret("s", "15"))).unwrap(),
        "15"
    );
    assert_eq!(stage.version_now("s"), 15);
    let set_aside = || {
        let event = ObjectEvent::updated(Undecodable {
            key: ObjectKey::new("ns", "s"),
            uid: "uid-s".to_owned(),
            resource_version: "17".into(),
            error: Error::new(ErrorKind::Undecodable, "data.key: not base64"),
        });
        stage.runs.write(0, |writer| writer.apply(event).unwrap());
    };
    let answer = overtaken(&stage, set_aside, Ok(secret("s", "16")));
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Undecodable);
    let read = stage.get_now("s").unwrap_err();
    assert_eq!(read.kind(), ErrorKind::Undecodable);
}

/// R11, B18: `NotFound` is said of the object that was held when it was asked for, not of the one
/// made since.
#[test]
fn a_not_found_that_was_overtaken_does_not_hide_a_new_object() {
    let stage = Stage::listed(None);
    let made = || stage.runs.modified(secret("s", "11"));
    let answer = overtaken(&stage, made, Err(not_found()));
    assert!(answer.unwrap_err().is_not_found());
    assert_eq!(stage.version_now("s"), 11);
    stage.runs.modified(secret("s", "12"));
    stage.runs.list("s", "13", Some(secret("s", "12"))).unwrap();
    let made = || stage.runs.modified(with_uid(secret("s", "15"), "again"));
    let answer = overtaken(&stage, made, Err(not_found()));
    assert!(answer.unwrap_err().is_not_found());
    assert_eq!(stage.version_now("s"), 15);
    let modified = || stage.runs.modified(with_uid(secret("s", "16"), "again"));
    let answer = overtaken(&stage, modified, Err(not_found()));
    assert!(answer.unwrap_err().is_not_found());
    assert!(
        stage.get_now("s").unwrap_err().is_not_found(),
        "it was held, so it is gone"
    );
}

/// B18: a consistent read is always accepted, so a server whose history was put back is followed.
#[test]
fn a_fresh_read_follows_a_server_that_was_put_back() {
    let stage = Stage::listed(None);
    stage
        .runs
        .list("s", "1000", Some(secret("s", "900")))
        .unwrap();
    assert_eq!(fresh(&stage, Ok(secret("s", "50"))).unwrap(), "50");
    assert_eq!(stage.version_now("s"), 50);
    stage.runs.modified(secret("s", "51"));
    assert_eq!(stage.version_now("s"), 51);
    stage.runs.deleted(secret("s", "52"));
    assert_eq!(fresh(&stage, Ok(secret("s", "40"))).unwrap(), "40");
}

/// B18: an unchanged object may be older than the last bookmark; that puts nothing back.
#[test]
fn a_fresh_read_of_an_unchanged_object_lowers_no_version() {
    let stage = Stage::listed(Some(secret("s", "9")));
    stage.runs.write(0, |writer| writer.bookmark(&"20".into()));
    assert_eq!(fresh(&stage, Ok(secret("s", "9"))).unwrap(), "9");
    stage.runs.modified(secret("s", "15"));
    assert_eq!(stage.version_now("s"), 9, "older than the bookmark");
}

/// R11, B18: a list that was begun before a fresh read does not take its readers back, however it
/// was read.
#[test]
fn a_list_that_was_begun_before_a_fresh_read_does_not_go_back_behind_it() {
    let stage = Stage::listed(Some(secret("s", "9")));
    for (answer, version) in [(Ok(secret("s", "101")), "100"), (Err(not_found()), "110")] {
        let gone = answer.is_err();
        let refused = stage.runs.write(0, |writer| {
            let staging = writer.begin();
            drop(fresh(&stage, answer));
            super::fake::commit_into(writer, staging, version, Some(secret("s", "90")), true)
        });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(stage.get_now("s").is_err(), gone);
    }
    let listed = stage.runs.write(0, |writer| {
        commit(writer, "90", Some(secret("s", "89")), true)
    });
    listed.unwrap();
    assert_eq!(
        stage.version_now("s"),
        89,
        "begun after it, and the server was put back"
    );
}

/// B7: the check of an object that was let go while it waited its turn is not sent.
#[test]
fn the_check_of_what_was_let_go_meanwhile_is_not_sent() {
    let stage = Stage::by_hand();
    let others: Vec<String> = (0..CHECKS_MAX).map(|number| format!("s{number}")).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    stage.manager.register_pod(&pod("p", &others));
    stage.manager.register_pod(&pod("r", &["t"]));
    for name in others.iter().chain(&["t"]) {
        let object = Some(immutable(name, "9"));
        stage.runs.list(name, "10", object).unwrap();
        assert_eq!(stage.version_now(name), 9);
    }
    stage.manager.register_pod(&pod("q", &others));
    stage.getter.wait_for_asked(CHECKS_MAX);
    stage.manager.register_pod(&pod("u", &["t"]));
    stage.manager.unregister_pod(&pod("r", &[]));
    stage.manager.unregister_pod(&pod("u", &[]));
    for _ in others {
        let failure = Error::new(ErrorKind::Unreachable, "no route");
        stage.getter.answer(Err(failure));
    }
    until(|| !stage.manager.store().keeper().is_at_work());
    assert_eq!(stage.getter.asked(), CHECKS_MAX);
}

/// B6, promise 4: a check that is decided on while the manager goes starts no thread that would
/// outlive it.
#[test]
fn a_checker_that_was_ended_starts_no_thread() {
    let stage = Stage::listed(Some(secret("s", "9")));
    let checks = Arc::clone(stage.manager.store().keeper());
    let item = stage.entry("s");
    checks.close_checks();
    checks.check(&item);
    drop(item);
    drop(stage.manager);
    assert_eq!(Arc::strong_count(&checks), 1, "no thread holds the checks");
}

/// B19, promise 5: what only writers need is in no cache, whichever way the object came; another
/// annotation is.
#[test]
fn fresh_reads_and_checks_are_trimmed() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let untrimmed = |version| {
        let mut secret = immutable("s", version);
        secret.metadata.managed_fields = Some(Vec::default());
        let applied = (LAST.to_owned(), "canary".to_owned());
        let other = ("owner".to_owned(), "me".to_owned());
        secret.metadata.annotations = Some([applied, other].into());
        secret
    };
    let assert_trimmed = |secret: &Secret| {
        assert_eq!(secret.metadata.managed_fields, None);
        let annotations = secret.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), ["owner"]);
    };
    let stage = stage_at_rest();
    stage.getter.answer(Ok(untrimmed("12")));
    let fresh = stage.manager.get_fresh("ns", "s", Deadline::NEVER);
    assert_trimmed(&fresh.unwrap());
    assert_trimmed(&stage.get_now("s").unwrap());
    stage.getter.answer(Ok(untrimmed("13")));
    stage.manager.register_pod(&pod("q", &["s"]));
    let checked = stage.manager.get("ns", "s").unwrap();
    assert_eq!(checked.metadata.resource_version.as_deref(), Some("13"));
    assert_trimmed(&checked);
}
