//! The faults of the fake server, and its requests.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::list_watch::{ListRequest, WatchRequest};
use crate::object::{ResourceVersion, Scope};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the requests the crate makes")]
pub enum RequestKind {
    /// A page of a list.
    List,
    /// The opening of a watch.
    Watch,
    /// One object.
    Get,
}

/// A fault of the fake source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SourceFault {
    /// The request fails with this error.
    Fail(Error),
    /// The request gets no answer until its stop, or a call of [`heal`](super::FakeSource::heal).
    Hang,
    /// The answer breaks off after this many items of a list, or events of a watch.
    CutAfter(usize),
    /// The watch opens and then brings nothing, not even its end, as on a half-open connection.
    Silent,
    /// The watch opens and then brings bytes without end but no event, nor its own end: blank
    /// lines, or an endless line.
    Trickle,
}

/// A request that the fake source received.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenRequest {
    /// The kind of the request.
    pub kind: RequestKind,
    /// The objects that it asks for.
    pub scope: Scope,
    /// The version that it asks for; empty on later pages.
    pub resource_version: ResourceVersion,
    /// The maximum number of items of a page; 0 for all.
    pub limit: u32,
    /// The token of the page before.
    pub continue_token: Option<String>,
    /// Whether the watch begins with the present objects.
    pub send_initial_events: bool,
    /// Whether a reader waits for it.
    pub urgent: bool,
    /// When it came.
    pub at: Instant,
}

impl SeenRequest {
    pub(super) fn new(
        kind: RequestKind,
        scope: Scope,
        resource_version: ResourceVersion,
        at: Instant,
    ) -> Self {
        Self {
            kind,
            scope,
            resource_version,
            limit: 0,
            continue_token: None,
            send_initial_events: false,
            urgent: false,
            at,
        }
    }

    pub(super) fn of_list(self, request: &ListRequest) -> Self {
        Self {
            limit: request.limit,
            continue_token: request.continue_token.clone(),
            urgent: request.urgent,
            ..self
        }
    }

    pub(super) fn of_watch(self, request: &WatchRequest) -> Self {
        Self {
            send_initial_events: request.send_initial_events,
            urgent: request.urgent,
            ..self
        }
    }
}

type Decide = Box<dyn FnMut(&SeenRequest) -> Option<SourceFault> + Send>;

/// The faults to come.
#[derive(Default)]
pub(super) struct FaultPlan {
    next: VecDeque<(RequestKind, SourceFault)>,
    always: Vec<(RequestKind, Error)>,
    decide: Option<Decide>,
    healed: u64,
}

impl FaultPlan {
    pub(super) fn push(&mut self, kind: RequestKind, fault: SourceFault) {
        self.next.push_back((kind, fault));
    }

    pub(super) fn always(&mut self, kind: RequestKind, error: Error) {
        self.always.retain(|(known, _)| *known != kind);
        self.always.push((kind, error));
    }

    pub(super) fn decide_with(&mut self, decide: Decide) {
        self.decide = Some(decide);
    }

    pub(super) fn heal(&mut self) {
        self.next.clear();
        self.always.clear();
        self.decide = None;
        self.healed = self.healed.wrapping_add(1);
    }

    /// How often it was healed, for requests that hang.
    pub(super) fn healed(&self) -> u64 {
        self.healed
    }

    pub(super) fn next(&mut self, request: &SeenRequest) -> Option<SourceFault> {
        let scripted = self
            .next
            .iter()
            .position(|(kind, _)| *kind == request.kind)
            .and_then(|position| self.next.remove(position));
        if let Some((_, fault)) = scripted {
            return Some(fault);
        }
        let lasting = self.always.iter().find(|(kind, _)| *kind == request.kind);
        if let Some((_, error)) = lasting {
            return Some(SourceFault::Fail(error.clone()));
        }
        self.decide.as_mut().and_then(|decide| decide(request))
    }
}

impl fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("next", &self.next)
            .field("always", &self.always)
            .finish_non_exhaustive()
    }
}

/// A body that ends in its middle.
pub(super) fn cut() -> Error {
    Error::new(ErrorKind::Unreachable, "unexpected EOF in the answer")
}
