//! Which Secrets and ConfigMaps a pod names, in the kubelet's order (PV-1..PV-8). Pure.

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvFromSource, EnvVar, EphemeralContainer, LocalObjectReference, Pod,
    PodSpec, Secret, Volume,
};

use crate::object::Object;

/// A kind whose objects pods name.
pub trait ReferencedByPods: Object {
    /// Calls `visitor` with the name of each object of this kind that `pod` references, as often as
    /// the pod names it. The objects are in the pod's namespace.
    ///
    /// The visitor returns whether to go on. Returns whether the walk was completed.
    fn visit_pod<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool;
}

impl ReferencedByPods for Secret {
    fn visit_pod<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool {
        visit_pod_secret_names(pod, visitor)
    }
}

impl ReferencedByPods for ConfigMap {
    fn visit_pod<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool {
        visit_pod_config_map_names(pod, visitor)
    }
}

/// Which containers of a pod a walk visits: a set of the three kinds (PV-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerKinds(u8);

impl ContainerKinds {
    /// `spec.initContainers`.
    pub const INIT: Self = Self(1);
    /// `spec.containers`.
    pub const REGULAR: Self = Self(2);
    /// `spec.ephemeralContainers`.
    pub const EPHEMERAL: Self = Self(4);
    /// All three.
    pub const ALL: Self = Self(7);

    /// The kinds of either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every kind of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What the three kinds of container have in common.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AnyContainer<'a> {
    /// Which list of the pod it stands in.
    pub kind: ContainerKinds,
    /// Its name.
    pub name: &'a str,
    /// Its single environment variables.
    pub env: &'a [EnvVar],
    /// The sources of whole sets of environment variables.
    pub env_from: &'a [EnvFromSource],
}

impl<'a> AnyContainer<'a> {
    fn of(kind: ContainerKinds, container: &'a Container) -> Self {
        Self {
            kind,
            name: &container.name,
            env: container.env.as_deref().unwrap_or_default(),
            env_from: container.env_from.as_deref().unwrap_or_default(),
        }
    }

    fn of_ephemeral(container: &'a EphemeralContainer) -> Self {
        Self {
            kind: ContainerKinds::EPHEMERAL,
            name: &container.name,
            env: container.env.as_deref().unwrap_or_default(),
            env_from: container.env_from.as_deref().unwrap_or_default(),
        }
    }
}

/// Visits a pod's containers of the given kinds: init, regular, ephemeral, each in its own order (PV-7).
///
/// The visitor returns whether to go on. Returns whether the walk was completed.
#[doc(alias = "VisitContainers")]
pub fn visit_containers<'a>(
    spec: &'a PodSpec,
    kinds: ContainerKinds,
    visitor: &mut dyn FnMut(AnyContainer<'a>) -> bool,
) -> bool {
    let init = spec.init_containers.as_deref().unwrap_or_default().iter();
    let ephemeral = spec
        .ephemeral_containers
        .as_deref()
        .unwrap_or_default()
        .iter();
    init.map(|container| AnyContainer::of(ContainerKinds::INIT, container))
        .chain(
            spec.containers
                .iter()
                .map(|container| AnyContainer::of(ContainerKinds::REGULAR, container)),
        )
        .chain(ephemeral.map(AnyContainer::of_ephemeral))
        .filter(|container| kinds.contains(container.kind))
        .all(visitor)
}

/// Visits the names of the Secrets a pod references, as often as it names them (PV-1, PV-2, PV-4).
///
/// The visitor returns whether to go on; empty names are skipped. Returns whether the walk was completed. As in the
/// original, a `false` during the containers ends only that part: volumes are still visited (PV-6).
///
/// Not visited (PV-5): what is reached through claims, storage classes or service accounts, and
/// `azureFile.secretNamespace`, since the pod's namespace is assumed.
#[doc(alias = "VisitPodSecretNames")]
pub fn visit_pod_secret_names<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let mut visit = |name: &'a str| name.is_empty() || visitor(name);
    let pull_secrets = spec.image_pull_secrets.as_deref().unwrap_or_default();
    if !pull_secrets.iter().all(|reference| visit(&reference.name)) {
        return false;
    }
    visit_containers(spec, ContainerKinds::ALL, &mut |container| {
        secrets_of_container(container, &mut visit)
    });
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    volumes
        .iter()
        .all(|volume| secrets_of_volume(volume, &mut visit))
}

/// Visits the names of the ConfigMaps a pod references, as often as it names them (PV-1, PV-3, PV-4).
///
/// The visitor and the result are as with [`visit_pod_secret_names`].
#[doc(alias = "VisitPodConfigmapNames")]
pub fn visit_pod_config_map_names<'a>(
    pod: &'a Pod,
    visitor: &mut dyn FnMut(&'a str) -> bool,
) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let mut visit = |name: &'a str| name.is_empty() || visitor(name);
    visit_containers(spec, ContainerKinds::ALL, &mut |container| {
        config_maps_of_container(container, &mut visit)
    });
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    volumes
        .iter()
        .all(|volume| config_maps_of_volume(volume, &mut visit))
}

fn secrets_of_container<'a>(
    container: AnyContainer<'a>,
    visit: &mut dyn FnMut(&'a str) -> bool,
) -> bool {
    let from = container.env_from.iter();
    let sets = from.filter_map(|source| Some(&*source.secret_ref.as_ref()?.name));
    let singles = container.env.iter().filter_map(|variable| {
        let source = variable.value_from.as_ref()?;
        Some(&*source.secret_key_ref.as_ref()?.name)
    });
    sets.chain(singles).all(visit)
}

fn config_maps_of_container<'a>(
    container: AnyContainer<'a>,
    visit: &mut dyn FnMut(&'a str) -> bool,
) -> bool {
    let from = container.env_from.iter();
    let sets = from.filter_map(|source| Some(&*source.config_map_ref.as_ref()?.name));
    let singles = container.env.iter().filter_map(|variable| {
        let source = variable.value_from.as_ref()?;
        Some(&*source.config_map_key_ref.as_ref()?.name)
    });
    sets.chain(singles).all(visit)
}

/// A volume has one source. With several set, which the API refuses, the first in this order counts (PV-8).
fn secrets_of_volume<'a>(volume: &'a Volume, visit: &mut dyn FnMut(&'a str) -> bool) -> bool {
    let name = if let Some(source) = &volume.azure_file {
        Some(&*source.secret_name)
    } else if let Some(source) = &volume.cephfs {
        local(source.secret_ref.as_ref())
    } else if let Some(source) = &volume.cinder {
        local(source.secret_ref.as_ref())
    } else if let Some(source) = &volume.flex_volume {
        local(source.secret_ref.as_ref())
    } else if let Some(source) = &volume.projected {
        let sources = source.sources.as_deref().unwrap_or_default();
        return sources
            .iter()
            .filter_map(|projection| Some(&*projection.secret.as_ref()?.name))
            .all(visit);
    } else if let Some(source) = &volume.rbd {
        local(source.secret_ref.as_ref())
    } else if let Some(source) = &volume.secret {
        source.secret_name.as_deref()
    } else if let Some(source) = &volume.scale_io {
        Some(&*source.secret_ref.name)
    } else if let Some(source) = &volume.iscsi {
        local(source.secret_ref.as_ref())
    } else if let Some(source) = &volume.storageos {
        local(source.secret_ref.as_ref())
    } else if let Some(source) = &volume.csi {
        local(source.node_publish_secret_ref.as_ref())
    } else {
        None
    };
    name.is_none_or(visit)
}

fn config_maps_of_volume<'a>(volume: &'a Volume, visit: &mut dyn FnMut(&'a str) -> bool) -> bool {
    if let Some(source) = &volume.projected {
        let sources = source.sources.as_deref().unwrap_or_default();
        return sources
            .iter()
            .filter_map(|projection| Some(&*projection.config_map.as_ref()?.name))
            .all(visit);
    }
    let source = volume.config_map.as_ref();
    source.is_none_or(|source| visit(&source.name))
}

fn local(reference: Option<&LocalObjectReference>) -> Option<&str> {
    reference.map(|reference| &*reference.name)
}
