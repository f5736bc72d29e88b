//! What an event of a quiet watch costs: one poll and one read of the socket, and no wait for a
//! lock. Counted by `strace`, where that works.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Secret;
use kubecache::Error;
use kubecache::http::Client;
use kubecache::list_watch::ObjectEvent;
use kubecache::object::{ObjectKey, ResourceVersion, Scope};
use kubecache::reflector::{Reflector, ReflectorOptions, Replacement, Sink};

use super::server::{Peer, Server};
use super::{bookmark, client, secret, secret_list};
use crate::support::{alone_traced, until};

/// Events that are counted, one at a time.
const EVENTS: usize = 40;

/// The calls that count, and those that mark where the count begins and ends.
const CALLS: &str = "trace=poll,ppoll,recvfrom,read,futex,%file";

const BEGIN: &str = "/kubecache-the-count-begins";
const END: &str = "/kubecache-the-count-ends";

/// Counts what it takes in. A lock would cost system calls of its own.
struct Counting(Arc<AtomicUsize>);

impl Sink<Secret> for Counting {
    type Staging = ();

    fn begin(&mut self) {}

    fn stage(&mut self, (): &mut (), _: ObjectEvent<Secret>) {}

    fn commit(&mut self, (): (), _: &Replacement) -> Result<(), Error> {
        Ok(())
    }

    fn apply(&mut self, _: ObjectEvent<Secret>) -> Result<(), Error> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn bookmark(&mut self, _: &ResourceVersion) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Watches `scope` on a server that sends the events of `line`, each once the one before was taken
/// in.
fn follow<S: Read + Write>(
    client: &Client,
    scope: Scope,
    accept: impl FnOnce() -> Peer<S>,
    line: fn(&str) -> String,
) {
    let taken_in = Arc::new(AtomicUsize::new(0));
    let source = client.lister_watcher(scope);
    let options = ReflectorOptions::default().watch_list(false);
    let sink = Counting(Arc::clone(&taken_in));
    let reflector = Reflector::spawn("paced", source, sink, options).unwrap();
    let mut peer = accept();
    peer.request();
    peer.json(200, &secret_list("1", &[secret("db", "1")]));
    peer.request();
    peer.begin();
    // The first events grow what later ones use.
    for nth in 1..=EVENTS + 4 {
        if nth == 5 {
            assert!(std::fs::metadata(BEGIN).is_err());
        }
        peer.chunk(&line(&(nth + 1).to_string()));
        until(|| taken_in.load(Ordering::SeqCst) >= nth);
    }
    assert!(std::fs::metadata(END).is_err());
    drop(reflector);
}

fn modified(version: &str) -> String {
    format!(
        "{{\"type\":\"MODIFIED\",\"object\":{}}}\n",
        secret("db", version)
    )
}

fn one_object() -> Scope {
    Scope::object(&ObjectKey::new("shop", "db"))
}

/// The number of these calls between the marks.
fn count(trace: &str, names: &[&str]) -> usize {
    let counted = trace.split_once(BEGIN).unwrap().1;
    let counted = counted.split_once(END).unwrap().0;
    // A call that was interrupted by one of another thread has a second line.
    let calls = counted
        .lines()
        .filter_map(|line| line.split_once(' ')?.1.trim_start().split_once('('));
    calls.filter(|(name, _)| names.contains(name)).count()
}

/// Asserts what each event cost.
fn assert_cheap(trace: Option<String>) {
    let Some(trace) = trace else { return };
    let made = |names: &[&str]| count(&trace, names);
    let (polls, reads) = (made(&["poll", "ppoll"]), made(&["recvfrom", "read"]));
    let waits = made(&["futex"]);
    println!("{EVENTS} events: {polls} polls, {reads} reads, {waits} calls of futex");
    // The poll for the first event may have begun before the count.
    let most = EVENTS + EVENTS / 10;
    assert!(
        polls <= most && reads <= most,
        "{polls} polls, {reads} reads"
    );
    assert!(waits <= EVENTS / 4, "{waits} calls of futex");
}

#[test]
fn a_bookmark_of_one_object_costs_one_poll_and_one_read() {
    assert_cheap(alone_traced(CALLS, || {
        let server = Server::start();
        let accept = || server.accept();
        follow(&client(&server.url()), one_object(), accept, bookmark);
    }));
}

#[test]
fn a_change_of_a_collection_costs_one_poll_and_one_read() {
    assert_cheap(alone_traced(CALLS, || {
        let server = Server::start();
        let (all, accept) = (Scope::namespace("shop"), || server.accept());
        follow(&client(&server.url()), all, accept, modified);
    }));
}

#[cfg(feature = "ring")]
#[test]
fn over_tls_an_event_costs_as_little() {
    use super::{client_of, tls};

    assert_cheap(alone_traced(CALLS, || {
        let server = Server::start();
        let trusting = client_of(&tls::trusting(&server));
        let accept = || tls::accept(&server, &tls::of_all_names());
        follow(&trusting, one_object(), accept, bookmark);
    }));
}
