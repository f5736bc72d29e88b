//! The API server in a test's hands: writes by value, faults of the history, and the clients'
//! requests.

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
use super::write_options::DeleteRequest;
use super::writes::ObjectWriter;
use crate::clock::IntoDeadline;
use crate::error::{Error, ErrorKind, Status};
use crate::object::{ObjectKey, Resource};
use crate::sync::{Arc, Monitor};
use crate::testing::http::{
    Fault, FaultId, HttpServer, Received, RequestLog, ServerTls, TestAuthority,
};

/// An API server in memory on a loopback port, for clients in any language.
///
/// It has the common kinds of Kubernetes, kinds that a test registers, and kinds that a client
/// registers with a CRD. It answers get, list, watch, create, update, patch, delete and
/// deletecollection as a kube-apiserver does. It has discovery, pages, selectors, bookmarks,
/// streamed lists, tables, conflicts and finalizers. [`compact`](Self::compact),
/// [`expire_watches`](Self::expire_watches), [`restore`](Self::restore) and
/// [`add_fault`](Self::add_fault) make it misbehave.
///
/// A test writes by value, without a request: [`create`](Self::create), [`apply`](Self::apply),
/// [`delete`](Self::delete). Such writes set the status too, create a missing namespace, and delete
/// pods at once. An object of a kind with namespaces that names none is in `default`, as kubectl
/// takes it.
///
/// All its times follow its [`clock`](crate::testing::ApiServerBuilder::clock), including
/// `creationTimestamp`, bookmarks and the time-outs of watches.
///
/// # Limits
///
/// - no controllers: it schedules, starts and collects nothing; it only empties a deleted namespace
/// - no garbage collector: dependents stay. A delete with `Foreground` or `Orphan` sets the
///   finalizer of its policy, which the server then removes at once
/// - no server-side apply, protobuf or YAML bodies: it refuses them by name
/// - impersonation takes the right `impersonate` to users, groups and the like, and not the newer
///   `impersonate-on`
/// - no managed fields of its own: an object has only those from the test
/// - no validation by schema, no conversion between versions, and only the defaults on which
///   clients rely
/// - no subresources besides `status`
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

    /// Returns the loopback address and port on which it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// Returns the address as a URL for a client's configuration: `http://127.0.0.1:…`, or `https`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Returns the text of a kubeconfig for it: its URL, its certificates, and the first
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

    /// Creates an object and returns the server's state of it. Ignores the object's own version and
    /// uid.
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

    /// Creates an object of any kind that the server has. The object names its `apiVersion` and
    /// `kind`.
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

    /// Creates an object, or replaces the one with its name, of any version.
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

    /// Deletes an object, as far as its finalizers allow.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when there is none.
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
        let namespace = or_default(&resource, key.namespace());
        let route = ObjectRoute::to_object(&resource, namespace, key.name());
        let deleted = self
            .writer()
            .delete(&mut state, &route, &DeleteRequest::default());
        deleted.map(drop).map_err(|refusal| failed(&refusal))
    }

    /// Returns the server's state of the object; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Undecodable`] when a client wrote an object that does not fit the type.
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

    /// Returns an object of any kind that the server has; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when the server does not have the kind.
    pub fn get_value(&self, resource: &Resource, key: &ObjectKey) -> Result<Option<Value>, Error> {
        let state = self.backend().storage.lock();
        let resource = known(&state, resource)?;
        let key = storage_key_of(or_default(&resource, key.namespace()), key.name());
        let found = state.get(&resource.storage_key(), &key);
        Ok(found.map(|found| found.value_as(&resource)))
    }

    /// Returns the version of the last change.
    pub fn version(&self) -> u64 {
        self.backend().storage.lock().version()
    }

    /// Forgets the history up to the present version, as a compaction of etcd does. From now on,
    /// pages, exact lists and new watches from before it get `410`.
    ///
    /// Open watches go on and get every change, as on a real server.
    /// [`expire_watches`](Self::expire_watches) ends them.
    pub fn compact(&self) {
        self.backend().storage.compact();
    }

    /// Ends each open watch as expired, with an `ERROR` event of code 410.
    pub fn expire_watches(&self) {
        self.backend().storage.expire_watches();
    }

    /// Cuts off each open watch in the middle of its body.
    pub fn cut_watches(&self) {
        self.backend().storage.cut_watches();
    }

    /// Goes back to the state at `version`, like a server whose etcd was restored from a backup,
    /// and cuts off each open watch. The next change gets the version after that one again.
    ///
    /// As on a real server, watches from before `version` get 410, and lists can still read earlier
    /// states. A list, a page or a streamed list at a lost version gets 504. A watch from there
    /// opens, and brings the changes after that version.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Expired`] when the version is compacted, or not reached yet.
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

    /// Removes a token: requests with it get 401. Open watches go on.
    pub fn remove_token(&self, token: &str) {
        self.backend().access.lock().remove_token(token);
    }

    /// Replaces all rules. Without any, each user may do everything.
    pub fn set_rules(&self, rules: impl IntoIterator<Item = AccessRule>) {
        let rules = rules.into_iter().collect();
        self.backend().access.lock().set_rules(rules);
    }

    /// Returns how many watches are open.
    pub fn open_watches(&self) -> usize {
        *self.backend().open.lock()
    }

    /// Blocks until `enough` accepts the number of open watches, or until `deadline`. Returns
    /// whether it did.
    ///
    /// A watch is open once its request was answered; it brings all later writes.
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

    /// Returns how many connections it has accepted so far, including those that met a fault.
    pub fn connections(&self) -> u64 {
        self.server.connections()
    }

    /// Returns the requests so far, in order: at least the last 50,000, unless their heads take
    /// more than 32 MiB.
    pub fn requests(&self) -> Vec<Received> {
        self.server.requests()
    }

    /// Blocks until `enough` accepts [`requests`](Self::requests), or until `deadline`. Returns
    /// whether it did.
    pub fn wait_for_requests(
        &self,
        deadline: impl IntoDeadline,
        enough: impl Fn(&[Received]) -> bool,
    ) -> bool {
        self.server.wait_for_requests(deadline, enough)
    }

    /// Adds a fault, for connections and requests from now on. [`FAULTS`](crate::testing::FAULTS)
    /// lists all faults.
    pub fn add_fault(&self, fault: Fault) -> FaultId {
        self.server.add_fault(fault)
    }

    /// Removes a fault: no later connection or request meets it. Returns whether it existed. Its
    /// effects so far go on: a request that hangs does so until its client gives up.
    pub fn remove_fault(&self, id: FaultId) -> bool {
        self.server.faults().remove(id)
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.server.faults().clear();
    }

    /// Returns the present faults, in the order in which they were added.
    pub fn faults(&self) -> Vec<(FaultId, Fault)> {
        self.server.faults().list()
    }

    /// Closes the port and resets all connections, like a killed server. Returns when all threads
    /// have ended. The system then refuses connections until [`come_back`](Self::come_back).
    pub fn crash(&self) {
        self.server.crash();
    }

    /// Listens again on the same port, after a [`crash`](Self::crash), with the same state.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Resources`] when another process has the port by now, or the system refuses a
    /// thread.
    pub fn come_back(&self) -> Result<(), Error> {
        self.server.come_back()
    }

    /// Shows certificates of that authority to new connections from now on. Later kubeconfigs
    /// contain it.
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

    /// Ends every connection at once. Returns when all threads have ended. A drop does the same.
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

    fn writer(&self) -> ObjectWriter<'_> {
        ObjectWriter {
            storage: &self.backend().storage,
            is_dry_run: false,
            is_test: true,
        }
    }

    /// Writes an object of the test, by the kind that it names.
    pub(super) fn write<T, F>(&self, object: &Value, write: F) -> Result<T, Error>
    where
        F: FnOnce(ObjectWriter<'_>, &mut StorageState, &ObjectRoute, Value) -> Result<T, Refusal>,
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
        let namespace = or_default(&resource, metadata_text(object, "namespace"));
        let name = metadata_text(object, "name");
        let route = ObjectRoute::to_object(&resource, namespace, name);
        let checked = check_type(&resource, object);
        let written =
            checked.and_then(|()| write(self.writer(), &mut state, &route, object.clone()));
        written.map_err(|refusal| failed(&refusal))
    }
}

/// The namespace of an object that may name none, as kubectl takes it.
fn or_default<'a>(resource: &ApiResource, namespace: &'a str) -> &'a str {
    if namespace.is_empty() && resource.is_namespaced() {
        return "default";
    }
    namespace
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
