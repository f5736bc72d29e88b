//! Which Secrets and ConfigMaps a pod names, in the kubelet's order. Pure.

use std::fmt;

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvFromSource, EnvVar, EnvVarSource, EphemeralContainer,
    LocalObjectReference, Pod, PodSpec, Secret, Volume, VolumeProjection,
};

use crate::object::Object;

/// A kind of object that pods reference by name, such as `Secret`.
pub trait ReferencedByPods: Object {
    /// Calls `visitor` with the name of each object of this kind that `pod` references, as often as
    /// the pod names it. The objects are in the pod's namespace, or in none if the kind has none.
    ///
    /// The visitor returns whether to go on; empty names are skipped. Returns whether the walk was
    /// completed. As in the kubelet, a `false` during the containers ends only that part: volumes
    /// are still visited.
    #[doc(alias = "VisitPodSecretNames")]
    #[doc(alias = "VisitPodConfigmapNames")]
    fn visit_pod<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool;
}

/// Which containers of a pod a walk visits: a set of the three kinds.
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

/// The fields that the three kinds of container have in common.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AnyContainer<'a> {
    /// The list of the pod that it is in.
    pub kind: ContainerKinds,
    /// Its name.
    pub name: &'a str,
    /// Its single environment variables.
    pub env: &'a [EnvVar],
    /// The sources of whole sets of environment variables.
    pub env_from: &'a [EnvFromSource],
}

/// Visits a pod's containers of the given kinds: init, regular, ephemeral, each in its own order.
///
/// The visitor returns whether to go on. Returns whether the walk was completed.
#[doc(alias = "VisitContainers")]
pub fn visit_containers<'a>(
    spec: &'a PodSpec,
    kinds: ContainerKinds,
    visitor: &mut dyn FnMut(AnyContainer<'a>) -> bool,
) -> bool {
    let of = |kind| {
        move |one: &'a Container| AnyContainer {
            kind,
            name: &one.name,
            env: one.env.as_deref().unwrap_or_default(),
            env_from: one.env_from.as_deref().unwrap_or_default(),
        }
    };
    let ephemeral = |one: &'a EphemeralContainer| AnyContainer {
        kind: ContainerKinds::EPHEMERAL,
        name: &one.name,
        env: one.env.as_deref().unwrap_or_default(),
        env_from: one.env_from.as_deref().unwrap_or_default(),
    };
    let init = spec.init_containers.iter().flatten();
    init.map(of(ContainerKinds::INIT))
        .chain(spec.containers.iter().map(of(ContainerKinds::REGULAR)))
        .chain(spec.ephemeral_containers.iter().flatten().map(ephemeral))
        .filter(|container| kinds.contains(container.kind))
        .all(visitor)
}

/// The names of pull secrets, of the environments of containers, and of volumes.
///
/// The visitor is not told of Secrets that claims, storage classes or service accounts lead to. Nor
/// is it told of `azureFile.secretNamespace`, since every name counts in the pod's namespace.
impl ReferencedByPods for Secret {
    fn visit_pod<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool {
        let Some(spec) = &pod.spec else { return true };
        let mut visit = |name: &'a str| name.is_empty() || visitor(name);
        let pull_secrets = spec.image_pull_secrets.as_deref().unwrap_or_default();
        if !pull_secrets.iter().all(|reference| visit(&reference.name)) {
            return false;
        }
        visit_containers(spec, ContainerKinds::ALL, &mut |container| {
            let of_set = |set: &'a EnvFromSource| Some(&*set.secret_ref.as_ref()?.name);
            let of_value = |value: &'a EnvVarSource| Some(&*value.secret_key_ref.as_ref()?.name);
            names_of_container(container, of_set, of_value).all(&mut visit)
        });
        let mut volumes = spec.volumes.iter().flatten();
        volumes.all(|volume| secrets_of_volume(volume, &mut visit))
    }
}

/// The names of the environments of containers, and of volumes.
impl ReferencedByPods for ConfigMap {
    fn visit_pod<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool {
        let Some(spec) = &pod.spec else { return true };
        let mut visit = |name: &'a str| name.is_empty() || visitor(name);
        visit_containers(spec, ContainerKinds::ALL, &mut |container| {
            let of_set = |set: &'a EnvFromSource| Some(&*set.config_map_ref.as_ref()?.name);
            let of_value =
                |value: &'a EnvVarSource| Some(&*value.config_map_key_ref.as_ref()?.name);
            names_of_container(container, of_set, of_value).all(&mut visit)
        });
        let mut volumes = spec.volumes.iter().flatten();
        volumes.all(|volume| config_maps_of_volume(volume, &mut visit))
    }
}

fn names_of_container<'a>(
    container: AnyContainer<'a>,
    of_set: impl FnMut(&'a EnvFromSource) -> Option<&'a str>,
    of_value: impl Fn(&'a EnvVarSource) -> Option<&'a str>,
) -> impl Iterator<Item = &'a str> {
    let variables = container.env.iter();
    let values = variables.flat_map(|variable| &variable.value_from);
    let sets = container.env_from.iter().filter_map(of_set);
    sets.chain(values.filter_map(of_value))
}

/// A volume has one source. With several set, which the API refuses, the first in this order
/// counts.
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
        let sources = source.sources.iter().flatten();
        let mut names = sources.filter_map(|one| Some(&*one.secret.as_ref()?.name));
        return names.all(visit);
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
        let sources = source.sources.iter().flatten();
        let mut names = sources.filter_map(|one| Some(&*one.config_map.as_ref()?.name));
        return names.all(visit);
    }
    let source = volume.config_map.as_ref();
    source.is_none_or(|source| visit(&source.name))
}

fn local(reference: Option<&LocalObjectReference>) -> Option<&str> {
    reference.map(|reference| &*reference.name)
}

/// A source in a projected volume of a pod that
/// [`register_pod`](super::ObjectManager::register_pod) does not register: a trust bundle, or a
/// certificate that the kubelet requests for the pod.
///
/// A manager of `ClusterTrustBundle` can keep a bundle by name, and an informer all of a signer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnkeptSource<'a> {
    /// The volume.
    pub volume: &'a str,
    /// `ClusterTrustBundle` or `PodCertificate`.
    pub kind: &'static str,
    /// The name of the trust bundle; empty if the signer and labels select it.
    pub name: &'a str,
    /// The signer; empty for a trust bundle by name.
    pub signer: &'a str,
}

/// Writes `ClusterTrustBundle example.org:roots:1 in volume "trust"`.
impl fmt::Display for UnkeptSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            write!(f, "{} of signer {}", self.kind, self.signer)?;
        } else {
            write!(f, "{} {}", self.kind, self.name)?;
        }
        write!(f, " in volume {:?}", self.volume)
    }
}

/// Returns the sources of a pod's projected volumes that
/// [`register_pod`](super::ObjectManager::register_pod) passes over, in the pod's order.
///
/// A pod certificate is found if the `k8s-openapi` feature in use is `v1_34` or later.
///
/// A manager keeps the keys that a pod names, and not the pod. So
/// [`inspect`](super::ObjectManager::inspect) has none of these sources. To show them beside it,
/// call this for each pod in the store of the informer that the managers follow. The owner in
/// `inspect` is [`Owner::of`](super::Owner::of) the pod.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kubecache::manager::{Owner, unkept_sources};
///
/// let pod: Pod = serde_json::from_value(serde_json::json!({
///     "metadata": {"namespace": "shop", "name": "web-0", "uid": "uid-1"},
///     "spec": {
///         "containers": [],
///         "volumes": [{"name": "trust", "projected": {"sources": [
///             {"clusterTrustBundle": {"name": "example.org:roots:1", "path": "ca.pem"}},
///         ]}}],
///     },
/// }))?;
/// let sources: Vec<_> = unkept_sources(&pod).iter().map(ToString::to_string).collect();
/// assert_eq!(sources, [r#"ClusterTrustBundle example.org:roots:1 in volume "trust""#]);
/// assert_eq!(Owner::of(&pod).to_string(), "Pod shop/web-0");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn unkept_sources(pod: &Pod) -> Vec<UnkeptSource<'_>> {
    let specs = pod.spec.iter();
    let volumes = specs.flat_map(|spec| spec.volumes.iter().flatten());
    let projected = volumes.filter_map(|volume| Some((&*volume.name, volume.projected.as_ref()?)));
    let sources = projected.flat_map(|(volume, projected)| {
        let sources = projected.sources.iter().flatten();
        sources.flat_map(move |source| {
            let bundle = source.cluster_trust_bundle.as_ref();
            let bundle = bundle.map(|bundle| UnkeptSource {
                volume,
                kind: "ClusterTrustBundle",
                name: bundle.name.as_deref().unwrap_or_default(),
                signer: bundle.signer_name.as_deref().unwrap_or_default(),
            });
            bundle.into_iter().chain(pod_certificate(volume, source))
        })
    });
    sources.collect()
}

k8s_openapi::k8s_if_ge_1_34! {
    fn pod_certificate<'a>(
        volume: &'a str,
        source: &'a VolumeProjection,
    ) -> Option<UnkeptSource<'a>> {
        let signer = &source.pod_certificate.as_ref()?.signer_name;
        let kind = "PodCertificate";
        Some(UnkeptSource { volume, kind, name: "", signer })
    }
}

k8s_openapi::k8s_if_le_1_33! {
    fn pod_certificate<'a>(_: &'a str, _: &'a VolumeProjection) -> Option<UnkeptSource<'a>> {
        None
    }
}
