//! The decoder against `serde_json`, on whole values and on broken ones.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::json::Decoder;
use super::mutations::mutate;
use super::*;
use crate::tests::dice::seeds;

/// Decodes bytes that are one value from the first to the last; `None` if they are not.
fn ours<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    let mut decoder = Decoder::new(json);
    let value = decoder.decode::<T>().ok()?;
    let behind = &json[decoder.used()..];
    behind.trim_ascii().is_empty().then_some(value)
}

fn same<T: DeserializeOwned + PartialEq + std::fmt::Debug>(json: &[u8]) {
    let text = String::from_utf8_lossy(json);
    assert_eq!(ours::<T>(json), serde_json::from_slice(json).ok(), "{text}");
}

/// Values, and texts that are not values.
const VALUES: &[&str] = &[
    "0",
    "-0",
    "7",
    "-7",
    "01",
    "-01",
    "-",
    "+1",
    "1.",
    ".5",
    "1.5",
    "-1.25e2",
    "1e5",
    "1E+2",
    "1e",
    "1e-2",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "-9223372036854775809",
    "1e999",
    "1x",
    "true",
    "tru",
    "trues",
    "false",
    "null",
    "nul",
    r#""""#,
    r#""a\n\t\b\f\r\/\\\"b""#,
    r#""\u00e9\ud83d\ude00""#,
    r#""\ud83d""#,
    r#""\ude00""#,
    r#""\ud83dx""#,
    r#""\ud83d\u0041""#,
    r#""\uD8""#,
    r#""\u+0a1""#,
    r#""\x""#,
    r#""\"#,
    "\"\n\"",
    "\"\u{7f}\u{e9}\u{1f600}\"",
    "\"12345678\u{1f}\"",
    r#""0123456789abcdef\"""#,
    "[]",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1,2",
    "[[],{}]",
    "{}",
    r#"{"a":1,}"#,
    r#"{"a" 1}"#,
    r#"{"a":}"#,
    "{a:1}",
    r#"{"a":1 "b":2}"#,
    r#"{"a":1}}"#,
    r#" { "a" : [ 1 , { "b" : null } ] } "#,
    "",
    " ",
    r#"{"a":1,"a":2}"#,
];

#[test]
fn values_come_to_what_they_come_to_in_serde_json() {
    for json in VALUES {
        same::<Value>(json.as_bytes());
        same::<Value>(format!("{{\"k\":[{json}]}}").as_bytes());
        same::<Option<i32>>(json.as_bytes());
        same::<Vec<Option<u8>>>(format!("[{json},1]").as_bytes());
        same::<f64>(json.as_bytes());
        same::<(String, bool)>(format!("[{json},true]").as_bytes());
    }
    for key in ["1", "-1", "300", "x", "true", "1.5"] {
        let json = format!("{{\"{key}\":\"v\"}}");
        same::<BTreeMap<u8, String>>(json.as_bytes());
        same::<BTreeMap<i64, String>>(json.as_bytes());
        same::<BTreeMap<bool, String>>(json.as_bytes());
        same::<BTreeMap<Option<char>, String>>(json.as_bytes());
    }
    for depth in [126, 127, 128, 1_000_000] {
        let json = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(ours::<Value>(json.as_bytes()).is_some(), depth < 128);
    }
    same::<Result<u8, String>>(br#"{"Ok":7}"#);
    same::<Result<u8, String>>(br#"{"Err":"e"}"#);
    same::<Result<u8, String>>(br#""Ok""#);
}

/// For any input, this decoder accepts exactly what `serde_json` accepts.
#[test]
fn mutated_values_come_to_what_they_come_to_in_serde_json() {
    let config_map: &[u8] = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a",
        "labels":{"x\u0041":"\n\ud83d\ude00"},"generation":7,"ownerReferences":[{"uid":"u",
        "controller":true,"apiVersion":"v1","kind":"Node","name":"n"}]},"data":{"k":"v\tv"}}"#;
    let numbers: &[u8] = br#"[1,-2,3.5,-4e2,[true,false,null],{"":[{}],"b":"\\\""}]"#;
    for round in 0..seeds(5_000) {
        let mut random = Random(round);
        let json = mutate(config_map, &mut random);
        same::<Value>(&json);
        same::<ConfigMap>(&json);
        same::<Value>(&mutate(numbers, &mut random));
    }
}
