//! Every port through which a program's code runs: it runs under no lock of the crate. A panic
//! there is an error of that call, and the owner goes on, or ends whole with that cause.

#![cfg(feature = "testing")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::clock::{Clock, Deadline};
use kubecache::hooks::Hook;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::informer::{
    EventHandler, FilteringHandler, Handlers, InformerMetric, InformerOptions, InformerSet,
    InformerSetOptions, Registration, SharedInformer,
};
use kubecache::list_watch::{
    Api, Getter, ListPage, ListRequest, Listed, ListerWatcher, Next, ObjectEvent, WatchRequest,
    WatchStream,
};
use kubecache::manager::{ChangeDetection, ManagerMetric, ManagerOptions, Owner, SecretManager};
use kubecache::object::{Object, ObjectKey, ResourceVersion, Scope, StoredObject};
use kubecache::outlet::{Laid, Layout, Outlet, OutletOptions, Publisher};
use kubecache::pod_status::{
    CachedStatus, PodStatus, PodStatusCache, Relist, RelistOptions, Runtime, RuntimeError,
    RuntimePod,
};
use kubecache::reflector::{
    BackoffOptions, Phase, Reflector, ReflectorMetric, ReflectorOptions, Replacement, Sink,
};
use kubecache::store::Indexers;
use kubecache::testing::{
    Answer, Exchange, FakeSource, FixtureServer, Recording, held_locks, objects,
};
use kubecache::worker::StopToken;
use kubecache::{Error, ErrorKind};

use crate::support::{TempDirectory, until, until_some};

/// Bounds a failure only.
fn soon() -> Deadline {
    Clock::system().after(Duration::from_secs(5 * 60))
}

/// Where the code of a row panics, until the row has seen enough of it.
#[derive(Clone, Debug)]
struct Fuse {
    at: &'static str,
    is_lit: Arc<AtomicBool>,
    /// The locks under which the code was called.
    held: (Sender<&'static str>, Receiver<&'static str>),
}

impl Fuse {
    fn at(at: &'static str) -> Self {
        let is_lit = Arc::new(AtomicBool::new(true));
        let held = unbounded();
        Self { at, is_lit, held }
    }

    /// The method of that name is called.
    fn reach(&self, method: &str) {
        if self.at == method {
            for lock in held_locks() {
                self.held.0.send(lock).unwrap();
            }
        }
        assert!(
            !(self.at == method && self.is_lit.load(Ordering::SeqCst)),
            "made up"
        );
    }

    fn put_out(&self) {
        self.is_lit.store(false, Ordering::SeqCst);
    }
}

/// The locks that are held where the code of a row runs.
type Held = &'static [&'static str];

const NO_LOCK: Held = &[];

/// What a panic does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The call that it was in fails with an error of kind `Panicked`; its owner goes on.
    FailsCall,
    /// The same, and its owner ends by it.
    EndsOwner,
    /// It is logged: the call has no answer. Its owner goes on.
    IsLogged,
}

use Effect::{EndsOwner, FailsCall, IsLogged};

/// What is seen of a panic: what it did, and the text of the error.
type Seen = (Effect, String);

fn text(error: &Error) -> String {
    assert_eq!(error.kind(), ErrorKind::Panicked, "{error}");
    error.to_string()
}

/// Each port: its name, how its code is called, where that panics, which locks are held there, what
/// the panic does, and the error's text, before the panic's own.
type Row = (
    &'static str,
    fn(&Fuse) -> Seen,
    &'static str,
    Held,
    Effect,
    &'static str,
);

fn logged() -> Seen {
    (IsLogged, String::new())
}

fn rows_of_informers() -> Vec<Row> {
    vec![
        (
            "transform",
            transform,
            "transform",
            NO_LOCK,
            FailsCall,
            "transforming: the transform of shop/a panicked",
        ),
        (
            "index function",
            index,
            "index",
            NO_LOCK,
            FailsCall,
            "the function of index bad, at ConfigMap shop/a, panicked",
        ),
        ("EventHandler", handler, "on_start", NO_LOCK, IsLogged, ""),
        (
            "EventHandler",
            handler,
            "on_add",
            NO_LOCK,
            FailsCall,
            "made up",
        ),
        (
            "EventHandler",
            handler,
            "is_finished",
            NO_LOCK,
            IsLogged,
            "",
        ),
        ("EventHandler", handler, "drop", NO_LOCK, IsLogged, ""),
        ("filter", filter, "filter", NO_LOCK, FailsCall, "made up"),
        (
            "Api",
            set,
            "lister_watcher",
            NO_LOCK,
            FailsCall,
            "the lister-watcher of informer configmaps panicked",
        ),
    ]
}

fn rows_of_informer_metrics() -> Vec<Row> {
    vec![
        (
            "InformerMetric",
            measured,
            "informer Started",
            NO_LOCK,
            EndsOwner,
            "the metrics of informer configmaps panicked",
        ),
        (
            "InformerMetric",
            measured,
            "reflector Started",
            NO_LOCK,
            EndsOwner,
            "the metrics of reflector configmaps panicked",
        ),
        (
            "InformerMetric",
            measured,
            "Processed",
            NO_LOCK,
            IsLogged,
            "",
        ),
        (
            "InformerMetric",
            measured,
            "HandlerPanicked",
            NO_LOCK,
            IsLogged,
            "",
        ),
    ]
}

fn rows_of_reflectors() -> Vec<Row> {
    let source = "the source of reflector configmaps panicked";
    vec![
        (
            "ReflectorMetric",
            measured,
            "ListStarted",
            NO_LOCK,
            IsLogged,
            "",
        ),
        ("ReflectorMetric", measured, "Listed", NO_LOCK, IsLogged, ""),
        (
            "ReflectorMetric",
            measured,
            "WatchStarted",
            NO_LOCK,
            IsLogged,
            "",
        ),
        (
            "ListerWatcher",
            listed,
            "describe",
            NO_LOCK,
            EndsOwner,
            source,
        ),
        ("ListerWatcher", listed, "list", NO_LOCK, FailsCall, source),
        ("ListerWatcher", listed, "watch", NO_LOCK, FailsCall, source),
        (
            "ListerWatcher",
            listed,
            "supports_watch_list",
            NO_LOCK,
            IsLogged,
            "",
        ),
        (
            "WatchStream",
            listed,
            "next",
            NO_LOCK,
            FailsCall,
            "the source of reflector configmaps, reading its watch, panicked",
        ),
    ]
}

fn rows_of_managers() -> Vec<Row> {
    vec![
        (
            "Api",
            managed,
            "lister_watcher",
            NO_LOCK,
            FailsCall,
            "the Api's lister_watcher for secret shop/db panicked",
        ),
        (
            "Api",
            managed,
            "getter",
            NO_LOCK,
            EndsOwner,
            "the Api's getter for secrets panicked",
        ),
        (
            "Getter",
            managed,
            "get",
            NO_LOCK,
            FailsCall,
            "the getter of secret shop/db panicked",
        ),
        (
            "ManagerMetric",
            managed,
            "manager Started",
            NO_LOCK,
            EndsOwner,
            "the metrics of the secret cache panicked",
        ),
        ("ManagerMetric", managed, "Read", NO_LOCK, IsLogged, ""),
    ]
}

fn rows_of_others() -> Vec<Row> {
    vec![
        (
            "lookup",
            resolved,
            "lookup",
            NO_LOCK,
            FailsCall,
            "looking up shop.example panicked",
        ),
        (
            "Sink",
            sink,
            "commit",
            NO_LOCK,
            EndsOwner,
            "the thread of reflector sink panicked",
        ),
        (
            "Sink",
            sink,
            "stage",
            NO_LOCK,
            EndsOwner,
            "the thread of reflector sink panicked",
        ),
        (
            "Runtime",
            relisted,
            "list_pods",
            NO_LOCK,
            FailsCall,
            "the runtime panicked",
        ),
        (
            "Runtime",
            relisted,
            "inspect_pod",
            NO_LOCK,
            FailsCall,
            "the runtime panicked",
        ),
        (
            "Runtime",
            relisted_on_request,
            "find_pods",
            NO_LOCK,
            IsLogged,
            "",
        ),
        (
            "layout",
            laid_out,
            "layout",
            NO_LOCK,
            FailsCall,
            "the layout of Secret shop/db panicked",
        ),
    ]
}

/// Provokes each row, and says which of them went wrong.
fn check(rows: Vec<Row>) {
    let wrong = rows
        .into_iter()
        .filter_map(|(port, provoke, at, locks, effect, text)| {
            let fuse = Fuse::at(at);
            let (seen, said) = provoke(&fuse);
            let held: BTreeSet<_> = fuse.held.1.try_iter().collect();
            let is_told = said.contains(text) && said.ends_with("made up");
            let is_fine = seen == effect && (is_told || effect == IsLogged);
            let is_free = held.iter().copied().eq(locks.iter().copied());
            (!is_fine || !is_free).then(|| {
                format!("{port}, {at}: {seen:?} {said:?} under {held:?}, not {effect:?} {text:?}")
            })
        });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_panic_in_a_port_of_an_informer_is_an_error_of_that_call() {
    check(rows_of_informers());
    check(rows_of_informer_metrics());
}

#[test]
fn a_panic_in_a_port_of_a_reflector_is_an_error_of_that_call() {
    check(rows_of_reflectors());
}

#[test]
fn a_panic_in_a_port_of_a_manager_is_an_error_of_that_call() {
    check(rows_of_managers());
}

#[test]
fn a_panic_in_a_lookup_a_sink_or_a_runtime_is_told_with_its_cause() {
    check(rows_of_others());
}

fn source() -> FakeSource<ConfigMap> {
    let source = FakeSource::new();
    add(&source, "a");
    source
}

fn add(source: &FakeSource<ConfigMap>, name: &str) -> ResourceVersion {
    let version = source.set(objects::config_map("shop", name, "", &[]));
    ResourceVersion::from(version.to_string())
}

fn quick() -> ReflectorOptions {
    let soon = Duration::from_millis(1);
    ReflectorOptions::default()
        .backoff(BackoffOptions::default().initial(soon).cap(soon))
        .forbidden_grace(Duration::ZERO)
}

fn options() -> InformerOptions<ConfigMap> {
    InformerOptions::default().reflector(quick())
}

fn goes_on(informer: &SharedInformer<ConfigMap>, source: &FakeSource<ConfigMap>) {
    informer.wait_until_synced(soon()).unwrap();
    let version = add(source, "z");
    informer
        .store()
        .wait_until_at_least(&version, soon())
        .unwrap();
    assert!(!informer.is_stopped());
    informer.shutdown(soon()).unwrap();
}

fn transform(fuse: &Fuse) -> Seen {
    let (source, inside) = (source(), fuse.clone());
    let options = options().transform(move |object| {
        inside.reach("transform");
        Ok(object)
    });
    let informer = SharedInformer::new(Arc::new(source.clone()), options);
    informer.start().unwrap();
    let error = until_some(|| informer.status().failures.last().cloned());
    fuse.put_out();
    goes_on(&informer, &source);
    (FailsCall, text(&error))
}

fn index(fuse: &Fuse) -> Seen {
    let (source, inside) = (source(), fuse.clone());
    let informer = SharedInformer::new(Arc::new(source.clone()), options());
    informer.start().unwrap();
    informer.wait_until_synced(soon()).unwrap();
    let bad = Indexers::new().with("bad", move |_: &ConfigMap| {
        inside.reach("index");
        Vec::new()
    });
    let error = informer.add_indexers(&bad).unwrap_err();
    goes_on(&informer, &source);
    (FailsCall, text(&error))
}

/// A handler that panics where the fuse says.
struct Bad(Fuse);

impl EventHandler<ConfigMap> for Bad {
    fn on_start(&mut self, _stop: &StopToken) {
        self.0.reach("on_start");
    }

    fn on_add(&mut self, _object: &Arc<StoredObject<ConfigMap>>, _is_in_initial_list: bool) {
        self.0.reach("on_add");
    }

    fn is_finished(&self) -> bool {
        self.0.reach("is_finished");
        false
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        self.0.reach("drop");
    }
}

/// Looks at a handler that lost what it was told first, or nothing, and is told of what comes then.
fn handled(fuse: &Fuse, add_to: impl FnOnce(&SharedInformer<ConfigMap>) -> Registration) -> Seen {
    let source = source();
    let informer = SharedInformer::new(Arc::new(source.clone()), options());
    let registration = add_to(&informer);
    informer.start().unwrap();
    registration.wait_until_synced(soon()).unwrap();
    let lost = registration.readings().last_panic;
    if fuse.at != "drop" {
        fuse.put_out();
    }
    add(&source, "b");
    until(|| registration.readings().delivered == 2);
    assert_eq!(registration.readings().panics, u64::from(lost.is_some()));
    registration.remove(soon()).unwrap();
    goes_on(&informer, &source);
    lost.map_or_else(logged, |lost| (FailsCall, lost))
}

fn handler(fuse: &Fuse) -> Seen {
    handled(fuse, |informer| {
        informer.add_handler(Bad(fuse.clone())).unwrap()
    })
}

fn filter(fuse: &Fuse) -> Seen {
    let inside = fuse.clone();
    let filter = move |_: &ConfigMap| {
        inside.reach("filter");
        true
    };
    let handler = FilteringHandler::new(filter, Handlers::<ConfigMap>::new());
    handled(fuse, |informer| informer.add_handler(handler).unwrap())
}

fn of_reflector(fuse: &Fuse, metric: &ReflectorMetric) {
    match metric {
        ReflectorMetric::Started(_) => fuse.reach("reflector Started"),
        ReflectorMetric::ListStarted => fuse.reach("ListStarted"),
        ReflectorMetric::Listed { .. } => fuse.reach("Listed"),
        ReflectorMetric::WatchStarted => fuse.reach("WatchStarted"),
        _ => {}
    }
}

fn of_informer(fuse: &Fuse, metric: &InformerMetric) {
    match metric {
        InformerMetric::Started(_) => fuse.reach("informer Started"),
        InformerMetric::Processed(_) => fuse.reach("Processed"),
        InformerMetric::HandlerPanicked(_) => fuse.reach("HandlerPanicked"),
        InformerMetric::Reflector(metric) => of_reflector(fuse, metric),
        _ => {}
    }
}

fn of_manager(fuse: &Fuse, metric: &ManagerMetric) {
    match metric {
        ManagerMetric::Started { .. } => fuse.reach("manager Started"),
        ManagerMetric::Read { .. } => fuse.reach("Read"),
        ManagerMetric::Reflector(metric) => of_reflector(fuse, metric),
        _ => {}
    }
}

fn measured(fuse: &Fuse) -> Seen {
    let source = source();
    let inside = fuse.clone();
    let options = options().metrics(Hook::new(move |metric| of_informer(&inside, metric)));
    let informer = SharedInformer::new(Arc::new(source.clone()), options);
    let bad = Handlers::<ConfigMap>::new().on_add(|_, _| panic!("made up"));
    informer.add_handler(bad).unwrap();
    if let Err(error) = informer.start() {
        assert!(informer.is_stopped());
        return (EndsOwner, text(&error));
    }
    goes_on(&informer, &source);
    logged()
}

/// A source, its watches and a getter that panic where the fuse says, and the API that gives them.
struct BadSource<K: Object>(FakeSource<K>, Fuse);

impl<K: Object> ListerWatcher<K> for BadSource<K> {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        self.1.reach("list");
        self.0.list(request, stop, each)
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error> {
        self.1.reach("watch");
        let stream = self.0.watch(request, stop)?;
        Ok(Box::new(BadStream(stream, self.1.clone())))
    }

    fn supports_watch_list(&self) -> bool {
        self.1.reach("supports_watch_list");
        false
    }

    fn describe(&self) -> String {
        self.1.reach("describe");
        self.0.describe()
    }
}

struct BadStream<K: Object>(Box<dyn WatchStream<K>>, Fuse);

impl<K: Object> WatchStream<K> for BadStream<K> {
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        self.1.reach("next");
        self.0.next(deadline)
    }

    fn last_contact(&self) -> Instant {
        self.0.last_contact()
    }
}

impl<K: Object> Getter<K> for BadSource<K> {
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        self.1.reach("get");
        self.0.getter().get(key, version, deadline, stop)
    }
}

impl<K: Object> Api<K> for BadSource<K> {
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<K>> {
        self.1.reach("lister_watcher");
        self.0.lister_watcher(scope)
    }

    fn getter(&self) -> Arc<dyn Getter<K>> {
        self.1.reach("getter");
        Arc::new(Self(self.0.clone(), self.1.clone()))
    }
}

fn listed(fuse: &Fuse) -> Seen {
    let source = source();
    let bad = BadSource(source.clone(), fuse.clone());
    let informer = SharedInformer::new(Arc::new(bad), options());
    if let Err(error) = informer.start() {
        assert!(informer.is_stopped());
        return (EndsOwner, text(&error));
    }
    let seen = if fuse.at == "supports_watch_list" {
        logged()
    } else {
        (
            FailsCall,
            text(&until_some(|| informer.status().failures.last().cloned())),
        )
    };
    fuse.put_out();
    goes_on(&informer, &source);
    seen
}

fn set(fuse: &Fuse) -> Seen {
    let source = source();
    let api = BadSource(source.clone(), fuse.clone());
    let set = InformerSet::new(api, InformerSetOptions::default().reflector(quick()));
    let error = set.informer::<ConfigMap>().unwrap_err();
    fuse.put_out();
    let informer = set.informer::<ConfigMap>().unwrap();
    set.start().unwrap();
    goes_on(&informer, &source);
    (FailsCall, text(&error))
}

/// A client whose name lookup panics where the fuse says.
fn resolved(fuse: &Fuse) -> Seen {
    const LIST: &str = "/api/v1/namespaces/shop/configmaps";
    let list = Answer::list("7", &[objects::config_map("shop", "a", "5", &[])]).unwrap();
    let recording = Recording::new().with(Exchange::get(LIST, list));
    let server = FixtureServer::replaying(recording).start().unwrap();
    let (address, inside) = (server.address(), fuse.clone());
    let lookup = move |_: &str, _: u16| {
        inside.reach("lookup");
        Ok(vec![address])
    };
    let config = Config::for_server(&format!("http://shop.example:{}", address.port())).unwrap();
    let client = Client::with_lookup(&config, ClientOptions::default(), lookup).unwrap();
    let source: Arc<dyn ListerWatcher<ConfigMap>> = client.lister_watcher(Scope::namespace("shop"));
    let list = || {
        let mut items = Vec::new();
        let request = ListRequest::default();
        let listed = source.list(&request, &StopToken::never(), &mut |item| items.push(item));
        listed.map(|_page| items.len())
    };
    let error = list().unwrap_err();
    fuse.put_out();
    assert_eq!(list().unwrap(), 1);
    (FailsCall, text(&error))
}

/// A sink that panics where the fuse says.
struct BadSink(Fuse);

impl Sink<ConfigMap> for BadSink {
    type Staging = ();

    fn begin(&mut self) {}

    fn stage(&mut self, _staging: &mut (), _item: ObjectEvent<ConfigMap>) {
        self.0.reach("stage");
    }

    fn commit(&mut self, _staging: (), _of: &Replacement) -> Result<(), Error> {
        self.0.reach("commit");
        Ok(())
    }

    fn apply(&mut self, _event: ObjectEvent<ConfigMap>) -> Result<(), Error> {
        Ok(())
    }
}

/// What a sink holds after a panic nobody knows: its reflector ends.
fn sink(fuse: &Fuse) -> Seen {
    let sink = BadSink(fuse.clone());
    let reflector = Reflector::spawn("sink", Arc::new(source()), sink, quick()).unwrap();
    let error = until_some(|| {
        let status = reflector.status();
        status
            .failures
            .last()
            .cloned()
            .filter(|_| status.phase == Phase::Stopped)
    });
    (EndsOwner, text(&error))
}

/// A runtime that panics where the fuse says.
struct BadRuntime(Fuse);

impl Runtime for BadRuntime {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.0.reach("list_pods");
        Ok(vec![RuntimePod::new("uid-1", "shop", "web")])
    }

    fn find_pods(
        &mut self,
        uids: &[String],
        _stop: &StopToken,
    ) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.0.reach("find_pods");
        let found = uids.iter().map(|uid| RuntimePod::new(uid, "shop", "web"));
        Ok(found.collect())
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        self.0.reach("inspect_pod");
        Ok(PodStatus::with_id(pod.uid()))
    }
}

fn relisted(fuse: &Fuse) -> Seen {
    let cache = PodStatusCache::new(Clock::system());
    let options = RelistOptions::default().period(Duration::from_millis(1));
    let relist = Relist::spawn(BadRuntime(fuse.clone()), cache.clone(), options).unwrap();
    let told = |error: &(dyn std::error::Error + 'static)| {
        let kind = error.downcast_ref::<Error>().map(Error::kind);
        // Before and after the panic stands the call that is under way.
        let is_told = kind.is_none_or(|kind| kind == ErrorKind::Panicked);
        is_told.then(|| error.to_string())
    };
    let text = until_some(|| {
        if fuse.at == "inspect_pod" {
            let reading = cache.get("uid-1");
            return reading.error().and_then(|error| told(&**error));
        }
        let health = relist.health().err()?;
        let cause = std::error::Error::source(&health).and_then(told);
        cause.filter(|cause| cause.contains("panicked"))
    });
    fuse.put_out();
    until(|| {
        let reading = cache.get("uid-1");
        reading.is_stored() && reading.error().is_none()
    });
    relist.shutdown(soon()).unwrap();
    (FailsCall, text)
}

/// The next request is served, and health is of the relists of all pods.
fn relisted_on_request(fuse: &Fuse) -> Seen {
    let cache = PodStatusCache::new(Clock::system());
    // After the first relist of all comes none.
    let options = RelistOptions::default().period(Duration::from_secs(24 * 60 * 60));
    let relist = Relist::spawn(BadRuntime(fuse.clone()), cache, options).unwrap();
    until(|| relist.report().relists == 1);
    assert!(relist.request_relist("uid-1"));
    until(|| relist.report().failures == 1);
    fuse.put_out();
    assert!(relist.request_relist("uid-1"));
    until(|| relist.report().requested == 1);
    assert_eq!(relist.report().failures, 1);
    relist.health().unwrap();
    relist.shutdown(soon()).unwrap();
    logged()
}

fn laid_out(fuse: &Fuse) -> Seen {
    let source = FakeSource::<Secret>::new();
    source.set(objects::secret("shop", "db", "", &[("a", "1")]));
    let manager = SecretManager::new(source, ManagerOptions::default()).unwrap();
    let pod = Owner::new("Test", ObjectKey::new("shop", "pod"));
    manager.add_reference(&pod, &ObjectKey::new("shop", "db"));
    manager.get_by("shop", "db", soon()).unwrap();
    let (directory, inside) = (TempDirectory::new("ports"), fuse.clone());
    let options = OutletOptions::new(&*directory).layout(move |_, _, _| {
        inside.reach("layout");
        Ok(Laid::Files(Layout::new().file("a", Vec::new())))
    });
    let outlet = Arc::new(Outlet::open(options).unwrap());
    let publisher = Publisher::start(manager, outlet, None).unwrap();
    let said = text(&publisher.publish_by(soon()).unwrap_err());
    fuse.put_out();
    publisher.publish_by(soon()).unwrap();
    (FailsCall, said)
}

fn managed(fuse: &Fuse) -> Seen {
    let source = FakeSource::<Secret>::new();
    source.set(objects::secret("shop", "db", "", &[]));
    let mode = match fuse.at {
        "get" => ChangeDetection::Get,
        _ => ChangeDetection::Watch,
    };
    let inside = fuse.clone();
    let options = ManagerOptions::default()
        .change_detection(mode)
        .metrics(Hook::new(move |metric| of_manager(&inside, metric)));
    let api = BadSource(source, fuse.clone());
    let manager = match SecretManager::new(api, options) {
        Ok(manager) => manager,
        Err(error) => return (EndsOwner, text(&error)),
    };
    manager.register_pod(&objects::pod("shop", "web", "n1", &["db"], &[]));
    // A read may come before the first try has failed.
    let seen = until_some(|| {
        let short = Clock::system().after(Duration::from_millis(20));
        match manager.get_by("shop", "db", short) {
            Ok(_) => Some(logged()),
            Err(error) => {
                let failure = error.last_error().unwrap_or(&error);
                let panicked = failure.kind() == ErrorKind::Panicked;
                panicked.then(|| (FailsCall, text(failure)))
            }
        }
    });
    fuse.put_out();
    manager.get_by("shop", "db", soon()).unwrap();
    seen
}

impl fmt::Debug for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bad")
    }
}
