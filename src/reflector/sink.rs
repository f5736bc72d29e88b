//! Where a reflector's changes go: a replacement is a value that commits or is dropped, an event is
//! applied.

use crate::error::Error;
use crate::list_watch::{Backlog, ObjectEvent};
use crate::object::{Object, ResourceVersion};
use crate::reflector::ReflectorStatus;
use crate::worker::StopToken;

/// What one reflector writes to: a store, a queue, a slot for one object.
///
/// The reflector calls it from its one thread, one call at a time. A slow sink holds up the watch,
/// so a call that may block ends with the reflector's [stop](Self::start). Dropping the sink tells
/// it that the run has ended; an ended run cannot commit.
pub trait Sink<K: Object>: Send + 'static {
    /// A replacement in the making. Dropping it leaves the content as it was.
    type Staging: Send;

    /// Told of the reflector's stop, before every other call: a call that blocks must end with it.
    fn start(&mut self, _stop: &StopToken) {}

    /// Begins a replacement of the whole content.
    fn begin(&mut self) -> Self::Staging;

    /// Applies one event to the replacement: each item of a list comes as an addition; a streamed
    /// list can also change an object and take one back out.
    ///
    /// The last event of a key wins.
    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<K>);

    /// Makes the replacement the content: all of it or nothing.
    ///
    /// # Errors
    ///
    /// Why it could not; the reflector lists again after a backoff.
    /// [`Stale`](crate::ErrorKind::Stale) says that something newer is known here: the reflector
    /// lists at the most recent version, at once and once.
    fn commit(&mut self, staging: Self::Staging, of: &Replacement) -> Result<(), Error>;

    /// Applies one event of the watch.
    ///
    /// # Errors
    ///
    /// Why it could not. The change is lost until the next list, so the reflector lists again after
    /// a backoff.
    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error>;

    /// The server's position moved without a change.
    fn bookmark(&mut self, _version: &ResourceVersion) {}

    /// Delivers once more what is known; called each resync period while the watch is open.
    ///
    /// # Errors
    ///
    /// Why it could not; the reflector lists again after a backoff.
    fn resync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Told of every failure, success and contact that changed the reflector's status.
    fn report(&mut self, _status: &ReflectorStatus) {}

    /// Told before each read of the watch what has come already, and before every other wait that
    /// nothing has.
    fn backlog(&mut self, _backlog: Backlog) {}
}

/// What a replacement is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "what decides whether a replacement is accepted (B18)"
)]
pub struct Replacement {
    /// The version of the whole list.
    pub resource_version: ResourceVersion,
    /// Read at the most recent version: always accepted, and takes the place of what is known.
    pub consistent: bool,
    /// The version known before had fallen out of the server's history, or lay in its future.
    pub history_expired: bool,
}
