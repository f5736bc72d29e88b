//! The pods bound to the node, as messages out of a reflector of the library.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crossbeam_channel::Sender;
use kubecache::Error;
use kubecache::list_watch::{EventKind, Listed, ObjectEvent};
use kubecache::object::{Object as _, ObjectKey, StoredObject};
use kubecache::reflector::{ReflectorStatus, Replacement, Sink};

use crate::pod::Pod;

/// What the reflector has to say.
#[derive(Debug)]
pub(crate) enum PodNews {
    /// These pods and no others are bound to the node.
    All(Snapshot),
    /// A pod appeared or changed.
    Here(Arc<StoredObject<Pod>>),
    /// A pod is gone.
    Gone(ObjectKey),
    /// How the watch of the pods stands.
    Status(Box<ReflectorStatus>),
}

/// A complete list of pods.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) pods: BTreeMap<ObjectKey, Arc<StoredObject<Pod>>>,
    /// Pods that are there but do not decode: what was known of them goes on.
    pub(crate) undecodable: BTreeSet<ObjectKey>,
}

/// Sends what the reflector tells; never blocks it.
pub(crate) struct PodSink(pub(crate) Sender<PodNews>);

impl PodSink {
    fn send(&self, news: PodNews) {
        // Nobody listens any more when the agent is about to end.
        drop(self.0.send(news));
    }
}

impl Sink<Pod> for PodSink {
    type Staging = Snapshot;

    fn begin(&mut self) -> Snapshot {
        Snapshot::default()
    }

    fn stage(&mut self, staging: &mut Snapshot, event: ObjectEvent<Pod>) {
        match (event.kind, event.object) {
            (EventKind::Deleted, pod) => {
                let key = pod.key();
                staging.pods.remove(&key);
                staging.undecodable.remove(&key);
            }
            (_, Listed::Object(pod)) => {
                staging.pods.insert(pod.key(), pod);
            }
            (_, Listed::Undecodable(pod)) => {
                log::warn!("pod {} does not decode: {}", pod.key, pod.error);
                staging.undecodable.insert(pod.key);
            }
        }
    }

    fn commit(&mut self, staging: Snapshot, _of: &Replacement) -> Result<(), Error> {
        self.send(PodNews::All(staging));
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<Pod>) -> Result<(), Error> {
        match (event.kind, event.object) {
            (EventKind::Deleted, pod) => self.send(PodNews::Gone(pod.key())),
            (_, Listed::Object(pod)) => self.send(PodNews::Here(pod)),
            (_, Listed::Undecodable(pod)) => {
                log::warn!("pod {} does not decode: {}", pod.key, pod.error);
            }
        }
        Ok(())
    }

    fn report(&mut self, status: &ReflectorStatus) {
        self.send(PodNews::Status(Box::new(status.clone())));
    }
}
