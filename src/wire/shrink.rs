//! Frees the spare capacity that decoding leaves in the lists of a pod.
//!
//! A vector grows by doubling. The unused part is a sixth of a decoded pod, whose lists have large
//! items. Other objects have few lists.

use std::any::Any;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus, Volume};

use crate::object::Object;

/// Shrinks these lists of an object.
macro_rules! fit {
    ($object:expr => $($list:ident)*) => {
        $(if let Some(list) = &mut $object.$list {
            list.shrink_to_fit();
        })*
    };
}

/// Shrinks the items of these parts of a volume.
macro_rules! fit_items {
    ($volume:expr => $($part:ident)*) => {
        $(if let Some(part) = &mut $volume.$part {
            fit!(part => items);
        })*
    };
}

/// Shrinks the lists of a pod. Does nothing to any other object.
pub(super) fn shrink<K: Object>(object: &mut K) {
    let object: &mut dyn Any = object;
    if let Some(pod) = object.downcast_mut::<Pod>() {
        fit!(pod.metadata => owner_references finalizers);
        pod.spec.iter_mut().for_each(spec);
        pod.status.iter_mut().for_each(status);
    }
}

fn spec(spec: &mut PodSpec) {
    spec.containers.shrink_to_fit();
    fit!(spec => init_containers volumes tolerations image_pull_secrets);
    let init = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(init) {
        fit!(container => args command env env_from ports volume_mounts);
    }
    spec.volumes.iter_mut().flatten().for_each(volume);
}

fn volume(volume: &mut Volume) {
    fit_items!(volume => secret config_map);
    let Some(projected) = &mut volume.projected else {
        return;
    };
    fit!(projected => sources);
    for source in projected.sources.iter_mut().flatten() {
        fit_items!(source => secret config_map downward_api);
    }
}

fn status(status: &mut PodStatus) {
    fit!(status => conditions host_ips pod_ips container_statuses init_container_statuses);
    let init = status.init_container_statuses.iter_mut().flatten();
    for container in status.container_statuses.iter_mut().flatten().chain(init) {
        fit!(container => volume_mounts);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ConfigMapVolumeSource, Container, EnvVar, KeyToPath, SecretVolumeSource,
    };

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

    #[test]
    fn the_keys_of_a_volume_have_no_room_left() {
        let keys = || {
            let mut keys = Vec::with_capacity(8);
            keys.push(KeyToPath::default());
            Some(keys)
        };
        let mut volume = Volume {
            config_map: Some(ConfigMapVolumeSource {
                items: keys(),
                ..ConfigMapVolumeSource::default()
            }),
            secret: Some(SecretVolumeSource {
                items: keys(),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        };
        super::volume(&mut volume);
        let config_map = volume.config_map.unwrap().items.unwrap();
        let secret = volume.secret.unwrap().items.unwrap();
        assert_eq!((config_map.capacity(), secret.capacity()), (1, 1));
    }
}
