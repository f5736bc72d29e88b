//! Selections: an unselected object is not decoded, but counts and moves the position.

use std::cell::Cell;

use serde::{Deserialize, Deserializer};

use super::*;
use crate::object::Resource;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};
use crate::wire::Selection;

thread_local! {
    static DECODED: Cell<usize> = const { Cell::new(0) };
}

/// Counts how often one is decoded.
struct Counted(String);

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde_derive::Deserialize)]
        struct Raw {
            metadata: Name,
        }
        #[derive(serde_derive::Deserialize)]
        struct Name {
            name: String,
        }
        DECODED.set(DECODED.get().saturating_add(1));
        Raw::deserialize(deserializer).map(|raw| Self(raw.metadata.name))
    }
}

impl Object for Counted {
    fn resource() -> Resource {
        Resource::new("", "v1", "secrets", "Secret")
    }
    fn name(&self) -> &str {
        &self.0
    }
    fn namespace(&self) -> &'static str {
        "n"
    }
    fn uid(&self) -> &'static str {
        ""
    }
    fn resource_version_text(&self) -> &'static str {
        "5"
    }
}

/// Selects the object `a` of namespace `n`, and notes each question.
#[derive(Default)]
struct OnlyA(Mutex<Vec<String>>);

impl Selection for OnlyA {
    fn selects(&self, namespace: &str, name: &str, version: &str) -> bool {
        let asked = format!("{namespace}/{name}@{version}");
        let mut all = self.0.lock();
        if !all.contains(&asked) {
            all.push(asked);
        }
        (namespace, name) == ("n", "a")
    }
}

/// Selects every object, and counts them.
#[derive(Default)]
struct Once(AtomicUsize);

impl Selection for Once {
    fn selects(&self, _namespace: &str, _name: &str, _version: &str) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        true
    }
}

fn object(name: &str) -> String {
    let metadata = format!(
        r#"{{"name":{name},"labels":{{"name":"a"}},"namespace":"n","resourceVersion":"5"}}"#
    );
    format!(r#"{{"data":{{"k":"dg=="}},"metadata":{metadata}}}"#)
}

fn list_body() -> String {
    let names = [r#""a""#, r#""b""#, r#""\u0061""#, r#""c""#];
    let items = names.map(object).join(", ");
    format!(r#"{{"kind":"SecretList","metadata":{{"resourceVersion":"9"}},"items":[{items}]}}"#)
}

#[test]
fn items_that_are_not_selected_are_not_decoded() {
    let (body, options) = (list_body(), DecodeOptions::default());
    each_split(body.as_bytes(), |chunks| {
        let selection = Arc::new(OnlyA::default());
        let selected: Arc<dyn Selection> = Arc::<OnlyA>::clone(&selection);
        let decoder = ListDecoder::<Counted>::new(&options).selecting(Some(selected));
        let before = DECODED.get();
        let outcome = items_of(decoder, chunks, &options);
        assert_eq!(outcome.items.len(), 2, "{outcome:?}");
        let end = outcome.end.unwrap();
        assert_eq!((end.resource_version.as_str(), end.unselected), ("9", 2));
        assert_eq!(DECODED.get().saturating_sub(before), 2);
        assert_eq!(*selection.0.lock(), ["n/a@5", "n/b@5", "n/c@5"]);
    });
}

/// Limits hold even for items that the cache passes over.
#[test]
fn b7_items_that_are_not_selected_count_for_the_limits() {
    let options = DecodeOptions::default().list_items_max(3);
    let selected: Arc<dyn Selection> = Arc::new(OnlyA::default());
    let decoder = ListDecoder::<Secret>::for_one_object(&options).selecting(Some(selected));
    let outcome = items_of(decoder, [list_body().as_bytes()], &options);
    assert!(outcome.error().contains("list_items_max"), "{outcome:?}");

    let events = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", object(r#""b""#)).repeat(4);
    let options = options.list_bytes_max(events.len() - 1);
    let selected: Arc<dyn Selection> = Arc::new(OnlyA::default());
    let decoder = EventDecoder::<Secret>::with_initial_events(&options).selecting(Some(selected));
    let events = events_of(decoder, [events.as_bytes()], &options);
    assert!(events[4].contains("list_bytes_max"), "{events:?}");
}

#[test]
fn events_of_objects_that_are_not_selected_are_a_position() {
    let spaced = format!(
        r#" {{ "object": {}, "type" : "DELETED" }} "#,
        object(r#""c""#)
    );
    let lines = ["a", "b"].map(|name| {
        let object = object(&format!("{name:?}"));
        format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n")
    });
    let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}"#;
    let body = format!("{}{spaced}{bookmark}", lines.join(""));
    let options = DecodeOptions::default();
    each_split(body.as_bytes(), |chunks| {
        let selected: Arc<dyn Selection> = Arc::new(OnlyA::default());
        let decoder = EventDecoder::<Counted>::new(&options).selecting(Some(selected));
        let before = DECODED.get();
        let events = events_of(decoder, chunks, &options);
        let expected = [
            "Updated(Secret n/a @5)",
            "unselected Updated @5",
            "unselected Deleted @5",
            "bookmark @12",
        ];
        assert_eq!(events, expected);
        assert_eq!(DECODED.get().saturating_sub(before), 1);
    });
}

/// The decoder says what is wrong with an object that has no name.
#[test]
fn an_object_without_a_name_is_decoded() {
    for object in [
        r#"{"metadata":{"namespace":"n"}}"#,
        r#"{"metadata":{"name":5,"namespace":"n"}}"#,
        r#"{"data":{}}"#,
    ] {
        let body = format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n");
        let options = DecodeOptions::default();
        let selected: Arc<dyn Selection> = Arc::new(OnlyA::default());
        let decoder = EventDecoder::<Secret>::new(&options).selecting(Some(selected));
        let events = events_of(decoder, [body.as_bytes()], &options);
        assert!(events[0].contains("Object 'Kind' is missing"), "{events:?}");
    }
}

/// Even if the line does not decode, goes on behind its object, or is one of many.
#[test]
fn each_object_is_selected_once() {
    let undecodable = object(r#""a""#).replace("\"dg==\"", "5");
    let lines = [
        format!(r#"{{"type":"ADDED","object":{undecodable}}}"#),
        format!(r#"{{"type":"ADDED","object":{undecodable},"more":[1]}}"#),
        format!(r#"{{"object":{undecodable},"type":"MODIFIED"}}"#),
        format!("{{\"type\":\"ADDED\",\"object\":{undecodable}\n,\"more\":{{}}}}"),
        format!(r#"{{"type":"DELETED","object":{undecodable}}}"#),
    ];
    let body = lines.join("\n") + "\n";
    let options = DecodeOptions::default();
    each_split(body.as_bytes(), |chunks| {
        let selection = Arc::new(Once::default());
        let selected: Arc<dyn Selection> = Arc::<Once>::clone(&selection);
        let decoder = EventDecoder::<Secret>::new(&options).selecting(Some(selected));
        let events = events_of(decoder, chunks, &options);
        assert_eq!(events.len(), lines.len(), "{events:?}");
        assert_eq!(selection.0.load(Ordering::SeqCst), lines.len());
    });
}
