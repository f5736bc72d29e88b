//! Reads that do not wait: of stored pods, and of pods without an entry.

use super::*;

#[test]
fn pc_1_an_entry_has_a_status_an_error_and_its_times() {
    let stage = Stage::new();
    assert_eq!(stage.cache.global_time(), None, "absent at start");
    let (stored, error) = (status("uid-1", "web"), failure("no answer"));
    let time = stage.at(-5);
    let given = (Some(Arc::clone(&stored)), Some(Arc::clone(&error)));
    assert!(stage.cache.set("uid-1", given.0, given.1, time));
    let reading = stage.cache.get("uid-1");
    assert!(Arc::ptr_eq(reading.status().unwrap(), &stored));
    assert_eq!(reading.error().unwrap().to_string(), "no answer");
    assert_eq!(reading.modified_time(), Some(time));
    assert_eq!(reading.observed_time(), Some(time));
    stage.cache.update_time(stage.at(-1));
    assert_eq!(stage.cache.global_time(), Some(stage.at(-1)));
    assert_eq!(stage.cache.get("uid-1").modified_time(), Some(time));
}

/// `TestCacheGetPodDoesNotExist`.
#[test]
fn pc_2_an_unknown_pod_has_a_status_with_only_its_uid() {
    let stage = Stage::new();
    let reading = stage.cache.get("uid-1");
    let empty = PodStatus {
        id: "uid-1".to_owned(),
        ..PodStatus::default()
    };
    assert_eq!(**reading.status().unwrap(), empty);
    assert!(reading.error().is_none());
    assert!(!reading.is_stored());
    assert_eq!(
        (reading.modified_time(), reading.observed_time()),
        (None, None)
    );
    assert_eq!(stage.cache.get_all().len(), 0, "a read stores nothing");
}

/// `TestCacheSetAndGet`: status and error, either or both.
#[test]
fn pc_2_and_3_what_was_set_is_read() {
    let stage = Stage::new();
    let cases = [
        (Some("web"), None),
        (Some("web"), Some("no answer")),
        (None, Some("no answer")),
        (None, None),
    ];
    for (number, (name, error)) in cases.into_iter().enumerate() {
        let uid = format!("uid-{number}");
        let stored = name.map(|name| status(&uid, name));
        assert!(
            stage
                .cache
                .set(&uid, stored.clone(), error.map(failure), stage.at(0))
        );
        let reading = stage.cache.get(&uid);
        assert!(reading.is_stored());
        assert_eq!(reading.status(), stored.as_ref());
        let text = reading.error().map(ToString::to_string);
        assert_eq!(text.as_deref(), error);
    }
}

#[test]
fn pc_3_a_set_replaces_the_whole_entry() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    assert!(
        stage
            .cache
            .set("uid-1", None, Some(failure("gone")), stage.at(-7))
    );
    let reading = stage.cache.get("uid-1");
    assert!(reading.status().is_none(), "no status is read as none");
    assert!(reading.error().is_some());
    assert_eq!(
        reading.modified_time(),
        Some(stage.at(-7)),
        "older is taken too"
    );
    assert_eq!(stage.cache.get_all().len(), 1);
}

/// `TestDelete`.
#[test]
fn pc_4_a_delete_removes_the_entry() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    stage.set("uid-2", "db", stage.at(0));
    stage.cache.delete("uid-1");
    stage.cache.delete("uid-1");
    let reading = stage.cache.get("uid-1");
    assert!(!reading.is_stored());
    assert_eq!(reading.status().unwrap().name, "");
    assert!(stage.cache.get("uid-2").is_stored());
}

#[test]
fn pc_12_what_is_read_is_shared() {
    let stage = Stage::new();
    let stored = status("uid-1", "web");
    assert!(
        stage
            .cache
            .set("uid-1", Some(Arc::clone(&stored)), None, stage.at(0))
    );
    for _ in 0..2 {
        let reading = stage.cache.clone().get("uid-1");
        assert!(Arc::ptr_eq(reading.clone().status().unwrap(), &stored));
    }
}

/// `TestCacheWithEventedPLEG`.
#[test]
fn pc_13_with_events_an_older_status_is_refused() {
    let stage = Stage::evented();
    let set = |name: &str, seconds| {
        let status = Some(status("uid-1", name));
        stage.cache.set("uid-1", status, None, stage.at(seconds))
    };
    assert!(set("first", 0));
    assert!(set("newer", 1));
    assert!(!set("older", 0), "strictly after is refused");
    assert_eq!(name(&stage.cache.get("uid-1")), "newer");
    assert!(set("equal", 1), "the same time is taken");
    assert_eq!(name(&stage.cache.get("uid-1")), "equal");
}

/// F22: v1.36 has the gate in `Set` alone.
#[test]
fn pc_13_with_events_the_rule_of_who_asks_is_the_same() {
    let stage = Stage::evented();
    for min_time in [Timestamp::ZERO, stage.at(0), stage.at(99)] {
        assert!(!stage.answers("uid-1", min_time), "nothing is known yet");
    }
    stage.cache.update_time(stage.at(1));
    assert!(stage.answers("uid-1", stage.at(0)));
    assert!(!stage.answers("uid-1", stage.at(1)));
    stage.cache.update_time(stage.at(-2));
    stage.set("uid-1", "web", stage.at(0));
    assert!(
        !stage.answers("uid-1", stage.at(0)),
        "an entry is held to its time"
    );
    assert!(stage.answers("uid-1", stage.at(-1)));
}

#[test]
fn pc_13_without_events_an_older_status_is_taken() {
    let stage = Stage::new();
    stage.set("uid-1", "newer", stage.at(1));
    stage.set("uid-1", "older", stage.at(0));
    assert_eq!(name(&stage.cache.get("uid-1")), "older");
}

#[test]
fn pc_14_a_set_is_an_observation_and_later_ones_leave_the_entry() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    stage.cache.set_observed_time("uid-1", stage.at(5));
    let reading = stage.cache.get("uid-1");
    assert_eq!(reading.modified_time(), Some(stage.at(0)));
    assert_eq!(reading.observed_time(), Some(stage.at(5)));
    assert_eq!(name(&reading), "web");
    stage.set("uid-1", "web", stage.at(2));
    assert_eq!(stage.cache.get("uid-1").observed_time(), Some(stage.at(2)));
}

#[test]
fn pc_14_an_observation_makes_no_entry() {
    let stage = Stage::new();
    stage.cache.set_observed_time("uid-1", stage.at(5));
    assert!(!stage.cache.get("uid-1").is_stored());
    assert!(!stage.answers("uid-1", stage.at(0)));
    assert_eq!(stage.cache.get_all().len(), 0);
}

#[test]
fn pc_14_all_entries_are_given_with_their_uids() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    assert!(
        stage
            .cache
            .set("uid-2", None, Some(failure("no answer")), stage.at(1))
    );
    let mut all = stage.cache.get_all();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let uids: Vec<_> = all.iter().map(|(uid, _)| &**uid).collect();
    assert_eq!(uids, ["uid-1", "uid-2"]);
    assert_eq!(name(&all[0].1), "web");
    assert!(all[1].1.status().is_none() && all[1].1.error().is_some());
}

#[test]
fn pc_16_the_status_says_which_containers_and_sandboxes_there_are() {
    let mut status = PodStatus::with_id("uid-1");
    assert!(!status.has_ready_sandbox());
    assert!(status.find_container("web").is_none());
    let mut sandbox = SandboxStatus::default();
    assert_eq!(sandbox.state, SandboxState::NotReady);
    sandbox.state = SandboxState::Ready;
    status.sandbox_statuses = vec![SandboxStatus::default(), sandbox];
    assert!(status.has_ready_sandbox());
    let mut container = ContainerStatus::default();
    assert_eq!(container.state, ContainerState::Unknown);
    container.name = "web".to_owned();
    status.container_statuses = vec![ContainerStatus::default(), container.clone()];
    assert_eq!(status.find_container("web"), Some(&container));
}

#[test]
fn debug_shows_counts_and_no_status() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    let shown = format!("{:?} {:?}", stage.cache, stage.cache.get("uid-1"));
    assert!(
        shown.contains("pods: 1") && shown.contains("waiting: 0"),
        "{shown}"
    );
    assert!(shown.contains("has_status: true"), "{shown}");
    assert!(!shown.contains("web"), "{shown}");
}
