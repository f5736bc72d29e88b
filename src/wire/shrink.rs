//! Gives back the room that decoding leaves in the lists of a pod.
//!
//! A vector grows by doubling. What it does not use is a sixth of a decoded pod, whose lists have
//! large items. Other objects have few lists.

use std::any::Any;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodSpec, PodStatus, Volume, VolumeProjection,
};

use crate::object::Object;

/// Shrinks the lists of a pod. Does nothing to any other object.
pub(super) fn shrink<K: Object>(object: &mut K) {
    let object: &mut dyn Any = object;
    if let Some(pod) = object.downcast_mut::<Pod>() {
        fit(&mut pod.metadata.owner_references);
        fit(&mut pod.metadata.finalizers);
        pod.spec.iter_mut().for_each(spec);
        pod.status.iter_mut().for_each(status);
    }
}

fn fit<T>(list: &mut Option<Vec<T>>) {
    if let Some(list) = list {
        list.shrink_to_fit();
    }
}

fn spec(spec: &mut PodSpec) {
    spec.containers.shrink_to_fit();
    fit(&mut spec.init_containers);
    fit(&mut spec.volumes);
    fit(&mut spec.tolerations);
    fit(&mut spec.image_pull_secrets);
    let init = spec.init_containers.iter_mut().flatten();
    spec.containers.iter_mut().chain(init).for_each(container);
    spec.volumes.iter_mut().flatten().for_each(volume);
}

fn container(container: &mut Container) {
    fit(&mut container.args);
    fit(&mut container.command);
    fit(&mut container.env);
    fit(&mut container.env_from);
    fit(&mut container.ports);
    fit(&mut container.volume_mounts);
}

fn volume(volume: &mut Volume) {
    if let Some(projected) = &mut volume.projected {
        fit(&mut projected.sources);
        projected.sources.iter_mut().flatten().for_each(projection);
    }
    if let Some(secret) = &mut volume.secret {
        fit(&mut secret.items);
    }
    if let Some(config_map) = &mut volume.config_map {
        fit(&mut config_map.items);
    }
}

fn projection(projection: &mut VolumeProjection) {
    if let Some(secret) = &mut projection.secret {
        fit(&mut secret.items);
    }
    if let Some(config_map) = &mut projection.config_map {
        fit(&mut config_map.items);
    }
    if let Some(downward) = &mut projection.downward_api {
        fit(&mut downward.items);
    }
}

fn status(status: &mut PodStatus) {
    fit(&mut status.conditions);
    fit(&mut status.host_ips);
    fit(&mut status.pod_ips);
    fit(&mut status.container_statuses);
    fit(&mut status.init_container_statuses);
    let init = status.init_container_statuses.iter_mut().flatten();
    let containers = status.container_statuses.iter_mut().flatten();
    containers.chain(init).for_each(container_status);
}

fn container_status(status: &mut ContainerStatus) {
    fit(&mut status.volume_mounts);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::EnvVar;

    use super::*;

    #[test]
    fn the_lists_of_a_pod_have_no_room_left_and_their_items() {
        let mut env = Vec::with_capacity(8);
        env.push(EnvVar::default());
        let mut containers = Vec::with_capacity(4);
        containers.push(Container {
            env: Some(env),
            ..Container::default()
        });
        let mut pod = Pod {
            spec: Some(PodSpec {
                containers,
                ..PodSpec::default()
            }),
            ..Pod::default()
        };
        let before = pod.clone();
        shrink(&mut pod);
        assert_eq!(pod, before);
        let containers = &pod.spec.as_ref().unwrap().containers;
        assert_eq!(containers.capacity(), 1);
        assert_eq!(containers[0].env.as_ref().unwrap().capacity(), 1);
    }
}
