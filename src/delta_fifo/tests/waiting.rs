//! During the processing: events go on, lists and resyncs wait, and nothing waits for itself.

use super::*;
use crate::worker::StopSource;

fn on(fake: &FakeClock, options: Options) -> Rig {
    let known = view("");
    on_view(fake, options, known)
}

pub(super) fn on_view(fake: &FakeClock, options: Options, known: Arc<View>) -> Rig {
    let options = options.clock(Clock::from(fake.clone()));
    let options = options.known(Arc::<View>::clone(&known));
    Rig::new(options, known)
}

/// A write that waits, on its own thread, which returns the writer.
pub(super) fn write_parked(
    fake: &FakeClock,
    rig: &mut Rig,
    word: &str,
) -> Waiting<(Result<(), Error>, DeltaFifoWriter<ConfigMap>)> {
    let (_, spare) = DeltaFifo::new(Options::default());
    let mut writer = std::mem::replace(&mut rig.writer, spare);
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
        for mut rig in [Rig::compressed(known), Rig::in_order(known)] {
            rig.feed(before);
            let deltas = rig.begin();
            rig.feed(meanwhile);
            apply(&rig.known, &deltas);
            finish(&rig.handle);
            assert_eq!(rig.drain(), [expected], "{before} {meanwhile}");
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
            let mut rig = on_view(&fake, options, view(known));
            rig.feed(before);
            let deltas = rig.begin();
            let waiting = write_parked(&fake, &mut rig, word);
            assert!(rig.handle.is_empty() && waiting.told.is_empty());
            apply(&rig.known, &deltas);
            finish(&rig.handle);
            let (written, writer) = waiting.told.recv().unwrap();
            written.unwrap();
            rig.writer = writer;
            assert_eq!(rig.drain().join(" "), expected, "{before} {word}");
        }
    }
}

/// B18, RQ-3: the consumer refuses the deletion in processing as old news. The list sees that the
/// object exists.
#[test]
fn b18_rq_3_a_list_ends_an_object_whose_deletion_is_refused_meanwhile() {
    let fake = FakeClock::new();
    let mut rig = on_view(&fake, Options::default(), view("a5"));
    rig.feed("-a2");
    let _refused = rig.begin();
    let waiting = write_parked(&fake, &mut rig, "=");
    finish(&rig.handle);
    let (written, writer) = waiting.told.recv().unwrap();
    written.unwrap();
    rig.writer = writer;
    assert_eq!(rig.drain(), ["?a5"]);
}

/// RQ-5: entries processed before the first list do not count for it.
#[test]
fn rq_5_what_is_processed_before_the_first_list_does_not_count_for_it() {
    let fake = FakeClock::new();
    let mut rig = on_view(&fake, Options::default().in_order(), view("a1"));
    rig.feed("!");
    assert_eq!(shown(&rig.begin()), "!a1");
    let waiting = write_parked(&fake, &mut rig, "=b1");
    finish(&rig.handle);
    let (written, writer) = waiting.told.recv().unwrap();
    written.unwrap();
    rig.writer = writer;
    assert_eq!(rig.handle.len(), 2, "the deletion of a, and b");
    assert!(rig.take().1 && !rig.handle.has_synced());
    assert!(rig.take().1 && rig.handle.has_synced());
}

/// A list with `atomic_lists` reads no known objects, and waits for nothing.
#[test]
fn rq_10_an_atomic_list_waits_for_no_processing() {
    let mut rig = Rig::atomic(false);
    rig.feed("+a1");
    let _deltas = rig.begin();
    rig.feed("=b1 !");
    finish(&rig.handle);
    assert_eq!(rig.drain(), ["[b1]@100", "!"]);
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
        let mut rig = on(&fake, options());
        let stop = StopSource::new();
        rig.writer.start(&stop.token());
        rig.feed("+a1");
        let _deltas = rig.begin();
        rig.feed(meanwhile);
        let waited = rig.handle.len();
        let waiting = write_parked(&fake, &mut rig, word);
        let mut queue = Some(rig.queue);
        match end {
            End::Stop => stop.stop(),
            End::Close => rig.handle.close(),
            End::Drop => drop(queue.take()),
        }
        let (written, _writer) = waiting.told.recv().unwrap();
        assert!(written.unwrap_err().is_stopped());
        assert_eq!(rig.handle.len(), if queue.is_some() { waited } else { 0 });
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
        let mut rig = on(&fake, options.max_events(2));
        rig.feed("=a1,b1,c1 +d1 =a1,b1,c1,d1 ~b2");
        let waiting = write_parked(&fake, &mut rig, "~d2");
        while rig.pop().iter().all(|delta| delta.counts().0 == 0) {
            assert!(waiting.told.is_empty());
        }
        let (written, writer) = waiting.told.recv().unwrap();
        written.unwrap();
        rig.writer = writer;
        assert!(rig.drain().join(",").contains("~d2"));
        rig.feed("~a8 ~a9");
    }
}

/// A write inside the process function could wait for itself: it fails, and the queue goes on.
#[test]
fn a_write_inside_the_process_function_is_refused() {
    for mut rig in [
        Rig::compressed("z1"),
        Rig::in_order("z1"),
        Rig::atomic(true),
    ] {
        rig.feed("+a1 +b1");
        let Rig { queue, writer, .. } = &mut rig;
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
        assert_eq!(rig.drain(), ["+b1"]);
        rig.feed("+c1");
    }
}
