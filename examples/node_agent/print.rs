//! Rows as text: kubectl's kind of table, names, JSON or YAML.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::SystemTime;

use kubecache::manager::ObjectState;
use kubecache::object::{ObjectKey, visible};

use crate::args::Output;
use crate::duration;
use crate::rows::{ChangeJson, Facts, NodeJson, ObjectJson, PodJson, RowKey, State};
use crate::table::{NONE, Table};
use crate::{usage, yaml};

const HEADERS: [&str; 15] = [
    TIME,
    "NAMESPACE/POD",
    "OBJECT",
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

/// A column of rows that follow each other.
const TIME: &str = "TIME";

/// The columns of a narrow table alone, and of a wide one.
const NARROW: [&str; 2] = ["NAMESPACE/POD", "OBJECT"];
const WIDE: [&str; 10] = [
    "NAMESPACE",
    "POD",
    "KIND",
    "NAME",
    "VERSION",
    "IMMUTABLE",
    "KEYS",
    "BYTES",
    "AGE",
    "HEARD",
];

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
    /// A printer of all rows at once, or of rows that follow each other.
    pub(crate) fn new(output: Output, node: Option<&str>, follows: bool, to: W) -> Self {
        // The longest usual state, so that a later line stands under the first ones.
        let table = Table::new(HEADERS).at_least("STATE", "Forbidden".len());
        let hidden = if follows { &[][..] } else { &[TIME] };
        let table = table.without(hidden);
        Self {
            output,
            node: node.map(str::to_owned),
            to,
            table: if output == Output::Wide {
                table.without(&NARROW)
            } else {
                table.without(&WIDE).narrow(usage::COLUMNS, "REASON")
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
                let is_wide = self.output == Output::Wide;
                let cells = rows
                    .iter()
                    .map(|(key, facts)| cells(key, facts, now, is_wide));
                self.table.write(&mut self.to, &cells.collect::<Vec<_>>())?;
            }
            Output::Name => {
                // Several pods may name one object.
                let names: BTreeSet<_> = rows.iter().map(|(key, _)| key.object()).collect();
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

/// The time of the day in UTC.
fn time_of_day(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}Z", seconds % 60)
}

/// The terminal's code for a state's colour: an answer with content, one without, none yet.
fn colour(state: &str) -> &'static str {
    match state.trim_end_matches(" (polled)") {
        "Synced" | "Changed" => "\u{1b}[32m",
        "NotFound" | "Forbidden" | "Removed" | "Restored" => "\u{1b}[33m",
        _ => "\u{1b}[31m",
    }
}

fn cells(key: &RowKey, facts: &Facts, now: SystemTime, is_wide: bool) -> [String; HEADERS.len()] {
    let none = || NONE.to_owned();
    let content = facts.content.as_ref();
    let of = |cell: &dyn Fn(&crate::rows::Content) -> String| content.map_or_else(none, cell);
    let created = content.and_then(|content| content.created);
    let age = created.map(|created| now.duration_since(created).unwrap_or_default());
    let pod = if key.has_pod() { key.pod.name() } else { NONE };
    // A narrow table has room for what is wrong.
    let is_well = facts.state == State::Kept(ObjectState::Synced);
    let reason = facts.reason.clone().filter(|_| is_wide || !is_well);
    [
        time_of_day(now),
        format!("{}/{pod}", key.pod.namespace()),
        key.object(),
        key.pod.namespace().to_owned(),
        pod.to_owned(),
        key.kind.to_string(),
        key.name.clone(),
        facts.state_in_words(),
        of(&|content| content.resource_version.clone()),
        of(&|content| content.immutable.to_string()),
        of(&|content| content.keys.to_string()),
        of(&|content| content.bytes.to_string()),
        age.map_or_else(none, duration::age),
        facts.heard.map_or_else(none, duration::age),
        reason.unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rows::Content;
    use crate::tell::one_line;

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
            changed: false,
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
        Printer::new(output, Some("node-1"), false, &mut text)
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
    fn a_narrow_table_fits_80_columns_and_tells_below_what_is_wrong() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(20_000 * 86_400 + 3 * 3600 + 62);
        let mut rows = rows(now);
        for facts in rows.values_mut() {
            facts.reason = Some("a word of the server ".repeat(6).trim_end().to_owned());
        }
        let pod = "a-pod-with-a-name-that-is-long-7d9f8b6c5d-x2k4p";
        let gone = key(pod, "Secret", "a-secret-with-a-name-that-is-long");
        rows.insert(gone, Facts::removed());
        let mut text = Vec::new();
        let mut printer = Printer::new(Output::Table, None, true, &mut text);
        printer
            .changes(&rows.iter().collect::<Vec<_>>(), now)
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "\
TIME        NAMESPACE/POD                 OBJECT                       STATE
03:01:02Z   shop/a-pod-wi\u{2026}f8b6c5d-x2k4p   secret/a-secr\u{2026}that-is-long   Removed
03:01:02Z   shop/web-1                    configmap/flags              NotFound
    a word of the server a word of the server a word of the server a word of the
    server a word of the server a word of the server
03:01:02Z   shop/web-1                    secret/tls                   Synced
"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn what_a_person_asks_for() {
        let now = SystemTime::now();
        let rows = rows(now);
        let line = |text: &str| text.lines().next().unwrap().split_whitespace().count();
        assert_eq!(line(&printed(Output::Wide, &[], &rows, now)), 12);
        assert_eq!(line(&printed(Output::Table, &[], &rows, now)), 3);
        assert_eq!(
            printed(Output::Name, &[], &rows, now),
            "configmap/flags\nsecret/tls\n"
        );
        let mut text = Vec::new();
        let printer = Printer::new(Output::Table, Some("node-1"), false, &mut text);
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
        let mut printer = Printer::new(Output::Table, None, false, &mut text).in_colour();
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
        let mut printer = Printer::new(Output::Json, Some("node-1"), false, &mut text);
        printer.changes(&changes, now).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 2);
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["pods"][0]["name"], "web-1");
        }

        let mut text = Vec::new();
        let mut printer = Printer::new(Output::Table, Some("node-1"), false, &mut text);
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
