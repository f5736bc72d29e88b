//! List bodies: order of members, splits, bodies in place of a list, limits.

use k8s_openapi::api::coordination::v1::Lease;

use super::*;

/// Everything a list can hold at once: trimmed fields, escapes, an item of another kind, one that
/// does not decode.
const SAMPLE: &str = r#" {"unknown":[{"a":"]}"},"\\\""],"items":[
 {"metadata":{"managedFields":[{"f:a":{"}":{}}}],"name":"a","namespace":"n",
  "resourceVersion":"5"},"data":{"k\"":"dg=="}},
 {"metadata":{"name":"b","namespace":"n","uid":"u",
  "annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"x\":\"\\\\\"}\n"}},
  "immutable":"CANARY"},
 {"kind":"Pod","apiVersion":"v1","metadata":{"name":"c","namespace":"n"}}],"kind":"SecretList",
 "metadata":{"resourceVersion":"9","continue":"more","remainingItemCount":3} ,
 "apiVersion":"v1"} "#;

#[test]
fn a_body_means_the_same_however_it_is_cut_into_chunks() {
    let whole = secrets(SAMPLE.as_bytes());
    assert_eq!(
        whole.items,
        [
            "Secret n/a @5",
            "aside n/b: Secret n/b does not decode: immutable: invalid type: string, expected a \
             boolean",
            "aside n/c: Secret n/c does not decode: it is v1 Pod, not v1 Secret",
        ]
    );
    let page = whole.end.clone().unwrap();
    assert_eq!(page.resource_version.as_str(), "9");
    assert_eq!(page.continue_token.as_deref(), Some("more"));
    each_split(SAMPLE.as_bytes(), |chunks| {
        assert_eq!(list_of::<Secret>(chunks, &DecodeOptions::default()), whole);
    });
}

#[test]
fn every_body_that_is_cut_off_is_an_error() {
    let body = SAMPLE.trim_end().as_bytes();
    for end in 0..body.len() {
        let cut = secrets(&body[..end]);
        assert!(cut.error().starts_with("Protocol: the list "), "{cut:?}");
    }
    assert_eq!(
        secrets(b"").error(),
        "Protocol: the list is empty: there is no body"
    );
    assert_eq!(
        secrets(br#"{"items":[{"metadata":{"name":"a"}},{"met"#).error(),
        "Protocol: the list was cut off: unexpected EOF after 1 items, near byte 36"
    );
}

/// RF-18: an empty list is a list.
#[test]
fn lists_without_items_are_empty_lists() {
    for body in [
        r#"{"kind":"SecretList","metadata":{"resourceVersion":"7"},"items":null}"#,
        r#"{"kind":"SecretList","metadata":{"resourceVersion":"7"},"items":[ ]}"#,
        r#"{"kind":"SecretList","metadata":{"resourceVersion":"7"}}"#,
        r#"{"metadata":{"resourceVersion":"7","continue":""},"items":[]}"#,
        r#"{"\u006bind":"List","m\u0065tadata":{"resourceVersion":"7"},"item\u0073":[]}"#,
    ] {
        let outcome = secrets(body.as_bytes());
        assert_eq!(outcome.items.len(), 0);
        let page = outcome.end.unwrap();
        assert_eq!(page.resource_version.as_str(), "7", "{body}");
        assert_eq!(page.continue_token, None);
    }
}

/// Seen: a list whose kind did not end with `List` was refused.
#[test]
fn a_kind_of_a_program_chooses_the_kind_of_its_lists() {
    for (version, kind, is_taken) in [
        ("coordination.k8s.io/v1", "LeaseList", true),
        ("coordination.k8s.io/v1", "Contracts", true),
        ("coordination.k8s.io/v1", "", true),
        ("coordination.k8s.io/v2", "Contracts", false),
        ("meta.k8s.io/v1", "Contracts", false),
        ("", "Contracts", false),
    ] {
        let body = format!(
            r#"{{"kind":"{kind}","apiVersion":"{version}",
                "metadata":{{"resourceVersion":"7"}},"items":[]}}"#
        );
        let outcome = list_of::<Lease>([body], &DecodeOptions::default());
        assert_eq!(
            outcome.end.is_ok(),
            is_taken,
            "{version} {kind}: {:?}",
            outcome.end
        );
    }
}

/// PG-7, RF-16, and bodies that are not JSON.
const NO_LISTS: [(&str, &str); 19] = [
    (
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
            r#""message":"secrets is forbidden: User \"u\" cannot list","#,
            r#""reason":"Forbidden","code":403}"#
        ),
        "Forbidden: secrets is forbidden: User \"u\" cannot list",
    ),
    (
        r#"{"code":410,"reason":"Expired","message":"too old","kind":"Status"}"#,
        "Expired: too old",
    ),
    (
        r#"{"kind":"Status","code":{"odd":1},"message":"no room"}"#,
        "Api: no room",
    ),
    (
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"rows":["#,
        "Protocol: unsupported list gvk: meta.k8s.io/v1, Kind=Table, type: Secret",
    ),
    (
        r#"{"apiVersion":"meta.k8s.io/v1beta1","kind":"Table"}"#,
        "Protocol: unsupported list gvk: meta.k8s.io/v1beta1, Kind=Table, type: Secret",
    ),
    (
        r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"},"data":{}}"#,
        "Protocol: returned object must be a list: it is of kind Secret and has no items",
    ),
    (
        "{}",
        "Protocol: returned object must be a list: it is of kind unknown and has no items",
    ),
    (
        r#"{"kind":"SecretList","items":{}}"#,
        "Protocol: returned object must be a list: its items are no array",
    ),
    (
        r#"{"items":[],"items":[]}"#,
        "Protocol: the list has its items twice",
    ),
    (
        r#"{"items":[null]}"#,
        "Protocol: an item of the list is not an object: unexpected 'n' at byte 10",
    ),
    (
        r#"{"items":[{},]}"#,
        "Protocol: an item of the list is not an object: unexpected ']' at byte 13",
    ),
    (
        r#"{"items":[]} {"#,
        "Protocol: the list goes on behind its end: unexpected '{' at byte 13",
    ),
    (
        "<html>",
        "Protocol: the answer is not a JSON object: unexpected '<' at byte 0",
    ),
    (
        "\u{feff}{}",
        "Protocol: the answer is not a JSON object: unexpected 'ï' at byte 0",
    ),
    (
        r#"{"items" []}"#,
        "Protocol: the list is not JSON: unexpected '[' at byte 9",
    ),
    (
        r#"{"items":[{"metadata":{"name":"a"} "data":{}}]}"#,
        "Protocol: item 1 of the list is not JSON: expected `,` or `}`",
    ),
    (
        r#"{"items":[{"metadata":{"name":"a","managedFields":[],}}]}"#,
        "Protocol: item 1 of the list is not JSON: key must be a string",
    ),
    (
        r#"{"metadata":{"resourceVersion":7},"items":[]}"#,
        "Protocol: unable to understand list result: metadata.resourceVersion is no string",
    ),
    (
        r#"{"metadata":nonsense,"items":[]}"#,
        "Protocol: the list is not JSON: expected ident",
    ),
];

#[test]
fn what_is_no_list_is_refused_with_the_reason() {
    for (body, error) in NO_LISTS {
        assert_eq!(secrets(body.as_bytes()).error(), error, "{body}");
        each_split(body.as_bytes(), |chunks| {
            let split = list_of::<Secret>(chunks, &DecodeOptions::default());
            assert_eq!(split.error(), error, "{body}");
        });
    }
}

/// B12.
#[test]
fn an_item_without_a_name_is_set_aside() {
    let outcome =
        secrets(br#"{"items":[{"metadata":{}},{"immutable":5},{"metadata":{"name":"b"}}]}"#);
    assert_eq!(
        outcome.items,
        [
            "aside : Secret without a name does not decode: metadata.name: missing",
            "aside : Secret without a name does not decode: immutable: invalid type: integer, \
             expected a boolean",
            "Secret b @",
        ]
    );
}

fn small() -> DecodeOptions {
    DecodeOptions::default().item_bytes_max(100)
}

#[test]
fn items_have_a_largest_size_to_the_byte() {
    let item = |length: usize| {
        let frame = r#"{"metadata":{"name":""}}"#.len();
        format!(
            r#"{{"metadata":{{"name":"{}"}}}}"#,
            "x".repeat(length - frame)
        )
    };
    for (length, fits) in [(99, true), (100, true), (101, false), (4000, false)] {
        let body = format!(r#"{{"items":[{}]}}"#, item(length));
        for size in [1, 7, 100_000] {
            let outcome = list_of::<Secret>(body.as_bytes().chunks(size), &small());
            assert_eq!(outcome.end.is_ok(), fits, "{length}: {outcome:?}");
            if !fits {
                assert_eq!(
                    outcome.error(),
                    "TooLarge: an item of the list is larger than 100 bytes; \
                     DecodeOptions::item_bytes_max raises the limit"
                );
            }
        }
    }
}

#[test]
fn a_list_has_a_largest_number_of_bytes_and_that_of_one_object_one_of_items() {
    let body = concat!(
        r#"{"items":[{"metadata":{"name":"a"}},{"kind":"Pod","apiVersion":"v1"},"#,
        r#"{"metadata":{"name":"c"}}]}"#
    );
    let options = |items: usize, bytes: usize| {
        DecodeOptions::default()
            .list_items_max(items)
            .list_bytes_max(bytes)
    };
    each_split(body.as_bytes(), |chunks| {
        let outcome = list_of::<Secret>(chunks.clone(), &options(2, body.len()));
        assert!(outcome.end.is_ok(), "{outcome:?}");
        let of_one = options(2, body.len());
        let decoder = ListDecoder::<Secret>::for_one_object(&of_one);
        let outcome = items_of(decoder, chunks.clone(), &of_one);
        assert_eq!(
            outcome.error(),
            "TooLarge: the list has more than 2 items: DecodeOptions::list_items_max"
        );
        assert_eq!(outcome.items.len(), 2, "{outcome:?}");
        let outcome = list_of::<Secret>(chunks, &options(3, body.len() - 1));
        assert_eq!(
            outcome.error(),
            "TooLarge: the list has more than 95 bytes: DecodeOptions::list_bytes_max"
        );
    });
}

#[test]
fn a_body_of_spaces_ends_at_the_limit_and_takes_no_memory() {
    let spaces = vec![b' '; 64 * 1024];
    for start in [
        "",
        "{",
        r#"{"items":["#,
        r#"{"unknown":["#,
        r#"{"unknown":""#,
    ] {
        let mut decoder = ListDecoder::<Secret>::new(&DecodeOptions::default());
        feed(&mut decoder, start.as_bytes(), &mut |_| {}).unwrap();
        let mut chunks = 0;
        let error = loop {
            match feed(&mut decoder, &spaces, &mut |_| {}) {
                Ok(()) => chunks += 1,
                Err(error) => break error,
            }
            assert!(
                decoder.held_bytes() <= 256 * 1024,
                "{}",
                decoder.held_bytes()
            );
        };
        assert_eq!(
            format!("{error:?}"),
            "TooLarge: what stands between two items of the list is larger than 16777216 bytes; \
             DecodeOptions::item_bytes_max raises the limit"
        );
        assert_eq!(
            chunks,
            ((16 << 20) - start.len()) / spaces.len(),
            "{start:?}"
        );
    }
}

#[test]
fn what_a_list_says_of_itself_has_a_limit() {
    let chunk = vec![b'x'; 64 * 1024];
    let mut decoder = ListDecoder::<Secret>::new(&DecodeOptions::default());
    feed(&mut decoder, br#"{"metadata":{"continue":""#, &mut |_| {}).unwrap();
    let error = (0..5).find_map(|_| feed(&mut decoder, &chunk, &mut |_| {}).err());
    assert_eq!(
        format!("{:?}", error.unwrap()),
        "TooLarge: what the list says of itself is larger than 262144 bytes"
    );
}

/// The token comes back in the URL of the next page. Servers send far shorter ones.
#[test]
fn a_continue_token_has_a_limit() {
    let body = |length: usize| {
        let token = "x".repeat(length);
        format!(r#"{{"metadata":{{"continue":"{token}"}},"items":[]}}"#)
    };
    let page = secrets(body(16 * 1024).as_bytes()).end.unwrap();
    assert_eq!(page.continue_token.unwrap().len(), 16 * 1024);
    assert_eq!(
        secrets(body(16 * 1024 + 1).as_bytes()).error(),
        "Protocol: the list's continue token is longer than 16384 bytes"
    );
}

#[test]
fn a_million_levels_of_nesting_are_set_aside_like_any_other_object() {
    let depth = 1_000_000;
    let (open, close) = ("[".repeat(depth), "]".repeat(depth));
    let item = |field: &str| format!(r#"{{"metadata":{{"name":"deep"}},"{field}":{open}{close}}}"#);
    let body = format!(
        r#"{{"items":[{},{},{{"metadata":{{"name":"b"}}}}]}}"#,
        item("unknown"),
        item("data")
    );
    assert_eq!(
        secrets(body.as_bytes()).items,
        [
            "Secret deep @",
            "aside deep: Secret deep does not decode: data: invalid type: sequence, expected a map",
            "Secret b @",
        ]
    );
    let schema = format!(
        r#"{{"items":[{{"metadata":{{"name":"a"}},"spec":{}5{}}}]}}"#,
        r#"{"affinity":{"nodeAffinity":"#, "}}"
    );
    let outcome = list_of::<Pod>([schema.as_bytes()], &DecodeOptions::default());
    assert_eq!(
        outcome.items,
        [
            "aside a: Pod a does not decode: spec.affinity.nodeAffinity: invalid type: integer, \
             expected NodeAffinity"
        ]
    );
}

#[test]
fn memory_follows_one_item_and_goes_back() {
    let large = "x".repeat(1 << 20);
    let small = r#"{"metadata":{"name":"s"}},"#.repeat(20_000);
    let body = format!(
        r#"{{"items":[{{"metadata":{{"name":"l"}},"stringData":{{"k":"{large}"}}}},{small}{{}}]}}"#
    );
    let mut decoder = ListDecoder::<Secret>::new(&DecodeOptions::default());
    let (mut peak, mut items) = (0, 0);
    for chunk in body.as_bytes().chunks(10_000) {
        feed(&mut decoder, chunk, &mut |_| items += 1).unwrap();
        peak = peak.max(decoder.held_bytes());
    }
    assert_eq!(items, 20_002);
    assert!(peak < 3 << 20, "{peak}");
    assert!(
        decoder.held_bytes() <= 256 * 1024,
        "{}",
        decoder.held_bytes()
    );
}
