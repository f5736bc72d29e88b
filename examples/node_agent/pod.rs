//! What the agent reads of a pod: who it is, whether it has ended, and which objects it names. The
//! code that decodes all of a pod is nearly 0.4 MB, and a decoded pod takes 23 KB.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1;
use kubecache::object::{Object, ObjectKey, Resource};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use crate::managers::ObjectId;

/// A pod.
#[derive(Default)]
pub(crate) struct Pod {
    name: String,
    namespace: String,
    uid: String,
    version: String,
    phase: String,
    /// Names of Secrets, as often as the pod names them.
    secrets: Vec<String>,
    /// The same of ConfigMaps.
    config_maps: Vec<String>,
    /// Kinds and names of what it needs beside them, and the agent does not keep.
    unkept: Vec<(&'static str, String)>,
}

impl Pod {
    /// Whether it has ended for good, so that it needs its objects no more.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(&*self.phase, "Succeeded" | "Failed")
    }

    /// The objects that it names.
    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        let objects = self.named().filter(|(_, name)| can_exist(name));
        let objects = objects.map(|(kind, name)| ObjectId {
            kind: kind.into(),
            key: ObjectKey::new(&*self.namespace, &**name),
        });
        objects.collect()
    }

    /// Kinds and names of what it names, and no server can have: API servers let pods name it.
    pub(crate) fn impossible(&self) -> impl Iterator<Item = (&'static str, &String)> {
        self.named().filter(|(_, name)| !can_exist(name))
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let secrets = self.secrets.iter().map(|name| ("Secret", name));
        let config_maps = self.config_maps.iter().map(|name| ("ConfigMap", name));
        secrets.chain(config_maps)
    }
}

impl Pod {
    fn needs(&mut self, kind: &'static str, before: &str, name: &str) {
        let name = named(name).map(|name| (kind, format!("{before}{name}")));
        self.unkept.extend(name);
    }

    /// Kinds and names of what it needs, and the agent does not keep.
    pub(crate) fn unkept(&self) -> &[(&'static str, String)] {
        &self.unkept
    }
}

impl Object for Pod {
    fn resource() -> Resource {
        Resource::of::<v1::Pod>()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version_text(&self) -> &str {
        &self.version
    }
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut pod = Self::default();
        let part = &POD;
        Walk {
            part,
            pod: &mut pod,
        }
        .deserialize(from)?;
        Ok(pod)
    }
}

/// A part of a pod that is read.
enum Part {
    /// These members of a map.
    Map(&'static [(&'static str, Part)]),
    /// Each item of a list.
    List(&'static Part),
    /// A text, which goes there.
    Text(fn(&mut Pod, &str)),
}

const POD: Part = Part::Map(&[
    (
        "metadata",
        Part::Map(&[
            (
                "name",
                Part::Text(|pod, text| text.clone_into(&mut pod.name)),
            ),
            (
                "namespace",
                Part::Text(|pod, text| text.clone_into(&mut pod.namespace)),
            ),
            ("uid", Part::Text(|pod, text| text.clone_into(&mut pod.uid))),
            (
                "resourceVersion",
                Part::Text(|pod, text| text.clone_into(&mut pod.version)),
            ),
        ]),
    ),
    (
        "spec",
        Part::Map(&[
            ("imagePullSecrets", Part::List(&SECRET)),
            ("initContainers", Part::List(&CONTAINER)),
            ("containers", Part::List(&CONTAINER)),
            ("ephemeralContainers", Part::List(&CONTAINER)),
            ("volumes", Part::List(&VOLUME)),
        ]),
    ),
    (
        "status",
        Part::Map(&[(
            "phase",
            Part::Text(|pod, text| text.clone_into(&mut pod.phase)),
        )]),
    ),
]);

const CONTAINER: Part = Part::Map(&[
    (
        "env",
        Part::List(&Part::Map(&[(
            "valueFrom",
            Part::Map(&[("secretKeyRef", SECRET), ("configMapKeyRef", CONFIG_MAP)]),
        )])),
    ),
    (
        "envFrom",
        Part::List(&Part::Map(&[
            ("secretRef", SECRET),
            ("configMapRef", CONFIG_MAP),
        ])),
    ),
]);

/// A volume has one source: the server takes no other.
const VOLUME: Part = Part::Map(&[
    ("azureFile", Part::Map(&[("secretName", SECRET_NAME)])),
    ("cephfs", WITH_SECRET),
    ("cinder", WITH_SECRET),
    ("configMap", CONFIG_MAP),
    ("csi", Part::Map(&[("nodePublishSecretRef", SECRET)])),
    ("flexVolume", WITH_SECRET),
    ("iscsi", WITH_SECRET),
    (
        "projected",
        Part::Map(&[(
            "sources",
            Part::List(&Part::Map(&[
                ("secret", SECRET),
                ("configMap", CONFIG_MAP),
                ("clusterTrustBundle", TRUST_BUNDLE),
                ("podCertificate", CERTIFICATE),
            ])),
        )]),
    ),
    ("rbd", WITH_SECRET),
    ("scaleIO", WITH_SECRET),
    ("secret", Part::Map(&[("secretName", SECRET_NAME)])),
    ("storageos", WITH_SECRET),
]);

const WITH_SECRET: Part = Part::Map(&[("secretRef", SECRET)]);
const SECRET: Part = Part::Map(&[("name", SECRET_NAME)]);
const SECRET_NAME: Part = Part::Text(|pod, name| pod.secrets.extend(named(name)));
const CONFIG_MAP: Part = Part::Map(&[(
    "name",
    Part::Text(|pod, name| pod.config_maps.extend(named(name))),
)]);

/// By name, or by signer and labels.
const TRUST_BUNDLE: Part = Part::Map(&[
    (
        "name",
        Part::Text(|pod, name| pod.needs("ClusterTrustBundle", "", name)),
    ),
    (
        "signerName",
        Part::Text(|pod, signer| pod.needs("ClusterTrustBundle", OF_SIGNER, signer)),
    ),
]);
const CERTIFICATE: Part = Part::Map(&[(
    "signerName",
    Part::Text(|pod, signer| pod.needs("PodCertificate", OF_SIGNER, signer)),
)]);
const OF_SIGNER: &str = "signer=";

/// The longest name of an object, as Kubernetes limits it.
const NAME_BYTES_MAX: usize = 253;

/// Whether an object can have the name: it stands in a path.
fn can_exist(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

/// An empty name names nothing.
fn named(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

/// Reads a part into the pod. Null is nothing.
struct Walk<'a> {
    part: &'static Part,
    pod: &'a mut Pod,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.part {
            Part::Map(_) => "a map",
            Part::List(_) => "a sequence",
            Part::Text(_) => "a string",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Part::Map(members) = self.part else {
            return Err(de::Error::invalid_type(de::Unexpected::Map, &self));
        };
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let pod = &mut *self.pod;
            match members.iter().find(|(name, _)| *name == key) {
                Some((_, part)) => map.next_value_seed(Walk { part, pod })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Part::List(part) = self.part else {
            return Err(de::Error::invalid_type(de::Unexpected::Seq, &self));
        };
        let pod = self.pod;
        while list.next_element_seed(Walk { part, pod })?.is_some() {}
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        let Part::Text(take) = self.part else {
            return Err(de::Error::invalid_type(de::Unexpected::Str(text), &self));
        };
        take(self.pod, text);
        Ok(())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../src/manager/tests/reflect.rs"]
mod reflect;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Secret, Volume};
    use kubecache::manager::{ReferencedByPods, unkept_sources};
    use serde_json::{Value, json};

    use super::reflect::{everything, fields_of};
    use super::*;

    fn names(objects: &[String]) -> BTreeSet<&str> {
        objects.iter().map(String::as_str).collect()
    }

    /// What the library finds in all of the pod.
    fn found<K: ReferencedByPods>(pod: &v1::Pod) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        K::visit_pod(pod, &mut |name| {
            found.insert(name);
            true
        });
        found
    }

    /// Reads the pod in both ways, and returns how many objects it names.
    fn compare(pod: &Value) -> usize {
        let whole: v1::Pod = serde_json::from_value(pod.clone()).unwrap();
        let read: Pod = serde_json::from_str(&pod.to_string()).unwrap();
        assert_eq!(names(&read.secrets), found::<Secret>(&whole), "{pod}");
        assert_eq!(
            names(&read.config_maps),
            found::<ConfigMap>(&whole),
            "{pod}"
        );
        assert_eq!(read.key(), whole.key());
        assert_eq!(
            (read.uid(), read.resource_version_text()),
            (whole.uid(), whole.resource_version_text())
        );
        let unkept = unkept_sources(&whole).into_iter();
        let unkept = unkept.flat_map(|source| {
            let of_signer = format!("{OF_SIGNER}{}", source.signer);
            let both = [source.name.to_owned(), of_signer].into_iter();
            both.filter(|name| !name.is_empty() && name != OF_SIGNER)
                .map(move |name| (source.kind, name))
        });
        let read_unkept: BTreeSet<_> = read.unkept.iter().cloned().collect();
        assert_eq!(read_unkept, unkept.collect(), "{pod}");
        let status = whole.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        assert_eq!(read.phase, phase.unwrap_or_default());
        let both = [&read.secrets, &read.config_maps].into_iter();
        both.map(|objects| names(objects).len()).sum()
    }

    /// When the API grows another reference, the library visits it, and this fails.
    #[test]
    fn a_pod_with_every_field_names_what_the_library_finds_in_it() {
        let named = fields_of::<Volume>().iter().map(|source| {
            let (spec, _) = everything::<PodSpec>(source);
            let metadata =
                json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"});
            compare(&json!({"metadata": metadata, "spec": spec, "status": {"phase": "Failed"}}))
        });
        // Pull secrets and containers name as many in each, volumes at most two more.
        assert_eq!(named.max(), Some(7 + 6 + 2));
    }

    #[test]
    fn recorded_pods_name_what_the_library_finds_in_them() {
        let story = include_str!("../../fixtures/recordings/node-1.jsonl");
        let lines = story.lines().filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let events = lines.map(|line| line["line"]["object"].clone());
        let pods: Vec<_> = events.filter(|object| object["kind"] == "Pod").collect();
        let named: usize = pods.iter().map(compare).sum();
        assert!(pods.len() > 20 && named > 50, "{} {named}", pods.len());
    }

    #[test]
    fn what_is_not_there_is_nothing_and_what_is_of_another_type_is_an_error() {
        let none = r#"{"metadata": null, "spec": {"volumes": null, "containers": [{"env": []}]}}"#;
        let pod: Pod = serde_json::from_str(none).unwrap();
        assert_eq!((&*pod.name, pod.objects().len()), ("", 0));
        for (text, why) in [
            (r#"{"spec": 7}"#, "integer `7`, expected a map"),
            (r#"{"spec": "no"}"#, "string \"no\", expected a map"),
            (r#"{"spec": {"volumes": {}}}"#, "map, expected a sequence"),
            (
                r#"{"status": {"phase": []}}"#,
                "sequence, expected a string",
            ),
        ] {
            let error = serde_json::from_str::<Pod>(text).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
            assert!(serde_json::from_str::<v1::Pod>(text).is_err(), "{text}");
        }
    }
}
