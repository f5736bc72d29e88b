//! A recorded streamed list in two halves: the plain list of its objects, and the watch after it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::history::{ends_initial_events, name_of, text, version_of};
use crate::testing::recording::{Answer, Chunk, Exchange, PathName, Target};

/// What a streamed list says to a client that lists and watches instead.
pub(super) struct Halves {
    /// The answer to the plain request.
    pub(super) list: Exchange,
    /// The recorded exchange, with a border between two pieces where the list ends.
    pub(super) whole: Exchange,
    /// The first piece of the watch.
    pub(super) first: usize,
}

impl Halves {
    /// Reads a streamed list up to its final bookmark, for a plain request; `None` when the
    /// bookmark does not come.
    pub(super) fn of(streamed: &Exchange, target: &Target) -> Option<Self> {
        let answer = Some(&streamed.answer).filter(|answer| answer.status == 200)?;
        let mut items = BTreeMap::<PathName, Value>::new();
        let mut line = String::new();
        for (number, chunk) in answer.chunks.iter().enumerate() {
            let mut read = 0_usize;
            for part in chunk.text.split_inclusive('\n') {
                read = read.saturating_add(part.len());
                line.push_str(part);
                if !part.ends_with('\n') {
                    continue;
                }
                let mut event = serde_json::from_str::<Value>(&line).ok()?;
                line.clear();
                let object = event.get_mut("object").map(Value::take)?;
                match text(&event, &["type"]) {
                    "ADDED" | "MODIFIED" => drop(items.insert(name_of(&object), object)),
                    "DELETED" => drop(items.remove(&name_of(&object))),
                    "BOOKMARK" if ends_initial_events(&object) => {
                        let mut list = Exchange::get("", list(items, &object));
                        list.target = target.clone();
                        return Some(Self::at(streamed, list, (number, read)));
                    }
                    "BOOKMARK" => {}
                    _ => return None,
                }
            }
        }
        None
    }

    fn at(streamed: &Exchange, mut list: Exchange, (number, read): (usize, usize)) -> Self {
        let mut whole = streamed.clone();
        // They were those of the list.
        whole.matches.clear();
        let pieces = &mut whole.answer.chunks;
        let first = number.saturating_add(1);
        let mut after = whole.answer.after;
        if let Some(last) = pieces.get_mut(number) {
            after = last.after;
            let rest = last.text.split_off(read);
            if !rest.is_empty() {
                pieces.insert(first, Chunk { after, text: rest });
            }
        }
        // It comes as late as the bookmark did.
        list.answer.after = after;
        Self { list, whole, first }
    }
}

/// The list of these objects at the version of the bookmark, which is of their kind.
fn list(items: BTreeMap<PathName, Value>, bookmark: &Value) -> Answer {
    let list = json!({
        "kind": format!("{}List", text(bookmark, &["kind"])),
        "apiVersion": text(bookmark, &["apiVersion"]),
        "metadata": {"resourceVersion": version_of(bookmark)},
        "items": items.into_values().collect::<Vec<_>>(),
    });
    Answer::text(200, format!("{list}\n"))
}

#[cfg(test)]
mod tests;
