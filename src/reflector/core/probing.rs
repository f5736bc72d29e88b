//! The probe between a watch that was silent from its opening to its end and the next one (B11).
//!
//! Silence says that nothing changed, or that the server cannot know: a history that was restored
//! from a backup lies behind the watch's version, and a watch from a version of the future is
//! opened and silent.

use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::list_watch::ListRequest;
use crate::object::ResourceVersion;
use crate::policy::{NextRequest, RequestKind, WaitRule};
use crate::reflector::Phase;

use super::messages::{Action, Facts};
use super::state::History;
use super::steps::{AfterPause, Core, Cycle, Step};

impl Core {
    /// Asks where the server stands: for one item, as the version alone counts; for one object as
    /// it is, since that list is as cheap and mends whatever was missed.
    pub(super) fn probe(&mut self, facts: &Facts) -> Action {
        if self.state.one_object {
            let asked = ResourceVersion::most_recent();
            return self.list_at(asked, Cycle::default(), true, facts);
        }
        self.state.status.phase = Phase::Opening;
        self.step = Step::Probing(facts.now);
        Action::Probe(ListRequest {
            resource_version: ResourceVersion::most_recent(),
            limit: 1,
            urgent: facts.urgent,
            ..ListRequest::default()
        })
    }

    /// A server that has not gone back tells on the next watch whatever was missed.
    pub(super) fn probed(
        &mut self,
        version: &ResourceVersion,
        since: Instant,
        facts: &Facts,
    ) -> Action {
        if !version.is_older_than(self.state.version()) {
            self.state.contact(since);
            self.state.lives_again();
            self.state.succeeded();
            return self.open(facts);
        }
        let error = Error::new(
            ErrorKind::Expired,
            format!(
                "the server has gone back in its history, from version {} to {version}: {} are \
                 listed again",
                self.state.version(),
                self.state.what
            ),
        );
        self.list_most_recent(error, WaitRule::Soon, facts)
    }

    pub(super) fn probe_failed(&mut self, error: Error, facts: &Facts) -> Action {
        let again = !self.state.may_list_soon;
        let step = self.state.after(RequestKind::Probe, &error, again);
        let error = error.context(&format!("failed to probe {}", self.state.what));
        if step.next == NextRequest::MostRecent {
            return self.list_most_recent(error, step.wait, facts);
        }
        self.fail(error, step.wait, AfterPause::Probe, facts)
    }

    fn list_most_recent(&mut self, error: Error, wait: WaitRule, facts: &Facts) -> Action {
        self.state.history = History::Unavailable;
        self.expired(error, wait, facts)
    }
}
