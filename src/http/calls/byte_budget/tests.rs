//! Tests of the budget by tables, and by random steps compared with a list of what each account
//! holds.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use super::*;
use crate::error::ErrorKind;
use crate::tests::dice::Dice;

const KIB: usize = 1024;

/// Counts how often its account's reader was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Reader {
    account: Account,
    woken: Arc<Woken>,
    held: usize,
}

impl Reader {
    fn new(budget: &Arc<ByteBudget>) -> Self {
        let woken = Arc::new(Woken::default());
        let account = budget.open(Arc::<Woken>::clone(&woken));
        Self {
            account,
            woken,
            held: 0,
        }
    }

    /// Grows as a buffer does; returns the granted size.
    fn grow(&mut self, least: usize, most: usize) -> Result<usize, Error> {
        let held = self.held;
        let growth = Growth {
            held,
            moves: true,
            least,
            most,
        };
        let granted = self.account.grow(growth);
        self.held = *granted.as_ref().unwrap_or(&self.held);
        if granted.is_ok() {
            self.account.settle(self.held);
        }
        granted
    }

    /// Drops its buffer.
    fn let_go(&mut self) {
        self.held = 0;
        self.account.settle(0);
    }

    fn counted(&self) -> usize {
        counted(self.held)
    }

    fn is_closed(&self) -> bool {
        self.account.check().is_err()
    }

    fn times_woken(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

fn totals(budget: &ByteBudget) -> (usize, usize, usize) {
    let state = budget.state.lock();
    (state.answers.len(), state.open, state.closing)
}

fn readers<const COUNT: usize>(bytes_max: usize) -> (Arc<ByteBudget>, [Reader; COUNT]) {
    let budget = ByteBudget::new(bytes_max);
    let readers = std::array::from_fn(|_| Reader::new(&budget));
    (budget, readers)
}

#[test]
fn b7_an_answer_is_counted_from_16_kib_on() {
    let (budget, [mut one]) = readers(0);
    assert_eq!(one.grow(512, 16 * KIB).unwrap(), 16 * KIB);
    assert_eq!(totals(&budget), (0, 0, 0));
    one.let_go();
    let (budget, [mut one]) = readers(100 * KIB);
    assert_eq!(one.grow(16 * KIB, 17 * KIB).unwrap(), 17 * KIB);
    assert_eq!(totals(&budget), (1, 17 * KIB, 0));
    one.let_go();
    assert_eq!(totals(&budget), (0, 0, 0));
    one.grow(50 * KIB, 50 * KIB).unwrap();
    drop(one);
    assert_eq!(totals(&budget), (0, 0, 0));
}

/// Both buffers count while bytes are moved, and spare room is granted only if there is any.
#[test]
fn b7_a_growth_is_granted_whole_or_to_what_is_needed() {
    let (budget, [mut one, mut two]) = readers(100 * KIB);
    assert_eq!(one.grow(30 * KIB, 40 * KIB).unwrap(), 40 * KIB);
    assert_eq!(two.grow(30 * KIB, 70 * KIB).unwrap(), 30 * KIB);
    // 30 + 40 + 30 of the move.
    assert_eq!(two.grow(30 * KIB, 31 * KIB).unwrap(), 30 * KIB);
    assert_eq!(totals(&budget), (2, 70 * KIB, 0));
    assert!(!one.is_closed() && !two.is_closed());
}

/// A larger one is closed only if that makes room.
#[test]
fn b7_nobody_is_closed_in_vain() {
    let (budget, [mut large, mut other, mut asking]) = readers(100 * KIB);
    large.grow(45 * KIB, 45 * KIB).unwrap();
    other.grow(17 * KIB, 17 * KIB).unwrap();
    asking.grow(30 * KIB, 30 * KIB).unwrap();
    // 17 + 44 + 30 of the move: without the large one there is room.
    asking.grow(44 * KIB, 44 * KIB).unwrap();
    assert!(large.is_closed() && !other.is_closed());
    let mut large = Reader::new(&budget);
    assert!(large.grow(39 * KIB, 39 * KIB).is_ok());
    assert!(
        asking.grow(45 * KIB, 45 * KIB).is_err(),
        "17 + 39 + 45 + 44"
    );
    assert!(!large.is_closed() && !other.is_closed());
}

#[test]
fn b7_a_buffer_that_grows_in_place_counts_once() {
    let (budget, [mut one]) = readers(100 * KIB);
    one.grow(90 * KIB, 90 * KIB).unwrap();
    let growth = Growth {
        held: 90 * KIB,
        moves: false,
        least: 99 * KIB,
        most: 101 * KIB,
    };
    assert_eq!(one.account.grow(growth).unwrap(), 99 * KIB);
    assert_eq!(totals(&budget), (1, 99 * KIB, 0));
    one.let_go();
}

#[test]
fn b7_the_largest_is_closed_woken_once_and_refused_from_then_on() {
    let (budget, [mut small, mut large, mut last]) = readers(100 * KIB);
    small.grow(20 * KIB, 20 * KIB).unwrap();
    large.grow(60 * KIB, 60 * KIB).unwrap();
    assert_eq!(last.grow(30 * KIB, 30 * KIB).unwrap(), 30 * KIB);
    assert!(large.is_closed() && !small.is_closed() && !last.is_closed());
    assert_eq!(totals(&budget), (3, 50 * KIB, 60 * KIB));
    let error = large.account.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(
        error.to_string(),
        "the client closed the answer: its unfinished part needs 61440 bytes, and 3 unfinished \
         answers share a budget of 102400 bytes; ClientOptions::buffered_bytes_max raises it"
    );
    assert!(large.grow(61 * KIB, 61 * KIB).is_err());
    large.let_go();
    assert!(
        large.grow(20 * KIB, 20 * KIB).is_err(),
        "it does not begin anew"
    );
    assert_eq!(totals(&budget), (2, 50 * KIB, 0));
    assert_eq!(
        [small, large, last].map(|reader| reader.times_woken()),
        [0, 1, 0]
    );
}

#[test]
fn b7_who_grows_to_be_the_largest_is_refused_itself() {
    let (budget, [mut one, mut two]) = readers(100 * KIB);
    one.grow(50 * KIB, 50 * KIB).unwrap();
    two.grow(40 * KIB, 40 * KIB).unwrap();
    let error = two.grow(60 * KIB, 80 * KIB).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("needs 61440 bytes, and 2 unfinished"),
        "{error}"
    );
    assert!(!one.is_closed());
    // The bytes that it holds until its drop count beside the limit.
    assert_eq!(totals(&budget), (2, 50 * KIB, 40 * KIB));
    assert_eq!(one.grow(50 * KIB, 51 * KIB).unwrap(), 50 * KIB);
    two.let_go();
    assert_eq!(totals(&budget), (1, 50 * KIB, 0));
}

/// A reader that never returns to its answer lets the other answers grow, up to twice the limit.
#[test]
fn b7_closed_answers_that_are_not_let_go_hold_up_nobody() {
    let (budget, mut all) = readers::<6>(100 * KIB);
    for reader in &mut all {
        reader.grow(60 * KIB, 60 * KIB).unwrap_or_default();
    }
    // Of two of 60 KiB one is closed, whichever it is; the third one brings the sum to 180, the
    // fourth beyond 200.
    let (_, open, closing) = totals(&budget);
    assert!(
        open <= 100 * KIB && closing + open <= 200 * KIB,
        "{open} {closing}"
    );
    let mut small = Reader::new(&budget);
    assert!(small.grow(17 * KIB, 17 * KIB).is_ok());
    for mut reader in all {
        reader.let_go();
    }
    assert_eq!(
        small.grow(90 * KIB - 17 * KIB, 200 * KIB).unwrap(),
        73 * KIB
    );
}

/// In any order of steps the sums are right, the limit holds, and only the largest are closed.
#[test]
fn b7_random_steps_close_only_the_largest_and_count_right() {
    let (mut dice, seed) = Dice::new();
    for round in 0..200 {
        let bytes_max = 50 * KIB + roll(&mut dice, 500 * KIB);
        let budget = ByteBudget::new(bytes_max);
        let mut all: Vec<Reader> = (0..8).map(|_| Reader::new(&budget)).collect();
        for step in 0..200 {
            let nth = roll(&mut dice, all.len());
            match roll(&mut dice, 10) {
                0 => all[nth] = Reader::new(&budget),
                1 | 2 => all[nth].let_go(),
                _ => grow(&budget, &mut all, nth, &mut dice),
            }
            let context = format!("seed {seed} round {round} step {step}");
            let held = |closed: bool| {
                let those = all.iter().filter(|reader| reader.is_closed() == closed);
                those.map(Reader::counted).sum::<usize>()
            };
            let (_, open, closing) = totals(&budget);
            assert_eq!((open, closing), (held(false), held(true)), "{context}");
            assert!(open <= bytes_max, "{context}");
            assert!(open + closing <= 2 * bytes_max, "{context}");
        }
        drop(all);
        assert_eq!(totals(&budget), (0, 0, 0), "seed {seed}");
    }
}

fn roll(dice: &mut Dice, below: usize) -> usize {
    let rolled = dice.roll(u64::try_from(below).unwrap());
    usize::try_from(rolled).unwrap()
}

fn grow(budget: &ByteBudget, all: &mut [Reader], nth: usize, dice: &mut Dice) {
    let state = |reader: &Reader| (reader.is_closed(), reader.held);
    let before: Vec<(bool, usize)> = all.iter().map(state).collect();
    let least = all[nth].held + 1 + roll(dice, 100 * KIB);
    let most = least + roll(dice, 100 * KIB);
    let (_, open, closing) = totals(budget);
    if let Ok(granted) = all[nth].grow(least, most) {
        assert!((least..=most).contains(&granted));
    } else if !before[nth].0 {
        // Both buffers count while bytes are moved; its old one is in `open` already.
        let wish = least + before[nth].1 - counted(before[nth].1);
        let larger = before
            .iter()
            .filter(|(closed, held)| !closed && *held > least);
        let larger: usize = larger.map(|(_, held)| counted(*held)).sum();
        let no_room = open + wish - larger > budget.bytes_max;
        assert!(no_room || open + closing + wish > 2 * budget.bytes_max);
        let others = all.iter().zip(&before).enumerate();
        let mut others = others.filter(|(other, _)| *other != nth);
        assert!(others.all(|(_, (reader, before))| reader.is_closed() == before.0));
    }
    let is_open = |other: &usize| *other != nth && !all[*other].is_closed();
    let left = (0..all.len()).filter(is_open);
    let largest_left = left.map(|other| all[other].held).max().unwrap_or(0);
    for (other, (was_closed, held)) in before.into_iter().enumerate() {
        if other != nth && !was_closed && all[other].is_closed() {
            assert!(held >= largest_left, "a smaller one was closed");
            assert_eq!(all[other].times_woken(), 1);
        }
    }
}
