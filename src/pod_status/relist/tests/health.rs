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
    let stage = Stage::new();
    stage.expect(&Asked::List);
    stage.fake.advance(Duration::from_millis(1_500));
    let error = stage.relist.health().unwrap_err();
    assert_eq!(error.to_string(), "pleg has yet to be successful");
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    assert_eq!(
        sources(&error),
        ["the runtime has been listing its pods for 1.5s"]
    );

    stage.answers.send(Answer::Fail("no such socket")).unwrap();
    stage.pausing();
    let error = stage.relist.health().unwrap_err();
    assert_eq!(error.to_string(), "pleg has yet to be successful");
    assert_eq!(sources(&error), ["no such socket"]);
}

#[test]
fn pl_6_it_is_unhealthy_when_the_last_success_is_older_than_the_threshold_and_not_before() {
    let stage = Stage::new();
    stage.list("");
    stage.next();
    stage.expect(&Asked::List);
    stage.fake.advance(Duration::from_secs(179));
    assert!(stage.relist.health().is_ok(), "exactly the threshold");
    stage.fake.advance(Duration::from_millis(1));
    let error = stage.relist.health().unwrap_err();
    assert_eq!(
        error.to_string(),
        "pleg was last seen active 3m0.001s ago; threshold is 3m0s"
    );
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        sources(&error),
        ["the runtime has been listing its pods for 2m59.001s"]
    );
    stage.answers.send(Answer::List(Vec::new())).unwrap();
    stage.pausing();
    assert!(
        stage.relist.health().is_ok(),
        "the list was asked for less than 3 minutes ago"
    );
}

#[test]
fn pl_6_an_inspection_that_hangs_is_named() {
    let stage = Stage::new();
    stage.list("web c1=running");
    stage.expect(&Asked::Inspect("web".to_owned()));
    stage.fake.advance(Duration::from_secs(200));
    let error = stage.relist.health().unwrap_err();
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
fn pl_6_a_list_on_request_that_hangs_is_named() {
    let stage = Stage::new();
    stage.list("");
    stage.pausing();
    stage.relist.request_relist("a");
    stage.expect(&Asked::List);
    stage.fake.advance(Duration::from_secs(200));
    let error = stage.relist.health().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        sources(&error),
        ["the runtime has been listing 1 of its pods on request for 3m20s"]
    );
}

#[test]
fn pl_6_below_a_call_that_hangs_stands_the_failure_before_it() {
    let stage = Stage::new();
    stage.answer(&Asked::List, Answer::Fail("no such socket"));
    stage.next();
    stage.expect(&Asked::List);
    let error = stage.relist.health().unwrap_err();
    let told = [
        "the runtime has been listing its pods for 0s",
        "no such socket",
    ];
    assert_eq!(sources(&error), told);
}

#[test]
fn pl_6_a_success_clears_the_failure_before_it() {
    let options = RelistOptions::default().health_threshold(Duration::from_secs(2));
    let stage = Stage::with(options, false);
    stage.answer(&Asked::List, Answer::Fail("no such socket"));
    stage.next();
    stage.list("");
    stage.pausing();
    assert!(stage.relist.health().is_ok());
    stage.fake.advance(PERIOD);
    stage.expect(&Asked::List);
    stage.fake.advance(Duration::from_millis(1_001));
    let error = stage.relist.health().unwrap_err();
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
    let stage = Stage::with(
        RelistOptions::default().period(Duration::from_secs(5 * 60)),
        false,
    );
    stage.list("");
    stage.rests_for(Duration::from_secs(5 * 60));
    stage.fake.advance(Duration::from_secs(5 * 60));
    assert!(
        stage.relist.health().is_ok(),
        "the next list is due only now"
    );
    stage.list("");
    stage.rests_for(Duration::from_secs(5 * 60));
    stage.fake.advance(Duration::from_secs(5 * 60));
    stage.expect(&Asked::List);
    stage.fake.advance(Duration::from_secs(5 * 60));
    assert!(stage.relist.health().is_ok());
    stage.fake.advance(Duration::from_millis(1));
    assert!(stage.relist.health().is_err());
}
