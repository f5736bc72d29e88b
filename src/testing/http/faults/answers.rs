//! Answers of a fault instead of the backend's.

use serde_json::{Value, json};

use super::act::{Act, Unfinished};
use crate::testing::http::message::RequestMessage;
use crate::testing::http::{Answered, Piece, Pieces, Reply};
use crate::worker::StopToken;

/// The size of the pieces of filler.
const FILLER_BYTES: usize = 64 * 1024;

/// The answer of the act; `None` for an act without one.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "each file knows its own acts"
)]
pub(in crate::testing) fn instead(act: &Act, request: &RequestMessage) -> Option<Reply<'static>> {
    Some(match act {
        Act::Status {
            code,
            reason,
            retry_after,
        } => {
            let message = format!("the test server was told to answer {code} {reason}");
            let mut reply = Reply::failure(*code, reason, &message, Answered::Fault);
            if let Some(wait) = retry_after {
                header(&mut reply, "retry-after", &wait.as_secs().to_string());
            }
            reply
        }
        Act::Unauthorized => Reply::failure(401, "Unauthorized", "Unauthorized", Answered::Fault),
        Act::TooLargeVersion => too_large_version(request),
        Act::Html => {
            let page = b"<!doctype html>\n<html><body>Please sign in.</body></html>\n";
            whole(200, "text/html; charset=utf-8", page.to_vec())
        }
        Act::Redirect(to) => {
            let mut reply = whole(302, "text/html", b"<a>Found</a>\n".to_vec());
            header(&mut reply, "location", to);
            reply
        }
        Act::EchoHeaders => {
            let message = format!("this request is not understood: {}", headers_of(request));
            Reply::failure(400, "BadRequest", &message, Answered::Fault)
        }
        Act::ControlCharacters => {
            let message = "a\u{1b}[2J\u{1b}]0;b\u{7}c\r\nERROR d\0e\u{7f}f\u{9b}31m\u{202e}g";
            Reply::failure(500, "InternalError", message, Answered::Fault)
        }
        Act::WatchError { code, reason } => {
            let message = format!("the test server was told to send {code} {reason}");
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": code,
            });
            let event = json!({"type": "ERROR", "object": status});
            pieces(
                Vec::new(),
                vec![format!("{event}\n").into_bytes()],
                Filler::none(),
            )
        }
        Act::Unfinished { part, bytes } => {
            let begin: &[u8] = match part {
                Unfinished::Line => b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"",
                Unfinished::Item => {
                    b"{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[{\"metadata\":\
                      {\"name\":\""
                }
                Unfinished::Body => b"{\"kind\":\"",
            };
            let filler = Filler {
                piece: vec![b'a'; FILLER_BYTES],
                left: *bytes,
            };
            pieces(Vec::new(), vec![begin.to_vec()], filler)
        }
        Act::GzipBomb(bytes) => {
            let gzip = vec![("content-encoding".to_owned(), "gzip".to_owned())];
            let (begin, filler) = bomb(*bytes);
            pieces(gzip, vec![begin], filler)
        }
        _ => return None,
    })
}

fn headers_of(request: &RequestMessage) -> String {
    let headers = request.headers.iter();
    let lines: Vec<_> = headers
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    lines.join(", ")
}

fn too_large_version(request: &RequestMessage) -> Reply<'static> {
    let asked = request.target.value("resourceVersion").unwrap_or_default();
    let message = format!("Timeout: Too large resource version: {asked}, current: 1");
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Timeout", "code": 504,
        "details": {
            "retryAfterSeconds": 1,
            "causes": [{
                "reason": "ResourceVersionTooLarge", "message": "Too large resource version",
            }],
        },
    });
    let mut reply = whole(504, "application/json", text(&status));
    header(&mut reply, "retry-after", "1");
    reply
}

fn text(status: &Value) -> Vec<u8> {
    format!("{status}\n").into_bytes()
}

fn whole(code: u16, kind: &str, body: Vec<u8>) -> Reply<'static> {
    let headers = vec![("content-type".to_owned(), kind.to_owned())];
    Reply::whole(code, headers, body, Answered::Fault)
}

fn header(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.headers.push((name.to_owned(), value.to_owned()));
}

fn pieces(
    mut headers: Vec<(String, String)>,
    begin: Vec<Vec<u8>>,
    filler: Filler,
) -> Reply<'static> {
    headers.push(("content-type".to_owned(), "application/json".to_owned()));
    Reply {
        status: 200,
        headers,
        body: Box::new(Made {
            begin: begin.into_iter(),
            filler,
        }),
        answered: Answered::Fault,
    }
}

/// A body of the fault's own making.
struct Made {
    begin: std::vec::IntoIter<Vec<u8>>,
    filler: Filler,
}

/// Repeated bytes.
struct Filler {
    piece: Vec<u8>,
    left: usize,
}

impl Filler {
    fn none() -> Self {
        Self {
            piece: Vec::new(),
            left: 0,
        }
    }
}

impl Pieces for Made {
    fn next(&mut self, _stop: &StopToken) -> Piece {
        if let Some(begin) = self.begin.next() {
            return Piece::Bytes(begin);
        }
        let count = self.filler.left.min(self.filler.piece.len());
        self.filler.left = self.filler.left.saturating_sub(count);
        match self.filler.piece.get(..count) {
            Some(piece) if count > 0 => Piece::Bytes(piece.to_vec()),
            _ => Piece::End,
        }
    }
}

/// The head and the first bytes of a gzip stream, and its repeated part. Decompressed it has about
/// `bytes` bytes, all spaces.
fn bomb(bytes: usize) -> (Vec<u8>, Filler) {
    /// The number of bytes of one repetition.
    const MATCH: usize = 258;
    let mut bits = Vec::new();
    let mut add = |value: u32, count: u32| {
        bits.extend((0..count).rev().map(|at| value >> at & 1 == 1));
    };
    // A block that is not the last one, with the fixed codes: BFINAL 0, then BTYPE 1, its lower bit
    // first. The first space is a literal.
    add(0b0, 1);
    add(0b10, 2);
    add(0x30 + 0x20, 8);
    // 104 bits are 13 bytes: from the second byte on the stream repeats.
    for _ in 0..16 {
        add(0b1100_0101, 8); // 258 bytes ...
        add(0, 5); // ... from one byte back
    }
    let packed: Vec<u8> = bits
        .chunks(8)
        .map(|byte| {
            let set = byte
                .iter()
                .rev()
                .fold(0_u8, |all, bit| all << 1 | u8::from(*bit));
            set << (8_usize.saturating_sub(byte.len()))
        })
        .collect();
    let mut begin = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    begin.extend_from_slice(packed.get(..2).unwrap_or_default());
    let period = packed.get(2..15).unwrap_or_default();
    let periods = FILLER_BYTES.checked_div(13).unwrap_or_default();
    let length = bytes.checked_div(MATCH * 8).unwrap_or_default();
    let filler = Filler {
        piece: period.repeat(periods),
        left: length.saturating_mul(13),
    };
    (begin, filler)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "gzip")]
    #[test]
    fn a_bomb_is_small_and_becomes_large() {
        use std::io::Read as _;
        let (mut packed, filler) = bomb(4 << 20);
        let mut made = Made {
            begin: Vec::new().into_iter(),
            filler,
        };
        while let Piece::Bytes(piece) = made.next(&StopToken::never()) {
            packed.extend_from_slice(&piece);
        }
        assert!(packed.len() < 32 * 1024, "{}", packed.len());
        let (mut text, mut space) = (0, [0; 4096]);
        let mut decoder = flate2::read::GzDecoder::new(&*packed);
        let ended = loop {
            match decoder.read(&mut space) {
                Ok(0) => break None,
                Ok(count) => {
                    assert!(space[..count].iter().all(|byte| *byte == b' '));
                    text += count;
                }
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!(ended, Some(std::io::ErrorKind::UnexpectedEof));
        assert!((4 << 20) - 4096 < text && text <= 4 << 20, "{text}");
    }
}
