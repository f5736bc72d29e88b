//! Many ConfigMaps that change all the time: the writers, and what one handler was told of them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use crossbeam_channel::{Receiver, select};
use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::{Clock, Deadline};
use kubecache::informer::{Deleted, EventHandler, Notification};
use kubecache::object::{Object, StoredObject};
use kubecache::worker::StopToken;
use parking_lot::{Condvar, Mutex};

use super::support::directory;

/// Where the objects are.
pub(crate) const NAMESPACE: &str = "churn";

/// `story churn`: it creates, updates and deletes from several writers, and waits for a server that
/// is away.
pub(crate) struct Churn {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Churn {
    pub(crate) fn start(objects: usize, changes: usize) -> Self {
        Self::start_in(NAMESPACE, objects, changes)
    }

    pub(crate) fn start_in(namespace: &str, objects: usize, changes: usize) -> Self {
        let story = std::env::var_os("KUBECACHE_CLUSTER_STORY").expect("run tests/cluster/run");
        let mut child = Command::new(story)
            .args(["churn", "--namespace", namespace])
            .args(["--objects", &objects.to_string()])
            .args(["--changes", &changes.to_string()])
            .arg("--kubeconfig")
            .arg(directory().join("kubeconfig/admin.yaml"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// Blocks until it says that this is done.
    pub(crate) fn wait_for(&mut self, stage: &str) {
        let said = self.lines.next().expect("the writers failed").unwrap();
        assert_eq!(said, stage);
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        // After the last stage it has ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An object by uid and version.
pub(crate) type State = (String, u64);

/// Objects by name.
pub(crate) type Content = BTreeMap<String, State>;

pub(crate) fn state<K: Object>(object: &StoredObject<K>) -> State {
    let version = object.resource_version();
    (object.uid().to_owned(), version.as_str().parse().unwrap())
}

pub(crate) fn content(objects: &[Arc<StoredObject<ConfigMap>>]) -> Content {
    let each = objects.iter();
    each.map(|object| (object.key().name().to_owned(), state(object)))
        .collect()
}

/// What one handler was told so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) content: Content,
    /// Notifications that do not follow on what was told of their object before.
    pub(crate) wrong: Vec<String>,
    pub(crate) added: usize,
    pub(crate) updated: usize,
    /// Of the updates, those that change nothing: resyncs.
    pub(crate) repeated: usize,
    pub(crate) deleted: usize,
    /// Of the deletes, those of which only a list told.
    pub(crate) missed: usize,
}

/// What one handler was told, for the test to wait on.
#[derive(Default)]
pub(crate) struct View {
    told: Mutex<Told>,
    changed: Condvar,
}

impl View {
    pub(crate) fn told(&self) -> Told {
        self.told.lock().clone()
    }

    /// Blocks until what was told is so; at the deadline it is what it is.
    pub(crate) fn wait_until(&self, deadline: Deadline, is_so: impl Fn(&Told) -> bool) -> Told {
        let mut told = self.told.lock();
        let clock = Clock::system();
        while !is_so(&told) && !clock.has_passed(deadline) {
            self.changed
                .wait_until(&mut told, deadline.instant().unwrap());
        }
        told.clone()
    }

    fn take(&self, take: impl FnOnce(&mut Told)) {
        take(&mut self.told.lock());
        self.changed.notify_all();
    }
}

/// Keeps a [`View`]: each notification has to follow on what was told of its object before.
pub(crate) struct Watcher {
    view: Arc<View>,
    /// While somebody holds the other end, no call returns.
    gate: Receiver<()>,
    stop: StopToken,
}

impl Watcher {
    pub(crate) fn new() -> (Self, Arc<View>) {
        Self::behind(crossbeam_channel::bounded(0).1)
    }

    /// A handler that stands still in its first call until the gate is opened by dropping its other
    /// end.
    pub(crate) fn behind(gate: Receiver<()>) -> (Self, Arc<View>) {
        let view = Arc::<View>::default();
        let watcher = Self {
            view: Arc::clone(&view),
            gate,
            stop: StopToken::never(),
        };
        (watcher, view)
    }

    fn take(&self, take: impl FnOnce(&mut Told)) {
        select! {
            recv(self.gate) -> _ => {}
            recv(self.stop.channel()) -> _ => {}
        }
        self.view.take(take);
    }
}

impl<K: Object> EventHandler<K> for Watcher {
    fn on_start(&mut self, stop: &StopToken) {
        self.stop = stop.clone();
    }

    fn on_add(&mut self, object: &Arc<StoredObject<K>>, _is_in_initial_list: bool) {
        self.take(|told| {
            told.added += 1;
            let before = told
                .content
                .insert(object.key().name().to_owned(), state(object));
            if before.is_some() {
                told.wrong
                    .push(format!("{object:?} was added after {before:?}"));
            }
        });
    }

    fn on_update(&mut self, old: &Arc<StoredObject<K>>, new: &Arc<StoredObject<K>>) {
        self.take(|told| {
            told.updated += 1;
            let before = told.content.insert(new.key().name().to_owned(), state(new));
            let follows = before == Some(state(old)) && state(new).1 >= state(old).1;
            if !follows {
                told.wrong
                    .push(format!("{old:?} became {new:?} after {before:?}"));
            }
            if state(old) == state(new) {
                told.repeated += 1;
            }
        });
    }

    fn on_delete(&mut self, deleted: Deleted<K>) {
        self.take(|told| {
            told.deleted += 1;
            told.missed += usize::from(!deleted.final_state_known);
            let before = told.content.remove(deleted.key().name());
            let (uid, version) = state(&deleted.last_known);
            let follows = before
                .as_ref()
                .is_some_and(|(known, last)| *known == uid && *last <= version);
            if !follows {
                told.wrong.push(format!("{deleted:?} after {before:?}"));
            }
        });
    }
}

/// Keeps a view of what comes through a channel, until it closes.
pub(crate) fn pull(told: &Receiver<Notification<ConfigMap>>, mut into: Watcher) {
    for notification in told {
        notification.deliver(&mut into);
    }
}
