//! The pod-status cache: what the container runtime last said of each pod, and blocking waits for
//! something newer.
//!
//! One side inspects pods and sets what it found: a [`Relist`] loop over a [`Runtime`], or code of
//! the user's own. The other side reads: pod workers wait until something newer is known than what
//! they acted on ([`PodStatusCache`]).
//!
//! What holds: a wait ends as soon as something new enough is known, at its deadline, at its stop,
//! or when the cache is closed. None of these is missed, whatever comes at the same moment. A
//! waiter is answered once, with the entry at the moment of the news. It does not matter if the pod
//! changes or goes before the waiter runs. A place in the queue never outlives its wait. Not
//! promised: that a waiter sees every status that was set in between.
//!
//! # The rule
//!
//! Times are [`Timestamp`]s of the monotonic clock. What counts as new enough is the kubelet's rule
//! in both of its halves; they differ at equal times:
//!
//! | who | is answered if | with |
//! |---|---|---|
//! | asks for a pod with an entry | the time of its last set or observation, or the global time, is **strictly after** the time asked for | the entry |
//! | asks for a pod without an entry | there is a global time and it is **strictly after** the time asked for, [`Timestamp::ZERO`] included | a status with only the UID |
//! | waits for a pod that is set or observed | the time told is **not before** the time asked for | the entry at that moment, whatever its own times |
//! | waits when the global time is set | the time told is **not before** the time asked for | the entry at that moment, or a status with only the UID |
//! | waits for a pod that is deleted | never by that alone | |
//!
//! So the same question about the same set has two answers: who asks with the very time of a set
//! just before it is answered by it, who asks just after it waits for the next. A worker that asks
//! with the end of its own last sync ([`Timestamp::now`]) does not meet the difference: the
//! clock moved on meanwhile.
//!
//! # Threads and locks
//!
//! The cache has no thread. It has one lock (rank 40), held for a map access, or for a walk over
//! the waiters when the global time is set. Nothing is called, dropped or waited for under it. Each
//! pod that is waited for has a condition variable of its own beside that lock: a set wakes those
//! it answers, and nobody who waits for another pod. The relist loop has one thread, `relist`.

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
mod timestamp;

pub use cache::PodStatusCache;
pub use reading::{Reading, StatusError};
pub use relist::{Relist, RelistOptions, RelistReport, Runtime, RuntimeError, RuntimePod};
pub use status::{ContainerState, ContainerStatus, PodStatus, SandboxState, SandboxStatus, Status};
pub use table::Waiting;
pub use timestamp::Timestamp;
