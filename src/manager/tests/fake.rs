//! Runs without threads, a getter that answers as told, and pods and objects to go with them.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};

use crate::clock::Deadline;
use crate::error::Error;
use crate::list_watch::{Getter, Listed, ObjectEvent};
use crate::manager::watch::run::RunHandle;
use crate::manager::watch::sources::namespace::NamespaceSink;
use crate::manager::watch::starts::launch::Launcher;
use crate::manager::watch::writer::Writer;
use crate::object::{ObjectKey, ResourceVersion, Status, StoredObject};
use crate::reflector::{Phase, ReflectorOptions, ReflectorStatus, Replacement, Sink};
use crate::sync::{Arc, Monitor, Mutex};
use crate::worker::{StopToken, Wake};

/// The round of the housekeeper, and so the timer it parks with.
pub(crate) const ROUND: Duration = Duration::from_secs(60);

/// A run as a test sees it: it writes when the test says so.
pub(crate) struct FakeRun {
    pub(crate) name: String,
    pub(crate) known_version: Option<ResourceVersion>,
    pub(crate) waits_for_previous: bool,
    pub(crate) stopped: bool,
    pub(crate) joined: bool,
    writer: Option<Arc<Writer<Secret>>>,
}

/// Every run that was launched, in order.
#[derive(Clone, Default)]
pub(crate) struct FakeRuns {
    runs: Arc<Monitor<Vec<FakeRun>>>,
    /// The watches of namespaces, in order.
    namespaces: Arc<Monitor<Vec<FakeNamespace>>>,
    refuse: Arc<Mutex<Option<Error>>>,
    /// The next launch panics.
    panics: Arc<Mutex<bool>>,
    /// The next launch runs this code, as the program's own.
    #[cfg(shuttle)]
    act: Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>,
    /// While true, threads do not end: joins wait.
    held: Arc<Monitor<bool>>,
    gate: Arc<Monitor<Gate>>,
}

/// Holds the thread that tells a run to stop, in the middle of that.
#[derive(Debug, Default)]
struct Gate {
    shut: bool,
    reached: bool,
    /// A thread may pass although the gate is shut.
    admits_one: bool,
}

struct FakeHandle {
    runs: FakeRuns,
    index: usize,
}

impl RunHandle for FakeHandle {
    fn thread_name(&self) -> String {
        format!("run of {}", self.runs.runs.lock()[self.index].name)
    }

    fn is_finished(&self) -> bool {
        self.runs.runs.lock()[self.index].joined
    }

    fn stop(&self) {
        self.runs.pass_gate();
        self.runs.runs.lock()[self.index].stopped = true;
        self.runs.runs.notify_all();
    }

    fn join(self: Box<Self>) {
        let mut held = self.runs.held.lock();
        while *held {
            held = self.runs.held.wait(held);
        }
        drop(held);
        let writer = self.runs.runs.lock()[self.index].writer.take();
        // The thread's end is the end of its writer.
        drop(writer);
        self.runs.runs.lock()[self.index].joined = true;
        self.runs.runs.notify_all();
    }
}

impl Launcher<Secret> for FakeRuns {
    fn launch(
        &self,
        writer: Arc<Writer<Secret>>,
        options: ReflectorOptions,
    ) -> Result<Box<dyn RunHandle>, Error> {
        let panics = std::mem::take(&mut *self.panics.lock());
        assert!(!panics, "a bad launch");
        #[cfg(shuttle)]
        if let Some(act) = { self.act.lock().take() } {
            act();
        }
        let refusal = self.refuse.lock().clone();
        if let Some(error) = refusal {
            return Err(error);
        }
        let mut runs = self.runs.lock();
        let index = runs.len();
        runs.push(FakeRun {
            name: writer.object.key.name().to_owned(),
            known_version: options.known_version,
            // It always waits for the entry to own it.
            waits_for_previous: options.start_after.len() > 1,
            stopped: false,
            joined: false,
            writer: Some(writer),
        });
        drop(runs);
        self.runs.notify_all();
        Ok(Box::new(FakeHandle {
            runs: self.clone(),
            index,
        }))
    }

    fn launch_namespace(
        &self,
        sink: NamespaceSink<Secret>,
        _: ReflectorOptions,
    ) -> Result<Box<dyn RunHandle>, Error> {
        let refusal = self.refuse.lock().clone();
        if let Some(error) = refusal {
            return Err(error);
        }
        let mut runs = self.namespaces.lock();
        let index = runs.len();
        runs.push(FakeNamespace {
            sink: Some(sink),
            is_writing: false,
            stopped: false,
        });
        drop(runs);
        self.namespaces.notify_all();
        Ok(Box::new(FakeNamespaceHandle {
            runs: self.clone(),
            index,
        }))
    }
}

/// A namespace's watch as a test sees it.
struct FakeNamespace {
    sink: Option<NamespaceSink<Secret>>,
    /// The test has the sink, and gives it back.
    is_writing: bool,
    stopped: bool,
}

struct FakeNamespaceHandle {
    runs: FakeRuns,
    index: usize,
}

impl RunHandle for FakeNamespaceHandle {
    fn thread_name(&self) -> String {
        "watch of the namespace".to_owned()
    }

    fn is_finished(&self) -> bool {
        let namespace = &self.runs.namespaces.lock()[self.index];
        namespace.sink.is_none() && !namespace.is_writing
    }

    fn stop(&self) {
        self.runs.namespaces.lock()[self.index].stopped = true;
        self.runs.namespaces.notify_all();
    }

    fn join(self: Box<Self>) {
        let mut namespaces = self.runs.namespaces.lock();
        // As a thread that is joined, it first ends what it does.
        while namespaces[self.index].is_writing {
            namespaces = self.runs.namespaces.wait(namespaces);
        }
        let sink = namespaces[self.index].sink.take();
        drop(namespaces);
        drop(sink);
        self.runs.namespaces.notify_all();
    }
}

/// Watches of namespaces.
impl FakeRuns {
    pub(crate) fn namespaces(&self) -> usize {
        self.namespaces.lock().len()
    }

    /// Whether the `index`th watch of a namespace was told to end.
    pub(crate) fn is_namespace_stopped(&self, index: usize) -> bool {
        self.namespaces.lock()[index].stopped
    }

    /// Waits until `count` watches of namespaces were started.
    pub(crate) fn wait_for_namespaces(&self, count: usize) {
        let mut namespaces = self.namespaces.lock();
        while namespaces.len() < count {
            namespaces = self.namespaces.wait(namespaces);
        }
    }

    /// Waits until the `index`th watch of a namespace was joined.
    pub(crate) fn wait_for_namespace_end(&self, index: usize) {
        let mut namespaces = self.namespaces.lock();
        while namespaces[index].sink.is_some() || namespaces[index].is_writing {
            namespaces = self.namespaces.wait(namespaces);
        }
    }

    /// Writes with the `index`th watch of a namespace, as its thread would.
    pub(crate) fn write_namespace<R>(
        &self,
        index: usize,
        act: impl FnOnce(&mut NamespaceSink<Secret>) -> R,
    ) -> R {
        let mut namespaces = self.namespaces.lock();
        let mut sink = namespaces[index].sink.take().unwrap();
        namespaces[index].is_writing = true;
        drop(namespaces);
        let result = act(&mut sink);
        let mut namespaces = self.namespaces.lock();
        namespaces[index].sink = Some(sink);
        namespaces[index].is_writing = false;
        drop(namespaces);
        self.namespaces.notify_all();
        result
    }

    /// The thread of the `index`th watch of a namespace ends by itself.
    pub(crate) fn crash_namespace(&self, index: usize) {
        let sink = self.namespaces.lock()[index].sink.take();
        drop(sink);
    }

    /// The `index`th watch of a namespace lists it at the version, and opens.
    pub(crate) fn list_namespace(
        &self,
        index: usize,
        version: &str,
        objects: impl IntoIterator<Item = Secret>,
    ) -> Result<(), Error> {
        self.only_list_namespace(index, version, objects)?;
        self.write_namespace(index, |sink| sink.bookmark(&version.into()));
        Ok(())
    }

    /// The `index`th watch of a namespace lists it at the version, and is not open yet.
    pub(crate) fn only_list_namespace(
        &self,
        index: usize,
        version: &str,
        objects: impl IntoIterator<Item = Secret>,
    ) -> Result<(), Error> {
        self.write_namespace(index, |sink| {
            let staging = sink.begin();
            commit_namespace(sink, staging, &cached_at(version), objects)
        })
    }

    /// The `index`th watch of a namespace sees an object change.
    pub(crate) fn modified_in_namespace(&self, index: usize, object: Secret) {
        let held = Arc::new(StoredObject::new(object));
        self.write_namespace(index, |sink| {
            sink.apply(ObjectEvent::updated(held)).unwrap();
        });
    }
}

/// Commits a list of a namespace that was begun before.
pub(crate) fn commit_namespace(
    sink: &mut NamespaceSink<Secret>,
    mut staging: <NamespaceSink<Secret> as Sink<Secret>>::Staging,
    of: &Replacement,
    objects: impl IntoIterator<Item = Secret>,
) -> Result<(), Error> {
    for object in objects {
        let listed = Listed::Object(Arc::new(StoredObject::new(object)));
        sink.stage(&mut staging, ObjectEvent::added(listed));
    }
    sink.commit(staging, of)
}

/// The list of a cache of the server's.
pub(crate) fn cached_at(version: &str) -> Replacement {
    Replacement {
        resource_version: version.into(),
        ..Replacement::default()
    }
}

impl FakeRuns {
    pub(crate) fn count(&self) -> usize {
        self.runs.lock().len()
    }

    pub(crate) fn refuse(&self, error: Option<Error>) {
        *self.refuse.lock() = error;
    }

    /// The next launch panics, as by a mistake of the crate's.
    #[cfg(feature = "testing")]
    pub(crate) fn panic_once(&self) {
        *self.panics.lock() = true;
    }

    /// The next launch runs this first.
    #[cfg(shuttle)]
    pub(crate) fn act_in_launch(&self, act: impl FnOnce() + Send + 'static) {
        *self.act.lock() = Some(Box::new(act));
    }

    /// Looks at the last run of the object.
    pub(crate) fn last<R>(&self, name: &str, look: impl FnOnce(&FakeRun) -> R) -> R {
        let runs = self.runs.lock();
        look(runs.iter().rev().find(|run| run.name == name).unwrap())
    }

    /// Opens or shuts the gate, which holds the thread that tells a run to stop.
    pub(crate) fn shut_gate(&self, shut: bool) {
        self.gate.lock().shut = shut;
        self.gate.notify_all();
    }

    /// Waits until a thread stands at the gate.
    pub(crate) fn wait_at_gate(&self) {
        let mut gate = self.gate.lock();
        while !gate.reached {
            gate = self.gate.wait(gate);
        }
    }

    fn pass_gate(&self) {
        let mut gate = self.gate.lock();
        gate.reached |= gate.shut;
        self.gate.notify_all();
        while gate.shut && !gate.admits_one {
            gate = self.gate.wait(gate);
        }
        gate.admits_one = false;
    }

    /// Lets the thread at the shut gate pass, and waits until a thread stands there again.
    pub(crate) fn admit_one(&self) {
        let mut gate = self.gate.lock();
        (gate.admits_one, gate.reached) = (true, false);
        drop(gate);
        self.gate.notify_all();
        self.wait_at_gate();
    }

    /// Whether the threads of runs that are told to stop go on nevertheless.
    pub(crate) fn hold(&self, hold: bool) {
        *self.held.lock() = hold;
        self.held.notify_all();
    }

    pub(crate) fn is_stopped(&self, name: &str) -> bool {
        self.last(name, |run| run.stopped)
    }

    pub(crate) fn is_joined(&self, name: &str) -> bool {
        self.last(name, |run| run.joined)
    }

    /// How many runs of the object have not been told to stop.
    pub(crate) fn at_work(&self, name: &str) -> usize {
        let runs = self.runs.lock();
        runs.iter()
            .filter(|run| run.name == name && !run.stopped)
            .count()
    }

    /// Waits until the housekeeper has joined the `index`th run of all.
    pub(crate) fn wait_for_join(&self, index: usize) {
        let mut runs = self.runs.lock();
        while !runs[index].joined {
            runs = self.runs.wait(runs);
        }
    }

    /// Waits until `count` runs were launched.
    pub(crate) fn wait_for_count(&self, count: usize) {
        let mut runs = self.runs.lock();
        while runs.len() < count {
            runs = self.runs.wait(runs);
        }
    }

    /// Writes with the `index`th run of all, as its thread would.
    pub(crate) fn write<R>(
        &self,
        index: usize,
        act: impl FnOnce(&mut Arc<Writer<Secret>>) -> R,
    ) -> R {
        let mut writer = self.runs.lock()[index].writer.take().unwrap();
        let result = act(&mut writer);
        self.runs.lock()[index].writer = Some(writer);
        result
    }

    /// Writes with the `index`th run of all, if its thread has not ended.
    pub(crate) fn try_write<R>(
        &self,
        index: usize,
        act: impl FnOnce(&mut Arc<Writer<Secret>>) -> R,
    ) -> Option<R> {
        let mut writer = self.runs.lock().get_mut(index)?.writer.take()?;
        let result = act(&mut writer);
        self.runs.lock()[index].writer = Some(writer);
        Some(result)
    }

    /// Which run of the object is at work, if one is.
    pub(crate) fn at_work_index(&self, name: &str) -> Option<usize> {
        let runs = self.runs.lock();
        runs.iter()
            .rposition(|run| run.name == name && !run.stopped && run.writer.is_some())
    }

    /// Ends the thread of the `index`th run by itself, which is a crash.
    pub(crate) fn crash(&self, index: usize) {
        let writer = self.runs.lock()[index].writer.take();
        drop(writer);
    }

    /// Ends the threads of all runs.
    #[cfg(shuttle)]
    pub(crate) fn end_all(&self) {
        for index in 0..self.count() {
            self.crash(index);
        }
    }

    fn index_of(&self, name: &str) -> usize {
        let runs = self.runs.lock();
        runs.iter().rposition(|run| run.name == name).unwrap()
    }

    /// The last run of the object lists it, and its watch opens.
    pub(crate) fn list(
        &self,
        name: &str,
        version: &str,
        object: Option<Secret>,
    ) -> Result<(), Error> {
        self.write(self.index_of(name), |writer| {
            commit(writer, version, object, false)?;
            writer.report(&opened());
            Ok(())
        })
    }

    /// The last run of the object lists it, and its watch is not open yet.
    pub(crate) fn only_list(&self, name: &str, version: &str, object: Option<Secret>) {
        let list = |writer: &mut Arc<Writer<Secret>>| commit(writer, version, object, false);
        self.write(self.index_of(name), list).unwrap();
    }

    /// The last run of the object sees it change.
    pub(crate) fn modified(&self, object: Secret) {
        let name = object.metadata.name.clone().unwrap();
        let held = Arc::new(StoredObject::new(object));
        self.write(self.index_of(&name), |writer| {
            writer.apply(ObjectEvent::updated(held)).unwrap();
        });
    }

    /// The last run of the object sees that nothing changed up to a version.
    pub(crate) fn bookmark(&self, name: &str, version: &str) {
        self.write(self.index_of(name), |writer| {
            writer.bookmark(&version.into());
        });
    }

    /// The last run of the object sees it go.
    pub(crate) fn deleted(&self, object: Secret) {
        let name = object.metadata.name.clone().unwrap();
        let held = Arc::new(StoredObject::new(object));
        self.write(self.index_of(&name), |writer| {
            writer.apply(ObjectEvent::deleted(held)).unwrap();
        });
    }

    /// The last run of the object reports.
    pub(crate) fn report(&self, name: &str, status: &ReflectorStatus) {
        self.write(self.index_of(name), |writer| writer.report(status));
    }
}

/// A watch is open.
pub(crate) fn opened() -> ReflectorStatus {
    ReflectorStatus {
        phase: Phase::Watching,
        synced: true,
        ..ReflectorStatus::default()
    }
}

/// Commits a list at `version` to a writer.
pub(crate) fn commit(
    writer: &mut Arc<Writer<Secret>>,
    version: &str,
    object: Option<Secret>,
    consistent: bool,
) -> Result<(), Error> {
    let staging = writer.begin();
    commit_into(writer, staging, version, object, consistent)
}

/// Commits a list that was begun before.
pub(crate) fn commit_into(
    writer: &mut Arc<Writer<Secret>>,
    mut staging: <Arc<Writer<Secret>> as Sink<Secret>>::Staging,
    version: &str,
    object: Option<Secret>,
    consistent: bool,
) -> Result<(), Error> {
    if let Some(object) = object {
        let listed = Listed::Object(Arc::new(StoredObject::new(object)));
        writer.stage(&mut staging, ObjectEvent::added(listed));
    }
    let of = Replacement {
        resource_version: version.into(),
        consistent,
        history_expired: false,
    };
    writer.commit(staging, &of)
}

/// A getter that gives the answers put into it, and waits while there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeGetter(Arc<Monitor<Script>>);

#[derive(Debug, Default)]
struct Script {
    asked: usize,
    /// How many of the requests were for no reader that waits.
    in_background: usize,
    /// Which versions were asked for, once a test wants to know.
    versions: Option<Vec<String>>,
    answers: VecDeque<Result<Secret, Error>>,
    /// The state of the server, in place of the answers.
    has: Option<Result<Secret, Error>>,
    /// Requests go on after their stop, as those of a program's own source may.
    ignores_stop: bool,
}

impl FakeGetter {
    pub(crate) fn ignore_stop(&self) {
        self.0.lock().ignores_stop = true;
    }

    pub(crate) fn answer(&self, answer: Result<Secret, Error>) {
        self.0.lock().answers.push_back(answer);
        self.0.notify_all();
    }

    /// From now on the server has this object, or none, and answers so.
    #[cfg(shuttle)]
    pub(crate) fn has(&self, object: Option<Secret>) {
        let answer = object.ok_or_else(|| super::stage::failed(404, "not found"));
        self.0.lock().has = Some(answer);
    }

    pub(crate) fn wait_for_asked(&self, count: usize) {
        let mut answers = self.0.lock();
        while answers.asked < count {
            answers = self.0.wait(answers);
        }
    }

    pub(crate) fn asked(&self) -> usize {
        self.0.lock().asked
    }

    pub(crate) fn asked_in_background(&self) -> usize {
        self.0.lock().in_background
    }

    /// Which versions were asked for since the last call. Before the first one, nothing but the
    /// most recent may be.
    pub(crate) fn versions(&self) -> Vec<String> {
        let versions = self.0.lock().versions.replace(Vec::new());
        versions.unwrap_or_default()
    }
}

struct WakeGetter(FakeGetter);

impl Wake for WakeGetter {
    fn wake(&self) {
        drop(self.0.0.lock());
        self.0.0.notify_all();
    }
}

impl Getter<Secret> for FakeGetter {
    fn get(
        &self,
        _: &ObjectKey,
        version: &ResourceVersion,
        _: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<Secret>>, Error> {
        let wake: Arc<dyn Wake> = Arc::new(WakeGetter(self.clone()));
        let _registration = stop.register(&wake);
        let mut answers = self.0.lock();
        answers.asked = answers.asked.saturating_add(1);
        match &mut answers.versions {
            Some(versions) => versions.push(version.to_string()),
            None => assert!(version.is_empty(), "a check reads the most recent version"),
        }
        self.0.notify_all();
        if let Some(has) = answers.has.clone() {
            return has.map(|secret| Arc::new(StoredObject::new(secret)));
        }
        loop {
            if stop.is_stopped() && !answers.ignores_stop {
                return Err(Error::stopped("the fake getter"));
            }
            if let Some(answer) = answers.answers.pop_front() {
                return answer.map(|secret| Arc::new(StoredObject::new(secret)));
            }
            answers = self.0.wait(answers);
        }
    }

    fn get_in_background(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<Secret>>, Error> {
        let mut answers = self.0.lock();
        answers.in_background = answers.in_background.saturating_add(1);
        drop(answers);
        self.get(key, version, deadline, stop)
    }
}

/// A Secret of namespace `ns` with uid `uid-<name>`.
pub(crate) fn secret(name: &str, version: &str) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.namespace = Some("ns".into());
    secret.metadata.name = Some(name.into());
    secret.metadata.uid = Some(format!("uid-{name}"));
    secret.metadata.resource_version = Some(version.into());
    secret.data = Some([("key".to_owned(), ByteString(b"canary".to_vec()))].into());
    secret
}

pub(crate) fn immutable(name: &str, version: &str) -> Secret {
    Secret {
        immutable: Some(true),
        ..secret(name, version)
    }
}

pub(crate) fn with_uid(mut secret: Secret, uid: &str) -> Secret {
    secret.metadata.uid = Some(uid.into());
    secret
}

/// A pod of namespace `ns` that pulls images with these Secrets.
pub(crate) fn pod(name: &str, secrets: &[&str]) -> Pod {
    let pulls: Vec<_> = secrets
        .iter()
        .map(|secret| serde_json::json!({ "name": secret }))
        .collect();
    serde_json::from_value(serde_json::json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
        "spec": {"containers": [], "imagePullSecrets": pulls},
    }))
    .unwrap()
}

/// "The version lies in the future", in the API's words (RF-13).
pub(crate) fn too_large() -> Error {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
    let cause = meta::StatusCause {
        reason: Some("ResourceVersionTooLarge".to_owned()),
        ..meta::StatusCause::default()
    };
    Error::from_status(Status::from(meta::Status {
        code: Some(504),
        reason: Some("Timeout".to_owned()),
        message: Some("Too large resource version: 20, current: 15".to_owned()),
        details: Some(meta::StatusDetails {
            causes: Some(vec![cause]),
            ..meta::StatusDetails::default()
        }),
        ..meta::Status::default()
    }))
}
