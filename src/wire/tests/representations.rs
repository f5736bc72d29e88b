//! Objects that are kept as text, and metadata alone: the same as decoded objects in all that
//! caches look at.

use k8s_openapi::api::core::v1::ConfigMap;

use super::mutations::mutated_lists;
use super::*;
use crate::wire::{Compact, Dynamic, Metadata, undecodable_reads};

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
    // Text that is kept must be UTF-8 throughout; a decoded object has no bytes of unknown fields.
    let bodies = mutated_lists(6_000).filter(|body| std::str::from_utf8(body).is_ok());
    for body in bodies {
        let decoded = objects_of::<Secret>(&body);
        let kept = objects_of::<Compact<Secret>>(&body);
        let shown = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(decoded.len(), kept.len(), "{shown}");
        for (decoded, kept) in decoded.iter().zip(&kept) {
            let text = match kept {
                Listed::Object(text) => text,
                // What is no object, of another kind, or has no plain name is set aside.
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
    assert_eq!((pod.version(), pod.label("tier")), ("7", Some("front")));
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

#[test]
fn a_name_that_needs_escapes_is_no_name() {
    let of = |name: &str| {
        let json = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        serde_json::from_str::<Dynamic>(&json)
    };
    assert_eq!(of("a\\u0062").unwrap().name(), "ab");
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

#[test]
fn metadata_alone_must_be_metadata_alone() {
    let list = |kind: &str, of: &str| {
        format!(
            r#"{{"kind":"{kind}List","apiVersion":"{of}","metadata":{{"resourceVersion":"3"}},
            "items":[{{"kind":"{kind}","apiVersion":"{of}","metadata":{{"name":"a",
            "labels":{{"app":"x"}}}}}}]}}"#
        )
    };
    let partial = list("PartialObjectMetadata", "meta.k8s.io/v1");
    let items = objects_of::<Metadata<ConfigMap>>(partial.as_bytes());
    assert_eq!(items[0].decoded().unwrap().label("app"), Some("x"));
    let whole = list("ConfigMap", "v1");
    let outcome = list_of::<Metadata<ConfigMap>>([whole], &DecodeOptions::default());
    assert!(outcome.items[0].starts_with("aside"), "{outcome:?}");
    assert!(
        outcome
            .error()
            .contains("not meta.k8s.io/v1 PartialObjectMetadataList"),
        "{outcome:?}"
    );
}

#[test]
fn debug_prints_no_byte_of_the_text() {
    let json =
        br#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"1"},"data":"CANARY"}"#;
    let compact = serde_json::from_slice::<Compact<Secret>>(json).unwrap();
    let dynamic = serde_json::from_slice::<Dynamic>(json).unwrap();
    assert_eq!(format!("{compact:?} {dynamic:?}"), "Secret n/a @1 n/a @1");
}
