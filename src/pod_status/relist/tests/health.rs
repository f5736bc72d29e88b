//! Whether the runtime answers, in the kubelet's words, and why not (PL-6).

use std::error::Error as _;

use super::*;
use crate::ErrorKind;

fn sources(error: &crate::Error) -> Vec<String> {
    let mut texts = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    texts
}

#[test]
fn pl_6_before_the_first_success_it_is_unhealthy_and_says_why() {
    let bench = Bench::new();
    bench.expect(&Asked::List);
    bench.fake.advance(Duration::from_millis(1_500));
    let error = bench.relist.health().unwrap_err();
    assert_eq!(error.to_string(), "pleg has yet to be successful");
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    assert_eq!(
        sources(&error),
        ["the runtime has been listing its pods for 1.5s"]
    );

    bench.answers.send(Answer::Fail("no such socket")).unwrap();
    bench.pausing();
    let error = bench.relist.health().unwrap_err();
    assert_eq!(error.to_string(), "pleg has yet to be successful");
    assert_eq!(sources(&error), ["no such socket"]);
}

#[test]
fn pl_6_it_is_unhealthy_when_the_last_success_is_older_than_the_threshold_and_not_before() {
    let bench = Bench::new();
    bench.list("");
    bench.next();
    bench.expect(&Asked::List);
    bench.fake.advance(Duration::from_secs(179));
    assert!(bench.relist.health().is_ok(), "exactly the threshold");
    bench.fake.advance(Duration::from_millis(1));
    let error = bench.relist.health().unwrap_err();
    assert_eq!(
        error.to_string(),
        "pleg was last seen active 3m0.001s ago; threshold is 3m0s"
    );
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        sources(&error),
        ["the runtime has been listing its pods for 2m59.001s"]
    );
    bench.answers.send(Answer::List(Vec::new())).unwrap();
    bench.pausing();
    assert!(
        bench.relist.health().is_ok(),
        "the list was asked for less than 3 minutes ago"
    );
}

#[test]
fn pl_6_an_inspection_that_hangs_is_named() {
    let bench = Bench::new();
    bench.list("web c1=running");
    bench.expect(&Asked::Inspect("web".to_owned()));
    bench.fake.advance(Duration::from_secs(200));
    let error = bench.relist.health().unwrap_err();
    assert_eq!(
        error.to_string(),
        "pleg was last seen active 3m20s ago; threshold is 3m0s"
    );
    assert_eq!(
        sources(&error),
        ["the runtime has been inspecting pod shop/web (web) for 3m20s"]
    );
}

#[test]
fn pl_6_below_a_call_that_hangs_stands_the_failure_before_it() {
    let bench = Bench::new();
    bench.answer(&Asked::List, Answer::Fail("no such socket"));
    bench.next();
    bench.expect(&Asked::List);
    let error = bench.relist.health().unwrap_err();
    let told = [
        "the runtime has been listing its pods for 0s",
        "no such socket",
    ];
    assert_eq!(sources(&error), told);
}

#[test]
fn pl_6_a_success_clears_the_failure_before_it() {
    let options = RelistOptions::default().health_threshold(Duration::from_secs(2));
    let bench = Bench::with(options, false);
    bench.answer(&Asked::List, Answer::Fail("no such socket"));
    bench.next();
    bench.list("");
    bench.pausing();
    assert!(bench.relist.health().is_ok());
    bench.fake.advance(PERIOD);
    bench.expect(&Asked::List);
    bench.fake.advance(Duration::from_millis(1_001));
    let error = bench.relist.health().unwrap_err();
    assert_eq!(
        error.to_string(),
        "pleg was last seen active 2.001s ago; threshold is 2s"
    );
    assert_eq!(
        sources(&error),
        ["the runtime has been listing its pods for 1.001s"]
    );
}

#[test]
fn pl_6_the_period_is_an_option() {
    let bench = Bench::with(
        RelistOptions::default().period(Duration::from_secs(5 * 60)),
        false,
    );
    bench.list("");
    bench.rests_for(Duration::from_secs(5 * 60));
    bench.fake.advance(Duration::from_secs(5 * 60));
    bench.list("");
    bench.rests_for(Duration::from_secs(5 * 60));
}
