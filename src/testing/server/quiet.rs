//! A replayed watch after its last event: it stays open, and has a bookmark each minute if the
//! client takes them, as at a server where nothing happens.

use std::time::Duration;

use serde_json::{Value, json};

use super::history::text;
use super::pace::{Speed, StepPace};
use crate::testing::http::{Piece, Pieces};
use crate::testing::recording::{Exchange, Target, is_true};
use crate::worker::StopToken;

/// About as often as an API server.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// The rest of a watch.
pub(super) struct Quiet<'a> {
    pace: &'a StepPace,
    bookmark: Option<Vec<u8>>,
}

impl<'a> Quiet<'a> {
    /// The rest of a watch that `asked` opens, after all events of a recorded one.
    pub(super) fn after(recorded: &Exchange, asked: &Target, pace: &'a StepPace) -> Self {
        let takes_them =
            asked.is_watch() && asked.value("allowWatchBookmarks").is_some_and(is_true);
        let takes_them = takes_them && pace.speed != Speed::Stepped;
        let bookmark = takes_them.then(|| bookmark(recorded, asked)).flatten();
        Self { pace, bookmark }
    }
}

/// A bookmark at the client's version, which is no event's that it has not seen. Only an event
/// tells the kind.
fn bookmark(recorded: &Exchange, asked: &Target) -> Option<Vec<u8>> {
    let chunks = recorded.answer.chunks.iter();
    let whole: String = chunks.map(|chunk| chunk.text.as_str()).collect();
    let last = whole.lines().rfind(|line| !line.is_empty())?;
    let event: Value = serde_json::from_str(last).ok()?;
    let object = event.get("object")?;
    let version = text(object, &["metadata", "resourceVersion"]);
    let asked = asked.value("resourceVersion").unwrap_or_default();
    let number = |version: &str| version.parse::<u64>().unwrap_or_default();
    let version = if number(asked) > number(version) {
        asked
    } else {
        version
    };
    let (kind, group) = (text(object, &["kind"]), text(object, &["apiVersion"]));
    if kind.is_empty() || kind == "Status" || number(version) == 0 {
        return None;
    }
    let object = json!({
        "kind": kind, "apiVersion": group, "metadata": {"resourceVersion": version},
    });
    let line = json!({"type": "BOOKMARK", "object": object});
    Some(format!("{line}\n").into_bytes())
}

impl Pieces for Quiet<'_> {
    fn next(&mut self, stop: &StopToken) -> Piece {
        let Some(bookmark) = &self.bookmark else {
            stop.wait();
            return Piece::Cut;
        };
        if !self
            .pace
            .until(self.pace.clock.after(BOOKMARK_PERIOD), stop)
        {
            return Piece::Cut;
        }
        Piece::Bytes(bookmark.clone())
    }
}
