//! The effects of each relist on the cache (PL-1 to PL-5).

use super::*;
use crate::pod_status::tests::later;
use crate::pod_status::{SandboxStatus, StatusError};
use crate::sync::Arc;
use crate::tests::until::until;
use crate::{Error, ErrorKind};

fn error_text(stage: &Stage, uid: &str) -> Option<String> {
    stage.cache.get(uid).error().map(ToString::to_string)
}

#[test]
fn pl_1_the_time_of_a_relist_is_taken_before_the_runtime_is_asked() {
    let stage = Stage::new();
    stage.expect(&Asked::List);
    let asked_at = stage.now();
    stage.fake.advance(Duration::from_secs(5));
    stage.answers.send(Answer::List(list("a"))).unwrap();
    stage.found("a");
    stage.pausing();
    assert_eq!(stage.cache.global_time(), Some(asked_at));
    assert_eq!(stage.relist.last_relist(), asked_at);
}

#[test]
fn pl_1_a_list_that_fails_updates_nothing() {
    let stage = Stage::new();
    stage.answer(&Asked::List, Answer::Fail("no such socket"));
    stage.pausing();
    assert_eq!(stage.cache.get_all().len(), 0);
    assert_eq!(stage.cache.global_time(), None);
    assert_eq!(stage.relist.last_relist(), Timestamp::ZERO);

    stage.next();
    let asked_at = stage.now();
    stage.list("a c1=running");
    stage.found("a");
    stage.next();
    stage.answer(&Asked::List, Answer::Fail("no such socket"));
    stage.pausing();
    let reading = stage.cache.get("a");
    assert_eq!(
        (reading.modified_time(), reading.error().is_none()),
        (Some(asked_at), true)
    );
    assert_eq!(stage.cache.global_time(), Some(asked_at));
    assert_eq!(stage.relist.last_relist(), asked_at);
    let report = stage.relist.report();
    assert_eq!((report.relists, report.failures, report.pods), (1, 2, 1));
}

#[test]
fn pl_2_changed_pods_are_inspected_and_set_and_others_are_left_alone() {
    let stage = Stage::new();
    stage.list("a c1=running, b c2=running");
    let first = stage.now();
    stage.inspect("a", Answer::Inspect(status("a", "10.0.0.1")));
    stage.found("b");
    stage.next();
    stage.list("a c1=running, b c2=exited");
    stage.found("b");
    stage.next();
    stage.list("a c1=running, b c2=exited");
    stage.pausing();
    let (a, b) = (stage.cache.get("a"), stage.cache.get("b"));
    assert_eq!(a.modified_time(), Some(first));
    assert_eq!(a.status().unwrap().ips, ["10.0.0.1"]);
    assert_eq!(b.modified_time(), Some(later(first, PERIOD)));
}

/// Otherwise a worker that acted between the list and the inspection would take the containers of
/// the list for the result of its action.
#[test]
fn pl_2_an_entry_has_the_time_of_its_list() {
    let stage = Stage::new();
    stage.expect(&Asked::List);
    let listed = stage.now();
    stage.fake.advance(Duration::from_secs(1));
    stage.give(Answer::List(list("a, b")));
    stage.expect(&Asked::Inspect("a".to_owned()));
    stage.fake.advance(Duration::from_secs(3));
    stage.give(Answer::Inspect(status("a", "")));
    stage.found("b");
    stage.pausing();
    assert_eq!(stage.cache.get("a").modified_time(), Some(listed));
    assert_eq!(stage.cache.get("b").modified_time(), Some(listed));
}

#[test]
fn pl_2_an_inspection_that_fails_is_set_too() {
    let stage = Stage::new();
    stage.list("a c1=running");
    stage.found("a");
    stage.next();
    stage.list("a c1=exited");
    stage.inspect("a", Answer::Fail("sandbox not found"));
    stage.pausing();
    let reading = stage.cache.get("a");
    assert_eq!(
        error_text(&stage, "a").as_deref(),
        Some("sandbox not found")
    );
    assert!(reading.status().is_none());
    assert_eq!(reading.modified_time(), Some(stage.now()));
}

#[test]
fn pl_2_a_pod_that_is_gone_leaves_the_cache() {
    let stage = Stage::new();
    stage.list("a c1=running, b c2=running");
    stage.found("a");
    stage.found("b");
    stage.next();
    stage.list("b c2=running");
    stage.pausing();
    assert!(!stage.cache.get("a").is_stored());
    assert!(stage.cache.get("b").is_stored());
    stage.next();
    stage.list("");
    stage.pausing();
    assert_eq!(stage.cache.get_all().len(), 0);
}

#[test]
fn pl_3_a_failed_inspection_is_repeated_until_it_succeeds() {
    let stage = Stage::new();
    stage.list("a c1=running");
    stage.found("a");
    stage.next();
    stage.list("a c1=exited");
    stage.inspect("a", Answer::Fail("busy"));
    stage.next();
    // Unchanged since the last good inspection: only the mark causes the new one.
    stage.list("a c1=running");
    stage.inspect("a", Answer::Fail("still busy"));
    stage.pausing();
    assert_eq!(error_text(&stage, "a").as_deref(), Some("still busy"));
    assert_eq!(stage.relist.report().failing_pods, 1);
    stage.next();
    stage.list("a c1=running");
    stage.found("a");
    stage.next();
    stage.list("a c1=running");
    stage.pausing();
    assert_eq!(error_text(&stage, "a"), None);
    let report = stage.relist.report();
    assert_eq!((report.failing_pods, report.failed_inspections), (0, 2));
}

#[test]
fn pl_3_a_marked_pod_that_disappears_leaves_the_cache_uninspected() {
    let stage = Stage::new();
    stage.list("a c1=running");
    stage.inspect("a", Answer::Fail("busy"));
    stage.next();
    stage.list("");
    stage.pausing();
    assert!(!stage.cache.get("a").is_stored());
}

#[test]
fn pl_4_the_global_time_moves_behind_all_pods_also_when_inspections_failed() {
    let stage = Stage::new();
    let asked_at = stage.now();
    stage.list("a, b");
    stage.inspect("a", Answer::Fail("busy"));
    stage.expect(&Asked::Inspect("b".to_owned()));
    assert_eq!(stage.cache.global_time(), None, "not before b");
    stage.answers.send(Answer::Fail("busy")).unwrap();
    stage.pausing();
    assert_eq!(stage.cache.global_time(), Some(asked_at));
    assert_eq!(stage.relist.last_relist(), asked_at);
    assert!(stage.relist.health().is_ok());
}

#[test]
fn pl_5_a_status_without_addresses_keeps_those_in_the_cache_while_no_sandbox_is_ready() {
    let sandbox = |state| SandboxStatus {
        state,
        ..SandboxStatus::default()
    };
    let rows: [(&[SandboxState], &str, &[&str]); 6] = [
        // the new status's sandboxes, its address, what the cache then has
        (&[], "", &["10.0.0.1"]),
        (&[SandboxState::NotReady], "", &["10.0.0.1"]),
        (&[SandboxState::NotReady, SandboxState::Ready], "", &[]),
        (&[SandboxState::Ready], "", &[]),
        (&[SandboxState::NotReady], "10.0.0.2", &["10.0.0.2"]),
        (&[SandboxState::Ready], "10.0.0.2", &["10.0.0.2"]),
    ];
    for (sandboxes, ip, kept) in rows {
        let stage = Stage::new();
        stage.list("a c1=running");
        stage.inspect("a", Answer::Inspect(status("a", "10.0.0.1")));
        stage.next();
        stage.list("a c1=exited");
        let mut after = status("a", ip);
        after.sandbox_statuses = sandboxes.iter().copied().map(sandbox).collect();
        stage.inspect("a", Answer::Inspect(after));
        stage.pausing();
        let reading = stage.cache.get("a");
        assert_eq!(reading.status().unwrap().ips, kept, "{sandboxes:?} {ip:?}");
    }
}

#[test]
fn pl_5_addresses_outlive_a_failed_inspection_in_between() {
    let stage = Stage::new();
    stage.list("a c1=running");
    stage.inspect("a", Answer::Inspect(status("a", "10.0.0.1")));
    stage.next();
    for _ in 0..2 {
        stage.list("a c1=exited");
        stage.inspect("a", Answer::Fail("busy"));
        stage.next();
    }
    stage.list("a c1=exited");
    stage.found("a");
    stage.pausing();
    assert_eq!(stage.cache.get("a").status().unwrap().ips, ["10.0.0.1"]);
}

#[test]
fn pl_5_a_pod_that_comes_back_keeps_nothing_of_the_one_before() {
    let stage = Stage::new();
    stage.list("a c1=running");
    stage.inspect("a", Answer::Inspect(status("a", "10.0.0.1")));
    stage.next();
    stage.list("a c1=exited");
    stage.inspect("a", Answer::Fail("busy"));
    stage.next();
    stage.list("");
    stage.next();
    stage.list("a c2=running");
    stage.found("a");
    stage.pausing();
    assert!(stage.cache.get("a").status().unwrap().ips.is_empty());
}

#[test]
fn pc_13_a_status_that_the_cache_refuses_is_looked_for_again() {
    let fake = FakeClock::new();
    let clock = Clock::from(fake.clone());
    let cache = PodStatusCache::evented(clock.clone());
    let stage = Stage::over(cache, fake, RelistOptions::default(), false);
    stage.list("a c1=running");
    // An event that came in meanwhile is newer than the inspection's result.
    let event = later(stage.now(), PERIOD / 2);
    let newer = Some(Arc::new(status("a", "10.0.0.2")));
    assert!(stage.cache.set("a", newer, None, event));
    stage.inspect("a", Answer::Inspect(status("a", "10.0.0.1")));
    stage.pausing();
    assert_eq!(stage.cache.get("a").status().unwrap().ips, ["10.0.0.2"]);
    stage.next();
    stage.list("a c1=running");
    stage.inspect("a", Answer::Inspect(status("a", "10.0.0.3")));
    stage.next();
    stage.list("a c1=running");
    stage.pausing();
    assert_eq!(stage.cache.get("a").status().unwrap().ips, ["10.0.0.3"]);
}

#[test]
fn wp_8_the_pause_begins_at_the_end_of_a_relist() {
    let stage = Stage::new();
    stage.expect(&Asked::List);
    stage.fake.advance(Duration::from_secs(30));
    stage.answers.send(Answer::List(Vec::new())).unwrap();
    stage.pausing();
    stage.fake.advance(Duration::from_nanos(999_999_999));
    assert!(stage.asked.is_empty());
    stage.fake.advance(Duration::from_nanos(1));
    stage.list("");
    stage.pausing();
    let report = stage.relist.report();
    assert_eq!(report.last_interval, Some(Duration::from_secs(31)));
    assert_eq!(report.last_duration, Some(Duration::ZERO));
}

#[test]
fn pods_in_the_cache_from_a_loop_before_are_inspected_or_deleted() {
    let options = RelistOptions::default().close_cache(false);
    let first = Stage::with(options.clone(), false);
    first.list("a c1=running, b c2=running");
    first.found("a");
    first.found("b");
    first.pausing();
    let (cache, fake) = (first.cache.clone(), first.fake.clone());
    drop(first);
    let second = Stage::over(cache, fake, options, false);
    second.list("a c1=running");
    second.found("a");
    second.pausing();
    assert!(second.cache.get("a").is_stored());
    assert!(!second.cache.get("b").is_stored());
}

#[test]
fn pl_2_what_an_event_brought_leaves_the_cache_with_the_next_list_that_lacks_it() {
    let fake = FakeClock::new();
    let cache = PodStatusCache::evented(Clock::from(fake.clone()));
    let stage = Stage::over(cache, fake, RelistOptions::default(), false);
    let event = |uid: &str| {
        let brought = Some(Arc::new(status(uid, "")));
        assert!(stage.cache.set(uid, brought, None, stage.now()));
    };
    stage.list("a c1=running, b c2=running");
    stage.found("a");
    stage.found("b");
    stage.pausing();
    // A pod that begins and ends between two lists.
    event("short");
    stage.next();
    stage.expect(&Asked::List);
    // These lists are from before the events, so they say nothing of the pods.
    stage.fake.advance(Duration::from_nanos(1));
    event("b");
    event("new");
    stage.give(Answer::List(list("a c1=running")));
    stage.pausing();
    let cached = |uid| stage.cache.get(uid).is_stored();
    assert_eq!(
        ["a", "b", "new", "short"].map(cached),
        [true, true, true, false]
    );
    stage.next();
    stage.list("a c1=running");
    stage.pausing();
    assert_eq!(["a", "b", "new"].map(cached), [true, false, false]);
}

#[test]
fn pl_3_what_another_thread_spoiled_is_inspected_although_the_pod_looks_unchanged() {
    let stage = Stage::new();
    let pods = "a c1=running, b c2=running, c c3=running";
    stage.list(pods);
    for uid in ["a", "b", "c"] {
        stage.found(uid);
    }
    stage.pausing();
    let spoil = || {
        let failed: StatusError = Arc::new(Error::new(ErrorKind::Api, "an event failed"));
        stage.cache.set("a", None, Some(failed), stage.now());
        stage.cache.delete("b");
    };
    spoil();
    stage.next();
    stage.list(pods);
    stage.found("a");
    stage.found("b");
    stage.pausing();
    // On request, too.
    spoil();
    for (uid, served) in [("a", 1), ("b", 2), ("c", 3)] {
        assert!(stage.relist.request_relist(uid));
        stage.list(pods);
        if uid != "c" {
            stage.found(uid);
        }
        until(|| stage.relist.report().requested == served);
    }
    stage.next();
    stage.list(pods);
    stage.pausing();
    assert_eq!(error_text(&stage, "a"), None);
    assert!(stage.cache.get("b").is_stored());
}
