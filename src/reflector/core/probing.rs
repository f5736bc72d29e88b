//! The probe after a watch that was silent from its opening to its end (B11).
//!
//! Silence means that nothing changed, or that the server cannot know. A history restored from a
//! backup lies behind the watch's version. The server opens a watch from a version in the future,
//! and it stays silent.

use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::list_watch::ListRequest;
use crate::object::ResourceVersion;
use crate::policy::{NextRequest, PolicyRequest, WaitRule};
use crate::reflector::Phase;

use super::messages::Action;
use super::state::History;
use super::steps::{AfterPause, Core, CoreStep, Cycle};

/// How many watches may break off in a doubt before a list ends it. A proxy that cuts idle watches
/// before the first bookmark would keep it for ever.
const BROKEN_OFF_MAX: u32 = 2;

impl Core {
    /// Asks for the server's version with a list of one item. A scope of one object is listed in
    /// full: that is as cheap, and repairs any missed change.
    pub(super) fn probe(&mut self) -> Action {
        if self.state.one_object {
            return self.list_at(ResourceVersion::most_recent(), Cycle::default(), true);
        }
        self.state.status.phase = Phase::Opening;
        self.step = CoreStep::Probing(self.facts.now);
        Action::Probe(ListRequest {
            resource_version: ResourceVersion::most_recent(),
            limit: 1,
            urgent: self.facts.urgent,
            ..ListRequest::default()
        })
    }

    /// If the server has not gone back, the next watch brings all missed changes. After a dead
    /// watch only that watch can tell.
    pub(super) fn probed(&mut self, version: &ResourceVersion, since: Instant) -> Action {
        if !version.is_older_than(self.state.version()) {
            let has_changed = version != self.state.version();
            self.state.probed(has_changed, since);
            if self.state.broken_off >= BROKEN_OFF_MAX {
                return self.begin_cycle();
            }
            return self.open();
        }
        let known = self.state.version();
        let text = format!(
            "the server has gone back in its history, from version {known} to {version}: they are \
             listed again"
        );
        self.list_most_recent(Error::new(ErrorKind::Expired, text), WaitRule::Soon)
    }

    pub(super) fn probe_failed(&mut self, error: Error) -> Action {
        let again = !self.state.may_list_soon;
        let step = self.state.after(PolicyRequest::Probe, &error, again);
        let error = error.asked_as(&format!("failed to probe {}", self.state.what));
        if step.next == NextRequest::MostRecent {
            return self.list_most_recent(error, step.wait);
        }
        self.fail(error, step.wait, AfterPause::Probe)
    }

    fn list_most_recent(&mut self, error: Error, wait: WaitRule) -> Action {
        self.state.history = History::Unavailable;
        self.expired(error, wait)
    }
}
