//! The oracles: the promises that each step is held against, and the failure that one reports.

use std::cell::RefCell;
use std::fmt;

use crate::error::Error;

macro_rules! oracles {
    ($($name:ident $text:literal $sentence:literal;)+) => {
        /// A promise that the simulation holds the caches to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Oracle {
            $(#[doc = $sentence] $name,)+
        }

        impl Oracle {
            /// All oracles.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns its name, as a failure shows it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// Returns the promise as one sentence.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)+
                }
            }
        }
    };
}

oracles! {
    Position "position"
        "The content of a cache is the server's state at the version that the cache names.";
    Backwards "backwards"
        "No cache shows an older state of an object after a newer one, also after a fresh read.";
    History "history"
        "A handler gets for each object an add, updates and a delete, in this order, of one uid.";
    FinalState "final-state"
        "A delete with a known final state has the state that the server deleted.";
    Initial "initial"
        "A handler that has synced gets no more of the initial list.";
    Removed "removed"
        "A handler that was removed gets no further call.";
    References "references"
        "A manager answers exactly for what is referenced, and keeps one run for each such object.";
    Fresh "fresh"
        "A fresh read has the server's present state.";
    AtLeast "at-least"
        "A read at a version has a state that is not older than the version.";
    Confirmed "confirmed"
        "An absence that a cached list showed to a reader is confirmed within a minute.";
    Age "age"
        "A read's age is no less than the time since the server replaced the state that it has.";
    Status "status"
        "A pod's status is not older than the time that its worker asked for.";
    Waits "waits"
        "A worker that waits for a time has its answer once the pod-status cache has reached it.";
    Requests "requests"
        "A relist that fails keeps the requests that it has taken.";
    Subscribers "subscribers"
        "After the world has healed, a subscriber has been told of each object's last change.";
    Stale "stale"
        "A cache that has missed a change for longer than its bound fails its health check.";
    Storm "storm"
        "No request follows another without a delay, unless data or an exemption lies between.";
    Watches "watches"
        "A reflector has at most one open watch, and none after its end.";
    Stops "stops"
        "A stop ends each part at once, without time passing.";
    Converges "converges"
        "After the world has healed, each cache equals the server within its bound, and is well.";
    Told "told"
        "After the world has healed, each handler's view equals the server's state.";
    Panics "panics"
        "No part of the crate panics.";
    Livelock "livelock"
        "Each run ends within its budget of steps.";
}

thread_local! {
    /// The oracles that are off in the runs of this thread.
    static OFF: RefCell<Vec<Oracle>> = const { RefCell::new(Vec::new()) };
}

impl Oracle {
    /// Switches these oracles off in this thread, and all others on.
    pub(super) fn switch_off(these: &[Self]) {
        OFF.with_borrow_mut(|off| off.splice(.., these.iter().copied()).for_each(drop));
    }

    pub(super) fn is_off(self) -> bool {
        OFF.with_borrow(|off| off.contains(&self))
    }
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A promise that did not hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BrokenPromise {
    /// The promise.
    pub oracle: Oracle,
    /// What was seen instead, for a person.
    pub seen: String,
}

impl BrokenPromise {
    pub(super) fn new(oracle: Oracle, seen: impl Into<String>) -> Self {
        Self {
            oracle,
            seen: seen.into(),
        }
    }

    /// The result, or `otherwise` if an oracle that is off has found something.
    pub(super) fn unless_off<T>(result: Result<T, Self>, otherwise: T) -> Result<T, Self> {
        match result {
            Err(broken) if broken.oracle.is_off() => Ok(otherwise),
            result => result,
        }
    }

    pub(super) fn panicked(error: &Error) -> Self {
        Self::new(Oracle::Panics, error.to_string())
    }
}

impl fmt::Display for BrokenPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (oracle, sentence) = (self.oracle, self.oracle.sentence());
        write!(f, "{oracle}: {}\n  promised: {sentence}", self.seen)
    }
}
