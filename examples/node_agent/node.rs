//! The node's pods and the managers that keep what they name: pods come and go, rows come out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use k8s_openapi::api::core::v1;
use kubecache::http::Client;
use kubecache::manager::{
    ChangeDetection, Changes, ManagerOptions, NodeTtl, ObjectReport, ObjectState, Owner, PastLimit,
};
use kubecache::object::{Object, ObjectKey, StoredObject};
use kubecache::reflector::{Reflector, ReflectorOptions};
use kubecache::{Error, Metadata};

use crate::args::Options;
use crate::credentials::Credentials;
use crate::files::Files;
use crate::health::{Flag, Health};
use crate::managers::{Managers, ObjectId};
use crate::metrics::Metrics;
use crate::own_node;
use crate::plan::Plan;
use crate::pod::Pod;
use crate::pods::PodNews;
use crate::print::Rows;
use crate::reads::Reader;
use crate::rows::{Facts, RowKey, State};
use crate::selections::Selections;
use crate::snapshot::Keeper;
use crate::wanted::Wanted;

/// How long the end waits for those that write files and tell of them, and for the last snapshot.
const END_WAIT: Duration = Duration::from_secs(3);

/// Pods that run here, and their objects.
pub(crate) struct Node {
    managers: Managers,
    /// Where objects are written.
    pub(crate) files: Option<Arc<Files>>,
    /// Where values are given to units of systemd.
    credentials: Option<Arc<Credentials>>,
    pods: BTreeMap<ObjectKey, Arc<StoredObject<Pod>>>,
    /// The pods that the agent of before had, until the server tells of them.
    restored: BTreeMap<ObjectKey, Owner>,
    keeper: Option<Arc<Keeper>>,
    /// Where objects are not watched: who reads them.
    reader: Option<Reader>,
    /// Where objects have a time to live: who learns it.
    own: Option<Arc<Reflector>>,
    /// What of the configuration concerns single objects; `None` without one.
    plan: Option<Plan>,
    selections: Selections,
    /// What is kept whatever pods name: what is wanted, and with it what the selections found.
    wanted: BTreeSet<ObjectId>,
    referred: BTreeSet<ObjectId>,
    are_pods_known: bool,
    /// Whether all that the selections found is referenced. They learn it on threads of their own.
    are_selections_known: bool,
}

impl Node {
    /// A node without pods. Of the network it touches, with `Cache`, the node's own object.
    pub(crate) fn new(
        client: &Client,
        server: &str,
        name: Option<&str>,
        options: &Options,
        metrics: Option<&Metrics>,
    ) -> Result<Self, Error> {
        let ttl = NodeTtl::new();
        let mut kept = ManagerOptions::default()
            .node_ttl(ttl.clone())
            .watch_scope(options.watch_scope);
        if let Some(limit) = options.idle_limit {
            kept = kept.idle_limit(limit);
        }
        if let Some(most) = options.watches_max {
            kept = kept.watches_max(most).past_limit(PastLimit::Poll);
        }
        let managers = Managers::new(client, &kept, options.change_detection, metrics)?;
        let (own, reader) = match options.change_detection {
            ChangeDetection::Watch => (None, None),
            ChangeDetection::Cache => {
                let own = match name {
                    None => None,
                    Some(name) => {
                        let followed =
                            followed::<Metadata<v1::Node>>(options, metrics, "own-node")?;
                        Some(Arc::new(own_node::follow(client, name, ttl, followed)?))
                    }
                };
                (own, Some(Reader::start(&managers)?))
            }
            ChangeDetection::Get => (None, Some(Reader::start(&managers)?)),
        };
        let (keeper, owners) = match &options.snapshot {
            Some(files) => {
                let of = format!("{server} {}", name.unwrap_or_default());
                let (keeper, owners) = Keeper::open(files, &of, &managers)?;
                (Some(Arc::new(keeper)), owners)
            }
            None => (None, Vec::new()),
        };
        let references = &options.wanted.references;
        managers.refer(references, &BTreeSet::new());
        let restored = managers.only_pods_of(owners, references, name.is_some());
        let plan = options.wanted.declaration.as_ref().map(|declaration| {
            let plan = Plan::default();
            plan.declare(declaration, options.wanted.for_credentials.clone());
            plan
        });
        let files = Files::start(&options.files, &managers, plan.as_ref())?;
        let credentials = Credentials::start(&options.credentials, &managers)?;
        let secrets = followed::<v1::Secret>(options, metrics, "selections")?;
        let config_maps = followed::<v1::ConfigMap>(options, metrics, "selections")?;
        let mut node = Self {
            files: files.map(Arc::new),
            credentials: credentials.map(Arc::new),
            managers,
            pods: BTreeMap::new(),
            restored,
            keeper,
            reader,
            own,
            plan,
            selections: Selections::new(client, [secrets, config_maps]),
            wanted: BTreeSet::new(),
            referred: references.clone(),
            are_pods_known: name.is_none(),
            are_selections_known: false,
        };
        if let Some(reader) = &node.reader {
            reader.order(references.iter().cloned());
        }
        node.want(&options.wanted)?;
        Ok(node)
    }

    /// Keeps what is wanted whatever pods name, and nothing else of that kind any more.
    pub(crate) fn want(&mut self, wanted: &Wanted) -> Result<(), Error> {
        if let (Some(plan), Some(declaration)) = (&self.plan, &wanted.declaration) {
            // First: if it fails, nothing has changed.
            self.selections.declare(declaration)?;
            plan.declare(declaration, wanted.for_credentials.clone());
            if let Some(credentials) = &self.credentials {
                credentials.declare(declaration.credentials.clone());
            }
            if let Some(files) = &self.files {
                files.declare(declaration)?;
            }
        }
        self.wanted.clone_from(&wanted.references);
        self.look_at_selections();
        if let Some(files) = &self.files {
            files.lay_out_again();
        }
        Ok(())
    }

    /// Told when [`look_at_selections`](Self::look_at_selections) has something to see.
    pub(crate) fn selected(&self) -> Receiver<()> {
        self.selections.changed.clone()
    }

    /// The entries whose objects are not known yet, and why.
    pub(crate) fn unknown_selections(&self) -> Vec<String> {
        let mut unknown = self.selections.unknown();
        if unknown.is_empty() && !self.are_selections_known {
            unknown.push("what labels select".to_owned());
        }
        unknown
    }

    /// Keeps what the selections have found by now.
    pub(crate) fn look_at_selections(&mut self) {
        self.selections.forget_departed(&self.managers);
        // First: what they learn after this is not among what they have found.
        let are_known = self.selections.are_known();
        let completes = are_known && !self.are_selections_known;
        self.are_selections_known = are_known;
        let found = self.selections.found();
        let mut all: BTreeSet<_> = self.wanted.iter().chain(found.keys()).cloned().collect();
        if !are_known {
            // A selection that is not known may be about them.
            all.extend(self.referred.iter().cloned());
        }
        let is_planned_anew = self.plan.as_ref().is_some_and(|plan| plan.select(found));
        if all != self.referred {
            self.managers.refer(&all, &self.referred);
            if let Some(reader) = &self.reader {
                reader.order(all.iter().cloned());
            }
            self.referred = all;
            if let Some(files) = &self.files {
                files.look();
            }
        }
        if let Some(plan) = self.plan.as_ref().filter(|_| are_known) {
            let mut used = BTreeSet::new();
            for report in self.managers.inspect().flat_map(|(_, objects)| objects) {
                used.insert(ObjectId::reported(&report));
            }
            plan.complete(&used);
        }
        // Last: what has lost its entry is not laid out without one.
        if let (Some(files), true) = (&self.files, is_planned_anew || completes) {
            files.lay_out_again();
        }
        self.references_are_complete();
    }

    /// An object may have changed.
    pub(crate) fn look_at_departed(&mut self) {
        if self.selections.forget_departed(&self.managers) {
            self.look_at_selections();
        }
    }

    /// Whether there is something out of a snapshot that the server has not told of.
    pub(crate) fn has_restored(&self) -> bool {
        !self.restored.is_empty()
    }

    /// Whether there still is something out of a snapshot that the server has not confirmed.
    pub(crate) fn still_restored(&self, rows: &Rows) -> bool {
        let is_restored = |facts: &Facts| facts.state == State::Kept(ObjectState::Restored);
        self.has_restored() || rows.values().any(is_restored)
    }

    /// What is missing until each object has its answer and its files, in words. An object that no
    /// pod names has to be there.
    pub(crate) fn missing(&self, rows: &Rows) -> Vec<String> {
        let is_missing = |(row, facts): &(&RowKey, &Facts)| {
            facts.content.is_none() && !(facts.is_definite() && row.has_pod())
        };
        let missing = rows.iter().filter(is_missing);
        let mut missing: Vec<_> = missing
            .map(|(row, facts)| {
                let (kind, namespace) = (row.kind.to_lowercase(), row.pod.namespace());
                format!("{kind} {namespace}/{} ({})", row.name, facts.state)
            })
            .collect();
        missing.extend(self.unknown_selections());
        if let Some(files) = &self.files {
            let there = rows.iter().filter(|(_, facts)| facts.content.is_some());
            let there: BTreeSet<_> = there.map(|(row, _)| ObjectId::of(row)).collect();
            missing.extend(files.missing(there.len()));
        }
        missing
    }

    /// What is not referenced by now is not needed here, once all that says so is known.
    fn references_are_complete(&self) {
        let is_known = self.are_pods_known && self.are_selections_known;
        if let Some(files) = self.files.as_ref().filter(|_| is_known) {
            files.references_are_complete();
        }
    }

    /// What probes look at, beside the pods.
    pub(crate) fn health(
        &self,
        pods: Option<&Arc<Reflector>>,
        synced: Flag,
        restored: &Flag,
    ) -> Health {
        Health {
            pods: pods.map(Arc::clone),
            own_node: self.own.clone(),
            managers: self.managers.clone(),
            files: self.files.clone(),
            credentials: self.credentials.clone(),
            selections: Arc::clone(&self.selections.followed),
            synced,
            keeper: self.keeper.clone(),
            restored: self.keeper.as_ref().map(|_| restored.clone()),
        }
    }

    /// Whether the server has told of the pods, or there are none to tell of.
    pub(crate) fn are_pods_known(&self) -> bool {
        self.are_pods_known
    }

    /// Whether objects are fetched when they are read, so that a read that failed is worth another.
    pub(crate) fn fetches(&self) -> bool {
        self.reader.is_some()
    }

    /// Subscriptions to what changes: Secrets, ConfigMaps.
    pub(crate) fn subscribe(&self) -> (Changes, Changes) {
        self.managers.subscribe()
    }

    /// Registers and unregisters pods as they come and go.
    pub(crate) fn take(&mut self, news: PodNews) {
        match news {
            PodNews::All(snapshot) => {
                let kept = |key: &ObjectKey| {
                    snapshot.pods.contains_key(key) || snapshot.undecodable.contains(key)
                };
                let gone: Vec<_> = self.pods.keys().filter(|key| !kept(key)).cloned().collect();
                for key in gone {
                    self.forget(&key);
                }
                let restored = self.restored.keys().filter(|key| !kept(key));
                for key in restored.cloned().collect::<Vec<_>>() {
                    self.forget(&key);
                }
                for pod in snapshot.pods.into_values() {
                    self.bind(pod);
                }
            }
            PodNews::Here(pod) => self.bind(pod),
            PodNews::Gone(key) => self.forget(&key),
            PodNews::Status(_) => return,
        }
        // From their first list on.
        self.are_pods_known = true;
        self.references_are_complete();
    }

    /// The pods that run here.
    pub(crate) fn pods(&self) -> Vec<ObjectKey> {
        let restored = self.restored.keys();
        let all: BTreeSet<_> = self.pods.keys().chain(restored).cloned().collect();
        all.into_iter().collect()
    }

    /// A row per pod and object. Immutable objects that came meanwhile are read, as a kubelet does
    /// that mounts them: from then on they need no watch.
    pub(crate) fn rows(&self) -> Rows {
        let mut reports: Vec<_> = self.managers.inspect().collect();
        let unread = |report: &&ObjectReport| report.immutable && report.watched;
        let objects = reports.iter().flat_map(|(_, objects)| objects);
        let unread: BTreeSet<_> = objects.filter(unread).map(ObjectId::reported).collect();
        if !unread.is_empty() {
            for object in &unread {
                self.managers.look_at(object);
            }
            reports = self.managers.inspect().collect();
        }
        let kept = reports.into_iter().flat_map(rows_of);
        kept.chain(self.pods.values().flat_map(not_kept)).collect()
    }

    /// Reads the objects of these rows, as a kubelet does when it syncs its pods: what nobody reads
    /// is not watched for long, and what is fetched is fetched by a read.
    pub(crate) fn read(&self, rows: &mut dyn Iterator<Item = &RowKey>) {
        let kept = rows.filter(|row| matches!(&*row.kind, "Secret" | "ConfigMap"));
        // An object that several pods name is read once.
        let objects: BTreeSet<_> = kept.map(ObjectId::of).collect();
        match &self.reader {
            Some(reader) => reader.order(objects),
            None => objects
                .iter()
                .for_each(|object| self.managers.look_at(object)),
        }
    }

    fn bind(&mut self, pod: Arc<StoredObject<Pod>>) {
        let key = pod.key();
        if pod.is_finished() {
            return self.forget(&key);
        }
        // A pod of the same name and another uid is another pod: the old one's references have to
        // go.
        let is_another = |known: &Arc<StoredObject<Pod>>| known.uid() != pod.uid();
        if self.pods.get(&key).is_some_and(is_another) {
            self.forget(&key);
        }
        self.managers.register(&pod);
        let before = self.restored.remove(&key);
        if let Some(other) = before.filter(|owner| owner.uid() != pod.uid()) {
            self.forget_owner(&other);
        }
        if let Some(reader) = &self.reader {
            reader.order(pod.objects());
        }
        self.pods.insert(key, pod);
    }

    fn forget(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.pods.remove(key) {
            self.forget_owner(&Owner::of::<Pod>(&pod));
        }
        if let Some(owner) = self.restored.remove(key) {
            self.forget_owner(&owner);
        }
    }

    fn forget_owner(&mut self, owner: &Owner) {
        if !self.are_selections_known {
            // A selection that is not known may find its objects.
            let mut all = self.referred.clone();
            let own = self.managers.inspect().filter(|(of, _)| of == owner);
            for report in own.flat_map(|(_, objects)| objects) {
                let object = ObjectId::reported(&report);
                if self.selections.may_find(&object) {
                    all.insert(object);
                }
            }
            self.managers.refer(&all, &self.referred);
            self.referred = all;
        }
        self.managers.forget(owner);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It writes what the managers hold.
        if !ends_in_time(self.keeper.take()) {
            log::warn!("the last snapshot is not written: its file system hangs");
        }
        // The threads that write files may wait for an answer to a read.
        self.managers.shut_down();
        let Some(files) = self.files.take() else {
            return;
        };
        files.stop();
        let _in_time = ends_in_time(files);
    }
}

/// Drops what writes files on another thread, which a file system that hangs may hold up for ever.
fn ends_in_time(writer: impl Send + 'static) -> bool {
    let (ended, end) = bounded::<()>(0);
    let ends = std::thread::Builder::new().name("agent-ends".to_owned());
    drop(ends.spawn(move || drop((writer, ended))));
    end.recv_timeout(END_WAIT) != Err(RecvTimeoutError::Timeout)
}

/// How a reflector of the agent's own runs, which is called so where it is counted.
pub(crate) fn followed<K: Object>(
    options: &Options,
    metrics: Option<&Metrics>,
    name: &str,
) -> Result<ReflectorOptions, Error> {
    let mut followed = ReflectorOptions::default();
    if let Some(limit) = options.idle_limit {
        followed = followed.idle_limit(limit);
    }
    if let Some(metrics) = metrics {
        followed = metrics.follow::<K>(name, followed)?;
    }
    Ok(followed)
}

fn rows_of((pod, objects): (Owner, Vec<ObjectReport>)) -> Vec<(RowKey, Facts)> {
    let rows = objects.iter().map(|object| {
        let row = RowKey {
            pod: pod.key().clone(),
            kind: object.kind.clone(),
            name: object.key.name().to_owned(),
        };
        (row, Facts::of(object))
    });
    rows.collect()
}

fn not_kept(pod: &Arc<StoredObject<Pod>>) -> impl Iterator<Item = (RowKey, Facts)> {
    let unkept = pod.unkept().iter().map(|(kind, name)| (*kind, name));
    let unkept = unkept.map(|of| (of, Facts::not_kept()));
    let impossible = pod.impossible().map(|of| (of, Facts::impossible()));
    unkept.chain(impossible).map(|((kind, name), facts)| {
        let row = RowKey {
            pod: pod.key(),
            kind: kind.into(),
            name: name.clone(),
        };
        (row, facts)
    })
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::fs;
    use std::time::Duration;

    use kubecache::clock::Clock;
    use kubecache::http::{ClientOptions, Config};
    use kubecache::outlet::{Outlet, OutletOptions};
    use kubecache::testing::{ApiServer, objects};

    use super::*;
    use crate::args::{self, Command};
    use crate::pods::Snapshot;
    use crate::temp_directory::TempDirectory;

    /// Seen: the list of the pods came when the server had told what labels select, and the agent
    /// had not looked at that yet. The files of an earlier agent went. So did those that a pod had
    /// named that went.
    #[test]
    fn nothing_goes_before_what_labels_select_is_referenced() {
        let directory = TempDirectory::new("node-selected");
        let server = ApiServer::new().unwrap();
        let mut map = objects::config_map("shop", "web", "", &[("a", "1")]);
        map.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        server.apply(&map).unwrap();
        let out = directory.join("out");
        let before = Outlet::open(OutletOptions::new(&out).name("node_agent")).unwrap();
        before.publish(&map).unwrap();
        drop(before);
        let config = directory.join("config.yaml");
        let entry = "configMaps: {namespace: shop, labels: \"app=web\"}";
        let text = format!("directory: {}\nentries:\n- {entry}\n", out.display());
        fs::write(&config, text).unwrap();
        let Command::Run(options) = args::parse([
            "--node-name=n1".into(),
            format!("--config={}", config.display()),
        ])
        .unwrap() else {
            panic!("it is to run");
        };
        let client = Config::for_server(&server.url()).unwrap();
        let client = Client::new(&client, ClientOptions::default()).unwrap();
        let mut node = Node::new(&client, "", Some("n1"), &options, None).unwrap();
        while !node.selections.are_known() {
            node.selections.changed.recv().unwrap();
        }
        // Readiness and the end of `--once` wait for this.
        assert_eq!(node.unknown_selections(), ["what labels select"]);
        let file = out.join("shop/configmaps/web/a");
        let soon = Clock::system().after(Duration::from_secs(300));
        let pod = objects::pod("shop", "web-1", "n1", &[], &["web"]);
        let pod: Pod = serde_json::from_value(serde_json::to_value(pod).unwrap()).unwrap();
        let key = pod.key();
        node.take(PodNews::All(Snapshot {
            pods: [(key.clone(), Arc::new(StoredObject::new(pod)))].into(),
            ..Snapshot::default()
        }));
        node.files.as_ref().unwrap().write_by(soon).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1");
        node.take(PodNews::Gone(key));
        node.files.as_ref().unwrap().write_by(soon).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1");
        node.look_at_selections();
        node.files.as_ref().unwrap().write_by(soon).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1");
        assert_eq!(node.unknown_selections(), [""; 0]);
    }
}
