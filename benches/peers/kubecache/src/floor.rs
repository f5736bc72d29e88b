//! The floors: the same work by a program that has no cache, in the plainest way.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use hashbrown::{Equivalent, HashMap};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::WatchEvent;
use k8s_openapi::{List, ListableResource};
use kubecache::object::Object;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::collection::follow;
use crate::marks::{Task, order, tell};

#[derive(Deserialize)]
struct RawList {
    items: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// An HTTP/1.1 connection.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(url: &str) -> Self {
        let address = url.strip_prefix("http://").unwrap();
        Self(BufReader::with_capacity(
            64 * 1024,
            TcpStream::connect(address).unwrap(),
        ))
    }

    /// Asks, and tells how long the answer's body is, unless it comes in chunks.
    fn get(&mut self, path: &str) -> usize {
        let request = format!("GET {path} HTTP/1.1\r\nHost: floor\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        length
    }

    fn body(&mut self, path: &str) -> Vec<u8> {
        let mut body = vec![0; self.get(path)];
        self.0.read_exact(&mut body).unwrap();
        body
    }

    /// The next chunk, which is one event; false at the end.
    fn chunk(&mut self, event: &mut Vec<u8>) -> bool {
        let mut line = String::new();
        if self.0.read_line(&mut line).unwrap_or(0) == 0 {
            return false;
        }
        let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
        event.resize(length + 2, 0);
        if self.0.read_exact(event).is_err() {
            return false;
        }
        event.truncate(length);
        length > 0
    }
}

pub(crate) fn collection<K>(task: &Task)
where
    K: Object + ListableResource + DeserializeOwned,
{
    let path = format!("/api/v1/{}", task.resource);
    let is_typed = task.way == "typed";
    let mut connection = Connection::open(&task.url);
    tell("up");
    order();
    let body = connection.body(&format!("{path}?resourceVersion=0"));
    let (mut typed, mut raw) = (Vec::new(), Vec::new());
    if is_typed {
        typed = serde_json::from_slice::<List<K>>(&body).unwrap().items;
    } else {
        raw = serde_json::from_slice::<RawList>(&body).unwrap().items;
    }
    drop(body);
    assert_eq!(typed.len() + raw.len(), task.count);
    tell("synced");
    let last = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            connection.get(&format!("{path}?watch=true"));
            let mut event = Vec::new();
            while connection.chunk(&mut event) {
                let is_last = if is_typed {
                    is_last_typed::<K>(&event)
                } else {
                    is_last_raw(&event)
                };
                if is_last {
                    last.store(true, Ordering::SeqCst);
                }
            }
        });
        follow(|| last.load(Ordering::SeqCst));
        // The other thread still reads.
        std::process::exit(0);
    });
}

fn is_last_typed<K: Object + DeserializeOwned>(event: &[u8]) -> bool {
    match serde_json::from_slice::<WatchEvent<K>>(event).unwrap() {
        WatchEvent::Added(object) => object.name() == "the-last",
        other => {
            drop(black_box(other));
            false
        }
    }
}

fn is_last_raw(event: &[u8]) -> bool {
    let event: RawEvent<'_> = serde_json::from_slice(event).unwrap();
    let object = event.object.get();
    event.r#type == "ADDED" && object.len() < 300 && object.contains("the-last")
}

/// A thread for each watch.
pub(crate) fn watches(task: &Task) {
    let names = crate::watches::names(task);
    tell("up");
    order();
    let started: Vec<_> = names
        .into_iter()
        .map(|name| {
            let (url, held) = (task.url.clone(), Arc::new(Mutex::new(None)));
            let holds = Arc::clone(&held);
            let (give, given) = std::sync::mpsc::channel();
            let run = move || {
                let query = format!("fieldSelector=metadata.name%3D{name}");
                let path = format!("/api/v1/namespaces/shop/secrets?{query}");
                let mut connection = Connection::open(&url);
                let body = connection.body(&path);
                let mut list: List<Secret> = serde_json::from_slice(&body).unwrap();
                *holds.lock() = list.items.pop();
                drop((list, body));
                give.send(connection.0.get_ref().try_clone().unwrap())
                    .unwrap();
                connection.get(&format!("{path}&watch=true"));
                let mut event = Vec::new();
                while connection.chunk(&mut event) {
                    let event: WatchEvent<Secret> = serde_json::from_slice(&event).unwrap();
                    drop(black_box(event));
                }
            };
            (thread::spawn(run), given, held)
        })
        .collect();
    let open: Vec<_> = started
        .into_iter()
        .map(|(thread, given, held)| {
            let socket = given.recv().unwrap();
            assert!(held.lock().is_some());
            (thread, socket, held)
        })
        .collect();
    tell("read");
    if order() == "stop" {
        let begun = Instant::now();
        for (_, socket, _) in &open {
            socket.shutdown(Shutdown::Both).unwrap();
        }
        for (thread, ..) in open {
            thread.join().unwrap();
        }
        tell(&format!("stopped {}", begun.elapsed().as_secs_f64()));
    }
}

/// A key as a reader has it.
#[derive(Hash)]
struct Borrowed<'a>(&'a str, &'a str);

impl Equivalent<(String, String)> for Borrowed<'_> {
    fn equivalent(&self, key: &(String, String)) -> bool {
        self.1 == key.1 && self.0 == key.0
    }
}

/// One mutex around one map, the `Arc` cloned under the lock.
pub(crate) fn reads(task: &Task) {
    let names = crate::watches::names(task);
    let objects = names.iter().map(|name| {
        let key = ("shop".to_owned(), name.clone());
        (key, Arc::new(Secret::default()))
    });
    let map: HashMap<(String, String), Arc<Secret>> = objects.collect();
    let map = Mutex::new(map);
    tell("up");
    order();
    tell("read");
    order();
    crate::watches::measure(&names, |name| {
        let held = map.lock().get(&Borrowed("shop", name)).cloned();
        drop(black_box(held.unwrap()));
    });
    order();
}
