//! Asks the server, once at the start, for the right that `--watches-max` adds.

use std::time::Duration;

use kubecache::clock::Clock;
use kubecache::http::{Client, Request};
use kubecache::worker::{StopToken, Worker};
use kubecache::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::tell::tell;

/// A server that is away says nothing of rights: an object without them is `Forbidden` later.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks on a thread of its own, which the drop of the worker ends. Warns where the server denies.
pub(crate) fn check(client: &Client) -> Result<Worker, Error> {
    let client = client.clone();
    let asks = Worker::spawn("agent-rights", move |stop| {
        for resource in ["secrets", "configmaps"] {
            match may_get(&client, resource, stop) {
                Ok(true) => {}
                Ok(false) => tell(&format!(
                    "warning: the server says that the agent may not get {resource} of all \
                     namespaces. Beyond --watches-max objects are got: those without a right by \
                     name will be Forbidden"
                )),
                Err(error) => log::debug!("asking whether the agent may get {resource}: {error}"),
            }
        }
    });
    asks.map_err(|error| {
        Error::new(
            ErrorKind::Resources,
            "starting the thread that asks for rights",
        )
        .with_source(error)
    })
}

fn may_get(client: &Client, resource: &str, stop: &StopToken) -> Result<bool, Error> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"resource": resource, "verb": "get"}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let request = Request::new("POST", path).json(&review)?.stop(stop);
    let answer = client.send(&request, Clock::system().after(PATIENCE))?;
    let answer: Value = answer.json()?;
    let allowed = answer.pointer("/status/allowed");
    Ok(allowed.and_then(Value::as_bool) != Some(false))
}
