//! The waits of a client, a store and an informer until an object is as wanted, beside a server
//! that refuses once: each refusal, of the list, of the watch and within the watch.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::Client;
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::object::{Object, ObjectKey, Scope};
use kubecache::reflector::ReflectorOptions;
use kubecache::store::{Indexers, Store};
use kubecache::{Compact, Dynamic};

use super::server::{Peer, Server};
use super::{PATIENCE, client};

/// Which request the server refuses, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    List,
    Open,
    Within,
}

const PLACES: [Place; 3] = [Place::List, Place::Open, Place::Within];

/// How it refuses: the code, the rest of the status; without a code it cuts the connection.
const REFUSALS: &[(u16, &str)] = &[
    (0, ""),
    (429, ""),
    (429, ",\"details\":{\"retryAfterSeconds\":1}"),
    (500, ",\"reason\":\"InternalError\""),
    (503, ""),
    (503, ",\"details\":{\"retryAfterSeconds\":1}"),
    (410, ",\"reason\":\"Expired\""),
    (410, ",\"reason\":\"Gone\""),
];

/// A server with one object, which reaches the second step once the server has refused.
struct Refusing {
    server: Server,
    place: Place,
    refusal: (u16, &'static str),
    refused: AtomicUsize,
    is_over: AtomicBool,
}

impl Refusing {
    fn object(&self) -> String {
        let (version, step) = match self.refused.load(Ordering::SeqCst) {
            0 => (5, 1),
            _ => (6, 2),
        };
        format!(
            "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"web\",\
             \"namespace\":\"shop\",\"uid\":\"u\",\"resourceVersion\":\"{version}\"}},\
             \"data\":{{\"step\":\"{step}\"}}}}"
        )
    }

    fn list(&self) -> String {
        let object = self.object();
        let version = 5 + self.refused.load(Ordering::SeqCst).min(1);
        format!(
            "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":\
             {{\"resourceVersion\":\"{version}\"}},\"items\":[{object}]}}"
        )
    }

    /// Whether this request is the one to refuse.
    fn takes(&self, place: Place) -> bool {
        place == self.place
            && self
                .refused
                .compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }

    fn status(&self) -> String {
        let (code, rest) = self.refusal;
        format!(
            "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"code\":{code},\
             \"message\":\"not now\"{rest}}}"
        )
    }

    /// Answers with JSON, in one write: the client may be gone, because it has what it waited for.
    fn answer(peer: &mut Peer, code: u16, body: &str) {
        let length = body.len();
        peer.try_write(format!(
            "HTTP/1.1 {code} Word\r\nContent-Type: application/json\r\nContent-Length: {length}\
             \r\n\r\n{body}"
        ));
    }

    /// Serves one connection until the client closes it, or this server cuts it.
    fn serve(&self, mut peer: Peer) {
        let cuts = self.refusal.0 == 0;
        while let Some(request) = peer.request_or_close() {
            let is_watch = request.line.contains("watch=true");
            let place = if is_watch { Place::Open } else { Place::List };
            if self.takes(place) {
                if cuts {
                    return;
                }
                Self::answer(&mut peer, self.refusal.0, &self.status());
            } else if is_watch {
                let is_last = self.takes(Place::Within);
                if is_last && cuts {
                    peer.try_write("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"type\":");
                    return;
                }
                let (kind, object) = if is_last {
                    ("ERROR", self.status())
                } else {
                    ("MODIFIED", self.object())
                };
                let event = format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
                let length = event.len();
                let end = if is_last { "0\r\n\r\n" } else { "" };
                peer.try_write(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: \
                     chunked\r\n\r\n{length:x}\r\n{event}\r\n{end}"
                ));
            } else {
                Self::answer(&mut peer, 200, &self.list());
            }
        }
    }

    /// Runs `client` beside the server.
    fn beside<T>(&self, client: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    let peer = self.server.accept();
                    if self.is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    scope.spawn(|| self.serve(peer));
                }
            });
            let result = client();
            self.is_over.store(true, Ordering::SeqCst);
            drop(TcpStream::connect(("127.0.0.1", self.server.port())).unwrap());
            result
        })
    }
}

/// Waits in each of the three ways for the second step. `by` are the way and the deadline.
fn wait<K: Object>(
    client: &Client,
    (way, deadline): (usize, Deadline),
    step: fn(&K) -> Option<String>,
) -> Option<String> {
    let (key, scope) = (ObjectKey::new("shop", "web"), Scope::namespace("shop"));
    let is_done = |object: Option<&K>| object.and_then(step).as_deref() == Some("2");
    let options = ReflectorOptions::default();
    let source = client.lister_watcher::<K>(scope);
    let found = match way {
        0 => client.wait_until(&key, is_done, deadline),
        1 => {
            let (store, _reflector) =
                Store::spawn("web", source, Indexers::new(), options).unwrap();
            store.wait_until(&key, is_done, deadline)
        }
        _ => {
            let options = InformerOptions::default().reflector(options);
            let informer = SharedInformer::<K>::new(source, options);
            informer.start().unwrap();
            informer.wait_until(&key, is_done, deadline)
        }
    };
    found.unwrap().and_then(|object| step(&object))
}

fn typed(map: &ConfigMap) -> Option<String> {
    map.data.as_ref()?.get("step").cloned()
}

fn dynamic(map: &Dynamic) -> Option<String> {
    map.field("/data/step").unwrap()
}

fn compact(map: &Compact<ConfigMap>) -> Option<String> {
    map.field("/data/step").unwrap()
}

/// B10: no refusal ends a wait or keeps it from the state that follows. Each is met once.
#[test]
fn a_wait_outlasts_each_refusal_in_each_place() {
    let deadline = Clock::system().after(PATIENCE);
    let places = PLACES.into_iter();
    let cases = places.flat_map(|place| REFUSALS.iter().map(move |refusal| (place, *refusal)));
    let outlasts = |place, refusal, way, representation| {
        let refusing = Refusing {
            server: Server::start(),
            place,
            refusal,
            refused: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        let step = refusing.beside(|| {
            let client = client(&refusing.server.url());
            match representation {
                0 => wait(&client, (way, deadline), typed),
                1 => wait(&client, (way, deadline), compact),
                _ => {
                    let client = client.with_resource(ConfigMap::resource());
                    wait(&client, (way, deadline), dynamic)
                }
            }
        });
        let case = format!("{place:?} {refusal:?} way {way} as {representation}");
        assert_eq!(step.as_deref(), Some("2"), "{case}");
        assert_eq!(refusing.refused.load(Ordering::SeqCst), 1, "{case}");
    };
    thread::scope(|scope| {
        for (number, (place, refusal)) in cases.enumerate() {
            for way in 0..3 {
                let outlasts = &outlasts;
                // Each way meets each representation, and each place each of them.
                scope.spawn(move || outlasts(place, refusal, way, (number + way) % 3));
            }
        }
    });
}
