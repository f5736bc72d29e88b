//! The poller of a manager: gets the objects that have no room for a watch, each before its time to
//! live is over. One thread, and so one connection, does that, unless a get is slow.

use std::cell::Cell;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::clock::{Deadline, later};
use crate::error::{Error, ErrorKind, default_of};
use crate::manager::consistent_reads::begin_read;
use crate::manager::watch::context::RunContext;
use crate::manager::watch::run::SharedRun;
use crate::manager::watch::writer::Writer;
use crate::object::{Object, ResourceVersion};
use crate::policy::{FIRST_WAIT, doubled};
use crate::reflector::{FORBIDDEN_GRACE, Phase, ReflectorStatus, asked_wait};
use crate::sync::{Arc, Monitor, Rank};
use crate::worker::{StopToken, Wake};

/// No object is polled more often than twice in this time, whatever the time to live.
const TTL_LEAST: Duration = Duration::from_secs(1);
/// How long one poll may take at most.
const POLL_LIMIT: Duration = Duration::from_secs(10);
/// How many polls there are at a time at most. Objects whose last poll failed have half of them.
pub(crate) const POLLS_MAX: usize = 4;
/// How long the next poll waits for those that are under way.
const PATIENCE: Duration = Duration::from_millis(200);
/// How many objects in a row get no answer before the server counts as silent.
const SILENT_POLLS: usize = 8;
/// The longest pause while a reader waits for the object, and after a read that found it failing.
const BACKOFF_OF_READERS: Duration = Duration::from_secs(1);

/// The polled objects, which the poller's threads and the runs share.
pub(crate) struct Poller<K: Object> {
    polls: Arc<Monitor<Polls<K>>>,
    context: RunContext<K>,
}

struct Polls<K: Object> {
    by_number: HashMap<u64, Poll<K>>,
    attached: u64,
    /// How many objects in a row had no answer, of those whose poll before had one.
    silent: usize,
    is_closed: bool,
}

/// One polled object.
struct Poll<K: Object> {
    writer: Arc<Writer<K>>,
    /// When it is polled next, unless a reader expedites it.
    due: Instant,
    /// The earliest time of the next poll, also for readers.
    soonest: Instant,
    /// The pause after the last poll, if that failed. It doubles from one failure to the next.
    backoff: Option<Duration>,
    /// Since when a poll is under way.
    began: Option<Instant>,
    /// Its last poll failed.
    has_failed: bool,
    status: ReflectorStatus,
    /// How often the status has changed.
    changes: u64,
}

/// The times of polls, which the time to live decides.
#[derive(Clone, Copy)]
struct Pace {
    ttl: Duration,
    /// From one poll of an object to the next. The other half of the time to live is for delays.
    interval: Duration,
    /// How long one poll may take.
    limit: Duration,
}

impl Pace {
    fn of(ttl: Duration) -> Self {
        let ttl = ttl.max(TTL_LEAST);
        let part = |parts| ttl.checked_div(parts).unwrap_or(ttl);
        Self {
            ttl,
            interval: part(2),
            limit: part(4).clamp(TTL_LEAST, POLL_LIMIT),
        }
    }

    /// When the server is silent, if it says nothing after `since`.
    fn late(self, since: Instant) -> Instant {
        later(since, self.ttl.saturating_add(self.limit))
    }
}

impl<K: Object> Poller<K> {
    pub(crate) fn new(context: RunContext<K>) -> Arc<Self> {
        Arc::new(Self {
            polls: Arc::new(Monitor::ranked(Rank::POLLS, Polls::default())),
            context,
        })
    }

    /// Polls the writer's object from now on. Drops the writer and returns `None` once the poller
    /// is [closed](Self::close).
    pub(crate) fn attach(self: &Arc<Self>, writer: Arc<Writer<K>>) -> Option<Polled<K>> {
        let (now, pace) = (self.context.registry.clock().now(), self.pace());
        let poll = Poll {
            writer,
            due: now,
            soonest: now,
            backoff: None,
            began: None,
            has_failed: false,
            status: ReflectorStatus {
                contact_deadline: Some(pace.late(now)),
                ..ReflectorStatus::default()
            },
            changes: 0,
        };
        let mut polls = self.polls.lock();
        if polls.is_closed {
            drop(polls);
            return None;
        }
        polls.attached = polls.attached.wrapping_add(1);
        let number = polls.attached;
        polls.by_number.insert(number, poll);
        drop(polls);
        self.polls.notify_all();
        // Its health counts from here, though its poll may have to wait.
        self.tell(number);
        Some(Polled {
            poller: Arc::clone(self),
            number,
        })
    }

    /// Ends all polls for good.
    pub(crate) fn close(&self) {
        let mut polls = self.polls.lock();
        polls.is_closed = true;
        let polled = std::mem::take(&mut polls.by_number);
        drop(polls);
        // Each entry learns that its run has ended.
        drop(polled);
        self.polls.notify_all();
    }

    /// The body of each of the poller's threads.
    pub(crate) fn work(&self) {
        let stop = self.context.registry.stop.token();
        let wake: Arc<dyn Wake> = Arc::<Monitor<Polls<K>>>::clone(&self.polls);
        let _registration = stop.register(&wake);
        let under_way = Cell::new(None);
        let poll = || {
            while let Some((number, writer)) = self.wait_for_next(&stop) {
                let began = self.context.registry.clock().now();
                under_way.set(Some((number, Arc::clone(&writer), began, self.pace())));
                self.poll(number, &writer, &stop);
                drop(under_way.take());
            }
        };
        let failed = |panic: &Error| {
            if let Some((number, writer, began, pace)) = under_way.take() {
                self.failed((number, &writer), panic.clone(), began, pace);
            }
        };
        self.context
            .work_through_panics("poller", &stop, poll, failed);
    }

    /// Waits for the next poll, and marks it as under way.
    fn wait_for_next(&self, stop: &StopToken) -> Option<(u64, Arc<Writer<K>>)> {
        let clock = self.context.registry.clock();
        let mut polls = self.polls.lock();
        while !stop.is_stopped() {
            if let Some(next) = polls.next(clock.now()) {
                return Some(next);
            }
            let until = polls.next_at().map_or(Deadline::NEVER, Deadline::at);
            polls = clock.wait_until(&self.polls, polls, until);
        }
        None
    }

    /// Polls one object.
    fn poll(&self, number: u64, writer: &Writer<K>, stop: &StopToken) {
        let (registry, pace) = (&self.context.registry, self.pace());
        let read = begin_read(registry, &writer.object, &ResourceVersion::most_recent());
        let deadline = registry.clock().after(pace.limit);
        let context = registry.request_by(&writer.object.key, deadline, stop);
        let (found, failure) = match registry.request(&context, &read.version) {
            Ok(found) => (Some(Ok(Some(found))), None),
            Err(error) if error.is_not_found() => (Some(Ok(None)), None),
            Err(error) if error.kind() == ErrorKind::Undecodable => (Some(Err(error)), None),
            Err(error) => (None, Some(error)),
        };
        if stop.is_stopped() {
            return;
        }
        if let Some(mut found) = found {
            // A run that has ended writes nothing.
            drop(writer.take_polled(&read, &mut found, later(read.began, pace.ttl)));
        }
        match failure {
            None => self.succeeded(number, read.began, pace),
            Some(error) => self.failed((number, writer), error, read.began, pace),
        }
    }

    fn succeeded(&self, number: u64, began: Instant, pace: Pace) {
        self.polls.lock().silent = 0;
        self.settle(number, |poll| {
            (poll.began, poll.has_failed) = (None, false);
            poll.due = later(began, pace.interval);
            // A reader that asks meanwhile has the answer that comes.
            poll.soonest = later(began, doubled(None, FIRST_WAIT, pace.interval));
            poll.backoff = None;
            poll.status = ReflectorStatus {
                phase: Phase::Listing,
                synced: true,
                last_contact: Some(began),
                contact_deadline: Some(pace.late(began)),
                ..ReflectorStatus::default()
            };
        });
    }

    /// Tells the object of the failure. If the server is silent, also tells the objects whose polls
    /// are due; these keep their turn.
    fn failed(
        &self,
        (number, writer): (u64, &Writer<K>),
        error: Error,
        began: Instant,
        pace: Pace,
    ) {
        let registry = &self.context.registry;
        let now = registry.clock().now();
        let is_silent = matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout);
        let text = format!("its poll waits for a server that answers none: {error}");
        let silent = Error::new(error.kind(), text);
        let mut blamed = Vec::new();
        let mut polls = self.polls.lock();
        let poll = polls.by_number.get(&number);
        let is_new = poll.is_some_and(|poll| !poll.has_failed);
        let before = if is_silent { polls.silent } else { 0 };
        polls.silent = before.saturating_add(usize::from(is_silent && is_new));
        let is_away = polls.silent >= SILENT_POLLS;
        // An object that another thread polls has that poll's status.
        let others = polls.by_number.iter_mut().filter(|(other, poll)| {
            is_away && **other != number && poll.began.is_none() && poll.due <= now
        });
        for (other, poll) in others {
            poll.status.failures.add(silent.clone(), began, now);
            poll.changes = poll.changes.wrapping_add(1);
            blamed.push(*other);
        }
        drop(polls);
        for other in blamed {
            self.tell(other);
        }
        let failures = self.settle(number, |poll| {
            poll.fail(error, began, now, pace);
            poll.status.failures.clone()
        });
        if let Some(failures) = failures {
            registry.tell_failed(&writer.object.key, &failures);
        }
    }

    /// Changes a poll, and tells the object of its status.
    fn settle<R>(&self, number: u64, change: impl FnOnce(&mut Poll<K>) -> R) -> Option<R> {
        let mut polls = self.polls.lock();
        let poll = polls.by_number.get_mut(&number)?;
        let result = change(poll);
        poll.changes = poll.changes.wrapping_add(1);
        drop(polls);
        // Another thread may have waited for the end of this poll.
        self.polls.notify_all();
        self.tell(number);
        Some(result)
    }

    /// Tells an object of its poll's status. Another thread may change the status and tell the
    /// object meanwhile, so this repeats until the object has the present one.
    fn tell(&self, number: u64) {
        let mut told = None;
        loop {
            let polls = self.polls.lock();
            let poll = polls.by_number.get(&number);
            let Some(poll) = poll.filter(|poll| told != Some(poll.changes)) else {
                return;
            };
            told = Some(poll.changes);
            let (writer, status) = (Arc::clone(&poll.writer), poll.status.clone());
            drop(polls);
            writer.update(&status);
        }
    }

    /// Polls the object earlier for a reader: at its soonest time if the reader `waits`, else only
    /// if the last poll failed.
    fn expedite(&self, number: u64, waits: bool) {
        let mut polls = self.polls.lock();
        let Some(poll) = polls.by_number.get_mut(&number) else {
            return;
        };
        let is_failing = poll.status.failures.count() > 0;
        if (waits || is_failing) && poll.soonest < poll.due {
            poll.due = poll.soonest;
            drop(polls);
            self.polls.notify_all();
        }
    }

    fn pace(&self) -> Pace {
        Pace::of(self.context.registry.options.ttl_now())
    }
}

default_of!([K: Object] Polls<K>: by_number, attached, silent, is_closed);

impl<K: Object> Polls<K> {
    /// The objects that may be polled while the present polls are under way.
    fn candidates(&self) -> impl Iterator<Item = (&u64, &Poll<K>)> {
        let under_way = self.by_number.values().filter(|poll| poll.began.is_some());
        let failing = under_way.filter(|poll| poll.has_failed).count();
        let is_room = failing.saturating_mul(2) < POLLS_MAX;
        let all = self.by_number.iter();
        let idle = all.filter(|(_, poll)| poll.began.is_none());
        idle.filter(move |(_, poll)| is_room || !poll.has_failed)
    }

    /// When the next poll begins. `None` while there is none.
    fn next_at(&self) -> Option<Instant> {
        let due = self.candidates().map(|(_, poll)| poll.due).min()?;
        let newest = self.by_number.values().filter_map(|poll| poll.began).max();
        Some(newest.map_or(due, |began| due.max(later(began, PATIENCE))))
    }

    /// The object to be polled at `now`: first those whose last poll did not fail, then those with
    /// readers that wait, then those that are due earlier.
    fn next(&mut self, now: Instant) -> Option<(u64, Arc<Writer<K>>)> {
        self.next_at().filter(|at| *at <= now)?;
        let due = self.candidates().filter(|(_, poll)| poll.due <= now);
        let next = due.min_by_key(|(number, poll)| {
            (poll.has_failed, !poll.has_readers(), poll.due, **number)
        });
        let number = next.map(|(number, _)| *number)?;
        let poll = self.by_number.get_mut(&number)?;
        poll.began = Some(now);
        Some((number, Arc::clone(&poll.writer)))
    }
}

impl<K: Object> Poll<K> {
    fn has_readers(&self) -> bool {
        self.writer.object.waiters.any()
    }

    fn fail(&mut self, error: Error, began: Instant, now: Instant, pace: Pace) {
        (self.began, self.has_failed) = (None, true);
        let asked = asked_wait(&error);
        let pause = doubled(self.backoff, FIRST_WAIT, pace.interval);
        self.backoff = Some(pause);
        let for_readers = pause.min(BACKOFF_OF_READERS);
        self.soonest = later(now, asked.unwrap_or(for_readers));
        let pause = if self.has_readers() {
            for_readers
        } else {
            pause
        };
        self.due = later(now, asked.unwrap_or(pause));
        let status = &mut self.status;
        status.failures.add(error, began, now);
        let refusal = status.failures.refusal(FORBIDDEN_GRACE).cloned();
        (status.refusal, status.phase) = (refusal, Phase::BackingOff);
        status.next_attempt = Some(self.due);
        if status.refusal.is_some() && !status.synced {
            // The refusal is the answer until the next poll (R4).
            status.contact_deadline = Some(pace.late(self.due));
        }
    }
}

/// The run of an entry whose object is polled. It has no thread.
pub(crate) struct Polled<K: Object> {
    poller: Arc<Poller<K>>,
    number: u64,
}

impl<K: Object> SharedRun for Polled<K> {
    fn stop(&self) {
        let ended = self.poller.polls.lock().by_number.remove(&self.number);
        // Its drop takes locks.
        drop(ended);
    }

    fn status(&self) -> Option<ReflectorStatus> {
        let polls = self.poller.polls.lock();
        Some(polls.by_number.get(&self.number)?.status.clone())
    }

    fn expedite(&self) {
        self.poller.expedite(self.number, false);
    }

    fn await_news(&self) {
        self.poller.expedite(self.number, true);
    }
}

/// Its work on the caller's thread.
#[cfg(feature = "testing")]
impl<K: Object> Poller<K> {
    /// Makes the polls that are due.
    pub(crate) fn step(&self) {
        let registry = &self.context.registry;
        let stop = registry.stop.token();
        while !stop.is_stopped() {
            let next = self.polls.lock().next(registry.clock().now());
            let Some((number, writer)) = next else { return };
            self.poll(number, &writer, &stop);
        }
    }

    /// When the next poll begins. `None` while there is none.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.polls.lock().next_at()
    }
}

/// Single steps, for models.
#[cfg(all(test, shuttle))]
mod steps {
    use super::*;

    impl<K: Object> Poller<K> {
        /// Waits for the next poll, and makes it, as one of the poller's threads.
        pub(crate) fn poll_once(&self) {
            let stop = self.context.registry.stop.token();
            let (number, writer) = self.wait_for_next(&stop).unwrap();
            self.poll(number, &writer, &stop);
        }

        /// Makes the next failure the one after which the server counts as silent.
        pub(crate) fn expect_silence(&self) {
            self.polls.lock().silent = SILENT_POLLS - 1;
        }

        /// Waits until a poll has changed, whether or not its object was told.
        pub(crate) fn wait_for_change(&self) {
            let mut polls = self.polls.lock();
            while !polls.by_number.values().any(|poll| poll.changes > 0) {
                polls = self.polls.wait(polls);
            }
        }
    }
}
