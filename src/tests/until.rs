//! Waits for what comes without a signal. Each of them ends, and says where it stood.

use std::io::{self, Write as _};
use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that a test waits for, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Looks again and again until it is so.
#[track_caller]
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    until_some(|| is_so().then_some(()));
}

/// Looks again and again until there is something, and gives that.
#[track_caller]
pub(crate) fn until_some<T>(look: impl FnMut() -> Option<T>) -> T {
    match look_for(patience(), look) {
        Ok(found) => found,
        Err(told) => {
            // Not captured, unlike a macro's: what this test drops may wait for ever, too.
            drop(writeln!(io::stderr(), "{told}"));
            panic!("{told}");
        }
    }
}

/// Seconds in the environment shorten it, for runs in which many waits are in vain.
fn patience() -> Duration {
    let seconds = std::env::var("KUBECACHE_TEST_PATIENCE").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    seconds.map_or(PATIENCE, Duration::from_secs)
}

/// The error names the test, or the thread of it that looked, and the place.
#[track_caller]
#[expect(
    clippy::disallowed_methods,
    reason = "the integration tests have this file, too, and no clock of a test moves this time"
)]
fn look_for<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if began.elapsed() >= patience {
            let (thread, place) = (thread::current(), Location::caller());
            let name = thread.name().unwrap_or("a thread without a name");
            return Err(format!(
                "{name}: what it waits for at {place} did not come within {patience:?}"
            ));
        }
        thread::yield_now();
    }
}

#[test]
fn what_comes_at_a_later_look_is_found() {
    let mut looks = 0..3;
    until(|| looks.next().is_none());
    let mut looks = 0..3;
    assert_eq!(until_some(|| looks.find(|look| *look == 2)), 2);
    assert_eq!(look_for(Duration::ZERO, || Some(7)), Ok(7), "looks once");
}

#[test]
fn what_does_not_come_is_told_with_the_test_and_the_place() {
    let line = line!() + 1;
    let told = look_for(Duration::ZERO, || None::<()>).unwrap_err();
    let place = format!("what it waits for at {}:{line}:", file!());
    assert!(told.contains(&place), "{told}");
    assert!(
        told.contains("what_does_not_come_is_told_with_the_test_and_the_place: "),
        "{told}"
    );
    assert!(told.ends_with("did not come within 0ns"), "{told}");
}
