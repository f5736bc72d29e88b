//! Tables, as `kubectl get` prints them: the columns of each kind, and a row for each object.

use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::resources::ApiResource;
use super::storage::StoredVersion;

/// The part of the object in a row of a table: the parameter `includeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableObject {
    None,
    Metadata,
    Whole,
}

/// The object with only its metadata.
pub(super) fn metadata_of(object: &StoredVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.value.get("metadata"),
    })
}

/// A table without metadata.
pub(super) fn table<'a, I: Iterator<Item = &'a StoredVersion>>(
    resource: &ApiResource,
    objects: I,
    include: TableObject,
    now: SystemTime,
) -> Value {
    let columns = columns_of(resource);
    let rows: Vec<_> = objects
        .map(|object| {
            let cells: Vec<_> = columns
                .iter()
                .map(|column| column.cell(object, now))
                .collect();
            let object = match include {
                TableObject::None => Value::Null,
                TableObject::Metadata => metadata_of(object),
                TableObject::Whole => object.value_as(resource),
            };
            json!({"cells": cells, "object": object})
        })
        .collect();
    let definitions: Vec<_> = columns.iter().map(TableColumn::definition).collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// A column: its head, and its content.
struct TableColumn {
    name: String,
    kind: String,
    format: &'static str,
    /// 0 is always shown; others with `-o wide`.
    priority: i64,
    content: CellContent,
}

/// The content of a cell.
enum CellContent {
    /// A field by its path; the text if it is missing.
    Field(String, &'static str),
    /// A number in a field by its path, or 0.
    Number(&'static str),
    /// How long ago the time in that field was.
    Since(String),
    /// The size of an object or of a list.
    Count(&'static str),
    Made(fn(&Value) -> Value),
}

impl TableColumn {
    fn new(name: &str, kind: &str, content: CellContent) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: if name == "Name" { "name" } else { "" },
            priority: 0,
            content,
        }
    }

    fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        })
    }

    fn cell(&self, object: &StoredVersion, now: SystemTime) -> Value {
        let value = &object.value;
        match &self.content {
            CellContent::Field(path, otherwise) => match value.pointer(path) {
                None | Some(Value::Null) => Value::from(*otherwise),
                Some(found) => found.clone(),
            },
            CellContent::Number(path) => {
                let found = value.pointer(path).and_then(Value::as_i64);
                Value::from(found.unwrap_or_default())
            }
            CellContent::Since(path) => Value::from(since(value.pointer(path), now)),
            CellContent::Count(path) => Value::from(count(value.pointer(path))),
            CellContent::Made(make) => make(value),
        }
    }
}

fn count(value: Option<&Value>) -> usize {
    match value {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(fields)) => fields.len(),
        _ => 0,
    }
}

fn since(time: Option<&Value>, now: SystemTime) -> String {
    let time = time
        .and_then(Value::as_str)
        .and_then(|text| text.parse::<Timestamp>().ok());
    let Some(time) = time else {
        return "<unknown>".to_owned();
    };
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or_default();
    let seconds = now.saturating_sub(time.as_second());
    human(u64::try_from(seconds).unwrap_or_default())
}

/// Formats a duration like kubectl's ages: at most two units.
fn human(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with = |count: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{count}{unit}"),
        rest => format!("{count}{unit}{rest}{small}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => with(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => with(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn field(name: &str, path: &str) -> TableColumn {
    TableColumn::new(
        name,
        "string",
        CellContent::Field(path.to_owned(), "<none>"),
    )
}

fn made(name: &str, make: fn(&Value) -> Value) -> TableColumn {
    TableColumn::new(name, "string", CellContent::Made(make))
}

fn number(name: &str, path: &'static str) -> TableColumn {
    TableColumn::new(name, "string", CellContent::Number(path))
}

/// A field by its path, or another text if it is missing.
fn field_or(name: &str, path: &str, otherwise: &'static str) -> TableColumn {
    TableColumn::new(
        name,
        "string",
        CellContent::Field(path.to_owned(), otherwise),
    )
}

fn columns_of(resource: &ApiResource) -> Vec<TableColumn> {
    let name = CellContent::Field("/metadata/name".to_owned(), "");
    let mut columns = vec![TableColumn::new("Name", "string", name)];
    if !resource.columns().is_empty() {
        columns.extend(resource.columns().iter().map(of_definition));
        return columns;
    }
    let created = CellContent::Since("/metadata/creationTimestamp".to_owned());
    let age = TableColumn::new("Age", "string", created);
    match (resource.group(), resource.plural()) {
        ("", "pods") => {
            columns.push(made("Ready", ready_containers));
            columns.push(made("Status", pod_status));
            columns.push(made("Restarts", restarts));
            columns.push(age);
            columns.push(field("IP", "/status/podIP").wide());
            columns.push(field("Node", "/spec/nodeName").wide());
            columns.push(field("Nominated Node", "/status/nominatedNodeName").wide());
            columns.push(made("Readiness Gates", |_| Value::from("<none>")).wide());
        }
        ("", "secrets") => {
            columns.push(field("Type", "/type"));
            columns.push(TableColumn::new(
                "Data",
                "string",
                CellContent::Count("/data"),
            ));
            columns.push(age);
        }
        ("", "configmaps") => {
            columns.push(made("Data", |value| {
                let both = count(value.get("data")).saturating_add(count(value.get("binaryData")));
                Value::from(both)
            }));
            columns.push(age);
        }
        ("", "namespaces") => {
            columns.push(field("Status", "/status/phase"));
            columns.push(age);
        }
        ("", "nodes") => {
            columns.push(made("Status", node_status));
            columns.push(made("Roles", node_roles));
            columns.push(age);
            let info = "/status/nodeInfo";
            let unknown = |name: &str, field: &str| {
                field_or(name, &format!("{info}/{field}"), "<unknown>").wide()
            };
            columns.push(field_or("Version", &format!("{info}/kubeletVersion"), ""));
            columns.push(made("Internal-IP", |node| node_address(node, "InternalIP")).wide());
            columns.push(made("External-IP", |node| node_address(node, "ExternalIP")).wide());
            columns.push(unknown("OS-Image", "osImage"));
            columns.push(unknown("Kernel-Version", "kernelVersion"));
            columns.push(unknown("Container-Runtime", "containerRuntimeVersion"));
        }
        ("", "services") => {
            columns.push(field("Type", "/spec/type"));
            columns.push(field("Cluster-IP", "/spec/clusterIP"));
            columns.push(made("External-IP", |_| Value::from("<none>")));
            columns.push(made("Port(s)", service_ports));
            columns.push(age);
            columns.push(made("Selector", |value| labels(value.pointer("/spec/selector"))).wide());
        }
        _ => columns.extend(other_columns(resource, age)),
    }
    columns
}

/// The columns after the name, for kinds outside the core group.
fn other_columns(resource: &ApiResource, age: TableColumn) -> Vec<TableColumn> {
    let mut columns = Vec::new();
    match (resource.group(), resource.plural()) {
        ("apps", "deployments") => {
            columns.push(made("Ready", |value| ratio(value, "/status/readyReplicas")));
            columns.push(number("Up-to-date", "/status/updatedReplicas"));
            columns.push(number("Available", "/status/availableReplicas"));
            columns.push(age);
            columns.push(made("Containers", |value| of_containers(value, "/name")).wide());
            columns.push(made("Images", |value| of_containers(value, "/image")).wide());
            let selector = |value: &Value| labels(value.pointer("/spec/selector/matchLabels"));
            columns.push(made("Selector", selector).wide());
        }
        ("apps", "replicasets") => {
            columns.push(number("Desired", "/spec/replicas"));
            columns.push(number("Current", "/status/replicas"));
            columns.push(number("Ready", "/status/readyReplicas"));
            columns.push(age);
        }
        ("apps", "statefulsets") => {
            columns.push(made("Ready", |value| ratio(value, "/status/readyReplicas")));
            columns.push(age);
        }
        ("coordination.k8s.io", "leases") => {
            columns.push(field("Holder", "/spec/holderIdentity"));
            columns.push(age);
        }
        ("policy", "poddisruptionbudgets") => {
            let min = |value: &Value| limit(value.pointer("/spec/minAvailable"));
            let max = |value: &Value| limit(value.pointer("/spec/maxUnavailable"));
            columns.push(made("Min Available", min));
            columns.push(made("Max Unavailable", max));
            let allowed = CellContent::Number("/status/disruptionsAllowed");
            columns.push(TableColumn::new("Allowed Disruptions", "integer", allowed));
            columns.push(age);
        }
        ("apiextensions.k8s.io", super::resources::CRDS) => {
            let created = CellContent::Field("/metadata/creationTimestamp".to_owned(), "");
            let mut column = TableColumn::new("Created At", "date", created);
            column.format = "";
            columns.push(column);
        }
        _ => columns.push(age),
    }
    columns
}

/// A column that a CRD defines. Its path may contain only plain fields.
fn of_definition(column: &Value) -> TableColumn {
    let text = |field: &str| {
        column
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let path = text("jsonPath").trim_matches(['{', '}']).replace('.', "/");
    let kind = text("type");
    let content = if kind == "date" {
        CellContent::Since(path)
    } else {
        CellContent::Field(path, "")
    };
    let mut made = TableColumn::new(text("name"), kind, content);
    made.priority = column
        .get("priority")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    made
}

fn text_at<'a>(value: &'a Value, path: &str) -> &'a str {
    value
        .pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn array_at<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    value
        .pointer(path)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn ready_containers(pod: &Value) -> Value {
    let is_ready = |status: &&Value| status.get("ready").and_then(Value::as_bool) == Some(true);
    let ready = array_at(pod, "/status/containerStatuses")
        .filter(is_ready)
        .count();
    let all = array_at(pod, "/spec/containers").count();
    Value::from(format!("{ready}/{all}"))
}

fn pod_status(pod: &Value) -> Value {
    if !text_at(pod, "/metadata/deletionTimestamp").is_empty() {
        return Value::from("Terminating");
    }
    let waiting = array_at(pod, "/status/containerStatuses").find_map(|status| {
        let reason = status.pointer("/state/waiting/reason");
        reason
            .or_else(|| status.pointer("/state/terminated/reason"))
            .and_then(Value::as_str)
    });
    let reason = text_at(pod, "/status/reason");
    let phase = text_at(pod, "/status/phase");
    Value::from(waiting.unwrap_or(if reason.is_empty() { phase } else { reason }))
}

fn restarts(pod: &Value) -> Value {
    let counts = array_at(pod, "/status/containerStatuses");
    let counts = counts.filter_map(|status| status.get("restartCount").and_then(Value::as_u64));
    Value::from(counts.fold(0, u64::saturating_add).to_string())
}

fn node_status(node: &Value) -> Value {
    let mut conditions = array_at(node, "/status/conditions");
    let ready = conditions.find(|condition| text_at(condition, "/type") == "Ready");
    let mut status = match ready.map(|ready| text_at(ready, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    Value::from(status)
}

fn node_roles(node: &Value) -> Value {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten().map(|(label, _)| label);
    let roles: Vec<_> = labels
        .filter_map(|label| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    Value::from(if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    })
}

fn node_address(node: &Value, kind: &str) -> Value {
    let mut addresses = array_at(node, "/status/addresses");
    let found = addresses.find(|address| text_at(address, "/type") == kind);
    let address = found.map_or("", |address| text_at(address, "/address"));
    Value::from(if address.is_empty() {
        "<none>"
    } else {
        address
    })
}

fn of_containers(workload: &Value, path: &str) -> Value {
    let containers = array_at(workload, "/spec/template/spec/containers");
    let texts: Vec<_> = containers
        .map(|container| text_at(container, path))
        .collect();
    Value::from(texts.join(","))
}

/// A number or a share of a budget.
fn limit(value: Option<&Value>) -> Value {
    match value {
        None | Some(Value::Null) => Value::from("N/A"),
        Some(Value::String(text)) => Value::from(text.as_str()),
        Some(other) => Value::from(other.to_string()),
    }
}

fn service_ports(service: &Value) -> Value {
    let ports: Vec<_> = array_at(service, "/spec/ports")
        .map(|port| {
            let number = port.get("port").cloned().unwrap_or(Value::Null);
            let protocol = text_at(port, "/protocol");
            match port.get("nodePort") {
                Some(node_port) => format!("{number}:{node_port}/{protocol}"),
                None => format!("{number}/{protocol}"),
            }
        })
        .collect();
    Value::from(if ports.is_empty() {
        "<none>".to_owned()
    } else {
        ports.join(",")
    })
}

fn labels(labels: Option<&Value>) -> Value {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let shown: Vec<_> = labels
        .map(|(label, value)| format!("{label}={}", value.as_str().unwrap_or_default()))
        .collect();
    Value::from(if shown.is_empty() {
        "<none>".to_owned()
    } else {
        shown.join(",")
    })
}

fn ratio(workload: &Value, ready: &str) -> Value {
    let number = |path: &str| {
        let found = workload.pointer(path).and_then(Value::as_u64);
        found.unwrap_or_default()
    };
    Value::from(format!("{}/{}", number(ready), number("/spec/replicas")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let rows = [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (601, "10m"),
            (10_799, "179m"),
            (10_860, "3h1m"),
            (100_000, "27h"),
            (200_000, "2d7h"),
            (1_000_000, "11d"),
            (70_000_000, "2y80d"),
            (300_000_000, "9y"),
        ];
        for (seconds, text) in rows {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn a_pod_has_the_row_that_kubectl_prints() {
        let registry = super::super::resources::KindRegistry::built_in();
        let pods = registry.find("", "v1", "pods").unwrap();
        let pod = json!({
            "metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:10Z"},
            "spec": {"containers": [{}, {}], "nodeName": "node-1"},
            "status": {"phase": "Running", "containerStatuses": [
                {"ready": true, "restartCount": 2}, {"ready": false, "restartCount": 1},
            ]},
        });
        let stored = StoredVersion::new("shop/web".to_owned(), 3, pod);
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(70);
        let table = table(pods, [&stored].into_iter(), TableObject::Metadata, now);
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(
            cells[..5],
            [
                json!("web"),
                json!("1/2"),
                json!("Running"),
                json!("3"),
                json!("60s")
            ]
        );
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["columnDefinitions"][5]["priority"], 1);
    }
}
