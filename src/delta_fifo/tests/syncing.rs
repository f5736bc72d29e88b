//! The first list, the end of the queue, and waiting for either: DF-12 to DF-15, DF-17, RQ-5 to
//! RQ-7, RQ-15, RQ-18.

use super::*;
use crate::clock::FakeClock;
use crate::reflector::ReflectorStatus;

fn pop(stage: &mut Stage) -> bool {
    stage.take().1
}

/// DF-14, `TestDeltaFIFO_HasSynced`; RQ-5, `TestRealFIFO_HasSynced`: input, pops, synced.
#[test]
fn df_14_rq_5_the_table_of_syncing() {
    let table = [
        ("", 0, false),
        ("+a1", 0, true),
        ("~a1", 0, true),
        ("-a1", 0, true),
        ("=", 0, true),
        ("=a1,b1", 0, false),
        ("=a1,b1", 1, false),
        ("=a1,b1", 2, true),
        ("=a1,a1", 1, true),
        ("!", 0, false),
    ];
    for (input, pops, synced) in table {
        for mut stage in [Stage::compressed(""), Stage::alone(), Stage::in_order("")] {
            stage.feed(input);
            for _ in 0..pops {
                pop(&mut stage);
            }
            assert_eq!(
                stage.handle.has_synced(),
                synced,
                "{input} and {pops} pops: {:?}",
                stage.handle
            );
        }
    }
}

/// DF-14, `TestDeltaFIFO_HasSyncedCorrectOnDeletion`, and RQ-5: the deletions that the first list
/// implies are part of it.
#[test]
fn df_14_rq_5_implied_deletions_are_part_of_the_first_list() {
    let table = [
        (Stage::compressed("a1 b1 c1"), ["=a1", "?b1", "?c1"]),
        (Stage::in_order("a1 b1 c1"), ["?b1", "?c1", "=a1"]),
    ];
    for (mut stage, expected) in table {
        stage.feed("=a1");
        for expected in expected {
            assert!(!stage.handle.has_synced());
            let (popped, is_initial) = stage.take();
            assert!(is_initial);
            assert_eq!(shown(&popped), expected);
        }
        assert!(stage.handle.has_synced());
    }
}

/// DF-13, RQ-7: entries taken before the queue had synced are initial. After a change before any
/// list, none is.
#[test]
fn df_13_rq_7_initial_is_what_is_taken_before_the_queue_has_synced() {
    for mut stage in [Stage::compressed(""), Stage::in_order("")] {
        stage.feed("=a1,b1 +c1");
        assert_eq!(
            [pop(&mut stage), pop(&mut stage), pop(&mut stage)],
            [true, true, false]
        );
    }
    for mut stage in [Stage::compressed(""), Stage::in_order("")] {
        stage.feed("+c1 =a1,c1");
        while !stage.handle.is_empty() {
            assert!(!pop(&mut stage));
        }
    }
}

/// DF-15: a later list does not begin the count again.
#[test]
fn df_15_a_later_list_does_not_count() {
    for mut stage in [Stage::compressed(""), Stage::in_order("")] {
        stage.feed("=a1 =b1,c1");
        assert!(pop(&mut stage));
        assert!(stage.handle.has_synced());
        assert!(!pop(&mut stage));
    }
}

/// RQ-5: entries that waited before the first list, without having been input, are part of it.
#[test]
fn rq_5_what_a_resync_brought_up_before_is_part_of_the_first_list() {
    let mut stage = Stage::in_order("a1");
    stage.feed("! =a1");
    assert!(pop(&mut stage) && !stage.handle.has_synced());
    assert!(pop(&mut stage) && stage.handle.has_synced());
}

/// RQ-6, RQ-15: the count falls when the processing has ended, in every mode (DF-14's lie is not
/// told).
#[test]
fn rq_6_the_count_falls_after_the_processing() {
    for mut stage in [
        Stage::compressed(""),
        Stage::in_order(""),
        Stage::atomic(false),
    ] {
        stage.feed("=a1");
        let handle = stage.handle.clone();
        let popped = stage.queue.pop(at_once(), |deltas, _| {
            drop(deltas);
            assert!(!handle.has_synced(), "the deltas are not the processing");
        });
        popped.unwrap();
        assert!(handle.has_synced());
    }
}

/// RQ-15: a batch counts as many as it holds.
#[test]
fn rq_15_a_batch_counts_in_full() {
    for mut stage in [Stage::compressed(""), Stage::in_order("")] {
        stage.feed("=a1,b1,c1");
        let two = std::num::NonZeroUsize::new(2).unwrap();
        stage.queue.pop_batch(two, at_once(), |_, _| ()).unwrap();
        assert!(!stage.handle.has_synced());
        stage.queue.pop_batch(two, at_once(), |_, _| ()).unwrap();
        assert!(stage.handle.has_synced());
    }
}

/// A processing that panics counts as one that has ended: the queue syncs all the same.
#[test]
fn rq_6_a_processing_that_panics_has_ended() {
    let mut stage = Stage::in_order("");
    stage.feed("=a1");
    let panicked = stage.queue.pop(at_once(), |_, _| panic!("made up"));
    let error = panicked.map(|(): ()| ()).unwrap_err();
    let text = "the process function of a ConfigMap queue panicked: made up";
    assert_eq!(error.to_string(), text);
    assert!(stage.handle.has_synced());
}

/// DF-17, RQ-18: waiting entries are handed over after the end, even later writes; then comes the
/// error with its text.
#[test]
fn df_17_rq_18_a_closed_queue_is_drained() {
    for mut stage in [Stage::compressed(""), Stage::in_order("")] {
        stage.feed("+a1");
        stage.handle.close();
        stage.handle.close();
        stage.feed("+b1");
        assert_eq!(stage.drain(), ["+a1", "+b1"]);
        let error = stage.queue.pop(Deadline::NEVER, |_, _| ()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "DeltaFIFO: manipulating with closed queue"
        );
        assert_eq!(error.kind(), ErrorKind::Stopped);
    }
}

/// CT-1: the end of the reflector closes its queue.
#[test]
fn ct_1_the_end_of_the_writer_closes_the_queue() {
    let mut stage = Stage::in_order("");
    stage.feed("+a1");
    let Stage {
        mut queue,
        writer,
        handle,
        ..
    } = stage;
    drop(writer);
    let popped = queue.pop(Deadline::NEVER, |deltas, _| shown(&deltas));
    assert_eq!(popped.unwrap(), "+a1");
    let ended = queue.pop(Deadline::NEVER, |_, _| ());
    assert!(ended.unwrap_err().is_stopped());
    assert_eq!(handle.status().phase, crate::reflector::Phase::Stopped);
}

/// Without a consumer the queue keeps nothing, and writes fail.
#[test]
fn the_end_of_the_consumer_is_an_error_of_every_write() {
    for mut stage in [
        Stage::compressed("a1"),
        Stage::in_order("a1"),
        Stage::atomic(true),
    ] {
        let object = stored("a1");
        stage
            .writer
            .apply(ObjectEvent::added(Arc::clone(&object)))
            .unwrap();
        drop(stage.queue);
        assert_eq!(Arc::strong_count(&object), 1, "what waited is dropped");
        for event in [
            ObjectEvent::added(stored("b1")),
            ObjectEvent::deleted(stored("a2")),
        ] {
            assert!(stage.writer.apply(event).unwrap_err().is_stopped());
        }
        assert!(replace(&mut stage.writer, vec![]).unwrap_err().is_stopped());
        assert!(stage.writer.resync().unwrap_err().is_stopped());
        stage.writer.bookmark(&ResourceVersion::from("7"));
        assert!(stage.handle.is_empty());
    }
}

/// With a deadline that has passed, a pop takes a waiting entry, and fails without one.
#[test]
fn df_12_a_pop_ends_at_its_deadline() {
    let mut stage = Stage::compressed("");
    let error = stage.queue.pop(at_once(), |_, _| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "waiting for a change of a ConfigMap: the deadline passed"
    );
    stage.feed("+a1");
    assert!(
        stage.queue.pop(at_once(), |_, _| ()).is_ok(),
        "success beats the deadline"
    );
}

fn on(fake: &FakeClock) -> Stage {
    let known = view("");
    let options = in_order_over(&known).clock(Clock::from(fake.clone()));
    Stage::new(options, known)
}

fn compressed_on(fake: &FakeClock) -> Stage {
    let options = Options::default().clock(Clock::from(fake.clone()));
    Stage::new(options, Arc::default())
}

/// DF-12: a pop that waits is ended by a change, and by its deadline.
#[test]
fn df_12_a_waiting_pop_is_ended_by_a_change_or_the_deadline() {
    let fake = FakeClock::new();
    for adds in [true, false] {
        let stage = on(&fake);
        let deadline = Clock::from(fake.clone()).after(second());
        let (mut queue, mut writer) = (stage.queue, stage.writer);
        let waiting = parked(&fake, move || {
            queue.pop(deadline, |deltas, _| shown(&deltas))
        });
        if adds {
            writer.apply(ObjectEvent::added(stored("a1"))).unwrap();
            assert_eq!(waiting.told.recv().unwrap().unwrap(), "+a1");
        } else {
            waiting.fake.advance(second());
            let error = waiting.told.recv().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
    }
}

/// DF-17, `TestDeltaFIFO_PopShouldUnblockWhenClosed`, `TestRealFIFO_...`: closing ends a pop that
/// waits.
#[test]
fn df_17_closing_ends_a_waiting_pop() {
    for on in [on, compressed_on] {
        let fake = FakeClock::new();
        let stage = on(&fake);
        let mut queue = stage.queue;
        let waiting = parked(&fake, move || queue.pop(Deadline::NEVER, |_, _| ()));
        stage.handle.close();
        assert!(waiting.told.recv().unwrap().unwrap_err().is_stopped());
    }
}

/// DF-14, R28: the end of the first list's processing wakes its waiters, which expedite the
/// reflector meanwhile.
#[test]
fn df_14_a_wait_ends_with_the_last_initial_item() {
    let fake = FakeClock::new();
    let mut stage = on(&fake);
    stage.feed("=a1");
    let handle = stage.handle.clone();
    let waiting = parked(&fake, move || handle.wait_until_synced(Deadline::NEVER));
    assert!(stage.handle.waiters().any());
    let told = &waiting.told;
    let popped = stage.queue.pop(at_once(), |_, _| assert!(told.is_empty()));
    popped.unwrap();
    waiting.told.recv().unwrap().unwrap();
    stage.handle.wait_until_synced(at_once()).unwrap();
}

/// R28: the closed queue gets no more lists, so the end of the processing ends the wait, too.
#[test]
fn df_14_a_wait_ends_with_the_last_item_of_a_queue_that_was_closed_before_a_list() {
    let fake = FakeClock::new();
    let options = Options::default()
        .bookmarks()
        .clock(Clock::from(fake.clone()));
    let mut stage = Stage::new(options, Arc::default());
    stage.writer.bookmark(&ResourceVersion::from("7"));
    let _deltas = stage.begin();
    stage.handle.close();
    let handle = stage.handle.clone();
    let deadline = Clock::from(fake.clone()).after(second());
    let waiting = parked(&fake, move || handle.wait_until_synced(deadline));
    assert!(waiting.told.is_empty());
    finish(&stage.handle);
    let told = waiting.told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(told.unwrap_err().is_stopped());
}

/// R28: each other end of the wait says why.
#[test]
fn df_14_a_wait_that_fails_gives_the_cause() {
    /// Ends the wait, and returns the values that must live on meanwhile.
    type End = fn(Stage, &FakeClock) -> Box<dyn std::any::Any>;
    let fake = FakeClock::new();
    let ends: [(End, ErrorKind, &str); 5] = [
        (
            |stage, fake| {
                fake.advance(second());
                Box::new(stage)
            },
            ErrorKind::NotSynced,
            "failed to sync configmap cache: timed out waiting for the condition",
        ),
        (
            |stage, _| Box::new(stage.queue),
            ErrorKind::Stopped,
            "waiting for the configmap queue",
        ),
        (
            |stage, _| Box::new(stage.writer),
            ErrorKind::Stopped,
            "waiting for the configmap queue",
        ),
        (
            |mut stage, _| {
                let status = ReflectorStatus {
                    refusal: Some(Error::new(ErrorKind::Forbidden, "no")),
                    ..ReflectorStatus::default()
                };
                stage.writer.report(&status);
                assert!(stage.handle.status().refusal.is_some());
                Box::new(stage)
            },
            ErrorKind::Forbidden,
            "no",
        ),
        (
            |mut stage, _| {
                let status = ReflectorStatus {
                    refusal: Some(Error::new(ErrorKind::NotFound, "no such")),
                    ..ReflectorStatus::default()
                };
                stage.writer.report(&status);
                Box::new(stage)
            },
            ErrorKind::NotFound,
            "no such",
        ),
    ];
    for (end, kind, text) in ends {
        let stage = on(&fake);
        let handle = stage.handle.clone();
        let deadline = Clock::from(fake.clone()).after(second());
        let waiting = parked(&fake, move || handle.wait_until_synced(deadline));
        let kept = end(stage, &fake);
        let error = waiting.told.recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().starts_with(text), "{error}");
        drop(kept);
    }
}
