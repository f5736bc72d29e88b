//! Bodies that are one object.

use super::super::{decode_object, decode_status};
use super::*;
use crate::object::Status;

fn get(body: &str, options: &DecodeOptions) -> String {
    match decode_object::<Secret>(body.as_bytes(), options, &mut 0) {
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

/// A time beyond the range of the `k8s-openapi` types does not cost the object.
#[test]
fn a_time_at_the_end_of_the_calendar_is_the_last_one_that_can_be_held() {
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::jiff::Timestamp;
    let options = DecodeOptions::default();
    for late in ["9999-12-31T23:59:59Z", "9999-12-31T23\\u003a59:59.000001Z"] {
        let metadata = format!(
            r#""metadata":{{"name":"a","creationTimestamp":"{late}","deletionTimestamp":"{late}"}}"#
        );
        let body = format!(r#"{{{metadata},"data":{{"until":"MTIz"}}}}"#);
        let secret = decode_object::<Secret>(body.as_bytes(), &options, &mut 0).unwrap();
        let metadata_of = |held: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            let created = held.creation_timestamp.as_ref().map(|time| time.0);
            let deleted = held.deletion_timestamp.as_ref().map(|time| time.0);
            [created, deleted]
        };
        assert_eq!(metadata_of(&secret.metadata), [Some(Timestamp::MAX); 2]);
        assert_eq!(secret.data.as_ref().unwrap()["until"].0, b"123");
        let body = format!(r#"{{{metadata},"spec":{{"renewTime":"{late}"}}}}"#);
        let lease = decode_object::<Lease>(body.as_bytes(), &options, &mut 0).unwrap();
        let renewed = lease.spec.as_ref().unwrap().renew_time.as_ref().unwrap();
        assert_eq!(renewed.0, Timestamp::MAX);
    }
    let body = r#"{"metadata":{"name":"a"},"data":{"until":"9999-12-31T23:59:59Z"}}"#;
    let map = decode_object::<ConfigMap>(body.as_bytes(), &options, &mut 0).unwrap();
    assert_eq!(
        map.data.as_ref().unwrap()["until"],
        "9999-12-31T23:59:59Z",
        "no time"
    );
    let body = r#"{"metadata":{"name":"a","creationTimestamp":"9999-12-32T00:00:00Z"}}"#;
    let error = decode_object::<ConfigMap>(body.as_bytes(), &options, &mut 0).unwrap_err();
    assert!(
        error.to_string().contains("metadata.creationTimestamp: "),
        "{error}"
    );
}
