//! The relist loop's port to a container runtime, which the program implements.

use std::collections::BTreeMap;
use std::error::Error as StdError;

use crate::pod_status::{CachedStatus, ContainerState, SandboxState};
use crate::worker::StopToken;

/// The error of a [`Runtime`]; `?` converts any error into it.
pub type RuntimeError = Box<dyn StdError + Send + Sync>;

/// A container runtime, implemented by the program for the relist loop: it lists its pods and
/// inspects single ones.
///
/// The loop's own thread makes all calls, one at a time, without a lock of this crate. They may
/// block. The token is raised when the loop must end; if the call then gives up, the loop ends at
/// once. The loop drops results that come later.
///
/// A call that panics counts as failed: the loop reports the panic like an error, and keeps using
/// the same value.
///
/// # Examples
///
/// ```
/// use kubecache::pod_status::{ContainerState, PodStatus, Runtime, RuntimeError, RuntimePod};
/// use kubecache::worker::StopToken;
///
/// struct OnePod;
///
/// impl Runtime for OnePod {
///     type Status = PodStatus;
///
///     fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
///         let pod = RuntimePod::new("uid-1", "shop", "web");
///         Ok(vec![pod.container("c-1", ContainerState::Running)])
///     }
///
///     fn inspect_pod(
///         &mut self,
///         pod: &RuntimePod,
///         _stop: &StopToken,
///     ) -> Result<PodStatus, RuntimeError> {
///         let mut status = PodStatus::default();
///         status.id = pod.uid().to_owned();
///         Ok(status)
///     }
/// }
/// # let mut runtime = OnePod;
/// # let pods = runtime.list_pods(&StopToken::never()).unwrap();
/// # assert_eq!(runtime.inspect_pod(&pods[0], &StopToken::never()).unwrap().id, "uid-1");
/// ```
pub trait Runtime: Send + 'static {
    /// The type that an inspection returns and the cache holds.
    type Status: CachedStatus;

    /// Lists every existing pod with the states of its containers and sandboxes, even if all its
    /// containers have exited. A pod that is missing here is gone: its entry leaves the cache.
    ///
    /// The loop calls it once per period, so it should be cheap.
    ///
    /// # Errors
    ///
    /// The runtime's own. That relist then changes nothing.
    #[doc(alias = "GetPods")]
    fn list_pods(&mut self, stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError>;

    /// Lists single pods as [`list_pods`](Self::list_pods) does, for a relist on
    /// [request](super::RelistRequests). The default lists all: the loop ignores pods that it did
    /// not ask for. Replace it if the runtime finds single pods at less cost.
    ///
    /// A pod that is missing here keeps its entry until the next list of all pods.
    ///
    /// # Errors
    ///
    /// The runtime's own. These requests are then lost, and the next list of all pods serves their
    /// pods.
    #[doc(alias = "GetPod")]
    #[expect(unused_variables, reason = "the default lists all pods")]
    fn find_pods(
        &mut self,
        uids: &[String],
        stop: &StopToken,
    ) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.list_pods(stop)
    }

    /// Inspects one pod of the last list. The loop calls it for a pod that changed since its last
    /// good inspection, and at each relist after a failure. A program can
    /// [ask](super::RelistRequests::request_reinspect) for it, too.
    ///
    /// # Errors
    ///
    /// The runtime's own. The cache then holds the error in place of a status, and the pod is
    /// inspected again.
    #[doc(alias = "GetPodStatus")]
    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        stop: &StopToken,
    ) -> Result<Self::Status, RuntimeError>;
}

impl<R: Runtime + ?Sized> Runtime for Box<R> {
    type Status = R::Status;

    fn list_pods(&mut self, stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        (**self).list_pods(stop)
    }

    fn find_pods(
        &mut self,
        uids: &[String],
        stop: &StopToken,
    ) -> Result<Vec<RuntimePod>, RuntimeError> {
        (**self).find_pods(uids, stop)
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        stop: &StopToken,
    ) -> Result<Self::Status, RuntimeError> {
        (**self).inspect_pod(pod, stop)
    }
}

/// A pod in a runtime's list: its names, and the states by which the loop detects a change.
///
/// A change is a container or sandbox that appears, disappears, or has another state under the same
/// id. So a runtime must give a restarted container a new id, as CRI runtimes do: only the id shows
/// an end and a start between two lists.
///
/// The loop merges pods of one list with the same uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimePod {
    uid: String,
    namespace: String,
    name: String,
    containers: BTreeMap<String, ContainerState>,
    sandboxes: BTreeMap<String, SandboxState>,
}

impl RuntimePod {
    /// Creates a pod without containers and sandboxes.
    pub fn new(
        uid: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self {
            uid: uid.into(),
            namespace: namespace.into(),
            name: name.into(),
            containers: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
        }
    }

    /// Adds a container by its id.
    #[must_use]
    pub fn container(mut self, id: impl Into<String>, state: ContainerState) -> Self {
        self.containers.insert(id.into(), state);
        self
    }

    /// Adds a sandbox by its id.
    #[must_use]
    pub fn sandbox(mut self, id: impl Into<String>, state: SandboxState) -> Self {
        self.sandboxes.insert(id.into(), state);
        self
    }

    /// The pod's uid: its key in the cache.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The pod's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The pod's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its containers by id.
    pub fn containers(&self) -> &BTreeMap<String, ContainerState> {
        &self.containers
    }

    /// Its sandboxes by id.
    pub fn sandboxes(&self) -> &BTreeMap<String, SandboxState> {
        &self.sandboxes
    }

    /// Whether both have the same containers and sandboxes in the same states.
    pub(super) fn looks_like(&self, other: &Self) -> bool {
        self.containers == other.containers && self.sandboxes == other.sandboxes
    }

    /// Takes the containers and sandboxes of another entry of the same pod.
    pub(super) fn take_in(&mut self, other: Self) {
        self.containers.extend(other.containers);
        self.sandboxes.extend(other.sandboxes);
    }
}
