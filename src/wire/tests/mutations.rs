//! Mutated bodies: no panic, bounded memory, the same outcome for any split, no canary in any
//! error.

use super::*;
use crate::tests::dice::seeds;

const LIST: &[u8] = concat!(
    r#"{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":["#,
    r#"{"metadata":{"name":"a","namespace":"n","annotations":{"#,
    r#""kubectl.kubernetes.io/last-applied-configuration":"{\"data\":\"CANARY\"}"},"#,
    r#""managedFields":[{"manager":"m","fieldsV1":{"f:data":{".":{}}}}]},"#,
    r#""data":{"k":"Q0FOQVJZ"},"type":"Opaque"},"#,
    r#"{"metadata":{"name":"b","uid":"u"},"stringData":{"k":"CANARY\n\\"},"immutable":true}]}"#
)
.as_bytes();

const WATCH: &[u8] = concat!(
    r#"{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","#,
    r#""resourceVersion":"5","managedFields":[{"a":"\"}"}]},"stringData":{"k":"CANARY"}}}"#,
    "\n",
    r#"{"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","metadata":{"#,
    r#""resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
    "\n",
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","message":"gone","#,
    r#""reason":"Expired","code":410}}"#,
    "\n"
)
.as_bytes();

/// Pieces that are hard on decoders.
const PIECES: [&[u8]; 20] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b" ",
    b"\0",
    b"\xff",
    b"\\u",
    b"null",
    b"-",
    b"1e999",
    b"\"metadata\":{",
    b"\"items\":[",
    b"\"kind\":\"Status\",",
    b"\"managedFields\":",
];

#[expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]
pub(super) fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let until = (at + random.below(12)).min(bytes.len());
        match random.below(5) {
            0 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            1 => drop(bytes.drain(at..until)),
            2 => {
                let copy = bytes[at..until].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            3 => bytes.truncate(at.max(1)),
            _ => {
                let piece = random.pick(&PIECES);
                bytes.splice(at..until, piece.iter().copied());
            }
        }
        if bytes.is_empty() {
            bytes.push(b'{');
        }
    }
    bytes
}

/// Errors never repeat values, but may repeat names, kinds and keys. Bodies whose mutation turned
/// the canary into one do not count.
fn check(round: u64, bytes: &[u8], said: &[String]) {
    let text = String::from_utf8_lossy(bytes);
    let elsewhere = text
        .replace("\"k\":\"CANARY", "")
        .replace("data\\\":\\\"CANARY", "");
    for line in said {
        let leaks = line.contains("CANARY") && !elsewhere.contains("CANARY");
        assert!(!leaks, "seed {round}: {line}");
    }
}

#[test]
fn mutated_bodies_come_to_an_end_without_harm() {
    let options = DecodeOptions::default()
        .item_bytes_max(300)
        .frame_bytes_max(300);
    for round in 0..seeds(1_500) {
        let mut random = Random(round);
        let bytes = mutate(LIST, &mut random);
        let whole = list_of::<Secret>([&*bytes], &options);
        let size = 1 + random.below(40);
        let split = list_of::<Secret>(bytes.chunks(size), &options);
        assert_eq!(split.end, whole.end, "seed {round}, chunks of {size}");
        assert_eq!(split.items, whole.items, "seed {round}, chunks of {size}");
        check(round, &bytes, &whole.items);
        check(round, &bytes, whole.end.err().as_slice());

        let bytes = mutate(WATCH, &mut random);
        let whole = watch_of::<Secret>([&*bytes], &options);
        let split = watch_of::<Secret>(bytes.chunks(size), &options);
        assert_eq!(split, whole, "seed {round}, chunks of {size}");
        check(round, &bytes, &whole);

        drop(super::super::decode_object::<Pod>(&bytes, &options, &mut 0));
        drop(super::super::decode_status(&mutate(LIST, &mut random)));
    }
}

/// Lists with and without a mutation, for other tests.
pub(super) fn mutated_lists(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|round| {
        if round % 4 == 0 {
            LIST.to_vec()
        } else {
            mutate(LIST, &mut Random(round))
        }
    })
}
