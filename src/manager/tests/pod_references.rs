//! The pod visitors against the API types themselves: `TestVisitContainers`, `TestPodSecrets`,
//! `TestPodConfigmaps`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec, Secret, Volume};

use super::super::pod_references::{ContainerKinds, ReferencedByPods, visit_containers};
use super::reflect::{StringField, everything, fields_of};

fn pod(spec: &str) -> Pod {
    Pod {
        spec: Some(serde_json::from_str(spec).unwrap()),
        ..Pod::default()
    }
}

fn secrets(pod: &Pod) -> Vec<&str> {
    let mut names = Vec::new();
    assert!(Secret::visit_pod(pod, &mut |name| {
        names.push(name);
        true
    }));
    names
}

fn config_maps(pod: &Pod) -> Vec<&str> {
    let mut names = Vec::new();
    assert!(ConfigMap::visit_pod(pod, &mut |name| {
        names.push(name);
        true
    }));
    names
}

/// Every string field of a pod's spec, and those that the visitors reported.
struct Survey {
    fields: BTreeSet<StringField>,
    secrets: BTreeSet<String>,
    config_maps: BTreeSet<String>,
}

fn survey() -> Survey {
    let mut survey = Survey {
        fields: BTreeSet::new(),
        secrets: BTreeSet::new(),
        config_maps: BTreeSet::new(),
    };
    let sources = fields_of::<Volume>();
    assert!(sources.len() > 25, "the type tells its fields: {sources:?}");
    for source in sources {
        let (spec, fields) = everything::<PodSpec>(source);
        let pod = Pod {
            spec: Some(spec),
            ..Pod::default()
        };
        survey.fields.extend(fields);
        survey
            .secrets
            .extend(secrets(&pod).into_iter().map(str::to_owned));
        survey
            .config_maps
            .extend(config_maps(&pod).into_iter().map(str::to_owned));
    }
    survey
}

/// The paths of the fields that look like a reference: by their own name, or by that of the struct
/// they stand in.
fn looks_like(survey: &Survey, word: &str) -> BTreeSet<String> {
    let fields = survey.fields.iter();
    fields
        .filter(|field| {
            field.path.to_lowercase().contains(word) || field.of.to_lowercase().contains(word)
        })
        .map(|field| field.path.clone())
        .collect()
}

fn paths(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|path| (*path).to_owned()).collect()
}

/// PV-2, PV-5; `TestPodSecrets`: when the API grows a field that looks like a secret reference,
/// this fails until the field is visited or excluded here by name.
#[test]
fn every_field_that_looks_like_a_secret_is_visited_or_excluded() {
    let survey = survey();
    let visited = paths(&[
        "imagePullSecrets[].name",
        "initContainers[].envFrom[].secretRef.name",
        "initContainers[].env[].valueFrom.secretKeyRef.name",
        "containers[].envFrom[].secretRef.name",
        "containers[].env[].valueFrom.secretKeyRef.name",
        "ephemeralContainers[].envFrom[].secretRef.name",
        "ephemeralContainers[].env[].valueFrom.secretKeyRef.name",
        "volumes[].azureFile.secretName",
        "volumes[].cephfs.secretRef.name",
        "volumes[].cinder.secretRef.name",
        "volumes[].flexVolume.secretRef.name",
        "volumes[].projected.sources[].secret.name",
        "volumes[].rbd.secretRef.name",
        "volumes[].secret.secretName",
        "volumes[].scaleIO.secretRef.name",
        "volumes[].iscsi.secretRef.name",
        "volumes[].storageos.secretRef.name",
        "volumes[].csi.nodePublishSecretRef.name",
    ]);
    assert_eq!(survey.secrets, visited);
    let excluded = paths(&[
        // A file on the node.
        "volumes[].cephfs.secretFile",
        // Keys and paths inside an object that is visited by its name.
        "initContainers[].env[].valueFrom.secretKeyRef.key",
        "containers[].env[].valueFrom.secretKeyRef.key",
        "ephemeralContainers[].env[].valueFrom.secretKeyRef.key",
        "volumes[].projected.sources[].secret.items[].key",
        "volumes[].projected.sources[].secret.items[].path",
        "volumes[].secret.items[].key",
        "volumes[].secret.items[].path",
    ]);
    let looking = looks_like(&survey, "secret");
    let both: BTreeSet<_> = visited.union(&excluded).cloned().collect();
    assert_eq!(looking, both);
}

/// PV-3, PV-5; `TestPodConfigmaps`.
#[test]
fn every_field_that_looks_like_a_config_map_is_visited_or_excluded() {
    let survey = survey();
    let visited = paths(&[
        "initContainers[].envFrom[].configMapRef.name",
        "initContainers[].env[].valueFrom.configMapKeyRef.name",
        "containers[].envFrom[].configMapRef.name",
        "containers[].env[].valueFrom.configMapKeyRef.name",
        "ephemeralContainers[].envFrom[].configMapRef.name",
        "ephemeralContainers[].env[].valueFrom.configMapKeyRef.name",
        "volumes[].configMap.name",
        "volumes[].projected.sources[].configMap.name",
    ]);
    assert_eq!(survey.config_maps, visited);
    let excluded = paths(&[
        "initContainers[].env[].valueFrom.configMapKeyRef.key",
        "containers[].env[].valueFrom.configMapKeyRef.key",
        "ephemeralContainers[].env[].valueFrom.configMapKeyRef.key",
        "volumes[].configMap.items[].key",
        "volumes[].configMap.items[].path",
        "volumes[].projected.sources[].configMap.items[].key",
        "volumes[].projected.sources[].configMap.items[].path",
    ]);
    let looking = looks_like(&survey, "configmap");
    let both: BTreeSet<_> = visited.union(&excluded).cloned().collect();
    assert_eq!(looking, both);
}

/// A pod that names objects in every order that matters.
const ORDER: &str = r#"{
    "imagePullSecrets": [{"name": "s-pull-1"}, {"name": ""}, {"name": "s-pull-2"}],
    "volumes": [
        {"name": "a", "secret": {"secretName": "s-vol"}},
        {"name": "b", "projected": {"sources": [
            {"configMap": {"name": "c-proj-1"}}, {"secret": {"name": "s-proj-1"}},
            {"secret": {"name": "s-proj-2"}}, {"configMap": {"name": "c-proj-2"}}]}},
        {"name": "c", "configMap": {"name": "c-vol"}},
        {"name": "d", "emptyDir": {}}],
    "ephemeralContainers": [{"name": "e", "envFrom": [{"secretRef": {"name": "s-eph"}}]}],
    "containers": [{"name": "m",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef":
                    {"name": "s-env", "key": "k", "optional": true}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c-env", "key": "k"}}},
                {"name": "C", "value": "plain"}],
        "envFrom": [{"configMapRef": {"name": "c-from", "optional": true}},
                    {"secretRef": {"name": "s-from"}},
                    {"secretRef": {"name": "s-from"}}]}],
    "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s-init"}},
                                               {"configMapRef": {"name": "c-init"}}]}]
}"#;

/// PV-1, PV-2, PV-3, PV-4.
#[test]
fn names_come_in_order_as_often_as_they_occur_optional_ones_included() {
    let pod = pod(ORDER);
    let expected = [
        "s-pull-1", "s-pull-2", "s-init", "s-from", "s-from", "s-env", "s-eph", "s-vol",
        "s-proj-1", "s-proj-2",
    ];
    assert_eq!(secrets(&pod), expected);
    let expected = ["c-init", "c-from", "c-env", "c-proj-1", "c-proj-2", "c-vol"];
    assert_eq!(config_maps(&pod), expected);
    assert_eq!(secrets(&Pod::default()), Vec::<&str>::new());
}

/// Walks until `last` was reported; returns what the walk said and what it reported.
fn until<'a>(pod: &'a Pod, last: &str) -> (bool, Vec<&'a str>) {
    let mut names = Vec::new();
    let completed = Secret::visit_pod(pod, &mut |name| {
        names.push(name);
        name != last
    });
    (completed, names)
}

/// PV-6: a stop during the containers ends only that walk, and the whole can still be completed.
#[test]
fn a_stop_among_the_containers_does_not_spare_the_volumes() {
    let pod = pod(ORDER);
    assert_eq!(until(&pod, "s-pull-1"), (false, vec!["s-pull-1"]));
    let (completed, names) = until(&pod, "s-init");
    assert!(completed);
    assert_eq!(
        names,
        [
            "s-pull-1", "s-pull-2", "s-init", "s-vol", "s-proj-1", "s-proj-2"
        ]
    );
    let (completed, names) = until(&pod, "s-proj-1");
    assert!(!completed);
    assert_eq!(names.last(), Some(&"s-proj-1"));
}

/// PV-7; `TestVisitContainers`.
#[test]
fn the_container_walk_follows_its_mask_and_stops_when_told() {
    let pod = pod(r#"{
        "containers": [{"name": "c1"}, {"name": "c2"}],
        "initContainers": [{"name": "i1"}, {"name": "i2"}],
        "ephemeralContainers": [{"name": "e1"}, {"name": "e2"}]
    }"#);
    let spec = pod.spec.unwrap();
    let (init, regular) = (ContainerKinds::INIT, ContainerKinds::REGULAR);
    let ephemeral = ContainerKinds::EPHEMERAL;
    let rows: [(ContainerKinds, &str, &[&str], bool); 7] = [
        (init, "", &["i1", "i2"], true),
        (regular, "", &["c1", "c2"], true),
        (ephemeral, "", &["e1", "e2"], true),
        (init.or(ephemeral), "", &["i1", "i2", "e1", "e2"], true),
        (
            ContainerKinds::ALL,
            "",
            &["i1", "i2", "c1", "c2", "e1", "e2"],
            true,
        ),
        (ContainerKinds::ALL, "c1", &["i1", "i2", "c1"], false),
        (
            ContainerKinds::ALL,
            "e2",
            &["i1", "i2", "c1", "c2", "e1", "e2"],
            false,
        ),
    ];
    for (kinds, last, expected, completed) in rows {
        let mut names = Vec::new();
        let result = visit_containers(&spec, kinds, &mut |container| {
            names.push(container.name);
            container.name != last
        });
        assert_eq!(
            (names.as_slice(), result),
            (expected, completed),
            "{kinds:?}"
        );
    }
}

/// PV-8: presence decides, in PV-2's order; a source without a reference hides those behind it.
#[test]
fn of_several_sources_in_one_volume_the_first_counts() {
    let two = pod(r#"{"containers": [], "volumes": [{"name": "v",
        "secret": {"secretName": "behind"}, "azureFile": {"secretName": "first", "shareName": "s"},
        "configMap": {"name": "c"}}]}"#);
    assert_eq!(secrets(&two), ["first"]);
    let hidden = pod(r#"{"containers": [], "volumes": [{"name": "v",
        "secret": {"secretName": "behind"}, "rbd": {"image": "i", "monitors": []},
        "projected": {"sources": []}, "configMap": {"name": "c"}}]}"#);
    assert_eq!(secrets(&hidden), Vec::<&str>::new());
    assert_eq!(config_maps(&hidden), Vec::<&str>::new());
}
