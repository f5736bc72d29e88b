//! What a read past the watch changes in a slot: a fresh read (R11) or the check of an immutable object (B7).

use std::time::Instant;

use super::{Action, Slot, Written};
use crate::error::Error;
use crate::manager::kinds::ManagedKind;
use crate::manager::watch::item::{Input, State, Why};
use crate::object::{Held, ResourceVersion};
use crate::reflector::Replacement;
use crate::sync::Arc;

/// What was known when a read past the watch was sent: its answer is judged by that.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    revision: u64,
    uid: Option<Box<str>>,
}

/// What an answer from past the watch did.
#[derive(Debug)]
pub(crate) struct Found<K: ManagedKind> {
    pub(crate) written: Written<K>,
    pub(crate) action: Action,
}

impl<K: ManagedKind> Slot<K> {
    /// To be called before the request is sent.
    pub(crate) fn ask(&self) -> Asked {
        let uid = self.object.as_ref().map(|held| held.uid().into());
        Asked {
            revision: self.revision,
            uid,
        }
    }

    /// A moment in the life of the content, for [`Self::replace`].
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// A read past the watch found the object, or that there is none. Whether that, or what came in while the answer
    /// was on its way, is the newer state is decided here.
    ///
    /// An answer about a stopped immutable object is the check of it, too: nobody else would notice that it is gone.
    pub(crate) fn found(
        &mut self,
        asked: &Asked,
        object: Option<Arc<Held<K>>>,
        now: Instant,
    ) -> Found<K> {
        let before: Option<Box<str>> = self.object.as_ref().map(|held| held.uid().into());
        let taken = match object {
            Some(object) => self.take_fresh(asked, object),
            None => self.take_gone(asked),
        };
        let Some(written) = taken else {
            return Found {
                written: Written::unchanged(),
                action: Action::nothing(),
            };
        };
        self.contact = Some(now);
        self.revision = self.revision.wrapping_add(1);
        let at_rest = matches!(
            self.state(),
            State::Stopped(Why::Immutable) | State::Rechecking(_)
        );
        let after = self.object.as_ref().map(|held| held.uid());
        let same = before.as_deref() == after && self.holds_immutable();
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
        self.check_after = why.retry_after().and_then(|wait| now.checked_add(wait));
        self.set_failure(why);
        self.act(Input::CheckFailed)
    }

    /// A consistent read is always accepted, also when it is older (B18), unless something came in meanwhile.
    fn take_fresh(&mut self, asked: &Asked, object: Arc<Held<K>>) -> Option<Written<K>> {
        let version = object.resource_version();
        let floor = self.floor.position();
        if self.revision != asked.revision {
            let newer = floor.is_unset() || floor.is_older_than(&version);
            if !newer || self.is_gone(object.uid()) {
                return None;
            }
        } else if self.is_put_back(object.uid(), &version) {
            self.floor.admits_replacement(&Replacement {
                resource_version: version.clone(),
                consistent: true,
                history_expired: false,
            });
        }
        self.gone = None;
        self.floor.raise(&version);
        Some(self.put(Some(object)))
    }

    /// Whether the answer shows that the server's history was put back: a state that was known to be over.
    fn is_put_back(&self, uid: &str, version: &ResourceVersion) -> bool {
        match &self.object {
            Some(held) if held.uid() == uid => version.is_older_than(&held.resource_version()),
            Some(_) | None => version.is_older_than(self.floor.position()),
        }
    }

    /// `NotFound` has no version: it tells the end of the object that was held when it was asked for, and of no other.
    fn take_gone(&mut self, asked: &Asked) -> Option<Written<K>> {
        let held = self.object.as_ref().map(|held| held.uid());
        if self.revision != asked.revision && (held.is_none() || held != asked.uid.as_deref()) {
            return None;
        }
        if let Some(uid) = held.filter(|uid| !uid.is_empty()) {
            self.gone = Some(uid.into());
        }
        Some(self.put(None))
    }
}
