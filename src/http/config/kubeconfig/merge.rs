//! Merges kubeconfig files: the first file that names a cluster, context, user or current context
//! wins.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Error;
use crate::local_file::read_given;
use crate::object::visible;
use crate::yaml::{self, Node, Section};

/// Files with a thousand contexts and inline certificates are smaller.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How many names a message lists at most.
const NAMES_MAX: usize = 10;

/// The content of all files: the current context, and the entries of each list by name.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) current_context: Option<String>,
    pub(super) clusters: BTreeMap<String, Section>,
    pub(super) contexts: BTreeMap<String, Section>,
    pub(super) users: BTreeMap<String, Section>,
}

/// Lists the names of the entries, as `; there are: a, b`.
pub(super) fn choices(entries: &BTreeMap<String, Section>) -> String {
    let names: Vec<_> = entries.keys().take(NAMES_MAX).map(String::as_str).collect();
    let more = if entries.len() > NAMES_MAX {
        ", …"
    } else {
        ""
    };
    match names.as_slice() {
        [] => "; there is none".to_owned(),
        names => format!("; there are: {}{more}", names.join(", ")),
    }
}

impl Merged {
    /// Adds the file's entries that no earlier file has. Returns `false` if there is no such file.
    pub(super) fn add_file(&mut self, path: &Path) -> Result<bool, Error> {
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(false);
        }
        let bytes = read_given(path, FILE_BYTES_MAX).map_err(|why| broken(path, &why))?;
        let text = yaml::decode(bytes).map_err(|why| broken(path, &why))?;
        self.add_text(path, &text)?;
        Ok(true)
    }

    /// Adds the entries in the text of a file.
    pub(super) fn add_text(&mut self, path: &Path, text: &str) -> Result<(), Error> {
        let document = yaml::parse(text).map_err(|why| broken(path, &why))?;
        for warning in &document.warnings {
            log::warn!("kubeconfig {}: {}", path.display(), visible(warning));
        }
        let Some(root) = document.root else {
            return Ok(());
        };
        if !matches!(*root, Node::Mapping(_)) {
            let kind = root.kind();
            let why = format!("is no kubeconfig: it holds {kind}, not a mapping");
            return Err(broken(path, &why));
        }
        let root = Section::root(root, path);
        for (field, expected) in [("apiVersion", "v1"), ("kind", "Config")] {
            if let Some(found) = root.text(field)?
                && found != expected
            {
                return Err(root.error(
                    field,
                    &format!("must be {expected:?}: is this a kubeconfig?"),
                ));
            }
        }
        if self.current_context.is_none() {
            self.current_context = root.text("current-context")?.map(str::to_owned);
        }
        add_entries(&mut self.clusters, &root, "clusters", "cluster")?;
        add_entries(&mut self.contexts, &root, "contexts", "context")?;
        add_entries(&mut self.users, &root, "users", "user")
    }
}

fn broken(path: &Path, why: &str) -> Error {
    Error::config(format!("kubeconfig {}: {why}", path.display()))
}

fn add_entries(
    into: &mut BTreeMap<String, Section>,
    root: &Section,
    list: &str,
    item: &str,
) -> Result<(), Error> {
    let mut of_this_file = BTreeMap::new();
    for entry in root.children(list)? {
        let Some(name) = entry.text("name")? else {
            return Err(entry.error("name", "missing: each entry needs a name"));
        };
        let name = name.to_owned();
        let section = entry.named(format!("{list}[name={name}]")).child(item)?;
        if of_this_file.insert(name.clone(), section).is_some() {
            return Err(root.error(list, &format!("the name {name:?} stands twice")));
        }
    }
    // An entry of an earlier file wins.
    of_this_file.append(into);
    *into = of_this_file;
    Ok(())
}
