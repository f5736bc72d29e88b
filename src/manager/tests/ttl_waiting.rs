//! The TTL store: who waits for whom and until when, reads past the cache, and the end of it all.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::fake::secret;
use super::stage::{
    FIRST_BACKOFF, MINUTE, PATIENCE, Stage, failed, in_parallel, less, millis, refused, seconds,
    unavailable, version,
};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::list_watch::Getter;
use crate::manager::report::ObjectState;
use crate::manager::{ChangeDetection, Changed};
use crate::object::{ObjectKey, ResourceVersion, Status, StoredObject};
use crate::sync::{Arc, Mutex};
use crate::testing::FakeSource;
use crate::worker::StopToken;

const WORDS: &str = "failed to sync secret cache: timed out waiting for the condition";

/// OC-9's words with B2: nothing cached, no answer by the deadline.
#[test]
fn b17_a_deadline_with_nothing_cached_says_what_was_waited_for() {
    let stage = Stage::with_secret();
    stage.hang_next();
    std::thread::scope(|scope| {
        let readers = in_parallel(scope, &stage, &["s", "s"]);
        stage.clock.wait_for_parked(2);
        stage.clock.advance(PATIENCE);
        for reader in readers {
            let error = reader.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotSynced);
            assert!(error.to_string().starts_with(WORDS), "{error}");
            assert!(error.to_string().contains("10.0s"), "{error}");
        }
    });
    let report = stage.inspect("s");
    assert_eq!((report.state, report.attempts), (ObjectState::Waiting, 1));
    assert!(
        stage.get("s").is_err(),
        "it was given its time: that was a failure"
    );
    assert_eq!(stage.requests(), 1);
    stage.clock.advance(FIRST_BACKOFF);
    stage.get("s").unwrap();
}

/// B17: a deadline that passes gives what is cached, with its age and why it is not fresh.
#[test]
fn b17_a_deadline_gives_what_is_cached() {
    let stage = Stage::with_secret();
    let first = stage.version("s");
    stage.expire();
    stage.hang_next();
    std::thread::scope(|scope| {
        let readers = in_parallel(scope, &stage, &["s", "s"]);
        stage.clock.wait_for_parked(2);
        stage.clock.advance(PATIENCE);
        for reader in readers {
            let kept = reader.join().unwrap().unwrap();
            assert_eq!(version(&kept), first);
            assert!(kept.is_stale());
            assert_eq!(kept.age(), MINUTE + PATIENCE);
            let failure = kept.last_error().unwrap();
            assert!(failure.to_string().starts_with(WORDS), "{failure}");
        }
    });
}

/// OC-10's answer outlives a deadline as it outlives a failure (OS-14).
#[test]
fn b17_a_deadline_gives_the_absence_that_is_cached() {
    let stage = Stage::caching().start();
    stage.add("s", "pod");
    stage.get("s").unwrap_err();
    let error = stage.get_by("s", stage.now()).unwrap_err();
    assert!(error.is_not_found());
    assert!(
        std::error::Error::source(&error)
            .unwrap()
            .to_string()
            .starts_with(WORDS)
    );
    assert_eq!(stage.requests(), 1);
}

/// A hit wins over a deadline that has passed; a fetch is not begun by one.
#[test]
fn os_6_a_hit_wins_over_a_deadline_that_has_passed() {
    let stage = Stage::with_secret();
    let error = stage.get_by("s", stage.now()).unwrap_err();
    assert!(error.to_string().starts_with(WORDS), "{error}");
    assert_eq!(stage.requests(), 0);
    let first = stage.version("s");
    assert_eq!(version(&stage.get_by("s", stage.now()).unwrap()), first);
    stage.clock.advance(less(MINUTE, Duration::from_nanos(1)));
    let late = stage.get_by("s", stage.now()).unwrap();
    assert!(!late.is_stale(), "found on the exact way");
    stage.clock.advance(Duration::from_nanos(1));
    assert!(stage.get_by("s", stage.now()).unwrap().is_stale());
    assert_eq!(stage.requests(), 1);
}

/// A reader in a hurry fetches, and gives up. A reader with more time takes over, and no reader
/// gets that as a failure.
#[test]
fn b17_a_hasty_leader_hands_its_fetch_over() {
    let stage = Stage::with_secret();
    stage.hang_next();
    std::thread::scope(|scope| {
        let hasty = Deadline::at(stage.clock.now().checked_add(millis(200)).unwrap());
        let hasty = scope.spawn({
            let stage = &stage;
            move || stage.get_by("s", hasty)
        });
        stage.clock.wait_for_parked(1);
        let patient = in_parallel(scope, &stage, &["s", "s"]);
        stage.clock.wait_for_parked(3);
        stage.clock.advance(millis(200));
        let error = hasty.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSynced);
        assert_eq!(error.attempts(), 1);
        for reader in patient {
            reader.join().unwrap().unwrap();
        }
    });
    assert_eq!(stage.requests(), 2, "one of the two took over");
    assert_eq!(stage.inspect("s").attempts, 0);
}

/// The same without a waiting reader: the next reader asks at once.
#[test]
fn b17_a_fetch_that_was_given_no_time_is_no_failure() {
    let stage = Stage::with_secret();
    stage.hang_next();
    std::thread::scope(|scope| {
        let hasty = Deadline::at(stage.clock.now().checked_add(millis(999)).unwrap());
        let hasty = scope.spawn({
            let stage = &stage;
            move || stage.get_by("s", hasty)
        });
        stage.clock.wait_for_parked(1);
        stage.clock.advance(millis(999));
        hasty.join().unwrap().unwrap_err();
    });
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 2);
}

/// A leader that was given its time hands over as well, though its failure has begun a backoff for
/// others.
#[test]
fn b17_a_follower_with_more_time_takes_over_within_the_backoff() {
    let stage = Stage::with_secret();
    stage.hang_next();
    stage.hang_next();
    std::thread::scope(|scope| {
        let first = in_parallel(scope, &stage, &["s"]);
        stage.clock.wait_for_parked(1);
        stage.clock.advance(seconds(5));
        let second = in_parallel(scope, &stage, &["s"]);
        stage.clock.wait_for_parked(2);
        stage.clock.advance(seconds(5));
        for reader in first {
            reader.join().unwrap().unwrap_err();
        }
        stage.source.wait_for_requests(2);
        let third = in_parallel(scope, &stage, &["s"]);
        stage.clock.wait_for_parked(2);
        stage.source.heal();
        for reader in second.into_iter().chain(third) {
            reader.join().unwrap().unwrap();
        }
    });
    assert_eq!(stage.requests(), 2);
}

/// B17: an absence and a failure are shared by those who waited for the fetch.
#[test]
fn b17_failures_are_shared() {
    for (kind, state) in [
        (ErrorKind::NotFound, ObjectState::NotFound),
        (ErrorKind::Undecodable, ObjectState::Undecodable),
    ] {
        let stage = Stage::with_secret();
        stage.hang_next();
        std::thread::scope(|scope| {
            let readers = in_parallel(scope, &stage, &["s", "s", "s"]);
            stage.clock.wait_for_parked(3);
            if kind == ErrorKind::NotFound {
                stage.source.delete("ns", "s").unwrap();
            } else {
                stage.source.set_undecodable("ns", "s");
            }
            stage.source.heal();
            for reader in readers {
                assert_eq!(reader.join().unwrap().unwrap_err().kind(), kind);
            }
        });
        assert_eq!(stage.requests(), 1);
        assert_eq!(stage.inspect("s").state, state);
    }
}

/// A getter that panics once, after its first answer came.
struct PanicsOnce {
    source: FakeSource<Secret>,
    panicked: Mutex<bool>,
}

impl Getter<Secret> for PanicsOnce {
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<Secret>>, Error> {
        let answer = self.source.get(key, version, deadline, stop);
        let panicked = std::mem::replace(&mut *self.panicked.lock(), true);
        assert!(panicked, "made so for a test");
        answer
    }
}

/// A leader whose getter panics strands no reader: that is a failure like any other, and shared.
#[test]
fn os_5_a_getter_that_panics_is_a_failure_of_the_fetch() {
    let stage = Stage::caching().over(|source| {
        let (source, panicked) = (source.clone(), Mutex::new(false));
        Arc::new(PanicsOnce { source, panicked })
    });
    stage.set("s");
    stage.add("s", "pod");
    stage.hang_next();
    std::thread::scope(|scope| {
        let leader = in_parallel(scope, &stage, &["s"]);
        stage.clock.wait_for_parked(1);
        let follower = in_parallel(scope, &stage, &["s"]);
        stage.clock.wait_for_parked(2);
        stage.source.heal();
        for reader in leader.into_iter().chain(follower) {
            let error = reader.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Panicked);
            let text = "the getter of secret ns/s panicked: made so for a test";
            assert_eq!(error.to_string(), text);
        }
    });
    assert_eq!(stage.requests(), 1, "it backs off");
    stage.clock.advance(FIRST_BACKOFF);
    stage.get("s").unwrap();
}

/// R4: a refusal is given at once; in the report it is an answer once refusals have lasted.
#[test]
fn r4_a_refusal_is_an_answer_in_the_report_after_three_seconds() {
    let stage = Stage::with_secret();
    for pause in [FIRST_BACKOFF, seconds(2), seconds(1)] {
        stage.fail_next(refused());
        assert_eq!(stage.get("s").unwrap_err().kind(), ErrorKind::Forbidden);
        let report = stage.inspect("s");
        assert_eq!(report.state, ObjectState::Waiting, "{report:?}");
        assert!(report.reason.contains("forbidden"), "{}", report.reason);
        stage.clock.advance(pause);
    }
    stage.fail_next(refused());
    stage.get("s").unwrap_err();
    assert_eq!(stage.inspect("s").state, ObjectState::Forbidden);
    stage.clock.advance(seconds(1));
    stage.fail_next(unavailable());
    stage.get("s").unwrap_err();
    assert_eq!(stage.inspect("s").state, ObjectState::Waiting);
}

/// B12: as with a watch, a read says that the object does not decode; the last good copy is there
/// for who asks. Seen:
/// the old copy was given for ever.
#[test]
fn b12_an_object_that_does_not_decode_any_more_is_said_to_be() {
    let stage = Stage::with_secret();
    let first = stage.version("s");
    stage.source.set_undecodable("ns", "s");
    stage.expire();
    assert_eq!(stage.get("s").unwrap_err().kind(), ErrorKind::Undecodable);
    assert_eq!(stage.inspect("s").state, ObjectState::Undecodable);
    let copy = stage.get_cached("s").unwrap();
    assert_eq!(version(&copy), first);
    assert!(copy.is_stale());
    assert_eq!(copy.last_error().unwrap().kind(), ErrorKind::Undecodable);
    stage.fail_next(unavailable());
    stage.clock.advance(FIRST_BACKOFF);
    let error = stage.get("s").unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Undecodable,
        "a failure changes nothing"
    );
    let error = stage.get_by("s", stage.now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Undecodable, "nor does a deadline");
    assert_eq!(stage.inspect("s").state, ObjectState::Undecodable);
    let mended = stage.set("s");
    stage.expire();
    assert_eq!(stage.version("s"), mended);
    assert!(stage.get_cached("s").unwrap().last_error().is_none());
}

/// B12: a read past the cache that finds it so is not taken back by what was cached before.
#[test]
fn b12_a_fresh_read_that_does_not_decode_is_the_word_of_later_reads() {
    let stage = Stage::with_secret();
    stage.version("s");
    stage.source.set_undecodable("ns", "s");
    let error = stage.get_fresh("s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Undecodable);
    assert_eq!(stage.get("s").unwrap_err().kind(), ErrorKind::Undecodable);
}

/// Reads the object in memory, whatever its age, at once.
#[test]
fn b17_what_is_cached_can_be_read_at_any_age() {
    let stage = Stage::with_secret();
    assert!(stage.get_cached("s").is_none());
    stage.get("s").unwrap();
    let young = stage.get_cached("s").unwrap();
    assert!(!young.is_stale());
    stage.clock.advance(60 * MINUTE);
    let old = stage.get_cached("s").unwrap();
    assert!(old.is_stale());
    assert_eq!(old.age(), 60 * MINUTE);
    assert_eq!(stage.requests(), 1);
    stage.fail_next(unavailable());
    stage.get("s").unwrap();
    let failed = stage.get_cached("s").unwrap();
    assert_eq!(failed.last_error().unwrap().cause(), unavailable().cause());
}

/// B19: what is fetched is trimmed as what is watched.
#[test]
fn b19_what_is_fetched_is_trimmed() {
    let stage = Stage::caching().start();
    let mut fat = secret("s", "");
    fat.metadata.managed_fields = Some(vec![meta::ManagedFieldsEntry::default()]);
    stage.source.set(fat);
    stage.add("s", "pod");
    assert!(stage.get("s").unwrap().metadata.managed_fields.is_none());
    assert!(
        stage
            .get_fresh("s")
            .unwrap()
            .metadata
            .managed_fields
            .is_none()
    );
}

/// R11: a fresh read asks at once, also within the time to live and the backoff, and is fresh for
/// everybody.
#[test]
fn r11_a_fresh_read_is_stored_with_its_time() {
    let stage = Stage::with_secret();
    let first = stage.version("s");
    let second = stage.set("s");
    stage.clock.advance(seconds(30));
    assert_eq!(stage.version("s"), first);
    assert_eq!(version(&stage.get_fresh("s").unwrap()), second);
    stage.clock.advance(seconds(59));
    assert_eq!(stage.version("s"), second);
    assert_eq!(stage.asked(), ["", ""]);
    stage.expire();
    stage.fail_next(unavailable());
    assert!(stage.get("s").unwrap().is_stale());
    assert!(
        !stage.get_fresh("s").unwrap().is_stale(),
        "within the backoff"
    );
    assert!(!stage.get("s").unwrap().is_stale());
    stage.source.delete("ns", "s");
    assert!(stage.get_fresh("s").unwrap_err().is_not_found());
    assert!(stage.get_cached("s").is_none(), "stored");
}

/// R11: a fresh read that fails is its caller's own; others are told when they look.
#[test]
fn r11_a_fresh_read_that_fails_is_not_stored() {
    let stage = Stage::with_secret();
    stage.get("s").unwrap();
    stage.fail_next(refused());
    stage.get_fresh("s").unwrap_err();
    let kept = stage.get("s").unwrap();
    assert!(!kept.is_stale());
    assert!(kept.last_error().is_some());
    stage.expire();
    stage.fail_next(refused());
    stage.get_fresh("s").unwrap_err();
    assert!(!stage.get("s").unwrap().is_stale(), "no backoff");
    stage.expire();
    // Its deadline comes before the end of the wait.
    stage.fail_next(unavailable().with_retry_after(seconds(11)));
    stage.get_fresh("s").unwrap_err();
    assert!(
        stage.get("s").unwrap().is_stale(),
        "the server wants its pause"
    );
    assert_eq!(stage.requests(), 5);
}

/// R11: cached reads do not go back behind a fresh one, whatever a cache of the server's that lags
/// says.
#[test]
fn r11_cached_reads_do_not_go_back_behind_a_fresh_one() {
    let stage = Stage::with_secret();
    let before = stage.source.version() - 1;
    let first = stage.version("s");
    let second = stage.set("s");
    assert_eq!(version(&stage.get_fresh("s").unwrap()), second);
    stage.source.lag(Some(first));
    stage.expire();
    assert_eq!(stage.version("s"), second);
    assert_eq!(stage.version("s"), second);
    stage.source.lag(Some(before));
    stage.expire();
    let kept = stage.get("s").unwrap();
    assert_eq!(version(&kept), second, "the absence was confirmed first");
    assert_eq!(stage.asked(), ["", "", "0", "", "0", ""]);
}

/// OS-11, B18: an absence out of a cache of the server's that lags takes back nothing that a plain
/// read has given.
#[test]
fn os_11_an_absence_out_of_the_servers_cache_is_confirmed_once_while_an_object_is_held() {
    let stage = Stage::with_secret();
    let before = stage.source.version() - 1;
    let first = stage.version("s");
    stage.source.lag(Some(before));
    stage.expire();
    let kept = stage.get("s").unwrap();
    assert_eq!(version(&kept), first);
    assert!(!kept.is_stale(), "the server has confirmed it");
    assert_eq!(stage.asked(), ["", "0", ""]);
    stage.source.delete("ns", "s").unwrap();
    stage.expire();
    assert!(stage.get("s").unwrap_err().is_not_found());
    assert_eq!(stage.asked().len(), 5, "an end is confirmed once");
    assert!(stage.get("s").unwrap_err().is_not_found());
    assert_eq!(stage.asked().len(), 6, "and nothing is left to confirm");
}

/// R11: a fresh read that crosses a shared fetch wins over it, if it is newer; who waits takes it.
#[test]
fn r11_a_fresh_read_serves_those_who_wait_for_a_fetch() {
    let stage = Stage::with_secret();
    stage.get("s").unwrap();
    stage.expire();
    stage.hang_next();
    std::thread::scope(|scope| {
        let leader = in_parallel(scope, &stage, &["s"]);
        stage.clock.wait_for_parked(1);
        let follower = in_parallel(scope, &stage, &["s"]);
        stage.clock.wait_for_parked(2);
        let second = stage.set("s");
        assert_eq!(version(&stage.get_fresh("s").unwrap()), second);
        for reader in follower {
            assert_eq!(version(&reader.join().unwrap().unwrap()), second);
        }
        stage.source.lag(Some(second - 1));
        stage.source.heal();
        for reader in leader {
            assert_eq!(version(&reader.join().unwrap().unwrap()), second);
        }
    });
    assert!(!stage.get("s").unwrap().is_stale());
    assert_eq!(stage.requests(), 3);
}

/// OS-17: a fresh read from before a new reference is answered and not stored.
#[test]
fn os_17_a_fresh_read_from_before_a_new_reference_is_stored_for_nobody() {
    let stage = Stage::with_secret();
    stage.hang_next();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| stage.get_fresh("s"));
        stage.clock.wait_for_parked(1);
        stage.add("s", "other");
        stage.source.heal();
        reader.join().unwrap().unwrap();
    });
    assert!(stage.get_cached("s").is_none());
}

/// R11: what is fresh and has come that far is given; else the server is asked for that version.
#[test]
fn r11_a_read_of_a_state_not_older_than_a_version() {
    let stage = Stage::with_secret();
    let first = stage.version("s");
    let text = |version: u64| version.to_string();
    assert_eq!(
        version(&stage.get_at_least("s", &text(first)).unwrap()),
        first
    );
    assert_eq!(stage.requests(), 1, "it is in memory");
    let later = stage.set("t");
    stage.source.lag(Some(first));
    assert_eq!(
        version(&stage.get_at_least("s", &text(later)).unwrap()),
        first
    );
    assert_eq!(
        version(&stage.get_at_least("s", &text(later)).unwrap()),
        first
    );
    assert_eq!(stage.asked(), ["", &text(later)], "that far is known now");
    stage.expire();
    assert!(!stage.get("s").unwrap().is_stale());
    assert_eq!(
        stage.inspect("s").refused,
        0,
        "the same version goes back behind nothing"
    );
    let second = stage.set("s");
    assert_eq!(
        version(&stage.get_at_least("s", &text(second)).unwrap()),
        second
    );
    assert_eq!(stage.version("s"), second);
    let gone = stage.source.delete("ns", "s").unwrap();
    let error = stage.get_at_least("s", &text(gone)).unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(stage.inspect("s").state, ObjectState::NotFound);
    stage.source.lag(Some(second));
    let before = stage.requests();
    stage.get("s").unwrap_err();
    assert_eq!(stage.asked().get(before).map(String::as_str), Some(""));
}

/// R11: a malformed version is its caller's mistake, and no failure for other readers.
#[test]
fn r11_a_version_that_is_none_is_its_callers_mistake() {
    let stage = Stage::with_secret();
    stage.get("s").unwrap();
    let status = Status::from(meta::Status {
        reason: Some("BadRequest".to_owned()),
        message: Some("invalid resource version".to_owned()),
        ..meta::Status::default()
    });
    stage.fail_next(Error::from_status(status));
    let error = stage.get_at_least("s", "odd").unwrap_err();
    let told = "get secret ns/s: invalid resource version";
    assert_eq!(error.to_string(), told);
    assert!(stage.get("s").unwrap().last_error().is_none());
    assert_eq!(stage.inspect("s").attempts, 0);
}

/// R11: a version the server has not come to yet is waited for, and another reader's fetch may
/// bring it first.
#[test]
fn r11_a_version_that_another_read_brings_ends_the_wait() {
    let stage = Stage::with_secret();
    stage.get("s").unwrap();
    let next = stage.source.version() + 1;
    std::thread::scope(|scope| {
        let text = next.to_string();
        let reader = scope.spawn({
            let stage = &stage;
            move || stage.get_at_least("s", &text)
        });
        stage.clock.wait_for_timer(millis(50));
        stage.set("s");
        stage.get_fresh("s").unwrap();
        assert_eq!(version(&reader.join().unwrap().unwrap()), next);
    });
    assert_eq!(stage.requests(), 3);
}

/// A shutdown ends what is under way and serves what is fresh; nothing is fetched after it.
#[test]
fn os_5_a_shutdown_ends_the_fetches() {
    let stage = Stage::with_secret();
    stage.set("t");
    stage.add("t", "pod");
    stage.get("t").unwrap();
    stage.hang_next();
    stage.hang_next();
    std::thread::scope(|scope| {
        let readers = in_parallel(scope, &stage, &["s", "s"]);
        stage.clock.wait_for_parked(2);
        let fresh = scope.spawn(|| stage.get_fresh("s"));
        // The second request that hangs is its alone.
        stage.clock.wait_for_parked(3);
        let future = scope.spawn(|| stage.get_at_least("t", "99"));
        stage.clock.wait_for_parked(4);
        stage.manager.stop();
        for reader in readers {
            assert!(reader.join().unwrap().unwrap_err().is_stopped());
        }
        assert!(fresh.join().unwrap().unwrap_err().is_stopped());
        assert!(future.join().unwrap().unwrap_err().is_stopped());
    });
    let requests = stage.requests();
    assert!(stage.get("s").unwrap_err().is_stopped());
    assert!(stage.get_fresh("s").unwrap_err().is_stopped());
    stage.get("t").unwrap();
    stage.expire();
    assert!(stage.get("t").unwrap_err().is_stopped());
    assert!(stage.get_cached("t").is_some());
    assert_eq!(stage.requests(), requests);
    assert_eq!(stage.inspect("t").reason, "the manager was shut down");
}

/// Subscribers are notified of each change that readers would see: a new object, an absence, a
/// failure, a drop. They are not notified of a confirmation.
#[test]
fn subscribers_hear_of_what_changes() {
    let stage = Stage::with_secret();
    let changes = stage.manager.subscribe();
    let told = |what: &str, expected: bool| {
        let Changed::Keys(keys) = changes.take() else {
            panic!("{what}: one key fits")
        };
        assert_eq!(
            keys.contains(&ObjectKey::new("ns", "s")),
            expected,
            "{what}"
        );
    };
    told("nothing yet", false);
    stage.get("s").unwrap();
    told("the object", true);
    stage.expire();
    stage.get("s").unwrap();
    told("the same object", false);
    stage.expire();
    stage.fail_next(unavailable());
    stage.get("s").unwrap();
    told("a failure", true);
    stage.clock.advance(FIRST_BACKOFF);
    stage.get("s").unwrap();
    told("its end", true);
    stage.source.delete("ns", "s");
    stage.expire();
    stage.get("s").unwrap_err();
    told("an absence", true);
    stage.get("s").unwrap_err();
    told("the same absence", false);
    stage.add("s", "other");
    told("a drop", true);
    stage.get("s").unwrap_err();
    told("an absence again", true);
}

fn busy(wait: Duration) -> Error {
    failed(429, "storage is (re)initializing").with_retry_after(wait)
}

/// R19: a first read and those that wait for it wait as long as the server asks, and send one
/// request each time.
#[test]
fn r19_a_first_read_waits_as_the_server_asks() {
    for is_kept in [true, false] {
        let mode = if is_kept {
            ChangeDetection::Cache
        } else {
            ChangeDetection::Get
        };
        let stage = Stage::of(mode).start();
        stage.add("s", "p");
        stage.set("s");
        stage.fail_next(busy(seconds(2)));
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| stage.get("s"));
            let wait = stage.clock.wait_for_timers(1);
            assert!((seconds(2)..seconds(3)).contains(&wait), "{wait:?}");
            let follower = is_kept.then(|| scope.spawn(|| stage.get("s")));
            stage.clock.wait_for_timers(1 + usize::from(is_kept));
            assert_eq!(stage.requests(), 1);
            stage.clock.advance(wait);
            leader.join().unwrap().unwrap();
            if let Some(follower) = follower {
                follower.join().unwrap().unwrap();
            }
        });
        assert_eq!(stage.requests(), 2, "{mode:?}");
    }
}

/// R19: what is stored is the answer, and the entry's own backoff keeps the wait.
#[test]
fn r19_a_read_with_something_to_return_does_not_wait() {
    let stage = Stage::with_secret();
    stage.get("s").unwrap();
    stage.expire();
    stage.fail_next(busy(seconds(2)));
    assert!(stage.get("s").unwrap().is_stale());
    stage.clock.advance(less(seconds(2), millis(1)));
    assert!(stage.get("s").unwrap().is_stale());
    assert_eq!(stage.requests(), 2);
    stage.clock.advance(millis(1));
    assert!(!stage.get("s").unwrap().is_stale());
    assert_eq!(stage.requests(), 3);
}

/// R19: the end of the read says so, and until the wait has passed no other read asks.
#[test]
fn r19_a_wait_that_is_longer_than_the_read_may_take_is_its_error_at_once() {
    let stage = Stage::with_secret();
    stage.fail_next(busy(seconds(60)));
    let error = stage.get("s").unwrap_err();
    let told = "get secret ns/s: storage is (re)initializing: attempt 1, ";
    assert!(error.to_string().starts_with(told), "{error}");
    let told = "the server asks for a wait of 60s, and the deadline is in ";
    assert!(error.to_string().contains(told), "{error}");
    assert_eq!(error.kind(), ErrorKind::TooManyRequests);
    stage.get("s").unwrap_err();
    stage.clock.advance(less(seconds(60), millis(1)));
    stage.get("s").unwrap_err();
    assert_eq!(stage.requests(), 1);
    stage.clock.advance(millis(1));
    stage.get("s").unwrap();
}

/// R19: a fresh read waits too, and one that met a broken server is sent once more.
#[test]
fn r19_a_fresh_read_waits_and_is_sent_once_more_after_a_failure() {
    let stage = Stage::with_secret();
    stage.get("s").unwrap();
    for (error, least) in [(busy(seconds(2)), 2), (unavailable(), 0)] {
        let before = stage.requests();
        stage.fail_next(error);
        std::thread::scope(|scope| {
            let fresh = scope.spawn(|| stage.get_fresh("s"));
            let wait = stage.clock.wait_for_timers(1);
            assert_eq!(wait.as_secs(), least);
            stage.clock.advance(wait);
            fresh.join().unwrap().unwrap();
        });
        assert_eq!(stage.requests(), before + 2);
    }
}

/// R19: a reader that joins a fetch while the server makes it wait gets the server's words, also if
/// its deadline comes first.
#[test]
fn r19_a_reader_whose_deadline_comes_before_the_wait_gets_the_servers_words() {
    let stage = Stage::with_secret();
    let said = "storage is (re)initializing";
    for _ in 0..2 {
        stage.fail_next(busy(seconds(2)));
    }
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| stage.get("s"));
        for attempts in 1..=2_u32 {
            let wait = stage.clock.wait_for_timers(1);
            let follower = scope.spawn(|| {
                let deadline = Deadline::at(stage.clock.now() + millis(1));
                stage.manager.get_by("ns", "s", deadline)
            });
            stage.clock.wait_for_timers(2);
            stage.clock.advance(millis(1));
            let error = follower.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotSynced, "{error}");
            let text = error.to_string();
            assert!(text.starts_with(WORDS) && text.ends_with(said), "{text}");
            assert_eq!(error.attempts(), attempts, "{text}");
            assert_eq!(
                error.last_error().unwrap().kind(),
                ErrorKind::TooManyRequests
            );
            stage.clock.advance(less(wait, millis(1)));
        }
        leader.join().unwrap().unwrap();
    });
    assert_eq!(stage.requests(), 3);
}

/// R19: the tries before are counted once in the error of a leader whose deadline ends the last.
#[test]
fn r19_a_deadline_in_a_later_try_counts_each_try_once() {
    let stage = Stage::with_secret();
    stage.fail_next(busy(seconds(2)));
    stage.hang_next();
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| stage.get("s"));
        let wait = stage.clock.wait_for_timers(1);
        stage.clock.advance(wait);
        stage.clock.wait_for_parked(1);
        stage.clock.advance(PATIENCE);
        let error = leader.join().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (ErrorKind::NotSynced, 2));
        let text = error.to_string();
        assert!(text.contains("storage is (re)initializing"), "{text}");
    });
}

#[test]
fn r19_a_stop_ends_a_wait_that_the_server_asked_for() {
    let stage = Stage::with_secret();
    stage.fail_next(busy(seconds(2)));
    std::thread::scope(|scope| {
        let read = scope.spawn(|| stage.get("s"));
        stage.clock.wait_for_timers(1);
        stage.manager.stop();
        assert!(read.join().unwrap().unwrap_err().is_stopped());
    });
}
