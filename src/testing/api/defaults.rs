//! The fields that the server fills in when an object is written: its own metadata, and fields of
//! the common kinds that clients expect.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::resources::{ApiResource, CRD_GROUP, CRDS};
use super::storage::metadata_mut;
use super::validation::owner_text;

/// Fills in the fields on which clients rely. Present fields stay.
pub(super) fn fill_in(resource: &ApiResource, object: &mut Value) {
    if !resource.traits().is_built_in {
        return;
    }
    match (resource.group(), resource.plural()) {
        ("", "secrets") => {
            take_string_data(object);
            drop_empty(object, &["data"]);
            set_default(object, "/type", json!("Opaque"));
        }
        ("", "configmaps") => {
            fill_in_texts(object.get_mut("data"));
            drop_empty(object, &["data", "binaryData"]);
        }
        ("", "namespaces") => {
            let name = super::storage::metadata_text(object, "name").to_owned();
            set_default(
                object,
                "/metadata/labels/kubernetes.io~1metadata.name",
                json!(name),
            );
            set_default(object, "/spec/finalizers", json!(["kubernetes"]));
            set_default(object, "/status/phase", json!("Active"));
        }
        ("", "pods") => {
            set_default(object, "/status/phase", json!("Pending"));
            set_default(object, "/status/qosClass", json!("BestEffort"));
            fill_in_pod(object.pointer_mut("/spec"));
        }
        ("", "services") => {
            set_default(object, "/spec/type", json!("ClusterIP"));
            set_default(object, "/spec/sessionAffinity", json!("None"));
            set_default(object, "/spec/internalTrafficPolicy", json!("Cluster"));
            set_default(object, "/status/loadBalancer", json!({}));
            fill_in_ports(object.pointer_mut("/spec/ports"));
        }
        (CRD_GROUP, CRDS) => {
            fill_in_names(object);
            establish(object);
        }
        ("policy", "poddisruptionbudgets") => {
            for count in ["current", "desired"] {
                set_default(object, &format!("/status/{count}Healthy"), json!(0));
            }
            set_default(object, "/status/disruptionsAllowed", json!(0));
            set_default(object, "/status/expectedPods", json!(0));
        }
        (_, workloads) => fill_in_workload(workloads, object),
    }
    if resource.traits().has_status {
        set_default(object, "/status", json!({}));
    }
}

/// Fills in the fields of a kind with pods.
fn fill_in_workload(plural: &str, object: &mut Value) {
    match plural {
        "deployments" => {
            set_default(object, "/spec/replicas", json!(1));
            set_default(object, "/spec/revisionHistoryLimit", json!(10));
            set_default(object, "/spec/progressDeadlineSeconds", json!(600));
            let rolling = json!({
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
            });
            set_default(object, "/spec/strategy", rolling);
            fill_in_pod(object.pointer_mut("/spec/template/spec"));
        }
        "replicasets" => {
            set_default(object, "/spec/replicas", json!(1));
            fill_in_pod(object.pointer_mut("/spec/template/spec"));
        }
        "statefulsets" => {
            set_default(object, "/spec/replicas", json!(1));
            set_default(object, "/spec/revisionHistoryLimit", json!(10));
            set_default(object, "/spec/podManagementPolicy", json!("OrderedReady"));
            let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
            set_default(object, "/spec/updateStrategy", rolling);
            fill_in_pod(object.pointer_mut("/spec/template/spec"));
        }
        "daemonsets" => {
            set_default(object, "/spec/revisionHistoryLimit", json!(10));
            let rolling = json!({
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            });
            set_default(object, "/spec/updateStrategy", rolling);
            fill_in_pod(object.pointer_mut("/spec/template/spec"));
        }
        "jobs" => {
            for field in ["/spec/completions", "/spec/parallelism"] {
                set_default(object, field, json!(1));
            }
            set_default(object, "/spec/backoffLimit", json!(6));
            set_default(object, "/spec/suspend", json!(false));
            fill_in_pod(object.pointer_mut("/spec/template/spec"));
        }
        _ => {}
    }
}

/// Sets a field by its path, unless it is present. Makes objects on the way.
fn set_default(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    let mut names = path.split('/').skip(1).peekable();
    while let Some(name) = names.next() {
        let name = name.replace("~1", "/");
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let Some(fields) = at.as_object_mut() else {
            return;
        };
        let is_last = names.peek().is_none();
        let field = fields.entry(name).or_insert(Value::Null);
        if is_last && field.is_null() {
            *field = value;
            return;
        }
        at = field;
    }
}

/// The server keeps `stringData` as `data`.
fn take_string_data(secret: &mut Value) {
    let texts = secret
        .as_object_mut()
        .and_then(|fields| fields.remove("stringData"));
    let Some(Value::Object(texts)) = texts else {
        return;
    };
    set_default(secret, "/data", json!({}));
    let data = secret.get_mut("data").and_then(Value::as_object_mut);
    if let Some(data) = data {
        data.extend(texts.into_iter().map(|(key, text)| {
            let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
            (key, Value::from(encoded))
        }));
    }
}

/// A null among texts is an empty text, as Go decodes it.
fn fill_in_texts(texts: Option<&mut Value>) {
    let texts = texts.and_then(Value::as_object_mut);
    for text in texts.into_iter().flat_map(|texts| texts.values_mut()) {
        if text.is_null() {
            *text = json!("");
        }
    }
}

/// Removes fields that are null or have nothing in them, which the server does not write.
fn drop_empty(object: &mut Value, names: &[&str]) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for name in names {
        let is_empty = match fields.get(*name) {
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(value) => value.is_null(),
            None => false,
        };
        if is_empty {
            fields.remove(*name);
        }
    }
}

fn fill_in_pod(spec: Option<&mut Value>) {
    let Some(spec) = spec else {
        return;
    };
    for (path, value) in [
        ("/restartPolicy", json!("Always")),
        ("/dnsPolicy", json!("ClusterFirst")),
        ("/terminationGracePeriodSeconds", json!(30)),
        ("/schedulerName", json!("default-scheduler")),
        ("/securityContext", json!({})),
    ] {
        set_default(spec, path, value);
    }
    for kind in ["containers", "initContainers"] {
        let containers = spec.get_mut(kind).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let image = container
                .get("image")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let policy = if image.ends_with(":latest") || !image.contains(':') {
                "Always"
            } else {
                "IfNotPresent"
            };
            for (path, value) in [
                ("/imagePullPolicy", json!(policy)),
                ("/resources", json!({})),
                ("/terminationMessagePath", json!("/dev/termination-log")),
                ("/terminationMessagePolicy", json!("File")),
            ] {
                set_default(container, path, value);
            }
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten() {
                set_default(port, "/protocol", json!("TCP"));
            }
        }
    }
}

fn fill_in_ports(ports: Option<&mut Value>) {
    for port in ports.and_then(Value::as_array_mut).into_iter().flatten() {
        set_default(port, "/protocol", json!("TCP"));
        let number = port.get("port").cloned().unwrap_or(Value::Null);
        set_default(port, "/targetPort", number);
    }
}

/// Fills in the names of a definition that follow from its kind.
fn fill_in_names(definition: &mut Value) {
    let kind = definition.pointer("/spec/names/kind");
    let kind = kind.and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return;
    }
    let singular = json!(kind.to_ascii_lowercase());
    set_default(definition, "/spec/names/singular", singular);
    let list_kind = json!(format!("{kind}List"));
    set_default(definition, "/spec/names/listKind", list_kind);
}

/// Marks a definition as accepted and established at once.
fn establish(definition: &mut Value) {
    let names = definition
        .pointer("/spec/names")
        .cloned()
        .unwrap_or(Value::Null);
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    let stored = versions
        .into_iter()
        .flatten()
        .filter(|version| version.get("storage").and_then(Value::as_bool) == Some(true));
    let stored: Vec<_> = stored
        .filter_map(|version| version.get("name").cloned())
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| {
        let status = "True";
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    };
    let conditions = [
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition(
            "Established",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
    ];
    if let Some(fields) = definition.as_object_mut() {
        let status = json!({
            "acceptedNames": names, "storedVersions": stored, "conditions": conditions,
        });
        fields.insert("status".to_owned(), status);
    }
}

/// A uid that no other object of the server has.
pub(super) fn uid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

/// The maximum length of the part of a name from `generateName`.
const PREFIX_MAX: usize = 58;

/// A name that begins with `prefix`, cut to leave space for the random letters.
pub(super) fn generated_name(prefix: &str, number: u64) -> String {
    // A name with other letters is refused, whatever its length.
    let (prefix, _cut) = prefix.split_at_checked(PREFIX_MAX).unwrap_or((prefix, ""));
    format!("{prefix}{}", name_suffix(number))
}

/// The random letters behind `generateName`.
fn name_suffix(number: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // A multiplier that spreads neighbours, so that names do not look like a count.
    let mut rest = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let letters = (0..5).map(|_| {
        let at = usize::try_from(rest.checked_rem(27).unwrap_or_default()).unwrap_or_default();
        rest = rest.checked_div(27).unwrap_or_default();
        LETTERS.get(at).copied().map_or('b', char::from)
    });
    letters.collect()
}

/// Removes fields that only the server writes, and fields that it does not write.
pub(super) fn drop_server_fields(object: &mut Value) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.remove("selfLink");
        fill_in_texts(metadata.get_mut("annotations"));
        fill_in_texts(metadata.get_mut("labels"));
        let owners = metadata.get_mut("ownerReferences");
        if let Some(owners) = owners.and_then(Value::as_array_mut) {
            // An owner that is named twice counts once.
            let mut seen = HashSet::new();
            owners.retain(|owner| seen.insert(owner_text(owner)));
        }
    }
    if let Some(metadata) = object.get_mut("metadata") {
        let names = ["annotations", "finalizers", "labels", "ownerReferences"];
        drop_empty(metadata, &names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::api::resources::KindRegistry;

    #[test]
    fn what_is_there_stays_and_the_rest_is_filled_in() {
        let registry = KindRegistry::built_in();
        let deployments = registry.find("apps", "v1", "deployments").unwrap();
        let mut deployment = json!({"spec": {
            "replicas": 0, "template": {"spec": {"containers": [{"image": "a:1"}]}},
        }});
        fill_in(deployments, &mut deployment);
        let at = |path: &str| deployment.pointer(path).cloned().unwrap_or_default();
        assert_eq!(at("/spec/replicas"), json!(0));
        assert_eq!(at("/spec/strategy/type"), json!("RollingUpdate"));
        let container = "/spec/template/spec/containers/0/imagePullPolicy";
        assert_eq!(at(container), json!("IfNotPresent"));
    }

    #[test]
    fn string_data_becomes_data() {
        let registry = KindRegistry::built_in();
        let secrets = registry.find("", "v1", "secrets").unwrap();
        let mut secret = json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}});
        fill_in(secrets, &mut secret);
        let expected = json!({"data": {"a": "Yg==", "c": "ZA=="}, "type": "Opaque"});
        assert_eq!(secret, expected);
    }

    #[test]
    fn generated_names_and_uids_differ() {
        let names: std::collections::BTreeSet<_> = (0..10_000).map(name_suffix).collect();
        assert!(names.len() > 9_900, "{}", names.len());
        assert_ne!(uid(1), uid(2));
    }
}
