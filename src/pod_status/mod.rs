//! The pod-status cache: what the container runtime last said of each pod, and blocking waits for
//! something newer.
//!
//! One side inspects pods and sets what it found: a [`Relist`] loop over a [`Runtime`], or code of
//! the user's own. The other side reads: pod workers wait until something newer is known than what
//! they acted on ([`PodStatusCache`]).
//!
//! A wait ends when a status is new enough, at its deadline, at its stop, or when the cache is
//! closed. No wait misses any of these, whatever happens at the same moment. The cache answers a
//! waiter once, with the entry at that moment, even if the pod changes before the waiter runs. A
//! waiter need not see every status that was set in between.
//!
//! # When a status is new enough
//!
//! Times are [`Timestamp`]s of the monotonic clock. The rule is the kubelet's. It has two halves,
//! which differ for equal times.
//!
//! A read is answered at once if a time is **strictly after** the time that the caller asks for:
//!
//! - For a pod with an entry, that is the time of its last set, the time of its last observation,
//!   or the global time. The answer is the entry.
//! - For a pod without an entry, that is the global time, if it was ever set. The answer is a
//!   status with only the UID.
//!
//! Otherwise the caller waits. A waiter is answered if a new time is **not before** the time that
//! it asks for:
//!
//! - A set or an observation of its pod answers it with the entry at that moment.
//! - A new global time answers it with the entry at that moment, or with a status with only the
//!   UID.
//! - A deletion alone answers nobody.
//!
//! So a caller that asks with exactly the time of a set gets two results. If it asks before the
//! set, the set answers it. If it asks afterwards, it waits for the next one. A worker that asks
//! with the end of its own last sync ([`Timestamp::now`]) never meets this case.
//!
//! # Threads and locks
//!
//! The cache has no thread. It has one lock, held for a map access, or for a walk over the waiters
//! when the global time is set. No code of the program runs under it. Each pod that is waited for
//! has its own condition variable, so a set wakes only the waiters that it answers. The relist loop
//! has one thread, `relist`.

#[cfg(all(test, shuttle))]
mod schedules;

#[cfg(test)]
mod tests;

mod cache;
mod reading;
mod relist;
mod status;
mod table;
mod timeout;

pub use cache::PodStatusCache;
pub use reading::{PodReading, StatusError, Timestamp};
pub use relist::{Relist, RelistOptions, RelistReport, Runtime, RuntimeError, RuntimePod};
pub use status::{
    CachedStatus, ContainerState, ContainerStatus, PodStatus, SandboxState, SandboxStatus,
};
pub use table::PodWaiter;
