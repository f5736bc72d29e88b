//! The table: fault by user.

use kubecache::ErrorKind;
use kubecache::testing::FAULTS;

use super::in_tls;
use super::stage::{Row, Stage, faults, meet};

faults! {
    meet(Stage::new);
    refuse {
        fault: r#"{"act":"refuse"}"#,
        // All of them have kept a connection.
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: Some(ErrorKind::Unreachable),
        hangs: false,
    }
    silent {
        fault: r#"{"act":"silent"}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: true,
    }
    status_500 {
        fault: r#"{"act":"status","code":500,"reason":"InternalError"}"#,
        reads: ["Api", "Api", "one", "Api"],
        says: "told to answer 500",
        kept: "-",
        told: Some(ErrorKind::Api),
        hangs: false,
    }
    status_403_for_a_while {
        fault: r#"{"act":"status","code":403,"reason":"Forbidden"}"#,
        reads: ["Forbidden", "Forbidden", "one", "Forbidden"],
        says: "told to answer 403",
        kept: "-",
        told: Some(ErrorKind::Forbidden),
        hangs: false,
    }
    status_404_for_a_kind {
        fault: r#"{"act":"status","code":404,"reason":"NotFound"}"#,
        reads: ["NotFound", "NotFound", "NotFound", "NotFound"],
        says: "told to answer 404",
        kept: "-",
        told: Some(ErrorKind::NotFound),
        hangs: false,
    }
    status_409 {
        fault: r#"{"act":"status","code":409,"reason":"Conflict"}"#,
        reads: ["Api", "Api", "one", "Api"],
        says: "told to answer 409",
        kept: "-",
        told: Some(ErrorKind::Api),
        hangs: false,
    }
    status_410 {
        fault: r#"{"act":"status","code":410,"reason":"Expired"}"#,
        reads: ["Expired", "Expired", "one", "Expired"],
        says: "told to answer 410",
        kept: "-",
        told: Some(ErrorKind::Expired),
        hangs: false,
    }
    status {
        fault: r#"{"act":"status","code":429,"reason":"TooManyRequests",
            "retryAfterSeconds":3600}"#,
        reads: ["TooManyRequests", "TooManyRequests", "one", "TooManyRequests"],
        says: "told to answer 429",
        kept: "-",
        told: Some(ErrorKind::TooManyRequests),
        hangs: true,
    }
    hang {
        fault: r#"{"act":"hang"}"#,
        reads: ["Timeout", "Timeout", "one", "Timeout"],
        says: "on a second connection",
        kept: "-",
        told: None,
        hangs: true,
    }
    unauthorized {
        fault: r#"{"act":"unauthorized"}"#,
        reads: ["Unauthorized", "Unauthorized", "one", "Unauthorized"],
        says: "",
        kept: "-",
        told: Some(ErrorKind::Unauthorized),
        hangs: false,
    }
    too_large_version {
        fault: r#"{"act":"too-large-version"}"#,
        reads: ["Api", "Api", "one", "Api"],
        says: "Too large resource version",
        kept: "-",
        told: Some(ErrorKind::Api),
        hangs: true,
    }
    html {
        fault: r#"{"act":"html"}"#,
        reads: ["Protocol", "Protocol", "one", "Protocol"],
        says: "is this a Kubernetes API server?",
        kept: "-",
        told: Some(ErrorKind::Protocol),
        hangs: false,
    }
    redirect {
        fault: r#"{"act":"redirect","to":"http://127.0.0.1:1/"}"#,
        reads: ["Protocol", "Protocol", "one", "Protocol"],
        says: "redirects are not followed",
        kept: "-",
        told: Some(ErrorKind::Protocol),
        hangs: false,
    }
    echo_headers {
        fault: r#"{"act":"echo-headers"}"#,
        reads: ["Api", "Api", "one", "Api"],
        says: "this request is not understood",
        kept: "-",
        told: Some(ErrorKind::Api),
        hangs: false,
    }
    control_characters {
        fault: r#"{"act":"control-characters"}"#,
        reads: ["Api", "Api", "one", "Api"],
        says: "a\\u{1b}[2J",
        kept: "-",
        told: Some(ErrorKind::Api),
        hangs: false,
    }
    watch_error {
        fault: r#"{"act":"watch-error","code":500,"reason":"InternalError"}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: Some(ErrorKind::Api),
        hangs: false,
    }
    watch_expired {
        fault: r#"{"act":"watch-error","code":410,"reason":"Expired"}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: Some(ErrorKind::Expired),
        hangs: false,
    }
    unfinished {
        fault: r#"{"act":"unfinished","part":"item","mebibytes":64}"#,
        reads: ["TooLarge", "TooLarge", "one", "TooLarge"],
        says: "an item of the list is larger than 16777216 bytes",
        kept: "-",
        told: Some(ErrorKind::TooLarge),
        hangs: false,
    }
    unfinished_body {
        fault: r#"{"act":"unfinished","part":"body","mebibytes":64}"#,
        reads: ["TooLarge", "TooLarge", "one", "TooLarge"],
        says: "the object is larger than 16777216 bytes",
        kept: "-",
        told: Some(ErrorKind::TooLarge),
        hangs: false,
    }
    unfinished_line {
        fault: r#"{"act":"unfinished","part":"line","mebibytes":64,"watch":true}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: Some(ErrorKind::TooLarge),
        hangs: false,
    }
    gzip_bomb {
        fault: r#"{"act":"gzip-bomb","mebibytes":512}"#,
        reads: ["Protocol", "TooLarge", "one", "Protocol"],
        says: "which the request does not accept",
        kept: "-",
        told: Some(ErrorKind::TooLarge),
        hangs: false,
    }
    wrong_kind {
        fault: r#"{"act":"wrong-kind"}"#,
        reads: ["Protocol", "Protocol", "one", "Protocol"],
        says: "the answer is v1 Wrong, not v1 Secret",
        kept: "-",
        told: Some(ErrorKind::Protocol),
        hangs: false,
    }
    wrong_names {
        fault: r#"{"act":"wrong-names"}"#,
        reads: ["Protocol", "2 objects", "one", "Protocol"],
        says: "the answer is another object, shop/other-db",
        kept: "nothing",
        told: None,
        hangs: false,
    }
    unnamed {
        fault: r#"{"act":"unnamed"}"#,
        reads: ["Undecodable", "Undecodable", "Undecodable", "Undecodable"],
        says: "metadata.name: missing",
        kept: "nothing",
        told: None,
        hangs: false,
    }
    undecodable {
        fault: r#"{"act":"undecodable"}"#,
        reads: ["Undecodable", "Undecodable", "Undecodable", "Undecodable"],
        says: "metadata.labels: invalid type",
        kept: "Undecodable",
        told: None,
        hangs: false,
    }
    not_utf_8 {
        fault: r#"{"act":"not-utf-8"}"#,
        reads: ["Undecodable", "Undecodable", "Undecodable", "Undecodable"],
        says: "invalid unicode code point",
        kept: "Undecodable",
        told: None,
        hangs: false,
    }
    deep {
        fault: r#"{"act":"deep","levels":100000}"#,
        reads: ["Undecodable", "Undecodable", "Undecodable", "Undecodable"],
        says: "expected a string",
        kept: "Undecodable",
        told: None,
        hangs: false,
    }
    huge_number {
        fault: r#"{"act":"huge-number"}"#,
        reads: ["Undecodable", "Undecodable", "Undecodable", "Undecodable"],
        says: "number out of range",
        kept: "Undecodable",
        told: None,
        hangs: false,
    }
    older_versions {
        fault: r#"{"act":"older-versions","by":3}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: false,
    }
    no_bookmarks {
        fault: r#"{"act":"no-bookmarks"}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: false,
    }
    no_events {
        fault: r#"{"act":"no-events"}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: false,
    }
    heartbeats {
        fault: r#"{"act":"heartbeats","everyMilliseconds":1000}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: false,
    }
    duplicate_events {
        fault: r#"{"act":"duplicate-events"}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: false,
    }
    reorder_events {
        fault: r#"{"act":"reorder-events"}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: false,
    }
    gzip_cut {
        fault: r#"{"act":"gzip-cut"}"#,
        reads: ["Protocol", "Protocol", "one", "Protocol"],
        says: "the answer was cut off",
        kept: "-",
        told: Some(ErrorKind::Protocol),
        hangs: false,
    }
    hang_after {
        fault: r#"{"act":"hang-after","bytes":100}"#,
        reads: ["Timeout", "Timeout", "one", "Timeout"],
        says: "nothing came for 1.0s",
        kept: "-",
        told: None,
        hangs: true,
    }
    cut_after {
        fault: r#"{"act":"cut-after","bytes":100}"#,
        reads: ["Protocol", "Protocol", "one", "Protocol"],
        says: "the answer was cut off",
        kept: "-",
        told: Some(ErrorKind::Protocol),
        hangs: false,
    }
    drip {
        fault: r#"{"act":"drip","bytes":1,"everyMilliseconds":5000}"#,
        reads: ["Timeout", "Timeout", "one", "Timeout"],
        says: "nothing came for 1.0s",
        kept: "-",
        told: None,
        hangs: true,
    }
    stall_head {
        fault: r#"{"act":"stall","part":"head","after":10}"#,
        reads: ["Timeout", "Timeout", "one", "Timeout"],
        says: "waiting for the head",
        kept: "-",
        told: None,
        hangs: true,
    }
    dribble {
        fault: r#"{"act":"dribble","part":"head","bytes":1,"everyMilliseconds":5000}"#,
        reads: ["Timeout", "Timeout", "one", "Timeout"],
        says: "waiting for the head",
        kept: "-",
        told: None,
        hangs: true,
    }
    cut_in_the_head {
        fault: r#"{"act":"cut","part":"head","after":10}"#,
        reads: ["Unreachable", "Unreachable", "one", "Unreachable"],
        says: "without an answer",
        kept: "-",
        told: Some(ErrorKind::Unreachable),
        hangs: false,
    }
    cut {
        fault: r#"{"act":"cut","part":"event","event":1,"after":20,"watch":true}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: Some(ErrorKind::Protocol),
        hangs: false,
    }
    reset {
        fault: r#"{"act":"reset","part":"body","after":100}"#,
        reads: ["Unreachable", "Unreachable", "one", "Unreachable"],
        says: "Connection reset",
        kept: "-",
        told: Some(ErrorKind::Unreachable),
        hangs: false,
    }
    reset_before_the_head {
        fault: r#"{"act":"reset","part":"head","after":0}"#,
        reads: ["Unreachable", "Unreachable", "one", "Unreachable"],
        says: "Connection reset",
        kept: "-",
        told: Some(ErrorKind::Unreachable),
        hangs: false,
    }
    flip_bit {
        fault: r#"{"act":"flip-bit","part":"body","at":0}"#,
        reads: ["Protocol", "Protocol", "one", "Protocol"],
        says: "the answer is no JSON object",
        kept: "-",
        told: Some(ErrorKind::Protocol),
        hangs: false,
    }
    half_open {
        fault: r#"{"act":"half-open"}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: true,
    }
    wrong_length {
        fault: r#"{"act":"wrong-length","by":-5}"#,
        reads: ["Protocol", "Protocol", "one", "Protocol"],
        says: "cut off",
        kept: "-",
        told: Some(ErrorKind::Protocol),
        hangs: false,
    }
    longer_length {
        fault: r#"{"act":"wrong-length","by":5}"#,
        reads: ["Protocol", "Protocol", "one", "Protocol"],
        says: "cut off",
        kept: "-",
        told: Some(ErrorKind::Protocol),
        hangs: false,
    }
    interim_flood {
        fault: r#"{"act":"interim-flood","count":100000}"#,
        reads: ["TooLarge", "TooLarge", "one", "TooLarge"],
        says: "the head of the answer",
        kept: "-",
        told: Some(ErrorKind::TooLarge),
        hangs: false,
    }
    stall_body {
        fault: r#"{"act":"stall","part":"body","after":100}"#,
        reads: ["Timeout", "Timeout", "one", "Timeout"],
        says: "nothing came for 1.0s",
        kept: "-",
        told: None,
        hangs: true,
    }
    stall_event {
        fault: r#"{"act":"stall","part":"event","event":1,"after":20,"watch":true}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: false,
    }
    stall_error_body {
        fault: r#"[{"act":"status","code":500},{"act":"stall","part":"body","after":10}]"#,
        reads: ["Api", "Api", "one", "Api"],
        says: "500",
        kept: "-",
        told: None,
        hangs: true,
    }
    dribble_body {
        fault: r#"{"act":"dribble","part":"body","bytes":1,"everyMilliseconds":5000}"#,
        reads: ["Timeout", "Timeout", "one", "Timeout"],
        says: "nothing came for 1.0s",
        kept: "-",
        told: None,
        hangs: true,
    }
    dribble_event {
        fault: r#"{"act":"dribble","part":"event","event":1,"bytes":1,"everyMilliseconds":5000,
            "watch":true}"#,
        reads: ["one", "2 objects", "one", "one"],
        says: "",
        kept: "-",
        told: None,
        hangs: false,
    }
    drip_error_body {
        fault: r#"[{"act":"status","code":500},
            {"act":"drip","bytes":1,"everyMilliseconds":5000}]"#,
        reads: ["Api", "Api", "one", "Api"],
        says: "500",
        kept: "-",
        told: None,
        hangs: true,
    }
}

#[test]
fn each_fault_of_the_table_has_its_test() {
    for fault in FAULTS {
        let name = fault.name.replace('-', "_");
        let mut tested = ROWS.iter().chain(in_tls::ROWS);
        let has_test = tested.any(|(tested, _)| *tested == name);
        assert!(has_test, "{} has no test", fault.name);
    }
}
