//! Reads of what nobody watches: on threads of their own, so that a slow server does not hold up
//! the table, and when.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select, unbounded};
use kubecache::worker::{StopToken, Worker};
use kubecache::{Error, ErrorKind};

use crate::managers::{Managers, ObjectId};

/// After this a read that failed is tried again, then after twice as long, and so on up to the
/// period.
const AGAIN_FIRST: Duration = Duration::from_millis(500);

/// Reads at a time: an object that the server does not answer holds one of them up for as long as a
/// read may take.
const HANDS: usize = 8;

/// The threads that read. Dropping it ends the managers' requests, and so the threads, at once.
pub(crate) struct Reader {
    orders: Sender<ObjectId>,
    managers: Managers,
    _desk: Worker,
    _hands: Vec<Worker>,
}

impl Reader {
    pub(crate) fn start(managers: &Managers) -> Result<Self, Error> {
        let started = || {
            let (send, orders) = unbounded();
            let (hand_out, work) = unbounded();
            let (report, done) = unbounded();
            let desk = Worker::spawn("agent-reads", move |stop| {
                run(&orders, &hand_out, &done, stop);
            })?;
            let hands = (1..=HANDS).map(|number| {
                let (managers, work) = (managers.clone(), work.clone());
                let report = report.clone();
                Worker::spawn(format!("agent-read-{number}"), move |stop| {
                    read(&managers, &work, &report, stop);
                })
            });
            Ok(Self {
                orders: send,
                managers: managers.clone(),
                _desk: desk,
                _hands: hands.collect::<io::Result<_>>()?,
            })
        };
        started().map_err(|error: io::Error| {
            Error::new(ErrorKind::Resources, "starting the threads that read").with_source(error)
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
        // The threads may wait for answers; their workers, dropped after this, join them.
        self.managers.shut_down();
    }
}

/// Hands out what is ordered.
fn run(
    orders: &Receiver<ObjectId>,
    hand_out: &Sender<ObjectId>,
    done: &Receiver<ObjectId>,
    stop: &StopToken,
) {
    let mut desk = Desk::default();
    loop {
        select! {
            recv(orders) -> order => match order {
                Ok(object) => desk.order(object),
                Err(_nobody_orders) => return,
            },
            recv(done) -> object => match object {
                Ok(object) => desk.done(&object),
                Err(_nobody_reads) => return,
            },
            recv(stop.channel()) -> _ => return,
        }
        while let Some(object) = desk.next() {
            drop(hand_out.send(object));
        }
    }
}

fn read(
    managers: &Managers,
    work: &Receiver<ObjectId>,
    report: &Sender<ObjectId>,
    stop: &StopToken,
) {
    while !stop.is_stopped() {
        select! {
            recv(work) -> object => {
                let Ok(object) = object else { return };
                managers.read(&object);
                drop(report.send(object));
            }
            recv(stop.channel()) -> _ => return,
        }
    }
}

/// What is to be read, and what is being read.
#[derive(Debug, Default)]
struct Desk {
    due: VecDeque<ObjectId>,
    reading: Vec<ObjectId>,
}

impl Desk {
    /// Ordered again before it was read: one read is news enough for both.
    fn order(&mut self, object: ObjectId) {
        if !self.due.contains(&object) {
            self.due.push_back(object);
        }
    }

    /// The next one to read, if a hand is free; one object is not read twice at a time.
    fn next(&mut self) -> Option<ObjectId> {
        if self.reading.len() >= HANDS {
            return None;
        }
        let free = |object: &ObjectId| !self.reading.contains(object);
        let object = self.due.remove(self.due.iter().position(free)?)?;
        self.reading.push(object.clone());
        Some(object)
    }

    fn done(&mut self, object: &ObjectId) {
        self.reading.retain(|reading| reading != object);
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

    /// What is due at `now`; `failing` says whether a read has failed and nothing was answered
    /// since.
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
    use kubecache::object::ObjectKey;

    use super::*;

    #[test]
    fn an_object_is_read_once_at_a_time_and_no_more_than_so_many_are() {
        let object = |number: usize| ObjectId {
            kind: "Secret".into(),
            key: ObjectKey::new("shop", number.to_string()),
        };
        let mut desk = Desk::default();
        desk.order(object(0));
        desk.order(object(0));
        assert_eq!(desk.next(), Some(object(0)));
        assert_eq!(desk.next(), None, "ordered twice, read once");
        desk.order(object(0));
        desk.order(object(1));
        assert_eq!(desk.next(), Some(object(1)), "the other is being read");
        desk.done(&object(0));
        assert_eq!(desk.next(), Some(object(0)));
        (2..20).for_each(|number| desk.order(object(number)));
        let begun: Vec<_> = std::iter::from_fn(|| desk.next()).collect();
        assert_eq!(begun, (2..HANDS).map(object).collect::<Vec<_>>());
        desk.done(&object(4));
        assert_eq!(
            desk.next(),
            Some(object(HANDS)),
            "in the order of the orders"
        );
    }

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
