//! The mode in order: RQ-1 to RQ-4, RQ-8, RQ-9, RQ-13, RQ-14, and the tables of upstream's tests of
//! it.

use std::num::NonZeroUsize;

use super::compressed::{marking, marks};
use super::*;

/// RQ-1, `TestRealFIFO_addUpdate`: each change is a pop of its own.
#[test]
fn rq_1_each_change_is_a_pop() {
    let mut stage = Stage::in_order("");
    stage.feed("+a10 ~a12 -a15");
    assert_eq!(stage.handle.len(), 3);
    assert_eq!(stage.drain(), ["+a10", "~a12", "-a15"]);
}

/// RQ-1, `TestRealFIFO_basic`: with any pops in between, nothing of two series is lost or
/// overtakes.
#[test]
fn rq_1_the_order_of_two_interleaved_series_is_kept() {
    let mut stage = Stage::in_order("");
    let (mut popped, mut expected) = (Vec::new(), Vec::new());
    for number in 1..=300 {
        stage.feed(&format!("~a{number} ~b{number}"));
        expected.extend([format!("~a{number}"), format!("~b{number}")]);
        if number % 7 == 0 {
            popped.push(shown(&stage.pop()));
        }
    }
    popped.extend(stage.drain());
    assert_eq!(popped, expected);
}

/// RQ-1, `TestRealFIFO_detectLineJumpers`: the order is that of the watch, across objects too.
#[test]
fn rq_1_the_order_of_the_watch_is_kept() {
    let mut stage = Stage::in_order("");
    stage.feed("+a10 +b1 +c11 +c13 +d30");
    assert_eq!(shown(&stage.pop()), "+a10");
    stage.feed("+a14");
    assert_eq!(stage.drain(), ["+b1", "+c11", "+c13", "+d30", "+a14"]);
}

/// RQ-2, `TestRealFIFO_enqueueingNoLister`, `...WithLister`, `...DeleteExistingNonPropagated`: a
/// deletion is queued, known or not.
#[test]
fn rq_2_a_deletion_is_always_queued() {
    for known in ["", "a5 b6 c7"] {
        let mut stage = Stage::in_order(known);
        stage.feed("+a10 ~b15 +c17 -c18 -d20");
        assert_eq!(
            stage.drain(),
            ["+a10", "~b15", "+c17", "-c18", "-d20"],
            "{known}"
        );
    }
}

/// RQ-3, `TestRealFIFO_ReplaceMakesDeletions`, `...Replaced`, `TestRealFIFO_addReplace`: deletions
/// come first.
#[test]
fn rq_3_a_list_deletes_first_and_replaces_then() {
    let table: [(&str, &[&str]); 6] = [
        ("-c10 =a5", &["-c10", "?b6", "=a5"]),
        ("+c10 =a5", &["+c10", "?c10", "?b6", "=a5"]),
        ("-b6 +b100 =a5", &["-b6", "+b100", "?b100", "?c7", "=a5"]),
        ("=b100,a5 =a5", &["?c7", "=b100", "=a5", "?b100", "=a5"]),
        (
            "+z1 +y1 ~z2 =a5,b6,c7",
            &["+z1", "+y1", "~z2", "?z2", "?y1", "=a5", "=b6", "=c7"],
        ),
        ("+a10 =c9,a15,b8", &["+a10", "=c9", "=a15", "=b8"]),
    ];
    for (input, output) in table {
        assert_eq!(
            Stage::in_order("a5 b6 c7").feed(input).drain(),
            output,
            "{input}"
        );
    }
    assert_eq!(
        Stage::in_order("").feed("+c10 =a5").drain(),
        ["+c10", "?c10", "=a5"],
        "the consumer holds nothing"
    );
}

/// RQ-3, `TestRealFIFOW_ReplaceMakesDeletionsForObjectsOnlyInQueue`, `...replaceWithDeleteDeltaIn`:
/// the tables of DF-11.
#[test]
fn rq_3_lists_over_objects_that_only_wait() {
    let table: [(&str, &[&str]); 6] = [
        ("+a1 =", &["+a1", "?a1"]),
        ("+a1 -a1 =", &["+a1", "-a1"]),
        ("+a1 =a1 =a1 =", &["+a1", "=a1", "=a1", "?a1"]),
        ("+a1 = =", &["+a1", "?a1"]),
        ("+a1 -a1 +a2 =", &["+a1", "-a1", "+a2", "?a2"]),
        ("+a1 -a2 =a3", &["+a1", "-a2", "=a3"]),
    ];
    for (input, output) in table {
        assert_eq!(Stage::in_order("").feed(input).drain(), output, "{input}");
    }
}

/// RQ-4: the deletion of an object that waits holds its last state as it waits.
#[test]
fn rq_4_a_deletion_holds_the_last_state_that_waits() {
    let mut stage = Stage::in_order("a1");
    stage.feed("~a2 ~a3 =");
    let mut last = None;
    while !stage.handle.is_empty() {
        let popped = stage.pop();
        let object = Arc::clone(popped.newest().object().unwrap());
        if popped.newest().is_deletion() {
            assert!(Arc::ptr_eq(&object, last.as_ref().unwrap()));
        }
        last = Some(object);
    }
    assert_eq!(word(&last.unwrap()), "a3");
}

/// RQ-8, `TestRealFIFO_transformer`: as DF-7, one delta at a time.
#[test]
fn rq_8_each_object_is_transformed_once() {
    let known = view("z1");
    let mut stage = Stage::new(marking(in_order_over(&known)), known);
    stage.feed("+a1 ~a2 -a3 +b1 =c1 !");
    for expected in ["a1'", "a2'", "a3'", "b1'", "b1'", "z1", "c1'"] {
        assert_eq!(marks(&stage.pop()), expected);
    }
    assert!(
        stage.handle.is_empty(),
        "the resync found everything waiting"
    );
}

/// RQ-9, `TestRealFIFO_Resync`, `...ResyncNonExisting`, `...UpdateResyncRace`.
#[test]
fn rq_9_a_resync_brings_up_what_nothing_waits_for() {
    for (known, input, output) in RESYNCS {
        assert_eq!(
            Stage::in_order(known).feed(input).drain(),
            output,
            "{input}"
        );
    }
}

/// The batches of up to `max` that wait.
fn batches(stage: &mut Stage, max: usize) -> Vec<Vec<String>> {
    let max = NonZeroUsize::new(max).unwrap();
    let mut batches = Vec::new();
    while !stage.handle.is_empty() {
        let batch = stage.queue.pop_batch(max, at_once(), |batch, _| batch);
        batches.push(batch.unwrap().iter().map(shown).collect());
    }
    batches
}

/// RQ-13, RQ-14, `TestRealFIFO_PopMultipleDeltaInBatch`: a batch ends at its limit, at an object
/// that is in it already, and at the end of the first list.
#[test]
fn rq_14_the_tables_of_batches() {
    let all = usize::MAX;
    let table: [(usize, &str, &[&[&str]]); 8] = [
        (all, "=a1,b1,c1", &[&["=a1", "=b1", "=c1"]]),
        (2, "=a1,b1 ~c1 ~d1", &[&["=a1", "=b1"], &["~c1", "~d1"]]),
        (all, "=a1 ~a2 ~a3", &[&["=a1"], &["~a2"], &["~a3"]]),
        (all, "=a1,b1 ~b2 ~c3", &[&["=a1", "=b1"], &["~b2", "~c3"]]),
        (all, "=a1,b1,c1 ~b2", &[&["=a1", "=b1", "=c1"], &["~b2"]]),
        (2, "=a1,b1,c1", &[&["=a1", "=b1"], &["=c1"]]),
        (2, "= ~a1 ~b2 ~c3", &[&["~a1", "~b2"], &["~c3"]]),
        (2, "=a1,b1,c1 ~d1", &[&["=a1", "=b1"], &["=c1"], &["~d1"]]),
    ];
    for (max, input, output) in table {
        assert_eq!(
            batches(Stage::in_order("").feed(input), max),
            output,
            "{max}: {input}"
        );
    }
}

/// RQ-13: the special deltas come alone; a compressed queue gives batches of objects.
#[test]
fn rq_13_what_is_about_everything_comes_alone() {
    let mut stage = Stage::atomic(false);
    stage.feed("=a1 ~a2 ~b2 ! ~c3");
    assert_eq!(
        batches(&mut stage, 9),
        [vec!["[a1]@100"], vec!["~a2", "~b2"], vec!["!"], vec!["~c3"]]
    );
    let mut stage = Stage::compressed("");
    stage.feed("=a1,b1 ~b2 ~c3");
    assert_eq!(
        batches(&mut stage, 9),
        [vec!["=a1", "=b1,~b2"], vec!["~c3"]]
    );
}
