//! Answers as they are compared: without what differs from server to server, and what they teach
//! the requests that follow.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::rows::{Row, View};

/// An answer as it came.
pub(super) struct RawAnswer {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: String,
}

impl RawAnswer {
    pub(super) fn parse(text: &[u8]) -> Self {
        let end = text
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap()
            + 4;
        let head = String::from_utf8(text[..end].to_vec()).unwrap();
        let header = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let body = match header("transfer-encoding") {
            Some(_) => unchunked(&text[end..]),
            None => text[end..].to_vec(),
        };
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            content_type: header("content-type").unwrap_or_default(),
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

fn unchunked(mut text: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = text.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&text[..end]).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        body.extend_from_slice(&text[end + 2..end + 2 + size]);
        text = &text[end + 4 + size..];
    }
    body
}

/// What one server has answered, for requests that build on it.
#[derive(Default)]
pub(super) struct Memory(BTreeMap<String, Value>);

impl Memory {
    pub(super) fn keep(&mut self, row: &str, answer: &RawAnswer) {
        self.0.insert(row.to_owned(), answer.json());
    }

    /// Fills in `$rv(ROW)`, `$uid(ROW)` and `$token(ROW)`.
    pub(super) fn fill_in(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (mark, path) in [
            ("$rv(", "/metadata/resourceVersion"),
            ("$uid(", "/metadata/uid"),
            ("$token(", "/metadata/continue"),
        ] {
            while let Some(at) = filled.find(mark) {
                let end = at + filled[at..].find(')').unwrap();
                let row = &filled[at + mark.len()..end];
                let value = self.0.get(row).and_then(|answer| answer.pointer(path));
                let value = value.and_then(Value::as_str);
                let value = value.unwrap_or_else(|| panic!("{row} has no {path}"));
                filled.replace_range(at..=end, &value.replace('=', "%3D"));
            }
        }
        filled
    }
}

/// What of an answer has to be the same.
pub(super) fn compared(row: &Row, answer: &RawAnswer) -> String {
    let content_type = answer.content_type.split(';').next().unwrap_or_default();
    let told = match row.view {
        View::Code => Value::Null,
        View::Whole => normal(answer.json()),
        View::Metadata => normal(answer.json()["metadata"].clone()),
        View::At(path) => normal(answer.json().pointer(path).cloned().unwrap_or_default()),
        View::Reason => {
            let status = answer.json();
            normal(json!({
                "reason": status["reason"], "code": status["code"], "details": status["details"],
            }))
        }
        View::Table => table(&answer.json()),
        View::Events => events(&answer.body),
        View::Kind(name) => kind(&answer.json(), name),
    };
    format!("{} {content_type} {told}", answer.status)
}

/// Replaces what each server makes for itself.
fn normal(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter_map(|(name, value)| {
                let value = match name.as_str() {
                    "managedFields" | "remainingItemCount" => return None,
                    "creationTimestamp" if value.is_null() => return None,
                    // A status without details has none, or an empty one.
                    "details" if value == json!({}) || value.is_null() => return None,
                    "continue" if value == json!("") => return None,
                    "uid" | "creationTimestamp" | "deletionTimestamp" | "continue"
                    | "lastTransitionTime" => {
                        json!(format!("<{name}>"))
                    }
                    "resourceVersion" if value.is_string() => json!("<version>"),
                    "message" | "name" if value.is_string() => {
                        json!(without_numbers(value.as_str().unwrap_or_default()))
                    }
                    _ => normal(value),
                };
                Some((name, value))
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(normal).collect()),
        other => other,
    }
}

/// A text with each number, uid and generated name replaced.
fn without_numbers(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let core = word.trim_matches(['(', ',', ':', '.', ')']);
        let tail = "";
        let is_uid = core.len() == 36 && core.matches('-').count() == 4;
        let is_number = core.trim_start_matches('(').parse::<u64>().is_ok();
        match core.strip_prefix("made-") {
            // The last five letters are the server's own; a cut name has all it can.
            Some(suffix) if suffix.len() == 5 || core.len() == 63 => {
                format!("{}<suffix>{tail}", &core[..core.len() - 5])
            }
            _ if is_uid => format!("<uid>{tail}"),
            _ if is_number => format!("<number>{tail}"),
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Heads and cells of a table, with ages as `<age>`.
fn table(table: &Value) -> Value {
    let columns = table["columnDefinitions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let heads: Vec<_> = columns
        .iter()
        .map(|column| {
            json!([
                column["name"],
                column["type"],
                column["format"],
                column["priority"]
            ])
        })
        .collect();
    let is_age = |at: usize| {
        let name = columns.get(at).map(|column| column["name"].clone());
        name.is_some_and(|name| name == "Age" || name == "Created At")
    };
    let rows = table["rows"].as_array().cloned().unwrap_or_default();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let cells = row["cells"].as_array().cloned().unwrap_or_default();
            let cells = cells.into_iter().enumerate();
            let cells: Vec<_> = cells
                .map(|(at, cell)| if is_age(at) { json!("<age>") } else { cell })
                .collect();
            json!([cells, row["object"]["kind"]])
        })
        .collect();
    json!({"kind": table["kind"], "columns": heads, "rows": rows})
}

/// The events of a watch: type, kind, name, and data or code. Without the bookmarks that a server
/// sends when its clock says so.
fn events(body: &str) -> Value {
    let end = "/object/metadata/annotations/k8s.io~1initial-events-end";
    let events = body.lines().map(|line| serde_json::from_str(line).unwrap());
    let events =
        events.filter(|event: &Value| event["type"] != "BOOKMARK" || event.pointer(end).is_some());
    let events = events.map(|event| {
        let object = &event["object"];
        let annotations = &object["metadata"]["annotations"];
        let version = object["metadata"]["resourceVersion"].is_string();
        json!([
            event["type"],
            object["kind"],
            normal(json!({"name": object["metadata"]["name"]})),
            object["data"],
            object["code"],
            annotations["k8s.io/initial-events-end"],
            version,
            object["rows"][0]["cells"][0],
            object["columnDefinitions"].is_array(),
        ])
    });
    Value::Array(events.collect())
}

/// What discovery tells of a kind, in any of its forms.
fn kind(answer: &Value, name: &str) -> Value {
    let plain = answer["resources"].as_array().cloned().unwrap_or_default();
    let plain = plain.into_iter().find(|resource| resource["name"] == name);
    let groups = answer["items"].as_array().cloned().unwrap_or_default();
    let all = groups.iter().flat_map(|group| {
        let versions = group["versions"].as_array().cloned().unwrap_or_default();
        versions
            .into_iter()
            .flat_map(|version| version["resources"].as_array().cloned().unwrap_or_default())
    });
    let aggregated = all
        .into_iter()
        .find(|resource| resource["resource"] == name);
    let mut found = plain.or(aggregated).unwrap_or_default();
    if let Some(fields) = found.as_object_mut() {
        fields.remove("storageVersionHash");
        // Those beside the status are named as not there.
        if let Some(subresources) = fields.get_mut("subresources").and_then(Value::as_array_mut) {
            subresources.retain(|one| one["subresource"] == "status");
        }
    }
    found
}
