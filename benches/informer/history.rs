//! What a server would send of one collection: a list, and a watch that begins where the list ends.

#![allow(
    dead_code,
    reason = "each program that includes this file uses a part of it"
)]

use crate::bodies::{Dress, Kind, Random, object};

/// The version of the list; the watch goes on from there.
const LIST_VERSION: usize = 100_000;

/// The name of the object that the watch adds last, so that whoever sees it has seen everything.
pub(crate) const LAST: &str = "the-last";

/// A list, and the events that follow it.
pub(crate) struct History {
    pub(crate) list: Vec<u8>,
    /// Lines of the watch, the last of which adds [`LAST`].
    pub(crate) events: Vec<u8>,
    /// How many lines there are.
    pub(crate) count: usize,
    /// How many objects there are in the end.
    pub(crate) left: usize,
}

/// One object's JSON, cut where its version stands.
struct Template {
    before: String,
    after: String,
    is_there: bool,
    /// How often it was created: each time with another uid.
    created: usize,
}

impl Template {
    fn new(kind: Kind, nth: usize, created: usize) -> Self {
        // The same object is the same each time, its uid included.
        let seed = nth * 1_000 + created;
        let mut random = Random(u64::try_from(seed).unwrap());
        let json = object(kind, Dress::AsServed, nth, &mut random);
        let (before, rest) = json.split_once(r#""resourceVersion":""#).unwrap();
        let (_, after) = rest.split_once('"').unwrap();
        Self {
            before: format!(r#"{before}"resourceVersion":""#),
            after: format!("\"{after}"),
            is_there: true,
            created,
        }
    }

    fn at(&self, version: usize) -> String {
        format!("{}{version}{}", self.before, self.after)
    }
}

impl History {
    /// `objects` in the list, then `changes`: eight of ten are MODIFIED, the others DELETED and
    /// ADDED in turns.
    pub(crate) fn new(kind: Kind, objects: usize, changes: usize) -> Self {
        let mut all: Vec<Template> = (0..objects)
            .map(|nth| Template::new(kind, nth, 0))
            .collect();
        let list = list(
            all.iter()
                .enumerate()
                .map(|(nth, object)| object.at(nth + 1)),
        );
        let mut random = Random(0x0bad_cafe);
        let mut events = Vec::new();
        let mut gone = Vec::new();
        for nth in 0..changes {
            let version = LIST_VERSION + 1 + nth;
            let (word, place) = match nth % 10 {
                3 => ("DELETED", pick(&all, &mut random)),
                8 => ("ADDED", gone.pop().unwrap()),
                _ => ("MODIFIED", pick(&all, &mut random)),
            };
            if word == "DELETED" {
                all[place].is_there = false;
                gone.push(place);
            } else if word == "ADDED" {
                all[place] = Template::new(kind, place, all[place].created + 1);
            }
            line(&mut events, word, kind, &all[place].at(version));
        }
        line(
            &mut events,
            "ADDED",
            kind,
            &last(LIST_VERSION + changes + 1),
        );
        let there = all.iter().filter(|object| object.is_there).count();
        Self {
            list,
            events,
            count: changes + 1,
            left: there + 1,
        }
    }
}

/// The object that is added last.
pub(crate) fn last(version: usize) -> String {
    format!(
        "{{\"metadata\":{{\"name\":\"{LAST}\",\"namespace\":\"team-0\",\"uid\":\"{version}\",\
         \"resourceVersion\":\"{version}\"}}}}"
    )
}

/// Appends a line of a watch.
pub(crate) fn line(events: &mut Vec<u8>, word: &str, kind: Kind, object: &str) {
    let members = object.strip_prefix('{').unwrap();
    let line = format!(
        "{{\"type\":\"{word}\",\"object\":{{\"kind\":\"{kind:?}\",\"apiVersion\":\"v1\",\
         {members}}}\n"
    );
    events.extend_from_slice(line.as_bytes());
}

fn list(objects: impl Iterator<Item = String>) -> Vec<u8> {
    let objects: Vec<String> = objects.collect();
    format!(
        "{{\"kind\":\"List\",\"apiVersion\":\"v1\",\
         \"metadata\":{{\"resourceVersion\":\"{LIST_VERSION}\"}},\"items\":[{}]}}",
        objects.join(",")
    )
    .into_bytes()
}

fn pick(all: &[Template], random: &mut Random) -> usize {
    loop {
        let place = random.below(all.len());
        if all[place].is_there {
            return place;
        }
    }
}
