//! The TTL store, row by row (OS-1..OS-17, B17, B18), over a fake server and a clock that tests
//! advance.

use std::time::Duration;

use super::fake::{secret, with_uid};
use super::stage::{
    FIRST_BACKOFF, MINUTE, Stage, in_parallel, less, millis, seconds, unavailable, version,
};
use crate::manager::report::ObjectState;
use crate::object::ObjectKey;

/// OS-1..OS-4; `TestSecretStore`: counts decide which gets reach the server, and counting reaches
/// it never.
#[test]
fn os_1_to_os_4_references_decide_which_gets_reach_the_server() {
    let stage = Stage::caching().start();
    for name in ["one", "two", "three", "four"] {
        stage.set(name);
    }
    stage.add("one", "a");
    stage.add("two", "a");
    stage.add("one", "b");
    stage.add("one", "c");
    stage.delete("one", "a");
    stage.delete("two", "a");
    stage.delete("two", "a");
    stage.delete("four", "a");
    stage.add("three", "a");
    assert_eq!(stage.requests(), 0, "OS-2: references ask nothing");
    assert_eq!(stage.manager.inspect().values().flatten().count(), 3);
    stage.get("one").unwrap();
    stage.get("three").unwrap();
    assert_eq!(stage.requests(), 2);
    for name in ["two", "four"] {
        let error = stage.get(name).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("object \"ns\"/\"{name}\" not registered"),
            "OS-4"
        );
        assert!(stage.manager.get_cached("ns", name).is_err());
        assert!(stage.get_fresh(name).is_err());
        assert!(stage.get_at_least(name, "1").is_err());
        assert!(
            stage
                .manager
                .inspect_object(&ObjectKey::new("ns", name))
                .is_none()
        );
    }
    assert_eq!(stage.requests(), 2);
    let pods = |name: &str| stage.inspect(name).owners;
    assert_eq!((pods("one"), pods("three")), (2, 1), "OS-1");
}

#[test]
fn os_2_a_further_reference_drops_what_is_cached() {
    let stage = Stage::with_secret();
    let first = stage.version("s");
    stage.set("s");
    assert_eq!(stage.version("s"), first, "cached");
    stage.add("s", "other");
    assert!(stage.get_cached("s").is_none());
    assert_eq!(stage.inspect("s").state, ObjectState::Waiting);
    assert_eq!(stage.version("s"), first + 1);
    assert_eq!(stage.asked(), ["", ""], "OS-7: nothing was cached");
}

#[test]
fn os_3_a_reference_that_goes_leaves_the_data_to_the_others() {
    let stage = Stage::with_secret();
    stage.add("s", "other");
    stage.get("s").unwrap();
    stage.delete("s", "other");
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 1);
    stage.delete("s", "pod");
    assert!(stage.get("s").is_err());
    stage.add("s", "pod");
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 2, "the last one took the data along");
}

/// OS-5: while one object's fetch hangs, its readers wait for that one fetch, and other objects'
/// readers for nothing.
#[test]
fn os_5_readers_of_one_object_share_a_fetch_and_hold_up_nobody_else() {
    let stage = Stage::with_secret();
    stage.set("t");
    stage.add("t", "pod");
    stage.hang_next();
    std::thread::scope(|scope| {
        let readers = in_parallel(scope, &stage, &["s"; 8]);
        // The leader waits in the server, the others for it.
        stage.clock.wait_for_parked(8);
        assert_eq!(stage.requests(), 1);
        stage.get("t").unwrap();
        assert_eq!(stage.requests(), 2);
        stage.source.heal();
        for reader in readers {
            reader.join().unwrap().unwrap();
        }
    });
    assert_eq!(stage.requests(), 2);
}

fn hundred_gets(stage: &Stage) {
    let names: Vec<String> = (0..10).map(|number| format!("s{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        stage.set(name);
        stage.add(name, "pod");
    }
    std::thread::scope(|scope| {
        let ten = names.iter().flat_map(|name| [*name; 10]);
        let ten: Vec<&str> = ten.collect();
        for reader in in_parallel(scope, stage, &ten) {
            reader.join().unwrap().unwrap();
        }
    });
}

/// OS-5, OS-6; `TestSecretStoreGetNeverRefresh`.
#[test]
fn os_5_a_hundred_gets_of_ten_objects_make_ten_requests() {
    let stage = Stage::caching().start();
    hundred_gets(&stage);
    assert_eq!(stage.requests(), 10);
}

/// OS-5, OS-6; `TestSecretStoreGetAlwaysRefresh`.
#[test]
fn os_5_with_no_time_to_live_a_hundred_gets_make_a_hundred_requests() {
    let stage = Stage::caching().start();
    stage.ttl.set(Some(Duration::ZERO));
    hundred_gets(&stage);
    assert_eq!(stage.requests(), 100);
}

/// OS-6; `TestCustomTTL`: the time to live is looked at by each get, and its end is exact.
#[test]
fn os_6_fresh_is_strictly_before_the_end_of_the_time_to_live() {
    let stage = Stage::with_secret();
    stage.ttl.set(Some(Duration::ZERO));
    stage.get("s").unwrap();
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 2);
    stage.ttl.set(Some(5 * MINUTE));
    stage.get("s").unwrap();
    stage.clock.advance(4 * MINUTE);
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 2, "at +4 min");
    stage.clock.advance(MINUTE);
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 3, "at +5 min exactly");
    stage.ttl.set(None);
    stage.clock.advance(seconds(55));
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 3, "at +55 s");
    stage
        .clock
        .advance(less(seconds(5), Duration::from_nanos(1)));
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 3, "at +60 s less a nanosecond");
    stage.clock.advance(Duration::from_nanos(1));
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 4, "at +60 s");
}

/// OS-7: out of the server's cache only to renew a good object.
#[test]
fn os_7_only_a_renewal_may_come_out_of_the_servers_cache() {
    let stage = Stage::with_secret();
    stage.get("s").unwrap();
    stage.expire();
    stage.get("s").unwrap();
    stage.source.delete("ns", "s");
    stage.expire();
    stage.get("s").unwrap_err();
    stage.get("s").unwrap_err();
    stage.set("s");
    stage.get("s").unwrap();
    stage.expire();
    stage.get("s").unwrap();
    assert_eq!(stage.asked(), ["", "0", "0", "", "", "", "0"]);
}

#[test]
fn os_9_an_answer_that_is_not_older_is_stored_and_fresh_again() {
    let stage = Stage::with_secret();
    let first = stage.version("s");
    stage.expire();
    assert_eq!(stage.version("s"), first, "the same version");
    stage.clock.advance(seconds(59));
    stage.set("s");
    assert_eq!(stage.version("s"), first, "its time was bumped");
    stage.clock.advance(seconds(1));
    let second = stage.get("s").unwrap();
    assert_eq!(version(&second), first + 1);
    assert_eq!(second.age(), Duration::ZERO);
    assert!(!second.is_stale());
}

/// OS-10 and B18: an older answer is not stored and bumps no time; the next get asks past the
/// server's cache.
#[test]
fn os_10_an_older_answer_is_not_stored() {
    let stage = Stage::with_secret();
    let old = stage.source.version();
    let new = stage.set("s");
    assert_eq!(stage.version("s"), new);
    stage.source.lag(Some(old));
    stage.expire();
    let kept = stage.get("s").unwrap();
    assert_eq!(version(&kept), new);
    assert_eq!(kept.age(), MINUTE, "not confirmed");
    assert!(kept.is_stale());
    assert_eq!(stage.inspect("s").refused, 1);
    let next = stage.get("s").unwrap();
    assert_eq!((version(&next), next.age()), (new, Duration::ZERO));
    stage.get("s").unwrap();
    assert_eq!(stage.asked(), ["", "0", ""]);
}

/// B18 (section B, 25): after a restore, the object with its lower version comes through with the
/// second request.
#[test]
fn os_10_a_server_that_was_put_back_is_followed() {
    let stage = Stage::with_secret();
    let old = stage.source.version();
    let new = stage.set("s");
    assert_eq!(stage.version("s"), new);
    stage.source.restore(old);
    stage.expire();
    assert_eq!(stage.version("s"), new);
    assert_eq!(stage.version("s"), old);
    stage.expire();
    assert_eq!(stage.version("s"), old);
    assert_eq!(stage.asked(), ["", "0", "", "0"]);
}

/// OS-11, OS-16; `TestSecretStoreDeletingSecret`.
#[test]
fn os_11_an_absence_is_an_answer_that_is_asked_for_again_each_time() {
    let stage = Stage::with_secret();
    stage.get("s").unwrap();
    stage.source.delete("ns", "s");
    stage.expire();
    let error = stage.get("s").unwrap_err();
    assert!(error.is_not_found());
    let told = "get secret ns/s: secrets \"s\" not found";
    assert_eq!(error.to_string(), told);
    assert!(stage.get_cached("s").is_none(), "the object is gone");
    let report = stage.inspect("s");
    assert_eq!(report.state, ObjectState::NotFound);
    assert_eq!(report.since_contact, Some(Duration::ZERO));
    stage.get("s").unwrap_err();
    assert_eq!(stage.requests(), 4, "OS-16; the first was confirmed (B18)");
    let version = stage.set("s");
    assert_eq!(stage.version("s"), version);
}

#[test]
fn os_12_a_failure_with_nothing_cached_is_the_answer() {
    let stage = Stage::with_secret();
    stage.fail_next(unavailable());
    let error = stage.get("s").unwrap_err();
    assert_eq!(error.cause(), unavailable().cause());
    let report = stage.inspect("s");
    assert_eq!(report.state, ObjectState::Waiting);
    assert_eq!(report.attempts, 1);
    stage.clock.advance(FIRST_BACKOFF);
    stage.get("s").unwrap();
    assert_eq!(stage.asked(), ["", ""]);
}

/// OS-13 with B17: the cached object, its age and the failure are given.
#[test]
fn os_13_a_failure_leaves_the_cached_object() {
    let stage = Stage::with_secret();
    let first = stage.version("s");
    stage.expire();
    stage.fail_next(unavailable());
    let kept = stage.get("s").unwrap();
    assert_eq!(version(&kept), first);
    assert_eq!(kept.age(), MINUTE, "its time is not bumped");
    assert!(kept.is_stale());
    assert_eq!(kept.last_error().unwrap().cause(), unavailable().cause());
    stage.clock.advance(FIRST_BACKOFF);
    let renewed = stage.get("s").unwrap();
    assert!(!renewed.is_stale() && renewed.last_error().is_none());
    assert_eq!(stage.asked(), ["", "0", "0"]);
}

/// OS-14 with B17: a cached absence stays the answer, and says what went wrong since.
#[test]
fn os_14_a_failure_leaves_the_cached_absence() {
    let stage = Stage::caching().start();
    stage.add("s", "pod");
    stage.get("s").unwrap_err();
    stage.fail_next(unavailable());
    for get in ["the one that failed", "the one in its backoff"] {
        let error = stage.get("s").unwrap_err();
        assert!(error.is_not_found(), "{get}");
        let source = std::error::Error::source(&error).unwrap();
        let told = format!("get secret ns/s: {}", unavailable());
        assert_eq!(source.to_string(), told, "{get}");
    }
    assert_eq!(stage.requests(), 2);
}

/// The Secret `s` is referenced; each get asks the getter, which the test answers by hand.
fn uncached() -> Stage {
    let stage = Stage::caching()
        .options(|options| options.ttl(Duration::ZERO))
        .by_hand();
    stage.add("s", "p");
    stage
}

/// OS-15 with B18: versions are compared as numbers of any length, equal ones are accepted, others
/// have no order.
#[test]
fn os_15_what_older_means() {
    let rows = [
        ("9", "10", true),
        ("10", "9", false),
        ("10", "10", true),
        ("18446744073709551616", "18446744073709551615", false),
        ("odd", "4", true),
        ("5", "odd", true),
        ("5", "", true),
    ];
    for (held, incoming, accepted) in rows {
        let stage = uncached();
        let mut last = String::new();
        for version in [held, incoming] {
            stage.getter.answer(Ok(secret("s", version)));
            let cached = stage.get("s").unwrap();
            last = cached.metadata.resource_version.clone().unwrap();
        }
        let expected = if accepted { incoming } else { held };
        assert_eq!(last, expected, "{held:?} then {incoming:?}");
        assert_eq!(stage.getter.versions(), ["", "0"]);
    }
}

/// OS-15, section B 25: another object under the name is judged by the known version, as B18 says.
#[test]
fn os_15_another_object_from_before_what_is_known_is_refused() {
    let stage = uncached();
    let old = || with_uid(secret("s", "5"), "uid-before");
    for answer in [secret("s", "7"), old(), old()] {
        stage.getter.answer(Ok(answer));
    }
    let mut uids = Vec::new();
    for _ in 0..3 {
        let cached = stage.get("s").unwrap();
        uids.push(cached.metadata.uid.clone().unwrap());
    }
    assert_eq!(uids, ["uid-s", "uid-s", "uid-before"]);
    assert_eq!(stage.getter.versions(), ["", "0", ""]);
}

/// B17 in the place of OS-16: failures are tried again after 50 ms, doubling to the time to live,
/// and reset by an answer.
#[test]
fn os_16_failures_back_off_up_to_the_time_to_live() {
    let stage = Stage::with_secret();
    stage.fail_all();
    let mut pause = FIRST_BACKOFF;
    for attempt in 1..=14 {
        stage.get("s").unwrap_err();
        assert_eq!(stage.requests(), attempt);
        stage.clock.advance(less(pause, millis(1)));
        let error = stage.get("s").unwrap_err();
        assert_eq!(error.cause(), unavailable().cause());
        assert_eq!(stage.requests(), attempt, "within the backoff of {pause:?}");
        stage.clock.advance(millis(1));
        pause = (pause * 2).min(MINUTE);
    }
    assert_eq!(pause, MINUTE);
    stage.source.heal();
    stage.get("s").unwrap();
    stage.expire();
    stage.fail_all();
    assert!(stage.get("s").unwrap().is_stale());
    stage.clock.advance(FIRST_BACKOFF);
    stage.get("s").unwrap();
    assert_eq!(stage.requests(), 17, "the backoff began anew");
}

/// B17: without a time to live the backoff stays at 50 ms; the server's own pause wins over it.
#[test]
fn os_16_the_backoff_without_a_time_to_live_and_with_a_retry_after() {
    let stage = Stage::with_secret();
    stage.ttl.set(Some(Duration::ZERO));
    stage.fail_all();
    for attempt in 1..=4 {
        stage.get("s").unwrap_err();
        stage.get("s").unwrap_err();
        assert_eq!(stage.requests(), attempt);
        stage.clock.advance(FIRST_BACKOFF);
    }
    stage.source.heal();
    stage.fail_next(unavailable().with_retry_after(seconds(7)));
    stage.get("s").unwrap_err();
    stage.clock.advance(less(seconds(7), millis(1)));
    stage.get("s").unwrap_err();
    assert_eq!(stage.requests(), 5);
    stage.clock.advance(millis(1));
    stage.get("s").unwrap();
}

/// OS-17: a fetch that was under way when the data was dropped answers who waits for it; who comes
/// after that is answered by a new one, though not behind an answer of the old one (B18).
#[test]
fn os_17_a_fetch_from_before_a_new_reference_is_stored_for_nobody() {
    let stage = Stage::with_secret();
    let first = stage.source.version();
    stage.hang_next();
    std::thread::scope(|scope| {
        let early = in_parallel(scope, &stage, &["s", "s"]);
        stage.clock.wait_for_parked(2);
        stage.add("s", "other");
        assert_eq!(
            stage.version("s"),
            first,
            "fetched at once, beside the old fetch"
        );
        assert_eq!(stage.requests(), 2);
        let second = stage.set("s");
        stage.source.heal();
        let given = early
            .into_iter()
            .map(|reader| version(&reader.join().unwrap().unwrap()));
        let given: Vec<u64> = given.collect();
        // The leader has its own answer. Who waits for it may take what was fetched beside it.
        assert!(given.contains(&second), "{given:?}");
        assert!(given.iter().all(|version| *version >= first), "{given:?}");
    });
    assert_eq!(stage.version("s"), first.saturating_add(1), "B18");
    assert_eq!(stage.requests(), 2);
}

/// OS-17: the same when the last reference goes meanwhile.
#[test]
fn os_17_a_fetch_from_before_the_last_release_answers_who_waits() {
    let stage = Stage::with_secret();
    stage.hang_next();
    std::thread::scope(|scope| {
        let early = in_parallel(scope, &stage, &["s", "s"]);
        stage.clock.wait_for_parked(2);
        stage.delete("s", "pod");
        stage.get("s").unwrap_err();
        stage.source.heal();
        for reader in early {
            reader.join().unwrap().unwrap();
        }
    });
    assert!(stage.get("s").is_err());
    stage.add("s", "pod");
    assert!(stage.get_cached("s").is_none());
    assert_eq!(stage.requests(), 1);
}
