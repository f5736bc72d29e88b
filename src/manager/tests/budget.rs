//! Objects that are polled since there is no room for their watches: how old an answer may be, what
//! a poll that fails or hangs does to readers, and who gets the watches.

use super::fake::{immutable, secret};
use super::stage::{MINUTE, SECOND, Stage, failed, refused, unavailable};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::manager::{Changed, ManagerOptions, ObjectState, PastLimit, WatchScope};
use crate::object::ObjectKey;
use crate::tests::until::until;

/// Half the time to live: when an object is polled again.
const INTERVAL: std::time::Duration = std::time::Duration::from_secs(30);

/// One watch, and the others are polled.
fn options(options: ManagerOptions) -> ManagerOptions {
    let options = options.watches_max(2).past_limit(PastLimit::Poll);
    options.idle_max(MINUTE.saturating_mul(600))
}

/// `w` is watched, and `p` is polled and has no answer yet.
fn crossed() -> Stage {
    let stage = Stage::watching().options(options).by_hand();
    stage.add("w", "pod");
    stage.runs.list("w", "10", Some(secret("w", "9"))).unwrap();
    stage.add("p", "pod of p");
    stage.getter.wait_for_asked(1);
    stage
}

/// The first poll has found `p` at 5.
fn polled() -> Stage {
    let stage = crossed();
    stage.getter.answer(Ok(secret("p", "5")));
    assert_eq!(stage.version("p"), 5);
    stage.clock.wait_for_timer(INTERVAL);
    stage
}

/// The second poll was sent and hangs.
fn hanging() -> Stage {
    let stage = polled();
    stage.clock.advance(INTERVAL);
    stage.getter.wait_for_asked(2);
    stage
}

/// It hangs, and the time to live is over.
fn expired() -> Stage {
    let stage = hanging();
    stage.clock.advance(INTERVAL);
    stage
}

#[test]
fn an_object_past_the_limit_is_polled_and_says_so() {
    let stage = polled();
    assert_eq!(stage.runs.count(), 1);
    let (p, w) = (stage.get_now("p").unwrap(), stage.get_now("w").unwrap());
    assert!(p.is_polled() && !p.is_stale() && !w.is_polled());
    let report = stage.inspect("p");
    assert!(report.polled && !report.watched && !report.is_overdue);
    assert_eq!(report.state, ObjectState::Synced);
    assert_eq!(report.reason, "polled: there is no room for its watch");
    let report = stage.inspect("w");
    assert!(!report.polled && report.watched);
    stage.manager.health().unwrap();
}

#[test]
fn a_poll_finds_a_change_before_the_time_to_live_is_over_and_subscribers_hear_of_it() {
    let stage = hanging();
    let changes = stage.manager.subscribe();
    assert_eq!(stage.version_now("p"), 5, "half of it is left");
    stage.getter.answer(Ok(secret("p", "7")));
    changes.signal().recv().unwrap();
    let p = [ObjectKey::new("ns", "p")].into();
    assert_eq!(changes.take(), Changed::Keys(p));
    assert_eq!(stage.version_now("p"), 7);
}

#[test]
fn a_read_past_the_time_to_live_waits_for_the_poll_until_its_deadline() {
    let stage = expired();
    let late = stage.get_now("p").unwrap();
    assert!(late.is_stale() && late.is_polled());
    assert_eq!(late.last_error().unwrap().kind(), ErrorKind::NotSynced);
    assert!(stage.get_cached("p").unwrap().is_stale());
    let reader = stage.reader(|manager| manager.get_by("ns", "p", Deadline::NEVER));
    stage.getter.answer(Ok(secret("p", "7")));
    let read = reader.answer().unwrap();
    assert!(!read.is_stale() && read.last_error().is_none());
    assert_eq!(super::stage::version(&read), 7);
}

#[test]
fn once_a_poll_has_failed_no_read_waits_and_a_later_one_heals() {
    let stage = expired();
    let reader = stage.reader(|manager| manager.get_by("ns", "p", Deadline::NEVER));
    stage.getter.answer(Err(unavailable()));
    let read = reader.answer().unwrap();
    assert!(read.is_stale());
    let status = read.last_error().unwrap().status().unwrap();
    assert_eq!(status.code(), 503);
    assert!(stage.inspect("p").reason.contains("the last poll failed"));
    // Its backoff has begun, and ends.
    stage.clock.advance(SECOND);
    stage.getter.wait_for_asked(3);
    stage.getter.answer(Ok(secret("p", "7")));
    until(|| stage.version_now("p") == 7);
    assert!(stage.get_now("p").unwrap().last_error().is_none());
}

#[test]
fn health_fails_for_a_polled_object_that_the_server_confirms_no_more() {
    let stage = expired();
    stage.manager.health().unwrap();
    stage.clock.advance(SECOND.saturating_mul(10));
    assert!(stage.manager.health().is_err());
    stage.getter.answer(Ok(secret("p", "5")));
    until(|| stage.manager.health().is_ok());
}

#[test]
fn what_a_poll_does_not_find_is_not_found() {
    let stage = crossed();
    stage.getter.answer(Err(Error::not_found("secrets", "p")));
    assert!(stage.get("p").unwrap_err().is_not_found());
    let report = stage.inspect("p");
    assert!(report.polled);
    assert_eq!(report.state, ObjectState::NotFound);
    stage.clock.wait_for_timer(INTERVAL);
    stage.clock.advance(INTERVAL);
    stage.getter.wait_for_asked(2);
    assert!(stage.get_now("p").unwrap_err().is_not_found());
    stage.getter.answer(Ok(secret("p", "7")));
    until(|| stage.get_now("p").is_ok());
}

/// B12: as with a watch, the last good state is there for `get_cached` only.
#[test]
fn b12_a_poll_that_finds_an_object_which_does_not_decode_says_so() {
    let stage = hanging();
    let error = Error::new(ErrorKind::Undecodable, "data is no map");
    stage.getter.answer(Err(error));
    until(|| stage.get_now("p").is_err());
    assert_eq!(
        stage.get_now("p").unwrap_err().kind(),
        ErrorKind::Undecodable
    );
    assert_eq!(stage.inspect("p").state, ObjectState::Undecodable);
    assert!(stage.get_cached("p").unwrap().is_stale());
}

/// R4: a refusal is an answer once it has lasted.
#[test]
fn r4_a_server_that_refuses_the_object_is_an_answer() {
    let stage = crossed();
    for attempts in 1..=2 {
        stage.getter.answer(Err(refused()));
        until(|| stage.inspect("p").attempts == attempts);
        stage.clock.advance(SECOND.saturating_mul(3));
    }
    assert_eq!(stage.inspect("p").state, ObjectState::Forbidden);
    let error = stage.get_now("p").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

/// The server's word counts more than a reader's wish.
#[test]
fn a_server_that_asks_for_a_pause_gets_it() {
    let stage = crossed();
    let asked = failed(429, "slow down").with_retry_after(SECOND.saturating_mul(20));
    stage.getter.answer(Err(asked));
    let reader = stage.reader(|manager| manager.get_by("ns", "p", Deadline::NEVER));
    stage.clock.wait_for_timer(SECOND.saturating_mul(20));
    stage.clock.advance(SECOND.saturating_mul(19));
    stage.clock.wait_for_timer(SECOND);
    assert_eq!(stage.getter.asked(), 1);
    stage.clock.advance(SECOND);
    stage.getter.answer(Ok(secret("p", "5")));
    reader.answer().unwrap();
}

#[test]
fn an_immutable_object_is_polled_once() {
    let stage = crossed();
    stage.getter.answer(Ok(immutable("p", "5")));
    assert_eq!(stage.version("p"), 5);
    let cached = stage.get_now("p").unwrap();
    assert!(!cached.is_polled());
    assert!(!stage.inspect("p").polled);
    stage.clock.advance(MINUTE);
    assert!(!stage.get_now("p").unwrap().is_stale());
    assert_eq!(stage.getter.asked(), 1);
}

/// A poll that hangs holds up neither a release nor a stop.
#[test]
fn a_poll_that_hangs_holds_nothing_up() {
    let stage = hanging();
    stage.delete("p", "pod of p");
    let error = stage.get_now("p").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotRegistered);
    stage.add("p", "pod of p");
    let reader = stage.reader(|manager| manager.get_by("ns", "p", Deadline::NEVER));
    stage.manager.shutdown(Deadline::NEVER).unwrap();
    assert!(reader.answer().unwrap_err().is_stopped());
}

/// The polled object takes the room that comes free; no read in between fails, waits or goes back.
#[test]
fn a_polled_object_is_watched_once_there_is_room() {
    let stage = polled();
    stage.delete("w", "pod");
    stage.runs.wait_for_count(2);
    assert!(stage.get_now("p").unwrap().is_polled());
    stage.runs.list("p", "20", Some(secret("p", "8"))).unwrap();
    let read = stage.get_now("p").unwrap();
    assert!(!read.is_polled() && !read.is_stale());
    assert_eq!(super::stage::version(&read), 8);
    let report = stage.inspect("p");
    assert!(report.watched && !report.polled);
    stage.clock.advance(MINUTE);
    assert!(
        !stage.get_now("p").unwrap().is_stale(),
        "a watch does not expire"
    );
}

/// B18: the poll that is on its way when the watch takes over changes nothing any more.
#[test]
fn b18_a_poll_that_comes_after_the_watch_has_taken_over_is_void() {
    let stage = hanging();
    stage.delete("w", "pod");
    stage.runs.wait_for_count(2);
    stage.runs.list("p", "20", Some(secret("p", "8"))).unwrap();
    stage.getter.answer(Ok(secret("p", "7")));
    stage.add("q", "pod");
    stage.getter.wait_for_asked(3);
    assert_eq!(stage.version_now("p"), 8);
    assert!(!stage.get_now("p").unwrap().is_polled());
}

/// A poll that began after the watch of the namespace took note of the object misses nothing,
/// though the object's own version is older than the watch.
#[test]
fn a_polled_object_goes_over_to_the_watch_of_its_namespace_with_its_next_poll() {
    let scope = WatchScope::Namespace { above: 1 };
    let stage = Stage::watching().options(|all| options(all).watches_max(3).watch_scope(scope));
    let stage = stage.by_hand();
    for name in ["a", "b"] {
        stage.add(name, "pod");
    }
    // The thread of the watch of `a`, which has ended, takes the room.
    stage.runs.hold(true);
    let listed = ["a", "b"].map(|name| secret(name, "9"));
    stage.runs.list_namespace(0, "20", listed).unwrap();
    stage.add("p", "pod");
    stage.getter.wait_for_asked(1);
    stage.runs.hold(false);
    stage.getter.answer(Ok(secret("p", "5")));
    assert!(stage.get("p").unwrap().is_polled());
    stage.clock.wait_for_timer(INTERVAL);
    stage.clock.advance(INTERVAL);
    stage.getter.answer(Ok(secret("p", "5")));
    until(|| !stage.get_now("p").unwrap().is_polled());
    stage.runs.modified_in_namespace(0, secret("p", "21"));
    assert_eq!(stage.version_now("p"), 21);
}

/// Without room for a single watch all objects are polled.
#[test]
fn a_limit_of_one_leaves_the_poller() {
    let stage = Stage::watching()
        .options(|all| options(all).watches_max(1))
        .by_hand();
    stage.add("p", "pod");
    stage.getter.answer(Ok(secret("p", "5")));
    assert!(stage.get("p").unwrap().is_polled());
    assert_eq!(stage.runs.count(), 0);
}

/// The refusal is an answer until the next poll, for an object that nobody has.
#[test]
fn b14_r4_a_polled_object_that_the_server_refuses_is_answered() {
    let (answered, failing) = (ObjectState::Forbidden, ObjectState::Refused);
    for (stage, state) in [(crossed(), answered), (hanging(), failing)] {
        for attempts in 1..=9 {
            stage.getter.answer(Err(refused()));
            until(|| stage.inspect("p").attempts == attempts);
            stage.clock.advance(INTERVAL);
        }
        assert_eq!(stage.inspect("p").state, state);
        assert_eq!(stage.manager.health().is_ok(), state == answered);
        // A server that says no more is noticed.
        stage.clock.advance(MINUTE.saturating_mul(2));
        stage.manager.health().unwrap_err();
    }
}

#[cfg(feature = "testing")]
mod over_the_fake_server {
    use super::*;
    use crate::manager::strategy::Strategy as _;
    use crate::object::Scope;
    use crate::testing::{RequestKind, SourceFault};

    fn polled_of(names: &[&str]) -> Stage {
        let stage = Stage::watching().options(options).start();
        for name in names {
            stage.set(name);
            stage.add(name, name);
            stage.get(name).unwrap();
        }
        stage
    }

    fn is_polled(stage: &Stage, name: &str) -> bool {
        stage.inspect(name).polled
    }

    /// The object that is read in more minutes has the watch, and keeps it while both are read.
    #[test]
    fn the_object_that_is_read_more_gets_the_watch() {
        let stage = polled_of(&["a", "b"]);
        assert!(!is_polled(&stage, "a") && is_polled(&stage, "b"));
        for minute in 0..6 {
            stage.clock.wait_for_timer(MINUTE);
            stage.clock.advance(INTERVAL);
            stage.get("b").unwrap();
            assert!(minute > 1 || is_polled(&stage, "b"));
            stage.clock.advance(INTERVAL);
        }
        until(|| is_polled(&stage, "a") && !is_polled(&stage, "b"));
        stage.source.wait_for_watches(1);
        for _ in 0..4 {
            stage.clock.wait_for_timer(MINUTE);
            stage.clock.advance(INTERVAL);
            stage.get("a").unwrap();
            stage.get("b").unwrap();
            stage.clock.advance(INTERVAL);
        }
        assert!(
            is_polled(&stage, "a"),
            "reads that are alike change nothing"
        );
        let at_b = stage.set("b");
        until(|| stage.version_now("b") == at_b);
    }

    /// One poll that has no answer tells the objects behind it, so that their readers do not wait.
    #[test]
    fn a_server_that_falls_silent_costs_no_reader_of_the_others_a_wait() {
        let names: Vec<String> = (0..40).map(|number| format!("s{number:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let stage = polled_of(&names);
        stage
            .source
            .plan(|request| (request.kind == RequestKind::Get).then_some(SourceFault::Hang));
        stage.clock.advance(INTERVAL);
        until(|| {
            stage
                .source
                .requests()
                .iter()
                .filter(|r| r.kind == RequestKind::Get)
                .count()
                > 39
        });
        until(|| {
            stage.clock.advance(SECOND);
            names[1..]
                .iter()
                .all(|name| stage.inspect(name).attempts > 0)
        });
        stage.clock.advance(INTERVAL);
        for name in &names[1..] {
            let read = stage.get_by(name, Deadline::NEVER).unwrap();
            assert!(read.is_stale() && read.is_polled());
            let failure = read.last_error().unwrap();
            assert_eq!(failure.kind(), ErrorKind::Timeout, "{failure}");
        }
        stage.source.heal();
        stage.clock.advance(INTERVAL);
        for name in &names {
            until(|| {
                // The next poll waits for time to pass while one is under way.
                stage.clock.advance(std::time::Duration::from_millis(1));
                !stage.get_now(name).unwrap().is_stale()
            });
        }
        // A poll tells its readers before it tells of itself.
        until(|| stage.manager.health().is_ok());
    }

    fn poll_requests(stage: &Stage) -> usize {
        let requests = stage.source.requests();
        requests
            .iter()
            .filter(|request| request.kind == RequestKind::Get)
            .count()
    }

    /// Objects whose gets hang keep no other from its turn, and are not their failure.
    #[test]
    fn polls_that_hang_cost_the_other_objects_nothing() {
        for hanging in 1..=6 {
            let names: Vec<String> = (0..60).map(|number| format!("s{number:02}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let stage = polled_of(&names);
            let (sick, healthy) = names[1..].split_at(hanging);
            let scope = |name: &&str| Scope::object(&ObjectKey::new("ns", *name));
            let hang: Vec<Scope> = sick.iter().map(scope).collect();
            stage.source.plan(move |request| {
                let is_it = hang.contains(&request.scope);
                (request.kind == RequestKind::Get && is_it).then_some(SourceFault::Hang)
            });
            let changed: Vec<u64> = healthy.iter().map(|name| stage.set(name)).collect();
            for second in 0..120 {
                stage.clock.advance(SECOND);
                let mut looks = 0_u32;
                until(|| {
                    // The next poll waits for time to pass while one hangs.
                    looks = looks.wrapping_add(1);
                    if looks.is_multiple_of(256) {
                        stage.clock.advance(std::time::Duration::from_millis(200));
                    }
                    healthy.iter().all(|name| {
                        let report = stage.inspect(name);
                        assert_eq!(report.attempts, 0, "{second}: {name}: {}", report.reason);
                        report.since_contact.unwrap() < std::time::Duration::from_secs(45)
                    })
                });
            }
            for (name, version) in healthy.iter().zip(&changed) {
                assert_eq!(stage.version_now(name), *version, "{name}");
            }
            assert!(sick.iter().all(|name| stage.inspect(name).attempts > 0));
            assert!(stage.manager.health().is_err());
            stage.source.heal();
        }
    }

    /// An object that was never answered counts as unconfirmed from its reference on.
    #[test]
    fn health_fails_for_an_object_whose_poll_never_ended() {
        let stage = polled_of(&["a"]);
        stage
            .source
            .plan(|request| (request.kind == RequestKind::Get).then_some(SourceFault::Hang));
        for name in ["b", "c", "d", "e", "f"] {
            stage.add(name, name);
        }
        until(|| poll_requests(&stage) > 0);
        stage.manager.health().unwrap();
        stage
            .clock
            .advance(MINUTE.saturating_add(SECOND.saturating_mul(10)));
        for name in ["b", "c", "d", "e", "f"] {
            until(|| stage.inspect(name).is_overdue);
        }
        assert!(stage.manager.health().is_err());
    }

    /// One connection will do while polls are answered at once.
    #[test]
    fn polls_follow_each_other_and_are_several_only_while_one_is_slow() {
        let stage = crossed();
        for name in ["q", "r", "s", "t", "u"] {
            stage.add(name, "pod");
        }
        let step = std::time::Duration::from_millis(200);
        for asked in 1..=4 {
            stage.getter.wait_for_asked(asked);
            if asked < 4 {
                stage.clock.wait_for_timer(step);
            }
            assert_eq!(stage.getter.asked(), asked);
            stage.clock.advance(step);
        }
        assert_eq!(stage.getter.asked(), 4);
    }

    #[test]
    fn the_counts_tell_watches_from_polled_objects() {
        let stage = polled_of(&["a", "b", "c"]);
        let counts = stage.manager.store().entries().state();
        assert_eq!((counts.objects, counts.watches, counts.polled), (3, 1, 2));
    }
}
