//! Random histories: the final map of a handler, against the source itself.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use super::*;
use crate::informer::handlers::queue::HandlerQueue;
use crate::tests::dice::Dice;

/// Histories per run.
const HISTORIES: u64 = 300;

/// The naive side: a server with a few objects, and its notifications.
#[derive(Default)]
struct Source {
    version: u64,
    objects: BTreeMap<String, String>,
}

impl Source {
    fn next(&mut self, dice: &mut Dice, initial: bool) -> (String, bool) {
        let name = ["a", "b", "c", "d", "e"][usize::try_from(dice.roll(5)).unwrap()].to_owned();
        self.version += 1;
        let version = self.version;
        let new = format!("{name}{version}");
        let Some(old) = self.objects.get(&name).cloned() else {
            let mark = if initial { '*' } else { '+' };
            self.objects.insert(name, new.clone());
            return (format!("{mark}{new}"), false);
        };
        let new = format!("{new}{}", incarnation(&old));
        match dice.roll(7) {
            0 => {
                self.objects.remove(&name);
                (format!("-{old}"), false)
            }
            1 => {
                self.objects.remove(&name);
                (format!("?{old}"), false)
            }
            2 => (format!("{old}>{}", &old[1..]), true),
            // Another object of that name: the handler did not get the end of the first one.
            3 => {
                let new = format!("{name}{version}x{version}");
                self.objects.insert(name, new.clone());
                (format!("{old}>{}", &new[1..]), false)
            }
            _ => {
                self.objects.insert(name, new.clone());
                (format!("{old}>{}", &new[1..]), false)
            }
        }
    }
}

/// Each notification must make sense: no update of an unknown object, no second delete, and one end
/// for each object, by its uid.
fn check(view: &mut BTreeMap<String, String>, notification: &Told, at: &str) {
    let key = notification.key().to_string();
    let known = view.get(&key).cloned();
    let text = written(notification);
    match notification {
        Notification::Added { .. } => assert_eq!(known, None, "{text} {at}"),
        Notification::Updated { old, .. } => assert_eq!(known, Some(word(old)), "{text} {at}"),
        Notification::Deleted(_) => {
            let known = known.unwrap_or_else(|| panic!("{text} {at}"));
            assert_eq!(incarnation(&text[1..]), incarnation(&known), "{text} {at}");
        }
    }
    apply(view, notification);
}

#[test]
fn what_a_handler_ends_with_is_what_the_source_has_whatever_was_coalesced() {
    let mut coalesced = 0;
    for (mut dice, seed) in Dice::histories(HISTORIES) {
        let at = format!("with seed {seed}");
        let bound =
            [None, Some(0), Some(1), Some(3), Some(10)][usize::try_from(dice.roll(5)).unwrap()];
        coalesced += play(&mut dice, bound, &at);
    }
    assert!(
        coalesced > 1_000,
        "the histories did not try the coalescing"
    );
}

fn play(dice: &mut Dice, bound: Option<usize>, at: &str) -> u64 {
    let now = FakeClock::new().now();
    let (mut source, mut queue) = (Source::default(), HandlerQueue::new(bound));
    let (mut view, mut pushed, mut told_of) = (BTreeMap::new(), 0_u64, 0_u64);
    // Names whose delete must still come, because nothing came after it.
    let mut deletes = BTreeSet::new();
    let initial = dice.roll(20);
    for step in 0..dice.roll(200) {
        if dice.roll(3) == 0
            && let Some(entry) = queue.pop()
        {
            told_of += 1;
            forget(&mut deletes, &entry.notification);
            check(&mut view, &entry.notification, at);
        }
        let (news, is_resync) = source.next(dice, step < initial);
        let name = told(&news).key().to_string();
        if news.starts_with(['-', '?']) {
            deletes.insert(name);
        } else if !is_resync {
            deletes.remove(&name);
        }
        pushed += 1;
        queue.push(told(&news), is_resync, now);
        if let Some(bound) = bound {
            assert!(queue.len() <= bound + 15, "three per object at most, {at}");
        }
    }
    while let Some(entry) = queue.pop() {
        told_of += 1;
        forget(&mut deletes, &entry.notification);
        check(&mut view, &entry.notification, at);
    }
    assert_eq!(view, source.objects, "{at}");
    assert!(deletes.is_empty(), "{deletes:?} lost {at}");
    assert_eq!(queue.initial(), 0, "{at}");
    assert_eq!(
        pushed,
        told_of + queue.coalesced(),
        "each is told or counted, {at}"
    );
    queue.coalesced()
}

/// Notes a delete that has come.
fn forget(deletes: &mut BTreeSet<String>, notification: &Told) {
    if matches!(notification, Notification::Deleted(_)) {
        deletes.remove(&notification.key().to_string());
    }
}

/// SI-11: whenever a handler joins, it gets everything once: no gap, no duplicate.
#[test]
fn si_11_a_handler_that_joins_at_any_time_ends_with_what_the_source_has() {
    for (mut dice, seed) in Dice::histories(40) {
        let at = format!("with seed {seed}");
        let (stage, mut source) = (Stage::new(), Source::default());
        let mut receivers = Vec::new();
        for _ in 0..dice.roll(100) {
            if dice.roll(12) == 0 {
                let (handler, receiver) = collector();
                let options = HandlerOptions::default().queue_max(Some(3));
                let there: Vec<_> = source.objects.values().map(String::as_str).collect();
                stage.add(handler, options, &there);
                receivers.push(receiver);
            }
            let (news, _) = source.next(&mut dice, false);
            stage.tell(&[&news]);
        }
        stage.tell(&["+z1"]);
        source.objects.insert("z".to_owned(), "z1".to_owned());
        for receiver in receivers {
            let mut view = BTreeMap::new();
            while !view.contains_key("z") {
                check(&mut view, &receiver.recv().unwrap(), &at);
            }
            assert_eq!(view, source.objects, "{at}");
        }
    }
}
