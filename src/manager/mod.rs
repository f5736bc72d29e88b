//! Secrets and ConfigMaps of the registered pods, kept by one watch per object.

mod pod_references;

pub use pod_references::{
    AnyContainer, ContainerKinds, visit_containers, visit_pod_config_map_names,
    visit_pod_secret_names,
};

#[cfg(test)]
mod tests;
