//! Asks the server, once at the start, whether the agent may do what `--watches-max` adds.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::clock::Clock;
use kubecache::http::Client;
use kubecache::object::{Object, ObjectKey, ResourceVersion};
use kubecache::worker::{StopToken, Worker};
use kubecache::{Error, ErrorKind};

use crate::tell::tell;

/// A server that is away says nothing of rights: an object without them is `Forbidden` later.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nothing is called so. A right to get all objects covers it.
const NAME: &str = "node-agent-asks-whether-it-may-get";

/// Asks on a thread of its own, which the drop of the worker ends. Warns where the server refuses.
pub(crate) fn check(client: &Client, namespace: Option<&str>) -> Result<Worker, Error> {
    let client = client.clone();
    let key = ObjectKey::new(namespace.unwrap_or("default"), NAME);
    let asks = Worker::spawn("agent-rights", move |stop| {
        may_get::<Secret>(&client, &key, stop);
        may_get::<ConfigMap>(&client, &key, stop);
    });
    asks.map_err(|error| Error::new(ErrorKind::Resources, "thread agent-rights").with_source(error))
}

fn may_get<K: Object>(client: &Client, key: &ObjectKey, stop: &StopToken) {
    let deadline = Clock::system().after(PATIENCE);
    let version = ResourceVersion::any();
    let answer = client.getter::<K>().get(key, &version, deadline, stop);
    if let Err(error) = answer
        && error.kind() == ErrorKind::Forbidden
    {
        let (kind, namespace) = (K::resource().plural().to_owned(), key.namespace());
        tell(&format!(
            "warning: the agent may not get {kind}, not those of namespace {namespace} at least. \
             Beyond --watches-max objects are got: those without a right by name will be Forbidden"
        ));
    }
}
