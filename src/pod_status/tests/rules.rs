//! Answers at once: the entry's time or the global time is strictly after the time asked for.

use super::*;

/// `TestCacheNotInitialized`: without a global time and an entry no caller gets an answer, whatever
/// time it asks for.
#[test]
fn pc_6_a_cache_that_was_never_filled_answers_nobody() {
    let stage = Stage::new();
    assert!(!stage.answers("uid-1", stage.at(-10)));
    assert!(!stage.answers("uid-1", Timestamp::ZERO));
    assert!(!stage.answers("uid-1", stage.at(10)));
    stage.assert_nobody_is_left();
}

#[test]
fn pc_6_an_entry_counts_before_there_is_a_global_time() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    assert!(stage.answers("uid-1", stage.at(-1)));
    assert!(stage.answers("uid-1", Timestamp::ZERO));
    assert!(!stage.answers("uid-1", stage.at(0)));
    assert!(
        !stage.answers("uid-2", stage.at(-1)),
        "another pod's entry says nothing"
    );
}

#[test]
fn pc_6_a_global_time_of_zero_is_after_nothing() {
    let stage = Stage::new();
    stage.cache.update_time(Timestamp::ZERO);
    assert!(!stage.answers("uid-1", Timestamp::ZERO));
    stage.set("uid-1", "web", Timestamp::ZERO);
    assert!(!stage.answers("uid-1", Timestamp::ZERO));
}

#[test]
fn pc_6_and_14_an_observed_time_counts_like_a_set() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    stage.cache.set_observed_time("uid-1", stage.at(5));
    assert!(stage.answers("uid-1", stage.at(4)));
    assert!(!stage.answers("uid-1", stage.at(5)), "strictly after");
}

/// `TestGetIfNewerThanWhenPodExists`.
#[test]
fn pc_7_who_asks_for_a_pod_with_an_entry() {
    // The global time and the entry's, in seconds from the time asked for.
    let table = [
        ((1, 0), true),
        ((1, -10), true),
        ((-1, 3), true),
        ((-1, -1), false),
        ((0, 0), false),
    ];
    for ((global, modified), is_answered) in table {
        let stage = Stage::new();
        stage.set("uid-1", "web", stage.at(modified));
        stage.cache.update_time(stage.at(global));
        let case = format!("global {global:+}, modified {modified:+}");
        assert_eq!(stage.answers("uid-1", stage.at(0)), is_answered, "{case}");
    }
}

/// `TestGetPodNewerThanWhenPodDoesNotExist`.
#[test]
fn pc_7_who_asks_for_a_pod_without_an_entry() {
    let stage = Stage::new();
    stage.cache.update_time(stage.at(0));
    for (asked, is_answered) in [(-1, true), (1, false), (0, false)] {
        assert_eq!(
            stage.answers("uid-1", stage.at(asked)),
            is_answered,
            "{asked:+}"
        );
    }
    let reading = stage.cache.get_newer_than("uid-1", stage.at(-1)).unwrap();
    assert!(!reading.is_stored());
    assert_eq!(reading.status().unwrap().id, "uid-1");
}

#[test]
fn pc_5_the_global_time_may_go_backwards() {
    let stage = Stage::new();
    stage.cache.update_time(stage.at(5));
    assert!(stage.answers("uid-1", stage.at(0)));
    stage.cache.update_time(stage.at(-5));
    assert_eq!(stage.cache.global_time(), Some(stage.at(-5)));
    assert!(!stage.answers("uid-1", stage.at(0)));
}

#[test]
fn pc_4_after_a_delete_only_the_global_time_counts() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(5));
    assert!(stage.answers("uid-1", stage.at(0)));
    stage.cache.delete("uid-1");
    assert!(!stage.answers("uid-1", stage.at(0)));
    stage.cache.update_time(stage.at(1));
    assert!(stage.answers("uid-1", stage.at(0)));
}
