//! Watch events: types, other orders and spacing, and the result of each.

use super::*;
use crate::error::ErrorKind;

fn watch(body: &str) -> Vec<String> {
    watch_of::<Secret>([body.as_bytes()], &DecodeOptions::default())
}

const META: &str = r#""metadata":{"name":"a","namespace":"n","resourceVersion":"5"}"#;

/// RF-24, RF-25, RF-26, RF-27, RF-28, RS-9 and B12, row by row.
const EVENTS: [(&str, &str); 32] = [
    (
        r#"{"type":"ADDED","object":$SECRET}"#,
        "Added(Secret n/a @5)",
    ),
    (
        r#"{"type":"MODIFIED","object":$SECRET}"#,
        "Updated(Secret n/a @5)",
    ),
    (
        r#"{"type":"DELETED","object":$SECRET}"#,
        "Deleted(Secret n/a @5)",
    ),
    (
        r#" { "object" :$SECRET , "type" : "ADDED" , "more":[1] } "#,
        "Added(Secret n/a @5)",
    ),
    (
        r#"{"\u0074ype":"\u0041DDED","obj\u0065ct":{$META}}"#,
        "Added(Secret n/a @5)",
    ),
    (
        concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Secret","#,
            r#""metadata":{"resourceVersion":"12"},"data":5}}"#
        ),
        "bookmark @12",
    ),
    (
        concat!(
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12","#,
            r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#
        ),
        "bookmark @12 end",
    ),
    (
        concat!(
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12","#,
            r#""annotations":{"k8s.io/initial-events-end":"True"}}}}"#
        ),
        "bookmark @12",
    ),
    (
        concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","#,
            r#""metadata":{"resourceVersion":"12"}}}"#
        ),
        "bookmark @12",
    ),
    (
        concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","#,
            r#""metadata":{"resourceVersion":"1\u0032","creationTimestamp":null}}}"#
        ),
        "bookmark @12",
    ),
    (
        concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","#,
            r#""metadata":{"resourceVersion":"12","resourceVersion":"13"}}}"#
        ),
        "bookmark @13",
    ),
    (
        concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","metadata":"#,
            r#"{"resourceVersion":"12","annotations":{"k8s.io/initial-events-end":"true"}}}}"#
        ),
        "bookmark @12 end",
    ),
    (
        r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#,
        "skipped @: Unable to understand watch event: a bookmark without resourceVersion",
    ),
    (
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12"}}}"#,
        "skipped @: Unexpected watch event object gvk: Pod",
    ),
    (
        concat!(
            r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"#,
            r#""status":"Failure","message":"too old resource version: 1 (323)","#,
            r#""reason":"Expired","code":410}}"#
        ),
        "Error(Expired: too old resource version: 1 (323))",
    ),
    (
        r#"{"type":"ERROR","object":$SECRET}"#,
        "Error(Protocol: unexpected object: Secret n/a)",
    ),
    (
        r#"{"type":"ERROR","object":"CANARY"}"#,
        "Error(Protocol: unexpected object:)",
    ),
    (
        r#"{"type":"ERROR","object":null}"#,
        "Error(Protocol: unexpected object:)",
    ),
    (
        r#"{"type":"ERROR","object":{$META,"message":"CANARY"}}"#,
        "Error(Protocol: unexpected object:  n/a)",
    ),
    (
        r#"{"type":"ERROR","object":{"kind":"Pod","message":"CANARY","code":410}}"#,
        "Error(Protocol: unexpected object: Pod)",
    ),
    (
        concat!(
            r#"{"type":"ERROR","object":{"status":"Failure","#,
            r#""message":"too old resource version: 1 (323)","reason":"Expired","code":410}}"#
        ),
        "Error(Expired: too old resource version: 1 (323))",
    ),
    (
        r#"{"type":"ERROR","object":{"kind":null,"message":"The version is too old.","code":410}}"#,
        "Error(Expired: The version is too old.)",
    ),
    (
        r#"{"type":"ERROR","object":{"kind":"","message":"the server is shutting down"}}"#,
        "Error(Api: the server is shutting down)",
    ),
    (
        r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",$META}}"#,
        "skipped @: Unexpected watch event object gvk: v1 Pod",
    ),
    (
        r#"{"type":"DELETED","object":{"kind":"Secret","apiVersion":"v2",$META}}"#,
        "skipped @: Unexpected watch event object gvk: v2 Secret",
    ),
    (
        r#"{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}}"#,
        "skipped @: Unsupported watch event object gvk: meta.k8s.io/v1 Table",
    ),
    (
        r#"{"type":"ADDED","object":{"kind":"Secret"}}"#,
        "skipped @: Unable to understand watch event: Secret without a name does not decode: \
         metadata.name: missing",
    ),
    (
        r#"{"type":"ADDED","object":{$META,"data":{"k":"?CANARY?"}}}"#,
        "aside n/a: Secret n/a does not decode: data.k: the value is not acceptable",
    ),
    (
        r#"{"type":"MODIFIED","object":{$META,"type":7}}"#,
        "aside n/a: Secret n/a does not decode: type: invalid type: integer, expected a string",
    ),
    (
        r#"{"type":"DELETED","object":{$META,"type":7}}"#,
        "deleted aside n/a: Secret n/a does not decode: type: invalid type: integer, expected a \
         string",
    ),
    (
        concat!(
            r#"{"kind":"Status","message":"etcdserver: request timed out","#,
            r#""reason":"InternalError","code":500}"#
        ),
        "Error(Api: etcdserver: request timed out)",
    ),
    (
        r#"{"status":"Failure","message":"etcdserver: leader changed","code":500}"#,
        "Error(Api: etcdserver: leader changed)",
    ),
];

#[test]
fn each_event_comes_to_what_its_row_says() {
    let secret = format!(r#"{{"kind":"Secret","apiVersion":"v1",{META}}}"#);
    for (line, outcome) in EVENTS {
        let line = line.replace("$SECRET", &secret).replace("$META", META);
        assert_eq!(watch(&format!("{line}\n")), [outcome], "{line}");
        assert_eq!(watch(&format!("\n \r\n{line}\r\n")), [outcome], "{line}");
    }
}

const NO_EVENTS: [(&str, &str); 27] = [
    ("<html>", "unable to decode to metav1.WatchEvent"),
    ("{}", "unable to decode to metav1.WatchEvent"),
    ("[]", "unable to decode to metav1.WatchEvent"),
    (
        r#"{"type":"ADDED"}"#,
        "unable to decode to metav1.WatchEvent",
    ),
    (
        r#"{"type":7,"object":{}}"#,
        "unable to decode to metav1.WatchEvent",
    ),
    (
        r#"{"type":"ADDED","object":{}"#,
        "unable to decode to metav1.WatchEvent",
    ),
    (
        r#"{"type":"ADDED","object":{"a" CANARY}}"#,
        "unable to decode watch event: expected `:`",
    ),
    (
        r#"{"type":"BOOKMARK","object":{"a" CANARY}}"#,
        "unable to decode watch event: expected `:`",
    ),
    (
        r#"{"type":"ERROR","object":CANARY}"#,
        "unable to decode watch event: expected value",
    ),
    (
        r#"{"type":"ODD","object":CANARY}"#,
        "unable to decode watch event: expected value",
    ),
    (
        r#"{"type":null,"object":$SECRET}"#,
        "unable to decode to metav1.WatchEvent",
    ),
    (
        r#"{"type":"RENAMED","object":$SECRET}"#,
        "got invalid watch event type: RENAMED",
    ),
    (
        r#"{"type":"added","object":$SECRET}"#,
        "got invalid watch event type: added",
    ),
    (
        r#"{"type":"","object":$SECRET}"#,
        "got invalid watch event type: ",
    ),
    (r#"{"object":$SECRET}"#, "got invalid watch event type: "),
    (
        r#"{"type":"FAILED","object":{"kind":"Status","message":"etcd is gone","code":500}}"#,
        "got invalid watch event type: FAILED: etcd is gone",
    ),
    (
        r#"{"type":"FAILED","object":{$META,"message":"CANARY"}}"#,
        "got invalid watch event type: FAILED",
    ),
    (
        r#"{"type":"ADDED","object":null}"#,
        "unable to decode watch event: Object 'Kind' is missing",
    ),
    (
        r#"{"type":"MODIFIED","object":"CANARY"}"#,
        "unable to decode watch event: Object 'Kind' is missing",
    ),
    (
        r#"{"type":"DELETED","object":[{}]}"#,
        "unable to decode watch event: Object 'Kind' is missing",
    ),
    (
        r#"{"type":"ADDED","object":{"kind":"","metadata":{"namespace":"n"}}}"#,
        "unable to decode watch event: Object 'Kind' is missing",
    ),
    (
        r#"{"type":"MODIFIED","object":{"kind":"","apiVersion":"",$META}}"#,
        "unable to decode watch event: Object 'Kind' is missing",
    ),
    (
        r#"{"type":"DELETED","object":{"kind":7,"apiVersion":"v1",$META}}"#,
        "unable to decode watch event: Object 'Kind' is missing",
    ),
    (
        r#"{"type":"MODIFIED","object":{"kind":"Secret","apiVersion":"",$META}}"#,
        concat!(
            "unable to decode watch event: Secret n/a does not decode: ",
            "invalid value: string, expected v1"
        ),
    ),
    (
        r#"{"type":"ADDED","object":{"kind":7,"message":"etcd is gone"}}"#,
        "unable to decode watch event: Object 'Kind' is missing: etcd is gone",
    ),
    (
        r#"{"type":"DELETED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":7}}}"#,
        concat!(
            "unable to decode watch event: Secret without a name does not decode: ",
            "metadata.name: invalid type: integer, expected a string"
        ),
    ),
    (
        r#"{"type":"ADDED","object":{"kind":"Secret","metadata":{"name":"","uid":"u"}}}"#,
        concat!(
            "unable to decode watch event: Secret without a name does not decode: ",
            "metadata.name: missing"
        ),
    ),
];

/// RS-6 and RS-7: the words of client-go, then the end.
#[test]
fn what_is_no_event_ends_the_stream_with_an_internal_error() {
    let rs6 = |why: &str| {
        format!(
            "Error(Api: an error on the server (\"unable to decode an event from the watch stream: \
             {why}\") has prevented the request from succeeding)"
        )
    };
    let secret = format!(r#"{{"kind":"Secret","apiVersion":"v1",{META}}}"#);
    for (line, why) in NO_EVENTS {
        let line = line.replace("$SECRET", &secret).replace("$META", META);
        let next = format!(r#"{{"type":"ADDED","object":{{{META}}}}}"#);
        assert_eq!(watch(&format!("{line}\n{next}\n")), [rs6(why)], "{line}");
        // A whole event before it still counts.
        let events = ["Added(Secret n/a @5)".to_owned(), rs6(why)];
        assert_eq!(watch(&format!("{next}{line}\n{next}\n")), events, "{line}");
    }
    let mut decoder = EventDecoder::<Secret>::new(&DecodeOptions::default());
    decoder.space()[0] = b'x';
    decoder.space()[1] = b'\n';
    decoder.filled(2);
    let Ok(Some(WatchEvent::Error(error))) = decoder.next() else {
        panic!("no error event");
    };
    let status = error.status().unwrap();
    assert!(status.is_internal_error());
    assert_eq!(status.code(), 500);
    let causes = status.as_api().details.as_ref().unwrap().causes.as_ref();
    let reasons: Vec<_> = causes
        .unwrap()
        .iter()
        .map(|cause| cause.reason.as_deref())
        .collect();
    assert_eq!(
        reasons,
        [
            Some("UnexpectedServerResponse"),
            Some("ClientWatchDecoding")
        ]
    );
    assert!(decoder.is_ended());
    assert!(decoder.next().unwrap().is_none());
    assert!(decoder.finish().is_none());
}

/// RS-4: a line that is cut off is reported as an unexpected end.
#[test]
fn a_stream_means_the_same_however_it_is_cut_into_chunks() {
    let body = format!(
        "{{\"type\":\"ADDED\",\"object\":{{{META},\"data\":{{\"k\":\"dg==\"}}}}}}\n\n\
         {{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"9\"}}}}}}\n\
         {{\"type\":\"DELETED\",\"object\":{{\"metadata\":{{\"managedFields\":[1],\"name\":\"b\"}},\
         \"type\":1}}}}\n\
         {{\"type\":\"ADD"
    );
    let whole = watch(&body);
    assert_eq!(
        whole,
        [
            "Added(Secret n/a @5)",
            "bookmark @9",
            "deleted aside b: Secret b does not decode: type: invalid type: integer, expected a \
             string",
            "cut: Protocol: the watch was cut off: unexpected EOF behind 12 bytes of an event",
        ]
    );
    each_split(body.as_bytes(), |chunks| {
        assert_eq!(watch_of::<Secret>(chunks, &DecodeOptions::default()), whole);
    });
}

#[test]
fn an_event_is_delivered_when_its_last_byte_arrives() {
    let mut decoder = EventDecoder::<Secret>::new(&DecodeOptions::default());
    let event = format!(r#"{{"type":"ADDED","object":{{{META}}}}}"#);
    let (last, before) = event.as_bytes().split_last().unwrap();
    for byte in before {
        decoder.space()[0] = *byte;
        decoder.filled(1);
        assert!(decoder.next().unwrap().is_none());
    }
    decoder.space()[0] = *last;
    decoder.filled(1);
    assert!(matches!(
        decoder.next(),
        Ok(Some(WatchEvent::Object(ObjectEvent {
            kind: EventKind::Added,
            object: Listed::Object(_)
        })))
    ));
    assert!(decoder.finish().is_none());
}

/// The half of the first event was searched for its newline, and must not count for the second.
#[test]
fn a_short_event_behind_one_that_came_in_halves_waits_for_no_other_byte() {
    let mut decoder = EventDecoder::<Secret>::new(&DecodeOptions::default());
    let kind = "x".repeat(500);
    let event = format!(r#"{{"type":"ADDED","object":{{{META}}}}}"#);
    let long = format!(r#"{{"type":"ADDED","object":{{{META},"type":"{kind}"}}}}"#);
    let (half, rest) = long.split_at(400);
    let mut give = |bytes: &str| {
        decoder.space()[..bytes.len()].copy_from_slice(bytes.as_bytes());
        decoder.filled(bytes.len());
        let mut events = 0;
        while decoder.next().unwrap().is_some() {
            events += 1;
        }
        events
    };
    assert_eq!(give(half), 0);
    assert_eq!(give(&format!("{rest}\n{event}\n{half}")), 2);
    assert_eq!(give(rest), 1);
}

#[test]
fn events_have_a_largest_size_to_the_byte() {
    let options = DecodeOptions::default().frame_bytes_max(100);
    let start = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}"#;
    for (length, fits) in [(99, true), (100, true), (101, false), (5000, false)] {
        for end in ["}", " "] {
            let padding = " ".repeat(length - start.len() - 1);
            let event = format!("{start}{padding}{end}");
            for size in [1, 7, 100_000] {
                let events = watch_of::<Secret>(event.as_bytes().chunks(size), &options);
                let outcome = match (fits, end) {
                    (true, "}") => "bookmark @1".to_owned(),
                    (true, _) => format!(
                        "cut: Protocol: the watch was cut off: unexpected EOF behind {length} \
                         bytes of an event"
                    ),
                    (false, _) => {
                        "failed: TooLarge: an event of the watch is larger than 100 bytes; \
                                   DecodeOptions::frame_bytes_max raises the limit"
                            .to_owned()
                    }
                };
                assert_eq!(events, [outcome], "{length} in {size}");
            }
        }
    }
}

#[test]
fn an_event_without_end_fails_at_the_limit() {
    let mut decoder = EventDecoder::<Secret>::new(&DecodeOptions::default());
    let error = loop {
        let space = decoder.space();
        let count = space.len();
        space.fill(b'[');
        if decoder.held_bytes() == count {
            decoder.space()[..14].copy_from_slice(b"{\"object\":[[[[");
        }
        decoder.filled(count);
        if let Err(error) = decoder.next() {
            break error;
        }
        assert!(decoder.held_bytes() < 64 << 20);
    };
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(decoder.is_ended());
}

#[test]
fn a_quiet_stream_holds_nothing_and_its_next_read_little_whatever_it_has_seen() {
    let mut decoder = EventDecoder::<Secret>::new(&DecodeOptions::default());
    assert_eq!(decoder.held_bytes(), 0);
    let value = "dg==".repeat(100_000);
    let last_applied = r#"{"a":"kubectl.kubernetes.io/last-applied-configuration"}"#;
    let line = format!(
        "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"l\",\
         \"managedFields\":[{last_applied}]}},\"stringData\":{{\"k\":\"{value}\"}}}}}}\n"
    );
    let mut bytes = line.as_bytes();
    let mut events = 0;
    while !bytes.is_empty() {
        let space = decoder.space();
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        decoder.filled(count);
        while decoder.next().unwrap().is_some() {
            events += 1;
        }
    }
    assert_eq!(events, 1);
    decoder.release();
    assert_eq!(decoder.held_bytes(), 0);
    assert!(!decoder.space().is_empty(), "waiting for bytes");
    assert!(decoder.held_bytes() <= 2048, "{}", decoder.held_bytes());
}

#[test]
fn a_release_keeps_part_of_an_event() {
    let mut decoder = EventDecoder::<Secret>::new(&DecodeOptions::default());
    let line = format!("{{\"type\":\"ADDED\",\"object\":{{{META}}}}}\n");
    for chunk in line.as_bytes().chunks(5) {
        decoder.space()[..chunk.len()].copy_from_slice(chunk);
        decoder.filled(chunk.len());
        decoder.release();
    }
    assert!(matches!(
        decoder.next(),
        Ok(Some(WatchEvent::Object(ObjectEvent {
            kind: EventKind::Added,
            object: Listed::Object(_)
        })))
    ));
}

/// Promise 6, WL-2: a streamed list is bounded like a list in one body, up to its final bookmark.
#[test]
fn initial_events_have_a_largest_number_of_items_and_of_bytes() {
    const ADDED: &str = r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#;
    const ASIDE: &str = r#"{"type":"ADDED","object":{"metadata":{"name":"b"},"data":5}}"#;
    const CHANGED: &str = r#"{"type":"MODIFIED","object":{"metadata":{"name":"c"}}}"#;
    const GONE: &str = r#"{"type":"DELETED","object":{"metadata":{"name":"d"}}}"#;
    const END: &str = concat!(
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","#,
        r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#
    );
    let list = format!("{ADDED}\n{GONE}\n\n{ASIDE}\n{CHANGED}\n{END}\n");
    // Behind the bookmark it is a watch, which needs no bound.
    let body = format!("{list}{ADDED}\n{ADDED}\n");
    let streamed = |bytes: usize, chunks: Vec<&[u8]>| {
        let options = DecodeOptions::default()
            .list_items_max(0)
            .list_bytes_max(bytes);
        let decoder = EventDecoder::<Secret>::with_initial_events(&options);
        events_of(decoder, chunks, &options)
    };
    let before_end = list.len() - END.len() - 2;
    each_split(body.as_bytes(), |chunks| {
        let events = streamed(list.len(), chunks.clone());
        assert_eq!(events.len(), 7, "{events:?}");
        let events = streamed(before_end - 1, chunks.clone());
        let told = format!(
            "failed: TooLarge: the list has more than {} bytes: DecodeOptions::list_bytes_max",
            before_end - 1
        );
        assert_eq!(events[3..], [told]);
        let options = DecodeOptions::default().list_items_max(0).list_bytes_max(0);
        assert_eq!(watch_of::<Secret>(chunks, &options).len(), 7);
    });
}

/// F21: an event is a JSON value: newlines neither end it nor have to stand behind it.
#[test]
fn f21_events_are_json_values_and_not_lines() {
    let one = format!(r#"{{"type":"ADDED","object":{{{META}}}}}"#);
    let two = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
    let spread =
        "{\n \"type\":\r\n\"ADDED\",\n\n\"object\"\n:{\n\t\"metadata\" :\n{\"name\":\"b\"\n}\n}\n}";
    let (first, second, third) = ("Added(Secret n/a @5)", "bookmark @9", "Added(Secret b @)");
    let rows: [(String, &[&str]); 6] = [
        (one.clone(), &[first]),
        (format!("{one}{two}"), &[first, second]),
        (
            format!("{one}{two}\n{one} {two}"),
            &[first, second, first, second],
        ),
        (spread.to_owned(), &[third]),
        (format!("{two}{spread}{one}\n"), &[second, third, first]),
        (format!("\n\n{spread}\n{spread}\n"), &[third, third]),
    ];
    for (body, events) in rows {
        each_split(body.as_bytes(), |chunks| {
            assert_eq!(
                watch_of::<Secret>(chunks, &DecodeOptions::default()),
                events,
                "{body}"
            );
        });
    }
}

/// F21: JSON strings contain no newline. So the decoder notices at once that an event was cut off
/// in one, and keeps the events behind it.
#[test]
fn f21_an_event_cut_off_in_a_string_ends_the_stream_at_its_newline() {
    let next = format!(r#"{{"type":"ADDED","object":{{{META}}}}}"#);
    let mut bodies = Vec::new();
    for cut in [
        r#"{"type":"ADD"#,
        r#"{"type":"ADDED","object":{"metadata":{"na"#,
        r#"{"a\"#,
    ] {
        bodies.push(format!("{cut}\n"));
        bodies.push(format!("{cut}\n{next}\n"));
        bodies.push(format!("{next}\n{cut}\n{next}\n{next}\n"));
    }
    for body in bodies {
        each_split(body.as_bytes(), |chunks| {
            let events = watch_of::<Secret>(chunks, &DecodeOptions::default());
            let last = events.last().unwrap();
            assert!(last.contains("unable to decode"), "{body}: {events:?}");
        });
    }
}

/// B7: a watch of one object has a limit of its own, and its error names it.
#[test]
fn b7_the_events_of_one_object_are_at_most_8_mib() {
    let defaults = DecodeOptions::default();
    assert_eq!(defaults.one_object_frame_bytes_max, 8 << 20);
    let table = [
        (100, 50, "50", "one_object_frame_bytes_max"),
        (50, 100, "50", "frame_bytes_max"),
    ];
    for (all, one, limit, option) in table {
        let options = DecodeOptions::default()
            .frame_bytes_max(all)
            .one_object_frame_bytes_max(one);
        let decoder = EventDecoder::<Secret>::for_one_object(&options);
        let long = format!("{{\"object\":{}", "[".repeat(200));
        let events = events_of(decoder, [long], &options);
        let told = format!(
            "failed: TooLarge: an event of the watch is larger than {limit} bytes; \
             DecodeOptions::{option} raises the limit"
        );
        assert_eq!(events, [told]);
    }
}
