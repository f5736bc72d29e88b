//! Kubeconfig files into one: the first file that names a cluster, a context, a user or the current context wins.

use std::collections::BTreeMap;
use std::path::Path;

use super::section::Section;
use super::yaml::{self, Node};
use crate::error::{Error, ErrorKind};
use crate::http::pem::read_bounded;

/// Files of a thousand contexts with inline certificates stay below.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// At most so many names are listed in a message.
const NAMES_MAX: usize = 10;

/// What all files say together.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) current_context: Option<String>,
    pub(super) clusters: Entries,
    pub(super) contexts: Entries,
    pub(super) users: Entries,
}

/// The entries of one list, by name.
#[derive(Debug, Default)]
pub(super) struct Entries(BTreeMap<String, Section>);

impl Entries {
    pub(super) fn get(&self, name: &str) -> Option<&Section> {
        self.0.get(name)
    }

    /// What could have been meant: `; there are: a, b`.
    pub(super) fn choices(&self) -> String {
        let names: Vec<_> = self.0.keys().take(NAMES_MAX).map(String::as_str).collect();
        let more = if self.0.len() > NAMES_MAX {
            ", …"
        } else {
            ""
        };
        match names.as_slice() {
            [] => "; there is none".to_owned(),
            names => format!("; there are: {}{more}", names.join(", ")),
        }
    }
}

impl Merged {
    /// Adds what `path` says beyond the files before it; `false` when there is no such file.
    pub(super) fn add_file(&mut self, path: &Path) -> Result<bool, Error> {
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(false);
        }
        let bytes = read_bounded(path, FILE_BYTES_MAX).map_err(|why| broken(path, &why))?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_position| broken(path, "holds bytes that are not text"))?;
        self.add_text(path, text)?;
        Ok(true)
    }

    /// Adds what a file's text says.
    pub(super) fn add_text(&mut self, path: &Path, text: &str) -> Result<(), Error> {
        let Some(root) = yaml::parse(text).map_err(|why| broken(path, &why))? else {
            return Ok(());
        };
        if !matches!(*root, Node::Mapping(_)) {
            let kind = root.kind();
            let why = format!("is no kubeconfig: it holds {kind}, not a mapping");
            return Err(broken(path, &why));
        }
        self.add_root(&Section::root(root, path))
    }

    fn add_root(&mut self, root: &Section) -> Result<(), Error> {
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
        add_entries(&mut self.clusters, root, "clusters", "cluster")?;
        add_entries(&mut self.contexts, root, "contexts", "context")?;
        add_entries(&mut self.users, root, "users", "user")
    }
}

fn broken(path: &Path, why: &str) -> Error {
    let message = format!("kubeconfig {}: {why}", path.display());
    Error::new(ErrorKind::Config, message)
}

fn add_entries(into: &mut Entries, root: &Section, list: &str, item: &str) -> Result<(), Error> {
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
    for (name, section) in of_this_file {
        into.0.entry(name).or_insert(section);
    }
    Ok(())
}
