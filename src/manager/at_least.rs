//! Reads of a state not older than a version (R11): asked again while the server has not come that far.

use std::cmp::Ordering;
use std::time::Duration;

use super::ask::Ask;
use super::cached::Cached;
use super::gets::Gets;
use crate::clock::Deadline;
use crate::error::Error;
use crate::object::{Held, Object, ResourceVersion, Status};
use crate::reflector::RETRY_AFTER_MAX;
use crate::sync::Arc;

/// The first pause between two requests; it doubles from there.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest of them. A server whose cache is behind waits some seconds by itself before it says so.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a store knows of the object while the server is asked for it.
pub(crate) trait Meanwhile<K: Object> {
    /// The version to ask for next; called before each request. Not older than the caller's, nor than what is known
    /// already, so that no answer goes back behind that.
    fn version(&mut self) -> ResourceVersion;

    /// Lets time go by until `pause` at the latest; ends early with what memory can say by then, or with nothing when the
    /// stop is raised.
    fn rest(&mut self, pause: Deadline) -> Option<Result<Cached<K>, Error>>;
}

/// Where the answer is.
#[derive(Debug)]
pub(crate) enum Reached<K: Object> {
    /// The server gave it, not older than this version.
    Answer(Arc<Held<K>>, ResourceVersion),
    /// The server says, of this version or a later one, that there is no such object.
    Gone(Error, ResourceVersion),
    /// It came into the memory in the meantime.
    InMemory(Result<Cached<K>, Error>),
}

/// Asks for a state that is not older than a version, until there is one or the deadline has passed. A server that has
/// not come that far is asked again, after the time it names or after 50 ms, doubling to a second.
///
/// # Errors
///
/// What the server said, or what the transport met; `Timeout`, with the server's last words, when the server had not
/// come that far by the deadline; `Stopped`.
pub(crate) fn get_at_least<K: Object>(
    gets: &Gets<K>,
    ask: &Ask<'_>,
    meanwhile: &mut impl Meanwhile<K>,
) -> Result<Reached<K>, Error> {
    let mut story = ask.begin();
    let mut next = PAUSE;
    let mut refusal = None;
    loop {
        let version = meanwhile.version();
        if story.attempts == 0 || ask.stop.is_stopped() {
            ask.check::<K>(&version)?;
        }
        story.attempts = story.attempts.saturating_add(1);
        let error = match gets.ask_once(ask, &version) {
            Ok(object) => return Ok(Reached::Answer(object, version)),
            Err(error) if error.is_not_found() => return Ok(Reached::Gone(error, version)),
            Err(error) => error,
        };
        if ask.was_ended_by_deadline(&error) {
            // What the server said before says more than that time is up.
            return Err(story.over::<K>(ask, &version, refusal.or(Some(error))));
        }
        if !is_too_large(&error) {
            return Err(error);
        }
        let asked = error.retry_after().filter(|wait| !wait.is_zero());
        let wait = asked.map_or(next, |asked| asked.min(RETRY_AFTER_MAX));
        if asked.is_none() {
            next = next.saturating_mul(2).min(PAUSE_MAX);
        }
        refusal = Some(error);
        let pause = ask.deadline.earlier(ask.clock.after(wait));
        if let Some(answer) = meanwhile.rest(pause) {
            return Ok(Reached::InMemory(answer));
        }
        if !ask.stop.is_stopped() && ask.clock.has_passed(ask.deadline) {
            return Err(story.over::<K>(ask, &version, refusal));
        }
    }
}

/// Whether the server said that the version lies in its future (RF-13).
fn is_too_large(error: &Error) -> bool {
    let status = error.status();
    status.is_some_and(Status::is_too_large_resource_version)
}

/// Whether what is known up to `position` is not older than `version`. Versions that are not numbers have no order:
/// only the same one will do.
pub(crate) fn is_reached(position: &ResourceVersion, version: &ResourceVersion) -> bool {
    let order = position.numeric_order(version);
    position == version || order.is_some_and(Ordering::is_ge)
}

/// The later of the caller's version and what is known already.
pub(crate) fn later(version: &ResourceVersion, position: &ResourceVersion) -> ResourceVersion {
    if version.is_older_than(position) {
        position.clone()
    } else {
        version.clone()
    }
}
