//! What a client gives back: no memory of the process holds the values of a Secret once nobody
//! holds the Secret.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Deadline;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::{
    EventKind, Getter, ListRequest, Listed, ListerWatcher, Next, ObjectEvent, WatchEvent,
    WatchRequest,
};
use kubecache::object::{ObjectKey, ResourceVersion, Scope, StoredObject};
use kubecache::worker::StopToken;
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

/// How often an inverted sample stands, as it really is, in memory that the process can write.
pub(crate) fn found(inverted: &[u8]) -> usize {
    let memory = File::open("/proc/self/mem").unwrap();
    let mut piece: Bytes = Zeroizing::new(vec![0; PIECE_BYTES]);
    let own = piece.as_ptr_range();
    let own = [own.start.addr(), own.end.addr()];
    let mut found = 0;
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
                    found += samples_in(here, inverted);
                }
                // A sample may begin in one piece and end in the next.
                at += PIECE_BYTES - inverted.len() + 1;
            }
        }
    }
    found
}

fn samples_in(bytes: &[u8], inverted: &[u8]) -> usize {
    let is_sample = |at: &usize| {
        let mut here = bytes[*at..].iter().zip(inverted);
        bytes.len() - at >= inverted.len() && here.all(|(byte, turned)| *byte == !turned)
    };
    let begins = memchr::memchr_iter(!inverted[0], bytes);
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

/// Answers the next request on a connection with this body.
fn answer(stream: &mut BufReader<TcpStream>, body: &[u8]) {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    stream.get_mut().write_all(body).unwrap();
}

fn serve(listener: &TcpListener) {
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    let list = "{\"kind\":\"SecretList\",\"apiVersion\":\"v1\",\
                \"metadata\":{\"resourceVersion\":\"7\"},\"items\":[";
    answer(&mut stream, &secret(list, "listed", "]}"));
    let event = "{\"type\":\"MODIFIED\",\"object\":";
    answer(&mut stream, &secret(event, "watched", "}\n"));
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    answer(&mut stream, &secret("", "got", ""));
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
        timeout: std::time::Duration::from_secs(5 * 60),
        head_timeout: std::time::Duration::from_secs(5 * 60),
        bookmarks: true,
        send_initial_events: false,
        urgent: false,
    };
    let mut watch = source.watch(&request, &StopToken::never()).unwrap();
    match watch.next(Deadline::NEVER).unwrap() {
        Next::Event(WatchEvent::Object(ObjectEvent {
            kind: EventKind::Modified,
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
        let count = || samples.each_ref().map(|sample| found(sample));
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
        let count = || samples.each_ref().map(|sample| found(sample));
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
                    answer(&mut stream, &undecodable(list, reason, "]}"));
                    let event = "{\"type\":\"MODIFIED\",\"object\":";
                    answer(&mut stream, &undecodable(event, reason, "}\n"));
                    let mut stream = BufReader::new(listener.accept().unwrap().0);
                    answer(&mut stream, &undecodable("", reason, ""));
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
                    timeout: std::time::Duration::from_secs(5 * 60),
                    head_timeout: std::time::Duration::from_secs(5 * 60),
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
