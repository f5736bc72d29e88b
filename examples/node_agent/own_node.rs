//! The node's own object, followed for its time to live: the cluster's word on how long objects may
//! be cached.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kubecache::http::Client;
use kubecache::list_watch::{EventKind, Listed, ObjectEvent};
use kubecache::manager::NodeTtl;
use kubecache::object::{ObjectKey, Scope, StoredObject};
use kubecache::reflector::{Reflector, ReflectorOptions, ReflectorStatus, Replacement, Sink};
use kubecache::{Error, ErrorKind, Metadata};

use crate::tell;
use crate::tell::one_line;

/// Starts to follow the node; `ttl` has what its annotation says.
pub(crate) fn follow(
    client: &Client,
    node_name: &str,
    ttl: NodeTtl,
    options: ReflectorOptions,
) -> Result<Reflector, Error> {
    let sink = NodeSink {
        name: node_name.to_owned(),
        ttl,
        told_of_failure: false,
    };
    let scope = Scope::object(&ObjectKey::new("", node_name));
    Reflector::spawn(
        format!("node {node_name}"),
        client.lister_watcher::<Metadata<Node>>(scope),
        sink,
        options,
    )
}

/// Takes the time to live out of each state of the node.
struct NodeSink {
    name: String,
    ttl: NodeTtl,
    told_of_failure: bool,
}

impl NodeSink {
    fn observe(&self, node: Option<&Metadata<Node>>) {
        let before = self.ttl.get();
        self.ttl.observe(node.map(|node| &node.metadata));
        let now = self.ttl.get();
        if now != before {
            let name = &self.name;
            match now {
                Some(Duration::ZERO) => {
                    log::info!("node {name}: objects are not cached, each read asks for them");
                }
                Some(ttl) => log::info!("node {name}: objects are cached for {ttl:?}"),
                None => log::info!("node {name} gives no time to live: the default applies"),
            }
        }
    }
}

/// The node, unless it is gone or does not decode.
fn present(event: ObjectEvent<Metadata<Node>>) -> Option<Arc<StoredObject<Metadata<Node>>>> {
    match event.object {
        Listed::Object(node) if event.kind != EventKind::Deleted => Some(node),
        Listed::Object(_) | Listed::Undecodable(_) => None,
    }
}

impl Sink<Metadata<Node>> for NodeSink {
    /// The time to live of the listed node, if it was listed.
    type Staging = Option<Arc<StoredObject<Metadata<Node>>>>;

    fn begin(&mut self) -> Self::Staging {
        None
    }

    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<Metadata<Node>>) {
        *staging = present(event);
    }

    fn commit(&mut self, staging: Self::Staging, _of: &Replacement) -> Result<(), Error> {
        self.observe(staging.as_deref().map(|node| &**node));
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<Metadata<Node>>) -> Result<(), Error> {
        self.observe(present(event).as_deref().map(|node| &**node));
        Ok(())
    }

    fn report(&mut self, status: &ReflectorStatus) {
        // A version that expired is the normal end of a watch.
        let failure = status.failures.last();
        let failure = failure.filter(|error| error.kind() != ErrorKind::Expired);
        let was_told = std::mem::replace(&mut self.told_of_failure, failure.is_some());
        if let Some(error) = failure.filter(|_| !was_told) {
            let cached = match self.ttl.get() {
                Some(Duration::ZERO) => "objects stay uncached, as it said last".to_owned(),
                Some(ttl) => format!("objects stay cached for {ttl:?}, as it said last"),
                None => "objects are cached for the default of a minute".to_owned(),
            };
            let (name, error) = (&self.name, one_line(&error.to_string()));
            tell(&format!(
                "warning: node {name} cannot be followed: {error}; {cached}"
            ));
        }
    }
}
