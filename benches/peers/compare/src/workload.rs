//! What the server sends: the same to all sides, in JSON, and in protobuf to who asks for it.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bodies::{self, Dress, Kind, Random};
use crate::history::History;

/// A body in both encodings; the second is empty where nobody asks for it.
#[derive(Clone, Default)]
pub(crate) struct Encoded {
    pub(crate) json: Arc<Vec<u8>>,
    pub(crate) protobuf: Arc<Vec<u8>>,
}

impl Encoded {
    pub(crate) fn of(&self, is_protobuf: bool) -> &Arc<Vec<u8>> {
        if is_protobuf {
            &self.protobuf
        } else {
            &self.json
        }
    }
}

/// The only collection of a server.
pub(crate) struct Workload {
    /// `ConfigMap`, `Pod` or `Secret`.
    kind: &'static str,
    pub(crate) list: Encoded,
    /// Where the items begin and end in the list's JSON.
    items: Vec<(usize, usize)>,
    /// Of Secrets: the list of each by its name.
    pub(crate) singles: Vec<Encoded>,
    /// The events of the watch, each a chunk.
    pub(crate) events: Encoded,
    /// Bookmarks, to be sent one by one, each a chunk.
    pub(crate) bookmarks: Vec<Encoded>,
}

#[derive(Deserialize)]
struct Items<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// The version of the lists.
const VERSION: &str = "918273";

const BOOKMARKS: usize = 16;

impl Workload {
    /// By its name: `configmaps`, `pods` or `secrets`, how many there are, how many events follow,
    /// and the program that encodes protobuf (or `-`).
    pub(crate) fn new(resource: &str, count: usize, events: usize, encoder: &str) -> Self {
        let kind = match resource {
            "configmaps" => Kind::ConfigMap,
            "pods" => Kind::Pod,
            "secrets" => Kind::Secret,
            other => panic!("unknown resource {other}"),
        };
        let name = match kind {
            Kind::ConfigMap => "ConfigMap",
            Kind::Pod => "Pod",
            Kind::Secret => "Secret",
        };
        let mut lines = Vec::new();
        let mut singles = Vec::new();
        let list = match kind {
            Kind::Secret => {
                let secrets: Vec<String> = (0..count).map(secret).collect();
                singles = secrets.iter().map(|one| list_of(name, one)).collect();
                list_of(name, &secrets.join(","))
            }
            Kind::ConfigMap | Kind::Pod if events == 0 => {
                let mut random = Random(0x5eed);
                let object = |nth| bodies::object(kind, Dress::AsServed, nth, &mut random);
                let objects: Vec<String> = (0..count).map(object).collect();
                list_of(name, &objects.join(","))
            }
            Kind::ConfigMap | Kind::Pod => {
                let history = History::new(kind, count, events);
                lines = history.events;
                let list = String::from_utf8(history.list).unwrap();
                let typed = format!("{{\"kind\":\"{name}List\"");
                list.replacen("{\"kind\":\"List\"", &typed, 1)
            }
        };
        let bookmark = |nth| {
            format!(
                "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"{name}\",\"apiVersion\":\"v1\",\
                 \"metadata\":{{\"resourceVersion\":\"{}\"}}}}}}\n",
                1_000_000 + nth
            )
        };
        let bookmarks: Vec<String> = (0..BOOKMARKS).map(bookmark).collect();
        let encode = Encode(encoder);
        Self {
            kind: name,
            items: items(&list),
            events: Encoded {
                protobuf: Arc::new(chunked(encode.events(&lines).into_iter())),
                json: Arc::new(chunked(
                    lines
                        .split_inclusive(|byte| *byte == b'\n')
                        .map(<[u8]>::to_vec),
                )),
            },
            bookmarks: bookmarks
                .into_iter()
                .map(|line| Encoded {
                    protobuf: Arc::new(chunked(encode.events(line.as_bytes()).into_iter())),
                    json: Arc::new(chunked([line.into_bytes()].into_iter())),
                })
                .collect(),
            singles: encode.objects(singles),
            list: encode.objects(vec![list]).remove(0),
        }
    }

    /// The events of the watch, each for itself.
    pub(crate) fn single_events(&self) -> Vec<Encoded> {
        let mut protobuf = chunks(&self.events.protobuf);
        let json = chunks(&self.events.json);
        json.map(|json| Encoded {
            json: Arc::new(json.to_vec()),
            protobuf: Arc::new(protobuf.next().unwrap_or_default().to_vec()),
        })
        .collect()
    }

    /// A page of the list, as a server answers who asks for the newest state with a limit.
    pub(crate) fn page(&self, from: usize, limit: usize) -> Vec<u8> {
        let end = self.items.len().min(from + limit);
        let next = if end < self.items.len() {
            format!(",\"continue\":\"{end}\"")
        } else {
            String::new()
        };
        let mut page = format!(
            "{{\"kind\":\"{}List\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\
             \"{VERSION}\"{next}}},\"items\":[",
            self.kind
        )
        .into_bytes();
        if from < end {
            page.extend_from_slice(&self.list.json[self.items[from].0..self.items[end - 1].1]);
        }
        page.extend_from_slice(b"]}\n");
        page
    }
}

fn list_of(kind: &str, items: &str) -> String {
    format!(
        "{{\"kind\":\"{kind}List\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\
         \"{VERSION}\"}},\"items\":[{items}]}}\n"
    )
}

/// Named by its number, in a namespace that all share.
fn secret(nth: usize) -> String {
    let seed = u64::try_from(nth).unwrap();
    bodies::object(Kind::Secret, Dress::AsServed, nth, &mut Random(seed))
        .replace(&format!("credentials-{nth:05}"), &format!("secret-{nth}"))
        .replace(&format!("team-{}", nth % 17), "shop")
}

fn items(list: &str) -> Vec<(usize, usize)> {
    let parsed: Items<'_> = serde_json::from_str(list).unwrap();
    let begin = list.as_ptr() as usize;
    let place = |item: &&RawValue| {
        let at = item.get().as_ptr() as usize - begin;
        (at, at + item.get().len())
    };
    parsed.items.iter().map(place).collect()
}

/// A body in chunks, without its end: the watch stays open.
fn chunked(pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut body = Vec::new();
    let mut head = String::new();
    for piece in pieces {
        head.clear();
        write!(head, "{:x}\r\n", piece.len()).unwrap();
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&piece);
        body.extend_from_slice(b"\r\n");
    }
    body
}

/// The chunks of such a body.
pub(crate) fn chunks(mut body: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let head = body.windows(2).position(|window| window == b"\r\n")?;
        let length = std::str::from_utf8(&body[..head]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        let (chunk, rest) = body.split_at(head + 2 + length + 2);
        body = rest;
        Some(chunk)
    })
}

/// The program that encodes protobuf, or `-`.
struct Encode<'a>(&'a str);

impl Encode<'_> {
    fn objects(&self, bodies: Vec<String>) -> Vec<Encoded> {
        let mut lines = Vec::new();
        for body in &bodies {
            lines.extend_from_slice(body.trim_end().as_bytes());
            lines.push(b'\n');
        }
        let mut protobuf = self.run("objects", &lines).into_iter();
        let encoded = bodies.into_iter().map(|body| Encoded {
            json: Arc::new(body.into_bytes()),
            protobuf: Arc::new(
                protobuf
                    .next()
                    .map(|frame| frame[4..].to_vec())
                    .unwrap_or_default(),
            ),
        });
        encoded.collect()
    }

    /// Frames of a watch, each with its length before it.
    fn events(&self, lines: &[u8]) -> Vec<Vec<u8>> {
        self.run("events", lines)
    }

    fn run(&self, what: &str, lines: &[u8]) -> Vec<Vec<u8>> {
        if self.0 == "-" || lines.is_empty() {
            return Vec::new();
        }
        let mut child = Command::new(self.0)
            .args(["convert", what])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut encoded = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(move || to.write_all(lines).unwrap());
            from.read_to_end(&mut encoded).unwrap();
        });
        assert!(child.wait().unwrap().success());
        let mut frames = Vec::new();
        let mut rest = encoded.as_slice();
        while let Some((length, _)) = rest.split_first_chunk() {
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap() + 4;
            let (frame, after) = rest.split_at(length);
            frames.push(frame.to_vec());
            rest = after;
        }
        frames
    }
}
