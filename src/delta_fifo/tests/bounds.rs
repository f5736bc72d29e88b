//! The bounds of a queue (promise 6): the objects of one list, and the waiting objects of lists.

use super::waiting::{on_view, write_parked};
use super::*;
use crate::list_watch::EventKind;

fn bounded(known: &str) -> [Stage; 3] {
    let mut rigs = [
        Stage::compressed(known),
        Stage::in_order(known),
        Stage::atomic(false),
    ];
    for stage in &mut rigs {
        stage.writer.bound(2);
    }
    rigs
}

#[test]
fn a_list_beyond_the_bound_brings_its_first_objects() {
    for mut stage in bounded("") {
        stage.feed("=a1,b1,c1,d1");
        assert_eq!(stage.writer.left_out(), 2);
        let brought = stage.drain().join(" ");
        assert!(
            brought.contains("b1") && !brought.contains("c1"),
            "{brought}"
        );
        stage.feed("+c2 =a1,b1");
        assert_eq!(stage.writer.left_out(), 0);
    }
}

/// Otherwise the consumer would get a deletion of an object that the server has.
#[test]
fn a_list_beyond_the_bound_keeps_what_the_consumer_holds() {
    for options in [Options::default(), Options::default().in_order()] {
        let fake = FakeClock::new();
        let mut stage = on_view(&fake, options, view("y1 z1"));
        stage.writer.bound(2);
        stage.feed("=a1,b1,c1,d1,y2,z1");
        assert_eq!(stage.writer.left_out(), 2);
        assert_eq!(stage.drain(), ["=a1", "=b1", "=y2", "=z1"]);
    }
}

/// Seen: what waited was in no view yet, and the list was its deletion.
#[test]
fn a_list_beyond_the_bound_keeps_what_waits() {
    for mut stage in bounded("") {
        stage.feed("+y1 =a1,b1,c1,d1,y2");
        assert_eq!(stage.writer.left_out(), 2);
        let brought = stage.drain().join(" ");
        assert!(
            brought.contains("y2") && !brought.contains("-y"),
            "{brought}"
        );
    }
}

/// Only its commit waits for the end of the processing: the server sends the body meanwhile.
#[test]
fn a_list_beyond_the_bound_keeps_what_is_processed_and_does_not_wait_for_it() {
    for mut stage in bounded("") {
        stage.writer.bound(1);
        stage.feed("+y1");
        let thread = crate::sync::current_thread();
        let taken = stage.handle.state.lock().take(1, thread);
        let mut staging = stage.writer.begin();
        for word in ["a1", "b1", "y2"] {
            let object = Listed::Object(stored(word));
            let kind = EventKind::Added;
            stage
                .writer
                .stage(&mut staging, ObjectEvent { kind, object });
        }
        let mut kept: Vec<_> = staging
            .items
            .keys()
            .map(|key| key.name().to_owned())
            .collect();
        kept.sort_unstable();
        assert_eq!(kept, ["a", "y"]);
        drop(taken);
    }
}

/// A list and a resync, while the consumer takes nothing.
#[test]
fn a_list_waits_until_less_than_the_bound_of_lists_waits() {
    let options = [
        Options::default(),
        Options::default().in_order(),
        Options::default().atomic_lists(),
    ];
    for (options, word) in options.into_iter().zip(["=a2,b2", "!", "=a2,b2"]) {
        let fake = FakeClock::new();
        let mut stage = on_view(&fake, options.max_objects(2), view("q1"));
        stage.feed("=a1,q1 +c1");
        let waiting = write_parked(&fake, &mut stage, word);
        assert!(waiting.told.is_empty());
        stage.pop();
        let (written, writer) = waiting.told.recv().unwrap();
        written.unwrap();
        stage.writer = writer;
        stage.drain();
        assert_eq!(stage.handle.state.lock().listed, 0);
    }
}
