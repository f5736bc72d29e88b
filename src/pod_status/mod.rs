//! The pod-status cache: what the container runtime last said of each pod, and blocking waits for something newer.

#[cfg(all(test, shuttle))]
mod schedules;

#[cfg(test)]
mod tests;

mod cache;
mod options;
mod reading;
mod relist;
mod status;
mod table;
mod timeout;
mod timestamp;

pub use cache::{PodStatusCache, Waiting};
pub use options::PodStatusOptions;
pub use reading::{Reading, StatusError};
pub use relist::{Relist, RelistOptions, RelistReport, Runtime, RuntimeError, RuntimePod};
pub use status::{ContainerState, ContainerStatus, PodStatus, SandboxState, SandboxStatus, Status};
pub use timestamp::Timestamp;
