//! During the processing: events go on, lists and resyncs wait, and nothing waits for itself.

use super::*;
use crate::worker::StopSource;

fn on(fake: &FakeClock, options: Options) -> Stage {
    let known = view("");
    on_view(fake, options, known)
}

pub(super) fn on_view(fake: &FakeClock, options: Options, known: Arc<View>) -> Stage {
    let options = options.clock(Clock::from(fake.clone()));
    let options = options.known(Arc::<View>::clone(&known));
    Stage::new(options, known)
}

/// A write that waits, on its own thread, which returns the writer.
pub(super) fn write_parked(
    fake: &FakeClock,
    stage: &mut Stage,
    word: &str,
) -> Waiting<(Result<(), Error>, DeltaFifoWriter<ConfigMap>)> {
    let (_, spare) = DeltaFifo::new(Options::default());
    let mut writer = std::mem::replace(&mut stage.writer, spare);
    let word = word.to_owned();
    parked(fake, move || (write(&mut writer, &word), writer))
}

/// DF-12 is better here, and RQ-12: an event waits for no processing.
#[test]
fn rq_12_an_event_is_queued_while_something_is_processed() {
    let table = [
        ("", "+a1", "~a2", "~a2"),
        ("", "+a1", "-a2", "-a2"),
        ("a1", "~a2", "-a3", "-a3"),
        // DF-5: the deletion that is processed may be refused as old news (B18).
        ("a3", "-a2", "-a4", "-a4"),
    ];
    for (known, before, meanwhile, expected) in table {
        for mut stage in [Stage::compressed(known), Stage::in_order(known)] {
            stage.feed(before);
            let deltas = stage.begin();
            stage.feed(meanwhile);
            apply(&stage.known, &deltas);
            finish(&stage.handle);
            assert_eq!(stage.drain(), [expected], "{before} {meanwhile}");
        }
    }
}

/// DF-8, RQ-3, DF-16, RQ-9: a list and a resync wait until nothing is processed, and then see the
/// result.
#[test]
fn df_8_rq_3_df_16_rq_9_a_list_and_a_resync_wait_for_the_processing() {
    let table = [
        ("", "+a1", "=", "?a1"),
        ("", "+a1", "=a1", "=a1"),
        ("a1", "-a2", "=", ""),
        ("a1", "~a2", "=", "?a2"),
        ("", "+a1", "!", "!a1"),
        ("a1", "~a2", "!", "!a2"),
        ("a1", "-a2", "!", ""),
        ("a1 b1", "~a2", "!", "!a2 !b1"),
    ];
    for (known, before, word, expected) in table {
        for options in [Options::default(), Options::default().in_order()] {
            let fake = FakeClock::new();
            let mut stage = on_view(&fake, options, view(known));
            stage.feed(before);
            let deltas = stage.begin();
            let waiting = write_parked(&fake, &mut stage, word);
            assert!(stage.handle.is_empty() && waiting.told.is_empty());
            apply(&stage.known, &deltas);
            finish(&stage.handle);
            let (written, writer) = waiting.told.recv().unwrap();
            written.unwrap();
            stage.writer = writer;
            assert_eq!(stage.drain().join(" "), expected, "{before} {word}");
        }
    }
}

/// B18, RQ-3: the consumer refuses the deletion in processing as old news. The list sees that the
/// object exists.
#[test]
fn b18_rq_3_a_list_ends_an_object_whose_deletion_is_refused_meanwhile() {
    let fake = FakeClock::new();
    let mut stage = on_view(&fake, Options::default(), view("a5"));
    stage.feed("-a2");
    let _refused = stage.begin();
    let waiting = write_parked(&fake, &mut stage, "=");
    finish(&stage.handle);
    let (written, writer) = waiting.told.recv().unwrap();
    written.unwrap();
    stage.writer = writer;
    assert_eq!(stage.drain(), ["?a5"]);
}

/// RQ-5: entries processed before the first list do not count for it.
#[test]
fn rq_5_what_is_processed_before_the_first_list_does_not_count_for_it() {
    let fake = FakeClock::new();
    let mut stage = on_view(&fake, Options::default().in_order(), view("a1"));
    stage.feed("!");
    assert_eq!(shown(&stage.begin()), "!a1");
    let waiting = write_parked(&fake, &mut stage, "=b1");
    finish(&stage.handle);
    let (written, writer) = waiting.told.recv().unwrap();
    written.unwrap();
    stage.writer = writer;
    assert_eq!(stage.handle.len(), 2, "the deletion of a, and b");
    assert!(stage.take().1 && !stage.handle.has_synced());
    assert!(stage.take().1 && stage.handle.has_synced());
}

/// A list with `atomic_lists` reads no known objects, and waits for nothing.
#[test]
fn rq_10_an_atomic_list_waits_for_no_processing() {
    let mut stage = Stage::atomic(false);
    stage.feed("+a1");
    let _deltas = stage.begin();
    stage.feed("=b1 !");
    finish(&stage.handle);
    assert_eq!(stage.drain(), ["[b1]@100", "!"]);
}

/// The ways to end a waiting write, although the consumer goes on.
enum End {
    Stop,
    Close,
    Drop,
}

/// Ends a waiting write in each way: it fails, and leaves nothing behind.
fn ends(options: fn() -> Options, meanwhile: &str, word: &str) {
    for end in [End::Stop, End::Close, End::Drop] {
        let fake = FakeClock::new();
        let mut stage = on(&fake, options());
        let stop = StopSource::new();
        stage.writer.start(&stop.token());
        stage.feed("+a1");
        let _deltas = stage.begin();
        stage.feed(meanwhile);
        let waited = stage.handle.len();
        let waiting = write_parked(&fake, &mut stage, word);
        let mut queue = Some(stage.queue);
        match end {
            End::Stop => stop.stop(),
            End::Close => stage.handle.close(),
            End::Drop => drop(queue.take()),
        }
        let (written, _writer) = waiting.told.recv().unwrap();
        assert!(written.unwrap_err().is_stopped());
        assert_eq!(stage.handle.len(), if queue.is_some() { waited } else { 0 });
    }
}

#[test]
fn stop_close_and_the_end_of_the_consumer_end_the_wait_of_a_list() {
    ends(Options::default, "", "=b1");
    ends(Options::default, "", "!");
}

#[test]
fn rq_12_stop_close_and_the_end_of_the_consumer_end_the_wait_of_an_event() {
    ends(|| Options::default().max_events(1), "+b1", "+c1");
}

/// RQ-12: above its bound the writer waits until something is taken. A list passes whole, and does
/// not count.
#[test]
fn rq_12_above_its_bound_an_event_waits() {
    for options in [Options::default(), Options::default().in_order()] {
        let fake = FakeClock::new();
        let mut stage = on(&fake, options.max_events(2));
        stage.feed("=a1,b1,c1 +d1 =a1,b1,c1,d1 ~b2");
        let waiting = write_parked(&fake, &mut stage, "~d2");
        while stage.pop().iter().all(|delta| delta.counts().0 == 0) {
            assert!(waiting.told.is_empty());
        }
        let (written, writer) = waiting.told.recv().unwrap();
        written.unwrap();
        stage.writer = writer;
        assert!(stage.drain().join(",").contains("~d2"));
        stage.feed("~a8 ~a9");
    }
}

/// A write inside the process function could wait for itself: it fails, and the queue goes on.
#[test]
fn a_write_inside_the_process_function_is_refused() {
    for mut stage in [
        Stage::compressed("z1"),
        Stage::in_order("z1"),
        Stage::atomic(true),
    ] {
        stage.feed("+a1 +b1");
        let Stage { queue, writer, .. } = &mut stage;
        let popped = queue.pop(at_once(), |_, _| {
            for word in ["+c1", "-c1", "=c1", "!"] {
                let error = write(writer, word).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config);
                let text =
                    "DeltaFIFO: the process function of a ConfigMap queue wrote to that queue";
                assert!(error.to_string().starts_with(text), "{error}");
            }
            writer.bookmark(&ResourceVersion::from("7"));
        });
        popped.unwrap();
        assert_eq!(stage.drain(), ["+b1"]);
        stage.feed("+c1");
    }
}
