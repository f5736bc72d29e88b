//! The reflector's decisions: a function from (state, input) to (state, action), without thread,
//! clock or socket.
//!
//! ```text
//!          +------------------------- backoff -------------------------+
//!          v                                                           |
//!   Idle -> Listing -last page-> Committing -> Opening -> Watching -failed-> Pausing
//!     |        ^ falls back          ^                       | ended          |
//!     |        |                     | final bookmark        +--> Pausing --> Opening
//!     +--> OpeningStream -> Streaming+
//! ```
//!
//! `Probing` follows a watch that was silent from its opening to its end: a list of one item at the
//! most recent version. Only its version counts.
//!
//! A *cycle* is one list, plain or streamed, and the watches after it. Time comes in with each
//! input.

mod listing;
mod messages;
mod probing;
mod state;
mod steps;
mod streaming;
#[cfg(test)]
mod tests;
mod watching;

pub(crate) use messages::{Action, Effect, Facts, Input, Seen};
pub(crate) use steps::{Core, VERY_SHORT};

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::list_watch::{Bound, EventKind, RequestProgress};
use crate::object::ResourceVersion;
use crate::policy::WaitRule;
use crate::reflector::{ReflectorOptions, ReflectorStatus, Replacement};

use state::{History, ReflectorState};
use steps::{AfterPause, Committing, CoreStep, Cycle, Watching};

impl Core {
    /// `what` names the listed objects in messages. `one_object` says that the scope is one object
    /// by name.
    pub(crate) fn new(
        options: &ReflectorOptions,
        what: String,
        one_object: bool,
        now: Instant,
    ) -> Self {
        Self {
            step: CoreStep::Idle,
            state: ReflectorState::new(options, what, one_object, now),
            facts: Facts {
                now,
                urgent: false,
                streams: false,
                bookmarks: None,
                left_out: 0,
            },
        }
    }

    /// Sets how many objects the sink may hold.
    pub(crate) fn bounded(&mut self, objects_max: usize) {
        self.state.bound = Bound::new(objects_max);
    }

    /// Shows the progress of the lister-watcher's requests.
    pub(crate) fn shows(&mut self, progress: Option<RequestProgress>) {
        self.state.status.progress = progress;
    }

    /// Shows until when the driver pauses, if it does.
    pub(crate) fn pauses(&mut self, until: Option<Instant>) {
        self.state.status.next_attempt = until;
    }

    /// The status after the last input.
    pub(crate) fn status(&self) -> &ReflectorStatus {
        &self.state.status
    }

    /// The side effects that go with the last action.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.state.effects)
    }

    /// Decides what follows an input.
    pub(crate) fn step(&mut self, input: Input, facts: &Facts) -> Action {
        self.facts = *facts;
        self.state.time_passed(facts.now);
        if let Input::Seen(Seen::Object { kind, .. }) = &input {
            self.state.one_went |= *kind == EventKind::Deleted;
        }
        let action = self.decide(input);
        let may_be_quiet = matches!(self.step, CoreStep::Opening(_) | CoreStep::Watching(_));
        self.state.status.open_since = if let CoreStep::Watching(watching) = &self.step {
            Some(watching.opened_at)
        } else {
            None
        };
        self.state
            .update_contact_deadline(may_be_quiet, self.facts.now);
        action
    }

    /// How long ago that was.
    fn since(&self, then: Instant) -> Duration {
        self.facts.now.saturating_duration_since(then)
    }

    fn decide(&mut self, input: Input) -> Action {
        let step = std::mem::replace(&mut self.step, CoreStep::Ended);
        match (step, input) {
            (_, Input::Stop) | (CoreStep::Ended, _) => self.end(),
            (CoreStep::Idle, Input::Start) => self.begin_cycle(),
            (CoreStep::Listing(listing), Input::Page { page, is_empty }) => match page {
                Ok(page) => self.page(listing, page, is_empty),
                Err(error) => self.page_failed(listing, error),
            },
            (CoreStep::Probing(since), Input::Page { page, .. }) => match page {
                Ok(page) => self.probed(&page.resource_version, since),
                Err(error) => self.probe_failed(error),
            },
            (CoreStep::Committing(committing), Input::Done(result)) => match result {
                Ok(()) => self.committed(committing),
                Err(error) => self.commit_failed(&committing, error),
            },
            (CoreStep::Opening(opening), Input::Done(result)) => match result {
                Ok(()) => self.opened(opening),
                Err(error) => self.open_failed(&opening, error),
            },
            (CoreStep::Watching(watching), Input::Seen(seen)) => self.seen(watching, seen),
            (CoreStep::Watching(watching), Input::Applied(result)) => {
                self.applied(watching, result)
            }
            (CoreStep::Watching(watching), Input::Resynced(result)) => {
                self.resynced(watching, result)
            }
            (CoreStep::Watching(watching), Input::Ended(end)) => self.watch_ended(&watching, end),
            (CoreStep::Watching(watching), Input::Quiet { last_contact }) => {
                self.quiet(watching, last_contact)
            }
            (CoreStep::OpeningStream(streaming), Input::Done(result)) => match result {
                Ok(()) => self.stream_opened(streaming),
                Err(error) => self.stream_failed(&streaming, error),
            },
            (CoreStep::Streaming(streaming), Input::Seen(seen)) => {
                self.stream_seen(streaming, seen)
            }
            (CoreStep::Streaming(streaming), Input::Applied(result)) => match result {
                Ok(()) => self.collect(streaming),
                Err(error) => self.stream_failed(&streaming, error),
            },
            (CoreStep::Streaming(streaming), Input::Ended(end)) => {
                self.stream_ended(&streaming, end.as_ref())
            }
            (CoreStep::Streaming(streaming), Input::Quiet { last_contact }) => {
                self.stream_quiet(streaming, last_contact)
            }
            (CoreStep::Pausing { next, .. }, Input::Paused) => self.go_on(next),
            (CoreStep::Pausing { since, until, next }, Input::Demanded) => {
                self.demanded(since, until, next)
            }
            (step, input) => self.invalid_transition(&step, &input),
        }
    }

    /// Starts a cycle: a streamed list if it is wanted and may work, otherwise a plain one.
    fn begin_cycle(&mut self) -> Action {
        if self.facts.streams && self.state.may_stream(self.facts.now) {
            self.open_stream(Cycle::default())
        } else {
            self.list(Cycle::default())
        }
    }

    fn go_on(&mut self, next: AfterPause) -> Action {
        match next {
            AfterPause::Cycle => self.begin_cycle(),
            AfterPause::Again(listing) => self.ask_again(listing),
            AfterPause::List(cycle) => self.list(cycle),
            AfterPause::Stream(cycle) => self.open_stream(cycle),
            AfterPause::Watch => self.open(),
            AfterPause::Probe => self.probe(),
        }
    }

    /// Notes a failure and pauses before `next`, as the policy's `wait` says.
    fn fail(&mut self, error: Error, wait: WaitRule, next: AfterPause) -> Action {
        let (until, on_demand) = self.state.failed(error, wait, &self.facts);
        if self.state.status.refusal.is_some() && !self.state.status.synced {
            // The refusal is the answer until the next request, however rare those are.
            self.state.unconfirmed_since = until;
        }
        self.pause(until, on_demand, next)
    }

    /// Makes a staged list the content. The list was asked for at `asked`.
    fn commit(
        &mut self,
        asked: &ResourceVersion,
        (version, confirmed_at): (ResourceVersion, Instant),
        cycle: Cycle,
        stream: Option<Watching>,
    ) -> Action {
        let of = Replacement {
            resource_version: version,
            consistent: asked.is_empty(),
            history_expired: self.state.history != History::Known,
        };
        self.step = CoreStep::Committing(Committing {
            of: of.clone(),
            confirmed_at,
            cycle,
            stream,
        });
        Action::Commit(of)
    }

    /// Refuses a list that is older than the known version, although the most recent one was asked
    /// for (B4).
    fn stale(&mut self, version: &ResourceVersion) -> Action {
        self.state.fell_behind(self.facts.now);
        let text = format!("the list at version {version} is older than what is known");
        let error = Error::new(ErrorKind::Stale, text);
        self.fail(error, WaitRule::Backoff, AfterPause::Cycle)
    }

    fn pause(&mut self, until: Instant, on_demand: bool, next: AfterPause) -> Action {
        let in_list = matches!(&next, AfterPause::Again(listing) if listing.token.is_some());
        let action = if in_list {
            Action::PauseInList { until }
        } else {
            Action::Pause { until, on_demand }
        };
        self.step = CoreStep::Pausing {
            since: self.facts.now,
            until,
            next,
        };
        action
    }

    /// Turns the pause into a fast one, counted from its beginning, because a caller waits now.
    fn demanded(&mut self, since: Instant, until: Instant, next: AfterPause) -> Action {
        let until = self.state.expedited(since, until, self.facts.now);
        if until <= self.facts.now {
            return self.go_on(next);
        }
        self.step = CoreStep::Pausing { since, until, next };
        Action::Pause {
            until,
            on_demand: false,
        }
    }

    fn end(&mut self) -> Action {
        self.state.status.end();
        Action::End
    }

    /// Ends the run: the driver reported an input that its last action cannot lead to, which is a
    /// bug.
    fn invalid_transition(&mut self, step: &CoreStep, input: &Input) -> Action {
        debug_assert!(false, "{input:?} does not belong to {step:?}");
        let why = "the reflector ends: its driver and its core disagree";
        self.state.log(log::Level::Error, why.to_owned());
        self.end()
    }
}
