//! What a read past the watch changes in a slot: a fresh read (R11) or the check of an immutable object (B7).

use std::time::Instant;

use super::{Action, Slot};
use crate::clock::later;
use crate::error::Error;
use crate::manager::content::{Asked, Written};
use crate::manager::watch::item::{Input, State, Why};
use crate::object::{Held, Object, ResourceVersion};
use crate::sync::Arc;

/// What an answer from past the watch did.
#[derive(Debug)]
pub(crate) struct Found<K: Object> {
    pub(crate) written: Written<K>,
    pub(crate) action: Action,
}

impl<K: Object> Slot<K> {
    /// A read past the watch found the object, or that there is none. Whether that, or what came in while the answer
    /// was on its way, is the newer state is decided here.
    ///
    /// An answer about a stopped immutable object is the check of it, too: nobody else would notice that it is gone.
    pub(crate) fn found(
        &mut self,
        asked: &Asked,
        object: &mut Option<Arc<Held<K>>>,
        now: Instant,
    ) -> Found<K> {
        self.found_at_least(asked, object, &ResourceVersion::most_recent(), now)
    }

    /// As [`found`](Self::found), of a read of a state not older than `version`.
    pub(crate) fn found_at_least(
        &mut self,
        asked: &Asked,
        object: &mut Option<Arc<Held<K>>>,
        version: &ResourceVersion,
        now: Instant,
    ) -> Found<K> {
        let before: Option<Box<str>> = self.content.object().map(|held| held.uid().into());
        let Some(written) = self.content.found_at_least(asked, object, version) else {
            return Found {
                written: Written::unchanged(),
                action: Action::nothing(),
            };
        };
        self.contact = Some(now);
        let at_rest = matches!(
            self.state(),
            State::Stopped(Why::Immutable) | State::Rechecking(_)
        );
        let after = self.content.object().map(|held| held.uid());
        let same = before.as_deref() == after && self.content.holds_immutable();
        let action = match (at_rest, same) {
            (false, _) => Action::nothing(),
            (true, true) => self.act(Input::CheckedSame),
            (true, false) => self.act(Input::CheckedOther),
        };
        if at_rest {
            self.clear_failure();
        }
        Found { written, action }
    }

    /// The check of an immutable object came to no answer (B7).
    pub(crate) fn not_checked(&mut self, why: Error, now: Instant) -> Action {
        self.check_after = why.retry_after().map(|wait| later(now, wait));
        self.set_failure(why);
        self.act(Input::CheckFailed)
    }
}
