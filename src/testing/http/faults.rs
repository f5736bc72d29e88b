//! Faults on purpose: what happens to an answer instead of, or on top of, what was recorded.

use std::time::Duration;

use crate::testing::recording::Target;

/// What a test server does instead of giving its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// Answers with a `Status` of the API; no recorded answer is used up.
    Status {
        /// The HTTP status.
        code: u16,
        /// The `reason`, such as `TooManyRequests`; empty for none.
        reason: String,
        /// The header `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// Takes the request and never answers; no recorded answer is used up.
    Hang,
    /// Sends so many bytes of the recorded body and then nothing, with the connection open. The
    /// recorded answer is used up: the next request gets the one after it.
    HangAfter(usize),
    /// Sends so many bytes of the recorded body and then breaks the connection. The recorded
    /// answer is used up: the next request gets the one after it.
    CutAfter(usize),
    /// Sends the recorded body in pieces of so many bytes, with a wait before each.
    Drip {
        /// Bytes per piece.
        bytes: usize,
        /// The wait before each piece, on the server's clock.
        every: Duration,
    },
}

/// An [`Act`] and the requests to which it applies.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::testing::{Act, Fault};
///
/// let second_watch_breaks = Fault::new(Act::CutAfter(100))
///     .on("/api/v1/namespaces/shop/secrets")
///     .watches()
///     .from(2)
///     .times(1);
/// # let _ = second_watch_breaks;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Fault {
    act: Act,
    path: Option<String>,
    watch: Option<bool>,
    first: usize,
    times: usize,
    met: usize,
}

impl Fault {
    /// Makes a fault that applies to every request.
    pub fn new(act: Act) -> Self {
        Self {
            act,
            path: None,
            watch: None,
            first: 1,
            times: usize::MAX,
            met: 0,
        }
    }

    /// Applies only to requests of that path, whatever their selectors.
    #[must_use]
    pub fn on(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Applies only to watches.
    #[must_use]
    pub fn watches(mut self) -> Self {
        self.watch = Some(true);
        self
    }

    /// Applies only to requests other than watches.
    #[must_use]
    pub fn reads(mut self) -> Self {
        self.watch = Some(false);
        self
    }

    /// Applies from the `nth` request on; the first one is number 1.
    #[must_use]
    pub fn from(mut self, nth: usize) -> Self {
        self.first = nth.max(1);
        self
    }

    /// Applies to so many requests at most.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Counts a request that it is about; gives the act if it meets it.
    pub(super) fn meet(&mut self, target: &Target) -> Option<Act> {
        let about = self.path.as_ref().is_none_or(|path| *path == target.path)
            && self.watch.is_none_or(|watch| watch == target.is_watch());
        if !about {
            return None;
        }
        self.met = self.met.saturating_add(1);
        let last = self.first.saturating_add(self.times);
        (self.first..last)
            .contains(&self.met)
            .then(|| self.act.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_meets_the_requests_it_names_and_no_others() {
        let mut fault = Fault::new(Act::Hang).on("/s").watches().from(2).times(2);
        let targets = [
            "/s?watch=1",
            "/s",
            "/t?watch=1",
            "/s?watch=1",
            "/s?watch=1",
            "/s?watch=1",
        ];
        let met: Vec<_> = targets
            .iter()
            .map(|target| fault.meet(&Target::parse(target)).is_some())
            .collect();
        assert_eq!(met, [false, false, false, true, true, false]);
    }
}
