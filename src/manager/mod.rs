//! Secrets and ConfigMaps of the registered pods, kept by one watch per object.

mod answer;
mod answers;
mod cached;
mod ceiling;
mod changes;
mod checker;
mod housekeeper;
mod item;
mod kinds;
mod launch;
mod object_manager;
mod options;
mod pod_references;
mod references;
mod registry;
mod report;
mod slot;
mod watch_store;
mod works;
mod writer;

pub use cached::Cached;
pub use changes::{Changed, Changes};
pub use kinds::ManagedKind;
pub use object_manager::{ConfigMapManager, ObjectManager, SecretManager};
pub use options::WatchOptions;
pub use pod_references::{
    AnyContainer, ContainerKinds, visit_containers, visit_pod_config_map_names,
    visit_pod_secret_names,
};
pub use report::{ObjectReport, ObjectState, PodReport};

#[cfg(test)]
mod tests;
