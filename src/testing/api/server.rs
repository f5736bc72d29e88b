//! The API server as a test has it in its hand: writes by value, faults of the history, and what
//! clients have asked.

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::access::AccessRule;
use super::backend::{ApiBackend, check_type};
use super::kubeconfig;
use super::refusal::Refusal;
use super::resources::ApiResource;
use super::routes::{ObjectRoute, storage_key_of};
use super::storage::{Compacted, StorageState, metadata_text, set_metadata};
use super::writes::{DeleteRequest, Writer};
use crate::clock::IntoDeadline;
use crate::error::{Error, ErrorKind, Status};
use crate::object::{ObjectKey, Resource};
use crate::sync::{Arc, Monitor};
use crate::testing::http::{
    Fault, FaultId, HttpServer, Received, RequestLog, ServerTls, TestAuthority,
};

/// An API server in memory, for any client in any language, on a loopback port.
///
/// It has the common kinds of Kubernetes, those that a test registers, and those that a client
/// registers by a CRD. It answers get, list, watch, create, update, patch, delete and
/// deletecollection as a kube-apiserver does. It has discovery, pages, selectors, bookmarks,
/// streamed lists, tables, conflicts and finalizers. [`compact`](Self::compact),
/// [`expire_watches`](Self::expire_watches), [`restore`](Self::restore) and
/// [`add_fault`](Self::add_fault) let it misbehave.
///
/// A test writes by value, without a request: [`create`](Self::create), [`apply`](Self::apply),
/// [`delete`](Self::delete). Such writes set the status too, make the namespace if it is missing,
/// and delete pods at once.
///
/// No time passes but that of its [`clock`](crate::testing::ApiServerBuilder::clock), also in
/// `creationTimestamp`, time-outs of watches and bookmarks.
///
/// # What it does not have
///
/// - controllers: nothing is scheduled, started or garbage collected; only a deleted namespace is
///   emptied
/// - server-side apply, protobuf and YAML bodies: refused by name
/// - managed fields of its own: an object has those that the test gave it
/// - validation by schema and conversion of objects between versions; of defaults, only those on
///   which clients rely
/// - subresources beside `status`
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use k8s_openapi::api::core::v1::Secret;
/// use kubecache::http::{Client, ClientOptions, Config};
/// use kubecache::manager::{ManagerOptions, SecretManager};
/// use kubecache::testing::{ApiServer, objects};
/// use std::time::Duration;
///
/// let server = ApiServer::new()?;
/// server.apply(&objects::secret("shop", "db", "", &[("password", "made-up")]))?;
///
/// // Your agent: any client of that URL.
/// let client = Client::new(&Config::for_server(&server.url())?, ClientOptions::default())?;
/// let secrets = SecretManager::new(client, ManagerOptions::default())?;
/// let changes = secrets.subscribe();
/// secrets.register_pod(&objects::pod("shop", "web-0", "node-1", &["db"], &[]));
/// let soon = Duration::from_secs(60);
/// secrets.get_by("shop", "db", soon)?;
///
/// // The password is rotated while its watch is open.
/// server.wait_for_watches(soon, |open| open == 1);
/// server.apply(&objects::secret("shop", "db", "", &[("password", "another")]))?;
/// while secrets.get_by("shop", "db", soon)?.data.as_ref().unwrap()["password"].0 != b"another" {
///     changes.signal().recv()?;
/// }
/// server.delete::<Secret>("shop", "db")?;
/// # }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ApiServer {
    server: HttpServer<ApiBackend>,
}

impl ApiServer {
    /// A server behind its sockets.
    pub(super) fn of(server: HttpServer<ApiBackend>) -> Self {
        Self { server }
    }

    /// The loopback address and port on which it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// The address as a URL, for a client's configuration: `http://127.0.0.1:…`, or `https`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The text of a kubeconfig for it: its URL, its certificates, and the first
    /// [`token`](crate::testing::ApiServerBuilder::token).
    pub fn kubeconfig(&self) -> String {
        let token = self
            .backend()
            .access
            .lock()
            .first_token()
            .map(str::to_owned);
        let certificates = self.server.certificates();
        kubeconfig::text(&self.url(), certificates.as_deref(), token.as_deref())
    }

    /// Creates an object and returns it as the server has it. The object's own version and uid do
    /// not count.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Api`] with the [`Status`] that a client would get, such as `AlreadyExists`.
    pub fn create<K>(&self, object: &K) -> Result<K, Error>
    where
        K: k8s_openapi::Resource + Serialize + DeserializeOwned,
    {
        self.create_value(&encode(object)?).and_then(decode)
    }

    /// Creates an object of any kind that the server has; it says its `apiVersion` and `kind`.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_value(&self, object: &Value) -> Result<Value, Error> {
        self.write(object, |writer, state, route, object| {
            let namespace = route.namespace.as_deref().unwrap_or_default();
            let created = writer.create(state, &route.resource, namespace, object)?;
            Ok(created.value_as(&route.resource))
        })
    }

    /// Creates an object, or replaces the one with its name, whatever that one's version is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Api`] with the [`Status`] that a client would get.
    pub fn apply<K>(&self, object: &K) -> Result<K, Error>
    where
        K: k8s_openapi::Resource + Serialize + DeserializeOwned,
    {
        self.apply_value(&encode(object)?).and_then(decode)
    }

    /// Creates or replaces an object of any kind that the server has.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    pub fn apply_value(&self, object: &Value) -> Result<Value, Error> {
        self.write(object, |writer, state, route, mut object| {
            let Some(old) = state.get(&route.resource.storage_key(), &route.key()) else {
                let namespace = route.namespace.as_deref().unwrap_or_default();
                let created = writer.create(state, &route.resource, namespace, object)?;
                return Ok(created.value_as(&route.resource));
            };
            set_metadata(&mut object, "uid", Value::from(""));
            let version = Value::from(old.version.to_string());
            set_metadata(&mut object, "resourceVersion", version);
            let written = writer.update(state, route, object)?;
            Ok(written.object.value_as(&route.resource))
        })
    }

    /// Deletes an object, as far as its finalizers let it go.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when it is not there.
    pub fn delete<K>(&self, namespace: &str, name: &str) -> Result<(), Error>
    where
        K: k8s_openapi::Resource,
        K::Scope: 'static,
    {
        self.delete_value(&Resource::of::<K>(), &ObjectKey::new(namespace, name))
    }

    /// Deletes an object of any kind that the server has.
    ///
    /// # Errors
    ///
    /// As [`delete`](Self::delete).
    pub fn delete_value(&self, resource: &Resource, key: &ObjectKey) -> Result<(), Error> {
        let backend = self.backend();
        let mut state = backend.storage.lock();
        let resource = known(&state, resource)?;
        let route = ObjectRoute::to_object(&resource, key.namespace(), key.name());
        let deleted = self
            .writer()
            .delete(&mut state, &route, &DeleteRequest::default());
        deleted.map(drop).map_err(|refusal| failed(&refusal))
    }

    /// The object as the server has it; `None` when it is not there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Undecodable`] when a client wrote what is not of that type.
    pub fn get<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error>
    where
        K: k8s_openapi::Resource + DeserializeOwned,
        K::Scope: 'static,
    {
        let key = ObjectKey::new(namespace, name);
        self.get_value(&Resource::of::<K>(), &key)?
            .map(decode)
            .transpose()
    }

    /// An object of any kind that the server has; `None` when it is not there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when the server does not have the kind.
    pub fn get_value(&self, resource: &Resource, key: &ObjectKey) -> Result<Option<Value>, Error> {
        let state = self.backend().storage.lock();
        let resource = known(&state, resource)?;
        let key = storage_key_of(key.namespace(), key.name());
        let found = state.get(&resource.storage_key(), &key);
        Ok(found.map(|found| found.value_as(&resource)))
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.backend().storage.lock().version()
    }

    /// Forgets the history up to the present version, as a compaction of etcd does: from now on,
    /// pages, exact lists and new watches from before it get `410`.
    ///
    /// Open watches go on and are told every change, as on a real server.
    /// [`expire_watches`](Self::expire_watches) ends them.
    pub fn compact(&self) {
        self.backend().storage.compact();
    }

    /// Tells each open watch that its version has expired: an `ERROR` event with code 410, and the
    /// end of the watch.
    pub fn expire_watches(&self) {
        self.backend().storage.expire_watches();
    }

    /// Cuts each open watch off in the middle of its body.
    pub fn cut_watches(&self) {
        self.backend().storage.cut_watches();
    }

    /// Goes back to the state at `version`, as a server whose etcd was restored from a backup, and
    /// cuts each open watch off. The next change gets the version after that one once more.
    ///
    /// As on a real server, watches from before `version` are refused with 410, and states before
    /// it can be listed. A list, a page or a streamed list at a version that was lost is refused
    /// with 504. A watch from there opens, and tells what comes after that version.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Expired`] when the version is compacted, or was not reached yet.
    pub fn restore(&self, version: u64) -> Result<(), Error> {
        let restored = self.backend().storage.restore(version);
        restored.map_err(|Compacted { oldest }| {
            let text = format!(
                "restoring version {version}: the history goes from {oldest} to {}",
                self.version()
            );
            Error::new(ErrorKind::Expired, text)
        })
    }

    /// Adds a bearer token of a user with groups. From the first one on, a request without a token
    /// or certificate gets 401.
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        self.backend().access.lock().add_token(token, user, groups);
    }

    /// Takes a token back: requests with it get 401. Open watches go on.
    pub fn remove_token(&self, token: &str) {
        self.backend().access.lock().remove_token(token);
    }

    /// Replaces all rules. Without any, each user may do everything.
    pub fn set_rules(&self, rules: impl IntoIterator<Item = AccessRule>) {
        let rules = rules.into_iter().collect();
        self.backend().access.lock().set_rules(rules);
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        *self.backend().open.lock()
    }

    /// Blocks until `enough` says yes to the number of open watches, or until `deadline`. Returns
    /// whether it said yes.
    ///
    /// A watch is open when its request was answered; what is written from then on, it tells.
    pub fn wait_for_watches(
        &self,
        deadline: impl IntoDeadline,
        enough: impl Fn(usize) -> bool,
    ) -> bool {
        let deadline = deadline.into_deadline(self.backend().storage.clock());
        let open = &self.backend().open;
        let clock = self.backend().storage.clock();
        let count = open.lock();
        let look = |count: &mut usize| enough(*count).then_some(());
        clock.wait_for(open, count, deadline, look).0.is_some()
    }

    /// How many connections it has accepted so far, those that a fault met included.
    pub fn connections(&self) -> u64 {
        self.server.connections()
    }

    /// The requests that came so far, in order: the last 50,000 at least, unless their
    /// heads take more than 32 MiB.
    pub fn requests(&self) -> Vec<Received> {
        self.server.requests()
    }

    /// Blocks until `enough` says yes to [`requests`](Self::requests), or until `deadline`. Returns
    /// whether it said yes.
    pub fn wait_for_requests(
        &self,
        deadline: impl IntoDeadline,
        enough: impl Fn(&[Received]) -> bool,
    ) -> bool {
        self.server.wait_for_requests(deadline, enough)
    }

    /// Adds a fault, for connections and requests from now on.
    /// [`FAULTS`](crate::testing::FAULTS) lists what there is.
    pub fn add_fault(&self, fault: Fault) -> FaultId {
        self.server.add_fault(fault)
    }

    /// Removes a fault: it meets nobody from now on. Returns whether it was there. What it has met
    /// already goes on: a request that hangs does so until its client gives up.
    pub fn remove_fault(&self, id: FaultId) -> bool {
        self.server.faults().remove(id)
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.server.faults().clear();
    }

    /// The faults that were added and not removed, in the order in which they came.
    pub fn faults(&self) -> Vec<(FaultId, Fault)> {
        self.server.faults().list()
    }

    /// Closes the port and resets all connections, as a server does that is killed. Returns when
    /// all threads have ended; then connections are refused until [`come_back`](Self::come_back).
    pub fn crash(&self) {
        self.server.crash();
    }

    /// Listens again on the same port, after a [`crash`](Self::crash). Its state is what it was.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Resources`] when the port belongs to somebody else
    /// by now, or the system has no thread to give.
    pub fn come_back(&self) -> Result<(), Error> {
        self.server.come_back()
    }

    /// Shows certificates of that authority to new connections from now on. A kubeconfig that is
    /// asked for from now on has it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the authority's provider does not sign.
    pub fn rotate_tls(&self, authority: &TestAuthority) -> Result<(), Error> {
        self.server.rotate_tls(ServerTls::of_authority(authority)?);
        Ok(())
    }

    /// Shows certificates of another test authority of that name to new connections from now on.
    pub(in crate::testing) fn rotate_authority(&self, name: &str) -> Result<(), Error> {
        self.server.rotate_authority(name)
    }

    /// Ends every connection, at once; returns when all threads have ended. Dropping does the same.
    pub fn stop(self) {
        self.server.stop();
    }

    /// The number of open watches, for a wait that a stop ends.
    pub(in crate::testing) fn watch_count(&self) -> &Arc<Monitor<usize>> {
        &self.backend().open
    }

    /// The requests that came, for a wait that a stop ends.
    pub(in crate::testing) fn request_log(&self) -> &Arc<Monitor<RequestLog>> {
        self.server.log()
    }

    pub(super) fn backend(&self) -> &ApiBackend {
        self.server.backend()
    }

    fn writer(&self) -> Writer<'_> {
        Writer {
            storage: &self.backend().storage,
            is_dry_run: false,
            is_test: true,
        }
    }

    /// Writes an object of the test's, by the kind that it says it is.
    pub(super) fn write<T, F>(&self, object: &Value, write: F) -> Result<T, Error>
    where
        F: FnOnce(Writer<'_>, &mut StorageState, &ObjectRoute, Value) -> Result<T, Refusal>,
    {
        let mut state = self.backend().storage.lock();
        let text = |field: &str| {
            object
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let resource = state
            .registry
            .of_kind(text("apiVersion"), text("kind"))
            .cloned();
        let resource = resource.ok_or_else(|| {
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            no_such_kind(&format!("{kind:?} of {api_version:?}"))
        })?;
        let (namespace, name) = (
            metadata_text(object, "namespace"),
            metadata_text(object, "name"),
        );
        let route = ObjectRoute::to_object(&resource, namespace, name);
        let checked = check_type(&resource, object);
        let written =
            checked.and_then(|()| write(self.writer(), &mut state, &route, object.clone()));
        written.map_err(|refusal| failed(&refusal))
    }
}

fn known(state: &StorageState, resource: &Resource) -> Result<Arc<ApiResource>, Error> {
    let found = state
        .registry
        .find(resource.group(), resource.version(), resource.plural());
    found
        .cloned()
        .ok_or_else(|| no_such_kind(&format!("{resource} of {:?}", resource.api_version())))
}

fn no_such_kind(kind: &str) -> Error {
    let text = format!(
        "the test server does not have the kind {kind}: register it with \
         ApiServerBuilder::resource, or create its CRD"
    );
    Error::new(ErrorKind::NotFound, text)
}

fn encode<K: Serialize>(object: &K) -> Result<Value, Error> {
    serde_json::to_value(object)
        .map_err(|error| Error::new(ErrorKind::Config, format!("the object is no JSON: {error}")))
}

fn decode<K: DeserializeOwned>(object: Value) -> Result<K, Error> {
    serde_json::from_value(object).map_err(|error| {
        let text = format!("the server's object does not decode: {error}");
        Error::new(ErrorKind::Undecodable, text)
    })
}

fn failed(refusal: &Refusal) -> Error {
    match serde_json::from_value::<meta::Status>(refusal.status()) {
        Ok(status) => Error::from_status(Status::from(status)),
        Err(error) => Error::new(ErrorKind::Protocol, format!("the status: {error}")),
    }
}
