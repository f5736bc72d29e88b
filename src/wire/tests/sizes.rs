//! Each part of a body, doubled: the work at most doubles.

use super::steps::grow_with_the_size;
use super::*;
use crate::wire::{Compact, Dynamic, Metadata, decode_object, decode_status};

/// Parts of an object. In the text a `@` stands for the part, which is repeated.
const IN_OBJECTS: [(&str, &str); 17] = [
    (
        r#"{"metadata":{"name":"a","labels":{@"z":""}}}"#,
        r#""k":"v","#,
    ),
    (r#"{"metadata":{"name":"a","uid":"@"}}"#, "u"),
    (
        r#"{"metadata":{"name":"a","annotations":{"k":"@"}}}"#,
        r"\n",
    ),
    (
        r#"{"metadata":{"name":"a","annotations":{"k":"@"}}}"#,
        r#"\""#,
    ),
    (
        r#"{"metadata":{"name":"a","annotations":{"k":"@"}}}"#,
        r"\\",
    ),
    (
        r#"{"metadata":{"name":"a","managedFields":[@{}]}}"#,
        r#"{"m":[{}]},"#,
    ),
    (
        r#"{@"metadata":{"name":"a"}}"#,
        r#""unknown":{"a":[1,""]},"#,
    ),
    (r#"{@"metadata":{"name":"a"}}"#, r#""\u0064ata":{},"#),
    (r#"{@"metadata":{"name":"a"}}"#, r#""metadata":{},"#),
    (r#"{@"metadata":{"name":"a"}}"#, r#""kind":"Secret","#),
    (r#"{@"metadata":{"name":"a"}}"#, " "),
    (
        r#"{"metadata":{"name":"a"},"data":{@"z":""}}"#,
        r#""k":"dg==","#,
    ),
    (r#"{"metadata":{"name":"a"},"data":{"k":"@"}}"#, "dmFs"),
    // These do not decode.
    (r#"{"metadata":{"name":"a"},@"data":5}"#, r#""data":{},"#),
    (r#"{"metadata":{@"name":""}}"#, r#""labels":{"k":"v"},"#),
    (r#"{"metadata":{"name":"a"},"data":@5}"#, "["),
    (r#"{"kind":"@","metadata":{"name":"a"}}"#, "k"),
];

/// Parts of a list besides its items.
const IN_LISTS: [(&str, &str); 15] = [
    (r#"{@"kind":"SecretList","items":[]}"#, r#""code":1,"#),
    (
        r#"{@"kind":"SecretList","items":[]}"#,
        r#""kind":"SecretList","#,
    ),
    (
        r#"{@"kind":"SecretList","items":[]}"#,
        r#""\u006bind":"List","#,
    ),
    (
        r#"{"items":[],@"kind":"SecretList"}"#,
        r#""metadata":{"a":{}},"#,
    ),
    (
        r#"{@"kind":"SecretList","items":[]}"#,
        r#""details":{"causes":[{}]},"#,
    ),
    (
        r#"{@"kind":"SecretList","items":[]}"#,
        r#""unknown":[{"a":"]"}],"#,
    ),
    (r#"{@"kind":"SecretList","items":[]}"#, "\n"),
    (r#"{"kind":"SecretList","items":[@]}"#, "\n"),
    (r#"{"kind":"SecretList","items":[]}@"#, "\n"),
    (
        r#"{"metadata":{@"continue":"c"},"items":[]}"#,
        r#""k":[0],"#,
    ),
    (r#"{"metadata":{"continue":"@"},"items":[]}"#, "c"),
    (
        r#"{"kind":"SecretList","apiVersion":"@","items":[]}"#,
        r#"\""#,
    ),
    (r#"{"kind":"SecretList","@":1,"items":[]}"#, "k"),
    (
        r#"{"items":[@{"metadata":{"name":"z"}}]}"#,
        r#"{"metadata":{"name":"a"}},"#,
    ),
    (r#"{"items":[@{"metadata":{"name":"z"}}]}"#, "{},"),
];

/// Parts of a status.
const IN_STATUSES: [(&str, &str); 6] = [
    (r#"{"kind":"Status","code":403,"message":"@"}"#, "m"),
    (r#"{"kind":"Status",@"code":403}"#, r#""message":"m","#),
    (
        r#"{"kind":"Status","details":{"causes":[@{}]},"code":403}"#,
        r#"{"message":"m"},"#,
    ),
    (r#"{@"kind":"Status","code":403}"#, r#""unknown":[[]],"#),
    (r#"{@"kind":"Status","code":[]}"#, r#""code":1,"#),
    (r#"{@"kind":"Status"}"#, r#""kind":"Other","#),
];

/// Parts of a watch around its objects.
const IN_WATCHES: [(&str, &str); 9] = [
    (r#"@{"type":"BOOKMARK","object":{}}"#, "\n"),
    (r#"{@"type":"ADDED","object":{}}"#, "\n"),
    (
        r#"{@"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
        r#""type":"","#,
    ),
    (
        r#"{@"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
        r#""object":{},"#,
    ),
    (r#"{"type":"@","object":{"metadata":{"name":"a"}}}"#, "T"),
    (r#"{"type":"@","object":{"metadata":{"name":"a"}}}"#, r"\n"),
    (
        r#"@{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}"#,
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n",
    ),
    (
        r#"@{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}"#,
        r#"{"object":{"metadata":{"name":"a"}},"type":"DELETED"}"#,
    ),
    (
        r#"{"type":"BOOKMARK","object":{"metadata":{"annotations":{@"k":""}}}}"#,
        r#""k":"v","#,
    ),
];

/// The number of bytes that come at once.
const CHUNK: usize = 1000;

fn sized((frame, part): (&str, &str), bytes: usize) -> String {
    frame.replacen('@', &part.repeat(bytes.div_ceil(part.len())), 1)
}

/// Decodes objects in each way, and everything around objects.
fn decode<K: Object>(check: fn(&str, &mut dyn FnMut(usize))) {
    let options = DecodeOptions::default();
    let list = |body: &str| drop(list_of::<K>(body.as_bytes().chunks(CHUNK), &options));
    let watch = |body: &str| drop(watch_of::<K>(body.as_bytes().chunks(CHUNK), &options));
    for part in IN_OBJECTS {
        check(&format!("in a list: {part:?}"), &mut |bytes| {
            list(&format!(r#"{{"items":[{}]}}"#, sized(part, bytes)));
        });
        for event in [
            r#"{"type":"MODIFIED","object":"#,
            r#"{"type":"BOOKMARK","object":"#,
            r#"{"type":"ERROR","object":"#,
            r#"{ "type":"","object":"#,
        ] {
            check(&format!("in {event}: {part:?}"), &mut |bytes| {
                watch(&format!("{event}{}}}\n", sized(part, bytes)));
            });
        }
        check(&format!("alone: {part:?}"), &mut |bytes| {
            drop(decode_object::<K>(
                sized(part, bytes).as_bytes(),
                &options,
                &mut 0,
            ));
        });
    }
    for part in IN_LISTS.into_iter().chain(IN_STATUSES) {
        check(&format!("a list: {part:?}"), &mut |bytes| {
            list(&sized(part, bytes));
        });
    }
    for part in IN_WATCHES.into_iter().chain(IN_STATUSES) {
        check(&format!("a watch: {part:?}"), &mut |bytes| {
            watch(&sized(part, bytes));
        });
    }
}

#[test]
fn what_is_twice_as_large_is_at_most_twice_the_work() {
    let check = |part: &str, run: &mut dyn FnMut(usize)| grow_with_the_size(part, run);
    decode::<Secret>(check);
    decode::<Compact<Secret>>(check);
    decode::<Metadata<Secret>>(check);
    // It takes the resource of its client.
    check("a dynamic object", &mut |bytes| {
        let body = sized(IN_OBJECTS[0], bytes);
        drop(serde_json::from_str::<Dynamic>(&body).unwrap());
    });
    for part in IN_STATUSES {
        check(&format!("{part:?}"), &mut |bytes| {
            drop(decode_status(sized(part, bytes).as_bytes()));
        });
    }
}
