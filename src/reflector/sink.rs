//! The receiver of a reflector's changes: it applies events, and commits or drops whole lists.

use crate::error::Error;
use crate::list_watch::{Backlog, ObjectEvent};
use crate::object::{Object, ResourceVersion};
use crate::reflector::ReflectorStatus;
use crate::worker::StopToken;

/// The place that one reflector writes to: a store, a queue, or an entry for one object.
///
/// The reflector calls it on its own thread, one call at a time, except for [`bound`](Self::bound).
/// A slow sink holds up the watch. A call that may block must end with the reflector's
/// [stop](Self::start). The reflector drops the sink when it ends.
pub trait Sink<K: Object>: Send + 'static {
    /// A replacement of the content that is not complete yet. Dropping it leaves the content as it
    /// was.
    type Staging: Send;

    /// Receives the reflector's stop, before any other call on its thread. A call that blocks must
    /// end when it is raised.
    fn start(&mut self, _stop: &StopToken) {}

    /// Receives the maximum number of objects of the content, before the reflector's thread begins,
    /// on the thread that makes it.
    ///
    /// Beyond the maximum a sink refuses further objects, from lists and watches alike. It still
    /// applies every change and deletion of the objects that it holds. Default: the sink has no
    /// bound.
    fn bound(&mut self, _objects_max: usize) {}

    /// Returns how many objects the sink has refused for the bound since its last list, including
    /// those of that list.
    fn left_out(&self) -> usize {
        0
    }

    /// Begins a replacement of the whole content.
    fn begin(&mut self) -> Self::Staging;

    /// Applies one event to the replacement.
    ///
    /// Each item of a list comes as an addition. A streamed list can also change an object or
    /// remove it again.
    ///
    /// The last event of a key wins.
    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<K>);

    /// Makes the replacement the content, all of it or nothing.
    ///
    /// # Errors
    ///
    /// The reason why it could not. The reflector lists again after a backoff. After
    /// [`Stale`](crate::ErrorKind::Stale), which says that the sink has newer content, it lists
    /// once at the most recent version, at once.
    fn commit(&mut self, staging: Self::Staging, of: &Replacement) -> Result<(), Error>;

    /// Applies one event of the watch.
    ///
    /// # Errors
    ///
    /// The reason why it could not. The change is lost until the next list, so the reflector lists
    /// again after a backoff.
    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error>;

    /// Receives a new version of the content that came without a change of an object.
    fn bookmark(&mut self, _version: &ResourceVersion) {}

    /// Delivers all objects once more. The reflector calls this each resync period while the watch
    /// is open.
    ///
    /// # Errors
    ///
    /// The reason why it could not. The reflector lists again after a backoff.
    fn resync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Receives the reflector's status after every failure, success and contact that changed it.
    fn report(&mut self, _status: &ReflectorStatus) {}

    /// Receives, before each read of the watch, whether more events have come already. Before every
    /// other wait the reflector reports that none has.
    fn backlog(&mut self, _backlog: Backlog) {}
}

/// The facts about a whole list that decide whether it may replace the content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "what decides whether a replacement is accepted (B18)"
)]
pub struct Replacement {
    /// The version of the whole list.
    pub resource_version: ResourceVersion,
    /// Whether the list was read at the most recent version. Such a list always replaces the
    /// content.
    pub consistent: bool,
    /// Whether the earlier version was too old for the server's history, or newer than the server's
    /// own.
    pub history_expired: bool,
}
