//! Watches: the changes of a kind, as one client has selected them, until the client, the clock or
//! the server ends that.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::list_options::{self, AskedVersion};
use super::reads::too_old;
use super::refusal::Refusal;
use super::representation::{AnswerForm, TableContext};
use super::resources::{ApiResource, StorageKey};
use super::routes::ObjectRoute;

use super::selectors::ObjectFilter;
use super::storage::{Compacted, Storage, StorageChange, StorageState, StoredVersion};
use crate::clock::{Clock, Deadline, later};
use crate::sync::{Arc, Monitor, MutexGuard};
use crate::testing::http::{Piece, Pieces};
use crate::testing::recording::Target;
use crate::worker::StopToken;

/// The lifetime of a watch without `timeoutSeconds`.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How long before its end a watch gets its last bookmark, so that the next one begins late.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// The approximate maximum size of a piece: initial events go out in several.
const PIECE_BYTES: usize = 64 * 1024;

/// The number of open watches, for waits.
pub(super) type OpenWatches = Arc<Monitor<usize>>;

/// Counts a watch as open while it lives.
#[derive(Debug)]
struct ServedWatch(OpenWatches);

impl ServedWatch {
    fn new(open: &OpenWatches) -> Self {
        let mut count = open.lock();
        *count = count.saturating_add(1);
        drop(count);
        open.notify_all();
        Self(Arc::clone(open))
    }
}

impl Drop for ServedWatch {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        *count = count.saturating_sub(1);
        drop(count);
        self.0.notify_all();
    }
}

/// The settings of a watch before it begins.
pub(super) struct WatchSettings {
    pub(super) form: AnswerForm,
    pub(super) bookmark_every: Duration,
    pub(super) open: OpenWatches,
}

/// One running watch: the body of its answer.
pub(super) struct ServedWatchBody {
    storage: Arc<Storage>,
    resource: Arc<ApiResource>,
    kind: StorageKey,
    filter: ObjectFilter,
    form: AnswerForm,
    /// The watch has sent all changes up to this version.
    position: u64,
    /// Objects of the initial state that it has not sent yet.
    initial: VecDeque<Arc<StoredVersion>>,
    /// Whether a bookmark marks the end of the initial state.
    marks_initial_end: bool,
    epoch: u64,
    expired_watches: u64,
    /// Why the watch cannot begin: its version is too old, or not reached yet.
    refusal: Option<Refusal>,
    bookmark_every: Option<Duration>,
    next_bookmark: Option<Instant>,
    ends: Instant,
    told_columns: bool,
    has_ended: bool,
    _open: ServedWatch,
}

impl ServedWatchBody {
    /// Begins a watch, which will send all changes from now on.
    pub(super) fn begin(
        storage: &Arc<Storage>,
        route: &ObjectRoute,
        target: &Target,
        settings: &WatchSettings,
    ) -> Result<Self, Refusal> {
        list_options::check_watch(target)?;
        let (resource, kind) = (&route.resource, route.resource.storage_key());
        let filter = ObjectFilter::of(resource, route.namespace.as_deref(), target)?;
        let asked = AskedVersion::of_watch(target)?;
        // A plain watch of the present state marks its end like one that asks for that.
        let is_plain = !matches!(asked, AskedVersion::At(_));
        let sends = list_options::flag(target, "sendInitialEvents");
        let sends = sends.or(is_plain.then_some(true));
        let bookmarks = list_options::flag(target, "allowWatchBookmarks") == Some(true);
        let timeout = list_options::number(target, "timeoutSeconds")?.unwrap_or_default();
        let timeout = match u64::try_from(timeout) {
            Ok(0) | Err(_) => TIMEOUT,
            Ok(seconds) => Duration::from_secs(seconds),
        };
        let now = storage.clock().now();
        let mut state = storage.lock();
        let current = state.version();
        let begins_with_state = sends == Some(true);
        let too_large = match (asked, sends) {
            (AskedVersion::At(asked), Some(true)) if asked > current => {
                Some(Refusal::too_large_version(asked, current))
            }
            _ => None,
        };
        let position = match asked {
            AskedVersion::At(asked) if !begins_with_state => asked,
            AskedVersion::At(_) | AskedVersion::Any | AskedVersion::MostRecent => current,
        };
        let initial = if begins_with_state && too_large.is_none() {
            let objects = state.collection(&kind).objects.values();
            let matching = objects.filter(|object| filter.matches(resource, object));
            matching.cloned().collect()
        } else {
            VecDeque::new()
        };
        let bookmark_every = bookmarks.then_some(settings.bookmark_every);
        let expired = state.can_be_watched(&kind, position).err();
        let expired = expired.map(|Compacted { oldest }| too_old(position, oldest));
        let ends = later(now, timeout);
        let body = Self {
            storage: Arc::clone(storage),
            resource: Arc::clone(resource),
            kind,
            filter,
            form: settings.form,
            position,
            initial,
            marks_initial_end: bookmarks && sends == Some(true) && too_large.is_none(),
            epoch: state.epoch,
            expired_watches: state.expired_watches,
            refusal: too_large.or(expired),
            bookmark_every,
            next_bookmark: bookmark_every.and_then(|every| next_bookmark(now, every, ends)),
            ends,
            told_columns: false,
            has_ended: false,
            _open: ServedWatch::new(&settings.open),
        };
        drop(state);
        Ok(body)
    }

    fn write_event(&mut self, kind: &str, object: &StoredVersion, text: &mut Vec<u8>) {
        text.extend_from_slice(format!(r#"{{"type":"{kind}","object":"#).as_bytes());
        let with_columns = !std::mem::replace(&mut self.told_columns, true);
        let table = TableContext {
            now: self.storage.now(),
            with_columns,
        };
        self.form.write_object(&self.resource, object, table, text);
        text.extend_from_slice(b"}\n");
    }

    /// The next objects of the initial state; the bookmark that ends it comes with the last.
    fn initial_piece(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        while let Some(object) = self.initial.pop_front() {
            self.write_event("ADDED", &object, &mut text);
            if text.len() > PIECE_BYTES {
                return Some(text);
            }
        }
        if std::mem::take(&mut self.marks_initial_end) {
            let marks = json!({"k8s.io/initial-events-end": "true"});
            text.extend_from_slice(&self.bookmark(self.position, Some(marks)));
        }
        (!text.is_empty()).then_some(text)
    }

    fn bookmark(&self, version: u64, annotations: Option<Value>) -> Vec<u8> {
        let mut metadata = json!({
            "resourceVersion": version.to_string(),
            "creationTimestamp": null,
        });
        if let (Some(fields), Some(annotations)) = (metadata.as_object_mut(), annotations) {
            fields.insert("annotations".to_owned(), annotations);
        }
        event("BOOKMARK", &self.form.bookmark(&self.resource, &metadata))
    }

    /// The events of the next changes; `None` when there are none to send.
    fn changes(&mut self, state: &mut StorageState) -> Option<Vec<u8>> {
        let mut told = Vec::new();
        let (mut position, mut bytes) = (self.position, 0_usize);
        let version = state.version();
        for change in state.collection(&self.kind).changes_after(self.position) {
            position = change.version;
            if let Some((kind, object)) = self.told_of(change) {
                bytes = bytes.saturating_add(object.text_len());
                told.push((kind, object));
            }
            if bytes > PIECE_BYTES {
                break;
            }
        }
        if bytes <= PIECE_BYTES {
            // Versions of other kinds bring no event, but a bookmark includes them. A version ahead
            // of the server stays.
            position = position.max(version);
        }
        self.position = position;
        let mut text = Vec::new();
        for (kind, object) in told {
            self.write_event(kind, &object, &mut text);
        }
        (!text.is_empty()).then_some(text)
    }

    /// The change as a client with this selection sees it.
    fn told_of(&self, change: &StorageChange) -> Option<(&'static str, Arc<StoredVersion>)> {
        let matches = |object: &StoredVersion| self.filter.matches(&self.resource, object);
        let before = change.before.as_ref().filter(|before| matches(before));
        let is_in = !change.is_delete && matches(&change.after);
        match (before, is_in) {
            (None, false) => None,
            (None, true) => Some(("ADDED", Arc::clone(&change.after))),
            (Some(_), true) => Some(("MODIFIED", Arc::clone(&change.after))),
            (Some(_), false) if change.is_delete => Some(("DELETED", Arc::clone(&change.after))),
            (Some(before), false) => Some(("DELETED", Arc::new(before.at_version(change.version)))),
        }
    }

    /// The event of a refusal, which ends the watch.
    fn refused(&mut self, refusal: &Refusal) -> Piece {
        self.has_ended = true;
        Piece::Bytes(event("ERROR", &refusal.status()))
    }

    /// The piece to send now, if any.
    fn due(&mut self, state: &mut MutexGuard<'_, StorageState>) -> Option<Piece> {
        if state.epoch != self.epoch {
            return Some(Piece::Cut);
        }
        if state.expired_watches != self.expired_watches {
            let refusal = too_old(self.position, state.version());
            return Some(self.refused(&refusal));
        }
        if let Some(refusal) = self.refusal.take() {
            return Some(self.refused(&refusal));
        }
        if !state.remembers(&self.kind, self.position) {
            // A real server ends a watch whose client is too slow without a word.
            return Some(Piece::End);
        }
        if let Some(text) = self.changes(state) {
            return Some(self.sent(text));
        }
        let now = self.storage.clock().now();
        if now >= self.ends {
            return Some(Piece::End);
        }
        let every = self.bookmark_every?;
        if self.next_bookmark.is_none_or(|next| now < next) {
            return None;
        }
        self.next_bookmark = next_bookmark(now, every, self.ends);
        let is_ahead = self.position > state.version();
        (!is_ahead).then(|| {
            let text = self.bookmark(self.position, None);
            self.sent(text)
        })
    }

    /// Sends events. The server ends a watch without a word if it cannot write them in its form.
    fn sent(&mut self, text: Vec<u8>) -> Piece {
        self.has_ended = self.form.is_of_lists();
        if self.has_ended {
            Piece::End
        } else {
            Piece::Bytes(text)
        }
    }
}

impl Pieces for ServedWatchBody {
    fn next(&mut self, stop: &StopToken) -> Piece {
        if self.has_ended {
            return Piece::End;
        }
        if let Some(text) = self.initial_piece() {
            return self.sent(text);
        }
        let storage = Arc::clone(&self.storage);
        let registration = stop.register(&storage.wake(&self.kind));
        let mut state = storage.lock();
        let piece = loop {
            if stop.is_stopped() {
                break Piece::Cut;
            }
            if let Some(piece) = self.due(&mut state) {
                break piece;
            }
            let end = Deadline::at(self.ends);
            let until = self.next_bookmark.map_or(Deadline::NEVER, Deadline::at);
            state = storage.wait_for_change(&self.kind, state, end.earlier(until));
        };
        drop(state);
        drop(registration);
        piece
    }

    /// The end of its time is withheld too: a client must give up by itself.
    fn withhold(&mut self, due: Deadline, clock: &Clock, stop: &StopToken) -> Option<Piece> {
        let storage = Arc::clone(&self.storage);
        let registration = stop.register(&storage.wake(&self.kind));
        let mut state = storage.lock();
        let end = loop {
            if stop.is_stopped() || state.epoch != self.epoch {
                break Some(Piece::Cut);
            }
            if state.expired_watches != self.expired_watches {
                break Some(Piece::End);
            }
            if clock.has_passed(due) {
                break None;
            }
            state = storage.wait_for_change(&self.kind, state, due);
        };
        drop(state);
        drop(registration);
        end
    }
}

/// The time of the next bookmark, if one comes before the end.
fn next_bookmark(now: Instant, every: Duration, ends: Instant) -> Option<Instant> {
    let last = ends.checked_sub(LAST_BOOKMARK)?;
    Some(later(now, every).min(last)).filter(|next| *next > now)
}

fn event(kind: &str, object: &Value) -> Vec<u8> {
    format!("{}\n", json!({"type": kind, "object": object})).into_bytes()
}
