//! The server's audit log: which requests it received from whom, so that a test can say "these and
//! no others".

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::Clock;
use serde_json::Value;

use super::support::{PATIENCE, client_of, get, of_this_run};

/// One request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    uri: String,
    pub(crate) user: String,
    pub(crate) code: u64,
}

impl Asked {
    /// The value of a query parameter; empty without it.
    pub(crate) fn query(&self, name: &str) -> &str {
        let query = self.uri.split_once('?').map_or("", |(_, query)| query);
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let mut found = pairs.filter(|(key, _)| *key == name);
        found.next().map_or("", |(_, value)| value)
    }

    /// Verb and resource version, such as `get 0`; `get` alone asks for the most recent state.
    pub(crate) fn in_short(&self) -> String {
        let short = format!("{} {}", self.verb, self.query("resourceVersion"));
        short.trim_end().to_owned()
    }
}

/// What the [`client_named`](super::support::client_named) so has asked so far, one request after
/// the other.
pub(crate) fn asked_by(name: &str) -> Vec<Asked> {
    asked_as(&of_this_run(name))
}

/// What was asked with that user agent, in this run and before.
pub(crate) fn asked_as(user_agent: &str) -> Vec<Asked> {
    let log = log_up_to_now();
    let mut known = BTreeSet::new();
    let of_client = log.lines().filter(|line| line.contains(user_agent));
    let events = of_client.map(|line| serde_json::from_str::<Value>(line).unwrap());
    // A watch has a line when it opens and one when it ends.
    let mut events: Vec<_> = events
        .filter(|event| text(event, "userAgent").split(' ').next() == Some(user_agent))
        .filter(|event| known.insert(text(event, "auditID")))
        .collect();
    events.sort_by_key(|event| text(event, "requestReceivedTimestamp"));
    events.iter().map(asked).collect()
}

/// The same in short, of the requests for one object.
pub(crate) fn asked_for(client: &str, name: &str) -> Vec<String> {
    let asked = asked_by(client).into_iter();
    asked
        .filter(|asked| asked.name == name)
        .map(|asked| asked.in_short())
        .collect()
}

fn asked(event: &Value) -> Asked {
    let object = &event["objectRef"];
    Asked {
        verb: text(event, "verb"),
        resource: text(object, "resource"),
        name: text(object, "name"),
        uri: text(event, "requestURI"),
        user: text(&event["user"], "username"),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// The log once a request made now is in it: then all requests answered before are, too.
fn log_up_to_now() -> String {
    static MARKS: AtomicUsize = AtomicUsize::new(0);
    let clock = Clock::system();
    let deadline = clock.after(PATIENCE);
    let admin = client_of("admin.yaml");
    let path = std::env::var_os("KUBECACHE_CLUSTER_AUDIT").expect("run tests/cluster/run");
    loop {
        let mark = format!("mark-{}", MARKS.fetch_add(1, Ordering::Relaxed));
        assert!(get::<ConfigMap>(&admin, "default", &mark).is_err());
        let log = std::fs::read(PathBuf::from(&path)).unwrap();
        let log = String::from_utf8_lossy(&log).into_owned();
        // A line may be half written.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        if whole.contains(&format!("{mark}\"")) {
            return whole.to_owned();
        }
        assert!(!clock.has_passed(deadline), "the audit log stands still");
    }
}
