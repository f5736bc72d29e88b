//! Resyncs through a whole informer (SI-21 to SI-25).

use super::*;

fn every(seconds: u64) -> HandlerOptions {
    HandlerOptions::default().resync_period(Duration::from_secs(seconds))
}

/// `TestListenerResyncPeriods`: at 2 s only the second, at 3 s only the third, the first never.
#[test]
fn si_23_a_resync_reaches_the_handlers_that_are_due_and_no_others() {
    let stage = Stage::with(&["a"]);
    let options = stage.options().resync_period(Duration::from_secs(1));
    let informer = stage.informer_with(options);
    let (_, never) = follow_with(&informer, every(0));
    let (_, second) = follow_with(&informer, every(2));
    let (_, third) = follow_with(&informer, every(3));
    stage.run(&informer);
    for told in [&never, &second, &third] {
        assert_eq!(next(told, 1), ["*a2"]);
    }
    let tick = || {
        stage.fake.wait_for_timer(Duration::from_secs(1));
        stage.fake.advance(Duration::from_secs(1));
    };
    tick();
    tick();
    assert_eq!(next(&second, 1), ["a2>2"]);
    tick();
    assert_eq!(next(&third, 1), ["a2>2"]);
    tick();
    assert_eq!(next(&second, 1), ["a2>2"]);
    stage.set("b");
    assert_eq!(next(&never, 1), ["+b3"], "no resync");
    assert_eq!(next(&second, 1), ["+b3"]);
    assert_eq!(next(&third, 1), ["+b3"]);
}

/// SI-21, SI-22: without a period of the informer there is no resync, whatever a handler asks for.
#[test]
fn si_22_no_period_of_the_informer_means_no_resync() {
    let stage = Stage::with(&["a"]);
    let informer = stage.informer();
    let (_, told) = follow_with(&informer, every(1));
    stage.run(&informer);
    stage.fake.advance(Duration::from_secs(10));
    stage.set("b");
    assert_eq!(next(&told, 2), ["*a2", "+b3"]);
}

/// `TestSharedInformerWatchDisruption`: a relist brings handlers only changes; unchanged objects
/// come with a resync.
#[test]
fn si_24_unchanged_objects_are_told_by_a_resync_only() {
    let stage = Stage::with(&["a", "b"]);
    let options = stage.options().resync_period(Duration::from_secs(1));
    let informer = stage.informer_with(options);
    let (_, without) = follow_with(&informer, every(0));
    let (_, with) = follow_with(&informer, every(1));
    stage.run(&informer);
    for told in [&without, &with] {
        assert_eq!(next_sorted(told, 2), ["*a2", "*b3"]);
    }
    stage.fake.wait_for_timer(Duration::from_secs(1));
    stage.fake.advance(Duration::from_secs(1));
    assert_eq!(next_sorted(&with, 2), ["a2>2", "b3>3"]);
    stage.behind_its_back(|stage| {
        stage.set("b");
        stage.set("c");
    });
    // The watch that was open in between may have been the one that expired.
    stage.pass_until(|| without.len() >= 2);
    assert_eq!(next(&without, 2), ["b3>4", "+c5"]);
    let resynced = |told: &String| told == "c5>5";
    let later: Vec<_> = std::iter::from_fn(|| {
        stage.fake.advance(Duration::from_secs(1));
        with.recv().ok().map(|told| written(&told))
    })
    .take_while(|told| !resynced(told))
    .collect();
    assert!(later.contains(&"b3>4".to_owned()), "{later:?}");
}
