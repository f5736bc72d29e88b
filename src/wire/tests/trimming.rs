//! Skipping while decoding: only the two fields, only in their own place, with their commas (B19).

use serde_json::{Map, Value, json};

use super::super::decode_object;
use super::super::json::Decoder;
use super::super::place::Skipped;
use super::*;
use crate::tests::dice::Dice;

const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object without the fields that a cache skips. Also checks that the decoder finds its end,
/// and refuses it up to each of these earlier ends.
fn trimmed(json: &str, ends: impl Iterator<Item = usize>) -> Value {
    let skipped = Skipped {
        trim: true,
        secret: false,
        rest: false,
    };
    // Text behind the value does not belong to it.
    let longer = format!("{json},{{\"metadata\":{{\"managedFields\":[");
    let mut decoder = Decoder::of_object(longer.as_bytes(), skipped);
    let value = decoder.decode::<Value>().unwrap();
    assert_eq!(decoder.used(), json.len(), "{json}");
    let kind = decoder.noted.kind.map(String::from_utf8_lossy);
    assert!(matches!(kind.as_deref(), None | Some("\"K\"")), "{kind:?}");
    for end in ends {
        let mut decoder = Decoder::of_object(&json.as_bytes()[..end], skipped);
        assert!(decoder.decode::<Value>().is_err(), "{json} up to {end}");
    }
    value
}

/// An object, and below it the trimmed object; `=` means the same.
const TRIMMED: &str = r#"{"metadata":{"managedFields":[]}}
  {"metadata":{}}
{"metadata":{"managedFields":[],"name":"a"}}
  {"metadata":{"name":"a"}}
{"metadata":{"name":"a","managedFields":[{"x":{"y":"]}"}}]}}
  {"metadata":{"name":"a"}}
{"metadata":{"name":"a","managedFields":[],"uid":"u"}}
  {"metadata":{"name":"a","uid":"u"}}
{"metadata":{"managedFields":null}}
  {"metadata":{}}
{"metadata":{"managedFields":"x,}"}}
  {"metadata":{}}
{"metadata":{"managedFields":1,"managedFields":2,"a":3}}
  {"metadata":{"a":3}}
{"metadata":{"a":3,"managedFields":1,"managedFields":2}}
  {"metadata":{"a":3}}
{"metadata":{"managedFields":1,"managedFields":2}}
  {"metadata":{}}
{"metadata":{"managedFields":1,"a":3,"managedFields":2}}
  {"metadata":{"a":3}}
{"metadata":{"managed\u0046ields":1,"a":3}}
  {"metadata":{"a":3}}
{"m\u0065tadata":{"managedFields":1,"a":3}}
  {"m\u0065tadata":{"a":3}}
{"metadata" : { "managedFields" : [ ] , "a" : 3 } }
  {"metadata" : { "a" : 3 } }
{"metadata":{"annotations":{"managedFields":"x"},"labels":{"managedFields":"y"}}}
  =
{"managedFields":1,"spec":{"metadata":{"managedFields":1}},"kind":"K"}
  =
{"metadata":[{"managedFields":1}]}
  =
{"metadata":{"metadata":{"managedFields":1}}}
  =
{"metadata":"managedFields","data":{"managedFields":"v"}}
  =
{"metadata":{"a":{},"managedFields":[]},"metadata":{"managedFields":[]}}
  {"metadata":{"a":{}},"metadata":{}}
{"metadata":{"annotations":{$LAST}}}
  {"metadata":{"annotations":{}}}
{"metadata":{"annotations":{$LAST,"b":"c"},"managedFields":[]}}
  {"metadata":{"annotations":{"b":"c"}}}
{"metadata":{"managedFields":[],"annotations":{"b":"c",$LAST}}}
  {"metadata":{"annotations":{"b":"c"}}}
{"metadata":{$LAST,"labels":{$LAST}}}
  =
{"metadata":{"annotations":{"kubectl.kubernetes.io\/last-applied-configuration":"x"}}}
  {"metadata":{"annotations":{}}}"#;

#[test]
fn the_fields_are_passed_over_where_they_mean_it() {
    let last = format!(r#""{LAST}":"{{\"a\":[\"}}\",\"\\\\\"]}}""#);
    let table = TRIMMED.replace("$LAST", &last);
    let lines: Vec<_> = table.lines().map(str::trim_start).collect();
    for row in lines.chunks(2) {
        let (json, expected) = match *row {
            [json, "="] => (json, json),
            [json, expected] => (json, expected),
            _ => panic!("half a row: {row:?}"),
        };
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(trimmed(json, 0..json.len()), expected, "{json}");
    }
}

/// A value with the words that matter in places where they do and do not.
fn random_value(random: &mut Random, depth: usize) -> Value {
    const WORDS: [&str; 9] = [
        "metadata",
        "annotations",
        "managedFields",
        LAST,
        "name",
        "\"\\",
        "",
        "é\n\u{1F600}",
        "a,b]}",
    ];
    match random.below(if depth == 0 { 4 } else { 9 }) {
        0 => Value::Null,
        1 => json!(random.below(1000)),
        2 => json!(-0.5),
        3 => json!(random.pick(&WORDS)),
        4 => (0..random.below(4))
            .map(|_| random_value(random, depth.saturating_sub(1)))
            .collect(),
        _ => random_map(random, depth.saturating_sub(1), &WORDS),
    }
}

fn random_map(random: &mut Random, depth: usize, words: &[&str]) -> Value {
    let count = random.below(6);
    (0..count)
        .map(|_| ((random.pick(words)).to_owned(), random_value(random, depth)))
        .collect::<Map<_, _>>()
        .into()
}

/// JSON with insignificant white space.
fn spaced(value: &Value, random: &mut Random, out: &mut String) {
    let before = random.pick(&["", "", " ", "\n\t"]);
    out.push_str(before);
    match value {
        Value::Object(map) => {
            out.push('{');
            for (nth, (key, member)) in map.iter().enumerate() {
                out.push_str(if nth > 0 { "," } else { "" });
                spaced(&json!(key), random, out);
                out.push(':');
                spaced(member, random, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (nth, item) in items.iter().enumerate() {
                out.push_str(if nth > 0 { "," } else { "" });
                spaced(item, random, out);
            }
            out.push(']');
        }
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            out.push_str(&scalar.to_string());
        }
    }
    let behind = random.pick(&["", "", " "]);
    out.push_str(behind);
}

fn without_the_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.remove(LAST);
        }
    }
    object
}

/// B19.
#[test]
fn trimming_while_decoding_is_decoding_and_then_removing() {
    let mut random = Random(19);
    let (mut dice, _seed) = Dice::new();
    for round in 0..4_000 {
        let words = ["metadata", "annotations", "managedFields", "spec", "name"];
        let object = random_map(&mut random, 4, &words);
        let mut text = String::new();
        spaced(&object, &mut random, &mut text);
        let text = text.trim();
        assert_eq!(
            trimmed(text, dice.places(text.len(), 16)),
            without_the_fields(object),
            "round {round}: {text}"
        );
    }
}

/// A member that is passed over counts with its name, and with the comma before it.
const MANAGED: &str = r#","managedFields":[{"manager":"m","fieldsV1":{"f:}":{}}}]"#;

/// Objects of which a cache passes over members, and one that does not decode.
fn passed_over_in(managed: &str) -> Vec<(String, usize)> {
    let named =
        |name: &str, rest: &str| format!(r#"{{"metadata":{{"name":"{name}"{managed}{rest}}}}}"#);
    let annotation = format!(r#","{LAST}":"{{\"a\":\"b\"}}""#);
    let annotations = format!(r#","annotations":{{"a":"b"{annotation}}}"#);
    vec![
        (named("a", ""), managed.len()),
        (
            named("b", &annotations),
            managed.len().saturating_add(annotation.len()),
        ),
        (named("c", r#","annotations":7"#), 0),
        (named("d", r#","annotations":{"a":"b"}"#), managed.len()),
    ]
}

#[test]
fn what_is_passed_over_is_counted_once_however_it_comes() {
    let options = DecodeOptions::default();
    for managed in [MANAGED, ""] {
        let objects = passed_over_in(managed);
        let expected: usize = objects.iter().map(|(_, skipped)| skipped).sum();
        let texts: Vec<_> = objects.iter().map(|(text, _)| text.as_str()).collect();
        let body = format!(r#"{{"items":[{}]}}"#, texts.join(" , "));
        each_split(body.as_bytes(), |chunks| {
            let mut decoder = ListDecoder::<Secret>::new(&options);
            for chunk in chunks {
                feed(&mut decoder, chunk, &mut |_| {}).unwrap();
            }
            assert_eq!(decoder.skipped_bytes, expected);
            decoder.finish().unwrap();
        });
        // As API servers write it, and as they do not, so that the scanner finds the event's end.
        for space in ["", " "] {
            let event = |text: &&str| format!(r#"{{"type":"ADDED","object":{text}{space}}}"#);
            let events: Vec<_> = texts.iter().map(event).collect();
            let body = format!("{}\n", events.join("\n"));
            each_split(body.as_bytes(), |chunks| {
                let mut decoder = EventDecoder::<Secret>::new(&options);
                for chunk in chunks.into_iter().filter(|chunk| !chunk.is_empty()) {
                    decoder.space()[..chunk.len()].copy_from_slice(chunk);
                    decoder.filled(chunk.len());
                    while decoder.next().unwrap().is_some() {}
                }
                assert_eq!(decoder.skipped_bytes, expected, "{body}");
            });
        }
        for (text, skipped) in &objects {
            let mut counted = 0;
            let decoded = decode_object::<Secret>(text.as_bytes(), &options, &mut counted);
            assert_eq!((counted, decoded.is_ok()), (*skipped, !text.contains(":7")));
        }
    }
}

/// B19.
#[test]
fn the_fields_are_kept_on_request() {
    let body = format!(
        r#"{{"items":[{{"metadata":{{"name":"a","annotations":{{"{LAST}":"x"}},
            "managedFields":[{{"manager":"m"}}]}}}}]}}"#
    );
    for (trim, kept) in [(Trim::Keep, 1), (Trim::Skip, 0)] {
        let options = DecodeOptions::default().trim(trim);
        let mut decoder = ListDecoder::<Secret>::new(&options);
        let mut seen = 0;
        feed(&mut decoder, body.as_bytes(), &mut |item| {
            let Listed::Object(object) = item else {
                panic!("{item:?}");
            };
            let metadata = &object.metadata;
            assert_eq!(metadata.managed_fields.iter().flatten().count(), kept);
            assert_eq!(metadata.annotations.iter().flatten().count(), kept);
            seen += 1;
        })
        .unwrap();
        assert_eq!(seen, 1);
    }
}
