//! Metadata alone at a real server: in the form that is asked for, and out of whole objects, as a
//! server sends them that does not know this form.

use std::fmt::Debug;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::{EventKind, ListRequest, WatchEvent, WatchRequest};
use kubecache::object::{Object, ObjectKey, Resource, Scope};
use kubecache::worker::StopToken;
use kubecache::{Compact, Dynamic, Metadata};

use super::support::*;

const NAMESPACE: &str = "metadata";

/// A way to the server on which requests ask for whole objects, whatever they asked for.
struct Whole {
    listener: TcpListener,
    tls: Arc<ClientConfig>,
    is_over: AtomicBool,
    /// All that the server answered.
    answers: Mutex<Vec<u8>>,
}

impl Whole {
    fn run(&self) {
        thread::scope(|scope| {
            for client in self.listener.incoming() {
                if self.is_over.load(Ordering::SeqCst) {
                    break;
                }
                scope.spawn(|| self.pass_on(&client.unwrap()));
            }
        });
    }

    fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.listener.local_addr().unwrap()));
    }

    /// Passes one request on, and its answer back.
    fn pass_on(&self, client: &TcpStream) {
        let mut lines = BufReader::new(client).lines();
        let mut head = String::new();
        for line in lines.by_ref().map_while(Result::ok) {
            if line.is_empty() {
                break;
            }
            let name = line.split(':').next().unwrap().to_ascii_lowercase();
            if !["accept", "accept-encoding", "connection"].contains(&name.as_str()) {
                head.extend([&line, "\r\n"]);
            }
        }
        if head.is_empty() {
            return;
        }
        let token = std::fs::read_to_string(directory().join("certs/admin.token")).unwrap();
        head.extend(["authorization: Bearer ", token.trim(), "\r\n"]);
        head.push_str("accept: application/json\r\nconnection: close\r\n\r\n");
        let server = std::env::var("KUBECACHE_CLUSTER_SERVER").unwrap();
        let server = TcpStream::connect(server.strip_prefix("https://").unwrap()).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = ClientConnection::new(Arc::clone(&self.tls), name).unwrap();
        let mut server = StreamOwned::new(connection, server);
        server.write_all(head.as_bytes()).unwrap();
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = server.read(&mut piece) {
            self.answers.lock().extend_from_slice(&piece[..count]);
            if (&mut &*client).write_all(&piece[..count]).is_err() {
                break;
            }
        }
        drop(client.shutdown(Shutdown::Both));
    }
}

fn write_secret(round: &str) {
    apply(&format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"one","namespace":
        "{NAMESPACE}","labels":{{"round":"{round}"}}}},"stringData":{{"value":"{round}"}}}}"#
    ));
}

fn gadgets() -> Resource {
    Resource::new("metadata.example.com", "v1", "gadgets", "Gadget")
}

fn write_gadget(round: &str) {
    apply(&format!(
        r#"{{"apiVersion":"metadata.example.com/v1","kind":"Gadget","metadata":{{"name":"one",
        "namespace":"{NAMESPACE}","labels":{{"round":"{round}"}}}},"spec":{{"x":"{round}"}}}}"#
    ));
}

/// Lists the one object, watches a change of it, and gets it.
fn read_each_way<K: Object + Debug>(client: &Client, write: fn(&str)) {
    write("1");
    let source = watcher::<K>(client, Scope::namespace(NAMESPACE));
    let (objects, page) = list(&*source, &ListRequest::default()).unwrap();
    let told: Vec<_> = objects
        .iter()
        .map(|object| (object.name(), object.label("round")))
        .collect();
    assert_eq!(told, [("one", Some("1"))]);
    write("2");
    let request = WatchRequest {
        timeout: Duration::from_secs(2),
        ..from(&page.resource_version)
    };
    let mut watch = source.watch(&request, &StopToken::never()).unwrap();
    let WatchEvent::Object(event) = next(&mut *watch) else {
        panic!("no event of an object");
    };
    let changed = event.object.decoded().unwrap();
    assert_eq!(event.kind, EventKind::Updated);
    assert_eq!((changed.name(), changed.label("round")), ("one", Some("2")));
    let got = get::<K>(client, NAMESPACE, "one").unwrap();
    assert_eq!(got.label("round"), Some("2"));
    assert_eq!(got.resource_version_text(), changed.resource_version_text());
}

fn read_both(client: &Client) {
    read_each_way::<Metadata<Secret>>(client, write_secret);
    read_each_way::<Metadata<Dynamic>>(&client.with_resource(gadgets()), write_gadget);
    let key = ObjectKey::new(NAMESPACE, "one");
    let text = client.get::<Compact<Metadata<Secret>>>(&key).unwrap();
    assert_eq!(text.field::<&str>("/data/value").unwrap(), None);
    assert_eq!(text.label("round"), Some("2"));
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn metadata_alone_comes_in_its_form_and_out_of_whole_objects() {
    let _up = cluster();
    for manifest in [
        format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{NAMESPACE}"}}}}"#),
        r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{"name":"gadgets.metadata.example.com"},"spec":{"group":"metadata.example.com",
        "scope":"Namespaced","names":{"plural":"gadgets","singular":"gadget","kind":"Gadget"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":
        {"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#
            .to_owned(),
    ] {
        apply(&manifest);
    }
    let admin = client_of("admin.yaml");
    let (clock, deadline) = (Clock::system(), Clock::system().after(PATIENCE));
    let served = admin.with_resource(gadgets());
    while let Err(error) = served.list::<Dynamic>(Scope::namespace(NAMESPACE)) {
        assert!(!clock.has_passed(deadline), "{error}");
    }
    read_both(&admin);

    let whole = Whole {
        listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        tls: tls_to_the_server(),
        is_over: AtomicBool::new(false),
        answers: Mutex::default(),
    };
    thread::scope(|scope| {
        scope.spawn(|| whole.run());
        let config = Config::for_server(&whole.url()).unwrap();
        read_both(&Client::new(&config, ClientOptions::default()).unwrap());
        whole.end();
    });
    let answers = String::from_utf8_lossy(&whole.answers.into_inner()).into_owned();
    for word in ["SecretList", "GadgetList", "\"data\":{\"value\":"] {
        assert!(answers.contains(word), "{word}");
    }
    assert!(!answers.contains("PartialObjectMetadata"), "{answers}");
}
