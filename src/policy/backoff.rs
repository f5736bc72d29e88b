//! The arithmetic of waits: backoff, reopening, fast first syncs, the retry window. Pure; chance
//! comes from a seed.

use std::time::{Duration, Instant};

use super::renewals::RenewalRow;
use crate::clock::later;
use crate::setters::setters;

/// The first wait of a first sync with a waiting caller (B3), after a watch that did not last (B9),
/// and after a get that failed.
pub(crate) const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The end of the fast series, where the steady one begins: 50, 100, 200 and 400 ms fit into the
/// second that a read waits.
const FAST_WAIT_END: Duration = Duration::from_millis(800);
/// The minimum time between two fast series, so that readers that come and go cannot sustain it.
const FAST_SERIES_GAP: Duration = Duration::from_secs(10);
/// The share of a fast wait that chance adds. With more, four waits would not fit into a second.
const FAST_JITTER: f64 = 0.25;
/// The lifetime after which a watch is reopened at once, and counts as having served.
pub(crate) const REOPEN_AT_ONCE: Duration = Duration::from_secs(5);
/// The lifetime of a watch that resets the waits after short watches.
const REOPEN_RESET: Duration = Duration::from_secs(30);
/// The longest wait before a watch is reopened.
const REOPEN_WAIT_MAX: Duration = Duration::from_secs(5);
/// The first pause after refused streamed lists, and the longest. The random share may double them.
const STREAM_PAUSE: Duration = Duration::from_secs(30);
const STREAM_PAUSE_MAX: Duration = Duration::from_secs(5 * 60);
/// The first pause of a read with a waiting caller, and the longest.
const READ_PAUSE: Duration = Duration::from_millis(200);
const READ_PAUSE_MAX: Duration = Duration::from_secs(5);
/// An internal error later than this begins a new series (BK-9).
const RETRY_SERIES_GAP: Duration = Duration::from_secs(60);

/// The waits after failed lists and watches. Each is a random time from its base up to base × (1 +
/// jitter).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use kubecache::reflector::BackoffOptions;
///
/// let patient = BackoffOptions::default()
///     .initial(Duration::from_secs(2))
///     .cap(Duration::from_secs(60));
/// # drop(patient);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "options do nothing before they are those of a reflector"]
pub struct BackoffOptions {
    pub(crate) initial: Duration,
    pub(crate) factor: f64,
    pub(crate) cap: Duration,
    pub(crate) refused_cap: Duration,
    pub(crate) jitter: f64,
    pub(crate) reset_after: Duration,
}

setters! { [] BackoffOptions;
    /// Sets the first base. Default: 800 ms.
    initial(base: Duration);

    /// Sets the factor by which each wait's base grows. With 1 or less it does not grow. Default:
    /// 2.
    factor(factor: f64);

    /// Sets the largest base. Default: 30 seconds.
    cap(base: Duration);

    /// Sets the largest base while a refusal lasts: 403, or 404 for the resource, for longer than
    /// the [grace](crate::reflector::ReflectorOptions::forbidden_grace). The [`cap`](Self::cap)
    /// applies if it is more. Default: 150 seconds, so that the reflector asks at least every 5
    /// minutes.
    ///
    /// A read shortens such a wait to one within the cap.
    refused_cap(base: Duration);

    /// Sets the largest random share of the base that is added to each wait. Default: 1, so that a
    /// wait is in [base, 2 × base).
    jitter(share: f64);

    /// Sets how long after the opening of a watch the waits restart at the first base. Zero keeps
    /// them there. Default: 2 minutes.
    ///
    /// They restart sooner when the server proves that it works: by an event, a watch that lived
    /// five seconds, an expired version, or an answer other than 5xx and 429.
    reset_after(health: Duration);
}

impl Default for BackoffOptions {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            factor: 2.0,
            cap: Duration::from_secs(30),
            refused_cap: Duration::from_secs(150),
            jitter: 1.0,
            reset_after: Duration::from_secs(2 * 60),
        }
    }
}

/// A small generator (`SplitMix64`) for jitter: reproducible from its seed, not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, `count`).
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.next().checked_rem(count).unwrap_or_default()
    }

    /// Uniform in [0, 1).
    pub(crate) fn share(&mut self) -> f64 {
        let bits = u32::try_from(self.next() >> 32).unwrap_or(u32::MAX);
        f64::from(bits) / 4_294_967_296.0
    }

    /// Uniform in [0, `length`).
    pub(crate) fn within(&mut self, length: Duration) -> Duration {
        length.mul_f64(self.share())
    }

    /// Uniform in [`least`, `least` × (1 + `jitter`)).
    pub(crate) fn stretch(&mut self, least: Duration, jitter: f64) -> Duration {
        let finite = if jitter.is_finite() { jitter } else { 0.0 };
        let factor = self.share().mul_add(finite.max(0.0), 1.0);
        Duration::try_from_secs_f64(least.as_secs_f64() * factor).unwrap_or(least)
    }
}

/// Waits that grow from a first base to a largest one (RF-8, BK-1..BK-3).
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    options: BackoffOptions,
    base: Duration,
}

impl Backoff {
    pub(crate) fn new(options: BackoffOptions) -> Self {
        let base = options.initial;
        Self { options, base }
    }

    /// Creates the waits between a watch that did not fail and its reopening (B9).
    pub(crate) fn of_reopening() -> Self {
        Self::doubling(FIRST_WAIT, REOPEN_WAIT_MAX, 0.0)
    }

    /// Creates the pauses after refused streamed lists: at most ten minutes.
    pub(crate) fn of_streams() -> Self {
        Self::doubling(STREAM_PAUSE, STREAM_PAUSE_MAX, 1.0)
    }

    /// Creates the pauses of a read with a waiting caller, if the server names none.
    pub(crate) fn of_reads() -> Self {
        Self::doubling(READ_PAUSE, READ_PAUSE_MAX, 0.0)
    }

    /// The pauses of a source of credentials that fails.
    pub(crate) fn of_renewals(row: &RenewalRow) -> Self {
        let (first, longest) = row.pauses;
        Self::doubling(first, longest, 0.0)
    }

    fn doubling(initial: Duration, cap: Duration, jitter: f64) -> Self {
        Self::new(BackoffOptions {
            initial,
            cap,
            jitter,
            ..BackoffOptions::default()
        })
    }

    /// Notes the health before a failure. Only lasting health restarts the sequence (B10, BK-5).
    pub(crate) fn after(&mut self, health: Duration) {
        if health > self.options.reset_after || self.options.reset_after.is_zero() {
            self.restart();
        }
    }

    /// Restarts the sequence: the server has proved that it lives (B10).
    pub(crate) fn restart(&mut self) {
        self.base = self.options.initial;
    }

    /// A first wait, which does not advance the sequence.
    pub(crate) fn first(&self, chance: &mut Chance) -> Duration {
        chance.stretch(self.options.initial, self.options.jitter)
    }

    /// The next wait of the sequence.
    pub(crate) fn next(&mut self, chance: &mut Chance) -> Duration {
        self.base = self.capped_base();
        self.next_up_to(self.options.cap, chance)
    }

    /// The next wait of the sequence while a refusal lasts: it grows beyond the cap (R4).
    pub(crate) fn next_refused(&mut self, chance: &mut Chance) -> Duration {
        self.next_up_to(self.options.refused_cap.max(self.options.cap), chance)
    }

    /// The wait without a lasting refusal. Does not advance the sequence.
    pub(crate) fn wanted(&self, chance: &mut Chance) -> Duration {
        chance.stretch(self.capped_base(), self.options.jitter)
    }

    fn next_up_to(&mut self, cap: Duration, chance: &mut Chance) -> Duration {
        let wait = chance.stretch(self.base, self.options.jitter);
        self.base = grown(self.base, self.options.factor, cap);
        wait
    }

    /// A first wait may be longer than the cap.
    fn capped_base(&self) -> Duration {
        self.base.min(self.options.cap.max(self.options.initial))
    }

    /// The wait after a watch of this lifetime; zero only after one that lived long enough.
    pub(crate) fn after_watch(&mut self, lived: Duration, chance: &mut Chance) -> Duration {
        if lived >= REOPEN_RESET {
            self.restart();
        }
        if lived >= REOPEN_AT_ONCE {
            return Duration::ZERO;
        }
        self.next(chance)
    }
}

/// The pause after one of `last`: `first`, then twice the last one, up to `cap`.
pub(crate) fn doubled(last: Option<Duration>, first: Duration, cap: Duration) -> Duration {
    last.map_or(first, |last| grown(last, 2.0, cap.max(first)))
}

fn grown(base: Duration, factor: f64, cap: Duration) -> Duration {
    if factor.is_nan() || factor <= 1.0 {
        return base;
    }
    Duration::try_from_secs_f64(base.as_secs_f64() * factor).map_or(cap, |next| next.min(cap))
}

/// The fast retries of a first sync with a waiting caller (B3).
#[derive(Clone, Debug)]
pub(crate) struct Fast {
    began: Option<Instant>,
    waits: Backoff,
}

impl Default for Fast {
    fn default() -> Self {
        Self {
            began: None,
            waits: Backoff::doubling(FIRST_WAIT, FAST_WAIT_END, FAST_JITTER),
        }
    }
}

impl Fast {
    /// The longest of the fast waits.
    pub(crate) const LONGEST: Duration = Duration::from_millis(400);

    /// The next fast wait; `None` once the series has fallen into the steady backoff.
    pub(crate) fn next(&mut self, now: Instant, chance: &mut Chance) -> Option<Duration> {
        if self.next_series().is_none_or(|next| now >= next) {
            self.began = Some(now);
            self.waits.restart();
        }
        (self.waits.base < FAST_WAIT_END).then(|| self.waits.next(chance))
    }

    /// The time from which a new series may begin; `None` before the first.
    pub(crate) fn next_series(&self) -> Option<Instant> {
        self.began.map(|began| later(began, FAST_SERIES_GAP))
    }
}

/// How long a class of errors is retried, from the first of a series (BK-9).
#[derive(Clone, Debug)]
pub(crate) struct RetryWindow {
    length: Duration,
    series: Option<(Instant, Instant)>,
}

impl RetryWindow {
    pub(crate) fn new(length: Duration) -> Self {
        Self {
            length,
            series: None,
        }
    }

    /// Notes an error of the class, and returns whether to retry it: within the window, including
    /// its end.
    ///
    /// After the window it returns false, and the next error begins a new series.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        if self.length.is_zero() {
            return false;
        }
        let first = match self.series {
            Some((first, last)) if now.saturating_duration_since(last) < RETRY_SERIES_GAP => first,
            Some(_) | None => now,
        };
        let admitted = now.saturating_duration_since(first) <= self.length;
        self.series = admitted.then_some((first, now));
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const SEED: u64 = 7;

    fn millis(list: &[u64]) -> Vec<Duration> {
        list.iter().copied().map(Duration::from_millis).collect()
    }

    fn bases(options: &BackoffOptions, count: usize) -> Vec<Duration> {
        let mut backoff = Backoff::new(BackoffOptions {
            jitter: 0.0,
            ..options.clone()
        });
        let mut chance = Chance::new(SEED);
        (0..count)
            .map(|_| {
                backoff.after(Duration::ZERO);
                backoff.next(&mut chance)
            })
            .collect()
    }

    /// BK-1 and BK-3: the base doubles to its cap and stays there.
    #[test]
    fn the_sequence_of_the_defaults() {
        let expected = millis(&[
            800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000, 30_000,
        ]);
        assert_eq!(bases(&BackoffOptions::default(), 9), expected);
    }

    /// The published sequence of `SplitMix64` from this seed.
    #[test]
    fn chance_is_the_generator_that_it_says() {
        let mut chance = Chance::new(1_234_567);
        let drawn: Vec<_> = (0..3).map(|_| chance.next()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(drawn, published);
        let length = Duration::from_secs(1);
        let waits: Vec<_> = (0..1000).map(|_| chance.within(length)).collect();
        assert!(waits.iter().all(|wait| *wait < length));
        let half = waits.iter().filter(|wait| **wait < length / 2).count();
        assert!((400..600).contains(&half), "{half}");
    }

    /// R4: only a lasting refusal makes the waits longer than the cap.
    #[test]
    fn r4_refused_waits_grow_beyond_the_cap_and_others_do_not() {
        let mut backoff = Backoff::new(BackoffOptions {
            jitter: 0.0,
            ..BackoffOptions::default()
        });
        let mut chance = Chance::new(SEED);
        let refused: Vec<_> = (0..9).map(|_| backoff.next_refused(&mut chance)).collect();
        let expected = [
            800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 102_400, 150_000,
        ];
        assert_eq!(refused, millis(&expected));
        let cap = Duration::from_secs(30);
        assert_eq!(backoff.wanted(&mut chance), cap);
        assert_eq!(backoff.next(&mut chance), cap);
        assert_eq!(backoff.first(&mut chance), Duration::from_millis(800));
    }

    /// BK-2: each wait is uniform between the base and its double.
    #[test]
    fn jitter_fills_the_whole_range() {
        let mut chance = Chance::new(SEED);
        let base = Duration::from_secs(1);
        let draws: Vec<_> = (0..1000).map(|_| chance.stretch(base, 1.0)).collect();
        assert!(draws.iter().all(|d| *d >= base && *d < base * 2));
        let below = |limit| draws.iter().filter(|d| **d < base.mul_f64(limit)).count();
        assert!((200..300).contains(&below(1.25)), "{}", below(1.25));
        assert!((450..550).contains(&below(1.5)), "{}", below(1.5));
        assert!((700..800).contains(&below(1.75)), "{}", below(1.75));
    }

    /// BK-5, B10: failure never resets, two minutes of health do; BK-4 is not kept.
    #[test]
    fn only_health_starts_the_sequence_again() {
        let options = BackoffOptions {
            jitter: 0.0,
            ..BackoffOptions::default()
        };
        let mut backoff = Backoff::new(options);
        let mut chance = Chance::new(SEED);
        let mut next = |health| {
            backoff.after(Duration::from_secs(health));
            backoff.next(&mut chance)
        };
        for _ in 0..20 {
            next(0);
        }
        assert_eq!(
            next(120),
            Duration::from_secs(30),
            "two minutes are not over yet"
        );
        assert_eq!(next(121), Duration::from_millis(800));
        assert_eq!(next(0), Duration::from_millis(1600));
    }

    /// BK-6: the custom sequence of upstream's test sums to 250 ms.
    #[test]
    fn a_sequence_of_ones_own() {
        let options = BackoffOptions {
            initial: Duration::from_millis(10),
            cap: Duration::from_millis(100),
            ..BackoffOptions::default()
        };
        assert_eq!(bases(&options, 5), millis(&[10, 20, 40, 80, 100]));
        let constant = BackoffOptions {
            reset_after: Duration::ZERO,
            ..options.clone()
        };
        assert_eq!(bases(&constant, 3), millis(&[10, 10, 10]));
        let level = BackoffOptions {
            factor: 1.0,
            cap: Duration::from_millis(5),
            ..options.clone()
        };
        assert_eq!(bases(&level, 3), millis(&[10, 10, 10]));
        let odd = BackoffOptions {
            factor: f64::NAN,
            ..options
        };
        assert_eq!(bases(&odd, 3), millis(&[10, 10, 10]));
    }

    #[test]
    fn the_same_seed_gives_the_same_waits() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..8)
                .map(|_| chance.stretch(Duration::from_secs(1), 1.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn pauses_double_up_to_a_cap_that_may_change() {
        let (mut last, mut pauses) = (None, Vec::new());
        for cap in [1, 200, 200, 150, 150, 1000, 1000] {
            pauses.push(*last.insert(doubled(last, FIRST_WAIT, Duration::from_millis(cap))));
        }
        assert_eq!(pauses, millis(&[50, 100, 200, 150, 150, 300, 600]));
    }

    /// B9: 50 ms doubling to 5 s, reset by a watch that lived 30 s.
    #[test]
    fn short_watches_wait_longer_each_time() {
        let (mut reopen, mut chance) = (Backoff::of_reopening(), Chance::new(SEED));
        let mut next = |lived| reopen.after_watch(lived, &mut chance);
        let short = Duration::from_millis(4999);
        let waits: Vec<_> = (0..9).map(|_| next(short)).collect();
        let expected = millis(&[50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(waits, expected);
        assert_eq!(next(Duration::from_secs(5)), Duration::ZERO);
        assert_eq!(
            next(short),
            Duration::from_secs(5),
            "five seconds do not reset"
        );
        assert_eq!(next(Duration::from_secs(30)), Duration::ZERO);
        assert_eq!(next(short), Duration::from_millis(50));
    }

    /// B3: the fast waits fit into a second even at their longest, and then fall into the steady
    /// backoff.
    #[test]
    fn fast_retries_fit_into_a_second_and_end() {
        let mut fast = Fast::default();
        let mut chance = Chance::new(SEED);
        let start = Clock::system().now();
        let waits: Vec<_> = (0..9)
            .map_while(|_| fast.next(start, &mut chance))
            .collect();
        assert_eq!(waits.len(), 4);
        assert!(
            waits.iter().sum::<Duration>() < Duration::from_secs(1),
            "{waits:?}"
        );
        for (wait, base) in waits.iter().zip([50, 100, 200, 400]) {
            let base = Duration::from_millis(base);
            assert!(*wait >= base && *wait < base.mul_f64(1.25), "{wait:?}");
        }
        let later = start + Duration::from_secs(10);
        assert_eq!(fast.next_series(), Some(later));
        assert_eq!(
            fast.next(start + Duration::from_millis(9999), &mut chance),
            None
        );
        assert!(fast.next(later, &mut chance).is_some(), "a new series");
    }

    /// BK-9 and RF-46, upstream's table: no window, 30 s with an error each second, a gap that
    /// begins anew.
    #[test]
    fn the_retry_window_of_internal_errors() {
        let start = Clock::system().now();
        let retries = |length: u64, at: &[u64]| {
            let mut window = RetryWindow::new(Duration::from_secs(length));
            at.iter()
                .take_while(|second| window.admits(start + Duration::from_secs(**second)))
                .count()
        };
        let each_second: Vec<u64> = (0..100).collect();
        assert_eq!(retries(0, &each_second), 0);
        assert_eq!(retries(30, &each_second), 31);
        let with_a_gap: Vec<u64> = (0..9).chain(69..200).collect();
        assert_eq!(retries(30, &with_a_gap), 9 + 31);
        assert_eq!(retries(100, &[0, 60, 119, 160]), 4, "a gap of a minute");
        let mut window = RetryWindow::new(Duration::from_secs(1));
        assert!(window.admits(start));
        assert!(!window.admits(start + Duration::from_secs(2)), "over");
        assert!(
            window.admits(start + Duration::from_secs(3)),
            "a new series"
        );
    }
}
