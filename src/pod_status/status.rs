//! The types that the cache keeps for a pod: the kubelet's status, and the trait for a program's
//! own type.

use std::time::SystemTime;

/// The type that the cache keeps for a pod: [`PodStatus`], or a type of the program's own.
///
/// The cache itself reads none of its fields.
///
/// # Examples
///
/// ```
/// use kubecache::clock::Clock;
/// use kubecache::pod_status::{PodStatusCache, CachedStatus};
///
/// struct Lean {
///     uid: String,
///     running: u32,
/// }
///
/// impl CachedStatus for Lean {
///     fn with_id(uid: &str) -> Self {
///         Self { uid: uid.to_owned(), running: 0 }
///     }
/// }
///
/// let cache = PodStatusCache::<Lean>::new(Clock::system());
/// let unknown = cache.get("uid-1");
/// assert_eq!(unknown.status().map(|status| (&*status.uid, status.running)), Some(("uid-1", 0)));
/// ```
pub trait CachedStatus: Send + Sync + 'static {
    /// Makes the status of a pod that the runtime does not know: only its UID is set.
    ///
    /// The reader's thread calls it, without a lock.
    fn with_id(uid: &str) -> Self;

    /// Copies from the last good status what this new one should keep, before the loop stores it.
    /// The default copies nothing.
    ///
    /// The [relist loop](super::Relist) calls it on its own thread, without a lock.
    fn keep_from(&mut self, _before: &Self) {}
}

/// The container runtime's last word on a pod, as the kubelet keeps it.
///
/// This is the runtime's view, not the API's `PodStatus`. Its wall-clock times come from the
/// runtime and are only for display: [`Timestamp`](super::Timestamp)s decide which status is newer.
///
/// # Examples
///
/// ```
/// use kubecache::pod_status::{ContainerState, ContainerStatus, PodStatus};
///
/// let mut container = ContainerStatus::default();
/// container.name = "web".into();
/// container.state = ContainerState::Running;
///
/// let mut pod = PodStatus::default();
/// pod.id = "uid-1".into();
/// pod.container_statuses.push(container);
/// assert_eq!(pod.find_container("web").map(|found| found.state), Some(ContainerState::Running));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "kubecontainer.PodStatus")]
pub struct PodStatus {
    /// The pod's UID.
    #[doc(alias = "ID")]
    pub id: String,
    /// The pod's name.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// All addresses of the pod, the primary one first.
    #[doc(alias = "IPs")]
    pub ips: Vec<String>,
    /// Every container that the runtime has, including earlier attempts.
    pub container_statuses: Vec<ContainerStatus>,
    /// The containers of the newest sandbox.
    pub active_container_statuses: Vec<ContainerStatus>,
    /// The pod's sandboxes, newest first.
    pub sandbox_statuses: Vec<SandboxStatus>,
    /// When the runtime recorded this, by its wall clock; `None` if it does not say.
    #[doc(alias = "TimeStamp")]
    pub timestamp: Option<SystemTime>,
}

impl PodStatus {
    /// Returns the first container of that name in `container_statuses`.
    #[doc(alias = "FindContainerStatusByName")]
    pub fn find_container(&self, name: &str) -> Option<&ContainerStatus> {
        self.container_statuses.iter().find(|one| one.name == name)
    }

    /// Whether a sandbox of the pod is ready.
    pub fn has_ready_sandbox(&self) -> bool {
        let mut sandboxes = self.sandbox_statuses.iter();
        sandboxes.any(|sandbox| sandbox.state == SandboxState::Ready)
    }
}

impl CachedStatus for PodStatus {
    fn with_id(uid: &str) -> Self {
        Self {
            id: uid.to_owned(),
            ..Self::default()
        }
    }

    /// A status without addresses keeps the earlier ones while no sandbox is ready. The network of
    /// an ending pod may be gone before its last status is read, but the API server must still
    /// learn the pod's addresses.
    fn keep_from(&mut self, before: &Self) {
        if self.ips.is_empty() && !self.has_ready_sandbox() {
            self.ips.clone_from(&before.ips);
        }
    }
}

/// One container of a pod, as the runtime has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerStatus {
    /// The runtime's ID of this container.
    #[doc(alias = "ID")]
    pub id: String,
    /// The container's name in the pod's spec.
    pub name: String,
    /// The container's state.
    pub state: ContainerState,
    /// When it was created, by the runtime's wall clock.
    pub created_at: Option<SystemTime>,
    /// When it was started, by the runtime's wall clock.
    pub started_at: Option<SystemTime>,
    /// When it exited, by the runtime's wall clock.
    pub finished_at: Option<SystemTime>,
    /// Its exit code, once it has exited.
    pub exit_code: Option<i32>,
    /// The image it was created from, as the pod's spec names it.
    pub image: String,
    /// The runtime's ID of that image.
    pub image_id: String,
    /// How often the container was restarted.
    pub restart_count: u32,
    /// Why it is in its state, in one word such as `OOMKilled`.
    pub reason: String,
    /// Why it is in its state, for people.
    pub message: String,
}

/// The state of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContainerState {
    /// Created but not started.
    Created,
    /// Running.
    Running,
    /// Ended, by itself or by force.
    Exited,
    /// The runtime cannot tell.
    #[default]
    Unknown,
}

/// One sandbox of a pod, which its containers share, above all its network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxStatus {
    /// The runtime's ID of this sandbox.
    pub id: String,
    /// Whether it is ready for containers.
    pub state: SandboxState,
    /// When it was created, by the runtime's wall clock.
    pub created_at: Option<SystemTime>,
    /// The number of this attempt at a sandbox for the pod, from 0.
    pub attempt: u32,
    /// All addresses of the sandbox, the primary one first.
    pub ips: Vec<String>,
}

/// Whether a sandbox is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SandboxState {
    /// Ready for containers.
    Ready,
    /// Not ready: not yet, or not any more.
    #[default]
    NotReady,
}
