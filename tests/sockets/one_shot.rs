//! The short calls: one object, and all objects of a scope over all pages, with a deadline for the
//! whole call.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kubecache::clock::{Clock, Deadline};
use kubecache::http::DecodeOptions;
use kubecache::http::{Client, Config, Patch, WriteOptions};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::list_watch::ListRequest;
use kubecache::manager::{ChangeDetection, ManagerOptions, ObjectManager, Owner};
use kubecache::object::{Object, ObjectKey, Resource, ResourceVersion, Scope, StoredObject};
use kubecache::reflector::ReflectorOptions;
use kubecache::store::{Indexers, Store};
#[cfg(all(feature = "ring", feature = "testing"))]
use kubecache::testing::{ApiServer, TestAuthority};
use kubecache::worker::StopToken;
use kubecache::{Dynamic, Error, ErrorKind, Metadata};
#[cfg(all(feature = "ring", feature = "testing"))]
use rustls::crypto::ring;

use super::server::{Request, Server};
use super::{PATIENCE, client, eventually, patient, secret, secret_list};
use crate::support::until;

const PAGE: &str = "/api/v1/namespaces/shop/secrets?limit=500";

/// Path and query of a request.
fn target(request: &Request) -> String {
    request.line.split(' ').nth(1).unwrap().to_owned()
}

/// A page with one Secret, after which another page follows.
fn first_page(next: &str) -> String {
    secret_list("5", &[secret("a", "1")]).replacen(
        "\"resourceVersion\":\"5\"",
        &format!("\"resourceVersion\":\"5\",\"continue\":\"{next}\""),
        1,
    )
}

/// Lists once while the server gives these answers; returns the names and the requests' targets.
fn list_against(answers: &[(u16, String)]) -> (Result<Vec<String>, Error>, Vec<String>) {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let listing = scope.spawn(|| client.list::<Secret>(Scope::namespace("shop")));
        let mut peer = server.accept();
        let answer = |(code, body): &(u16, String)| {
            let target = target(&peer.request());
            peer.json(*code, body);
            target
        };
        let targets = answers.iter().map(answer).collect();
        let name = |secret: &Arc<StoredObject<Secret>>| secret.metadata.name.clone().unwrap();
        let listed = listing.join().unwrap();
        (listed.map(|all| all.iter().map(name).collect()), targets)
    })
}

#[test]
fn a_list_follows_its_pages() {
    let last = secret_list("5", &[secret("b", "2")]);
    let (listed, targets) = list_against(&[(200, first_page("more")), (200, last)]);
    assert_eq!(listed.unwrap(), ["a", "b"]);
    assert_eq!(targets, [PAGE, &format!("{PAGE}&continue=more")]);
}

#[test]
fn a_list_whose_version_expires_between_pages_is_read_whole() {
    let expired = r#"{"kind":"Status","status":"Failure","reason":"Expired","code":410}"#;
    let whole = secret_list("9", &[secret("b", "2"), secret("c", "3")]);
    let answers = [
        (200, first_page("old")),
        (410, expired.to_owned()),
        (200, whole),
    ];
    let (listed, targets) = list_against(&answers);
    assert_eq!(listed.unwrap(), ["b", "c"]);
    assert_eq!(targets.last().unwrap(), "/api/v1/namespaces/shop/secrets");
}

#[test]
fn an_item_that_does_not_decode_is_an_error_that_names_it() {
    let odd = secret("odd", "1").replace("{\"name\":\"odd\"", "{\"labels\":7,\"name\":\"odd\"");
    let (listed, _) = list_against(&[(200, secret_list("5", &[odd]))]);
    let error = listed.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Undecodable, "{error}");
    assert!(error.to_string().contains("shop/odd"), "{error}");
}

/// Lists with these options from a server that gives these answers and no more; returns the error.
fn refused(decode: DecodeOptions, answers: &[String]) -> Error {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let client = Client::new(&config, patient().decode(decode)).unwrap();
    thread::scope(|scope| {
        let listing = scope.spawn(|| client.list::<Secret>(Scope::namespace("shop")));
        let mut peer = server.accept();
        for answer in answers {
            peer.request();
            peer.json(200, answer);
        }
        listing.join().unwrap().unwrap_err()
    })
}

/// Promise 6: a server whose pages never end does not fill the memory.
#[test]
fn a_list_without_end_is_too_large() {
    let pages = ["t1", "t2", "t3"].map(first_page);
    let error = refused(DecodeOptions::default().list_items_max(2), &pages);
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(
        error.to_string(),
        "list secrets in namespace \"shop\": the maximum is 2 objects, and 1 more found no room: \
         DecodeOptions::list_items_max raises the limit"
    );
    let bytes_max = pages[0].len() * 2;
    let error = refused(DecodeOptions::default().list_bytes_max(bytes_max), &pages);
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    let told = format!("the list has more than {bytes_max} bytes: DecodeOptions::list_bytes_max");
    assert!(error.to_string().contains(&told), "{error}");
}

#[test]
fn pages_that_repeat_or_stay_empty_end_the_list() {
    let empty = |token: String| first_page(&token).replace(&secret("a", "1"), "");
    let empty: Vec<_> = (0..6).map(|page| empty(page.to_string())).collect();
    let same = ["more", "more"].map(first_page);
    let circle = ["a", "b", "c", "b"].map(first_page);
    for (pages, why) in [
        (&empty[..], "they are empty, and announce more"),
        (&same, "a token repeats"),
        (&circle, "a token repeats"),
    ] {
        let error = refused(DecodeOptions::default(), pages);
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        let told =
            format!("list secrets in namespace \"shop\": the server's pages do not end: {why}");
        assert!(error.to_string().starts_with(&told), "{error}");
    }
}

/// Promise 6: pages, and a watch that adds ever new names, fill a store up to its bound, and the
/// watch goes on.
#[test]
fn pages_and_events_without_end_fill_a_store_up_to_its_bound() {
    let server = Server::start();
    let decode = DecodeOptions::default().list_items_max(15);
    let config = Config::for_server(&server.url()).unwrap();
    let options = patient().decode(decode).watch_list(false);
    let client = Client::new(&config, options).unwrap();
    let source = client.lister_watcher::<Secret>(Scope::namespace("shop"));
    let (store, reflector) = Store::spawn(
        "secrets",
        source,
        Indexers::new(),
        ReflectorOptions::default(),
    )
    .unwrap();
    let mut peer = server.accept();
    for page in 0..10 {
        peer.request();
        let items: Vec<_> = (0..10)
            .map(|item| secret(&format!("s-{page}{item}"), "1"))
            .collect();
        let list = secret_list("5", &items);
        let token = format!("\"resourceVersion\":\"5\",\"continue\":\"{page}\"");
        let more = list.replacen("\"resourceVersion\":\"5\"", &token, 1);
        peer.json(200, if page < 9 { &more } else { &list });
    }
    peer.request();
    peer.begin();
    for new in 0..50 {
        let object = secret(&format!("new-{new}"), "6");
        peer.chunk(&format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"));
    }
    let held = secret("s-00", "7");
    peer.chunk(&format!("{{\"type\":\"MODIFIED\",\"object\":{held}}}\n"));
    let deadline = Clock::system().after(PATIENCE);
    store.wait_until_at_least(&"7".into(), deadline).unwrap();
    assert_eq!(store.len(), 15);
    let held = store.get("shop", "s-00").unwrap().unwrap();
    assert_eq!(held.metadata.resource_version.as_deref(), Some("7"));
    let told = "secrets in namespace \"shop\": the maximum is 15 objects, and 135 more found no \
                room: DecodeOptions::list_items_max raises the limit";
    until(|| {
        let health = store.health();
        let has_told = health
            .as_ref()
            .is_err_and(|error| error.to_string() == told);
        let is_late = Clock::system().has_passed(deadline);
        assert!(has_told || !is_late, "{health:?}");
        has_told
    });
    reflector.join().unwrap();
}

#[test]
fn a_server_that_does_not_answer_costs_the_deadline_and_the_error_names_the_phase() {
    let server = Server::start();
    let client = client(&server.url());
    eventually("waiting for the head", || {
        let soon = Clock::system().after(Duration::from_millis(30));
        let error = client.list_by::<Secret>(Scope::all(), soon).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        error
    });
    let options = patient().request_timeout(Duration::from_millis(300));
    let client = Client::new(&Config::for_server(&server.url()).unwrap(), options).unwrap();
    let got = client.get::<Node>(&ObjectKey::new("", "node-1"));
    assert_eq!(got.unwrap_err().kind(), ErrorKind::Timeout);
}

#[test]
fn one_object_is_got_by_its_key() {
    let server = Server::start();
    let client = client(&server.url());
    let soon = Clock::system().after(PATIENCE);
    let key = ObjectKey::new("shop", "db");
    thread::scope(|scope| {
        let getting = scope.spawn(|| client.get_by::<Secret>(&key, soon));
        let mut peer = server.accept();
        let request = peer.request();
        assert_eq!(target(&request), "/api/v1/namespaces/shop/secrets/db");
        peer.json(200, &secret("db", "1"));
        let secret = getting.join().unwrap().unwrap();
        assert_eq!(secret.metadata.resource_version.as_deref(), Some("1"));
    });
}

/// A list uses the connections that gets keep, so that no list pays for a handshake of its own.
#[cfg(all(feature = "ring", feature = "testing"))]
#[test]
fn lists_and_gets_share_the_kept_connections() {
    let authority = TestAuthority::new("shared", ring::default_provider().into()).unwrap();
    let server = || ApiServer::builder().token("made-up", "admin", &["system:masters"]);
    for server in [server(), server().tls_by(&authority).unwrap()] {
        let server = server.start().unwrap();
        let config = Config::for_server(&server.url()).unwrap();
        let config = config.with_authorities(authority.pem());
        let client = Client::new(&config.with_token("made-up").unwrap(), patient()).unwrap();
        let scope = || Scope::namespace("shop");
        for _ in 0..3 {
            client.list::<Secret>(scope()).unwrap();
            client.list::<Node>(Scope::all()).unwrap();
            let absent = client.get::<Secret>(&ObjectKey::new("shop", "db"));
            assert!(absent.unwrap_err().is_not_found());
        }
        assert_eq!(server.connections(), 1, "{}", server.url());
        let source = client.lister_watcher::<Secret>(scope());
        drop(source.watch(&super::watch_from("1"), &StopToken::never()));
        assert_eq!(server.connections(), 2, "a watch has its own");
    }
}

/// A kept connection whose path died is left for a new one, also by a list.
#[test]
fn a_list_on_a_silent_kept_connection_is_asked_for_on_a_new_one() {
    let server = Server::start();
    let options = patient().list_first_byte_timeout(Duration::from_secs(4));
    let client = Client::new(&Config::for_server(&server.url()).unwrap(), options).unwrap();
    thread::scope(|scope| {
        let listing = scope.spawn(|| {
            [(); 2].map(|()| {
                let listed = client.list::<Secret>(Scope::namespace("shop"));
                listed.map(|all| all.len())
            })
        });
        let mut first = server.accept();
        first.request();
        first.json(200, &secret_list("5", &[secret("a", "1")]));
        first.request();
        let mut second = server.accept();
        second.request();
        second.json(200, &secret_list("5", &[]));
        let [one, other] = listing.join().unwrap();
        assert_eq!((one.unwrap(), other.unwrap()), (1, 0));
    });
}

/// A type without a resource of its own, and a resource that is not whole.
#[test]
fn a_request_without_a_resource_is_refused_before_it_is_sent() {
    let server = Server::start();
    let plain = client(&server.url());
    let no_version = Resource::new("example.com", "", "racks", "Rack");
    let no_plural = Resource::new("", "v1", "", "Rack");
    let clients = [
        plain.clone(),
        plain.with_resource(no_version),
        plain.with_resource(no_plural),
    ];
    for client in &clients {
        for (call, error) in refused_calls::<Dynamic>(client) {
            refused_by_name(call, &error);
        }
        for (call, error) in refused_calls::<Metadata<Dynamic>>(client) {
            refused_by_name(call, &error);
        }
    }
    let map = ConfigMap::default();
    let options = WriteOptions::default();
    let (create, replace) = (
        clients[1].create(&map, &options, Deadline::NEVER),
        clients[1].replace(&map, &options, Deadline::NEVER),
    );
    for (call, result) in [("create", create), ("replace", replace)] {
        // It has no namespace.
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{call}: {error}");
    }
    assert!(!server.has_visitors());
}

fn refused_by_name(call: &str, error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Config, "{call}: {error}");
    let text = error.to_string();
    assert!(text.contains(&format!("{call}: ")), "{call}: {text}");
    assert!(text.contains("client.with_resource("), "{call}: {text}");
}

/// Asks in each way, without any limit of time.
fn refused_calls<K: Object>(client: &Client) -> Vec<(&'static str, Error)> {
    let (key, never) = (ObjectKey::new("shop", "r1"), StopToken::never());
    let scope = || Scope::namespace("shop");
    let source = client.lister_watcher::<K>(scope());
    let list = source.list(&ListRequest::default(), &never, &mut |_| ());
    let watch = source.watch(&super::watch_from("1"), &never).map(drop);
    let latest = ResourceVersion::most_recent();
    let got = client.getter::<K>();
    let got = got.get(&key, &latest, Deadline::NEVER, &never).map(drop);
    let waited = client.wait_until::<K>(&key, |_| true, Deadline::NEVER);
    let source = client.lister_watcher::<K>(scope());
    let stored = Store::spawn(
        "racks",
        source,
        Indexers::new(),
        ReflectorOptions::default(),
    );
    let source = client.lister_watcher::<K>(scope());
    let informer = SharedInformer::<K>::new(source, InformerOptions::default());
    let started = informer.start();
    let synced = informer.wait_until_synced(Deadline::NEVER).unwrap_err();
    let said = started.as_ref().unwrap_err().to_string();
    assert!(synced.to_string().contains(&said), "{synced}");
    let note = Patch::Merge(serde_json::json!({}));
    let options = WriteOptions::default();
    let patched = client.patch::<K>(&key, &note, &options, Deadline::NEVER);
    let body = serde_json::Value::Null;
    let deleted = client.delete::<K>(&key, &body, &options, Deadline::NEVER);
    vec![
        ("GET", client.get::<K>(&key).unwrap_err()),
        ("GET", got.unwrap_err()),
        ("list", client.list::<K>(scope()).unwrap_err()),
        ("list", list.unwrap_err()),
        ("watch", watch.unwrap_err()),
        ("list", waited.unwrap_err()),
        ("list", stored.map(drop).unwrap_err()),
        ("list", started.unwrap_err()),
        ("PATCH", patched.unwrap_err()),
        ("DELETE", deleted.unwrap_err()),
    ]
}

/// A manager retries, because it does not fail as a whole: its reads say why.
#[test]
fn a_manager_without_a_resource_says_so_and_sends_nothing() {
    let server = Server::start();
    for mode in [
        ChangeDetection::Watch,
        ChangeDetection::Cache,
        ChangeDetection::Get,
    ] {
        let options = ManagerOptions::default().change_detection(mode);
        let manager = ObjectManager::<Dynamic>::new(client(&server.url()), options).unwrap();
        let owner = Owner::new("pod", ObjectKey::new("shop", "p"));
        manager.add_reference(&owner, &ObjectKey::new("shop", "r1"));
        // On a busy machine the watch may not have begun when the first read gives up.
        until(|| {
            let text = manager.get("shop", "r1").unwrap_err().to_string();
            text.contains("client.with_resource(")
        });
    }
    assert!(!server.has_visitors());
}

/// The answers of a server that refuses for a while.
#[cfg(feature = "testing")]
mod refusals {
    use kubecache::clock::FakeClock;
    use kubecache::hooks::Hook;
    use kubecache::http::ClientMetric;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::get_by;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn status(code: u16, details: &str) -> String {
        format!(
            "{{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":{code},\
             \"message\":\"storage is (re)initializing\"{details}}}"
        )
    }

    /// Refuses the next request.
    fn refuse(peer: &mut super::super::server::Peer, code: u16, headers: &str, details: &str) {
        peer.request();
        let headers = format!("Content-Type: application/json\r\n{headers}");
        peer.answer(code, &headers, status(code, details));
    }

    fn waiting_client(server: &Server, fake: &FakeClock) -> Client {
        let options = patient().clock(fake.clone().into());
        Client::new(&Config::for_server(&server.url()).unwrap(), options).unwrap()
    }

    /// Lets the wait of one read pass. Returns whole seconds of it: chance adds less than one.
    fn pass_wait(fake: &FakeClock) -> u64 {
        let wait = fake.wait_for_timers(1);
        fake.advance(wait);
        wait.as_secs()
    }

    /// A deadline that is far away on both clocks.
    fn later(fake: &FakeClock) -> Deadline {
        Deadline::at(fake.now() + PATIENCE)
    }

    fn db() -> ObjectKey {
        ObjectKey::new("shop", "db")
    }

    /// A name that does not exist is looked up once; one of which the resolver does not know is
    /// looked up once more.
    #[test]
    fn a_name_is_looked_up_again_only_if_the_resolver_may_find_it_then() {
        const PLACE: &str = "failed to lookup address information: ";
        let rows = [
            (Io::Uncategorised("Name or service not known"), 1),
            (Io::Uncategorised("No address associated with hostname"), 1),
            (
                Io::Uncategorised("Non-recoverable failure in name resolution"),
                1,
            ),
            (Io::Uncategorised("Name does not resolve"), 1),
            (Io::Kind(io::ErrorKind::NotFound), 1),
            (Io::NoAddress, 1),
            (Io::Uncategorised("Temporary failure in name resolution"), 2),
            (Io::Uncategorised("Try again"), 2),
            (Io::System(24), 2),
        ];
        for (answer, lookups) in rows {
            let (fake, asked) = (FakeClock::new(), Arc::new(AtomicUsize::new(0)));
            let count = Arc::clone(&asked);
            let config = Config::for_server("http://api.test:1").unwrap();
            let options = patient().clock(fake.clone().into());
            let client = Client::with_lookup(&config, options, move |_, _| {
                count.fetch_add(1, Ordering::SeqCst);
                match answer {
                    Io::Uncategorised(text) => Err(io::Error::other([PLACE, text].concat())),
                    Io::Kind(kind) => Err(kind.into()),
                    Io::System(code) => Err(io::Error::from_raw_os_error(code)),
                    Io::NoAddress => Ok(Vec::new()),
                }
            });
            let client = client.unwrap();
            thread::scope(|scope| {
                let getting = scope.spawn(|| client.get_by::<Secret>(&db(), later(&fake)));
                if lookups == 2 {
                    assert_eq!(pass_wait(&fake), 0, "{answer:?}");
                }
                let error = getting.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
                assert!(
                    error.to_string().contains("looking up api.test: "),
                    "{error}"
                );
                let attempts = if lookups == 2 { 2 } else { 0 };
                assert_eq!(error.attempts(), attempts, "{error}");
            });
            assert_eq!(asked.load(Ordering::SeqCst), lookups, "{answer:?}");
        }
    }

    /// What a resolver says.
    #[derive(Clone, Copy, Debug)]
    enum Io {
        Uncategorised(&'static str),
        Kind(io::ErrorKind),
        System(i32),
        NoAddress,
    }

    #[test]
    fn a_get_follows_a_wait_in_each_of_its_forms() {
        let dates = "Date: Wed, 21 Oct 2026 07:27:30 GMT\r\n\
                     Retry-After: Wed, 21 Oct 2026 07:27:37 GMT\r\n";
        let in_body = ",\"details\":{\"retryAfterSeconds\":7}";
        for (code, headers, details, wait) in [
            (429, "Retry-After: 7\r\n", "", 7),
            (429, dates, "", 7),
            (429, "", in_body, 7),
            (503, "Retry-After: 7\r\n", "", 7),
            (500, "", in_body, 7),
            (429, "Retry-After: 0\r\n", "", 0),
            (503, "Retry-After: 0\r\n", "", 0),
            (503, "", "", 0),
        ] {
            let (server, fake) = (Server::start(), FakeClock::new());
            let client = waiting_client(&server, &fake);
            thread::scope(|scope| {
                let getting = scope.spawn(|| client.get_by::<Secret>(&db(), later(&fake)));
                let mut peer = server.accept();
                refuse(&mut peer, code, headers, details);
                assert_eq!(pass_wait(&fake), wait, "{code} {headers}");
                peer.request();
                peer.json(200, &secret("db", "1"));
                getting.join().unwrap().unwrap();
            });
        }
    }

    /// Each page has tries of its own, and the pages before stay.
    #[test]
    fn a_list_follows_a_wait_on_each_of_its_pages() {
        let (server, fake) = (Server::start(), FakeClock::new());
        let client = waiting_client(&server, &fake);
        thread::scope(|scope| {
            let deadline = later(&fake);
            let listing =
                scope.spawn(move || client.list_by::<Secret>(Scope::namespace("shop"), deadline));
            let mut peer = server.accept();
            let page = |peer: &mut super::super::server::Peer, body: &str| {
                refuse(peer, 429, "Retry-After: 2\r\n", "");
                assert_eq!(pass_wait(&fake), 2);
                let target = target(&peer.request());
                peer.json(200, body);
                target
            };
            page(&mut peer, &first_page("two"));
            page(&mut peer, &first_page("three").replace("\"a\"", "\"b\""));
            let target = page(&mut peer, &secret_list("5", &[secret("c", "3")]));
            assert_eq!(target, format!("{PAGE}&continue=three"));
            assert_eq!(listing.join().unwrap().unwrap().len(), 3);
        });
    }

    /// What came before the cut counts once.
    #[test]
    fn a_list_that_is_cut_within_its_body_is_asked_for_once_more() {
        let (server, fake) = (Server::start(), FakeClock::new());
        let client = waiting_client(&server, &fake);
        let all = secret_list("5", &[secret("a", "1"), secret("b", "2")]);
        let cut = |server: &Server| {
            let mut peer = server.accept();
            peer.request();
            peer.begin_with(all.get(..all.len() - 5).unwrap());
        };
        for is_mended in [true, false] {
            let deadline = later(&fake);
            thread::scope(|scope| {
                let listing =
                    scope.spawn(|| client.list_by::<Secret>(Scope::namespace("shop"), deadline));
                cut(&server);
                assert_eq!(pass_wait(&fake), 0);
                if is_mended {
                    let mut peer = server.accept();
                    peer.request();
                    peer.json(200, &all);
                    assert_eq!(listing.join().unwrap().unwrap().len(), 2);
                    // The next list begins on a new connection.
                    drop(peer);
                    return;
                }
                cut(&server);
                let error = listing.join().unwrap().unwrap_err();
                assert_eq!((error.kind(), error.attempts()), (ErrorKind::Protocol, 2));
            });
        }
    }

    #[test]
    fn a_wait_that_the_deadline_leaves_no_time_for_ends_the_read_at_once() {
        let (server, fake) = (Server::start(), FakeClock::new());
        let client = waiting_client(&server, &fake);
        thread::scope(|scope| {
            let getting = scope.spawn(|| client.get_by::<Secret>(&db(), later(&fake)));
            refuse(&mut server.accept(), 429, "Retry-After: 86400\r\n", "");
            let error = getting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooManyRequests, "{error}");
            let told = "/secrets/db: storage is (re)initializing: attempt 1, ";
            assert!(error.to_string().contains(told), "{error}");
            let told = "the server asks for a wait of 86400s, and the deadline is in ";
            assert!(error.to_string().contains(told), "{error}");
            assert_eq!(error.attempts(), 1);
        });
    }

    #[test]
    fn a_refusal_for_ever_ends_after_ten_tries_each_of_which_is_counted() {
        let (server, fake) = (Server::start(), FakeClock::new());
        let (send, told) = crossbeam_channel::unbounded();
        let hook = Hook::new(move |metric: &ClientMetric| {
            if let ClientMetric::RequestSent { is_retry, .. } = metric {
                send.send(*is_retry).unwrap_or_default();
            }
        });
        let options = patient().clock(fake.clone().into()).metrics(hook);
        let client = Client::new(&Config::for_server(&server.url()).unwrap(), options).unwrap();
        thread::scope(|scope| {
            let getting = scope.spawn(|| client.get_by::<Secret>(&db(), later(&fake)));
            let mut peer = server.accept();
            for attempt in 1..=10 {
                refuse(&mut peer, 429, "Retry-After: 1\r\n", "");
                if attempt < 10 {
                    assert_eq!(pass_wait(&fake), 1);
                }
            }
            let error = getting.join().unwrap().unwrap_err();
            assert_eq!(error.attempts(), 10);
            assert_eq!(error.kind(), ErrorKind::TooManyRequests, "{error}");
        });
        let mut retries = vec![true; 10];
        retries[0] = false;
        assert_eq!(told.try_iter().collect::<Vec<_>>(), retries);
    }

    /// More reads wait than the client has slots, and come back one after the other.
    #[test]
    fn reads_that_wait_hold_no_slot_and_do_not_come_back_together() {
        const READS: usize = 20;
        let (server, fake) = (Server::start(), FakeClock::new());
        let client = waiting_client(&server, &fake);
        thread::scope(|scope| {
            let reads: Vec<_> = (0..READS)
                .map(|_| scope.spawn(|| client.get_by::<Secret>(&db(), later(&fake))))
                .collect();
            for _ in 0..READS {
                let mut peer = server.accept();
                refuse(
                    &mut peer,
                    429,
                    "Retry-After: 7\r\nConnection: close\r\n",
                    "",
                );
            }
            let first = fake.wait_for_timers(READS);
            let other =
                scope.spawn(|| get_by(&client, "db", later(&fake), &StopToken::never()).map(drop));
            let mut peer = server.accept();
            peer.request();
            peer.answer(
                200,
                "Connection: close\r\nContent-Type: application/json\r\n",
                secret("db", "1"),
            );
            other.join().unwrap().unwrap();
            let serve = || {
                let mut peer = server.accept();
                peer.request();
                let headers = "Connection: close\r\nContent-Type: application/json\r\n";
                peer.answer(200, headers, secret("db", "1"));
            };
            fake.advance(first);
            serve();
            // The others still wait: chance has given each a time of its own.
            let next = fake.wait_for_timers(1);
            assert!(next < SECOND, "{next:?}");
            fake.advance(SECOND);
            (1..READS).for_each(|_| serve());
            for read in reads {
                read.join().unwrap().unwrap();
            }
        });
    }
}
