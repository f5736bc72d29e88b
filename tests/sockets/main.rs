//! The client against servers of the tests' own making: plain sockets, scripted byte by byte from
//! the test's thread.
//!
//! The client's calls run on other threads; each step waits for the peer to be where the test wants
//! it, never for time.

mod answers;
mod budget;
mod canary;
#[cfg(feature = "gzip")]
mod gzip;
mod hostile;
mod kept;
#[cfg(feature = "ring")]
mod kubeconfigs;
mod limits;
mod managers;
mod one_shot;
mod paced;
#[cfg(feature = "testing")]
mod phases;
#[cfg(feature = "ring")]
mod plugins;
#[cfg(feature = "ring")]
mod proxies;
#[cfg(feature = "ring")]
#[cfg(feature = "testing")]
mod redial;
mod request_metrics;
mod sends;
mod server;
mod slots;
mod stops;
mod streaming;
#[cfg(feature = "ring")]
mod tls;
#[cfg(feature = "ring")]
mod tls_doctor;
mod unsent;
mod waits;
mod watch_budget;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::Error;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::{
    Getter, ListPage, ListRequest, Listed, ListerWatcher, Next, WatchEvent, WatchRequest,
    WatchStream,
};
use kubecache::object::{ObjectKey, ResourceVersion, Scope, StoredObject};
use kubecache::worker::StopToken;

/// Far more than any step takes on a busy machine: it only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

fn client(url: &str) -> Client {
    client_of(&Config::for_server(url).unwrap())
}

fn client_of(config: &Config) -> Client {
    Client::new(config, patient()).unwrap()
}

/// Options whose limits end only a test that fails.
fn patient() -> ClientOptions {
    ClientOptions::default()
        .connect_timeout(PATIENCE)
        .list_first_byte_timeout(PATIENCE)
        .watch_first_byte_timeout(PATIENCE)
        .object_list_first_byte_timeout(PATIENCE)
        .second_try_after(PATIENCE)
        .get_first_byte_timeout(PATIENCE)
        .body_idle_timeout(PATIENCE)
        .body_timeout(PATIENCE)
}

/// Asks again until the error tells of that phase, which is reached soon, and stays. On a busy
/// machine a short deadline may pass before.
fn eventually(phase: &str, error: impl Fn() -> Error) -> String {
    let end = Clock::system().after(PATIENCE);
    loop {
        let text = error().to_string();
        if text.contains(phase) {
            return text;
        }
        assert!(!Clock::system().has_passed(end), "not {phase}: {text}");
    }
}

fn secrets(client: &Client) -> Arc<dyn ListerWatcher<Secret>> {
    client.lister_watcher(Scope::namespace("shop"))
}

fn list(
    source: &dyn ListerWatcher<Secret>,
    stop: &StopToken,
) -> Result<(ListPage, Vec<String>), Error> {
    let mut names = Vec::new();
    let page = source.list(&ListRequest::default(), stop, &mut |item| match item {
        Listed::Object(secret) => names.push(secret.metadata.name.clone().unwrap()),
        Listed::Undecodable(undecodable) => names.push(undecodable.key.to_string()),
    })?;
    Ok((page, names))
}

fn watch_from(version: &str) -> WatchRequest {
    WatchRequest {
        resource_version: ResourceVersion::from(version),
        timeout: Duration::from_secs(5 * 60),
        head_timeout: Duration::from_secs(5 * 60),
        bookmarks: true,
        send_initial_events: false,
        urgent: false,
    }
}

fn open(source: &dyn ListerWatcher<Secret>) -> Box<dyn WatchStream<Secret>> {
    source.watch(&watch_from("1"), &StopToken::never()).unwrap()
}

fn get(client: &Client, name: &str) -> Result<Arc<StoredObject<Secret>>, Error> {
    get_by(client, name, Deadline::NEVER, &StopToken::never())
}

fn get_by(
    client: &Client,
    name: &str,
    deadline: Deadline,
    stop: &StopToken,
) -> Result<Arc<StoredObject<Secret>>, Error> {
    let getter: Arc<dyn Getter<Secret>> = client.getter();
    let key = ObjectKey::new("shop", name);
    getter.get(&key, &ResourceVersion::most_recent(), deadline, stop)
}

/// The version of the bookmark that comes next.
fn next_bookmark(watch: &mut dyn WatchStream<Secret>) -> String {
    match watch.next(Clock::system().after(PATIENCE)).unwrap() {
        Next::Event(WatchEvent::Bookmark {
            resource_version, ..
        }) => resource_version.to_string(),
        other => panic!("{other:?}"),
    }
}

fn bookmark(version: &str) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\
         \"metadata\":{{\"resourceVersion\":\"{version}\",\"creationTimestamp\":null}}}}}}\n"
    )
}

fn secret(name: &str, version: &str) -> String {
    format!(
        "{{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\
         \"namespace\":\"shop\",\
         \"uid\":\"u-{name}\",\"resourceVersion\":\"{version}\"}},\"data\":{{\"k\":\"dg==\"}}}}"
    )
}

fn secret_list(version: &str, items: &[String]) -> String {
    format!(
        "{{\"kind\":\"SecretList\",\"apiVersion\":\"v1\",\
         \"metadata\":{{\"resourceVersion\":\"{version}\"}},\
         \"items\":[{}]}}\n",
        items.join(",")
    )
}
