//! The traps of a kubelet's list, each against a server that answers as a kubelet does.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::{Value, json};

use super::*;
use crate::clock::FakeClock;
use crate::http::{ClientOptions, Config};
use crate::informer::{EventHandler, InformerOptions, SharedInformer};
use crate::object::StoredObject;
use crate::reflector::{Reflector, ReflectorOptions};
use crate::store::{Indexers, Store};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::testing::{Act, Answer, Exchange, Fault, FixtureServer, Recording, TestAuthority};
use crate::tests::until::until;
use crate::worker::StopSource;

/// What a kubelet answers: a pod of the API server, and a static one.
const RECORDED: &str = include_str!("../../fixtures/kubelet/pods.json");

/// Two intervals are longer than one with its jitter.
const PASSES: Duration = Duration::from_secs(20);

/// A kubelet that gives these answers, one after the other and the last one again and again, and a
/// source that polls it.
struct Node {
    time: FakeClock,
    kubelet: FixtureServer,
    source: Arc<dyn ListerWatcher<Pod>>,
    stop: StopSource,
}

impl Node {
    fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut recording = Recording::new();
        for answer in answers {
            recording.push(Exchange::get(PATH, answer));
        }
        let kubelet = FixtureServer::replaying(recording)
            .endless()
            .start()
            .unwrap();
        let config = Config::for_server(&kubelet.url()).unwrap();
        let time = FakeClock::new();
        let options = ClientOptions::default().clock(time.clone().into());
        let client = Client::new(&config, options).unwrap();
        Self {
            time,
            kubelet,
            source: client.kubelet_pods(KubeletPodsOptions::default()),
            stop: StopSource::new(),
        }
    }

    fn of(lists: impl IntoIterator<Item = Vec<Value>>) -> Self {
        Self::answering(lists.into_iter().map(|pods| list(&pods)))
    }

    /// Lists, and opens the watch that follows.
    fn watched(&self) -> (Vec<String>, Box<dyn WatchStream<Pod>>) {
        let (pods, page) = self.list().unwrap();
        let watch = self.watch(&page.resource_version).unwrap();
        (pods, watch)
    }

    fn list(&self) -> Result<(Vec<String>, ListPage), Error> {
        let mut pods = Vec::new();
        let mut each = |pod: Listed<Pod>| pods.push(said(&pod));
        let request = ListRequest::default();
        let page = self.source.list(&request, &self.stop.token(), &mut each)?;
        Ok((pods, page))
    }

    fn watch(&self, version: &ResourceVersion) -> Result<Box<dyn WatchStream<Pod>>, Error> {
        let request = WatchRequest {
            resource_version: version.clone(),
            timeout: Duration::from_secs(300),
            head_timeout: Duration::from_secs(30),
            bookmarks: true,
            send_initial_events: false,
            urgent: false,
        };
        self.source.watch(&request, &self.stop.token())
    }

    /// What the next poll of the watch brings.
    fn poll(&self, watch: &mut dyn WatchStream<Pod>) -> Vec<String> {
        self.time.advance(PASSES);
        let mut events = Vec::new();
        loop {
            match watch.next(Deadline::at(self.time.now())).unwrap() {
                Next::Event(WatchEvent::Object(event)) => {
                    let kind = format!("{:?}", event.kind).to_lowercase();
                    events.push(format!("{kind} {}", said(&event.object)));
                }
                Next::Event(WatchEvent::Bookmark {
                    resource_version, ..
                }) => events.push(resource_version.to_string()),
                Next::Event(WatchEvent::Error(error)) => {
                    events.push(format!("error {:?}", error.kind()));
                    return events;
                }
                Next::Event(event) => panic!("{event:?}"),
                Next::Ended(end) => panic!("{end:?}"),
                Next::DeadlinePassed => return events,
            }
        }
    }

    fn options(&self) -> ReflectorOptions {
        ReflectorOptions::exact(self.time.clone().into())
    }

    fn store(&self, options: ReflectorOptions) -> (Store<Pod>, Reflector) {
        let source = Arc::clone(&self.source);
        Store::spawn("pods", source, Indexers::new(), options).unwrap()
    }

    /// Ends the waits of the source and the reflector until `is_done`, which is asked while they
    /// wait: what holds only until the next answer is not missed.
    #[track_caller]
    fn pass_until(&self, is_done: impl Fn() -> bool) {
        until(|| {
            if is_done() {
                return true;
            }
            let wait = self.time.wait_for_next_timer();
            if is_done() {
                return true;
            }
            self.time.advance(wait);
            false
        });
    }
}

fn list(pods: &[Value]) -> Answer {
    let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods });
    Answer::text(200, list.to_string())
}

fn pod(name: &str, uid: &str, phase: &str) -> Value {
    json!({
        "metadata": { "namespace": "shop", "name": name, "uid": uid, "resourceVersion": "7" },
        "spec": { "nodeName": "node-1", "containers": [] }, "status": { "phase": phase },
    })
}

/// As [`pod`], but static: without a version.
fn static_pod(name: &str, uid: &str, phase: &str) -> Value {
    let mut pod = pod(name, uid, phase);
    let metadata = pod["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata.insert("creationTimestamp".into(), Value::Null);
    metadata.insert(
        "annotations".into(),
        json!({ "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid }),
    );
    pod
}

fn created(mut pod: Value, at: &str) -> Value {
    pod["metadata"]["creationTimestamp"] = at.into();
    pod
}

fn said(pod: &Listed<Pod>) -> String {
    let phase = pod
        .decoded()
        .and_then(|pod| pod.status.as_ref()?.phase.clone());
    let phase = phase.map(|phase| format!(" {phase}")).unwrap_or_default();
    format!("{} {}{phase}", pod.key().name(), pod.uid())
}

fn names(store: &Store<Pod>) -> Vec<String> {
    let mut names: Vec<_> = store
        .list()
        .iter()
        .map(|pod| pod.name().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn the_real_fields_decode_and_each_pod_has_a_version_of_its_content() {
    let changed = RECORDED.replace("\"restartCount\":0", "\"restartCount\":1");
    let node = Node::answering([RECORDED, RECORDED, &changed].map(|text| Answer::text(200, text)));
    let (store, reflector) = node.store(node.options());
    store.wait_until_synced(Deadline::NEVER).unwrap();
    let web = store.get("shop", "web-7d9c5b8f6d-x2x5q").unwrap().unwrap();
    let etcd = store.get("kube-system", "etcd-node-1").unwrap().unwrap();
    assert_eq!(etcd.uid(), "6a3c1d7f9b2e4f5a8c0d1e2f3a4b5c6d");
    assert_eq!(
        web.status.as_ref().unwrap().pod_ip.as_deref(),
        Some("10.244.1.7")
    );
    for pod in [&web, &etcd] {
        assert!(pod.resource_version().is_local(), "{pod:?}");
        assert_eq!(pod.spec.as_ref().unwrap().containers.len(), 1);
    }
    assert_ne!(web.resource_version(), etcd.resource_version());
    let is_changed = || {
        let now = store.get("kube-system", "etcd-node-1").unwrap().unwrap();
        now.resource_version() != etcd.resource_version()
    };
    node.pass_until(is_changed);
    assert_eq!(reflector.status().lists, 1, "a change needs no list");
    assert!(store.resource_version().is_local());
}

#[test]
fn a_static_pod_without_a_version_changes_with_its_content_and_not_without() {
    let lists = ["Pending", "Pending", "Running"].map(|phase| vec![static_pod("etcd", "a", phase)]);
    let node = Node::of(lists);
    let (pods, mut watch) = node.watched();
    assert_eq!(pods, ["etcd a Pending"]);
    assert_eq!(node.poll(&mut *watch), ["local-poll-2"]);
    assert_eq!(
        node.poll(&mut *watch),
        ["updated etcd a Running", "local-poll-3"]
    );
}

/// A kubelet keeps the version that a pod had when it first saw the pod.
#[test]
fn a_pod_with_an_old_version_changes_with_its_content() {
    let lists = ["Pending", "Running"].map(|phase| vec![pod("web", "a", phase)]);
    let node = Node::of(lists);
    let (_, mut watch) = node.watched();
    assert_eq!(
        node.poll(&mut *watch),
        ["updated web a Running", "local-poll-2"]
    );
}

/// Its differences would be lost to the watch without a word.
#[test]
fn another_list_of_the_source_ends_the_watch_as_expired() {
    let lists = ["a", "b", "b"].map(|uid| vec![pod("web", uid, "Running")]);
    let node = Node::of(lists);
    let (_, mut watch) = node.watched();
    node.list().unwrap();
    assert_eq!(node.poll(&mut *watch), ["error Expired"]);
}

#[test]
fn a_pod_that_only_the_kubelet_knows_is_a_pod() {
    let (first, second) = (vec![], vec![static_pod("etcd", "hash", "Running")]);
    let node = Node::of([first, second]);
    let (store, _reflector) = node.store(node.options());
    node.pass_until(|| names(&store) == ["etcd"]);
    let etcd = store.get("shop", "etcd").unwrap().unwrap();
    assert_eq!(
        etcd.uid(),
        "hash",
        "the API server's mirror pod has another"
    );
}

#[test]
fn a_pod_made_again_between_two_polls_ends_before_the_new_one_comes() {
    let lists = [
        vec![pod("old", "0", "Running"), pod("web", "a", "Running")],
        vec![pod("web", "b", "Pending"), pod("new", "1", "Pending")],
    ];
    let node = Node::of(lists);
    let (_, mut watch) = node.watched();
    let mut events = node.poll(&mut *watch);
    events[..2].sort();
    let expected = [
        "deleted old 0",
        "deleted web a",
        "added web b Pending",
        "added new 1 Pending",
        "local-poll-2",
    ];
    assert_eq!(events, expected);
}

/// A kubelet that starts again may not have heard of its pods yet.
#[test]
fn a_pod_that_is_missing_once_comes_back_as_it_was() {
    let pods = || vec![pod("web", "a", "Running")];
    let node = Node::of([pods(), vec![], pods(), pods()]);
    let (store, reflector) = node.store(node.options());
    store.wait_until_synced(Deadline::NEVER).unwrap();
    node.pass_until(|| names(&store).is_empty());
    node.pass_until(|| names(&store) == ["web"]);
    assert_eq!((reflector.status().lists, store.refused()), (1, 0));
}

/// Go writes a slice without items as `null`.
#[test]
fn an_empty_list_has_no_pods() {
    let empty = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}"#;
    let node = Node::answering([
        list(&[pod("web", "a", "Running")]),
        Answer::text(200, empty),
    ]);
    let (_, mut watch) = node.watched();
    assert_eq!(node.poll(&mut *watch), ["deleted web a", "local-poll-2"]);
}

#[test]
fn no_other_answer_is_an_empty_list() {
    let text = |status, text: &str| Answer::text(status, text);
    let rows = [
        (text(401, "Unauthorized"), "Unauthorized"),
        (
            text(
                403,
                "Forbidden (user=x, verb=get, resource=nodes, subresource(s)=[pods proxy])",
            ),
            "Forbidden",
        ),
        (text(404, "404 page not found"), "NotFound"),
        (text(500, "internal"), "Api"),
        (text(200, "<html><body>log in</body></html>"), "Protocol"),
        (text(200, ""), "Protocol"),
        (text(200, "{}"), "Protocol"),
        (
            text(
                200,
                r#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}"#,
            ),
            "Protocol",
        ),
        (
            text(
                200,
                r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"#,
            ),
            "Protocol",
        ),
        (
            text(200, r#"{"kind":"PodList","items":"none"}"#),
            "Protocol",
        ),
    ];
    for (answer, kind) in rows {
        let body = answer.body();
        let pods = || list(&[pod("web", "a", "Running")]);
        let node = Node::answering([pods(), answer, pods()]);
        let (_, mut watch) = node.watched();
        assert_eq!(node.poll(&mut *watch), [format!("error {kind}")], "{body}");
        let (pods, _) = node.list().unwrap();
        assert_eq!(pods, ["web a Running"], "{body}");
    }
}

/// After an answer that says nothing of the pods, they stay, and what did not change is no news.
#[test]
fn a_failed_poll_is_told_and_keeps_the_pods() {
    struct Counted(Arc<AtomicUsize>);
    impl EventHandler<Pod> for Counted {
        fn on_add(&mut self, _: &Arc<StoredObject<Pod>>, _: bool) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        fn on_update(&mut self, _: &Arc<StoredObject<Pod>>, _: &Arc<StoredObject<Pod>>) {
            self.0.fetch_add(1_000, Ordering::SeqCst);
        }
        fn on_delete(&mut self, _: crate::informer::Deleted<Pod>) {
            self.0.fetch_add(1_000_000, Ordering::SeqCst);
        }
    }
    let pods = || {
        list(&[
            pod("web", "a", "Running"),
            static_pod("etcd", "b", "Running"),
        ])
    };
    let refused = || Answer::text(403, "Forbidden");
    let more = list(&[
        pod("web", "a", "Running"),
        static_pod("etcd", "b", "Running"),
        pod("new", "c", "Pending"),
    ]);
    let node = Node::answering([pods(), refused(), refused(), pods(), more.clone(), more]);
    let (tell, told): (_, Receiver<String>) = channel();
    let options = node.options().on_error(move |failed| {
        drop(tell.send(failed.error.to_string()));
    });
    let options = InformerOptions::default().reflector(options);
    let informer = SharedInformer::new(Arc::clone(&node.source), options);
    let seen = Arc::new(AtomicUsize::new(0));
    let registration = informer.add_handler(Counted(Arc::clone(&seen))).unwrap();
    informer.start().unwrap();
    registration.wait_until_synced(Deadline::NEVER).unwrap();
    node.pass_until(|| informer.status().failures.count() > 1);
    assert_eq!(names(informer.store()), ["etcd", "web"]);
    assert!(informer.health().is_err());
    let error = told.recv().unwrap();
    let what = format!("pods of the kubelet at {}", node.kubelet.address());
    assert!(error.contains(&what) && error.contains("403"), "{error}");
    node.pass_until(|| seen.load(Ordering::SeqCst) == 3 && informer.health().is_ok());
}

#[test]
fn a_kubelet_that_starts_again_is_asked_without_another_list() {
    let before = || vec![pod("web", "a", "Running")];
    let node = Node::of([before(), before(), vec![pod("new", "b", "Running")]]);
    let (store, reflector) = node.store(node.options());
    store.wait_until_synced(Deadline::NEVER).unwrap();
    node.kubelet.crash();
    node.pass_until(|| reflector.status().failures.count() > 1);
    assert_eq!(names(&store), ["web"]);
    node.kubelet.come_back().unwrap();
    node.pass_until(|| names(&store) == ["new"]);
    assert_eq!(reflector.status().lists, 1);
}

/// The kubelet lists its pods by UID and in no order.
#[test]
fn of_two_pods_with_one_name_the_youngest_is_there_in_any_order() {
    let old = || created(pod("web", "z", "Running"), "2026-11-20T08:14:07Z");
    let new = || created(pod("web", "a", "Pending"), "2026-11-20T08:15:00Z");
    let of_file = || static_pod("web", "x", "Running");
    let lists = [
        vec![old(), new(), of_file()],
        vec![of_file(), new(), old()],
        vec![of_file(), old()],
    ];
    let node = Node::of(lists);
    let (pods, mut watch) = node.watched();
    assert_eq!(pods, ["web a Pending"]);
    assert_eq!(node.poll(&mut *watch), ["local-poll-2"]);
    assert_eq!(
        node.poll(&mut *watch),
        ["deleted web a", "added web z Running", "local-poll-3"]
    );
}

#[test]
fn a_pod_that_does_not_decode_is_there() {
    let mut broken = pod("web", "a", "Running");
    broken["spec"]["containers"] = 7.into();
    let node = Node::of([vec![broken.clone()], vec![broken], vec![]]);
    let (pods, mut watch) = node.watched();
    assert_eq!(pods, ["web a"]);
    assert_eq!(node.poll(&mut *watch), ["local-poll-2"]);
    assert_eq!(node.poll(&mut *watch), ["deleted web a", "local-poll-3"]);
}

#[test]
fn a_huge_list_is_taken_up_to_the_limit_of_the_client() {
    let pods: Vec<_> = (0..2_000)
        .map(|number| pod(&format!("web-{number}"), &format!("{number}"), "Running"))
        .collect();
    let node = Node::of([pods.clone(), pods.clone()]);
    let (listed, mut watch) = node.watched();
    assert_eq!(listed.len(), 2_000);
    assert_eq!(node.poll(&mut *watch), ["local-poll-2"]);

    let kubelet = Recording::new().with(Exchange::get(PATH, list(&pods)));
    let kubelet = FixtureServer::replaying(kubelet).start().unwrap();
    let config = Config::for_server(&kubelet.url()).unwrap();
    let decode = crate::http::DecodeOptions::default().list_bytes_max(100_000);
    let client = Client::new(&config, ClientOptions::default().decode(decode)).unwrap();
    let source = client.kubelet_pods::<Pod>(KubeletPodsOptions::default());
    let listed = source.list(&ListRequest::default(), &StopToken::never(), &mut drop);
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::TooLarge);
}

/// In each phase of a poll, and between two.
#[test]
fn a_stop_ends_the_source_whatever_the_kubelet_does() {
    let acts = [
        Some(Act::Silent),
        Some(Act::Hang),
        Some(Act::HangAfter(40)),
        None,
    ];
    for (is_first, act) in [true, false]
        .into_iter()
        .flat_map(|is_first| acts.iter().map(move |act| (is_first, act.clone())))
    {
        let pods = || vec![pod("web", "a", "Running")];
        let node = Node::of([pods(), pods(), pods()]);
        let hang = || {
            let fault = act.clone().map(|act| Fault::new(act).from(1));
            fault.map(|fault| node.kubelet.add_fault(fault))
        };
        let fault = is_first.then(hang).flatten();
        let (store, reflector) = node.store(node.options());
        if fault.is_none() {
            store.wait_until_synced(Deadline::NEVER).unwrap();
            if hang().is_some() {
                // A black hole takes new connections only.
                node.source.disconnect();
                node.time.advance(node.time.wait_for_timers(1));
            }
        }
        let asked = usize::from(!is_first && act.is_some());
        let is_asked = |requests: &[crate::testing::Received]| requests.len() > asked;
        if act != Some(Act::Silent) && act.is_some() {
            assert!(node.kubelet.wait_for_requests(Deadline::NEVER, is_asked));
        }
        reflector.join().unwrap();
    }
}

#[test]
fn a_wait_for_a_version_of_the_server_fails_at_once() {
    let node = Node::of([vec![pod("web", "a", "Running")]]);
    let (store, _reflector) = node.store(node.options());
    let wait = |version: &str| store.wait_until_at_least(&version.into(), Deadline::NEVER);
    let error = wait("48213").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = "waiting for version 48213: the source of this store has no versions of a server, \
                only its own such as local-poll-1; wait for the object with wait_until";
    assert_eq!(error.to_string(), text);
    wait(store.resource_version().as_str()).unwrap();
}

/// A list that no watch followed leaves a gap.
#[test]
fn a_watch_goes_on_only_from_the_last_answer() {
    let node = Node::of([vec![], vec![]]);
    let (_, first) = node.list().unwrap();
    let (_, second) = node.list().unwrap();
    let error = node.watch(&first.resource_version).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Expired);
    assert!(node.watch(&second.resource_version).is_ok());
}

#[test]
fn polls_are_an_interval_and_up_to_a_fifth_apart() {
    let node = Node::of([vec![], vec![]]);
    let (_, mut watch) = node.watched();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| watch.next(Deadline::NEVER).unwrap());
        let wait = node.time.wait_for_next_timer();
        assert!(
            (INTERVAL..=Duration::from_secs(12)).contains(&wait),
            "{wait:?}"
        );
        node.time.advance(wait);
        assert!(matches!(reader.join().unwrap(), Next::Event(_)));
    });
    let clamped = |seconds| KubeletPodsOptions::default().interval(Duration::from_secs(seconds));
    assert_eq!(clamped(0).interval, INTERVAL_LEAST);
    assert_eq!(clamped(3_600).interval, INTERVAL_MOST);
}

#[test]
fn another_kind_is_refused_before_a_request() {
    let config = Config::for_server("http://127.0.0.1:1").unwrap();
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    let source = client.kubelet_pods::<Secret>(KubeletPodsOptions::default());
    let error = source.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        client
            .kubelet_pods::<Pod>(KubeletPodsOptions::default())
            .check()
            .is_ok()
    );
}

#[cfg(feature = "ring")]
#[test]
fn the_token_goes_to_a_kubelet_that_the_authority_knows() {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authority = TestAuthority::new("kubelet", provider).unwrap();
    let recording = Recording::new().with(Exchange::get(PATH, list(&[])));
    let kubelet = FixtureServer::replaying(recording);
    let kubelet = kubelet.tls_by(&authority).unwrap().start().unwrap();
    let ask = |config: Config| {
        let client = Client::new(&config, ClientOptions::default()).unwrap();
        let source = client.kubelet_pods::<Pod>(KubeletPodsOptions::default());
        source.list(&ListRequest::default(), &StopToken::never(), &mut drop)
    };
    let config = || {
        Config::for_server(&kubelet.url())
            .unwrap()
            .with_token("made-up")
            .unwrap()
    };
    let error = ask(config()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls);
    ask(config().with_authorities(authority.pem())).unwrap();
    let requests = kubelet.requests();
    assert_eq!(requests[0].header("authorization"), Some("Bearer made-up"));
    assert_eq!((requests.len(), requests[0].path()), (1, "/pods"));
}
