//! `--config`: a file that declares which objects are kept, as which files, and who is told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubecache::Error;
use kubecache::local_file::read_text;
use kubecache::yaml::Section;

use crate::credentials::{Declared, Source};
use crate::duration;
use crate::hook::HookOptions;
use crate::layout::{Absence, Combined, Format, Rules};
use crate::managers::ObjectId;
use crate::references::reference;
use crate::teller::{FIELD, Tells};
use crate::users;

/// Entries of more objects than a node has.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What the system takes.
const FILE_NAME_BYTES_MAX: usize = 255;

/// How long a run of an entry's program may take.
const EXEC_TIMEOUT: Duration = Duration::from_secs(30);

/// What a file declares.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Declaration {
    /// Where files are written, unless a flag says otherwise.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) credentials: Declared,
}

/// Objects that are kept, and what becomes of each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) what: What,
    pub(crate) rules: Rules,
    pub(crate) tells: Tells,
}

/// Which objects an entry is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    One(ObjectId),
    Selected(Selection),
    /// What the pods of a node name, and no other entry.
    Pods(Option<String>),
}

/// The objects of a namespace that have some labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Selection {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) labels: String,
}

impl Selection {
    /// Whether it is about objects of this kind and namespace.
    pub(crate) fn may_find(&self, object: &ObjectId) -> bool {
        self.kind == object.kind && self.namespace == object.key.namespace()
    }
}

impl Declaration {
    /// Reads a file. The error names file, line and field.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = read_text(file, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
        Self::parse(file, &text).map_err(|error| error.to_string())
    }

    fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        let root = Section::parse(file, text)?;
        root.only(&["directory", "entries", "credentials"])?;
        let mut entries = Vec::new();
        let mut names = BTreeSet::new();
        let mut objects = BTreeMap::new();
        for section in root.children("entries")? {
            let entry = entry(&section)?;
            if !names.insert(entry.name.clone()) {
                return Err(section.error("name", "another entry has it too"));
            }
            if let Some(other) =
                subject(&entry.what).and_then(|subject| objects.insert(subject, entry.name.clone()))
            {
                let (field, _) = which(&section)?;
                return Err(section.error(field, &format!("the entry {other:?} has it too")));
            }
            entries.push(Arc::new(entry));
        }
        let declaration = Self {
            directory: root.text("directory")?.map(PathBuf::from),
            entries,
            credentials: credentials(&root.child("credentials")?)?,
        };
        if declaration.entries.is_empty() && declaration.credentials.units.is_empty() {
            return Err(root.error("entries", "missing: declare an entry or a credential"));
        }
        Ok(declaration)
    }

    /// The objects that its entries name.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            What::One(object) => Some(object),
            What::Selected(_) | What::Pods(_) => None,
        })
    }

    pub(crate) fn selections(&self) -> impl Iterator<Item = (&Selection, &Arc<Entry>)> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            What::Selected(selection) => Some((selection, entry)),
            What::One(_) | What::Pods(_) => None,
        })
    }

    /// The entry about pods, and the node that it names.
    pub(crate) fn pods(&self) -> Option<(&Arc<Entry>, Option<&str>)> {
        self.entries.iter().find_map(|entry| match &entry.what {
            What::Pods(node) => Some((entry, node.as_deref())),
            What::One(_) | What::Selected(_) => None,
        })
    }
}

/// What two entries must not both be about.
fn subject(what: &What) -> Option<String> {
    Some(match what {
        What::One(object) => format!("{} {}", object.kind, object.key),
        What::Pods(_) => "pods".to_owned(),
        What::Selected(_) => return None,
    })
}

/// The kinds, by the fields that name one object or select several.
const KINDS: [(&str, &str, &str); 2] = [
    ("secret", "secrets", "Secret"),
    ("configMap", "configMaps", "ConfigMap"),
];

/// The field that says which objects an entry is about, and what it says.
fn which(section: &Section) -> Result<(&'static str, What), Error> {
    let mut found = Vec::new();
    for (one, several, kind) in KINDS {
        if let Some(name) = section.text(one)? {
            let object = reference(kind, name)
                .ok_or_else(|| section.error(one, &format!("{name:?}: write NAMESPACE/NAME")))?;
            found.push((one, What::One(object)));
        }
        if section.has(several) {
            let wanted = section.child(several)?;
            wanted.only(&["namespace", "labels"])?;
            let text = |field: &str| {
                let text = wanted.text(field)?.map(str::to_owned);
                text.ok_or_else(|| wanted.error(field, "missing"))
            };
            let (namespace, labels) = (text("namespace")?, text("labels")?);
            let selection = Selection {
                kind,
                namespace,
                labels,
            };
            found.push((several, What::Selected(selection)));
        }
    }
    if section.has("pods") {
        let pods = section.child("pods")?;
        pods.only(&["node"])?;
        let node = pods.text("node")?.map(str::to_owned);
        found.push(("pods", What::Pods(node)));
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => {
            let why = "missing: an entry has one of secret, configMap, secrets, configMaps, pods";
            Err(section.error("secret", why))
        }
        (Some(_), Some((second, _))) => Err(section.error(
            second,
            "an entry is about one thing: make another entry of it",
        )),
    }
}

fn entry(section: &Section) -> Result<Entry, Error> {
    section.only(&[
        "name",
        "secret",
        "configMap",
        "secrets",
        "configMaps",
        "pods",
        "items",
        "combine",
        "mode",
        "owner",
        "group",
        "missing",
        "deleted",
        "exec",
        "execTimeout",
        "signal",
        "debounce",
    ])?;
    let (field, what) = which(section)?;
    let name = match (section.text("name")?, section.text(field)) {
        (Some(name), _) => name.to_owned(),
        (None, Ok(Some(object))) => format!("{field} {object}"),
        (None, _) => match &what {
            What::Selected(of) => format!("{field} {} {}", of.namespace, of.labels),
            What::One(_) | What::Pods(_) => field.to_owned(),
        },
    };
    let mut rules = rules(section)?;
    if matches!(what, What::Selected(_)) && !section.has("deleted") {
        // Such objects come and go, and nobody would take their files away.
        rules.deleted = Absence::Remove;
    }
    Ok(Entry {
        name,
        what,
        rules,
        tells: tells(section)?,
    })
}

fn rules(section: &Section) -> Result<Rules, Error> {
    let mut rules = Rules::default();
    let mut add = |of: &Section, field: &str, combined: Combined| {
        let name = &combined.file;
        let leads_away = name.contains(['/', '\0']) || name.starts_with("..") || name == ".";
        if name.is_empty() || leads_away || name.len() > FILE_NAME_BYTES_MAX {
            return Err(of.error(field, &format!("{name:?} is no name of a file in a folder")));
        }
        let is_new = rules
            .files
            .insert(combined.file.clone(), combined)
            .is_none();
        let why = "another file of this entry has that name";
        is_new.then_some(()).ok_or_else(|| of.error(field, why))
    };
    let items = section.child("items")?;
    for key in items.fields() {
        let file = items
            .text(key)?
            .ok_or_else(|| items.error(key, "name the key's file"))?;
        add(&items, key, Combined::of_key(file, key))?;
    }
    for part in section.children("combine")? {
        part.only(&["file", "keys", "format"])?;
        let file = part
            .text("file")?
            .ok_or_else(|| part.error("file", "missing"))?;
        let keys = part.texts("keys")?.into_iter().map(str::to_owned);
        let format = match part.text("format")? {
            None | Some("concat") => Format::Concat,
            Some("env") => Format::Env,
            Some(_) => return Err(part.error("format", "write concat or env")),
        };
        let combined = Combined {
            file: file.to_owned(),
            keys: keys.collect(),
            format,
        };
        if combined.keys.is_empty() && format == Format::Concat {
            return Err(part.error("keys", "missing: name the keys in their order"));
        }
        add(&part, "file", combined)?;
    }
    if let Some(mode) = section.scalar("mode")? {
        let parsed = u32::from_str_radix(mode, 8).ok();
        let parsed = parsed.filter(|mode| mode & !0o777 == 0 && mode & 0o400 != 0);
        let why = "write a mode such as 0640, with which its owner can read";
        rules.mode = Some(parsed.ok_or_else(|| section.error("mode", why))?);
    }
    for (field, file, id) in [
        ("owner", users::PASSWD, &mut rules.user),
        ("group", users::GROUP, &mut rules.group),
    ] {
        if let Some(name) = section.scalar(field)? {
            *id = Some(users::id(file, name).map_err(|why| section.error(field, &why))?);
        }
    }
    for (field, absence) in [
        ("missing", &mut rules.missing),
        ("deleted", &mut rules.deleted),
    ] {
        *absence = match section.text(field)? {
            None | Some("keep") => Absence::Keep,
            Some("remove") => Absence::Remove,
            Some("fail") => Absence::Fail,
            Some(_) => return Err(section.error(field, "write keep, remove or fail")),
        };
    }
    Ok(rules)
}

fn tells(section: &Section) -> Result<Tells, Error> {
    let span = |field: &str| match section.scalar(field)? {
        None => Ok(None),
        Some(text) => {
            let span = duration::parse(text).map_err(|why| section.error(field, &why))?;
            Ok::<_, Error>(Some(span))
        }
    };
    let command: Vec<_> = section
        .texts("exec")?
        .into_iter()
        .map(str::to_owned)
        .collect();
    let signal = section.text("signal")?.map(PathBuf::from);
    let (limit, debounce) = (span("execTimeout")?, span("debounce")?);
    if section.has("exec") && command.iter().all(String::is_empty) {
        return Err(section.error("exec", "name a program and its arguments, as a list"));
    }
    for (field, is_given) in [
        ("execTimeout", limit.is_some()),
        ("debounce", debounce.is_some()),
    ] {
        if is_given && command.is_empty() && (field == "execTimeout" || signal.is_none()) {
            return Err(section.error(field, "the entry has no exec or signal"));
        }
    }
    let limit = limit.unwrap_or(EXEC_TIMEOUT);
    Ok(Tells {
        hook: HookOptions {
            label: FIELD,
            command,
            limit: (!limit.is_zero()).then_some(limit),
        },
        signal,
        debounce: debounce.unwrap_or_default(),
    })
}

fn credentials(units: &Section) -> Result<Declared, Error> {
    let mut declared = Declared::default();
    for unit in units.fields() {
        let of_unit = units.child(unit)?;
        let mut sources = BTreeMap::new();
        for name in of_unit.fields() {
            let section = of_unit.child(name)?;
            section.only(&["secret", "configMap", "key"])?;
            let (field, what) = which(&section)?;
            let What::One(object) = what else {
                return Err(section.error(field, "a credential is of one object"));
            };
            let key = section
                .text("key")?
                .ok_or_else(|| section.error("key", "missing"))?;
            let key = key.to_owned();
            sources.insert(name.to_owned(), Source { object, key });
        }
        declared.units.insert(unit.to_owned(), sources);
    }
    Ok(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Declaration, String> {
        let parsed = Declaration::parse(Path::new("/c"), text);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn an_entry_says_which_objects_as_which_files_and_who_is_told() {
        let declared = parse(
            "directory: /run/x\n\
             entries:\n\
             - {secret: shop/db, items: {password: db-password}, mode: 0640, owner: 7, \
             group: '8'}\n\
             - name: env\n  configMap: shop/flags\n  combine: [{file: a.env, format: env}]\n  \
             deleted: remove\n  missing: fail\n  exec: [/bin/reload, now]\n  debounce: 2s\n\
             - configMaps: {namespace: shop, labels: app=web}\n\
             - pods: {node: n1}\n\
             credentials:\n  app.service:\n    db: {secret: shop/cred, key: password}\n",
        )
        .unwrap();
        assert_eq!(declared.directory, Some(PathBuf::from("/run/x")));
        let names: Vec<_> = declared.entries.iter().map(|entry| &*entry.name).collect();
        let expected = ["secret shop/db", "env", "configMaps shop app=web", "pods"];
        assert_eq!(names, expected);
        let [db, env, ..] = declared.entries.as_slice() else {
            panic!("two entries");
        };
        assert_eq!(
            (db.rules.mode, db.rules.user, db.rules.group),
            (Some(0o640), Some(7), Some(8))
        );
        assert_eq!(db.rules.files["db-password"].keys, ["password"]);
        assert_eq!(env.rules.files["a.env"].format, Format::Env);
        assert_eq!(
            (env.rules.missing, env.rules.deleted),
            (Absence::Fail, Absence::Remove)
        );
        assert_eq!(env.tells.hook.command, ["/bin/reload", "now"]);
        assert_eq!(env.tells.debounce, Duration::from_secs(2));
        assert_eq!(declared.pods().unwrap().1, Some("n1"));
        assert_eq!(declared.selections().count(), 1);
        let objects: Vec<_> = declared
            .objects()
            .map(|object| object.key.to_string())
            .collect();
        assert_eq!(objects, ["shop/db", "shop/flags"]);
    }

    /// Files, and how the errors begin.
    const MISTAKES: &[(&str, &str)] = &[
        ("", "/c: entries: missing: declare an entry or a credential"),
        (
            "entries: 7\n",
            "/c: line 1: entries: must be a list, not a number: put it in quotes",
        ),
        ("entris: []\n", "/c: line 1: entris: no such field"),
        (
            "entries:\n- {}\n",
            "/c: line 2: entries[0].secret: missing: an entry has one of ",
        ),
        (
            "entries:\n- secret: db\n",
            "/c: line 2: entries[0].secret: \"db\": write NAMESPACE/NAME",
        ),
        (
            "entries:\n- secret: a/b\n  pods: {}\n",
            "/c: line 3: entries[0].pods: an entry is about",
        ),
        (
            "entries:\n- secret: a/b\n  mode: 0888\n",
            "/c: line 3: entries[0].mode: write a mode",
        ),
        (
            "entries:\n- secret: a/b\n  mode: 4755\n",
            "/c: line 3: entries[0].mode: write a mode",
        ),
        (
            "entries:\n- secret: a/b\n  mode: '044'\n",
            "/c: line 3: entries[0].mode: write a mode",
        ),
        (
            "entries:\n- secret: a/b\n  owner: no such user\n",
            "/c: line 3: entries[0].owner: ",
        ),
        (
            "entries:\n- secret: a/b\n  owner: 4294967295\n",
            "/c: line 3: entries[0].owner: ",
        ),
        (
            "entries:\n- secret: a/b\n  missing: no\n",
            "/c: line 3: entries[0].missing: must be text",
        ),
        (
            "entries:\n- secret: a/b\n  missing: skip\n",
            "/c: line 3: entries[0].missing: write keep",
        ),
        (
            "entries:\n- secret: a/b\n- secret: a/b\n",
            "/c: line 3: entries[1].name: another entry",
        ),
        (
            "entries:\n- secret: a/b\n- secret: a/b\n  name: x\n",
            "/c: line 3: entries[1].secret: the entry",
        ),
        (
            "entries:\n- secret: a/b\n  items: {a: f, b: f}\n",
            "/c: line 3: entries[0].items.b: another file",
        ),
        (
            "entries:\n- secret: a/b\n  combine: [{file: f}]\n",
            "/c: line 3: entries[0].combine[0].keys: missing",
        ),
        (
            "entries:\n- secret: a/b\n  exec: reload\n",
            "/c: line 3: entries[0].exec: must be a list of texts",
        ),
        (
            "entries:\n- secret: a/b\n  exec: []\n",
            "/c: line 3: entries[0].exec: name a program",
        ),
        (
            "entries:\n- secret: a/b\n  debounce: 1s\n",
            "/c: line 3: entries[0].debounce: the entry has no",
        ),
        (
            "entries:\n- secret: a/b\n  debounce: soon\n",
            "/c: line 3: entries[0].debounce: \"soon\" is no",
        ),
        (
            "entries:\n- secrets: {namespace: a}\n",
            "/c: line 2: entries[0].secrets.labels: missing",
        ),
        (
            "entries:\n- secret: a/b\n  secret: a/c\n",
            "/c: the key \"secret\" at line 3 stands twice",
        ),
        (
            "credentials: {u: {c: {pods: {}}}}\n",
            "/c: line 1: credentials.u.c.pods: no such field",
        ),
        (
            "credentials: {u: {c: {secret: a/b}}}\n",
            "/c: line 1: credentials.u.c.key: missing",
        ),
        ("entries: [\n", "/c: not YAML: "),
    ];

    #[test]
    fn each_mistake_names_its_line_and_field() {
        for (text, begin) in MISTAKES {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(*begin), "{text}: {error}");
        }
    }
}
