//! The byte budget of one client. It counts the memory of unfinished responses, and closes the
//! largest one past the limit.
//!
//! A small response never fails because of large ones: the budget closes the largest. It refuses
//! growth for which no larger response could make room. Closing ends the reader's wait; a busy
//! reader sees it at its next read. The budget never blocks, so a closed response holds its bytes
//! beside the limit until its reader drops them. The budget refuses growth that would bring the sum
//! of both to twice the limit.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, Rank};
use crate::wire::Growth;
use crate::worker::Wake;

/// The budget does not count a response up to this size. Watches of small objects take no lock.
const UNCOUNTED_BYTES: usize = 16 * 1024;

/// The budget of one client.
pub(crate) struct ByteBudget {
    bytes_max: usize,
    state: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    answers: BTreeMap<u64, CountedAnswer>,
    opened: u64,
    /// The bytes of the responses that are not closed.
    open: usize,
    /// The bytes that closed responses still hold.
    closing: usize,
}

/// An account that holds more than `UNCOUNTED_BYTES`.
struct CountedAnswer {
    signal: Arc<Signal>,
    held: usize,
    /// The old buffer, while its bytes are moved to the new one.
    moved: usize,
    /// Whether its bytes are in `closing`, or in `open`.
    is_closed: bool,
}

/// Tells a reader that the budget closed its account.
struct Signal {
    wake: Arc<dyn Wake>,
    /// The bytes that it held, or asked for, when it was closed; 0 before.
    closed_at: AtomicUsize,
    /// The number of answers that were counted then.
    sharers: AtomicUsize,
}

/// The memory of one unfinished response. Clones share one account, which ends with the last clone.
#[derive(Clone)]
pub(crate) struct Account(Arc<Holder>);

struct Holder {
    budget: Arc<ByteBudget>,
    number: u64,
    signal: Arc<Signal>,
    /// The bytes that the budget counts for it; 0 without an entry.
    counted: AtomicUsize,
}

/// Whether a response of this length is not counted, however its buffer grows.
pub(super) fn is_uncounted(length: Option<u64>) -> bool {
    let bytes = length.and_then(|length| usize::try_from(length).ok());
    bytes.is_some_and(|bytes| bytes <= UNCOUNTED_BYTES)
}

/// The counted part of a response's memory.
fn counted(held: usize) -> usize {
    if held <= UNCOUNTED_BYTES { 0 } else { held }
}

impl CountedAnswer {
    fn bytes(&self) -> usize {
        self.held.saturating_add(self.moved)
    }
}

impl Signal {
    fn is_closed(&self) -> bool {
        self.closed_at.load(Ordering::Acquire) > 0
    }
}

impl ByteBudget {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            state: Mutex::ranked(Rank::BYTE_BUDGET, Accounts::default()),
        })
    }

    /// Opens the account of a response. When the budget closes the account, `wake` ends the
    /// reader's wait.
    pub(crate) fn open(self: &Arc<Self>, wake: Arc<dyn Wake>) -> Account {
        let number = {
            let mut state = self.state.lock();
            state.opened = state.opened.wrapping_add(1);
            state.opened
        };
        Account(Arc::new(Holder {
            budget: Arc::clone(self),
            number,
            signal: Arc::new(Signal {
                wake,
                closed_at: AtomicUsize::new(0),
                sharers: AtomicUsize::new(0),
            }),
            counted: AtomicUsize::new(0),
        }))
    }
}

impl Accounts {
    /// Sets the memory that an account holds.
    fn set(&mut self, number: u64, signal: &Arc<Signal>, held: usize, moved: usize) {
        self.remove(number);
        let entry = CountedAnswer {
            signal: Arc::clone(signal),
            held,
            moved,
            is_closed: signal.is_closed(),
        };
        if entry.bytes() > 0 {
            self.insert(number, entry);
        }
    }

    fn insert(&mut self, number: u64, entry: CountedAnswer) {
        let sum = self.sum_of(&entry);
        *sum = sum.saturating_add(entry.bytes());
        self.answers.insert(number, entry);
    }

    fn remove(&mut self, number: u64) -> Option<CountedAnswer> {
        let entry = self.answers.remove(&number)?;
        let sum = self.sum_of(&entry);
        *sum = sum.saturating_sub(entry.bytes());
        Some(entry)
    }

    fn sum_of(&mut self, entry: &CountedAnswer) -> &mut usize {
        if entry.is_closed {
            &mut self.closing
        } else {
            &mut self.open
        }
    }

    /// Closes an account. Its reader will drop its bytes.
    fn close(&mut self, number: u64) -> Option<Arc<Signal>> {
        let sharers = self.answers.len();
        let mut entry = self.remove(number)?;
        let signal = Arc::clone(&entry.signal);
        signal.sharers.store(sharers, Ordering::Relaxed);
        signal.closed_at.store(entry.held.max(1), Ordering::Release);
        entry.is_closed = true;
        self.insert(number, entry);
        Some(signal)
    }

    /// The bytes of the open responses that hold more than `held`.
    fn larger_than(&self, held: usize) -> usize {
        let open = self.answers.values().filter(|entry| !entry.is_closed);
        let larger = open
            .filter(|entry| entry.held > held)
            .map(CountedAnswer::bytes);
        larger.fold(0, usize::saturating_add)
    }

    /// The open account that holds the most.
    fn largest(&self) -> Option<u64> {
        let open = self.answers.iter().filter(|(_, entry)| !entry.is_closed);
        let largest = open.max_by_key(|(_, entry)| entry.held);
        largest.map(|(number, _)| *number)
    }

    /// Grants growth, if necessary by closing larger responses; `None` when the account is closed.
    /// Returns the readers that the caller must wake.
    fn grow(
        &mut self,
        number: u64,
        signal: &Arc<Signal>,
        growth: Growth,
        bytes_max: usize,
    ) -> (Option<usize>, Vec<Arc<Signal>>) {
        let mut closed = Vec::new();
        if signal.is_closed() {
            return (None, closed);
        }
        let (held, least, most) = (growth.held, growth.least, growth.most);
        let moved = if growth.moves { held } else { 0 };
        self.set(number, signal, most, moved);
        if self.open.saturating_add(self.closing) <= bytes_max {
            return (Some(most), closed);
        }
        self.set(number, signal, least, moved);
        let sum = self.open.saturating_add(self.closing);
        let others = self.open.saturating_sub(self.larger_than(least));
        if others > bytes_max || sum > bytes_max.saturating_mul(2) {
            // Closing larger responses would not make enough room.
            self.close(number);
            self.set(number, signal, counted(held), 0);
            return (None, closed);
        }
        while self.open > bytes_max
            && let Some(largest) = self.largest()
        {
            closed.extend(self.close(largest));
        }
        (Some(least), closed)
    }
}

impl Account {
    /// Asks for room. Returns the new size of the buffer, between `least` and `most`. Never blocks.
    ///
    /// # Errors
    ///
    /// `TooLarge`, when the budget is used up and this account is the largest, or was closed
    /// before.
    pub(crate) fn grow(&self, growth: Growth) -> Result<usize, Error> {
        if growth.held.saturating_add(growth.most) <= UNCOUNTED_BYTES {
            return Ok(growth.most);
        }
        let holder = &*self.0;
        let (granted, closed) = {
            let mut state = holder.budget.state.lock();
            let bytes_max = holder.budget.bytes_max;
            let (number, signal) = (holder.number, &holder.signal);
            let (granted, closed) = state.grow(number, signal, growth, bytes_max);
            let counted = state.answers.get(&number).map_or(0, CountedAnswer::bytes);
            holder.counted.store(counted, Ordering::Relaxed);
            (granted, closed)
        };
        for signal in closed {
            signal.wake.wake();
        }
        granted.ok_or_else(|| self.error())
    }

    /// Sets the memory of the response after its buffer has grown or was freed.
    pub(crate) fn settle(&self, held: usize) {
        let holder = &*self.0;
        let held = counted(held);
        if holder.counted.swap(held, Ordering::Relaxed) != held {
            let mut state = holder.budget.state.lock();
            state.set(holder.number, &holder.signal, held, 0);
        }
    }

    /// # Errors
    ///
    /// `TooLarge`, when the budget has closed the account.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.signal.is_closed() {
            Err(self.error())
        } else {
            Ok(())
        }
    }

    /// The error for the reader of a closed account.
    fn error(&self) -> Error {
        let Holder { budget, signal, .. } = &*self.0;
        let message = format!(
            "the client closed the answer: its unfinished part needs {} bytes, and {} unfinished \
             answers share a budget of {} bytes; ClientOptions::buffered_bytes_max raises it",
            signal.closed_at.load(Ordering::Acquire),
            signal.sharers.load(Ordering::Relaxed),
            budget.bytes_max
        );
        Error::new(ErrorKind::TooLarge, message)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if self.counted.load(Ordering::Relaxed) > 0 {
            let entry = self.budget.state.lock().remove(self.number);
            drop(entry);
        }
    }
}

#[cfg(test)]
mod tests;
