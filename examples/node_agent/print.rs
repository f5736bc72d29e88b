//! Rows as text: kubectl's kind of table, names, JSON or YAML.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::SystemTime;

use kubecache::object::{ObjectKey, visible};

use crate::args::Output;
use crate::duration;
use crate::rows::{ChangeJson, Facts, NodeJson, ObjectJson, PodJson, RowKey};
use crate::table::{NONE, Table};
use crate::yaml;

const HEADERS: [&str; 12] = [
    "NAMESPACE",
    "POD",
    "KIND",
    "NAME",
    "STATE",
    "VERSION",
    "IMMUTABLE",
    "KEYS",
    "BYTES",
    "AGE",
    "HEARD",
    "REASON",
];

/// The columns of a wide table alone.
const WIDE: [&str; 3] = ["IMMUTABLE", "KEYS", "BYTES"];

/// Rows by pod and object.
pub(crate) type Rows = BTreeMap<RowKey, Facts>;

/// Writes rows, first all of them and then changes.
pub(crate) struct Printer<W> {
    output: Output,
    /// `None`: no node is followed.
    node: Option<String>,
    to: W,
    table: Table<{ HEADERS.len() }>,
}

impl<W: Write> Printer<W> {
    pub(crate) fn new(output: Output, node: Option<&str>, to: W) -> Self {
        // The longest usual state, so that a later line stands under the first ones.
        let table = Table::new(HEADERS).at_least("STATE", "Forbidden".len());
        Self {
            output,
            node: node.map(str::to_owned),
            to,
            table: if output == Output::Wide {
                table
            } else {
                table.without(&WIDE)
            },
        }
    }

    /// Leaves the headers of a table out.
    pub(crate) fn without_headers(mut self) -> Self {
        self.table = self.table.without_headers();
        self
    }

    /// Shows states in colours.
    pub(crate) fn in_colour(mut self) -> Self {
        self.table = self.table.painted("STATE", colour);
        self
    }

    /// Writes all there is: a table, or one object of JSON with each pod, also those that name no
    /// object, and the references without pods.
    pub(crate) fn node(
        &mut self,
        pods: &[ObjectKey],
        rows: &Rows,
        now: SystemTime,
    ) -> io::Result<()> {
        if !matches!(self.output, Output::Json | Output::Yaml) {
            return self.changes(&rows.iter().collect::<Vec<_>>(), now);
        }
        let of = |pod: &ObjectKey| {
            let objects = rows.iter().filter(|(key, _)| key.pod == *pod);
            objects.map(|(key, facts)| ObjectJson(key, facts)).collect()
        };
        let without_pods = rows.keys().filter(|key| !key.has_pod());
        let namespaces: BTreeSet<_> = without_pods.map(|key| &key.pod).collect();
        let node = NodeJson {
            node: self.node.as_deref(),
            pods: pods.iter().map(|pod| PodJson(pod, of(pod))).collect(),
            references: namespaces
                .into_iter()
                .map(|key| PodJson(key, of(key)))
                .collect(),
        };
        if self.output == Output::Yaml {
            yaml::write(&mut self.to, &serde_json::to_value(&node)?)?;
        } else {
            serde_json::to_writer_pretty(&mut self.to, &node)?;
            writeln!(self.to)?;
        }
        self.to.flush()
    }

    /// Writes one line per row, and flushes after each.
    pub(crate) fn changes(
        &mut self,
        rows: &[(&RowKey, &Facts)],
        now: SystemTime,
    ) -> io::Result<()> {
        match self.output {
            Output::Table | Output::Wide => {
                let cells = rows.iter().map(|(key, facts)| cells(key, facts, now));
                self.table.write(&mut self.to, &cells.collect::<Vec<_>>())?;
            }
            Output::Name => {
                let name = |key: &RowKey| format!("{}/{}", key.kind.to_lowercase(), key.name);
                // Several pods may name one object.
                let names: BTreeSet<_> = rows.iter().map(|(key, _)| name(key)).collect();
                for name in names {
                    writeln!(self.to, "{}", visible(&name))?;
                    self.to.flush()?;
                }
            }
            Output::Json | Output::Yaml => {
                for (key, facts) in rows {
                    let change = ChangeJson {
                        node: self.node.as_deref(),
                        key,
                        facts,
                    };
                    if self.output == Output::Yaml {
                        writeln!(self.to, "---")?;
                        yaml::write(&mut self.to, &serde_json::to_value(&change)?)?;
                    } else {
                        serde_json::to_writer(&mut self.to, &change)?;
                        writeln!(self.to)?;
                    }
                    self.to.flush()?;
                }
            }
        }
        Ok(())
    }
}

/// The terminal's code for a state's colour: an answer with content, one without, none yet.
fn colour(state: &str) -> &'static str {
    match state.trim_end_matches(" (polled)") {
        "Synced" => "\u{1b}[32m",
        "NotFound" | "Forbidden" | "Removed" | "Restored" => "\u{1b}[33m",
        _ => "\u{1b}[31m",
    }
}

fn cells(key: &RowKey, facts: &Facts, now: SystemTime) -> [String; HEADERS.len()] {
    let none = || NONE.to_owned();
    let content = facts.content.as_ref();
    let of = |cell: &dyn Fn(&crate::rows::Content) -> String| content.map_or_else(none, cell);
    let created = content.and_then(|content| content.created);
    let age = created.map(|created| now.duration_since(created).unwrap_or_default());
    [
        key.pod.namespace().to_owned(),
        Some(key.pod.name())
            .filter(|_| key.has_pod())
            .unwrap_or(NONE)
            .to_owned(),
        key.kind.to_string(),
        key.name.clone(),
        facts.state_in_words(),
        of(&|content| content.resource_version.clone()),
        of(&|content| content.immutable.to_string()),
        of(&|content| content.keys.to_string()),
        of(&|content| content.bytes.to_string()),
        age.map_or_else(none, duration::age),
        facts.heard.map_or_else(none, duration::age),
        facts.reason.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rows::{Content, State};
    use crate::tell::one_line;
    use kubecache::manager::ObjectState;

    fn key(pod: &str, kind: &'static str, name: &str) -> RowKey {
        RowKey {
            pod: ObjectKey::new("shop", pod),
            kind: kind.into(),
            name: name.to_owned(),
        }
    }

    fn rows(now: SystemTime) -> Rows {
        let content = Content {
            resource_version: "1047".to_owned(),
            immutable: true,
            keys: 2,
            bytes: 64,
            created: now.checked_sub(Duration::from_secs((5 * 24 + 3) * 60 * 60)),
        };
        let synced = Facts {
            state: State::Kept(ObjectState::Synced),
            polled: false,
            reason: None,
            failed: false,
            content: Some(content),
            heard: Some(Duration::from_secs(12)),
        };
        let missing = Facts {
            state: State::Kept(ObjectState::NotFound),
            reason: Some(one_line("configmaps \"flags\"\nnot\u{1b}[31m found")),
            ..Facts::removed()
        };
        [
            (key("web-1", "Secret", "tls"), synced),
            (key("web-1", "ConfigMap", "flags"), missing),
        ]
        .into()
    }

    fn printed(output: Output, pods: &[&str], rows: &Rows, now: SystemTime) -> String {
        let mut text = Vec::new();
        let pods: Vec<_> = pods
            .iter()
            .map(|pod| ObjectKey::new("shop", *pod))
            .collect();
        Printer::new(output, Some("node-1"), &mut text)
            .node(&pods, rows, now)
            .unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_table_is_kubectls_kind() {
        let now = SystemTime::now();
        assert_eq!(
            printed(Output::Wide, &["web-1"], &rows(now), now),
            "\
NAMESPACE   POD     KIND        NAME    STATE       VERSION   IMMUTABLE   \
KEYS     BYTES    AGE      HEARD    REASON
shop        web-1   ConfigMap   flags   NotFound    <none>    <none>      \
<none>   <none>   <none>   <none>   configmaps \"flags\" not [31m found
shop        web-1   Secret      tls     Synced      1047      true        \
2        64       5d3h     12s
"
        );
    }

    #[test]
    fn what_a_person_asks_for() {
        let now = SystemTime::now();
        let rows = rows(now);
        let line = |text: &str| text.lines().next().unwrap().split_whitespace().count();
        assert_eq!(
            line(&printed(Output::Table, &[], &rows, now)),
            HEADERS.len() - WIDE.len()
        );
        assert_eq!(
            printed(Output::Name, &[], &rows, now),
            "configmap/flags\nsecret/tls\n"
        );
        let mut text = Vec::new();
        let printer = Printer::new(Output::Table, Some("node-1"), &mut text);
        let all: Vec<_> = rows.iter().collect();
        printer
            .without_headers()
            .in_colour()
            .changes(&all, now)
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("NAMESPACE"), "{text}");
        assert!(text.contains("\u{1b}[32mSynced\u{1b}[0m"), "{text}");
        assert!(text.contains("\u{1b}[33mNotFound\u{1b}[0m"), "{text}");
    }

    #[test]
    fn the_state_of_a_polled_object_says_so() {
        let now = SystemTime::now();
        let mut rows = rows(now);
        for facts in rows.values_mut() {
            facts.polled = true;
        }
        let mut text = Vec::new();
        let mut printer = Printer::new(Output::Table, None, &mut text).in_colour();
        let all: Vec<_> = rows.iter().collect();
        printer.changes(&all, now).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("\u{1b}[32mSynced (polled)\u{1b}[0m"),
            "{text}"
        );
        assert!(
            text.contains("\u{1b}[33mNotFound (polled)\u{1b}[0m"),
            "{text}"
        );
    }

    /// What YAML's readers make of it is what JSON's make of the other.
    #[test]
    fn yaml_says_what_json_says() {
        let now = SystemTime::now();
        let text = printed(Output::Yaml, &["idle", "web-1"], &rows(now), now);
        assert_eq!(
            text,
            "\
node: \"node-1\"
pods:
- name: \"idle\"
  namespace: \"shop\"
  objects: []
- name: \"web-1\"
  namespace: \"shop\"
  objects:
  - bytes: null
    immutable: null
    keys: null
    kind: \"ConfigMap\"
    name: \"flags\"
    reason: \"configmaps \\\"flags\\\" not [31m found\"
    resourceVersion: null
    state: \"NotFound\"
  - bytes: 64
    immutable: true
    keys: 2
    kind: \"Secret\"
    name: \"tls\"
    reason: null
    resourceVersion: \"1047\"
    state: \"Synced\"
"
        );
    }

    #[test]
    fn json_has_the_promised_shape_and_order_and_pods_without_objects() {
        let now = SystemTime::now();
        let text = printed(Output::Json, &["idle", "web-1"], &rows(now), now);
        let compact: String = text.split('\n').map(str::trim_start).collect();
        assert_eq!(
            compact,
            "{\"node\": \"node-1\",\"pods\": [\
             {\"namespace\": \"shop\",\"name\": \"idle\",\"objects\": []},\
             {\"namespace\": \"shop\",\"name\": \"web-1\",\"objects\": [\
             {\"kind\": \"ConfigMap\",\"name\": \"flags\",\"state\": \"NotFound\",\
             \"reason\": \"configmaps \\\"flags\\\" not [31m found\",\"resourceVersion\": null,\
             \"immutable\": null,\"keys\": null,\"bytes\": null},\
             {\"kind\": \"Secret\",\"name\": \"tls\",\"state\": \"Synced\",\"reason\": null,\
             \"resourceVersion\": \"1047\",\"immutable\": true,\"keys\": 2,\"bytes\": 64}]}]}"
        );
    }

    #[test]
    fn a_change_is_one_line_of_json_and_headers_are_written_once() {
        let now = SystemTime::now();
        let rows = rows(now);
        let changes: Vec<_> = rows.iter().collect();
        let mut text = Vec::new();
        let mut printer = Printer::new(Output::Json, Some("node-1"), &mut text);
        printer.changes(&changes, now).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 2);
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["pods"][0]["name"], "web-1");
        }

        let mut text = Vec::new();
        let mut printer = Printer::new(Output::Table, Some("node-1"), &mut text);
        printer.changes(&changes, now).unwrap();
        printer.changes(&changes, now).unwrap();
        assert_eq!(
            String::from_utf8(text)
                .unwrap()
                .matches("NAMESPACE")
                .count(),
            1
        );
    }
}
