//! What a client gives back: no memory of the process holds the values of a Secret once the
//! program has dropped the Secret. One table has each representation, each way in and each outcome.
#![cfg(target_os = "linux")]

#[cfg(feature = "snapshot")]
mod snapshots;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{Client, ClientOptions, Config, Patch, Request, WriteOptions};
use kubecache::list_watch::{
    EventKind, Getter, ListRequest, Listed, ListerWatcher, Next, ObjectEvent, WatchEvent,
    WatchRequest,
};
use kubecache::manager::{
    ChangeDetection, KindTraits, ManagerOptions, ObjectManager, Owner, PastLimit,
};
use kubecache::object::{
    Object, ObjectKey, Resource, ResourceVersion, Scope, SecretText, StoredObject,
};
use kubecache::worker::StopToken;
use kubecache::{Compact, Dynamic, Metadata};
use serde_derive::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::support::alone;

/// More than one read takes in, so that buffers grow while they hold it.
const VALUE_BYTES: usize = 90_000;

/// Where in the value it is looked for: the allocator writes on the beginning of what it gets back.
const SAMPLE: std::ops::Range<usize> = 300..364;

/// So much memory is looked at in one piece.
const PIECE_BYTES: usize = 64 * 1024;

pub(crate) type Bytes = Zeroizing<Vec<u8>>;

/// Each test has its own value.
const DECODED: u64 = 1;
const UNDECODABLE: u64 = 2;
const TABLE: u64 = 5;
const WRITTEN: u64 = 7;
const REFUSED: u64 = 11;

/// Far more than any step takes on a busy machine: it only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// For a read that cannot succeed.
const BRIEFLY: Duration = Duration::from_secs(2);

/// A value, which does not stand in the program and never repeats itself.
pub(crate) fn value(seed: u64) -> Bytes {
    let mut state = seed;
    let mut value = Zeroizing::new(Vec::with_capacity(VALUE_BYTES));
    value.extend((0..VALUE_BYTES).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_le_bytes()[6]
    }));
    value
}

pub(crate) fn base64(value: &[u8]) -> Bytes {
    let mut text = Zeroizing::new(vec![0; value.len().div_ceil(3) * 4]);
    STANDARD.encode_slice(value, &mut text).unwrap();
    text
}

/// A sample as it may stand here: each bit turned round.
pub(crate) fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes[SAMPLE].iter().map(|byte| !byte).collect()
}

/// The ranges of memory that the process can write.
fn writable() -> Vec<[usize; 2]> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let writable = maps.lines().filter_map(|line| {
        let (range, rights) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let range = [start, end].map(|at| usize::from_str_radix(at, 16).unwrap());
        rights.starts_with("rw").then_some(range)
    });
    writable.collect()
}

/// How often each inverted sample stands, as it really is, in memory that the process can write.
pub(crate) fn found<const N: usize>(inverted: [&[u8]; N]) -> [usize; N] {
    let memory = File::open("/proc/self/mem").unwrap();
    let mut piece: Bytes = Zeroizing::new(vec![0; PIECE_BYTES]);
    let own = piece.as_ptr_range();
    let own = [own.start.addr(), own.end.addr()];
    // A sample may begin in one piece and end in the next.
    let longest = inverted.iter().map(|sample| sample.len()).max().unwrap();
    let step = PIECE_BYTES - longest + 1;
    let mut found = [0; N];
    for [start, end] in writable() {
        // What was read would be found once more where it was read to.
        let others = [[start, end.min(own[0])], [start.max(own[1]), end]];
        for [mut at, end] in others {
            while at < end {
                let here = &mut piece[..PIECE_BYTES.min(end - at)];
                // Some of the kernel's own mappings cannot be read.
                if memory
                    .read_exact_at(here, u64::try_from(at).unwrap())
                    .is_ok()
                {
                    for (found, inverted) in found.iter_mut().zip(inverted) {
                        *found += samples_in(here, step, inverted);
                    }
                }
                at += step;
            }
        }
    }
    found
}

/// How many begin in the first so many bytes.
fn samples_in(bytes: &[u8], step: usize, inverted: &[u8]) -> usize {
    let is_sample = |at: &usize| {
        let mut here = bytes[*at..].iter().zip(inverted);
        bytes.len() - at >= inverted.len() && here.all(|(byte, turned)| *byte == !turned)
    };
    let begins = memchr::memchr_iter(!inverted[0], &bytes[..step.min(bytes.len())]);
    begins.filter(is_sample).count()
}

/// Writes a Secret of that name, between these.
fn secret(before: &str, name: &str, after: &str) -> Bytes {
    secret_with(&value(DECODED), before, name, after)
}

fn secret_with(value: &[u8], before: &str, name: &str, after: &str) -> Bytes {
    let head = format!(
        "{before}{{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\
         \"namespace\":\"shop\",\"uid\":\"u-{name}\",\"resourceVersion\":\"7\"}},\
           \"data\":{{\"k\":\""
    );
    let tail = format!("\"}}}}{after}");
    let value = base64(value);
    let mut json = Zeroizing::new(Vec::with_capacity(head.len() + value.len() + tail.len()));
    json.extend_from_slice(head.as_bytes());
    json.extend_from_slice(&value);
    json.extend_from_slice(tail.as_bytes());
    json
}

/// A Secret of that name which does not decode, for a reason that shows before its value or behind
/// it.
fn undecodable(before: &str, reason: &str, after: &str) -> Bytes {
    let whole = secret_with(&value(UNDECODABLE), before, "odd", after);
    let text = Zeroizing::new(String::from_utf8(whole.to_vec()).unwrap());
    let at = text.find("\"data\"").unwrap();
    let (head, data) = text.split_at(at);
    let value = data.split('"').nth(5).unwrap();
    let [bad, tail] = match reason {
        "the value is no map" => ["\"data\":", "}"],
        "the value is no base64" => ["\"data\":{\"k\":", "}}"],
        "a field behind it" => ["\"data\":{\"k\":", "},\"type\":7}"],
        "a value behind it" => ["\"data\":{\"k\":", ",\"l\":7}}"],
        _ => panic!("{reason}"),
    };
    let mark = if reason == "the value is no base64" {
        "?"
    } else {
        ""
    };
    let mut json = Zeroizing::new(Vec::with_capacity(whole.len() + 100));
    for part in [head, bad, "\"", value, mark, "\"", tail, after] {
        json.extend_from_slice(part.as_bytes());
    }
    json
}

/// Answers the next request on a connection with this status and body.
fn answer(stream: &mut BufReader<TcpStream>, status: &str, body: &[u8]) {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    stream.get_mut().write_all(body).unwrap();
}

fn serve(listener: &TcpListener) {
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    let list = "{\"kind\":\"SecretList\",\"apiVersion\":\"v1\",\
                \"metadata\":{\"resourceVersion\":\"7\"},\"items\":[";
    answer(&mut stream, "200 OK", &secret(list, "listed", "]}"));
    let event = "{\"type\":\"MODIFIED\",\"object\":";
    answer(&mut stream, "200 OK", &secret(event, "watched", "}\n"));
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    answer(&mut stream, "200 OK", &secret("", "got", ""));
}

fn list(source: &dyn ListerWatcher<Secret>, kept: &mut Vec<Arc<StoredObject<Secret>>>) {
    let mut each = |item| match item {
        Listed::Object(object) => kept.push(object),
        Listed::Undecodable(aside) => panic!("{}", aside.error),
    };
    let request = ListRequest::default();
    source
        .list(&request, &StopToken::never(), &mut each)
        .unwrap();
}

fn watch(source: &dyn ListerWatcher<Secret>) -> Arc<StoredObject<Secret>> {
    let request = WatchRequest {
        resource_version: ResourceVersion::from("7"),
        timeout: PATIENCE,
        head_timeout: PATIENCE,
        bookmarks: true,
        send_initial_events: false,
        urgent: false,
    };
    let mut watch = source.watch(&request, &StopToken::never()).unwrap();
    match watch.next(Deadline::NEVER).unwrap() {
        Next::Event(WatchEvent::Object(ObjectEvent {
            kind: EventKind::Updated,
            object: Listed::Object(object),
        })) => object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_that_was_read_stays_in_memory() {
    alone(|| {
        let samples = [
            inverted(&value(DECODED)),
            inverted(&base64(&value(DECODED))),
        ];
        let count = || found(samples.each_ref().map(Vec::as_slice));
        assert_eq!(count(), [0, 0], "before anything was read");

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut options = ClientOptions::default();
        // What a decompressor keeps is not ours to overwrite.
        options = options.gzip(false);
        let client = Client::new(&Config::for_server(&url).unwrap(), options).unwrap();
        let mut kept = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| serve(&listener));
            let source: Arc<dyn ListerWatcher<Secret>> =
                client.lister_watcher(Scope::namespace("shop"));
            list(&*source, &mut kept);
            kept.push(watch(&*source));
            let getter: Arc<dyn Getter<Secret>> = client.getter();
            let key = ObjectKey::new("shop", "got");
            let version = ResourceVersion::most_recent();
            let got = getter.get(&key, &version, Deadline::NEVER, &StopToken::never());
            kept.push(got.unwrap());
        });
        drop(client);
        assert_eq!(count(), [3, 0], "the objects, and nothing of the bodies");
        drop(kept);
        assert_eq!(count(), [0, 0]);
    });
}

/// The body of a request, that of its response, and the JSON of an object that was written.
#[test]
fn nothing_that_was_written_stays_in_memory() {
    alone(|| {
        let sample = inverted(&base64(&value(WRITTEN)));
        assert_eq!(found([&sample]), [0], "before anything was written");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let options = ClientOptions::default().gzip(false);
        let client = Client::new(&Config::for_server(&url).unwrap(), options).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                for _ in 0..2 {
                    // Byte by byte: a buffer would keep the begin of the body.
                    let (mut head, mut byte) = (Vec::new(), [0]);
                    while !head.ends_with(b"\r\n\r\n") {
                        stream.read_exact(&mut byte).unwrap();
                        head.extend(byte);
                    }
                    let head = String::from_utf8(head).unwrap();
                    let mut lines = head.lines();
                    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
                    let length = length.unwrap();
                    let mut body: Bytes = Zeroizing::new(vec![0; length.parse().unwrap()]);
                    stream.read_exact(&mut body).unwrap();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                    stream.write_all(head.as_bytes()).unwrap();
                    stream.write_all(&body).unwrap();
                }
            });
            let body = secret_with(&value(WRITTEN), "", "sent", "");
            let secret = serde_json::from_slice::<Dynamic>(&body).unwrap();
            let request = Request::new("PUT", "/x").body(body.to_vec());
            let response = client.send(&request, Deadline::NEVER).unwrap();
            assert!(response.body() == &**body, "another body came back");
            let text = Zeroizing::new(secret.field::<String>("/data/k").unwrap().unwrap());
            let request = Request::new("PUT", "/x").json(&*text).unwrap();
            drop(client.send(&request, Deadline::NEVER).unwrap());
        });
        drop(client);
        assert_eq!(found([&sample]), [0]);
    });
}

/// A server that refuses may repeat the token of the request, or the object.
#[test]
fn nothing_of_a_refusal_stays_in_memory() {
    alone(|| {
        let sample = inverted(&base64(&value(REFUSED)));
        assert_eq!(found([&sample]), [0], "before the refusal");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let options = ClientOptions::default().gzip(false);
        let client = Client::new(&Config::for_server(&url).unwrap(), options).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                let mut body: Bytes = Zeroizing::new(Vec::with_capacity(VALUE_BYTES));
                body.extend_from_slice(br#"{"kind":"Status","message":"no","other":""#);
                body.extend_from_slice(&base64(&value(REFUSED))[..VALUE_BYTES / 2]);
                body.extend_from_slice(b"\"}");
                answer(&mut stream, "400 Bad Request", &body);
            });
            let request = Request::get("/x");
            let error = client.send(&request, Deadline::NEVER).unwrap_err();
            assert_eq!(error.status().unwrap().message(), "no");
        });
        drop(client);
        assert_eq!(found([&sample]), [0]);
    });
}

const REASONS: [&str; 4] = [
    "the value is no map",
    "the value is no base64",
    "a field behind it",
    "a value behind it",
];

/// F21: what is wrong with a Secret is told without leaving its values behind.
#[test]
fn f21_nothing_of_a_secret_that_does_not_decode_stays_in_memory() {
    alone(|| {
        let samples = [
            inverted(&value(UNDECODABLE)),
            inverted(&base64(&value(UNDECODABLE))),
        ];
        let count = || found(samples.each_ref().map(Vec::as_slice));
        for reason in REASONS {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let options = ClientOptions::default().gzip(false);
            let client = Client::new(&Config::for_server(&url).unwrap(), options).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut stream = BufReader::new(listener.accept().unwrap().0);
                    let list = "{\"kind\":\"SecretList\",\"apiVersion\":\"v1\",\
                            \"metadata\":{\"resourceVersion\":\"7\"},\"items\":[";
                    answer(&mut stream, "200 OK", &undecodable(list, reason, "]}"));
                    let event = "{\"type\":\"MODIFIED\",\"object\":";
                    answer(&mut stream, "200 OK", &undecodable(event, reason, "}\n"));
                    let mut stream = BufReader::new(listener.accept().unwrap().0);
                    answer(&mut stream, "200 OK", &undecodable("", reason, ""));
                });
                let source: Arc<dyn ListerWatcher<Secret>> =
                    client.lister_watcher(Scope::namespace("shop"));
                let (never, mut told) = (StopToken::never(), Vec::new());
                let mut each = |item| match item {
                    Listed::Undecodable(aside) => told.push(aside.error),
                    Listed::Object(object) => panic!("{object:?}"),
                };
                source
                    .list(&ListRequest::default(), &never, &mut each)
                    .unwrap();
                let request = WatchRequest {
                    resource_version: ResourceVersion::from("7"),
                    timeout: PATIENCE,
                    head_timeout: PATIENCE,
                    bookmarks: true,
                    send_initial_events: false,
                    urgent: false,
                };
                let mut watch = source.watch(&request, &never).unwrap();
                match watch.next(Deadline::NEVER).unwrap() {
                    Next::Event(WatchEvent::Object(ObjectEvent {
                        object: Listed::Undecodable(aside),
                        ..
                    })) => told.push(aside.error),
                    other => panic!("{other:?}"),
                }
                let getter: Arc<dyn Getter<Secret>> = client.getter();
                let key = ObjectKey::new("shop", "odd");
                let version = ResourceVersion::most_recent();
                told.push(
                    getter
                        .get(&key, &version, Deadline::NEVER, &never)
                        .unwrap_err(),
                );
                for error in told {
                    assert_eq!(
                        error.kind(),
                        kubecache::ErrorKind::Undecodable,
                        "{reason}: {error}"
                    );
                }
            });
            drop(client);
            assert_eq!(count(), [0, 0], "{reason}");
        }
    });
}

/// A way in which objects come into the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    List,
    StreamedList,
    Watch,
    Get,
    Patch,
    FreshRead,
    Poll,
    Check,
    Cache,
    /// Out of a snapshot's file; the object is written into another one, too.
    Snapshot,
}

/// Each place of the crate that decodes objects, or asks a getter for one, and the ways that lead
/// there.
const PLACES: [(&str, &[Way]); 9] = [
    (
        "src/http/lister_watcher.rs",
        &[Way::List, Way::StreamedList, Way::Watch, Way::Get],
    ),
    ("src/http/watch_stream.rs", &[Way::StreamedList, Way::Watch]),
    ("src/http/writes.rs", &[Way::Patch]),
    ("src/manager/consistent_reads.rs", &[Way::FreshRead]),
    ("src/manager/ttl/store.rs", &[Way::Cache]),
    ("src/manager/watch/keeper.rs", &[Way::Check]),
    ("src/manager/watch/sources/poller.rs", &[Way::Poll]),
    ("src/snapshot/loaded.rs", &[Way::Snapshot]),
    // Decodes what the process holds already.
    ("src/wire/compact.rs", &[]),
];

/// What decodes an object, or asks for one.
const DECODING: [&str; 5] = [
    "decode_object",
    "EventDecoder",
    "ListDecoder",
    "registry.request(",
    "registry.request_patiently(",
];

/// The decoders themselves.
const DECODERS: [&str; 4] = ["event.rs", "item.rs", "list.rs", "mod.rs"];

/// A type that can hold a Secret, and whether a reader sees kubectl's copy of its values.
trait Representation: Object + Clone {
    fn shows_copy(&self) -> bool;

    /// Whether a snapshot can hold such objects.
    const IN_SNAPSHOTS: bool = false;

    /// What a reader sees of an object out of a snapshot, with a client of a server that answers
    /// and one of a server that is away.
    fn of_snapshot(_: Outcome, _answers: &Client, _away: &Client) -> Option<bool> {
        panic!("no snapshot holds such objects")
    }
}

fn has_copy(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(LAST_APPLIED))
}

fn text_has_copy(json: &[u8]) -> bool {
    memchr::memmem::find(json, LAST_APPLIED.as_bytes()).is_some()
}

impl Representation for Secret {
    const IN_SNAPSHOTS: bool = true;

    fn shows_copy(&self) -> bool {
        has_copy(&self.metadata)
    }

    #[cfg(feature = "snapshot")]
    fn of_snapshot(outcome: Outcome, answers: &Client, away: &Client) -> Option<bool> {
        snapshots::see::<Self>(outcome, answers, away)
    }
}

impl Representation for Metadata<Secret> {
    fn shows_copy(&self) -> bool {
        has_copy(&self.metadata)
    }
}

impl Representation for Compact<Secret> {
    fn shows_copy(&self) -> bool {
        text_has_copy(self.json())
    }
}

impl Representation for Compact<Metadata<Secret>> {
    fn shows_copy(&self) -> bool {
        let is_metadata_alone = self.field::<BTreeMap<String, SecretText>>("/data");
        assert!(
            is_metadata_alone.unwrap().is_none(),
            "the text has the values"
        );
        text_has_copy(self.json())
    }
}

impl Representation for Dynamic {
    fn shows_copy(&self) -> bool {
        text_has_copy(self.json())
    }
}

/// A program's own type.
#[derive(Clone, Deserialize)]
struct Own {
    metadata: OwnMetadata,
    #[cfg_attr(
        not(feature = "snapshot"),
        expect(dead_code, reason = "a snapshot alone writes it")
    )]
    #[serde(default)]
    data: BTreeMap<String, SecretText>,
    #[serde(default, rename = "type")]
    _type: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnMetadata {
    #[serde(default)]
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, SecretText>,
}

impl Object for Own {
    fn resource() -> Resource {
        Secret::resource()
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn resource_version_text(&self) -> &str {
        &self.metadata.resource_version
    }
}

impl Representation for Own {
    const IN_SNAPSHOTS: bool = true;

    fn shows_copy(&self) -> bool {
        self.metadata.annotations.contains_key(LAST_APPLIED)
    }

    #[cfg(feature = "snapshot")]
    fn of_snapshot(outcome: Outcome, answers: &Client, away: &Client) -> Option<bool> {
        snapshots::see::<Self>(outcome, answers, away)
    }
}

/// What is wrong with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Good,
    /// The metadata is broken, behind the annotation.
    BadMetadata,
    /// A field behind the values is broken.
    BadField,
    NoName,
    ForeignKind,
    CutOff,
}

const OUTCOMES: [Outcome; 6] = [
    Outcome::Good,
    Outcome::BadMetadata,
    Outcome::BadField,
    Outcome::NoName,
    Outcome::ForeignKind,
    Outcome::CutOff,
];

const WAYS: &[Way] = &[
    Way::List,
    Way::StreamedList,
    Way::Watch,
    Way::Get,
    Way::Patch,
    Way::FreshRead,
    Way::Poll,
    Way::Check,
    Way::Cache,
    #[cfg(feature = "snapshot")]
    Way::Snapshot,
];

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The value repeats itself, so that what is left of it is found wherever later allocations have
/// written on it. Its base64 repeats itself too. The search is for some units in a row: what a
/// vector instruction has loaded may stay on a stack.
const UNIT_BYTES: usize = 48;
const UNITS: usize = 150;
const UNITS_FOUND: usize = 4;

fn unit() -> Bytes {
    Zeroizing::new(value(TABLE)[..UNIT_BYTES].to_vec())
}

/// The object as JSON, between these.
fn object(outcome: Outcome, is_metadata: bool, before: &str, after: &str) -> Bytes {
    let (api_version, kind) = match (outcome, is_metadata) {
        (Outcome::ForeignKind, _) => ("v1", "ConfigMap"),
        (_, true) => ("meta.k8s.io/v1", "PartialObjectMetadata"),
        (_, false) => ("v1", "Secret"),
    };
    let name = match outcome {
        Outcome::NoName => "",
        _ => "\"name\":\"db\",",
    };
    let labels = match outcome {
        Outcome::BadMetadata => ",\"labels\":7,\"creationTimestamp\":7",
        _ => "",
    };
    let field = match outcome {
        Outcome::BadField => ",\"type\":7",
        _ => "",
    };
    let head = format!(
        "{before}{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{name}\
         \"namespace\":\"shop\",\"uid\":\"u-1\",\"resourceVersion\":\"8\",\
         \"managedFields\":[{{\"manager\":\"m\"}}],\"annotations\":{{\"{LAST_APPLIED}\":\
         \"{{\\\"data\\\":{{\\\"k\\\":\\\""
    );
    let middle = format!("\\\"}}}}\\n\"}}{labels}}},\"data\":{{\"k\":\"");
    let tail = format!("\"}}{field}}}{after}");
    let unit = base64(&unit());
    let mut json = Zeroizing::new(Vec::with_capacity(2 * UNITS * unit.len() + 4096));
    json.extend_from_slice(head.as_bytes());
    (0..UNITS).for_each(|_| json.extend_from_slice(&unit));
    json.extend_from_slice(middle.as_bytes());
    (0..UNITS).for_each(|_| json.extend_from_slice(&unit));
    json.extend_from_slice(tail.as_bytes());
    assert!(json.len() < 2 * UNITS * unit.len() + 4096, "it never grows");
    json
}

/// A server of one Secret: gets of it end in `outcome`, and so do lists and watches in a cell that
/// is about them.
struct Server {
    outcome: Outcome,
    way: Way,
    /// Whether it knows the form of metadata alone. Else it refuses requests for nothing else.
    is_metadata: bool,
    ended: AtomicBool,
    answered: mpsc::Sender<()>,
}

impl Server {
    fn run(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            for stream in listener.incoming() {
                if self.ended.load(Ordering::SeqCst) {
                    break;
                }
                let stream = BufReader::new(stream.unwrap());
                scope.spawn(move || self.connection(stream));
            }
        });
    }

    /// Answers requests until the client closes the connection.
    fn connection(&self, mut stream: BufReader<TcpStream>) {
        loop {
            let (mut first, mut line) = (String::new(), String::new());
            let (mut body_bytes, mut takes_whole) = (0, false);
            if stream.read_line(&mut first).unwrap_or_default() == 0 {
                return;
            }
            while line != "\r\n" {
                line.clear();
                if stream.read_line(&mut line).unwrap_or_default() == 0 {
                    return;
                }
                if let Some(length) = line.strip_prefix("content-length: ") {
                    body_bytes = length.trim().parse().unwrap();
                }
                if let Some(accept) = line.strip_prefix("accept: ") {
                    takes_whole = accept.trim().rsplit(',').next() == Some("application/json");
                }
            }
            let mut body = vec![0; body_bytes];
            if stream.read_exact(&mut body).is_err() {
                return;
            }
            if !self.is_metadata && !takes_whole {
                let head = b"HTTP/1.1 406 Not Acceptable\r\nContent-Length: 0\r\n\r\n";
                drop(stream.get_mut().write_all(head));
                continue;
            }
            let (is_watch, is_get) = (first.contains("watch=true"), first.contains("/db"));
            // A client that was stopped may have closed the connection.
            let answered = if is_watch {
                self.watch(&mut stream)
            } else if is_get {
                self.get(&mut stream)
            } else {
                self.list(&mut stream)
            };
            if answered.is_err() || is_watch {
                // The rest is for the client to end.
                drop(stream.read_line(&mut line));
                return;
            }
        }
    }

    fn get(&self, stream: &mut BufReader<TcpStream>) -> io::Result<()> {
        let body = object(self.outcome, self.is_metadata, "", "");
        let sent = send(stream, &body, self.outcome == Outcome::CutOff);
        drop(body);
        // Only a check is waited for.
        self.answered.send(()).unwrap_or_default();
        sent
    }

    fn list(&self, stream: &mut BufReader<TcpStream>) -> io::Result<()> {
        let kind = if self.is_metadata {
            "\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\""
        } else {
            "\"kind\":\"SecretList\",\"apiVersion\":\"v1\""
        };
        let outcome = match self.way {
            Way::List => Some(self.outcome),
            Way::Check | Way::Snapshot => Some(Outcome::Good),
            _ => None,
        };
        // A list without the object is older than the object.
        let version = if outcome.is_some() { 8 } else { 1 };
        let before =
            format!("{{{kind},\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":[");
        let Some(outcome) = outcome else {
            return send(stream, format!("{before}]}}").as_bytes(), false);
        };
        let body = object(outcome, self.is_metadata, &before, "]}");
        send(stream, &body, outcome == Outcome::CutOff)
    }

    fn watch(&self, stream: &mut BufReader<TcpStream>) -> io::Result<()> {
        let word = match self.way {
            Way::Watch => "MODIFIED",
            Way::StreamedList => "ADDED",
            _ => "",
        };
        let before = format!("{{\"type\":\"{word}\",\"object\":");
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        if !word.is_empty() {
            let body = object(self.outcome, self.is_metadata, &before, "}\n");
            let cut = if self.outcome == Outcome::CutOff {
                2
            } else {
                1
            };
            stream.get_mut().write_all(&body[..body.len() / cut])?;
            if cut > 1 {
                stream.get_mut().shutdown(Shutdown::Both)?;
            }
        }
        Ok(())
    }
}

/// Sends a body, or the most of it.
fn send(stream: &mut BufReader<TcpStream>, body: &[u8], is_cut: bool) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.get_mut().write_all(head.as_bytes())?;
    let end = if is_cut {
        body.len() * 3 / 4
    } else {
        body.len()
    };
    stream.get_mut().write_all(&body[..end])?;
    if is_cut {
        stream.get_mut().shutdown(Shutdown::Both)?;
    }
    Ok(())
}

fn patched<K: Representation>(
    client: &Client,
    key: &ObjectKey,
    soon: Deadline,
) -> Option<Arc<StoredObject<K>>> {
    let (patch, whole) = (Patch::Merge(json!({})), WriteOptions::default());
    client.patch(key, &patch, &whole, soon).ok()
}

/// A client whose server is not there.
fn away() -> Client {
    let config = Config::for_server("http://127.0.0.1:1").unwrap();
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    client.with_resource(Secret::resource())
}

/// What the reader sees: whether kubectl's copy is there, or nothing.
fn see<K: Representation>(
    (way, outcome): (Way, Outcome),
    client: &Client,
    answered: &mpsc::Receiver<()>,
) -> Option<bool> {
    let (key, never) = (ObjectKey::new("shop", "db"), StopToken::never());
    // A read that cannot succeed need not be patient.
    let patience = match outcome {
        Outcome::Good => PATIENCE,
        _ => BRIEFLY,
    };
    let soon = || Clock::system().after(patience);
    let of = |object: &StoredObject<K>| object.shows_copy();
    let manager = |options: ManagerOptions| {
        let kind = KindTraits::<K>::default().immutable_when(|_| true);
        let manager = ObjectManager::of_kind(kind, client.clone(), options).unwrap();
        manager.add_reference(&Owner::new("Test", key.clone()), &key);
        manager
    };
    let options = ManagerOptions::default();
    match way {
        Way::List => {
            let source = client.lister_watcher::<K>(Scope::namespace("shop"));
            let mut seen = None;
            let mut each = |item: Listed<K>| seen = item.decoded().map(|object| of(object));
            drop(source.list(&ListRequest::default(), &never, &mut each));
            seen
        }
        Way::Watch | Way::StreamedList => {
            let source = client.lister_watcher::<K>(Scope::namespace("shop"));
            let request = WatchRequest {
                resource_version: ResourceVersion::from(if way == Way::Watch { "7" } else { "" }),
                timeout: PATIENCE,
                head_timeout: PATIENCE,
                bookmarks: true,
                send_initial_events: way == Way::StreamedList,
                urgent: false,
            };
            let mut watch = source.watch(&request, &never).unwrap();
            match watch.next(soon()) {
                Ok(Next::Event(WatchEvent::Object(event))) => {
                    event.object.decoded().map(|object| of(object))
                }
                _ => None,
            }
        }
        Way::Snapshot => K::of_snapshot(outcome, client, &away()),
        Way::Get => client.get::<K>(&key).ok().map(|object| of(&object)),
        Way::Patch => patched::<K>(client, &key, soon()).map(|object| of(&object)),
        Way::FreshRead => {
            let manager = manager(options);
            let read = manager.get_fresh("shop", "db", soon());
            read.ok().map(|cached| of(cached.stored()))
        }
        Way::Poll => {
            let manager = manager(options.watches_max(1).past_limit(PastLimit::Poll));
            let read = manager.get_by("shop", "db", soon());
            read.ok().map(|cached| of(cached.stored()))
        }
        Way::Cache => {
            let manager = manager(options.change_detection(ChangeDetection::Cache));
            let read = manager.get_by("shop", "db", soon());
            read.ok().map(|cached| of(cached.stored()))
        }
        Way::Check => {
            let manager = manager(options);
            let first = manager.get_by("shop", "db", Clock::system().after(PATIENCE));
            drop(first.unwrap());
            let other = ObjectKey::new("shop", "other");
            manager.add_reference(&Owner::new("Test", other), &key);
            answered.recv_timeout(PATIENCE).unwrap();
            let read = manager.get_by("shop", "db", soon());
            read.ok().map(|cached| of(cached.stored()))
        }
    }
}

fn cell<K: Representation>(way: Way, outcome: Outcome, is_metadata: bool) -> Option<bool> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, answered) = mpsc::channel();
    let server = Server {
        outcome,
        way,
        is_metadata,
        ended: AtomicBool::new(false),
        answered: sender,
    };
    let config = Config::for_server(&format!("http://{address}")).unwrap();
    let options = ClientOptions::default().gzip(false);
    thread::scope(|scope| {
        scope.spawn(|| server.run(&listener));
        let client = Client::new(&config, options).unwrap();
        let client = client.with_resource(Secret::resource());
        let seen = see::<K>((way, outcome), &client, &answered);
        drop(client);
        server.ended.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(address));
        seen
    })
}

/// All cells of one representation, in the form that is asked for.
fn table<K: Representation>(keeps_copy_on_get: bool) {
    table_of::<K>(keeps_copy_on_get, K::METADATA_ONLY);
}

/// All cells of one representation and one form of answers.
fn table_of<K: Representation>(keeps_copy_on_get: bool, is_metadata: bool) {
    let samples = [unit(), base64(&unit())].map(|unit| {
        let turned = unit.iter().map(|byte| !byte);
        turned.collect::<Vec<u8>>().repeat(UNITS_FOUND)
    });
    let count = || found(samples.each_ref().map(Vec::as_slice));
    assert_eq!(count(), [0, 0], "before anything was read");
    for &way in WAYS {
        if way == Way::Snapshot && !K::IN_SNAPSHOTS {
            continue;
        }
        for outcome in OUTCOMES {
            let seen = cell::<K>(way, outcome, is_metadata);
            let what = format!("{} by {way:?}, {outcome:?}", std::any::type_name::<K>());
            assert_eq!(count(), [0, 0], "{what}: bytes in freed memory");
            let keeps = keeps_copy_on_get && matches!(way, Way::Get | Way::Patch);
            if outcome == Outcome::Good {
                assert_eq!(seen, Some(keeps), "{what}");
            }
            assert!(
                keeps || seen != Some(true),
                "{what}: a reader sees the copy"
            );
            if matches!(outcome, Outcome::ForeignKind | Outcome::CutOff) && way != Way::Check {
                let is_of_any_kind =
                    std::any::TypeId::of::<K>() == std::any::TypeId::of::<Dynamic>();
                assert!(seen.is_none() || is_of_any_kind, "{what}");
            }
        }
    }
}

#[test]
fn no_way_in_leaves_a_secret_in_freed_memory() {
    alone(|| table::<Secret>(true));
}

#[test]
fn no_way_in_leaves_metadata_of_a_secret_in_freed_memory() {
    alone(|| table::<Metadata<Secret>>(false));
}

/// A server that does not know the form of metadata alone sends the values too.
#[test]
fn no_way_in_leaves_whole_objects_in_answer_to_the_metadata_form_in_freed_memory() {
    alone(|| table_of::<Metadata<Secret>>(false, false));
}

#[test]
fn no_way_in_leaves_whole_objects_as_text_of_their_metadata_in_freed_memory() {
    alone(|| table_of::<Compact<Metadata<Secret>>>(false, false));
}

#[test]
fn no_way_in_leaves_a_secret_as_text_in_freed_memory() {
    alone(|| table::<Compact<Secret>>(false));
}

#[test]
fn no_way_in_leaves_an_object_of_a_resource_known_at_run_time_in_freed_memory() {
    alone(|| table::<Dynamic>(false));
}

#[test]
fn no_way_in_leaves_an_object_of_a_programs_own_type_in_freed_memory() {
    alone(|| table::<Own>(true));
}

/// A new representation, or a new place that decodes, needs its row above.
#[test]
fn the_table_has_each_representation_and_each_way_in() {
    let (mut representations, mut in_snapshots) = (Vec::new(), Vec::new());
    let mut places = Vec::new();
    for path in rust_files(Path::new("src")) {
        let name = path.to_str().unwrap().to_owned();
        let is_test = ["/tests", "schedules", "src/testing"]
            .iter()
            .any(|part| name.contains(part));
        let in_wire = name.strip_prefix("src/wire/");
        if is_test || in_wire.is_some_and(|name| DECODERS.contains(&name)) {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code = source.lines().map(str::trim_start);
        let code: Vec<_> = code.filter(|line| !line.starts_with("//")).collect();
        for line in &code {
            let is_for = |of: &str| {
                let (_, of) = line.split_once(of)?;
                Some(of.trim_end_matches(" {").to_owned())
            };
            representations.extend(is_for(" Object for "));
            in_snapshots.extend(is_for("SnapshotObject for "));
        }
        let decodes = |line: &&str| {
            let calls = DECODING.iter().any(|call| line.contains(call));
            calls && !line.starts_with("use ") && !line.starts_with("pub")
        };
        if code.iter().any(decodes) {
            places.push(name);
        }
    }
    representations.sort();
    let expected = ["Compact<K>", "Dynamic", "K", "Metadata<K>"];
    assert_eq!(representations, expected, "each needs a test above");
    in_snapshots.sort();
    let expected = ["ConfigMap", "Secret"];
    assert_eq!(
        in_snapshots, expected,
        "each but ConfigMap needs IN_SNAPSHOTS"
    );
    places.sort();
    let mut expected = PLACES.map(|(place, _)| place);
    expected.sort_unstable();
    assert_eq!(places, expected, "each needs its row in PLACES");
    for &way in WAYS {
        let of_place = |(_, ways): &(&str, &[Way])| ways.contains(&way);
        assert!(PLACES.iter().any(of_place), "{way:?}");
    }
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files
}
