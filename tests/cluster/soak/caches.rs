//! The caches of the soak, all in one process, and how each is compared with the server.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubecache::clock::Clock;
use kubecache::fence::FencedCache;
use kubecache::http::Client;
use kubecache::informer::{
    Forward, HandlerOptions, Handlers, InformerOptions, InformerSet, InformerSetOptions,
    SharedInformer,
};
use kubecache::manager::{
    ChangeDetection, ManagerOptions, ObjectManager, PastLimit, ReferencedByPods, WatchScope,
};
use kubecache::object::{FieldSelector, Object as _, ObjectData, ObjectKey, Scope};
use kubecache::outlet::{Laid, Layout, Outlet, OutletOptions, Presence, Publisher};
use kubecache::pod_status::{
    ContainerState, PodStatus, PodStatusCache, Relist, RelistOptions, Runtime, RuntimeError,
    RuntimePod,
};
use kubecache::store::Indexers;
use kubecache::worker::{StopToken, Worker};
use parking_lot::Mutex;

use super::content::{Content, Data, Kind, by_name, difference, differs, has_ended};
use super::program::Program;
use super::writer::Fenced;
use super::{NAMESPACE, NODE};
use crate::cluster::churn::{State, View, Watcher, pull, state};
use crate::cluster::support::watcher;
use crate::support::TempDirectory;

/// How old an answer of a manager may be that asks again after a time.
const TTL: Duration = Duration::from_secs(5);

/// A publisher checks its files each half minute, and writes an object once in a second.
const FILES: Duration = Duration::from_secs(32);

/// How long a comparison waits for one object.
const READ: Duration = Duration::from_secs(1);

type Look = Box<dyn Fn(&Content) -> Option<String> + Send + Sync>;

type Read = dyn Fn(&str) -> Option<State> + Send + Sync;

/// A cache, and what it has otherwise than the server.
pub(super) struct Cache {
    pub(super) name: String,
    /// How late it may be beside the bound of what befell.
    pub(super) extra: Duration,
    look: Look,
}

impl Cache {
    pub(super) fn new(
        name: impl Into<String>,
        look: impl Fn(&Content) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            extra: Duration::ZERO,
            look: Box::new(look),
        }
    }

    /// What differs from the server, or none.
    pub(super) fn difference(&self, content: &Content) -> Option<String> {
        (self.look)(content)
    }
}

/// A read that never waits, of objects whose names begin so.
pub(super) struct Reader {
    pub(super) cache: String,
    pub(super) prefix: &'static str,
    /// The fence waits for this cache.
    pub(super) is_fenced: bool,
    pub(super) read: Box<Read>,
}

#[derive(Default)]
pub(super) struct Caches {
    pub(super) all: Vec<Cache>,
    pub(super) readers: Vec<Reader>,
    pub(super) fenced: BTreeMap<&'static str, Fenced>,
    pub(super) program: Option<Arc<Program>>,
    /// What runs until the end.
    alive: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Caches {
    /// Those of `direct`, and fewer of `far`, which goes through the proxy.
    pub(super) fn start(direct: &Client, far: &Client) -> Self {
        let mut caches = Self::default();
        let near = caches.informer("informer", direct, false);
        let streamed = caches.informer("informer, far", far, true);
        let set = caches.set("set", direct);
        let far_set = caches.set("set, far", far);
        let pods = set.get::<Pod>(&of_node()).unwrap();
        let far_pods = far_set.get::<Pod>(&of_node()).unwrap();

        let options = ManagerOptions::default;
        let secrets = caches.manager::<Secret>("by name", direct, &pods, options());
        let maps = caches.manager::<ConfigMap>("by name", direct, &pods, options());
        caches.files(&secrets);
        caches.files(&maps);
        let of_namespace = || options().watch_scope(WatchScope::Namespace { above: 2 });
        let budget = options().watches_max(5).ttl(TTL);
        let budget = budget.past_limit(PastLimit::Poll);
        let of = |how| options().change_detection(how).ttl(TTL);
        caches.manager::<Secret>("by namespace", direct, &pods, of_namespace());
        caches.manager::<Secret>("polled", direct, &pods, budget);
        caches.manager::<ConfigMap>("Cache", direct, &pods, of(ChangeDetection::Cache));
        caches.manager::<Secret>("Get", direct, &pods, of(ChangeDetection::Get));
        caches.manager::<Secret>("by name, far", far, &far_pods, options());
        caches.manager::<ConfigMap>("by namespace, far", far, &far_pods, of_namespace());
        caches.pod_status(&pods);
        let program = Arc::new(Program::start(direct.clone(), Arc::clone(&pods)));
        caches.all.extend(Program::caches(&program));
        caches.program = Some(program);
        caches.fence([&near, &streamed], &set, &secrets, &maps);
        caches.alive.get_mut().push(Box::new((set, far_set)));
        caches
    }

    fn reader<K: Kind>(
        &mut self,
        cache: &str,
        is_fenced: bool,
        read: impl Fn(&str) -> Option<State> + Send + Sync + 'static,
    ) {
        let kind = K::resource().kind().to_owned();
        let prefix = if kind == "Secret" { "secret" } else { "map" };
        self.readers.push(Reader {
            cache: cache.to_owned(),
            prefix,
            is_fenced,
            read: Box::new(read),
        });
    }

    /// Its store, an index of it, and what its handlers were told.
    fn informer(
        &mut self,
        name: &'static str,
        client: &Client,
        streams: bool,
    ) -> Arc<SharedInformer<ConfigMap>> {
        let group = |map: &ConfigMap| -> Vec<String> {
            let data = map.data.as_ref();
            data.and_then(|data| data.get("group"))
                .cloned()
                .into_iter()
                .collect()
        };
        let reflector = kubecache::reflector::ReflectorOptions::default().watch_list(streams);
        let options = InformerOptions::default()
            .indexers(Indexers::new().with("group", group))
            .reflector(reflector);
        let source = watcher::<ConfigMap>(client, Scope::namespace(NAMESPACE));
        let informer = Arc::new(SharedInformer::new(source, options));
        let (handler, view) = Watcher::new();
        informer.add_handler(handler).unwrap();
        self.handler(&format!("{name}: handler"), view);
        let (forward, told) = Forward::bounded(4);
        let small = HandlerOptions::default().queue_max(Some(20));
        informer.add_handler_with(forward, small).unwrap();
        let (handler, view) = Watcher::new();
        let pulling = Worker::spawn("t-pull", move |_stop| pull(&told, handler)).unwrap();
        self.handler(&format!("{name}: channel"), view);
        informer.start().unwrap();
        let store = informer.store().clone();
        self.all.push(Cache::new(name, move |content| {
            let held = by_name(store.list());
            difference(&held, ConfigMap::of(content)).or_else(|| {
                let groups = store.index_values("group").into_iter();
                let found = groups.flat_map(|group| store.index_keys("group", &group).unwrap());
                let names: BTreeSet<_> = found.map(|key| key.name().to_owned()).collect();
                let each = held.keys().find(|name| !names.contains(*name));
                let lost = each.map(|name| format!("ConfigMap {name} is in no group"));
                lost.or_else(|| sick(store.health()))
            })
        }));
        let store = informer.store().clone();
        self.reader::<ConfigMap>(name, true, move |name| {
            store
                .get(NAMESPACE, name)
                .ok()?
                .map(|object| state(&object))
        });
        self.alive
            .get_mut()
            .push(Box::new((Arc::clone(&informer), pulling)));
        informer
    }

    fn handler(&mut self, name: &str, view: Arc<View>) {
        self.all.push(Cache::new(name, move |content| {
            let told = view.told();
            if let Some(wrong) = told.wrong.first() {
                return Some(format!(
                    "expected what follows on what was told before; {wrong}"
                ));
            }
            let expected = ConfigMap::of(content);
            let names: BTreeSet<_> = told.content.keys().chain(expected.keys()).collect();
            names.into_iter().find_map(|name| {
                let (held, expected) = (told.content.get(name), expected.get(name));
                let expected = expected.map(|object| state(object));
                let differs = held != expected.as_ref();
                differs.then(|| format!("ConfigMap {name}: expected {expected:?}, held {held:?}"))
            })
        }));
    }

    fn set(&mut self, name: &'static str, client: &Client) -> Arc<InformerSet<Client>> {
        let options = InformerSetOptions::default().scope(Scope::namespace(NAMESPACE));
        let set = Arc::new(InformerSet::new(client.clone(), options));
        let maps = set.informer::<ConfigMap>().unwrap();
        let secrets = set.informer::<Secret>().unwrap();
        let pods = set.informer_in::<Pod>(&of_node()).unwrap();
        set.start().unwrap();
        let members = (
            maps.store().clone(),
            secrets.store().clone(),
            pods.store().clone(),
        );
        let inside = Arc::clone(&set);
        self.all.push(Cache::new(name, move |content| {
            difference(&by_name(members.0.list()), ConfigMap::of(content))
                .or_else(|| difference(&by_name(members.1.list()), Secret::of(content)))
                .or_else(|| difference(&by_name(members.2.list()), Pod::of(content)))
                .or_else(|| sick(inside.health()))
        }));
        let store = secrets.store().clone();
        self.reader::<Secret>(name, name == "set", move |name| {
            store
                .get(NAMESPACE, name)
                .ok()?
                .map(|object| state(&object))
        });
        set
    }

    /// A manager that follows the node's pods.
    fn manager<K: Kind + ReferencedByPods>(
        &mut self,
        way: &str,
        client: &Client,
        pods: &SharedInformer<Pod>,
        options: ManagerOptions,
    ) -> ObjectManager<K>
    where
        Client: kubecache::list_watch::Api<K>,
    {
        let name = format!("{}s {way}", K::resource().kind());
        let manager = ObjectManager::<K>::new(client.clone(), options).unwrap();
        self.alive
            .get_mut()
            .push(Box::new(manager.follow_pods(pods).unwrap()));
        let held = manager.clone();
        let mut cache = Cache::new(&*name, move |content| of_manager(&held, content));
        if matches!(way, "polled" | "Cache") {
            cache.extra = TTL;
        }
        self.all.push(cache);
        let held = manager.clone();
        self.reader::<K>(&name, false, move |name| {
            let found = held.get_cached(NAMESPACE, name).ok()?;
            found.map(|found| state(found.stored()))
        });
        manager
    }

    /// The files of a manager's objects.
    fn files<K: Kind + ReferencedByPods + ObjectData>(&mut self, manager: &ObjectManager<K>) {
        let name = format!("files of {}s", K::resource().kind());
        let directory = TempDirectory::new(K::FOLDER);
        let options = OutletOptions::new(directory.join("out")).layout(|_, _, presence| {
            Ok(match presence {
                Presence::There(keys) => {
                    let each = keys.iter();
                    Laid::Files(each.fold(Layout::new(), |layout, (key, value)| {
                        layout.file(*key, value.to_vec())
                    }))
                }
                _ => Laid::Removed,
            })
        });
        let outlet = Arc::new(Outlet::open(options).unwrap());
        let publisher = Publisher::start(manager.clone(), outlet, None).unwrap();
        publisher.references_are_complete();
        let folder = directory.join("out").join(NAMESPACE).join(K::FOLDER);
        let mut cache = Cache::new(&*name, move |content| {
            let held = files_in(&folder);
            let names = content.referenced::<K>().into_iter();
            let objects = K::of(content);
            let expected: BTreeMap<String, Data> = names
                .filter_map(|name| Some((name.clone(), objects.get(&name)?.payload())))
                .collect();
            let each: BTreeSet<_> = held.keys().chain(expected.keys()).collect();
            each.into_iter().find_map(|name| {
                let (held, expected) = (held.get(name), expected.get(name));
                let text = |files: Option<&Data>| {
                    let each = files.map(|files| files.iter().map(in_short).collect::<Vec<_>>());
                    each.map_or("no files".to_owned(), |each| each.join(", "))
                };
                let (shown, wanted) = (text(held), text(expected));
                (held != expected).then(|| format!("{name}: expected {wanted}, held {shown}"))
            })
        });
        cache.extra = FILES;
        self.all.push(cache);
        self.alive.get_mut().push(Box::new((publisher, directory)));
    }

    /// The cache of pod statuses over a runtime that runs what the informer tells.
    fn pod_status(&mut self, pods: &SharedInformer<Pod>) {
        let running = Arc::<Mutex<BTreeMap<String, RuntimePod>>>::default();
        let cache = PodStatusCache::new(Clock::system());
        let runtime = InformedRuntime(Arc::clone(&running));
        let relist = Relist::spawn(runtime, cache.clone(), RelistOptions::default()).unwrap();
        let (added, changed, gone) = (Arc::clone(&running), Arc::clone(&running), running);
        let handlers = Handlers::<Pod>::new()
            .on_add(move |pod, _| run(&added, pod))
            .on_update(move |old, pod| {
                if old.uid() != pod.uid() {
                    changed.lock().remove(old.uid());
                }
                run(&changed, pod);
            })
            .on_delete(move |deleted| drop(gone.lock().remove(deleted.last_known.uid())));
        pods.add_handler(handlers).unwrap();
        self.all.push(Cache::new("pod status", move |content| {
            let each = content.pods.values().filter(|pod| !has_ended(pod));
            let expected: BTreeMap<_, _> = each
                .map(|pod| (pod.uid().to_owned(), vec![state(pod).1.to_string()]))
                .collect();
            let held = cache.get_all().into_iter().filter_map(|(uid, reading)| {
                Some((uid.to_string(), reading.status()?.ips.clone()))
            });
            let held: BTreeMap<_, _> = held.collect();
            let ids: BTreeSet<_> = held.keys().chain(expected.keys()).collect();
            ids.into_iter().find_map(|id| {
                let (held, expected) = (held.get(id), expected.get(id));
                let text = || format!("pod {id}: expected {expected:?}, held {held:?}");
                (held != expected).then(text)
            })
        }));
        self.alive.get_mut().push(Box::new(relist));
    }

    /// A write is seen by the informers, the set, and the managers that watch by name.
    fn fence(
        &mut self,
        informers: [&Arc<SharedInformer<ConfigMap>>; 2],
        set: &Arc<InformerSet<Client>>,
        secrets: &ObjectManager<Secret>,
        maps: &ObjectManager<ConfigMap>,
    ) {
        let stores = informers.map(|informer| informer.store().clone());
        let maps = maps.clone();
        let of_maps = move |key: &ObjectKey| {
            let mut caches: Vec<_> = stores.iter().map(FencedCache::from).collect();
            caches.push(FencedCache::from((&maps, key)));
            caches
        };
        let of_set = set.informer::<Secret>().unwrap().store().clone();
        let secrets = secrets.clone();
        let of_secrets = move |key: &ObjectKey| {
            let of_manager = FencedCache::from((&secrets, key));
            vec![FencedCache::from(&of_set), of_manager]
        };
        self.fenced.insert("ConfigMap", Box::new(of_maps));
        self.fenced.insert("Secret", Box::new(of_secrets));
    }
}

fn of_node() -> Scope {
    Scope::namespace(NAMESPACE).fields(FieldSelector::node_name(NODE))
}

/// A cache that has all, but says that it is not well.
pub(super) fn sick(health: Result<(), kubecache::Error>) -> Option<String> {
    let error = health.err()?;
    Some(format!("all objects: expected health, held {error}"))
}

/// What a manager answers of each object that the pods reference.
pub(super) fn of_manager<K: Kind + ReferencedByPods>(
    manager: &ObjectManager<K>,
    content: &Content,
) -> Option<String> {
    let referenced = content.referenced::<K>();
    let kept = manager.inspect().into_values().flatten();
    let kept: BTreeSet<_> = kept.map(|report| report.key.name().to_owned()).collect();
    if manager.change_detection() != ChangeDetection::Get && kept != referenced {
        let mut odd = kept.symmetric_difference(&referenced);
        let name = odd.next().map_or("", |name| name);
        let is_kept = kept.contains(name);
        return Some(format!(
            "the reference to {name}: expected {}, held {is_kept}",
            !is_kept
        ));
    }
    let each = referenced.iter().find_map(|name| {
        let expected = K::of(content).get(name);
        let soon = Clock::system().after(READ);
        match manager.get_by(NAMESPACE, name, soon) {
            Ok(held) if held.is_stale() => {
                let why = held.last_error().map(ToString::to_string);
                Some(format!("{name}: expected a fresh answer, held {why:?}"))
            }
            Ok(held) => differs(name, Some(held.stored()), expected),
            Err(error) if error.is_not_found() => differs::<K>(name, None, expected),
            Err(error) => Some(format!("{name}: expected an answer, held {error}")),
        }
    });
    each.or_else(|| sick(manager.health()))
}

fn in_short((name, content): (&String, &Vec<u8>)) -> String {
    let text = String::from_utf8_lossy(content);
    let start: String = text.chars().take(24).collect();
    format!("{name} of {} bytes ({start})", content.len())
}

/// The files of each object, as a reader finds them.
fn files_in(folder: &Path) -> BTreeMap<String, Data> {
    let names = names_in(folder).unwrap_or_default().into_iter();
    let each = names.filter_map(|(name, path)| {
        let files = names_in(&path).ok()?.into_iter();
        let read = files.filter_map(|(key, path)| Some((key, fs::read(path).ok()?)));
        Some((name, read.collect()))
    });
    each.collect()
}

fn names_in(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

fn run(running: &Mutex<BTreeMap<String, RuntimePod>>, pod: &Pod) {
    let (uid, version) = (pod.uid(), pod.resource_version());
    let mut running = running.lock();
    if has_ended(pod) {
        running.remove(uid);
        return;
    }
    let runs = RuntimePod::new(uid, pod.namespace(), pod.name());
    // A container has a new id with each state of the pod.
    let runs = runs.container(version.as_str(), ContainerState::Running);
    running.insert(uid.to_owned(), runs);
}

/// Runs the pods that an informer has.
struct InformedRuntime(Arc<Mutex<BTreeMap<String, RuntimePod>>>);

impl Runtime for InformedRuntime {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        Ok(self.0.lock().values().cloned().collect())
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        let mut status = PodStatus::default();
        pod.uid().clone_into(&mut status.id);
        status.ips = pod.containers().keys().cloned().collect();
        Ok(status)
    }
}
