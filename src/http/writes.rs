//! Creates, replaces, patches and deletes objects, by requests of [`send`](super::send).

use serde::Serialize;
use serde_json::Value;

use super::calls::errors;
use super::client::Client;
use super::requests;
use super::send::Request;
use crate::clock::IntoDeadline;
use crate::error::Error;
use crate::guard::guard_call;
use crate::object::{Object, ObjectKey, StoredObject};
use crate::setters::setters;
use crate::sync::Arc;
use crate::wire::{decode_object, decode_status};
use crate::worker::StopToken;

/// The parameters of a delete that a server does not read beside a body. It would delete in spite
/// of a `dryRun`.
const DELETE_OPTIONS: [&str; 4] = [
    "dryRun",
    "gracePeriodSeconds",
    "orphanDependents",
    "propagationPolicy",
];

/// A patch, in one of the languages that API servers know.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Patch {
    /// Steps of RFC 6902: `application/json-patch+json`.
    Json(Value),
    /// RFC 7386: null deletes a field, and a list is replaced: `application/merge-patch+json`.
    Merge(Value),
    /// As `Merge`, but lists of built-in kinds are merged by their keys:
    /// `application/strategic-merge-patch+json`.
    Strategic(Value),
    /// The fields that a manager owns, the object's `apiVersion` and `kind` among them:
    /// `application/apply-patch+yaml`. The server needs the parameter `fieldManager`.
    Apply(Value),
}

impl Patch {
    /// The content type and the body.
    fn parts(&self) -> (&'static str, &Value) {
        match self {
            Self::Json(patch) => ("application/json-patch+json", patch),
            Self::Merge(patch) => ("application/merge-patch+json", patch),
            Self::Strategic(patch) => ("application/strategic-merge-patch+json", patch),
            Self::Apply(patch) => ("application/apply-patch+yaml", patch),
        }
    }
}

/// The options of a write. The defaults write the object itself.
///
/// # Examples
///
/// ```
/// use kubecache::http::WriteOptions;
///
/// let options = WriteOptions::default().subresource("status").query("fieldManager", "rotator");
/// # drop(options);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct WriteOptions {
    subresource: String,
    query: Vec<(String, String)>,
    stop: Option<StopToken>,
}

setters! { [] WriteOptions;
    /// Sets the subresource that is written, such as `status` or `eviction`. Default: none.
    ///
    /// A subresource may have a type of its own. Write that with a client of the object's resource:
    /// `client.with_resource(Pod::resource())` creates an `Eviction`, the `eviction` of the pod
    /// with its name.
    subresource(subresource: impl Into<String>) = subresource.into();

    /// Sets the stop that ends the request. Default: none.
    stop(stop: &StopToken) = Some(stop.clone());
}

impl WriteOptions {
    /// Adds a parameter of the query, such as `fieldManager`, `force` or `dryRun`.
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    fn request<K: Object>(
        &self,
        client: &Client,
        method: &str,
        key: &ObjectKey,
    ) -> Result<Request, Error> {
        let resource = client.resource::<K>();
        let path = match (method, &*self.subresource) {
            ("POST", "") => requests::create(method, &resource, key)?,
            (_, subresource) => requests::object(method, &resource, key, subresource)?,
        };
        let mut request = Request::new(method, path);
        for (name, value) in &self.query {
            request = request.query(name, value);
        }
        Ok(match &self.stop {
            Some(stop) => request.stop(stop),
            None => request,
        })
    }
}

impl Client {
    /// Creates an object. Returns it as the server stored it.
    ///
    /// Blocks and fails as [`send`](Self::send) does. If the server answers with a status alone, as
    /// for an eviction or a binding, returns the object that was sent. [`Compact`](crate::Compact),
    /// [`Dynamic`](crate::Dynamic) and [`Metadata`](crate::Metadata) cannot be created: use
    /// [`patch`](Self::patch) with [`Patch::Apply`], or [`send`](Self::send). The client overwrites
    /// the JSON that it sends. It cannot overwrite the copies that `Serialize` of `K` makes.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send). If the [`Status`](crate::Error::status) has the code 409, an object
    /// of that name exists.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use k8s_openapi::api::core::v1::{Event, ObjectReference};
    /// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    /// use kubecache::clock::Deadline;
    /// use kubecache::http::{Client, ClientOptions, Config, WriteOptions};
    /// # let server = kubecache::testing::ApiServer::new()?;
    /// # let config = Config::for_server(&server.url())?;
    ///
    /// // let config = Config::infer()?;
    /// let client = Client::new(&config, ClientOptions::default())?;
    /// let (namespace, name) = (Some("default".to_owned()), Some("web-0".to_owned()));
    /// let kind = Some("Pod".to_owned());
    /// let generate_name = Some("web-0-".to_owned());
    /// let event = Event {
    ///     metadata: ObjectMeta { namespace: namespace.clone(), generate_name, ..<_>::default() },
    ///     involved_object: ObjectReference { kind, namespace, name, ..<_>::default() },
    ///     reason: Some("Rotated".to_owned()),
    ///     type_: Some("Normal".to_owned()),
    ///     ..Event::default()
    /// };
    /// let event = client.create(&event, &WriteOptions::default(), Deadline::NEVER)?;
    /// assert!(event.metadata.name.as_ref().unwrap().starts_with("web-0-"));
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn create<K: Object + Serialize>(
        &self,
        object: &K,
        options: &WriteOptions,
        deadline: impl IntoDeadline,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let request = options.request::<K>(self, "POST", &object.key())?;
        let request = request.json(object)?;
        self.write(request, deadline)
    }

    /// Replaces an object, if it still has the version of `object`. Returns it as the server stored
    /// it.
    ///
    /// An object without a version replaces any. For some kinds, such as leases and custom
    /// resources, servers refuse it with the code 422. An object from a cache lacks the fields that
    /// only writers need, unless the client keeps them ([`Trim::Keep`](super::Trim)): replace one
    /// that [`get`](Self::get) has read.
    ///
    /// Blocks and fails as [`create`](Self::create) does.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create). If the [`Status`](crate::Error::status) has the code 409,
    /// another client has changed the object: read it again.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kubecache::clock::Deadline;
    /// use kubecache::http::{Client, ClientOptions, Config, WriteOptions};
    /// use kubecache::object::{ObjectKey, StoredObject};
    /// # let server = kubecache::testing::ApiServer::new()?;
    /// # let map = serde_json::json!({"metadata": {"name": "web", "namespace": "shop"}});
    /// # server.create(&serde_json::from_value::<ConfigMap>(map)?)?;
    /// # let config = Config::for_server(&server.url())?;
    ///
    /// // let config = Config::infer()?;
    /// let client = Client::new(&config, ClientOptions::default())?;
    /// let map = client.get::<ConfigMap>(&ObjectKey::new("shop", "web"))?;
    /// let map = StoredObject::edited(map, |map| map.immutable = Some(true));
    /// let map = client.replace(&**map, &WriteOptions::default(), Deadline::NEVER)?;
    /// assert_eq!(map.immutable, Some(true));
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace<K: Object + Serialize>(
        &self,
        object: &K,
        options: &WriteOptions,
        deadline: impl IntoDeadline,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let request = options.request::<K>(self, "PUT", &object.key())?;
        self.write(request.json(object)?, deadline)
    }

    /// Patches the object with `key`. Returns it as the server stored it, with the fields that
    /// [`get`](Self::get) returns.
    ///
    /// Blocks and fails as [`send`](Self::send) does.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use k8s_openapi::api::core::v1::Node;
    /// use kubecache::clock::Deadline;
    /// use kubecache::http::{Client, ClientOptions, Config, Patch, WriteOptions};
    /// use kubecache::object::ObjectKey;
    /// use serde_json::json;
    /// # let server = kubecache::testing::ApiServer::new()?;
    /// # let node = json!({"metadata": {"name": "node-1"}});
    /// # server.create(&serde_json::from_value::<Node>(node)?)?;
    /// # let config = Config::for_server(&server.url())?;
    ///
    /// // let config = Config::infer()?;
    /// let client = Client::new(&config, ClientOptions::default())?;
    /// let (key, never) = (ObjectKey::new("", "node-1"), Deadline::NEVER);
    /// let note = json!({"metadata": {"annotations": {"example.com/rack": "7"}}});
    /// client.patch::<Node>(&key, &Patch::Merge(note), &WriteOptions::default(), never)?;
    ///
    /// let status = WriteOptions::default().subresource("status");
    /// let ready = json!({"type": "RackReady", "status": "True", "reason": "InPlace"});
    /// let ready = json!({"status": {"conditions": [ready]}});
    /// let node = client.patch::<Node>(&key, &Patch::Strategic(ready), &status, never)?;
    /// assert_eq!(node.metadata.annotations.as_ref().unwrap()["example.com/rack"], "7");
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn patch<K: Object>(
        &self,
        key: &ObjectKey,
        patch: &Patch,
        options: &WriteOptions,
        deadline: impl IntoDeadline,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let (content_type, body) = patch.parts();
        let request = options.request::<K>(self, "PATCH", key)?;
        let request = request.header("Content-Type", content_type).json(body)?;
        self.write(request, deadline)
    }

    /// Deletes the object with `key`. `how` are the fields of `DeleteOptions`, such as
    /// `{"preconditions": {"uid": …}}`, `propagationPolicy` and `gracePeriodSeconds`, or null.
    ///
    /// The object may still exist when the method returns: finalizers and a grace period delay its
    /// end.
    ///
    /// Blocks and fails as [`send`](Self::send) does.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send). If the [`Status`](crate::Error::status) has the code 409, the
    /// object is not the one that the preconditions name. `Config` if `options` has a parameter
    /// that the server ignores beside `how`, such as `dryRun`; nothing is sent then.
    pub fn delete<K: Object>(
        &self,
        key: &ObjectKey,
        how: &Value,
        options: &WriteOptions,
        deadline: impl IntoDeadline,
    ) -> Result<(), Error> {
        // Not by `accept`: the server may answer with a status, which has no metadata form.
        let mut request = options.request::<K>(self, "DELETE", key)?;
        if !how.is_null() {
            let mut given = options.query.iter();
            if let Some((name, _)) = given.find(|(name, _)| DELETE_OPTIONS.contains(&&**name)) {
                let text = format!("{request:?}: {name} is ignored beside `how`: name it there");
                return Err(Error::config(text));
            }
            request = request.json(how)?;
        }
        self.send(&request, deadline).map(drop)
    }

    /// Sends a write and decodes the object in its answer.
    fn write<K: Object>(
        &self,
        request: Request,
        deadline: impl IntoDeadline,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let decode = self.inner.context.options.decode.for_program::<K>();
        let accept = requests::accept::<K>(false, decode.trim);
        let request = request.header("Accept", accept);
        let response = self.send(&request, deadline)?;
        let is_status = decode_status(response.body()).is_some();
        let object = if is_status {
            &request.body
        } else {
            response.body()
        };
        let decoded = guard_call(errors::DECODER, || decode_object(object, &decode, &mut 0));
        decoded.map_err(|error| {
            errors::maybe_applied_if(true, error.of_request(&format!("{request:?}")))
        })
    }
}
