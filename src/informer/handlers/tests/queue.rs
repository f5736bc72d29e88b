//! The queue of one handler: order, coalescing, counts.

use super::*;
use crate::informer::handlers::queue::HandlerQueue;

struct Waits(HandlerQueue<ConfigMap>, Clock);

impl Waits {
    fn new(bound: Option<usize>) -> Self {
        Self(HandlerQueue::new(bound), Clock::from(FakeClock::new()))
    }

    /// Pushes words; `!` in front marks a resync's update.
    fn push(&mut self, words: &[&str]) -> &mut Self {
        for word in words {
            let plain = word.trim_start_matches('!');
            self.0
                .push(told(plain), plain.len() != word.len(), self.1.now());
        }
        self
    }

    fn all(&mut self) -> Vec<String> {
        let entries = std::iter::from_fn(|| self.0.pop());
        entries.map(|entry| written(&entry.notification)).collect()
    }
}

#[test]
fn si_17_below_the_bound_every_notification_is_kept_in_order() {
    let comes = ["*a1", "a1>2", "+b1", "a2>3", "-a3", "+a4", "-b1", "-a4"];
    let mut waits = Waits::new(Some(8));
    assert_eq!(waits.push(&comes).all(), comes);
    assert_eq!(waits.0.coalesced(), 0);
}

#[test]
fn without_a_bound_nothing_is_ever_coalesced() {
    let mut waits = Waits::new(None);
    waits.push(&["+a1"]);
    for version in 1..30_000 {
        waits.push(&[&format!("a{version}>{}", version + 1)]);
    }
    assert_eq!((waits.0.len(), waits.0.coalesced()), (30_000, 0));
}

/// Every row of the table in the queue's documentation, and rows that a sound source does not send.
#[test]
fn beyond_the_bound_notifications_of_one_object_join() {
    let rows: [(&[&str], &[&str], u64); 22] = [
        (&["*a1", "a1>2"], &["*a2"], 1),
        (&["+a1", "a1>2", "a2>3"], &["+a3"], 2),
        (&["a1>2", "a2>3"], &["a1>3"], 1),
        (&["a1>2", "-a2"], &["-a2"], 1),
        (&["a1>2", "?a2"], &["?a2"], 1),
        (&["*a1", "-a1"], &["*a1", "-a1"], 0),
        (&["-a1", "+a2"], &["-a1", "+a2"], 0),
        (&["-a1", "+a2", "a2>3"], &["-a1", "+a3"], 1),
        (&["-a1", "+a2", "-a2"], &["-a1", "+a2", "-a2"], 0),
        (&["-a1", "*a2", "-a2", "+a3"], &["-a1", "+a3"], 2),
        (
            &["a1>2", "-a2", "+a3", "a3>4", "-a4", "+a5"],
            &["-a2", "+a5"],
            4,
        ),
        // DF-6: a reported delete wins over a missed one, and the newer of two missed ones wins.
        (&["-a1", "?a2"], &["-a1"], 1),
        (&["?a1", "-a2"], &["-a2"], 1),
        (&["?a1", "?a2"], &["?a2"], 1),
        // Another object of that name: the handler gets the delete of the one that it knows.
        (&["a1>2x", "-a2x"], &["?a1"], 1),
        (&["a1>2", "a2>3x", "a3x>4x", "-a4x"], &["?a1"], 3),
        (&["a1>2x", "a2x>3", "-a3"], &["-a3"], 2),
        (&["?a1", "-a2x"], &["?a1"], 1),
        (&["?a1", "?a2x"], &["?a1"], 1),
        (&["+a1", "a1>2x", "-a2x"], &["+a2x", "-a2x"], 1),
        (&["+a1", "+a2"], &["+a2"], 1),
        (&["a1>2", "+a3"], &["a1>3"], 1),
    ];
    for (comes, expected, coalesced) in rows {
        let mut waits = Waits::new(Some(1));
        assert_eq!(waits.push(comes).all(), expected, "{comes:?}");
        assert_eq!(waits.0.coalesced(), coalesced, "{comes:?}");
    }
}

#[test]
fn df_4_a_newcomer_takes_the_place_of_what_waits_for_its_object() {
    let mut waits = Waits::new(Some(2));
    waits.push(&["a1>2", "b1>2", "c1>2", "a2>3", "b2>3", "-c2"]);
    assert_eq!(waits.all(), ["a1>3", "b1>3", "-c2"]);
}

#[test]
fn beyond_the_bound_only_the_last_of_several_below_it_is_joined() {
    let mut waits = Waits::new(Some(3));
    waits.push(&["a1>2", "a2>3", "b1>2", "a3>4", "-a4", "+a5"]);
    assert_eq!(waits.all(), ["a1>2", "-a4", "b1>2", "+a5"]);
}

#[test]
fn resync_updates_go_first_the_newest_of_them_first() {
    let mut waits = Waits::new(Some(3));
    waits.push(&["!a1>1", "!b1>1", "c1>2", "!d1>1", "d1>2", "c2>3", "c3>4"]);
    assert_eq!(waits.all(), ["c1>2", "d1>2", "c2>4"]);
    assert_eq!(waits.0.coalesced(), 4);
}

/// The drop of an object overwrites secrets, which no lock may wait for.
#[test]
fn the_pusher_drops_what_is_left_out() {
    let rows: [(&[&str], &str, usize); 5] = [
        (&["a1>2"], "!b1>1", 1),
        (&["!a1>1"], "b1>2", 1),
        (&["a1>2"], "a2>3", 2),
        (&["+a1", "-a1"], "+a2", 2),
        (&["a1>2"], "b1>2", 0),
    ];
    for (waiting, comes, dropped) in rows {
        let mut waits = Waits::new(Some(1));
        waits.push(waiting);
        let plain = comes.trim_start_matches('!');
        let now = waits.1.now();
        let left = waits.0.push(told(plain), plain != comes, now);
        assert_eq!(left.len(), dropped, "{waiting:?} {comes}");
    }
}

#[test]
fn a_queue_that_was_emptied_knows_nothing_of_what_waited() {
    let mut waits = Waits::new(Some(2));
    waits.push(&["!a1>1", "!b1>1"]);
    assert_eq!(waits.0.clear().len(), 2);
    assert_eq!(
        waits.push(&["c1>2", "d1>2", "c2>3"]).all(),
        ["c1>3", "d1>2"]
    );
}

#[test]
fn a_queue_that_shrinks_keeps_every_notification_again() {
    let mut waits = Waits::new(Some(2));
    waits.push(&["a1>2", "b1>2", "a2>3"]);
    assert_eq!(waits.all(), ["a1>3", "b1>2"]);
    assert_eq!(waits.push(&["a3>4", "a4>5"]).all(), ["a3>4", "a4>5"]);
}

#[test]
fn si_16_the_count_of_the_initial_list_follows_what_joins_and_what_goes() {
    let mut waits = Waits::new(Some(1));
    waits.push(&["*a1", "*b1", "+c1", "a1>2"]);
    assert_eq!(waits.0.initial(), 2);
    waits.push(&["-b1"]);
    assert_eq!(waits.0.initial(), 2, "its add and its delete are told");
    waits.push(&["+b2"]);
    assert_eq!(waits.0.initial(), 1, "that one is not of the initial list");
    waits.0.pop();
    assert_eq!(waits.0.initial(), 0);
    waits.push(&["*d1"]);
    waits.0.clear();
    assert_eq!((waits.0.initial(), waits.0.len()), (0, 0));
}

/// A handler that stands still while objects come and go under ever new names.
#[test]
fn far_beyond_the_bound_objects_that_come_and_go_unseen_take_no_space() {
    let mut waits = Waits::new(Some(10));
    waits.push(&["a1>2", "b1>2"]);
    let name = |number: u32| char::from_u32(0x4E00 + number % 20_000).unwrap();
    for number in 0..15_000 {
        let name = name(number);
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_string());
        let object = Arc::new(StoredObject::new(object));
        let added = Notification::Added {
            object: Arc::clone(&object),
            is_in_initial_list: false,
        };
        waits.0.push(added, false, waits.1.now());
        let gone = Notification::Deleted(Deleted::seen(object));
        waits.0.push(gone, false, waits.1.now());
    }
    waits.push(&["-a2"]);
    assert_eq!(waits.0.len(), 10_010);
    assert!(waits.0.coalesced() > 19_000, "{}", waits.0.coalesced());
    assert_eq!(waits.all().first().unwrap(), "-a2");
}

#[test]
fn the_oldest_news_of_an_object_says_how_long_it_waits() {
    let fake = FakeClock::new();
    let mut queue = HandlerQueue::new(Some(1));
    let begun = fake.now();
    queue.push(told("a1>2"), false, begun);
    fake.advance(Duration::from_secs(3));
    queue.push(told("a2>3"), false, fake.now());
    assert_eq!(queue.oldest(), Some(begun));
    queue.pop();
    assert_eq!(queue.oldest(), None);
}
