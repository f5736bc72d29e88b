//! Reads of what nobody watches: on a thread of their own, so that a slow server does not hold up the table, and when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select, unbounded};
use kubecache::worker::{StopToken, Worker};
use kubecache::{Error, ErrorKind};

use crate::managers::{Managers, ObjectId};

/// After this a read that failed is tried again, then after twice as long, and so on up to the period.
const AGAIN_FIRST: Duration = Duration::from_millis(500);

/// The thread that reads. Dropping it ends the managers' requests, and so the thread, at once.
pub(crate) struct Reader {
    orders: Sender<ObjectId>,
    managers: Arc<Managers>,
    _thread: Worker,
}

impl Reader {
    pub(crate) fn start(managers: &Arc<Managers>) -> Result<Self, Error> {
        let (send, orders) = unbounded();
        let of_thread = Arc::clone(managers);
        let thread = Worker::spawn("agent-reads", move |stop| run(&orders, &of_thread, stop));
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Resources, "starting the thread that reads").with_source(error)
        })?;
        Ok(Self {
            orders: send,
            managers: Arc::clone(managers),
            _thread: thread,
        })
    }

    /// Has these objects read, after what was ordered before.
    pub(crate) fn order(&self, objects: impl IntoIterator<Item = ObjectId>) {
        for object in objects {
            // The thread ends with this side only, or by a panic, which is in the log.
            drop(self.orders.send(object));
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The thread may wait for an answer; its worker, dropped after this, joins it.
        self.managers.shut_down();
    }
}

fn run(orders: &Receiver<ObjectId>, managers: &Managers, stop: &StopToken) {
    let mut due = VecDeque::new();
    while !stop.is_stopped() {
        if due.is_empty() {
            select! {
                recv(orders) -> order => match order {
                    Ok(object) => due.push_back(object),
                    Err(_nobody_orders) => return,
                },
                recv(stop.channel()) -> _ => return,
            }
        }
        for object in orders.try_iter() {
            // Ordered again before it was read: one read is news enough for both.
            if !due.contains(&object) {
                due.push_back(object);
            }
        }
        if let Some(object) = due.pop_front() {
            managers.read(&object);
        }
    }
}

/// When objects are read although nothing happened.
#[derive(Debug)]
pub(crate) struct Schedule {
    period: Duration,
    all_at: Instant,
    again_at: Option<Instant>,
    pause: Duration,
}

/// What is to be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// What failed and has no answer yet.
    Failed,
    All,
}

impl Schedule {
    /// All objects each `period`, from `now` on.
    pub(crate) fn new(period: Duration, now: Instant) -> Self {
        Self {
            period,
            all_at: later(now, period),
            again_at: None,
            pause: AGAIN_FIRST,
        }
    }

    /// When to look again at the latest.
    pub(crate) fn next(&self) -> Instant {
        self.again_at
            .map_or(self.all_at, |again| again.min(self.all_at))
    }

    /// What is due at `now`; `failing` says whether a read has failed and nothing was answered since.
    pub(crate) fn due(&mut self, now: Instant, failing: bool) -> Due {
        if !failing {
            self.again_at = None;
            self.pause = AGAIN_FIRST;
        }
        if now >= self.all_at {
            self.all_at = later(now, self.period);
            return Due::All;
        }
        if !failing {
            return Due::Nothing;
        }
        let pause = self.pause.min(self.period);
        match self.again_at {
            Some(again) if now >= again => {
                self.pause = pause.saturating_mul(2);
                self.again_at = Some(later(now, self.pause.min(self.period)));
                Due::Failed
            }
            Some(_) => Due::Nothing,
            None => {
                self.again_at = Some(later(now, pause));
                Due::Nothing
            }
        }
    }
}

pub(crate) fn later(now: Instant, by: Duration) -> Instant {
    now.checked_add(by).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use kubecache::clock::FakeClock;

    use super::*;

    #[test]
    fn everything_is_read_each_period_and_what_failed_sooner() {
        let clock = FakeClock::new();
        let period = Duration::from_secs(2);
        let mut schedule = Schedule::new(period, clock.now());
        assert_eq!(schedule.due(clock.now(), false), Due::Nothing);
        assert_eq!(schedule.due(clock.now(), true), Due::Nothing, "just failed");
        let start = clock.now();
        let mut read = Vec::new();
        while clock.now().duration_since(start) < Duration::from_secs(5) {
            let wait = schedule.next().duration_since(clock.now());
            clock.advance(wait);
            let at = clock.now().duration_since(start).as_millis();
            read.push((at, schedule.due(clock.now(), true)));
        }
        let expected = [
            (500, Due::Failed),
            (1_500, Due::Failed),
            (2_000, Due::All),
            (3_500, Due::Failed),
            (4_000, Due::All),
            (5_500, Due::Failed),
        ];
        assert_eq!(read, expected);
        assert_eq!(schedule.due(clock.now(), false), Due::Nothing);
        assert_eq!(schedule.next(), later(start, period * 3), "all is well");
    }
}
