//! The bounds of a queue (promise 6): the objects of one list, and the waiting objects of lists.

use super::waiting::{on_view, write_parked};
use super::*;

fn bounded(known: &str) -> [Rig; 3] {
    let mut rigs = [
        Rig::compressed(known),
        Rig::in_order(known),
        Rig::atomic(false),
    ];
    for rig in &mut rigs {
        rig.writer.bound(2);
    }
    rigs
}

#[test]
fn a_list_beyond_the_bound_brings_its_first_objects() {
    for mut rig in bounded("") {
        rig.feed("=a1,b1,c1,d1");
        assert_eq!(rig.writer.left_out(), 2);
        let brought = rig.drain().join(" ");
        assert!(
            brought.contains("b1") && !brought.contains("c1"),
            "{brought}"
        );
        rig.feed("+c2 =a1,b1");
        assert_eq!(rig.writer.left_out(), 0);
    }
}

/// Otherwise the consumer would get a deletion of an object that the server has.
#[test]
fn a_list_beyond_the_bound_keeps_what_the_consumer_holds() {
    for options in [Options::default(), Options::default().in_order()] {
        let fake = FakeClock::new();
        let mut rig = on_view(&fake, options, view("y1 z1"));
        rig.writer.bound(2);
        rig.feed("=a1,b1,c1,d1,y2,z1");
        assert_eq!(rig.writer.left_out(), 2);
        assert_eq!(rig.drain(), ["=a1", "=b1", "=y2", "=z1"]);
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
        let mut rig = on_view(&fake, options.max_objects(2), view("q1"));
        rig.feed("=a1,q1 +c1");
        let waiting = write_parked(&fake, &mut rig, word);
        assert!(waiting.told.is_empty());
        rig.pop();
        let (written, writer) = waiting.told.recv().unwrap();
        written.unwrap();
        rig.writer = writer;
        rig.drain();
        assert_eq!(rig.handle.state.lock().listed, 0);
    }
}
