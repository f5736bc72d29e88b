//! How sure it is that there is no such object: a cache of the server may be stuck. Pure.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use crate::clock::later;

/// The longest pause before an absence is confirmed, and the shortest after a failure of that.
pub(crate) const ABSENCE_PAUSE: Duration = Duration::from_secs(10);

/// How sure it is that there is no such object, while none is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    Sure,
    /// A cache of the server said so. A reader who is told of it has it confirmed after that time.
    Doubtful(Instant),
    /// It is being confirmed, or will be.
    Due,
}

impl Absence {
    /// A reader is told of it. Returns when the caller is to have it confirmed, if at all.
    pub(crate) fn given(&mut self, now: Instant) -> Option<Instant> {
        let Self::Doubtful(since) = *self else {
            return None;
        };
        *self = Self::Due;
        let most = u64::try_from(ABSENCE_PAUSE.as_millis()).ok()?;
        let pause = RandomState::new().hash_one(now).checked_rem(most)?;
        Some(later(now.max(since), Duration::from_millis(pause)))
    }

    /// It could not be confirmed. The next reader who is told of it has that tried again, but not
    /// before the pause has passed, or what the server `asked` for if that is longer.
    pub(crate) fn unconfirmed(&mut self, asked: Option<Duration>, now: Instant) {
        let pause = asked.unwrap_or_default().max(ABSENCE_PAUSE);
        *self = Self::Doubtful(later(now, pause));
    }
}
