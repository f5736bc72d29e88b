//! Reasons name the field and the types but no value, whatever the type's own error says.

use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Unexpected};

use super::super::json::Decoder;
use super::*;

fn pod(body: &str) -> String {
    let body = format!(r#"{{"items":[{body}]}}"#);
    let outcome = list_of::<Pod>([body.as_bytes()], &DecodeOptions::default());
    outcome.end.unwrap();
    outcome.items[0].clone()
}

/// B12: the reason names the field.
#[test]
fn the_field_is_named_by_its_path() {
    for (members, reason) in [
        (
            concat!(
                r#""spec":{"containers":[{"name":"a"},"#,
                r#"{"name":"b","ports":[{"containerPort":"CANARY"}]}]}"#
            ),
            "spec.containers[1].ports[0].containerPort: invalid type: string, expected i32",
        ),
        (
            r#""spec":{"priority":99999999999}"#,
            "spec.priority: invalid value: integer, expected i32",
        ),
        (
            r#""spec":{"priority":1.5}"#,
            "spec.priority: invalid type: floating point, expected i32",
        ),
        (
            r#""spec":{"nodeName":1.5}"#,
            "spec.nodeName: invalid type: floating point, expected a string",
        ),
        (
            r#""spec":{"containers":{}}"#,
            "spec.containers: invalid type: map, expected a sequence",
        ),
        (
            r#""spec":[]"#,
            "spec: invalid type: sequence, expected PodSpec",
        ),
        (
            r#""spec":true"#,
            "spec: invalid type: boolean, expected PodSpec",
        ),
        (
            r#""spec" : { "nodeSelector" : { "a.b/c" : 7 } }"#,
            "spec.nodeSelector[\"a.b/c\"]: invalid type: integer, expected a string",
        ),
        (
            "\"status\":{\n\"phase\":\n  null, \"startTime\":\"CANARY\"}",
            "status.startTime: the value is not acceptable",
        ),
        (
            r#""spec":{"overhead":{"a":"1"},"hostNetwork":"CANARY"}"#,
            "spec.hostNetwork: invalid type: string, expected a boolean",
        ),
    ] {
        let item = format!(r#"{{"metadata":{{"name":"p"}},{members}}}"#);
        assert_eq!(
            pod(&item),
            format!("aside p: Pod p does not decode: {reason}")
        );
        // The path is right even where trimming moved the text.
        let item =
            format!(r#"{{"metadata":{{"managedFields":[{{"x":"\n"}}],"name":"p"}},{members}}}"#);
        assert_eq!(
            pod(&item),
            format!("aside p: Pod p does not decode: {reason}")
        );
    }
}

#[test]
fn text_that_is_no_unicode_sets_the_object_aside() {
    let mut body = br#"{"items":[{"metadata":{"name":"c"},"data":{"k":"_"}}]}"#.to_vec();
    let at = body.iter().position(|byte| *byte == b'_').unwrap();
    body[at] = 0xff;
    let outcome = list_of::<ConfigMap>([&*body], &DecodeOptions::default());
    assert_eq!(
        outcome.items,
        ["aside c: ConfigMap c does not decode: data.k: invalid unicode code point"]
    );
}

/// A type whose errors quote their input, in every way that `serde` has and in its own.
struct Chatty;

impl<'de> Deserialize<'de> for Chatty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (how, value) = text.split_once(':').unwrap();
        Err(match how {
            "type" => D::Error::invalid_type(Unexpected::Str(value), &"a number"),
            "value" => D::Error::invalid_value(Unexpected::Other(value), &"another word"),
            "char" => D::Error::invalid_value(Unexpected::Char('C'), &"another letter"),
            "variant" => D::Error::unknown_variant(value, &["A", "B"]),
            "field" => D::Error::unknown_field(value, &["a", "b"]),
            "nofield" => D::Error::unknown_field(value, &[]),
            "missing" => D::Error::missing_field("image"),
            _ => D::Error::custom(format!("what is {value}?")),
        })
    }
}

#[test]
fn no_value_is_repeated_however_the_type_words_its_error() {
    for (how, reason) in [
        ("type", "a.b: invalid type: string, expected a number"),
        ("value", "a.b: invalid value: value, expected another word"),
        (
            "char",
            "a.b: invalid value: character, expected another letter",
        ),
        ("variant", "a.b: unknown variant, expected `A` or `B`"),
        ("field", "a.b: unknown field, expected `a` or `b`"),
        ("nofield", "a.b: unknown field"),
        ("missing", "a.b: missing field `image`"),
        ("custom", "a.b: the value is not acceptable"),
    ] {
        for canary in [
            "CANARY",
            "\\\"CANARY\\\"",
            "CANARY`, expected CANARY",
            "x, expected CANARY at line 1 column 1",
            "boolean `CANARY`",
            "CANARY\\nCANARY",
        ] {
            let json = format!(r#"{{"a":{{"b":"{how}:{canary}"}}}}"#);
            let why = Decoder::new(json.as_bytes()).decode::<Nested>();
            let why = why.err().unwrap();
            assert!(!why.contains("CANARY"), "{why}");
            if canary == "CANARY" {
                assert_eq!(why, reason);
            }
        }
    }
}

/// Each decodes into more memory than it has bytes.
#[test]
fn an_object_of_more_maps_than_any_has_does_not_decode() {
    let owned = |count: usize| {
        let empty = "{},".repeat(count - 1);
        pod(&format!(
            r#"{{"metadata":{{"name":"a","ownerReferences":[{empty}{{}}]}}}}"#
        ))
    };
    assert!(owned(500_000).starts_with("Pod a @"));
    let refused = owned(786_432);
    let why = "metadata.ownerReferences[786429]: more than 786432 maps and lists";
    assert!(refused.ends_with(why), "{refused}");
}

/// `{"a":{"b":…}}`.
struct Nested;

impl<'de> Deserialize<'de> for Nested {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        type Members<V> = std::collections::BTreeMap<String, V>;
        Members::<Members<Chatty>>::deserialize(deserializer).map(|_| Self)
    }
}
