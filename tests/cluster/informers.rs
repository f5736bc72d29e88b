//! Shared informers against a real server: thousands of objects that change all the time, a restart
//! and an expired history in between, and in the end store, indices and handlers agree with a fresh
//! list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::ErrorKind;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::Client;
use kubecache::informer::{Forward, HandlerOptions, InformerOptions, Registration, SharedInformer};
use kubecache::list_watch::{ListRequest, ListerWatcher};
use kubecache::object::{Object as _, Scope, StoredObject};
use kubecache::reflector::{BackoffOptions, ReflectorOptions};
use kubecache::store::Indexers;
use kubecache::worker::Worker;

use super::churn::{Churn, Content, NAMESPACE, View, Watcher, content, pull};
use super::gateway::Gateway;
use super::support::*;

const OBJECTS: usize = 5_000;
const CHANGES: usize = 6_000;

/// Far below the number of changes, so that a handler that stands still is told several as one.
const SLOW_QUEUE_MAX: usize = 500;

/// How long everything may take to come along after the last change.
const CALM: Duration = Duration::from_secs(60);

type Informer = SharedInformer<ConfigMap>;

/// An informer and its handlers.
struct Followed {
    name: String,
    informer: Informer,
    transforms: bool,
    views: Vec<(Registration, Arc<View>)>,
    /// Dropping it lets the slow handler go on.
    gate: Option<Sender<()>>,
    _puller: Worker,
}

fn group(object: &ConfigMap) -> Vec<String> {
    let group = object.data.as_ref().and_then(|data| data.get("group"));
    group.cloned().into_iter().collect()
}

/// Drops what nobody here needs; the group has to stay.
fn without_change(object: &mut ConfigMap) {
    if let Some(data) = &mut object.data {
        data.remove("change");
    }
}

impl Followed {
    /// Starts an informer with three handlers: one of each kind, and one that stands still until it
    /// is let go.
    fn start(client: &Client, way: &str, watch_list: bool) -> Self {
        let name = format!("{way}, {}", if watch_list { "streamed" } else { "plain" });
        // The outage is long; who waits half a minute after it would only make the test longer.
        let reflector = ReflectorOptions::default()
            .watch_list(watch_list)
            .backoff(BackoffOptions::default().cap(Duration::from_secs(1)));
        let mut options = InformerOptions::default()
            .name(&*name)
            .indexers(Indexers::new().with("group", group))
            .reflector(reflector);
        let transforms = !watch_list;
        if transforms {
            options = options.transform(|object| Ok(StoredObject::edited(object, without_change)));
        }
        let source = watcher::<ConfigMap>(client, Scope::namespace(NAMESPACE));
        let informer = SharedInformer::new(source, options);

        let (gate, closed) = crossbeam_channel::bounded(0);
        let (slow, slow_view) = Watcher::behind(closed);
        let small = HandlerOptions::default()
            .name("slow")
            .queue_max(Some(SLOW_QUEUE_MAX));
        let slow = informer.add_handler_with(slow, small).unwrap();
        let (forward, told) = Forward::bounded(16);
        let forward_options = HandlerOptions::default().name("pulled");
        let pulled = informer.add_handler_with(forward, forward_options).unwrap();
        let (into, pulled_view) = Watcher::new();
        let thread = Worker::spawn("t-pull", move |_stop| pull(&told, into)).unwrap();
        let mut followed = Self {
            name,
            informer,
            transforms,
            views: vec![(slow, slow_view), (pulled, pulled_view)],
            gate: Some(gate),
            _puller: thread,
        };
        followed.add_handler("early");
        followed.informer.start().unwrap();
        followed
    }

    fn add_handler(&mut self, name: &str) {
        let (handler, view) = Watcher::new();
        let options = HandlerOptions::default().name(name);
        let added = self.informer.add_handler_with(handler, options).unwrap();
        self.views.push((added, view));
    }

    /// Removes the handler that was added last; nothing is told to it from then on.
    fn remove_handler(&mut self) {
        let (removed, view) = self.views.pop().unwrap();
        removed.remove(Clock::system().after(PATIENCE)).unwrap();
        let (before, delivered) = (view.told(), removed.readings().delivered);
        assert_eq!(before.wrong, [""; 0], "{}", self.name);
        assert!(removed.readings().has_ended);
        let told = before.added + before.updated + before.deleted;
        assert_eq!(u64::try_from(told).unwrap(), delivered, "{}", self.name);
    }

    fn assert_agrees(&mut self, listed: &[Arc<StoredObject<ConfigMap>>], deadline: Deadline) {
        let expected = content(listed);
        let store = self.informer.store();
        assert_eq!(
            differences(&content(&store.list()), &expected),
            [""; 0],
            "{}",
            self.name
        );
        assert_eq!(store.undecodable().len(), 0);
        self.assert_data(listed);
        self.assert_index(listed);
        drop(self.gate.take());
        for (registration, view) in &self.views {
            let who = format!("{}, handler {}", self.name, registration.name());
            let told = view.wait_until(deadline, |told| told.content == expected);
            assert_eq!(differences(&told.content, &expected), [""; 0], "{who}");
            assert_eq!(told.wrong, [""; 0], "{who}");
            registration.wait_until_synced(deadline).unwrap();
            assert_eq!(registration.readings().panics, 0, "{who}");
            let is_slow = registration.name() == "slow";
            assert!(!is_slow || registration.readings().coalesced > 0, "{who}");
        }
    }

    fn assert_data(&self, listed: &[Arc<StoredObject<ConfigMap>>]) {
        for object in listed {
            let key = object.key();
            let held = self.informer.store().get(key.namespace(), key.name());
            let held = held.unwrap().unwrap();
            let mut expected = ConfigMap::clone(object);
            if self.transforms {
                without_change(&mut expected);
            }
            assert_eq!(held.data, expected.data, "{}: {key}", self.name);
        }
    }

    fn assert_index(&self, listed: &[Arc<StoredObject<ConfigMap>>]) {
        let mut expected = BTreeMap::<String, BTreeSet<String>>::new();
        for object in listed {
            for group in group(object) {
                let of_group = expected.entry(group).or_default();
                of_group.insert(object.key().name().to_owned());
            }
        }
        let store = self.informer.store();
        let values: BTreeSet<_> = store.index_values("group").into_iter().collect();
        assert_eq!(values, expected.keys().cloned().collect(), "{}", self.name);
        for (group, expected) in expected {
            let found = store.by_index("group", &group).unwrap();
            let found: BTreeSet<_> = found
                .iter()
                .map(|object| object.key().name().to_owned())
                .collect();
            assert_eq!(found, expected, "{}: {group}", self.name);
        }
    }

    fn end(self, deadline: Deadline) {
        self.informer.shutdown(deadline).unwrap();
        assert!(
            self.views
                .iter()
                .all(|(handler, _)| handler.readings().has_ended)
        );
    }
}

/// The first few objects of which two say otherwise.
fn differences(found: &Content, expected: &Content) -> Vec<String> {
    let names: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let differ = names
        .into_iter()
        .filter(|name| found.get(*name) != expected.get(*name));
    let differ = differ.map(|name| {
        format!(
            "{name}: {:?}, not {:?}",
            found.get(name),
            expected.get(name)
        )
    });
    differ.take(5).collect()
}

fn prepare(namespace: &str) -> Arc<dyn ListerWatcher<ConfigMap>> {
    apply(&format!(
        r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#
    ));
    watcher::<ConfigMap>(&client_of("admin.yaml"), Scope::namespace(namespace))
}

fn write(namespace: &str, name: &str, value: &str) {
    apply(&format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\",\
         \"namespace\":\"{namespace}\"}},\"data\":{{\"value\":\"{value}\"}}}}"
    ));
}

/// Informers that saw all objects come, by streamed lists, and such as came later, by plain ones. A
/// third of the changes happen while most of them are cut off, then the server restarts: their
/// history has expired (410), and lists tell of the deletes that they missed. The others are cut
/// off by the restart alone.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn informers_agree_with_a_list_after_churn_an_outage_and_a_restart() {
    let _alone = cluster_alone();
    let clock = Clock::system();
    let source = prepare(NAMESPACE);
    let gateway = Gateway::start();
    let (cut_off, direct) = (
        client_at("admin.yaml", gateway.url()),
        client_of("admin.yaml"),
    );
    let mut far = vec![Followed::start(&cut_off, "cut off", true)];
    let mut near = vec![Followed::start(&direct, "direct", true)];
    let mut churn = Churn::start(OBJECTS, CHANGES);
    churn.wait_for("created");
    far.push(Followed::start(&cut_off, "cut off", false));
    near.push(Followed::start(&direct, "direct", false));
    for each in far.iter().chain(&near) {
        let synced = each.informer.wait_until_synced(clock.after(PATIENCE));
        synced.unwrap_or_else(|error| panic!("{}: {error}", each.name));
    }
    churn.wait_for("first third");
    gateway.close();
    for each in far.iter_mut().chain(&mut near) {
        each.add_handler("removed");
    }
    churn.wait_for("second third");
    restart_the_server();
    for each in far.iter_mut().chain(&mut near) {
        each.remove_handler();
        each.add_handler("late");
    }
    gateway.open();
    churn.wait_for("last third");
    write(NAMESPACE, "the-last", "of the changes");

    let (listed, page) = list(&*source, &ListRequest::default()).unwrap();
    let deadline = clock.after(CALM);
    for each in far.iter_mut().chain(&mut near) {
        let store = each.informer.store();
        let came = store.wait_until_at_least(&page.resource_version, deadline);
        came.unwrap_or_else(|error| panic!("{}: {error}, {:?}", each.name, store.status()));
        each.assert_agrees(&listed, deadline);
    }
    for each in &far {
        let status = each.informer.status();
        assert!(
            status.lists > 1,
            "{}: nothing expired: {status:?}",
            each.name
        );
        let handlers = each
            .views
            .iter()
            .filter(|(handler, _)| handler.readings().coalesced == 0);
        for (handler, view) in handlers.filter(|(handler, _)| handler.name() != "late") {
            let told = view.told();
            assert!(
                told.missed > 0 && told.missed < told.deleted,
                "{}: {handler:?}",
                each.name
            );
        }
    }
    for each in far.into_iter().chain(near) {
        each.end(clock.after(PATIENCE));
    }
}

/// SI-21: a resync asks nothing of the server and is for those who asked for it.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn si_21_resyncs_come_to_the_handler_that_asked_and_cost_no_request() {
    let _up = cluster();
    let clock = Clock::system();
    drop(prepare("informers"));
    for name in ["one", "two", "three"] {
        write("informers", name, "1");
    }
    let client = client_named("admin.yaml", "informer-resync");
    let source = watcher::<ConfigMap>(&client, Scope::namespace("informers"));
    let options = InformerOptions::default().resync_period(Duration::from_secs(1));
    let informer = SharedInformer::new(source, options);
    let (handler, resynced) = Watcher::new();
    informer.add_handler(handler).unwrap();
    let (handler, quiet) = Watcher::new();
    let never = HandlerOptions::default().resync_period(Duration::ZERO);
    let never = informer.add_handler_with(handler, never).unwrap();
    informer.start().unwrap();
    never.wait_until_synced(clock.after(PATIENCE)).unwrap();
    let told = resynced.wait_until(clock.after(PATIENCE), |told| told.repeated >= 6);
    assert_eq!(
        (told.added, told.updated, told.deleted),
        (3, told.repeated, 0),
        "{told:?}"
    );
    assert_eq!(told.wrong, [""; 0]);
    assert_eq!(quiet.told().updated, 0, "{:?}", quiet.told());
    informer.shutdown(clock.after(PATIENCE)).unwrap();
    let asked = super::audit::asked_by("informer-resync");
    // A streamed list is a watch; a server without them refuses the first.
    let answered: Vec<_> = asked.iter().filter(|asked| asked.code < 300).collect();
    assert!(
        matches!(answered.len(), 1 | 2),
        "one list and one watch at most: {asked:?}"
    );
}

/// WT-1: the wait ends with the server's own words.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn r4_a_refused_namespace_is_told_in_the_servers_words() {
    let _up = cluster();
    let source = watcher::<ConfigMap>(&client_of("nobody.yaml"), Scope::namespace("shop"));
    let informer = SharedInformer::new(source, InformerOptions::default());
    let (handler, view) = Watcher::new();
    let handler = informer.add_handler(handler).unwrap();
    informer.start().unwrap();
    let clock = Clock::system();
    let error = informer
        .wait_until_synced(clock.after(PATIENCE))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    let words = error.status().unwrap().message();
    let expected = "configmaps is forbidden: User \"nobody\" cannot list resource \"configmaps\" \
        in API group \"\" in the namespace \"shop\"";
    assert_eq!(words, expected);
    assert!(error.to_string().contains(expected), "{error}");
    assert!(!informer.has_synced() && !handler.has_synced());
    informer.shutdown(clock.after(PATIENCE)).unwrap();
    assert_eq!(view.told().added, 0);
}
