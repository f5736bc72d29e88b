//! Times: a zero before all others, an order, and words for them.

use super::*;

#[test]
fn pl_11_the_zero_time_lies_before_every_other() {
    let stage = Stage::new();
    let long_ago = stage.at(-999);
    assert!(Timestamp::ZERO < long_ago && long_ago < stage.at(0));
    assert_eq!(Timestamp::default(), Timestamp::ZERO);
    assert_eq!(Timestamp::ZERO.instant(), None);
}

/// The cache never reads the wall clock: it compares only monotonic times.
#[test]
fn pc_15_times_come_from_the_monotonic_clock() {
    let stage = Stage::new();
    let before = Timestamp::now(&stage.clock);
    assert_eq!(before.instant(), Some(stage.fake.now()));
    stage.fake.advance(Duration::from_millis(1));
    let after = Timestamp::now(&stage.clock);
    assert!(before < after);
    assert_eq!(Timestamp::from(stage.fake.now()), after);
}

#[test]
fn a_time_is_said_relative_to_another() {
    let stage = Stage::new();
    let now = stage.fake.now();
    let said = |time: Timestamp| timeout::relative(time, now);
    assert_eq!(said(stage.at(-3)), "3.0s ago");
    assert_eq!(said(stage.at(0)), "0.0ns ago");
    assert_eq!(said(stage.at(2)), "2.0s ahead");
    assert_eq!(said(Timestamp::ZERO), "the zero time");
}
