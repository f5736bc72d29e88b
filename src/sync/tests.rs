//! Ends a program of unit tests that all wait for ever, and names those that run.
//!
//! Without it a lost notification would hold up a run until somebody ends it.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::sync::Once;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::ProcessMutex;

/// How long a test may be idle, in ticks of a second: longer than any test waits for a clock.
const TICKS_MAX: u32 = 15;
/// Threads that only poll need less than this in that time. A test on a busy machine gets more.
const USED_MIN: Duration = Duration::from_millis(20);

static RUNNING: ProcessMutex<BTreeSet<String>> = ProcessMutex::new(BTreeSet::new());

thread_local! {
    static TEST: Option<RunningTest> = RunningTest::begin();
}

struct RunningTest(String);

impl RunningTest {
    /// `None` on a thread that the crate or a test has started: those have names of their own.
    fn begin() -> Option<Self> {
        static WATCHDOG: Once = Once::new();
        let name = thread::current().name()?.to_owned();
        if !name.contains("::") {
            return None;
        }
        RUNNING.lock().insert(name.clone());
        WATCHDOG.call_once(|| {
            let named = thread::Builder::new().name("watchdog".to_owned());
            // A test program without it does not end by itself.
            drop(named.spawn(watch));
        });
        Some(Self(name))
    }
}

impl Drop for RunningTest {
    fn drop(&mut self) {
        RUNNING.lock().remove(&self.0);
    }
}

/// Notes that the calling thread is that of a test, if it is.
pub(super) fn note_test() {
    // A thread that ends may lock, too.
    let _noted = TEST.try_with(|_| ());
}

/// How long the process has done nothing.
#[derive(Default)]
struct Idleness {
    used: Duration,
    ticks: u32,
}

impl Idleness {
    /// A second has passed, after which the process has used so much of the processors' time.
    fn tick(&mut self, used: Duration) {
        if used.saturating_sub(self.used) < USED_MIN {
            self.ticks = self.ticks.saturating_add(1);
        } else {
            *self = Self { used, ticks: 0 };
        }
    }

    fn is_over(&self) -> bool {
        self.ticks >= TICKS_MAX
    }
}

fn watch() {
    let mut idleness = Idleness::default();
    loop {
        thread::park_timeout(Duration::from_secs(1));
        let used = clock_gettime(ClockId::ProcessCPUTime);
        idleness.tick(used.try_into().unwrap_or_default());
        let running = RUNNING.lock();
        if running.is_empty() {
            idleness.ticks = 0;
        } else if idleness.is_over() {
            let names: Vec<_> = running.iter().map(String::as_str).collect();
            let text = format!("these tests wait for ever: {}\n", names.join(" "));
            // Unlike a macro's, this output is not captured.
            let _told = io::stderr().write_all(text.as_bytes());
            std::process::exit(101);
        }
    }
}

#[test]
fn only_a_process_that_does_nothing_for_long_is_hanging() {
    let mut idleness = Idleness::default();
    let mut used = Duration::ZERO;
    for _ in 0..20 {
        used += USED_MIN;
        idleness.tick(used);
    }
    assert!(!idleness.is_over(), "at work");
    for _ in 1..TICKS_MAX {
        idleness.tick(used);
    }
    assert!(!idleness.is_over(), "not yet");
    idleness.tick(used + Duration::from_millis(1));
    assert!(idleness.is_over());
    idleness.tick(used + USED_MIN);
    assert!(!idleness.is_over(), "at work again");
}
