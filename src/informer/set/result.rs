//! How a wait for several informers or handlers ended: for each one whether it has synced, or why not.

use crate::error::{Error, ErrorKind};

/// How [`InformerSet::wait_for_sync`](crate::informer::InformerSet::wait_for_sync) ended, informer by informer.
///
/// A program that can go on with some of them looks at each; one that needs all takes
/// [`into_result`](Self::into_result).
#[derive(Clone, Debug, Default)]
#[must_use = "a wait may have ended without all of them synced"]
pub struct SyncResult(Vec<SyncOutcome>);

/// Whether one informer, or one handler, has synced, or why not.
#[derive(Clone, Debug)]
pub struct SyncOutcome {
    name: String,
    error: Option<Error>,
}

impl SyncOutcome {
    pub(super) fn new(name: impl Into<String>, waited: Result<(), Error>) -> Self {
        Self {
            name: name.into(),
            error: waited.err(),
        }
    }

    /// Who was waited for: an informer by its name, such as `pods`; a handler as
    /// [`Registration::sync_name`](crate::informer::Registration::sync_name) says, such as
    /// `SharedInformer Pod + event handler audit` (WT-4).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has synced.
    pub fn is_synced(&self) -> bool {
        self.error.is_none()
    }

    /// Why it has not synced; `None` if it has.
    ///
    /// `NotSynced` at the deadline, with the last failure, the attempts and since when (B2); the server's answer that it
    /// refuses the resource (`Forbidden`) or knows none such (`NotFound`); `Stopped`; `Config` for an informer that was not
    /// started.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// The cause without the line that every wait which ends has in common.
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
    /// Whether all of them have synced; true of none (WT-1).
    pub fn all_synced(&self) -> bool {
        self.unsynced().next().is_none()
    }

    /// Those that have synced, in the order in which they were added.
    pub fn synced(&self) -> impl Iterator<Item = &SyncOutcome> {
        self.0.iter().filter(|outcome| outcome.is_synced())
    }

    /// Those that have not, with the reason.
    pub fn unsynced(&self) -> impl Iterator<Item = &SyncOutcome> {
        self.0.iter().filter(|outcome| !outcome.is_synced())
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, SyncOutcome> {
        self.0.iter()
    }

    /// How it went with the one of that name.
    pub fn get(&self, name: &str) -> Option<&SyncOutcome> {
        self.0.iter().find(|outcome| outcome.name == name)
    }

    /// Nothing, if all have synced; else one error for all that have not.
    ///
    /// # Errors
    ///
    /// `failed to sync all caches: …`, with the names in order and how their waits ended (WT-3), then the cause of each on a
    /// line of its own. Its kind is theirs if they have one in common, else `NotSynced`.
    #[doc(alias = "AsError")]
    pub fn into_result(self) -> Result<(), Error> {
        let mut unsynced: Vec<&SyncOutcome> = self.unsynced().collect();
        unsynced.sort_by(|one, other| one.name.cmp(&other.name));
        let mut kinds: Vec<ErrorKind> = Vec::new();
        let mut ends: Vec<&str> = Vec::new();
        for error in unsynced.iter().filter_map(|outcome| outcome.error()) {
            push_new(&mut kinds, error.kind());
            push_new(&mut ends, end(error.kind()));
        }
        let Some(first) = kinds.first() else {
            return Ok(());
        };
        let kind = if kinds.len() == 1 {
            *first
        } else {
            ErrorKind::NotSynced
        };
        let names: Vec<&str> = unsynced.iter().map(|outcome| outcome.name()).collect();
        let causes: Vec<String> = unsynced.iter().map(|outcome| outcome.cause()).collect();
        let text = format!(
            "failed to sync all caches: {}: {}\n{}",
            names.join(", "),
            ends.join(", "),
            causes.join("\n")
        );
        Err(Error::new(kind, text))
    }
}

impl FromIterator<SyncOutcome> for SyncResult {
    fn from_iter<I: IntoIterator<Item = SyncOutcome>>(outcomes: I) -> Self {
        Self(outcomes.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a SyncResult {
    type Item = &'a SyncOutcome;
    type IntoIter = std::slice::Iter<'a, SyncOutcome>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// How a wait ended that ended so.
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
