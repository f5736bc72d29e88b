//! A reflector that the world steps: the real core and driver, whose calls never block.
//!
//! A pause, and a read without an event, end the step. A request may be under way for some time:
//! then the server answers at its beginning or at its end.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;

use super::coverage::Counts;
use super::oracle::{BrokenPromise, Oracle};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{ListRequest, WatchRequest};
use crate::policy::{AnswerKind, Chance};
use crate::reflector::Sink;
use crate::reflector::core::{Action, Input, Seen};
use crate::reflector::driver::ReflectorDriver;
use crate::worker::{StopSource, StopToken};

/// The most steps that a part may take at one instant.
pub(super) const SETTLE_STEPS: u32 = 400;
/// No request follows another sooner, unless data came between or an exemption holds (B9).
const DELAY_MIN: Duration = Duration::from_millis(50);
/// How many requests in a row may follow each other without a delay for an exemption.
const EXEMPT_MAX: usize = 3;

/// A request, without what differs at each repetition.
#[derive(Clone, Debug, PartialEq)]
enum RequestMade {
    List(ListRequest),
    Watch(WatchRequest),
}

#[derive(Clone, Debug)]
struct Made {
    request: RequestMade,
    at: Instant,
    /// A list that succeeded: data came.
    data: bool,
}

/// What the reflector does between two steps.
enum Doing {
    Decide(Input),
    /// A request that has not reached the server yet; it fails if an error is given.
    Sending {
        action: Action,
        until: Instant,
        fails: bool,
    },
    /// An answer on its way.
    Answered {
        input: Input,
        until: Instant,
    },
    Pausing {
        until: Instant,
        on_demand: bool,
    },
    Reading {
        until: Instant,
    },
    Ended,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stepped {
    /// It waits for time, or for the server.
    Blocked,
    Moved,
    /// The content may have changed.
    Changed,
    Ended,
}

/// A reflector between two steps.
pub(super) struct SteppedReflector<S: Sink<ConfigMap>> {
    /// `None` after the end.
    driver: Option<ReflectorDriver<ConfigMap, S>>,
    doing: Doing,
    stop: StopSource,
    token: StopToken,
    /// The requests that followed each other without a delay.
    run: Vec<Made>,
    storm: Option<BrokenPromise>,
    latency: Duration,
    hangs: bool,
    /// When it last took in an event, a bookmark or an answer.
    heard: Option<Instant>,
}

/// A reflector of whatever sink, between two steps.
pub(super) trait Steppable: Send {
    /// Requests take no time from now on.
    fn heal(&mut self);

    /// The broken promise about delays, if one broke.
    fn take_storm(&mut self) -> Option<BrokenPromise>;

    /// When it goes on by itself; `None` if it could at once, or has ended.
    fn wakes_at(&self) -> Option<Instant>;

    /// Goes on until the next point at which another thread could run.
    fn step(&mut self, now: Instant, chance: &mut Chance, counts: &mut Counts) -> Stepped;
}

impl<S: Sink<ConfigMap> + Send> Steppable for SteppedReflector<S> {
    fn heal(&mut self) {
        self.latency = Duration::ZERO;
        self.hangs = false;
    }

    fn take_storm(&mut self) -> Option<BrokenPromise> {
        self.storm.take()
    }

    fn wakes_at(&self) -> Option<Instant> {
        match &self.doing {
            Doing::Sending { until, .. }
            | Doing::Answered { until, .. }
            | Doing::Pausing { until, .. }
            | Doing::Reading { until } => Some(*until),
            Doing::Decide(_) | Doing::Ended => None,
        }
    }

    fn step(&mut self, now: Instant, chance: &mut Chance, counts: &mut Counts) -> Stepped {
        let doing = std::mem::replace(&mut self.doing, Doing::Ended);
        let input = if self.driver.is_none() {
            return Stepped::Ended;
        } else if self.token.is_stopped() {
            Input::Stop
        } else {
            match self.go_on(doing, now, chance) {
                Ok(input) => input,
                Err(stepped) => return stepped,
            }
        };
        note_answer(&input, counts);
        let is_heard = matches!(
            input,
            Input::Page { page: Ok(_), .. }
                | Input::Seen(Seen::Object { .. } | Seen::Bookmark { .. })
        );
        self.heard = is_heard.then_some(now).or(self.heard);
        self.decide(input, now, chance, counts)
    }
}

impl<S: Sink<ConfigMap>> SteppedReflector<S> {
    pub(super) fn new(driver: ReflectorDriver<ConfigMap, S>, latency: Duration) -> Self {
        let stop = StopSource::new();
        Self {
            driver: Some(driver),
            doing: Doing::Decide(Input::Start),
            token: stop.token(),
            stop,
            run: Vec::new(),
            storm: None,
            latency,
            hangs: !latency.is_zero(),
            heard: None,
        }
    }

    /// The stop of its thread.
    pub(super) fn stop_source(&self) -> StopSource {
        self.stop.clone()
    }

    pub(super) fn stop(&self) {
        self.stop.stop();
    }

    pub(super) fn is_over(&self) -> bool {
        self.driver.is_none()
    }

    /// When it last took in an event, a bookmark or an answer.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// Whether it waits for an event, with nothing in hand.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.doing, Doing::Reading { .. })
    }

    /// The next input of the core, or the result of a step that has none.
    fn go_on(&mut self, doing: Doing, now: Instant, chance: &mut Chance) -> Result<Input, Stepped> {
        let input = match doing {
            Doing::Ended => return Err(Stepped::Ended),
            Doing::Sending { until, .. } | Doing::Answered { until, .. } if now < until => {
                self.doing = doing;
                return Err(Stepped::Blocked);
            }
            Doing::Sending { action, fails, .. } => {
                return Err(self.send(action, fails, now, chance));
            }
            Doing::Decide(input) | Doing::Answered { input, .. } => input,
            Doing::Pausing { until, on_demand } => {
                let pause = Action::Pause {
                    until: now,
                    on_demand,
                };
                let input = self.perform(pause).ok_or(Stepped::Ended)?;
                if matches!(input, Input::Paused) && now < until {
                    self.doing = Doing::Pausing { until, on_demand };
                    return Err(Stepped::Blocked);
                }
                input
            }
            Doing::Reading { until } => {
                let read = Action::Read { until: now };
                let input = self.perform(read).ok_or(Stepped::Ended)?;
                if matches!(input, Input::Quiet { .. }) && now < until {
                    self.doing = Doing::Reading { until };
                    return Err(Stepped::Blocked);
                }
                input
            }
        };
        Ok(input)
    }

    fn decide(
        &mut self,
        input: Input,
        now: Instant,
        chance: &mut Chance,
        counts: &mut Counts,
    ) -> Stepped {
        let Some(driver) = &mut self.driver else {
            return Stepped::Ended;
        };
        let action = driver.decide(input, &self.token);
        counts.met("action", action_name(&action));
        match action {
            Action::End => {
                self.driver = None;
                self.doing = Doing::Ended;
                Stepped::Ended
            }
            Action::Pause { until, on_demand } => {
                // Shows the pause to readers, as the driver does before it waits.
                let at_once = Action::Pause {
                    until: now,
                    on_demand: false,
                };
                self.perform(at_once);
                self.doing = Doing::Pausing { until, on_demand };
                Stepped::Moved
            }
            Action::PauseInList { until } => {
                self.doing = Doing::Pausing {
                    until,
                    on_demand: false,
                };
                Stepped::Moved
            }
            Action::Read { until } => {
                self.doing = Doing::Reading { until };
                Stepped::Moved
            }
            Action::List { ref request, .. } | Action::Probe(ref request) => {
                self.made(RequestMade::List(request.clone()), now);
                self.begin(action, now, chance)
            }
            Action::Open(ref request) => {
                self.made(RequestMade::Watch(request.clone()), now);
                self.begin(action, now, chance)
            }
            Action::Commit(_) | Action::Apply | Action::Bookmark(_) => {
                let Some(input) = self.perform(action) else {
                    return Stepped::Ended;
                };
                self.doing = Doing::Decide(input);
                Stepped::Changed
            }
            Action::Stage | Action::Resync => {
                let Some(input) = self.perform(action) else {
                    return Stepped::Ended;
                };
                self.doing = Doing::Decide(input);
                Stepped::Moved
            }
        }
    }

    /// A request leaves: it reaches the server now or later.
    fn begin(&mut self, action: Action, now: Instant, chance: &mut Chance) -> Stepped {
        if self.latency.is_zero() || chance.below(2) == 0 {
            return self.send(action, false, now, chance);
        }
        let hangs = self.hangs && chance.below(16) == 0;
        let wait = if hangs {
            Duration::from_secs(30)
        } else {
            chance.within(self.latency)
        };
        self.doing = Doing::Sending {
            action,
            until: now.checked_add(wait).unwrap_or(now),
            fails: hangs,
        };
        Stepped::Moved
    }

    fn send(&mut self, action: Action, fails: bool, now: Instant, chance: &mut Chance) -> Stepped {
        if fails {
            let error = Error::new(ErrorKind::Timeout, "the request hung");
            self.doing = Doing::Decide(if matches!(action, Action::Open(_)) {
                Input::Done(Err(error))
            } else {
                Input::Page {
                    page: Err(error),
                    is_empty: true,
                }
            });
            return Stepped::Moved;
        }
        let Some(input) = self.perform(action) else {
            return Stepped::Ended;
        };
        if let (
            Some(made),
            Input::Page {
                page: Ok(page),
                is_empty,
            },
        ) = (self.run.last_mut(), &input)
        {
            made.data = !is_empty || page.continue_token.is_none();
        }
        self.doing = if self.latency.is_zero() || chance.below(2) == 0 {
            Doing::Decide(input)
        } else {
            let until = now.checked_add(chance.within(self.latency));
            Doing::Answered {
                input,
                until: until.unwrap_or(now),
            }
        };
        Stepped::Moved
    }

    fn perform(&mut self, action: Action) -> Option<Input> {
        self.driver.as_mut()?.perform(action, &self.token)
    }

    /// B9: in a run of requests without a delay each one after the first follows data, or is one of
    /// three exemptions, and none repeats another.
    fn made(&mut self, request: RequestMade, at: Instant) {
        let is_delayed = |last: &Made| at.saturating_duration_since(last.at) >= DELAY_MIN;
        if self.run.last().is_none_or(is_delayed) {
            self.run.clear();
        }
        let exempt = self.run.iter().filter(|made| !made.data).count();
        let after_data = self.run.last().is_some_and(|last| last.data);
        let repeats = !after_data && self.run.iter().any(|made| made.request == request);
        if exempt > EXEMPT_MAX || repeats {
            let before: Vec<_> = self.run.iter().map(|made| &made.request).collect();
            let seen = format!("{request:?} follows {before:?} without a delay");
            self.storm = Some(BrokenPromise::new(Oracle::Storm, seen));
        }
        self.run.push(Made {
            request,
            at,
            data: false,
        });
    }
}

fn note_answer(input: &Input, counts: &mut Counts) {
    match input {
        Input::Page {
            page: Err(error), ..
        } => {
            counts.met("answer to a list", answer_name(AnswerKind::of(error)));
        }
        Input::Done(Err(error)) => {
            counts.met(
                "answer to a watch, or commit",
                answer_name(AnswerKind::of(error)),
            );
        }
        Input::Seen(Seen::Error(error)) | Input::Ended(Some(error)) => {
            counts.met("error in a watch", answer_name(AnswerKind::of(error)));
        }
        Input::Ended(None) => counts.met("watch", "ended"),
        Input::Quiet { .. } => counts.met("watch", "quiet until its deadline"),
        Input::Demanded => counts.met("pause", "ended by a waiter"),
        Input::Paused => counts.met("pause", "ended by time"),
        Input::Seen(Seen::Skipped { .. }) => counts.met("watch", "skipped event"),
        Input::Start
        | Input::Page { page: Ok(_), .. }
        | Input::Done(Ok(()))
        | Input::Seen(Seen::Object { .. } | Seen::Bookmark { .. })
        | Input::Applied(_)
        | Input::Resynced(_)
        | Input::Stop => {}
    }
}

fn action_name(action: &Action) -> &'static str {
    match action {
        Action::List { .. } => "list",
        Action::Probe(_) => "probe",
        Action::Commit(_) => "commit",
        Action::Open(request) if request.send_initial_events => "stream",
        Action::Open(_) => "open",
        Action::Read { .. } => "read",
        Action::Apply => "apply",
        Action::Stage => "stage",
        Action::Bookmark(_) => "bookmark",
        Action::Resync => "resync",
        Action::Pause {
            on_demand: true, ..
        } => "pause for a reader",
        Action::Pause { .. } => "pause",
        Action::PauseInList { .. } => "pause in a list",
        Action::End => "end",
    }
}

fn answer_name(answer: AnswerKind) -> &'static str {
    match answer {
        AnswerKind::Refused => "refused",
        AnswerKind::Cut => "cut",
        AnswerKind::Ended => "ended",
        AnswerKind::Silent => "silent",
        AnswerKind::Unsent => "unsent",
        AnswerKind::Malformed => "malformed",
        AnswerKind::OverLimit => "over limit",
        AnswerKind::Unauthorized => "unauthorized",
        AnswerKind::Forbidden => "forbidden",
        AnswerKind::NotFound => "not found",
        AnswerKind::NotAcceptable => "not acceptable",
        AnswerKind::Unreadable => "unreadable",
        AnswerKind::Expired => "expired",
        AnswerKind::Gone => "gone",
        AnswerKind::TooLarge => "too large",
        AnswerKind::TooMany => "too many",
        AnswerKind::Internal => "internal",
        AnswerKind::Unavailable => "unavailable",
        AnswerKind::Other => "other",
    }
}
