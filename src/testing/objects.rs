//! Builders of objects for tests of a cache: short to write, complete enough to be real.
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use kubecache::testing::objects;
//!
//! let secret = objects::secret("shop", "db", "7", &[("password", "made-up")]);
//! let pod = objects::pod("shop", "web-0", "node-1", &["db"], &["settings"]);
//! assert_eq!(secret.metadata.resource_version.as_deref(), Some("7"));
//! assert_eq!(pod.spec.unwrap().volumes.unwrap().len(), 2);
//! # }
//! ```

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, Container, Node, Pod, PodSpec, Secret, SecretVolumeSource,
    Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Makes metadata with a uid from namespace and name, so that equal names mean the same object.
pub fn metadata(namespace: &str, name: &str, resource_version: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{namespace}-{name}")),
        resource_version: (!resource_version.is_empty()).then(|| resource_version.to_owned()),
        ..ObjectMeta::default()
    }
}

/// Makes an opaque Secret with these values.
pub fn secret(
    namespace: &str,
    name: &str,
    resource_version: &str,
    data: &[(&str, &str)],
) -> Secret {
    let values = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
    Secret {
        metadata: metadata(namespace, name, resource_version),
        data: Some(values.collect()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// Makes a ConfigMap with these values.
pub fn config_map(
    namespace: &str,
    name: &str,
    resource_version: &str,
    data: &[(&str, &str)],
) -> ConfigMap {
    let values = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ConfigMap {
        metadata: metadata(namespace, name, resource_version),
        data: Some(values.collect()),
        ..ConfigMap::default()
    }
}

/// Makes a pod bound to `node` that mounts each Secret and ConfigMap as a volume of the same name.
pub fn pod(namespace: &str, name: &str, node: &str, secrets: &[&str], config_maps: &[&str]) -> Pod {
    let secrets = secrets.iter().map(|secret| Volume {
        name: format!("secret-{secret}"),
        secret: Some(SecretVolumeSource {
            secret_name: Some((*secret).to_owned()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    });
    let config_maps = config_maps.iter().map(|config_map| Volume {
        name: format!("config-map-{config_map}"),
        config_map: Some(ConfigMapVolumeSource {
            name: (*config_map).to_owned(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    });
    Pod {
        metadata: metadata(namespace, name, ""),
        spec: Some(PodSpec {
            node_name: Some(node.to_owned()),
            containers: vec![Container {
                name: "main".to_owned(),
                ..Container::default()
            }],
            volumes: Some(secrets.chain(config_maps).collect()),
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

/// Makes a node of that name.
pub fn node(name: &str, resource_version: &str) -> Node {
    Node {
        metadata: metadata("", name, resource_version),
        ..Node::default()
    }
}
