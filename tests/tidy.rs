//! Holds the house to its plan: arrows between rooms, file heads, sizes, and words that mark
//! unfinished work.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by panicking"
)]

mod behaviour_ids;
mod public_api;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Rooms every other room may use: the ground and the vocabulary.
const COMMON: [&str; 13] = [
    "sync", "clock", "worker", "object", "error", "failures", "guard", "hooks", "jobs", "policy",
    "retry", "rounds", "setters",
];

/// What each room may use besides the common ones. There are no other arrows.
const ARROWS: &[(&str, &[&str])] = &[
    ("sync", &[]),
    ("clock", &[]),
    ("worker", &[]),
    ("object", &[]),
    ("error", &[]),
    ("failures", &[]),
    ("guard", &[]),
    ("hooks", &[]),
    ("jobs", &[]),
    ("retry", &["policy"]),
    ("rounds", &[]),
    ("setters", &[]),
    ("policy", &[]),
    ("wire", &[]),
    ("list_watch", &["wire"]),
    ("yaml", &["wire"]),
    ("http", &["list_watch", "local_file", "wire", "yaml"]),
    ("reflector", &["list_watch"]),
    ("store", &["reflector", "list_watch"]),
    // A client waits for one object in a store that a reflector fills.
    ("wait_until", &["http", "reflector", "store"]),
    ("delta_fifo", &["reflector", "store", "list_watch"]),
    ("informer", &["reflector", "store", "list_watch"]),
    // A manager follows the pods of an informer.
    ("manager", &["informer", "reflector", "store", "list_watch"]),
    // It polls with a client.
    ("kubelet_pods", &["http", "list_watch"]),
    // It waits for caches of every kind.
    ("fence", &["manager", "store"]),
    ("unique_name", &[]),
    ("writer_lock", &[]),
    ("local_file", &["wire"]),
    (
        "outlet",
        &["local_file", "manager", "unique_name", "writer_lock"],
    ),
    (
        "snapshot",
        &[
            "local_file",
            "manager",
            "unique_name",
            "wire",
            "writer_lock",
        ],
    ),
    ("work_queue", &[]),
    ("pod_status", &[]),
    // Nobody imports it: owners are given its handles as hooks of their own.
    (
        "metrics",
        &["reflector", "informer", "manager", "store", "http"],
    ),
    // Nobody imports it: programs give it closures that ask the other rooms.
    ("endpoints", &["metrics"]),
    // Nobody imports it; as the top layer it may use what it plays or feeds.
    (
        "testing",
        &[
            "http",
            "wire",
            "list_watch",
            "reflector",
            "store",
            "informer",
            "manager",
            "pod_status",
            "snapshot",
            "yaml",
        ],
    ),
    // Pages for readers; neither it nor the crate's root holds logic.
    ("manual", &[]),
    ("lib", &[]),
];

/// What the ground may use of itself: it knows no Kubernetes word.
const GROUND: [(&str, &[&str]); 3] = [
    ("sync", &[]),
    ("clock", &["sync"]),
    ("worker", &["sync", "clock"]),
];

/// The floors of a folder from the ground up, and what each may use of those before it.
type Floors = &'static [(&'static str, &'static [&'static str])];

const FLOORS_OF_HTTP: Floors = &[
    ("calls", &[]),
    ("certificates", &[]),
    ("environment", &[]),
    ("requests", &[]),
    ("credentials", &["calls", "certificates", "environment"]),
    (
        "config",
        &["certificates", "credentials", "environment", "requests"],
    ),
    ("tls", &["calls", "certificates", "config", "credentials"]),
    (
        "connect",
        &[
            "calls",
            "certificates",
            "config",
            "credentials",
            "environment",
            "tls",
        ],
    ),
    (
        "client_metric",
        &["certificates", "credentials", "requests"],
    ),
    (
        "agent",
        &[
            "calls",
            "client_metric",
            "connect",
            "credentials",
            "requests",
        ],
    ),
    ("client_options", &["calls", "client_metric"]),
    (
        "client_context",
        &["agent", "calls", "client_options", "credentials"],
    ),
    ("watch_stream", &["agent", "calls", "client_context"]),
    (
        "lister_watcher",
        &[
            "agent",
            "calls",
            "client_context",
            "client_options",
            "requests",
            "watch_stream",
        ],
    ),
    (
        "client",
        &[
            "agent",
            "calls",
            "client_context",
            "client_metric",
            "client_options",
            "config",
            "connect",
            "credentials",
            "environment",
            "lister_watcher",
            "tls",
        ],
    ),
    (
        "send",
        &["agent", "calls", "client", "lister_watcher", "requests"],
    ),
    ("writes", &["calls", "client", "requests", "send"]),
];

const FLOORS_OF_WATCHES: Floors = &[
    ("state_machine", &[]),
    ("reflector_limit", &[]),
    ("read_history", &[]),
    ("run", &["reflector_limit"]),
    ("entry", &["read_history", "run", "state_machine"]),
    ("answer", &["entry", "state_machine"]),
    ("context", &["entry", "run", "state_machine"]),
    ("writer", &["context", "entry", "state_machine"]),
    ("sources", &["context", "entry", "run", "writer"]),
    (
        "starts",
        &[
            "context",
            "entry",
            "read_history",
            "reflector_limit",
            "run",
            "sources",
            "state_machine",
            "writer",
        ],
    ),
    (
        "keeper",
        &["context", "entry", "run", "starts", "state_machine"],
    ),
    (
        "store",
        &["entry", "keeper", "sources", "starts", "state_machine"],
    ),
];

/// The folders with floors.
const FLOORS: [(&str, Floors); 2] = [
    ("http", FLOORS_OF_HTTP),
    ("manager/watch", FLOORS_OF_WATCHES),
];

/// Words that have given way to those of the glossary: no type, function or file has one again.
const RETIRED: &[&str] = &[
    "Answers",
    "Books",
    "Ceiling",
    "Chore",
    "Chores",
    "Common",
    "Debt",
    "Demand",
    "Due",
    "Excused",
    "FailedSync",
    "Floor",
    "Front",
    "Giver",
    "Halt",
    "Handover",
    "Held",
    "Kinds",
    "Leaving",
    "Memory",
    "Moment",
    "Overdue",
    "Past",
    "Pile",
    "QueueOrder",
    "Roll",
    "Roster",
    "Shelf",
    "SinkEvent",
    "Site",
    "Spent",
    "Taker",
    "Trouble",
    "Works",
    "bunch",
    "come_to",
    "confused",
    "doubtful",
    "fate",
    "fill_room",
    "flight",
    "gets",
    "go_round",
    "halt",
    "hand",
    "hand_on",
    "handover",
    "hasten",
    "hear",
    "keep_house",
    "land",
    "lane",
    "lead",
    "lend",
    "orphan",
    "owed",
    "past",
    "promise",
    "reckon",
    "spent",
    "unseen",
    "vouch",
    "waited_for",
    "works",
];

/// Lines of code a file may have, tests and comments excluded.
const FILE_LINES_MAX: usize = 600;

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn room(&self) -> String {
        let inside = self.path.strip_prefix(root().join("src")).unwrap();
        let first = inside
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_string_lossy();
        first.trim_end_matches(".rs").to_owned()
    }

    /// The code a release is made of: no comments, and nothing that only tests have.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut end_of_test = None;
        self.text.lines().enumerate().filter(move |(_, line)| {
            let inner = line.trim_start();
            let indent = &line[..line.len() - inner.len()];
            let is_head = inner.starts_with("#[cfg(test)]") || inner.starts_with("#[cfg(all(test");
            match &end_of_test {
                None if is_head => end_of_test = Some(format!("{indent}}}")),
                None => return !inner.starts_with("//"),
                // An item of tests ends where it was indented, or is a line.
                Some(end) if inner.starts_with("#[") && line.starts_with(&end[1..]) => {}
                Some(end) => {
                    let is_one_line = *indent == end[..end.len() - 1] && line.ends_with([';', ',']);
                    if is_one_line || line.starts_with(&**end) {
                        end_of_test = None;
                    }
                }
            }
            false
        })
    }

    /// The path of its module in the crate, such as `["store", "index"]`.
    fn module(&self) -> Vec<String> {
        let inside = self.path.strip_prefix(root().join("src")).unwrap();
        let words = inside.with_extension("");
        let words = words.iter().map(|word| word.to_str().unwrap().to_owned());
        words.filter(|word| word != "mod").collect()
    }

    fn is_test_only(&self) -> bool {
        let name = self.path.file_stem().unwrap().to_string_lossy();
        let folder = self
            .path
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_string_lossy();
        matches!(&*name, "tests" | "schedules") || folder == "tests"
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() && name(&path) != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push(Source { path, text });
            }
        }
    }
    found
}

/// The rooms named in `crate::room` and in the heads of `use crate::{a::…, b::…}`.
fn rooms_used(code: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        // A path with a dollar is written in the code of a macro's caller.
        let is_other = |before: char| before.is_alphanumeric() || matches!(before, '_' | '$');
        if code[..at].ends_with(is_other) {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut word = String::new();
            for character in group.chars() {
                match character {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => word.clear(),
                    ':' if depth == 0 && !word.is_empty() => {
                        rooms.insert(std::mem::take(&mut word));
                    }
                    other if depth == 0 && other.is_alphanumeric() || other == '_' => {
                        word.push(other);
                    }
                    _ => {}
                }
            }
        } else {
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            rooms.insert(rest[..end].to_owned());
        }
    }
    rooms
}

#[test]
fn arrows_point_down() {
    let mut wrong = Vec::new();
    for source in rust_files("src")
        .iter()
        .filter(|source| !source.is_test_only())
    {
        let room = source.room();
        let (_, may_use) = ARROWS
            .iter()
            .find(|(name, _)| *name == room)
            .unwrap_or_else(|| panic!("{} is in no room of the plan", source.path.display()));
        let ground = GROUND.iter().find(|(name, _)| *name == room);
        let code: String = source
            .code()
            .map(|(_, line)| line)
            .collect::<Vec<_>>()
            .join("\n");
        for used in rooms_used(&code) {
            // The crate's root re-exports the error; a name in capitals is one of those.
            let is_room = used == room || used.starts_with(|first: char| first.is_uppercase());
            let allowed = match ground {
                Some((_, ground)) => ground.contains(&used.as_str()),
                None => COMMON.contains(&used.as_str()) || may_use.contains(&used.as_str()),
            };
            if !is_room && !allowed {
                wrong.push(format!("{}: {room} -> {used}", source.path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that are not in the plan:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_arrow_reader_reads_groups_and_paths() {
    let code = "use crate::{clock::{Clock, Deadline}, sync::Arc};\ncrate::wire::x(); krate::no";
    let rooms: Vec<_> = rooms_used(code).into_iter().collect();
    assert_eq!(rooms, ["clock", "sync", "wire"]);
}

/// The modules of `src/` by their path in the crate, such as `["store", "index"]`.
struct Modules(BTreeMap<Vec<String>, Module>);

/// What one file of the crate says of others.
#[derive(Default)]
struct Module {
    /// The paths that it names, from the crate's root.
    paths: Vec<Vec<String>>,
    /// The names that it passes on, with the paths where they are defined.
    exports: BTreeMap<String, Vec<String>>,
}

impl Modules {
    fn read() -> Self {
        let sources = rust_files("src");
        let shipped = sources.iter().filter(|source| !source.is_test_only());
        let named: Vec<_> = shipped.map(|source| (source.module(), source)).collect();
        let all: BTreeSet<_> = named.iter().map(|(path, _)| path.clone()).collect();
        let modules = named.iter().map(|(path, source)| {
            let code: Vec<_> = source.code().map(|(_, line)| line).collect();
            (path.clone(), Module::read(path, &code.join("\n"), &all))
        });
        Self(modules.collect())
    }

    /// The module in which what a path names is defined.
    fn defines(&self, path: &[String]) -> Option<Vec<String>> {
        let inside = (1..=path.len())
            .rev()
            .find(|at| self.0.contains_key(&path[..*at]))?;
        let exported = path
            .get(inside)
            .and_then(|name| self.0[&path[..inside]].exports.get(name));
        match exported {
            Some(defined) => self.defines(defined),
            None => Some(path[..inside].to_vec()),
        }
    }

    /// Which modules each of them knows, itself excluded.
    fn edges(&self) -> Edges {
        let known = |(path, module): (&Vec<String>, &Module)| {
            let used = module.paths.iter().filter_map(|used| self.defines(used));
            (path.clone(), used.filter(|used| used != path).collect())
        };
        self.0.iter().map(known).collect()
    }
}

/// Which modules, or parts of a folder, each of them knows.
type Edges = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

/// The modules of the crate.
static FILES: LazyLock<Edges> = LazyLock::new(|| Modules::read().edges());

/// Which parts of a folder each of them knows: its files, and its folders as a whole.
fn between_parts(folder: &[String], files: &Edges) -> Edges {
    let part = |path: &Vec<String>| {
        let inside = path.starts_with(folder).then_some(path)?;
        inside.get(..=folder.len()).map(<[_]>::to_vec)
    };
    let mut parts = Edges::new();
    for (from, known) in files {
        let Some(from) = part(from) else { continue };
        let known = known.iter().filter_map(part).filter(|to| *to != from);
        let known: Vec<_> = known.collect();
        parts.entry(from).or_default().extend(known);
    }
    parts
}

/// The sets of modules, or parts, that know each other, over others or not.
fn circles(edges: &Edges) -> Vec<BTreeSet<Vec<String>>> {
    let reached = |from: &Vec<String>| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            next.extend(edges[at].iter().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let all: BTreeMap<_, _> = edges.keys().map(|from| (from, reached(from))).collect();
    let mut circles = BTreeSet::new();
    for (from, seen) in &all {
        let back = seen.iter().filter(|to| all[to].contains(*from));
        circles.insert(back.cloned().collect::<BTreeSet<_>>());
    }
    circles
        .into_iter()
        .filter(|circle| !circle.is_empty())
        .collect()
}

impl Module {
    fn read(own: &[String], code: &str, all: &BTreeSet<Vec<String>>) -> Self {
        let mut module = Self::default();
        let is_inside = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$';
        let mut at = 0;
        while let Some(start) = code[at..].find(|c: char| c.is_alphabetic() || c == '_') {
            let start = at + start;
            let end = code[start..]
                .find(|c: char| !is_inside(c))
                .map_or(code.len(), |end| start + end);
            let before = &code[..start];
            at = end.max(start + 1);
            // Who may see an item is no use of that.
            if before.ends_with(is_inside)
                || before.ends_with("pub(in ")
                || !code[start..end].contains("::")
            {
                continue;
            }
            let mut paths = Vec::new();
            let first = code[start..].split("::").next().unwrap();
            let mut child = own.to_vec();
            child.push(first.to_owned());
            let root = match first {
                "crate" => Vec::new(),
                "self" | "super" => [own, &modules_around(before)].concat(),
                _ if all.contains(&child) => own.to_vec(),
                _ => continue,
            };
            at = start + expand(&code[start..], root, &mut paths);
            let line = before.rsplit('\n').next().unwrap().trim_start();
            if line.starts_with("pub") && line.ends_with("use ") {
                let named = paths
                    .iter()
                    .filter_map(|path| Some((path.last()?.clone(), path.clone())));
                module.exports.extend(named);
            } else {
                module.paths.extend(paths);
            }
        }
        module
    }
}

/// The names of the modules with a body that are open at the end of `before`.
fn modules_around(before: &str) -> Vec<String> {
    let mut open: Vec<(&str, &str)> = Vec::new();
    for line in before.lines() {
        let inner = line.trim_start();
        let indent = &line[..line.len() - inner.len()];
        if inner == "}" && open.last().is_some_and(|(at, _)| *at == indent) {
            open.pop();
        }
        let named = inner
            .rsplit_once("mod ")
            .and_then(|(_, name)| name.strip_suffix(" {"));
        open.extend(named.map(|name| (indent, name)));
    }
    open.iter().map(|(_, name)| (*name).to_owned()).collect()
}

/// Reads a path with its groups from `text`, adds each path it stands for, and tells how long it
/// is.
fn expand(text: &str, mut path: Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        if rest.starts_with('{') {
            at += 1;
            while !text[at..].starts_with('}') {
                at += text[at..].find(|c: char| !c.is_whitespace()).unwrap();
                at += expand(&text[at..], path.clone(), paths);
                at += text[at..]
                    .find(|c: char| c != ',' && !c.is_whitespace())
                    .unwrap();
            }
            return at + 1;
        }
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        match &rest[..end] {
            "crate" => path.clear(),
            "super" => drop(path.pop()),
            "self" => {}
            name => path.push(name.to_owned()),
        }
        at += end;
        if !text[at..].starts_with("::") {
            break;
        }
        at += 2;
        if !text[at..].starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '{') {
            break;
        }
    }
    // Under another name it is still the same.
    if let Some(renamed) = text[at..].strip_prefix(" as ") {
        let end = renamed.find(|c: char| !c.is_alphanumeric() && c != '_');
        at += 4 + end.unwrap_or(renamed.len());
    }
    paths.push(path);
    at
}

/// Files that know each other cannot be read one after the other.
#[test]
fn no_files_know_each_other_in_a_circle() {
    let circles = circles(&FILES);
    let named = circles.iter().map(|circle| {
        let names: Vec<_> = circle.iter().map(|path| path.join("/")).collect();
        names.join(", ")
    });
    let wrong: Vec<_> = named.collect();
    assert!(wrong.is_empty(), "circles of files:\n{}", wrong.join("\n"));
}

/// Parts of a folder that know each other cannot be read one after the other either, though none of
/// their files is in a circle.
#[test]
fn no_parts_of_a_folder_know_each_other_in_a_circle() {
    let folders = FILES.keys().filter_map(|path| path.split_last());
    let folders: BTreeSet<_> = folders.map(|(_, folder)| folder).collect();
    let mut found = Vec::new();
    for folder in folders {
        for circle in circles(&between_parts(folder, &FILES)) {
            let parts: Vec<_> = circle.iter().map(|path| &**path.last().unwrap()).collect();
            found.push(format!("{}: {}", folder.join("/"), parts.join(", ")));
        }
    }
    assert!(found.is_empty(), "circles of parts:\n{}", found.join("\n"));
}

#[test]
fn a_circle_of_folders_without_a_circle_of_files_is_found() {
    let edges = edges_of(&[("a/b/x", "a/c/y"), ("a/c/z", "a/b/w"), ("a/b/w", "a/d")]);
    assert_eq!(circles(&edges).len(), 0);
    let parts = between_parts(&words("a"), &edges);
    let found = circles(&parts);
    assert_eq!(found, [[words("a/b"), words("a/c")].into()]);
    assert_eq!(parts[&words("a/b")].len(), 2);
}

/// The arrows of `edges` from a part of a folder to another that its floor may not use.
fn arrows_up(folder: &str, floors: Floors, edges: &Edges) -> Vec<String> {
    let mut wrong = Vec::new();
    for (from, known) in between_parts(&words(folder), edges) {
        let from = from.last().unwrap();
        let Some((_, may_use)) = floors.iter().find(|(name, _)| name == from) else {
            wrong.push(format!("{folder}: {from} is on no floor"));
            continue;
        };
        let known = known.iter().map(|to| to.last().unwrap());
        let others = known.filter(|to| !may_use.contains(&to.as_str()));
        wrong.extend(others.map(|to| format!("{folder}: {from} -> {to}")));
    }
    wrong
}

#[test]
fn floors_use_only_those_below() {
    for (folder, floors) in FLOORS {
        let mut below: Vec<&str> = Vec::new();
        for (floor, may_use) in floors {
            let up: Vec<_> = may_use.iter().filter(|to| !below.contains(*to)).collect();
            assert!(up.is_empty(), "{folder}: {floor} is below {up:?}");
            below.push(floor);
        }
        let wrong = arrows_up(folder, floors, &FILES);
        assert!(wrong.is_empty(), "arrows up:\n{}", wrong.join("\n"));
    }
}

#[test]
fn an_arrow_up_between_floors_is_found() {
    let edges = edges_of(&[
        ("http/calls/slots", "http/tls/current"),
        ("http", "http/agent"),
    ]);
    let found = arrows_up("http", FLOORS_OF_HTTP, &edges);
    assert_eq!(found, ["http: calls -> tls"]);
    let edges = edges_of(&[("manager/watch/sources/poller", "manager/watch/keeper")]);
    let found = arrows_up("manager/watch", FLOORS_OF_WATCHES, &edges);
    assert_eq!(found, ["manager/watch: sources -> keeper"]);
}

fn words(path: &str) -> Vec<String> {
    path.split('/').map(str::to_owned).collect()
}

fn edges_of(arrows: &[(&str, &str)]) -> Edges {
    let mut edges = Edges::new();
    for (from, to) in arrows {
        edges.entry(words(to)).or_default();
        edges.entry(words(from)).or_default().insert(words(to));
    }
    edges
}

#[test]
fn the_reader_of_paths_reads_groups_names_and_exports() {
    let all = ["a", "a/b", "a/c"].map(words).into();
    let code = "pub use b::{B, c::C};\nuse super::{\n    d::{D, self}, e as f,\n};\n\
        c::go(crate::g::H::new());";
    let module = Module::read(&words("a"), code, &all);
    assert_eq!(module.exports["B"], words("a/b/B"));
    assert_eq!(module.exports["C"], words("a/b/c/C"));
    let paths: Vec<_> = module.paths.iter().map(|path| path.join("/")).collect();
    assert_eq!(paths, ["d/D", "d", "e", "a/c/go", "g/H/new"]);
}

#[test]
fn retired_words_do_not_come_back() {
    let heads = ["struct", "enum", "trait", "type", "fn", "mod"];
    let mut found = Vec::new();
    for source in rust_files("src") {
        for (number, line) in source.code() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            while let Some(word) = words.next() {
                let is_head = heads.contains(&word);
                if is_head
                    && words
                        .clone()
                        .next()
                        .is_some_and(|word| RETIRED.contains(&word))
                {
                    found.push(format!("{}:{}: {line}", source.path.display(), number + 1));
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "the glossary has other words:\n{}",
        found.join("\n")
    );
}

#[test]
fn every_file_says_its_purpose_first() {
    let folders = ["src", "tests", "examples", "benches"];
    let silent: Vec<_> = folders
        .iter()
        .flat_map(|folder| rust_files(folder))
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.path.display().to_string())
        .collect();
    assert!(
        silent.is_empty(),
        "files without a purpose in their head: {silent:?}"
    );
}

/// Columns that a line of text may have.
const COLUMNS_MAX: usize = 100;

/// The texts that people write here: sources, pages, settings and scripts.
fn texts() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let is_made = ["target", ".git", "fixtures"].contains(&name(&path));
            if path.is_dir() && !is_made {
                folders.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    found.retain(|path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension {
            Some(extension) => ["rs", "md", "toml"].contains(&extension),
            None => fs::read(path).unwrap().starts_with(b"#!"),
        }
    });
    found
}

#[test]
fn no_line_is_over_100_columns() {
    let mut long = Vec::new();
    for path in texts() {
        let inside = path.strip_prefix(root()).unwrap();
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let is_url = line.contains("https://") && line.split_whitespace().count() <= 2;
            if line.chars().count() > COLUMNS_MAX && !is_url {
                long.push(format!("{}:{}", inside.display(), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "long lines:\n{}", long.join("\n"));
}

#[test]
fn every_lock_has_a_rank() {
    let makers = [
        concat!("Mutex::", "new("),
        concat!("Monitor::", "new("),
        concat!("Mutex::", "default("),
        concat!("Monitor::", "default("),
    ];
    let sources = rust_files("src");
    let shipped = sources.iter().filter(|source| {
        let room = source.room();
        !source.is_test_only() && room != "sync" && room != "testing"
    });
    let unranked: Vec<_> = shipped
        .flat_map(|source| {
            let lines = source.code().filter(|(_, line)| {
                let is_of_process = line.contains("ProcessMutex");
                !is_of_process && makers.iter().any(|maker| line.contains(maker))
            });
            lines.map(|(number, _)| format!("{}:{}", source.path.display(), number + 1))
        })
        .collect();
    assert!(unranked.is_empty(), "locks without a rank: {unranked:?}");
}

/// The name of the type that a line of code at the margin begins to define.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        rest.map_or(&line["pub".len()..], |(_, rest)| rest)
    });
    let (word, rest) = line.trim_start().split_once(' ')?;
    let defines = ["struct", "enum", "trait", "type"].contains(&word);
    let end = rest.find(|letter: char| !letter.is_alphanumeric());
    defines.then(|| &rest[..end.unwrap_or(rest.len())])
}

#[test]
fn a_line_that_defines_a_type_is_known() {
    for (line, expected) in [
        ("pub(crate) struct Store<K: Object> {", Some("Store")),
        ("pub(in crate::testing) enum End {", Some("End")),
        ("pub trait Sink: Send {", Some("Sink")),
        ("type Answer = Result<(), Error>;", Some("Answer")),
        ("pub fn store() {", None),
        ("    type Target = K;", None),
    ] {
        let at_the_margin = !line.starts_with(' ');
        let found = at_the_margin.then(|| defined_type(line)).flatten();
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn a_type_name_stands_in_one_room() {
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in rust_files("src") {
        if source.is_test_only() {
            continue;
        }
        let lines = source.code().filter(|(_, line)| !line.starts_with(' '));
        for name in lines.filter_map(|(_, line)| defined_type(line)) {
            let rooms = rooms.entry(name.to_owned()).or_default();
            rooms.insert(source.room());
        }
    }
    rooms.retain(|_, rooms| rooms.len() > 1);
    assert!(rooms.is_empty(), "types in several rooms: {rooms:?}");
}

#[test]
fn files_stay_small() {
    let long: Vec<_> = rust_files("src")
        .iter()
        .filter(|source| !source.is_test_only())
        .map(|source| {
            let lines = source
                .code()
                .filter(|(_, line)| !line.trim().is_empty())
                .count();
            (source.path.display().to_string(), lines)
        })
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .collect();
    assert!(
        long.is_empty(),
        "files over {FILE_LINES_MAX} lines of code: {long:?}"
    );
}

#[test]
fn nothing_sleeps_and_nothing_is_left_undone() {
    let banned = [
        concat!("thread::", "sleep("),
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("#[ig", "nore]"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
    ];
    let mut found = Vec::new();
    for source in ["src", "tests", "examples", "benches"]
        .iter()
        .flat_map(|f| rust_files(f))
    {
        for (number, line) in source.text.lines().enumerate() {
            for word in banned.iter().filter(|word| line.contains(**word)) {
                found.push(format!("{}:{}: {word}", source.path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A test that looks again and again does so by `until`, which ends a wait in vain and names its
/// place: a loop of the test's own would hang, and say nothing.
#[test]
fn a_test_looks_again_and_again_only_by_until() {
    const YIELD: &str = concat!("yield", "_now");
    /// How often it stands in a file: in `until`, and where a test gives way and waits for nothing.
    const MAY: [(&str, usize); 4] = [
        ("src/tests/until.rs", 1),
        ("src/manager/tests/namespaces.rs", 2),
        ("src/manager/tests/ttl_promises.rs", 3),
        ("tests/sockets/slots.rs", 1),
    ];
    let mut wrong = Vec::new();
    let sources = ["src", "tests"].into_iter().flat_map(rust_files);
    for source in sources.filter(|source| name(&source.path) != "schedules.rs") {
        let inside = source.path.strip_prefix(root()).unwrap();
        let may = MAY.iter().find(|(path, _)| inside == Path::new(path));
        let may = may.map_or(0, |(_, count)| *count);
        let uses = source.text.lines().filter(|line| line.contains(YIELD));
        let count = uses.count();
        if count != may {
            wrong.push(format!("{}: {count}, not {may}", inside.display()));
        }
    }
    assert!(wrong.is_empty(), "{YIELD}: wait by `until`: {wrong:#?}");
}

#[test]
fn only_the_adapter_knows_ureq_and_rustls() {
    let mut wrong = Vec::new();
    for source in rust_files("src")
        .iter()
        .filter(|source| !source.is_test_only())
    {
        let adapter = matches!(source.room().as_str(), "http" | "testing");
        for (number, line) in source.code().filter(|_| !adapter) {
            if line.contains("ureq::") || line.contains("rustls::") {
                wrong.push(format!("{}:{}", source.path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A panic of a program's own code is caught in one place, which gives it the one error. The other
/// places are the ends of threads: of a worker, and of a reflector, which says so first.
#[test]
fn only_the_guard_and_the_ends_of_threads_catch_panics() {
    const MAY: [&str; 3] = ["guard.rs", "worker/mod.rs", "reflector/driver.rs"];
    let mut wrong = Vec::new();
    for source in rust_files("src")
        .iter()
        .filter(|source| !source.is_test_only())
    {
        let inside = source.path.strip_prefix(root().join("src")).unwrap();
        let may = MAY.iter().any(|path| inside == Path::new(path));
        for (number, line) in source.code().filter(|_| !may) {
            if line.contains("catch_unwind") {
                wrong.push(format!("{}:{}", source.path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A configuration comes from the environment that it is given. What else reads the process would
/// answer differently, and no test could tell it what to read.
#[test]
fn only_the_environment_reads_the_process() {
    const READS: [&str; 7] = [
        "env::var",
        "env::vars",
        "env::current_dir",
        "env::home_dir",
        "env::temp_dir",
        "use std::env",
        "path::absolute",
    ];
    let mut wrong = Vec::new();
    for source in rust_files("src")
        .iter()
        .filter(|source| !source.is_test_only())
    {
        let may = source.path.ends_with("src/http/environment.rs");
        for (number, line) in source.code().filter(|_| !may) {
            if READS.iter().any(|read| line.contains(read)) {
                wrong.push(format!("{}:{}", source.path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The library that counts can be replaced: no type of it is in the public face, which is the
/// room's first file, but the registry that a program may hand in.
#[test]
fn only_the_inside_of_metrics_knows_prometheus() {
    let mut wrong = Vec::new();
    for source in rust_files("src") {
        let inside = source.room() == "metrics" && name(&source.path) != "mod.rs";
        for (number, line) in source.code().filter(|_| !inside) {
            if line.contains("prometheus::") {
                wrong.push(format!("{}:{}", source.path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_fixture_is_used_or_explained() {
    let readme = fs::read_to_string(root().join("fixtures/README.md")).unwrap_or_default();
    let Ok(entries) = fs::read_dir(root().join("fixtures")) else {
        return;
    };
    let unexplained: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap() != "README.md")
        .filter(|path| !readme.contains(name(path)))
        .collect();
    assert!(
        unexplained.is_empty(),
        "not in fixtures/README.md: {unexplained:?}"
    );
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// A promise about a failure is worth what its test is, and so is the story of a fault.
#[test]
fn every_failure_and_every_fault_names_its_tests() {
    let code: String = ["src", "tests", "examples"]
        .iter()
        .flat_map(|folder| rust_files(folder))
        .map(|source| source.text)
        .collect();
    let mut wrong = Vec::new();
    for name in ["tests/failures.md", "tests/track_record.md"] {
        let page = fs::read_to_string(root().join(name)).unwrap();
        let entries: Vec<_> = page.split("\n- ").skip(1).collect();
        assert!(entries.len() > 40, "{name} has its entries");
        for entry in entries {
            let tests = entry.split_once("Tests: ").unwrap_or_default().1;
            // A heading, and what is said of its entries, may follow.
            let tests = tests.split("\n\n").next().unwrap_or_default();
            let mut names = tests.split('`').skip(1).step_by(2).peekable();
            if names.peek().is_none() {
                wrong.push(format!("{name}: no test: {entry}"));
            }
            for test in names.filter(|test| !code.contains(&format!("fn {test}("))) {
                wrong.push(format!("{name}: no such test: {test}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The texts by which an operator finds a symptom; `…` stands for what differs each time.
#[test]
fn every_text_that_the_page_for_operators_quotes_stands_in_the_code() {
    let page = fs::read_to_string(root().join("src/manual/failures.md")).unwrap();
    let code: String = ["src", "examples"]
        .iter()
        .flat_map(|folder| rust_files(folder))
        .filter(|source| !source.is_test_only())
        .map(|source| source.text.replace("\\\"", "\""))
        .collect();
    // A string that goes on in the next line is one text.
    let mut lines = code.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let code = lines.fold(first, |code, line| code + line.trim_start());
    let (mut quoted, mut missing) = (0, Vec::new());
    for symptom in page.split("**You see**").skip(1) {
        let seen = symptom.split("- **It means**").next().unwrap();
        let seen = seen.split_whitespace().collect::<Vec<_>>().join(" ");
        let texts = seen.split('`').skip(1).step_by(2);
        let parts = texts.flat_map(|text| text.split('…').map(str::trim));
        for part in parts.filter(|part| part.contains(' ')) {
            quoted += 1;
            if !code.contains(part) {
                missing.push(part.to_owned());
            }
        }
    }
    assert!(
        quoted > 40,
        "the page quotes what an operator sees: {quoted}"
    );
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A page as text: without code, headings, tables and pictures. Of a Rust file its first doc
/// comment.
fn prose(path: &str) -> String {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let is_rust = Path::new(path).extension().is_some_and(|end| end == "rs");
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let doc = line.strip_prefix("//!").map(str::trim);
        let Some(line) = (if is_rust { doc } else { Some(line) }) else {
            continue;
        };
        is_code ^= line.starts_with("```");
        if !is_code && !line.starts_with(['#', '|', '!']) {
            lines.push(line);
        }
    }
    let text = lines.join(" ");
    text.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// A stranger knows no word of Kubernetes or of this crate.
#[test]
fn the_first_pages_link_each_word_to_the_glossary_at_its_first_use() {
    const WORDS: [&str; 20] = [
        "kubelet",
        "Secret",
        "ConfigMap",
        "pod",
        "owner",
        "reflector",
        "delta FIFO",
        "informer",
        "handler",
        "client-go",
        "kube-rs",
        "kubeconfig",
        "API server",
        "bookmark",
        "streamed list",
        "time to live",
        "subresource",
        "credential plugin",
        "last-applied",
        "container runtime",
    ];
    const ROOMS: [&str; 7] = [
        "http",
        "informer",
        "store",
        "pod_status",
        "outlet",
        "snapshot",
        "testing",
    ];
    let rooms = ROOMS.map(|room| format!("src/{room}/mod.rs"));
    let pages = ["README.md", "src/lib.rs"].map(str::to_owned);
    let mut bare = Vec::new();
    for page in pages.iter().chain(&rooms) {
        let text = prose(page);
        let is_letter = |char: char| char.is_alphanumeric() || ['-', '_', '/'].contains(&char);
        for word in WORDS {
            let mut uses = text.match_indices(word).map(|(at, _)| text.split_at(at));
            let is_whole = |(before, behind): &(&str, &str)| {
                !before.ends_with(is_letter) && !behind[word.len()..].starts_with('-')
            };
            let first = uses.find(is_whole).map(|(before, _)| before);
            let in_link = |before: &str| before.rfind('[') > before.rfind(']');
            if first.is_some_and(|before| !in_link(before)) {
                bare.push(format!("{page}: {word}"));
            }
        }
    }
    assert!(bare.is_empty(), "no link at its first use: {bare:#?}");
}

#[test]
fn every_file_that_the_page_on_architecture_names_is_there() {
    let page = fs::read_to_string(root().join("src/manual/architecture.md")).unwrap();
    let named = page.split('`').skip(1).step_by(2);
    let is_file = |name: &&str| Path::new(name).extension().is_some_and(|end| end == "rs");
    let files: Vec<_> = named.filter(is_file).collect();
    assert!(files.len() > 20, "the page walks through the files by name");
    let there = |name: &&&str| root().join(name).exists() || root().join("src").join(name).exists();
    let missing: Vec<_> = files.iter().filter(|name| !there(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
