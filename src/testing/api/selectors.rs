//! The objects of a list or a watch: namespace, labels, and the fields that the server knows.

use std::collections::BTreeMap;

use serde_json::Value;

use super::refusal::Refusal;
use super::resources::ApiResource;
use super::storage::StoredVersion;
use crate::object::{LabelMatcher, LabelSelector};
use crate::testing::recording::Target;

/// The objects of a kind that one request selects.
#[derive(Clone, Debug)]
pub(super) struct ObjectFilter {
    /// `None` is all namespaces.
    namespace: Option<String>,
    labels: LabelMatcher,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    field: String,
    value: String,
    negated: bool,
}

impl ObjectFilter {
    /// Reads the selectors of a request.
    pub(super) fn of(
        resource: &ApiResource,
        namespace: Option<&str>,
        target: &Target,
    ) -> Result<Self, Refusal> {
        let labels = LabelSelector::new(target.value("labelSelector").unwrap_or_default());
        let labels = LabelMatcher::parse(&labels).map_err(|error| {
            Refusal::bad_request(format!("unable to parse requirement: {error}"))
        })?;
        let fields = target.value("fieldSelector").unwrap_or_default();
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            labels,
            fields: parse_fields(resource, fields)?,
        })
    }

    pub(super) fn matches(&self, resource: &ApiResource, object: &StoredVersion) -> bool {
        let namespace = self.namespace.as_deref();
        namespace.is_none_or(|namespace| object.namespace() == namespace)
            && self.fields.iter().all(|term| {
                let found = value_of(resource, object, &term.field);
                (found == term.value) != term.negated
            })
            && (self.labels.is_everything() || self.labels.matches(Some(&labels_of(&object.value))))
    }

    /// The only object that can match, if the fields name it.
    pub(super) fn name(&self) -> Option<&str> {
        self.only("metadata.name")
    }

    /// The only namespace in which objects can match, if path or fields name it.
    fn namespace(&self) -> Option<&str> {
        let namespace = self.namespace.as_deref();
        namespace.or_else(|| self.only("metadata.namespace"))
    }

    fn only(&self, field: &str) -> Option<&str> {
        let mut terms = self.fields.iter();
        let term = terms.find(|term| term.field == field && !term.negated)?;
        Some(&term.value)
    }

    /// Whether the object is among those that the server reads for the request.
    pub(super) fn is_in_range(&self, object: &StoredVersion) -> bool {
        let namespace = self.namespace();
        namespace.is_none_or(|namespace| object.namespace() == namespace)
    }

    /// Whether the server reads one object instead of a range.
    pub(super) fn is_of_one(&self, resource: &ApiResource) -> bool {
        let is_placed = self.namespace().is_some() || !resource.is_namespaced();
        is_placed && self.name().is_some()
    }
}

fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    labels
        .filter_map(|(label, value)| Some((label.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn parse_fields(resource: &ApiResource, text: &str) -> Result<Vec<FieldTerm>, Refusal> {
    let mut terms = split_terms(text);
    // The server sorts them, which decides the one that it reports.
    terms.sort_unstable();
    terms.retain(|term| !term.is_empty());
    let terms = terms.into_iter().map(|term| {
        FieldTerm::parse(term).unwrap_or_else(|| {
            let message = format!("invalid selector: '{text}'; can't understand '{term}'");
            Err(Refusal::bad_request(message))
        })
    });
    let terms = terms.collect::<Result<Vec<_>, _>>()?;
    let Some(unknown) = terms
        .iter()
        .find(|term| !is_selectable(resource, &term.field))
    else {
        return Ok(terms);
    };
    let field = &unknown.field;
    Err(Refusal::bad_request(
        if resource.traits().is_built_in && selectable(resource).is_empty() {
            format!("\"{field}\" is not a known field selector: {ONLY_BASE}")
        } else {
            format!("field label not supported: {field}")
        },
    ))
}

/// The terms between commas without a backslash before them.
fn split_terms(text: &str) -> Vec<&str> {
    let mut is_escaped = false;
    text.split(|c| {
        let is_end = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    })
    .collect()
}

impl FieldTerm {
    /// Reads one term; `None` when it has no operator.
    fn parse(term: &str) -> Option<Result<Self, Refusal>> {
        let at = term.find(['=', '!']).filter(|at| {
            let rest = term.get(*at..).unwrap_or_default();
            rest.starts_with('=') || rest.starts_with("!=")
        });
        let at = at.or_else(|| term.find('='))?;
        let (field, rest) = term.split_at_checked(at)?;
        let value = ["!=", "==", "="]
            .iter()
            .find_map(|operator| rest.strip_prefix(operator))?;
        Some(unescape(value).map(|value| Self {
            field: field.to_owned(),
            value,
            negated: rest.starts_with('!'),
        }))
    }
}

/// Reads a value with a backslash before each comma, equals sign and backslash.
fn unescape(text: &str) -> Result<String, Refusal> {
    let refuse = |why: String| {
        let message = format!("invalid field selector: {why}");
        Err(Refusal::bad_request(message))
    };
    let mut value = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some(c @ ('\\' | ',' | '=')) => value.push(c),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return refuse(format!("invalid escape sequence: \\{other}"));
                }
            },
            ',' | '=' => {
                let code = u32::from(c);
                return refuse(format!("unescaped character in value: {code}"));
            }
            c => value.push(c),
        }
    }
    Ok(value)
}

const ONLY_BASE: &str = "only \"metadata.name\", \"metadata.namespace\"";

/// The fields besides name and namespace by which clients can select a kind.
fn selectable(resource: &ApiResource) -> &'static [&'static str] {
    match (resource.group(), resource.plural()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "secrets") => &["type"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("batch", "jobs") => &["status.successful"],
        _ => &[],
    }
}

fn is_selectable(resource: &ApiResource, field: &str) -> bool {
    // Built-in kinds without fields of their own share those of the metadata.
    let shares = resource.traits().is_built_in && selectable(resource).is_empty();
    let has_namespace = resource.is_namespaced() || shares;
    field == "metadata.name"
        || (field == "metadata.namespace" && has_namespace)
        || selectable(resource).contains(&field)
}

/// The field as the server compares it. Where the object has none, the server's type has a zero.
fn value_of(resource: &ApiResource, object: &StoredVersion, field: &str) -> String {
    match field {
        "metadata.name" => return object.name().to_owned(),
        "metadata.namespace" => return object.namespace().to_owned(),
        _ => {}
    }
    let own = format!("/{}", field.replace('.', "/"));
    let own = [&*own];
    let (paths, zero): (&[&str], &str) = match (resource.plural(), field) {
        ("events", "source") => (&["/source/component", "/reportingComponent"], ""),
        ("pods", "status.podIP") => (&["/status/podIP", "/status/podIPs/0/ip"], ""),
        ("jobs", "status.successful") => (&["/status/succeeded"], "0"),
        ("nodes", "spec.unschedulable") | ("pods", "spec.hostNetwork") => (&own, "false"),
        _ => (&own, ""),
    };
    let found = paths
        .iter()
        .find_map(|path| match object.value.pointer(path)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            value @ (Value::Bool(_) | Value::Number(_)) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        });
    found.unwrap_or_else(|| zero.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Clock;
    use crate::testing::api::resources::KindRegistry;
    use crate::testing::api::storage::Storage;

    fn matched(plural: &str, query: &str, namespace: Option<&str>) -> Result<bool, Refusal> {
        let object = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"nodeName": "node-1"},
            "involvedObject": {"name": "web-0"},
            "reason": r"a,b=c\d",
        });
        matches(object, plural, query, namespace)
    }

    fn matches(
        object: Value,
        plural: &str,
        query: &str,
        namespace: Option<&str>,
    ) -> Result<bool, Refusal> {
        let registry = KindRegistry::built_in();
        let mut all = registry.all().iter();
        let resource = all.find(|known| known.plural() == plural).unwrap();
        let target = Target::parse(&format!("/x?{query}"));
        let filter = ObjectFilter::of(resource, namespace, &target)?;
        let now = std::time::SystemTime::UNIX_EPOCH;
        let storage = Storage::new(registry.clone(), Clock::system(), now);
        let stored = storage
            .lock()
            .put(&resource.storage_key(), "shop/web-0", object);
        Ok(filter.matches(resource, &stored))
    }

    #[test]
    fn an_object_matches_by_namespace_labels_and_fields() {
        let rows = [
            ("pods", "", None, true),
            ("pods", "", Some("shop"), true),
            ("pods", "", Some("ops"), false),
            ("pods", "labelSelector=app%3Dweb", None, true),
            ("pods", "labelSelector=app+notin+(web)", None, false),
            ("pods", "fieldSelector=spec.nodeName%3Dnode-1", None, true),
            ("pods", "fieldSelector=spec.nodeName!%3Dnode-1", None, false),
            ("pods", "fieldSelector=spec.nodeName%3D", None, false),
            ("pods", "fieldSelector=status.phase%3DRunning", None, false),
            (
                "pods",
                "fieldSelector=metadata.name%3D%3Dweb-0,metadata.namespace=shop",
                None,
                true,
            ),
            (
                "events",
                "fieldSelector=involvedObject.name=web-0",
                None,
                true,
            ),
            (
                "nodes",
                "fieldSelector=spec.unschedulable=false",
                None,
                true,
            ),
        ];
        for (plural, query, namespace, expected) in rows {
            assert_eq!(
                matched(plural, query, namespace),
                Ok(expected),
                "{plural} {query}"
            );
        }
    }

    /// The server compares fields of its own types, which have a zero where the object has none.
    #[test]
    fn an_absent_field_is_selected_by_the_zero_of_its_type() {
        let rows = [
            ("jobs", json!({}), "status.successful=0", true),
            ("jobs", json!({}), "status.successful=", false),
            ("jobs", json!({}), "status.successful!=0", false),
            (
                "jobs",
                json!({"status": {"succeeded": 2}}),
                "status.successful=0",
                false,
            ),
            (
                "jobs",
                json!({"status": {"succeeded": null}}),
                "status.successful=0",
                true,
            ),
            ("pods", json!({}), "spec.hostNetwork=false", true),
            ("pods", json!({}), "spec.hostNetwork=", false),
            ("nodes", json!({}), "spec.unschedulable=false", true),
            ("pods", json!({}), "status.podIP=", true),
            (
                "pods",
                json!({"status": {"podIPs": [{"ip": "10.0.0.9"}]}}),
                "status.podIP=10.0.0.9",
                true,
            ),
            // The server takes the field, but its type has none of that name.
            (
                "pods",
                json!({"status": {"podIPs": [{"ip": "10.0.0.9"}]}}),
                "status.podIPs=",
                true,
            ),
            (
                "events",
                json!({"reportingComponent": "kubelet"}),
                "source=kubelet",
                true,
            ),
            (
                "events",
                json!({"reportingComponent": "a", "source": {"component": "b"}}),
                "source=b",
                true,
            ),
        ];
        for (plural, object, term, expected) in rows {
            let told = format!("{plural} {object} {term}");
            let query = format!("fieldSelector={}", term.replacen('=', "%3D", 1));
            assert_eq!(
                matches(object, plural, &query, None),
                Ok(expected),
                "{told}"
            );
        }
    }

    #[test]
    fn a_backslash_takes_the_next_letter_for_text() {
        for (query, expected) in [
            (r"reason%3Da\,b\%3Dc\\d", true),
            (r"reason!%3Da\,b\%3Dc\\d", false),
            (r"reason%3Da\,b", false),
            (
                r"involvedObject.name%3Dweb-0,reason%3D%3Da\,b\%3Dc\\d",
                true,
            ),
        ] {
            let found = matched("events", &format!("fieldSelector={query}"), None);
            assert_eq!(found, Ok(expected), "{query}");
        }
        for (query, why) in [
            (r"reason%3Da\d", r"invalid escape sequence: \d"),
            (r"reason%3Da\", r"invalid escape sequence: \"),
            ("reason%3Da%3Db", "unescaped character in value: 61"),
            ("reason%3D%3D%3Da", "unescaped character in value: 61"),
        ] {
            let refused = matched("events", &format!("fieldSelector={query}"), None);
            let why = format!("invalid field selector: {why}");
            assert_eq!(refused.unwrap_err().message(), why, "{query}");
        }
    }

    #[test]
    fn a_field_that_the_server_does_not_know_is_refused() {
        let refused = matched("pods", "fieldSelector=spec.color=red", None).unwrap_err();
        assert_eq!(refused.message(), "field label not supported: spec.color");
        let refused = matched("nodes", "fieldSelector=metadata.namespace=a", None).unwrap_err();
        let expected = "field label not supported: metadata.namespace";
        assert_eq!(refused.message(), expected);
        // Only ReplicationControllers have this one.
        let refused = matched("replicasets", "fieldSelector=status.replicas=0", None).unwrap_err();
        let expected = "\"status.replicas\" is not a known field selector: only \
            \"metadata.name\", \"metadata.namespace\"";
        assert_eq!(refused.message(), expected);
        assert_eq!(
            matched("secrets", "labelSelector=a%3Db%3Dc", None)
                .unwrap_err()
                .code,
            400
        );
    }
}
