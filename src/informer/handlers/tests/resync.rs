//! Which handlers are resynced when (SI-21 to SI-25).

use super::*;
use crate::informer::handlers::resync::{CheckPeriod, Resync, is_resync};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The periods that handlers ask for, one after the other; the periods they get; the check period.
/// In milliseconds.
type Row = (&'static [u64], &'static [Option<u64>], Option<u64>);

/// One handler after the other asks; the periods of all of them after each, and the check period.
fn table(default: Duration, started: bool, asks: &[u64]) -> (Vec<Option<u64>>, Option<u64>) {
    let now = FakeClock::new().now();
    let mut check = CheckPeriod::new(default);
    if started {
        check.start();
    }
    let mut handlers: Vec<Resync> = Vec::new();
    for ask in asks {
        check.admit(Duration::from_millis(*ask));
        handlers.push(Resync::new(Duration::from_millis(*ask), check, now));
    }
    let millis = |period: Duration| u64::try_from(period.as_millis()).unwrap();
    let periods = handlers
        .iter()
        .map(|handler| handler.period(check).map(millis));
    (periods.collect(), check.get().map(millis))
}

/// The upstream table of `TestResyncCheckPeriod`.
#[test]
fn si_21_the_check_period_is_the_shortest_one_asked_for_before_the_start() {
    let hours = Some(12 * 3_600_000);
    let rows: [Row; 4] = [
        (&[0], &[None], hours),
        (&[0, 60_000], &[None, Some(60_000)], Some(60_000)),
        (
            &[0, 60_000, 55_000],
            &[None, Some(60_000), Some(55_000)],
            Some(55_000),
        ),
        (
            &[0, 60_000, 55_000, 5_000],
            &[None, Some(60_000), Some(55_000), Some(5_000)],
            Some(5_000),
        ),
    ];
    for (asks, periods, check) in rows {
        assert_eq!(table(12 * HOUR, false, asks), (periods.to_vec(), check));
    }
}

#[test]
fn si_22_a_period_is_raised_to_a_second_and_after_the_start_to_the_check_period() {
    assert_eq!(
        table(12 * HOUR, false, &[200]),
        (vec![Some(1_000)], Some(1_000))
    );
    assert_eq!(
        table(seconds(30), true, &[5_000, 60_000, 0]),
        (vec![Some(30_000), Some(60_000), None], Some(30_000))
    );
}

#[test]
fn si_22_without_a_check_period_nobody_is_resynced() {
    assert_eq!(
        table(Duration::ZERO, false, &[60_000, 0]),
        (vec![None, None], None)
    );
    assert_eq!(table(Duration::ZERO, true, &[60_000]), (vec![None], None));
}

/// The upstream table of `TestListenerResyncPeriods`: periods of 0, 2 and 3 seconds, looked at each
/// second.
#[test]
fn si_23_a_handler_is_due_at_its_own_period_and_armed_anew() {
    let fake = FakeClock::new();
    let mut check = CheckPeriod::new(seconds(1));
    let mut handlers = [0, 2, 3].map(|ask| {
        check.admit(seconds(ask));
        Resync::new(seconds(ask), check, fake.now())
    });
    let due = (1..=6).map(|_| {
        fake.advance(seconds(1));
        handlers
            .each_mut()
            .map(|handler| handler.evaluate(check, fake.now()))
    });
    let (no, yes) = (false, true);
    assert_eq!(
        due.collect::<Vec<_>>(),
        [
            [no, no, no],
            [no, yes, no],
            [no, no, yes],
            [no, yes, no],
            [no, no, no],
            [no, yes, yes],
        ]
    );
}

#[test]
fn si_23_a_late_look_arms_from_now() {
    let fake = FakeClock::new();
    let check = CheckPeriod::new(seconds(1));
    let mut handler = Resync::new(seconds(2), check, fake.now());
    fake.advance(seconds(7));
    assert!(handler.evaluate(check, fake.now()));
    fake.advance(seconds(1));
    assert!(
        !handler.evaluate(check, fake.now()),
        "one second after the last one"
    );
    fake.advance(seconds(1));
    assert!(handler.evaluate(check, fake.now()));
}

#[test]
fn si_24_everybody_is_syncing_until_the_first_look() {
    let stage = Stage::with_resync(seconds(1));
    let (handler, never) = collector();
    let options = HandlerOptions::default().resync_period(Duration::ZERO);
    stage.add(handler, options, &["a1"]);
    stage.tell(&["a1>1"]);
    stage.source.processor.resync_is_due();
    stage.tell(&["a1>1", "a1>2"]);
    assert_eq!(next(&never, 3), ["*a1", "a1>1", "a1>2"]);
}

#[test]
fn si_24_an_update_within_one_version_is_a_resync() {
    let same = stored("a");
    let in_memory = Notification::Updated {
        old: Arc::clone(&same),
        new: same,
    };
    assert!(is_resync(&in_memory), "the same object");
    assert!(is_resync(&told("a1>1")));
    assert!(!is_resync(&told("a1>2")));
    assert!(
        !is_resync(&told("a>")),
        "two objects without versions may differ"
    );
    assert!(!is_resync(&told("+a1")) && !is_resync(&told("-a1")));
}

/// The upstream test `TestListenerResyncPeriods`, from end to end.
#[test]
fn si_23_a_resync_reaches_only_the_handlers_that_are_due() {
    let stage = Stage::with_resync(seconds(1));
    let add = |period| {
        let (handler, receiver) = collector();
        stage.add(
            handler,
            HandlerOptions::default().resync_period(period),
            &["a1"],
        );
        receiver
    };
    let (never, two, three) = (add(Duration::ZERO), add(seconds(2)), add(seconds(3)));
    stage.source.processor.start();
    assert_eq!(stage.source.processor.check_period(), Some(seconds(1)));
    let mut due = Vec::new();
    for second in 1..=3 {
        stage.fake.advance(seconds(1));
        if stage.source.processor.resync_is_due() {
            due.push(second);
            stage.tell(&["a1>1"]);
        }
    }
    assert_eq!(due, [2, 3]);
    stage.tell(&["a1>2"]);
    assert_eq!(next(&never, 2), ["*a1", "a1>2"]);
    assert_eq!(next(&two, 3), ["*a1", "a1>1", "a1>2"]);
    assert_eq!(next(&three, 3), ["*a1", "a1>1", "a1>2"]);
}

/// `TestSharedInformerWatchDisruption`'s consequence: a relist's unchanged objects reach only
/// handlers that resync.
#[test]
fn si_24_after_a_relist_only_changes_reach_a_handler_without_resync() {
    let stage = Stage::with_resync(seconds(1));
    let (handler, never) = collector();
    stage.add(
        handler,
        HandlerOptions::default().resync_period(Duration::ZERO),
        &["a1", "b1"],
    );
    let (handler, often) = collector();
    stage.add(handler, HandlerOptions::default(), &["a1", "b1"]);
    stage.source.processor.start();
    stage.fake.advance(seconds(1));
    assert!(stage.source.processor.resync_is_due());
    stage.tell(&["a1>1", "b1>2", "+c3"]);
    let [mut never, mut often] = [next(&never, 4), next(&often, 5)];
    // The initial list comes in no promised order.
    never[..2].sort();
    often[..2].sort();
    assert_eq!(never, ["*a1", "*b1", "b1>2", "+c3"]);
    assert_eq!(often, ["*a1", "*b1", "a1>1", "b1>2", "+c3"]);
}

#[test]
fn si_22_a_handler_that_comes_late_gets_at_most_the_check_period() {
    let stage = Stage::with_resync(seconds(30));
    stage.source.processor.start();
    let (handler, receiver) = collector();
    stage.add(
        handler,
        HandlerOptions::default().resync_period(seconds(5)),
        &["a1"],
    );
    stage.fake.advance(seconds(29));
    assert!(!stage.source.processor.resync_is_due());
    stage.tell(&["a1>1"]);
    stage.fake.advance(seconds(1));
    assert!(stage.source.processor.resync_is_due());
    stage.tell(&["a1>1", "-a1"]);
    assert_eq!(next(&receiver, 3), ["*a1", "a1>1", "-a1"]);
}

/// SI-25: a resync goes through the handler's queue like all else, so it comes after older changes.
#[test]
fn si_25_a_resync_does_not_overtake() {
    let stage = Stage::with_resync(seconds(1));
    let (handler, steps) = Stepped::new();
    stage.add(handler, HandlerOptions::default(), &["a1"]);
    stage.tell(&["a1>2", "a2>2", "a2>3"]);
    let calls: Vec<_> = (0..4).map(|_| steps.pass()).collect();
    assert_eq!(calls, ["*a1", "a1>2", "a2>2", "a2>3"]);
}
