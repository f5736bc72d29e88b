//! The result of a wait for several informers or handlers: for each, whether it has synced, or why
//! not.

use crate::error::{Error, ErrorKind};

/// The result of a wait of an [`InformerSet`](crate::informer::InformerSet): one outcome for each
/// informer or handler.
///
/// A program that can go on with some of them checks each. A program that needs all calls
/// [`into_result`](Self::into_result).
#[derive(Clone, Debug, Default)]
#[must_use = "a wait may have ended without all of them synced"]
#[non_exhaustive]
pub struct SyncResult {
    /// One outcome for each informer or handler, in the order in which they were added.
    pub outcomes: Vec<SyncOutcome>,
}

/// Whether one informer, or one handler, has synced, or why not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SyncOutcome {
    /// An informer's name, such as `pods`, or a handler's
    /// [`sync_name`](crate::informer::Registration::sync_name), such as
    /// `SharedInformer Pod + event handler audit`.
    pub name: String,
    /// The reason why it has not synced. `None` if it has.
    ///
    /// `NotSynced` at the deadline, with the last failure, the attempts and the time of the first.
    /// `Forbidden` and `NotFound` are the server's refusal. `Stopped` if the informer has stopped,
    /// `Config` if it was not started.
    pub error: Option<Error>,
}

impl SyncOutcome {
    /// Success wins over the end of the wait.
    pub(super) fn new(name: &str, has_synced: bool, waited: Result<(), Error>) -> Self {
        Self {
            name: name.to_owned(),
            error: waited.err().filter(|_| !has_synced),
        }
    }

    /// The cause, without the line that all failed waits share.
    fn cause(&self) -> String {
        let text = self.error.as_ref().map(ToString::to_string);
        let text = text.unwrap_or_default();
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let cause = if rest.is_empty() { first } else { rest };
        // A handler's errors begin with its name.
        let own = format!("failed to sync {}: ", self.name);
        let cause = cause.strip_prefix(&own).unwrap_or(cause);
        format!("{}: {cause}", self.name)
    }
}

impl SyncResult {
    /// Whether all of them have synced; true if there are none.
    pub fn all_synced(&self) -> bool {
        self.unsynced().next().is_none()
    }

    /// Returns the informers or handlers that have not synced.
    pub fn unsynced(&self) -> impl Iterator<Item = &SyncOutcome> {
        self.outcomes.iter().filter(|one| one.error.is_some())
    }

    /// Returns the outcome of the informer or handler of that name.
    pub fn get(&self, name: &str) -> Option<&SyncOutcome> {
        self.outcomes.iter().find(|outcome| outcome.name == name)
    }

    /// Returns `Ok` if all have synced, otherwise one error for all that have not.
    ///
    /// # Errors
    ///
    /// `failed to sync all caches: …`, with the names in order and the ends of their waits, then
    /// each cause on its own line. Its kind is theirs if they share one, otherwise `NotSynced`.
    #[doc(alias = "AsError")]
    pub fn into_result(self) -> Result<(), Error> {
        let mut unsynced: Vec<&SyncOutcome> = self.unsynced().collect();
        unsynced.sort_by(|one, other| one.name.cmp(&other.name));
        let mut kinds: Vec<ErrorKind> = Vec::new();
        let mut ends: Vec<&str> = Vec::new();
        for error in unsynced.iter().filter_map(|outcome| outcome.error.as_ref()) {
            push_new(&mut kinds, error.kind());
            push_new(&mut ends, end(error.kind()));
        }
        let kind = match kinds.as_slice() {
            [] => return Ok(()),
            [one] => *one,
            [_, _, ..] => ErrorKind::NotSynced,
        };
        let names: Vec<&str> = unsynced.iter().map(|outcome| &*outcome.name).collect();
        let causes: Vec<String> = unsynced.iter().map(|outcome| outcome.cause()).collect();
        let (names, ends, causes) = (names.join(", "), ends.join(", "), causes.join("\n"));
        let text = format!("failed to sync all caches: {names}: {ends}\n{causes}");
        Err(Error::new(kind, text).with_last(Error::new(kind, causes)))
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Describes the end of a wait with this kind of error.
fn end(kind: ErrorKind) -> &'static str {
    let ends = [
        (ErrorKind::NotSynced, "timed out waiting for the condition"),
        (ErrorKind::Forbidden, "refused by the server"),
        (ErrorKind::NotFound, "refused by the server"),
        (ErrorKind::Stopped, "stopped"),
        (ErrorKind::Config, "not started"),
    ];
    let known = ends.into_iter().find(|(ended, _)| *ended == kind);
    known.map_or("failed", |(_, words)| words)
}
