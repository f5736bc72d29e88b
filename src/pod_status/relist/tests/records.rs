//! The relist's decisions as tables: the work that a list calls for, and the effects of
//! inspections.

use super::super::RuntimePod;
use super::super::core::{Inspection, Records};
use super::{list, pod};

fn uids(pods: &[RuntimePod]) -> Vec<&str> {
    pods.iter().map(RuntimePod::uid).collect()
}

/// An inspection whose status the cache has, or one that failed.
fn ended(is_stored: bool) -> Inspection {
    if is_stored {
        Inspection::Stored
    } else {
        Inspection::Failed
    }
}

/// Runs one relist in which every inspection ends like this. Returns the inspected pods.
fn relist(records: &mut Records, words: &str, is_stored: bool) -> Vec<RuntimePod> {
    let due = records.listed(list(words));
    for pod in &due {
        records.inspected(pod.clone(), ended(is_stored));
    }
    due
}

#[test]
fn pl_2_only_pods_that_changed_are_inspected() {
    let rows = [
        // the inspected pod, the next list, whether it is inspected again
        ("a c1=running", "a c1=running", false),
        ("a c1=running", "a c1=exited", true),
        ("a c1=created", "a c1=running", true),
        ("a c1=running", "a c1=unknown", true),
        ("a c1=running", "a c1=running c2=running", true),
        ("a c1=running c2=running", "a c1=running", true),
        ("a c1=running", "a c2=running", true),
        ("a c1=running s1=ready", "a c1=running s1=notready", true),
        ("a c1=running s1=ready", "a c1=running s2=ready", true),
        ("a c1=running s1=ready", "a c1=running", true),
        ("a c1=running s1=ready", "a s1=ready c1=running", false),
        ("a", "a", false),
        ("a", "a c1=created", true),
    ];
    for (before, after, inspected) in rows {
        let mut records = Records::default();
        assert_eq!(uids(&relist(&mut records, before, true)), ["a"]);
        let due = records.listed(list(after));
        assert_eq!(!due.is_empty(), inspected, "{before} -> {after}");
    }
}

#[test]
fn pl_2_a_change_of_one_pod_inspects_no_other() {
    let mut records = Records::default();
    relist(
        &mut records,
        "a c1=running, b c2=running, c c3=running",
        true,
    );
    let due = relist(
        &mut records,
        "c c3=running, b c2=exited, a c1=running",
        true,
    );
    assert_eq!(uids(&due), ["b"]);
}

#[test]
fn pl_2_a_pod_that_is_not_listed_is_known_no_more() {
    let mut records = Records::default();
    relist(&mut records, "a c1=running, b c2=running", true);
    assert_eq!(relist(&mut records, "b c2=running", true), []);
    assert!(!records.knows("a") && records.knows("b"));
    assert_eq!(records.count(), (1, 0));
}

#[test]
fn pl_2_a_pod_that_comes_back_is_a_new_one() {
    let mut records = Records::default();
    for _ in 0..3 {
        assert_eq!(uids(&relist(&mut records, "a c1=running", true)), ["a"]);
        assert_eq!(relist(&mut records, "", true), []);
    }
}

#[test]
fn pl_3_a_failed_inspection_does_not_move_the_record_and_marks_the_pod() {
    let mut records = Records::default();
    relist(&mut records, "a c1=running", true);
    assert_eq!(uids(&relist(&mut records, "a c1=exited", false)), ["a"]);
    // Back to the inspected state: there is no visible change, only the mark.
    assert_eq!(uids(&relist(&mut records, "a c1=running", false)), ["a"]);
    assert_eq!(records.count(), (1, 1));
    assert_eq!(uids(&relist(&mut records, "a c1=running", true)), ["a"]);
    assert_eq!(relist(&mut records, "a c1=running", true), []);
    assert_eq!(records.count(), (1, 0));
}

#[test]
fn pl_3_a_marked_pod_that_is_gone_is_deleted_and_not_inspected() {
    let mut records = Records::default();
    relist(&mut records, "a c1=running", false);
    assert_eq!(relist(&mut records, "", true), []);
    assert_eq!(records.count(), (0, 0));
}

#[test]
fn pl_3_only_the_first_failure_and_the_first_success_after_it_are_news() {
    let mut records = Records::default();
    let ends = [true, false, false, true, true];
    let news = ends.map(|outcome| records.inspected(pod("a c1=running"), ended(outcome)));
    assert_eq!(news, [false, true, false, true, false]);
}

/// Seen: a good status that the cache refused, because events had brought a newer one, counted as a
/// failure.
#[test]
fn pl_3_a_refused_status_is_repeated_and_is_no_failure() {
    let mut records = Records::default();
    records.inspected(pod("a c1=running"), Inspection::Refused);
    assert_eq!(records.count(), (1, 0));
    assert_eq!(uids(&records.listed(list("a c1=running"))), ["a"]);
    assert!(records.inspected(pod("a c1=running"), Inspection::Failed));
    assert_eq!(records.count(), (1, 1));
}

#[test]
fn pl_2_a_relist_that_was_cut_off_is_made_up_for() {
    let mut records = Records::default();
    relist(
        &mut records,
        "a c1=running, b c2=running, c c3=running",
        true,
    );
    let first = records.listed(list("a c1=exited, b c2=exited"));
    records.inspected(first[0].clone(), Inspection::Stored);
    let second = records.listed(list("a c1=exited, b c2=exited"));
    assert_eq!(uids(&second), ["b"]);
    assert!(!records.knows("c"));
}

#[test]
fn pods_of_one_list_with_the_same_uid_are_taken_together() {
    let mut records = Records::default();
    let listed = "a c1=running, b c2=running, a c3=exited s1=ready";
    let due = relist(&mut records, listed, true);
    assert_eq!(due, list("a c1=running c3=exited s1=ready, b c2=running"));
    assert_eq!(relist(&mut records, listed, true), []);
}

#[test]
fn what_the_cache_held_before_is_inspected_or_forgotten() {
    let mut records = Records::knowing(["a".to_owned(), "b".to_owned()]);
    let due = relist(&mut records, "a, c c1=running", true);
    assert_eq!(uids(&due), ["a", "c"]);
    assert!(!records.knows("b"));
}
