//! The pod-status cache: the [container runtime][kubernetes]'s last word on each [pod][kubernetes],
//! and blocking waits for something newer.
//!
//! ```
//! use std::sync::Arc;
//! # use std::thread;
//!
//! use kubecache::clock::Clock;
//! use kubecache::pod_status::{PodStatus, PodStatusCache, Timestamp};
//!
//! let clock = Clock::system();
//! let cache = PodStatusCache::new(clock.clone());
//! let written = cache.clone(); // of the same cache
//! # thread::spawn(move || {
//! // The thread that inspects pods:
//! let asked = Timestamp::now(&clock);
//! written.set("uid-1", Some(Arc::new(PodStatus::default())), None, asked);
//! # });
//! // The pod's worker, on its own thread, blocks until there is a status that it has not seen:
//! let reading = cache.get_newer_than("uid-1", Timestamp::ZERO)?;
//! println!("{:?} {:?}", reading.status(), reading.error());
//! # Ok::<(), kubecache::Error>(())
//! ```
//!
//! One side inspects pods and sets their status: a [`Relist`] loop over a [`Runtime`], or the
//! program's own code. The other side reads: pod workers wait for something newer than they last
//! acted on ([`PodStatusCache`]).
//!
//! A wait ends when a status is new enough, at its [deadline][threads], at its stop, or when the
//! cache is closed. No wait misses any of these, even if several happen at the same moment. The
//! cache answers a waiter once, with the entry at that moment, even if the pod changes before the
//! waiter runs. A waiter may miss statuses set in between.
//!
//! # When a status is new enough
//!
//! Times are [`Timestamp`]s of the monotonic clock. The rule is the [kubelet][kubernetes]'s. It has
//! two halves, which differ for equal times.
//!
//! The cache answers a read at once if one of these times is **strictly after** the time that the
//! caller asks for:
//!
//! - For a pod with an entry: the time of its last set, of its last observation, or the global
//!   time. The answer is the entry.
//! - For a pod without an entry: the global time, if it was ever set. The answer is a status with
//!   only the UID.
//!
//! Otherwise the caller waits. The cache answers a waiter when a new time is **not before** the
//! time that it asks for:
//!
//! - A set or an observation of its pod answers it with the entry at that moment.
//! - A new global time answers it with the entry at that moment, or with a status with only the
//!   UID.
//! - A deletion alone answers no waiter.
//!
//! So the order matters for a caller that asks with exactly the time of a set. If it asks before
//! the set, the set answers it. If it asks afterwards, it waits for the next one. A worker that
//! asks with the end of its own last sync ([`Timestamp::now`]) never meets this case.
//!
//! # Threads and locks
//!
//! The cache has no thread. It has one lock, held for a map access, or for a walk over the waiters
//! when the global time is set. No code of the program runs under it. Each pod with waiters has its
//! own condition variable, so a set wakes only the waiters that it answers. The [relist loop][pods]
//! has one thread, `relist`.
//!
//! [kubernetes]: crate::manual::glossary#kubernetes
//! [pods]: crate::manual::glossary#pod-status
//! [threads]: crate::manual::glossary#threads-time-and-failures

#[cfg(all(test, shuttle))]
mod schedules;

#[cfg(test)]
mod tests;

mod cache;
mod reading;
pub(crate) mod relist;
mod status;
mod table;
mod timeout;

pub use cache::PodStatusCache;
pub use reading::{PodReading, StatusError, Timestamp};
pub use relist::{
    Relist, RelistOptions, RelistReport, RelistRequests, Runtime, RuntimeError, RuntimePod,
};
pub use status::{
    CachedStatus, ContainerState, ContainerStatus, PodStatus, SandboxState, SandboxStatus,
};
pub use table::PodWaiter;
