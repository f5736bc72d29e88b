//! Bodies that are one object.

use super::super::{decode_object, decode_status};
use super::*;
use crate::object::Status;

fn get(body: &str, options: &DecodeOptions) -> String {
    match decode_object::<Secret>(body.as_bytes(), options) {
        Ok(object) => format!("{object:?}"),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn an_object_is_decoded_or_says_why_not() {
    let options = DecodeOptions::default();
    for (body, outcome) in [
        (
            r#" {"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}} "#,
            "Secret a @",
        ),
        (
            r#"{"kind":"Status","apiVersion":"v1","message":"no","reason":"NotFound","code":404}"#,
            "NotFound: no",
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#,
            "Protocol: the answer is v1 Pod, not v1 Secret",
        ),
        (
            r#"{"metadata":{"name":"a"},"data":{"k":["CANARY"]}}"#,
            "Undecodable: Secret a does not decode: data.k: invalid type: sequence, expected a \
             base64-encoded string",
        ),
        (
            r#"{"metadata":{"name":"a"}"#,
            "Protocol: the answer is no JSON object, or is cut off",
        ),
        (
            r#"{"metadata":{"name":"a"}}}"#,
            "Protocol: the answer is no JSON object, or is cut off",
        ),
        (
            "CANARY",
            "Protocol: the answer is no JSON object, or is cut off",
        ),
        ("", "Protocol: the answer is no JSON object, or is cut off"),
        (
            r#"{"metadata":{"name" "a"}}"#,
            "Protocol: the answer is not JSON: expected `:`",
        ),
        (
            r#"[{"metadata":{"name":"a"}}]"#,
            "Protocol: the answer is no JSON object, or is cut off",
        ),
    ] {
        assert_eq!(get(body, &options), outcome, "{body}");
    }
    let small = options.item_bytes_max(10);
    assert_eq!(
        get(r#"{"metadata":{}}"#, &small),
        "TooLarge: the object is larger than 10 bytes; DecodeOptions::item_bytes_max raises the \
         limit"
    );
}

#[test]
fn a_status_is_one_by_its_kind_alone() {
    for (body, message) in [
        (r#"{"kind":"Status","message":"m","code":500}"#, Some("m")),
        (
            "{\n \"kind\": \"Status\",\n \"message\": \"m\"\n}\n",
            Some("m"),
        ),
        (r#"{"kind":"Status","message":"m","details":7}"#, Some("m")),
        (
            r#"{"kind":"Status","message":["CANARY"],"code":500}"#,
            Some(
                "the server's status does not decode: message: invalid type: sequence, \
                 expected a string",
            ),
        ),
        (r#"{"message":"m","code":500}"#, None),
        (r#"{"kind":"Secret"}"#, None),
        (r#"{"kind":"Status"} x"#, None),
        ("<html>", None),
        ("", None),
    ] {
        let status = decode_status(body.as_bytes());
        assert_eq!(status.as_ref().map(Status::message), message, "{body}");
    }
}
