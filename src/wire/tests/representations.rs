//! Objects kept as text, and metadata alone: they equal decoded objects in all that caches read.

use k8s_openapi::api::core::v1::ConfigMap;

use super::mutations::mutated_lists;
use super::*;
use crate::wire::{Compact, Dynamic, Metadata, decode_object, undecodable_reads};

const POD: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop",
    "uid":"u-1","resourceVersion":"7","creationTimestamp":"2026-01-02T03:04:05Z",
    "labels":{"app":"web","tier":"front"},"managedFields":[{"manager":"kubelet"}],
    "annotations":{"a/b":"c","quoted":"\"x\""}},
    "spec":{"nodeName":"node-1","containers":[{"name":"a"},{"name":"b","image":"i"}]}}"#;

fn objects_of<K: Object>(body: &[u8]) -> Vec<Listed<K>> {
    let mut decoder = ListDecoder::<K>::new(&DecodeOptions::default());
    let mut items = Vec::new();
    drop(feed(&mut decoder, body, &mut |item| items.push(item)));
    items
}

fn looks<K: Object>(item: &Listed<K>) -> (String, String, String, Option<String>) {
    let label = item.decoded().and_then(|object| object.label("app"));
    (
        item.key().to_string(),
        item.uid().to_owned(),
        item.resource_version().to_string(),
        label.map(str::to_owned),
    )
}

#[test]
fn text_and_decoded_objects_look_the_same_and_read_the_same() {
    let (mut read, mut refused) = (0, 0);
    // Kept text must be UTF-8 throughout; a decoded object drops the bytes of unknown fields.
    let bodies = mutated_lists(6_000).filter(|body| std::str::from_utf8(body).is_ok());
    for body in bodies {
        let decoded = objects_of::<Secret>(&body);
        let kept = objects_of::<Compact<Secret>>(&body);
        let shown = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(decoded.len(), kept.len(), "{shown}");
        for (decoded, kept) in decoded.iter().zip(&kept) {
            let text = match kept {
                Listed::Object(text) => text,
                // An item is set aside if it is not an object, is of another kind, or has no plain
                // name.
                Listed::Undecodable(aside) => {
                    let plain = |c: char| !c.is_control() && c != '"' && c != '\\';
                    let has_plain_name =
                        aside.key.to_string().chars().all(plain) && aside.uid.chars().all(plain);
                    assert!(!has_plain_name || decoded.decoded().is_none(), "{shown}");
                    continue;
                }
            };
            match (decoded, text.get()) {
                (Listed::Object(decoded), Ok(got)) => {
                    assert!(**got == ***decoded, "{shown}");
                    assert_eq!(looks(&Listed::Object(got)), looks(kept), "{shown}");
                    read += 1;
                }
                (Listed::Undecodable(aside), Err(error)) => {
                    assert_eq!(aside.key, text.key(), "{shown}");
                    assert_eq!(aside.error.to_string(), error.to_string(), "{shown}");
                    refused += 1;
                }
                (decoded, got) => panic!("{}, {}: {shown}", decoded.key(), got.is_ok()),
            }
        }
    }
    assert!(
        read > 1_000 && refused > 5,
        "{read} read, {refused} refused"
    );
}

#[test]
fn fields_are_read_without_the_rest() {
    let pod = serde_json::from_slice::<Compact<Pod>>(POD).unwrap();
    assert_eq!(
        (pod.namespace(), pod.name(), pod.uid()),
        ("shop", "web", "u-1")
    );
    assert_eq!(
        (pod.resource_version_text(), pod.label("tier")),
        ("7", Some("front"))
    );
    assert_eq!(pod.label("none"), None);
    let created = pod.creation_timestamp().unwrap();
    assert_eq!(created.0.to_string(), "2026-01-02T03:04:05Z");
    assert_eq!(pod.field("/spec/nodeName").unwrap(), Some("node-1"));
    let image: Option<String> = pod.field("/spec/containers/1/image").unwrap();
    assert_eq!(image.as_deref(), Some("i"));
    assert_eq!(pod.field("/metadata/annotations/a~1b").unwrap(), Some("c"));
    for nothing in [
        "/spec/none",
        "/spec/containers/2/image",
        "/spec/nodeName/x",
        "/status",
    ] {
        assert_eq!(pod.field::<String>(nothing).unwrap(), None, "{nothing}");
    }
    let before = undecodable_reads();
    let error = pod.field::<u32>("/spec/nodeName").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Pod shop/web does not decode at /spec/nodeName: invalid type: string, expected u32"
    );
    let text = pod.field::<&str>("/metadata/annotations/quoted");
    assert!(text.is_err(), "an escape cannot be borrowed");
    assert!(undecodable_reads() >= before + 2);
}

/// An invalid pointer reads nothing: the whole object is not the field `spec`.
#[test]
fn a_pointer_without_a_slash_is_an_error() {
    let pod = serde_json::from_slice::<Compact<Pod>>(POD).unwrap();
    let dynamic = serde_json::from_slice::<Dynamic>(POD).unwrap();
    for pointer in ["spec", "spec/nodeName", "metadata", " /spec", "~1spec", "."] {
        let why = format!(
            "Pod shop/web does not decode at {pointer}: a JSON pointer is empty or begins with \
             \"/\""
        );
        let before = undecodable_reads();
        let of_pod = pod.field::<serde_json::Value>(pointer).unwrap_err();
        let of_any = dynamic.field::<serde_json::Value>(pointer).unwrap_err();
        assert_eq!([of_pod.to_string(), of_any.to_string()], [why.clone(), why]);
        assert!(undecodable_reads() >= before + 2);
    }
    for whole in [pod.field::<serde_json::Value>(""), dynamic.field("")] {
        let whole = whole.unwrap().unwrap();
        assert_eq!(whole["metadata"]["name"], "web");
    }
    for number in ["+0", "00", "-1", "", " 0", "99999999999999999999999"] {
        let pointer = format!("/spec/containers/{number}/name");
        assert_eq!(pod.field::<&str>(&pointer).unwrap(), None, "{number}");
    }
    assert_eq!(pod.field("/spec/containers/0/name").unwrap(), Some("a"));
}

/// The text of an object that trims itself, and of one that the decoder trimmed.
fn texts<K: Object>(json: &str) -> [String; 2] {
    let mut kept = serde_json::from_str::<K>(json).unwrap();
    kept.trim();
    let options = DecodeOptions::default();
    let decoded = decode_object::<Dynamic>(json.as_bytes(), &options, &mut 0).unwrap();
    assert_eq!((kept.name(), kept.resource_version_text()), ("web", "7"));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let kept: &dyn std::any::Any = &kept;
    let kept = match (kept.downcast_ref::<Dynamic>(), kept.downcast_ref()) {
        (Some(dynamic), _) => dynamic.json(),
        (_, Some(compact)) => Compact::<Pod>::json(compact),
        _ => panic!("no text"),
    };
    [text(kept), text(decoded.json())]
}

/// B19: an object that came untrimmed is trimmed like a decoded one, in every representation.
#[test]
fn b19_every_representation_trims_itself() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let json = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"web","resourceVersion":"7",
        "managedFields":[{{"manager":"m"}}],"annotations":{{"a":"b","{LAST}":"{{}}\n"}}}}}}"#
    );
    for [trimmed, expected] in [texts::<Dynamic>(&json), texts::<Compact<Pod>>(&json)] {
        assert_eq!(trimmed, expected);
        assert!(!trimmed.contains("applied") && !trimmed.contains("managed"));
    }
    let mut metadata = serde_json::from_str::<Metadata<Pod>>(&json).unwrap();
    assert!(metadata.metadata.managed_fields.is_some());
    metadata.trim();
    assert_eq!(metadata.metadata.managed_fields, None);
    let left = metadata.metadata.annotations.unwrap();
    assert_eq!(left, [("a".to_owned(), "b".to_owned())].into());
}

/// B19: the text is what the server sent, byte by byte, but for what is passed over.
#[test]
fn b19_the_text_stands_as_it_was_sent() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let last = format!(r#""{LAST}":"{{\"a\":1}}\n""#);
    let rows = [
        (
            r#"{"metadata":{"name":"a"},"n": [ 1.50e2,-0, "\u003c\t" ,{}]}"#.to_owned(),
            None,
        ),
        (
            r#"{"metadata":{"managedFields":[{"f":{}}],"name":"a"}}"#.to_owned(),
            Some(r#"{"metadata":{"name":"a"}}"#),
        ),
        (
            r#"{"metadata":{"name":"a" , "managedFields":[ ] }}"#.to_owned(),
            Some(r#"{"metadata":{"name":"a"}}"#),
        ),
        (
            format!(r#"{{"metadata":{{"managedFields":1,"annotations":{{{last}}},"name":"a"}}}}"#),
            Some(r#"{"metadata":{"annotations":{},"name":"a"}}"#),
        ),
        (
            format!(r#"{{"metadata":{{"annotations":{{"a":"b",{last},"c":"d"}},"name":"a"}}}}"#),
            Some(r#"{"metadata":{"annotations":{"a":"b","c":"d"},"name":"a"}}"#),
        ),
        (
            format!(r#"{{"metadata":{{"annotations":{{ {last} ,"c":"d"}},"name":"a"}},"x":1}}"#),
            Some(r#"{"metadata":{"annotations":{"c":"d"},"name":"a"},"x":1}"#),
        ),
    ];
    for (sent, expected) in rows {
        let options = DecodeOptions::default();
        let kept = decode_object::<Dynamic>(sent.as_bytes(), &options, &mut 0).unwrap();
        let text = std::str::from_utf8(kept.json()).unwrap();
        assert_eq!(text, expected.unwrap_or(&sent));
        assert_eq!(kept.name(), "a");
    }
    for broken in [
        "[1,]",
        "{\"a\":01}",
        "\"\\x\"",
        "\"\\ud800\"",
        "tru",
        "\"\t\"",
        "{\"a\" 1}",
    ] {
        let json = format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"x":[0,{broken}]}}}}"#);
        let error = decode_object::<Dynamic>(json.as_bytes(), &DecodeOptions::default(), &mut 0);
        assert!(error.is_err(), "{json}");
    }
}

#[test]
fn a_name_that_needs_escapes_is_no_name() {
    let of = |name: &str| {
        let json = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        serde_json::from_str::<Dynamic>(&json)
    };
    assert_eq!(of("a\\u0062").unwrap().name(), "ab");
    let json = br#"{"metadata":{"labels":{"a\u0062":"c\u0064"},"name":"a\u0062"},"data":"\u0065"}"#;
    let sent = decode_object::<Dynamic>(json, &DecodeOptions::default(), &mut 0).unwrap();
    assert_eq!((sent.name(), sent.label("ab")), ("ab", Some("cd")));
    let error = of("a\\\"b").unwrap_err().to_string();
    assert!(
        error.starts_with("metadata.name: expected a string"),
        "{error}"
    );
}

#[test]
fn a_dynamic_object_is_of_any_kind() {
    for kind in ["Rack", "Pod"] {
        let body = format!(
            r#"{{"kind":"{kind}List","apiVersion":"example.com/v1","metadata":
            {{"resourceVersion":"3"}},"items":[{{"kind":"{kind}","apiVersion":"example.com/v1",
            "metadata":{{"name":"a","resourceVersion":"2"}},"spec":{{"units":42}}}}]}}"#
        );
        let items = objects_of::<Dynamic>(body.as_bytes());
        let object = items[0].decoded().unwrap();
        assert_eq!(object.field("/spec/units").unwrap(), Some(42));
        assert_eq!(object.field("/kind").unwrap(), Some(kind));
    }
}

/// A list of one object, with or without its kind.
fn list_saying(kind: &str, of: &str, item: &str) -> String {
    format!(
        r#"{{"kind":"{kind}List","apiVersion":"{of}","metadata":{{"resourceVersion":"3"}},
        "items":[{{"data":{{"k":"Q0FOQVJZ"}},{item}"metadata":{{"name":"a",
        "labels":{{"app":"x"}}}},"spec":{{"metadata":{{"name":"b"}}}}}}]}}"#
    )
}

#[test]
fn metadata_is_taken_out_of_whole_objects_of_the_kind_and_no_other() {
    let says = |kind: &str, of: &str| format!(r#""kind":"{kind}","apiVersion":"{of}","#);
    let partial = ("PartialObjectMetadata", "meta.k8s.io/v1");
    let whole = ("ConfigMap", "v1");
    for (kind, of) in [partial, whole] {
        for item in [says(kind, of), String::new()] {
            let list = list_saying(kind, of, &item);
            let outcome = list_of::<Metadata<ConfigMap>>([&list], &DecodeOptions::default());
            assert_eq!(outcome.items, ["ConfigMap a @"], "{list}");
            assert_eq!(outcome.end.unwrap().resource_version.as_str(), "3");
            let items = objects_of::<Metadata<ConfigMap>>(list.as_bytes());
            assert_eq!(items[0].decoded().unwrap().label("app"), Some("x"));
            let items = objects_of::<Compact<Metadata<ConfigMap>>>(list.as_bytes());
            let text = std::str::from_utf8(items[0].decoded().unwrap().json()).unwrap();
            assert!(
                !text.contains("data\":{\"k") && !text.contains("spec"),
                "{text}"
            );
        }
    }
    let (of_metadata, of_group) = ("meta.k8s.io/v1", "apps/v1");
    for (kind, of) in [
        ("Secret", "v1"),
        ("ConfigMap", of_metadata),
        ("ConfigMap", of_group),
        ("PartialObjectMetadata", "v1"),
    ] {
        let list = list_saying(kind, of, &says(kind, of));
        let outcome = list_of::<Metadata<ConfigMap>>([&list], &DecodeOptions::default());
        assert!(outcome.items[0].starts_with("aside"), "{outcome:?}");
        let ours = "not meta.k8s.io/v1 PartialObjectMetadataList or v1 ConfigMapList";
        assert!(outcome.error().ends_with(ours), "{outcome:?}");
        let whole = says(kind, of);
        let whole = format!(r#"{{{whole}"metadata":{{"name":"a"}}}}"#);
        let got = decode_object::<Metadata<ConfigMap>>(
            whole.as_bytes(),
            &DecodeOptions::default(),
            &mut 0,
        );
        let ours = "not meta.k8s.io/v1 PartialObjectMetadata or v1 ConfigMap";
        let error = got.unwrap_err().to_string();
        assert!(error.ends_with(ours), "{error}");
        assert!(outcome.items[0].contains(ours), "{outcome:?}");
    }
}

#[test]
fn metadata_is_taken_out_of_events_of_whole_objects_and_their_bookmarks() {
    let events = |kind: &str| {
        let object = format!(r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"name":"a"}}}}"#);
        let version = r#"{"resourceVersion":"9"}"#;
        let body = format!(
            r#"{{"type":"ADDED","object":{object}}}
{{"object":{object},"type":"MODIFIED"}}
{{"type":"BOOKMARK","object":{{"kind":"{kind}","apiVersion":"v1","metadata":{version}}}}}
"#
        );
        watch_of::<Metadata<ConfigMap>>([body], &DecodeOptions::default())
    };
    let taken = [
        "Added(ConfigMap a @)",
        "Updated(ConfigMap a @)",
        "bookmark @9",
    ];
    assert_eq!(events("ConfigMap"), taken);
    let foreign = events("Secret");
    let is_foreign = |event: &String| event.starts_with("skipped @: Unexpected");
    assert!(foreign.iter().all(is_foreign), "{foreign:?}");
}

/// A type of any kind takes a status for an error, and so does its metadata.
#[test]
fn a_status_is_an_error_for_objects_of_any_kind() {
    let status = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"message":"no","code":403}"#;
    let options = DecodeOptions::default();
    let errors = [
        decode_object::<Dynamic>(status, &options, &mut 0).map(drop),
        decode_object::<Metadata<Dynamic>>(status, &options, &mut 0).map(drop),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().kind(), crate::ErrorKind::Forbidden);
    }
}

#[test]
fn debug_prints_no_byte_of_the_text() {
    let json =
        br#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"1"},"data":"CANARY"}"#;
    let compact = serde_json::from_slice::<Compact<Secret>>(json).unwrap();
    let dynamic = serde_json::from_slice::<Dynamic>(json).unwrap();
    assert_eq!(format!("{compact:?} {dynamic:?}"), "Secret n/a @1 n/a @1");
}
