//! Time as a dependency: the system's monotonic clock, and a fake clock that tests advance by hand.
//!
//! A deadline is absolute, and computed once. Every wait of the crate goes through
//! `Clock::wait_for`, or through the single steps `Clock::wait_until` and `Clock::wait_for_bell`,
//! so that with a [`FakeClock`] no test ever sleeps.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant, SystemTime};

use crate::sync::{Arc, Bell, Monitor, Mutex, MutexGuard, Rank, Wake, wake_at};

/// The instant at which a wait ends; [`Deadline::NEVER`] means a wait without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline: the wait ends only when its condition holds or when it is stopped.
    pub const NEVER: Self = Self(None);

    /// Makes a deadline at `instant` of the clock that the waiting call uses.
    pub fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// Whether `now` is at the deadline or after it.
    pub fn has_passed(self, now: Instant) -> bool {
        self.0.is_some_and(|end| now >= end)
    }

    /// Returns the time from `now` to the deadline: zero if it has passed, `None` for
    /// [`Deadline::NEVER`].
    pub fn remaining(self, now: Instant) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(now))
    }

    /// Returns the instant of the deadline; `None` for [`Deadline::NEVER`].
    pub fn instant(self) -> Option<Instant> {
        self.0
    }

    /// Returns the earlier of two deadlines.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        Self([self.0, other.0].into_iter().flatten().min())
    }
}

/// When a call stops waiting: at a [`Deadline`], or after a [`Duration`], which counts from the
/// call. [`Deadline::NEVER`] and `Duration::MAX` are waits without end.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::Secret;
/// use kubecache::ErrorKind;
/// use kubecache::clock::Clock;
/// use kubecache::store::{Indexers, Store};
///
/// let (store, _writer) = Store::<Secret>::new(Indexers::new(), Clock::system());
/// let error = store.wait_until_synced(Duration::from_millis(1)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotSynced);
/// ```
pub trait IntoDeadline: Copy {
    /// Returns the deadline, by the clock of the call that waits.
    fn into_deadline(self, clock: &Clock) -> Deadline;
}

impl IntoDeadline for Deadline {
    fn into_deadline(self, _clock: &Clock) -> Deadline {
        self
    }
}

impl IntoDeadline for Duration {
    fn into_deadline(self, clock: &Clock) -> Deadline {
        clock.after(self)
    }
}

/// The distance of an instant that stands for "never": 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// The instant `by` after `from`, or one that never comes if the clock cannot count that far.
pub(crate) fn later(from: Instant, by: Duration) -> Instant {
    let reached = from.checked_add(by).or_else(|| from.checked_add(FAR));
    reached.unwrap_or(from)
}

/// A time on the monotonic clock and on the wall clock, which goes on while the machine is
/// suspended or paused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallInstant {
    pub(crate) instant: Instant,
    wall: SystemTime,
}

impl WallInstant {
    /// The time `by` after this one, or one that never comes if a clock cannot count that far.
    pub(crate) fn later(self, by: Duration) -> Self {
        let wall = self.wall.checked_add(by);
        let wall = wall.or_else(|| self.wall.checked_add(FAR));
        Self {
            instant: later(self.instant, by),
            wall: wall.unwrap_or(self.wall),
        }
    }

    /// The time from `now` to this moment, by whichever clock reaches it first.
    pub(crate) fn left(self, now: Self) -> Duration {
        let by_wall = self.wall.duration_since(now.wall).unwrap_or_default();
        by_wall.min(self.instant.saturating_duration_since(now.instant))
    }

    /// The time of the wall clock, from 1970 on.
    pub(crate) fn since_epoch(self) -> Duration {
        let passed = self.wall.duration_since(SystemTime::UNIX_EPOCH);
        passed.unwrap_or_default()
    }

    /// Whether this moment has come by `now`, on either clock.
    pub(crate) fn has_come(self, now: Self) -> bool {
        self.left(now).is_zero()
    }
}

/// How far the coarse clock may lag behind the exact one, in milliseconds: a tick of the slowest
/// kernels, plus rounding.
const COARSE_LAG: u64 = 16;

/// A reading of the coarse clock: milliseconds since an arbitrary start, a few behind the exact
/// clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Coarse(u64);

impl Coarse {
    /// Whether this reading is later than `earlier` by more than `by`.
    pub(crate) fn is_later_than(self, earlier: Self, by: Duration) -> bool {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.0 > earlier.0.saturating_add(by)
    }

    /// Whether certainly less than `by` has passed since `earlier`, even on the exact clock, which
    /// this one lags. If false, only the exact clock can tell.
    pub(crate) fn is_surely_within(self, earlier: Self, by: Duration) -> bool {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.0.saturating_sub(earlier.0).saturating_add(COARSE_LAG) < by
    }
}

/// The clock that the crate reads and waits on: the system's, or a [`FakeClock`] in tests. Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    Fake(FakeClock),
}

impl Clock {
    /// The system's monotonic clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// The current instant.
    pub fn now(&self) -> Instant {
        match &self.0 {
            #[expect(
                clippy::disallowed_methods,
                reason = "this is the one place that reads the time"
            )]
            Source::System => Instant::now(),
            Source::Fake(fake) => fake.now(),
        }
    }

    /// The current moment.
    pub(crate) fn wall_instant(&self) -> WallInstant {
        match &self.0 {
            Source::System => WallInstant {
                instant: self.now(),
                wall: SystemTime::now(),
            },
            Source::Fake(fake) => fake.0.lock().at,
        }
    }

    /// A seed for the jitter of one wait: a random number, or one of its time if the clock moves
    /// itself.
    pub(crate) fn seed(&self) -> u64 {
        if let Source::Fake(fake) = &self.0 {
            let fake = fake.0.lock();
            if fake.moves_itself {
                return u64::try_from(fake.passed().as_nanos()).unwrap_or_default();
            }
        }
        RandomState::new().build_hasher().finish()
    }

    /// Reads the coarse clock, for checks at each read of a cache: a quarter of the cost of
    /// [`now`](Self::now).
    pub(crate) fn coarse(&self) -> Coarse {
        match &self.0 {
            Source::System => system_coarse(),
            Source::Fake(fake) => fake.coarse(),
        }
    }

    /// Returns the deadline `duration` from now; [`Deadline::NEVER`] if the clock cannot count that
    /// far.
    pub fn after(&self, duration: Duration) -> Deadline {
        Deadline(self.now().checked_add(duration))
    }

    /// Whether `deadline` has passed.
    pub fn has_passed(&self, deadline: Deadline) -> bool {
        deadline.0.is_some() && deadline.has_passed(self.now())
    }

    /// Blocks until `look` finds something in the monitor's data, at most until `deadline`; `None`
    /// at the deadline.
    ///
    /// `look` runs under the monitor's lock, at once and then after each wake-up. Its result beats
    /// a deadline that has passed. A stop ends the wait if the caller registers the monitor as its
    /// [`Wake`] before the lock is taken, and `look` checks the stop.
    pub(crate) fn wait_for<'a, T: Send + 'static, F>(
        &self,
        monitor: &'a Arc<Monitor<T>>,
        mut guard: MutexGuard<'a, T>,
        deadline: Deadline,
        mut look: impl FnMut(&mut T) -> Option<F>,
    ) -> (Option<F>, MutexGuard<'a, T>) {
        loop {
            let found = look(&mut guard);
            if found.is_some() || self.has_passed(deadline) {
                return (found, guard);
            }
            guard = self.wait_until(monitor, guard, deadline);
        }
    }

    /// Waits for a notification of `monitor`, at most until `deadline`. Callers loop over their
    /// predicate.
    pub(crate) fn wait_until<'a, T: Send + 'static>(
        &self,
        monitor: &'a Arc<Monitor<T>>,
        guard: MutexGuard<'a, T>,
        deadline: Deadline,
    ) -> MutexGuard<'a, T> {
        let waker = || -> Arc<dyn Wake> { Arc::<Monitor<T>>::clone(monitor) };
        self.wait_at(&monitor.changed, guard, deadline, waker)
    }

    /// Waits for one of the bells of `mutex`, at most until `deadline`. Callers loop over their
    /// predicate.
    pub(crate) fn wait_for_bell<'a, T: Send + 'static>(
        &self,
        mutex: &'a Arc<Mutex<T>>,
        bell: &Arc<Bell>,
        guard: MutexGuard<'a, T>,
        deadline: Deadline,
    ) -> MutexGuard<'a, T> {
        self.wait_at(bell, guard, deadline, || wake_at(mutex, bell))
    }

    fn wait_at<'a, T>(
        &self,
        bell: &Bell,
        guard: MutexGuard<'a, T>,
        deadline: Deadline,
        waker: impl FnOnce() -> Arc<dyn Wake>,
    ) -> MutexGuard<'a, T> {
        match (&self.0, deadline.0) {
            (Source::System, Some(end)) => bell.wait_until(guard, end),
            (Source::System, None) => bell.wait(guard),
            (Source::Fake(fake), _) => fake.park(waker(), bell, guard, deadline),
        }
    }
}

fn system_coarse() -> Coarse {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = ClockId::MonotonicCoarse;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = ClockId::Monotonic;
    let time = clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    let millis = seconds.saturating_mul(1_000);
    Coarse(millis.saturating_add(nanos / 1_000_000))
}

impl From<FakeClock> for Clock {
    fn from(fake: FakeClock) -> Self {
        Self(Source::Fake(fake))
    }
}

/// A clock for tests. It moves only when a test advances it, and knows which threads wait on it.
/// Cheap to clone.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::clock::{Clock, FakeClock};
/// use std::time::Duration;
///
/// let fake = FakeClock::new();
/// let clock = Clock::from(fake.clone());
/// let deadline = clock.after(Duration::from_secs(60));
/// assert!(!clock.has_passed(deadline));
/// fake.advance(Duration::from_secs(60));
/// assert!(clock.has_passed(deadline));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Monitor<Fake>>);

struct Fake {
    start: Instant,
    at: WallInstant,
    next_id: u64,
    /// The waits, each with its deadline and what wakes it, in the order of their beginning.
    parked: BTreeMap<u64, (Deadline, Arc<dyn Wake>)>,
    /// A wait ends at once, and the clock is at its deadline then.
    moves_itself: bool,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fake")
            .field("now", &self.at.instant)
            .field("parked", &self.parked.len())
            .finish_non_exhaustive()
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeClock {
    /// Makes a fake clock, which starts at the system's instant and then stands still.
    pub fn new() -> Self {
        let at = Clock::system().wall_instant();
        let fake = Fake {
            start: at.instant,
            at,
            next_id: 0,
            parked: BTreeMap::new(),
            moves_itself: false,
        };
        Self(Arc::new(Monitor::ranked(Rank::FAKE_CLOCK, fake)))
    }

    /// Returns the clock's present instant.
    pub fn now(&self) -> Instant {
        self.0.lock().at.instant
    }

    fn coarse(&self) -> Coarse {
        let fake = self.0.lock();
        Coarse(u64::try_from(fake.passed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Moves the clock forward by `by` and wakes every thread that waits on it.
    pub fn advance(&self, by: Duration) {
        let wakers: Vec<_> = {
            let mut fake = self.0.lock();
            fake.at = fake.at.later(by);
            let parked = fake.parked.values();
            parked.map(|(_, waker)| Arc::clone(waker)).collect()
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Makes each wait end at its deadline at once, by moving there: for one thread that plays all
    /// parts. A wait without a deadline returns at once, too.
    #[cfg(feature = "testing")]
    pub(crate) fn move_itself(&self) {
        self.0.lock().moves_itself = true;
    }

    /// Blocks until at least `count` threads wait on the clock. Nothing else ends this call.
    pub fn wait_for_parked(&self, count: usize) {
        self.wait_for(|fake| (fake.parked.len() >= count).then_some(()));
    }

    /// Blocks until a thread waits with a deadline exactly `ahead` of the clock.
    ///
    /// This is how a test waits for "the backoff of 800 ms has begun" without sleeping.
    pub fn wait_for_timer(&self, ahead: Duration) {
        self.wait_for(|fake| fake.remaining().find(|left| *left == ahead));
    }

    /// Blocks until at least `count` threads wait with a deadline ahead of the clock. Returns how
    /// far ahead the earliest one is. Threads that the clock has already woken do not count.
    pub fn wait_for_timers(&self, count: usize) -> Duration {
        self.wait_for(|fake| {
            let ahead: Vec<_> = fake.remaining().filter(|left| !left.is_zero()).collect();
            ahead.iter().min().copied().filter(|_| ahead.len() >= count)
        })
    }

    /// Blocks until a thread waits with a deadline, and returns how far ahead the earliest one is.
    pub fn wait_for_next_timer(&self) -> Duration {
        self.wait_for(|fake| fake.remaining().min())
    }

    /// Waits until `look` finds something among the parked waits.
    fn wait_for<T>(&self, look: impl Fn(&Fake) -> Option<T>) -> T {
        let mut fake = self.0.lock();
        loop {
            if let Some(found) = look(&fake) {
                return found;
            }
            fake = self.0.wait(fake);
        }
    }

    fn park<'a, T>(
        &self,
        waker: Arc<dyn Wake>,
        bell: &Bell,
        guard: MutexGuard<'a, T>,
        deadline: Deadline,
    ) -> MutexGuard<'a, T> {
        let id = {
            let mut fake = self.0.lock();
            if deadline.has_passed(fake.at.instant) {
                return guard;
            }
            if fake.moves_itself {
                let left = deadline.remaining(fake.at.instant).unwrap_or_default();
                fake.at = fake.at.later(left);
                return guard;
            }
            let id = fake.next_id;
            fake.next_id = id.wrapping_add(1);
            fake.parked.insert(id, (deadline, waker));
            id
        };
        self.0.notify_all();
        let guard = bell.wait(guard);
        self.0.lock().parked.remove(&id);
        guard
    }
}

impl Fake {
    /// How far the clock was moved.
    fn passed(&self) -> Duration {
        self.at.instant.saturating_duration_since(self.start)
    }

    fn remaining(&self) -> impl Iterator<Item = Duration> + '_ {
        let parked = self.parked.values();
        parked.filter_map(|(deadline, _)| deadline.remaining(self.at.instant))
    }
}

/// What only tests ask of a fake clock.
#[cfg(test)]
mod steps {
    use super::*;

    impl FakeClock {
        /// How far ahead the earliest deadline is with which a thread waits now.
        #[cfg(feature = "testing")]
        pub(crate) fn next_timer(&self) -> Option<Duration> {
            self.0.lock().remaining().min()
        }

        /// Suspends the machine for `by`: time passes only on the wall clock.
        pub(crate) fn suspend(&self, by: Duration) {
            let mut fake = self.0.lock();
            fake.at.wall = fake.at.later(by).wall;
        }

        /// Whether a thread waits without a deadline.
        pub(crate) fn has_timeless_waiter(&self) -> bool {
            let fake = self.0.lock();
            let mut parked = fake.parked.values();
            parked.any(|(deadline, _)| deadline.instant().is_none())
        }
    }
}
