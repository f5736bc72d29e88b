//! Which of the requests that wait for a free slot gets it: urgent ones first, and none is passed
//! over for ever.

use std::collections::VecDeque;

/// A class whose first request was overtaken so often is next: background work keeps one slot in
/// eight.
const OVERTAKEN_MAX: u32 = 7;

/// What a request waits for a slot for. Free slots are given in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// To go on with an answer that somebody waits for.
    UrgentResumed,
    /// To begin with a request that somebody waits for.
    UrgentNew,
    /// To go on with another answer.
    Resumed,
    /// To begin with another request.
    New,
}

impl Class {
    pub(crate) fn new(urgent: bool) -> Self {
        if urgent { Self::UrgentNew } else { Self::New }
    }

    pub(crate) fn resumed(urgent: bool) -> Self {
        if urgent {
            Self::UrgentResumed
        } else {
            Self::Resumed
        }
    }
}

/// Free slots, and the requests that wait for one.
#[derive(Debug)]
pub(crate) struct SlotQueue<T> {
    free: usize,
    in_use: usize,
    lines: [Line<T>; 4],
}

/// The requests of one class, in the order they came.
#[derive(Debug)]
struct Line<T> {
    class: Class,
    waiting: VecDeque<T>,
    /// Slots that went to other classes since this one's first request could have had one.
    overtaken: u32,
}

impl<T> Line<T> {
    fn new(class: Class) -> Self {
        Self {
            class,
            waiting: VecDeque::new(),
            overtaken: 0,
        }
    }
}

impl<T> SlotQueue<T> {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            free: slots,
            in_use: 0,
            lines: [
                Line::new(Class::UrgentResumed),
                Line::new(Class::UrgentNew),
                Line::new(Class::Resumed),
                Line::new(Class::New),
            ],
        }
    }

    /// Adds a request behind the others of its class; says how many requests go before it.
    pub(crate) fn push(&mut self, class: Class, request: T) -> usize {
        let mut before = 0_usize;
        for line in &mut self.lines {
            before = before.saturating_add(line.waiting.len());
            if line.class == class {
                line.waiting.push_back(request);
                break;
            }
        }
        before
    }

    /// Puts a request back that had a slot and could not use it.
    pub(crate) fn push_front(&mut self, class: Class, request: T) {
        let line = self.lines.iter_mut().find(|line| line.class == class);
        if let Some(line) = line {
            line.waiting.push_front(request);
        }
    }

    /// Takes the request that is `which` out, wherever it waits.
    pub(crate) fn remove(&mut self, which: impl Fn(&T) -> bool) -> Option<T> {
        self.lines.iter_mut().find_map(|line| {
            let place = line.waiting.iter().position(&which)?;
            line.waiting.remove(place)
        })
    }

    /// Takes a free slot for a request that does not wait yet, unless others wait.
    pub(crate) fn take(&mut self) -> bool {
        let free = self.free > 0 && self.lines.iter().all(|line| line.waiting.is_empty());
        if free {
            self.occupy();
        }
        free
    }

    /// Gives the next request a slot, if one is free and a request waits.
    pub(crate) fn grant(&mut self) -> Option<T> {
        if self.free == 0 {
            return None;
        }
        let class = self.next_class()?;
        let mut granted = None;
        for line in &mut self.lines {
            if line.class == class {
                granted = line.waiting.pop_front();
                line.overtaken = 0;
            } else if line.waiting.is_empty() {
                line.overtaken = 0;
            } else {
                line.overtaken = line.overtaken.saturating_add(1);
            }
        }
        self.occupy();
        granted
    }

    /// Takes a slot back.
    pub(crate) fn release(&mut self) {
        self.free = self.free.saturating_add(1);
        self.in_use = self.in_use.saturating_sub(1);
    }

    /// Slots that are in use.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Takes out all that wait.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let lines = self.lines.iter_mut();
        lines.flat_map(|line| line.waiting.drain(..)).collect()
    }

    fn occupy(&mut self) {
        self.free = self.free.saturating_sub(1);
        self.in_use = self.in_use.saturating_add(1);
    }

    fn next_class(&self) -> Option<Class> {
        let waiting = || self.lines.iter().filter(|line| !line.waiting.is_empty());
        let overdue = waiting().filter(|line| line.overtaken >= OVERTAKEN_MAX);
        let next = overdue.max_by_key(|line| line.overtaken);
        next.or_else(|| waiting().next()).map(|line| line.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The classes in the order in which one slot goes round.
    fn order(queue: &mut SlotQueue<Class>, grants: usize) -> Vec<Class> {
        std::iter::repeat_with(|| {
            let granted = queue.grant();
            queue.release();
            granted
        })
        .take(grants)
        .flatten()
        .collect()
    }

    /// A1: who is waited for goes first, and of these the request that has an answer to go on with.
    #[test]
    fn a1_free_slots_go_by_class_and_within_a_class_by_age() {
        let mut queue = SlotQueue::new(1);
        assert!(queue.take());
        let rows = [
            (Class::New, 0),
            (Class::UrgentNew, 0),
            (Class::Resumed, 1),
            (Class::UrgentResumed, 0),
            (Class::New, 4),
        ];
        for (at, (class, before)) in rows.into_iter().enumerate() {
            let before_it = queue.push(class, (class, at));
            assert_eq!(before_it, before, "{class:?}");
        }
        assert_eq!(queue.grant(), None, "the slot is in use");
        queue.release();
        let mut given = Vec::new();
        while let Some(request) = queue.grant() {
            given.push(request);
            queue.release();
        }
        let expected = [
            (Class::UrgentResumed, 3),
            (Class::UrgentNew, 1),
            (Class::Resumed, 2),
            (Class::New, 0),
            (Class::New, 4),
        ];
        assert_eq!(given, expected);
        assert_eq!(queue.in_use(), 0);
    }

    /// A1: background work keeps at least one slot in eight, and urgent work keeps the other seven.
    #[test]
    fn a1_no_class_starves_another() {
        let classes = [
            Class::UrgentResumed,
            Class::UrgentNew,
            Class::Resumed,
            Class::New,
        ];
        for flood in classes {
            for class in classes {
                let mut queue = SlotQueue::new(1);
                for _ in 0..100 {
                    queue.push(flood, flood);
                }
                queue.push(class, class);
                let order = order(&mut queue, 101);
                assert_eq!(order.len(), 101);
                if class == flood {
                    continue;
                }
                let place = order.iter().position(|given| *given == class).unwrap();
                assert!(place < 8, "{class:?} behind {flood:?}: {place}");
            }
        }
        let mut queue = SlotQueue::new(1);
        for _ in 0..100 {
            for class in classes {
                queue.push(class, class);
            }
        }
        let order = order(&mut queue, 80);
        for class in classes {
            let share = order.iter().filter(|given| **given == class).count();
            assert!(share >= 8, "{class:?}: {share} of 80");
        }
        let urgent = order.iter().filter(|given| **given == Class::UrgentResumed);
        assert!(urgent.count() >= 40);
    }

    #[test]
    fn a_request_that_gives_up_is_not_given_a_slot() {
        let mut queue = SlotQueue::new(1);
        queue.push(Class::New, 1);
        queue.push(Class::New, 2);
        assert_eq!(queue.remove(|request| *request == 1), Some(1));
        assert_eq!(queue.remove(|request| *request == 1), None);
        assert!(!queue.take(), "another request waits");
        queue.push_front(Class::New, 0);
        assert_eq!(queue.grant(), Some(0));
        assert_eq!(queue.drain(), [2]);
    }
}
