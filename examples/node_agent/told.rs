//! What was told of which files, on the disk: what an agent had not told when it ended, the next
//! one tells.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::Error;
use kubecache::local_file::read_text;
use kubecache::object::{ObjectData, ObjectKey};
use kubecache::outlet::Outlet;
use parking_lot::Mutex;

use crate::managers::ObjectId;
use crate::references::reference;

/// Beside the outlet's marker.
const FILE: &str = ".kubecache.told";

/// More objects than a node has.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The object, and the label of who is told of it.
type Mark = (ObjectId, String);

/// The files of each object when they were told of: the name of their folder.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// `None`: nothing is kept.
    directory: Option<PathBuf>,
    marks: Mutex<BTreeMap<Mark, PathBuf>>,
}

impl Told {
    /// Reads what earlier agents told. A file that cannot be read is one of nothing.
    pub(crate) fn read(directory: &Path) -> Self {
        let file = directory.join(FILE);
        let text = match file.try_exists() {
            Ok(false) => String::new(),
            Ok(true) | Err(_) => read_text(&file, FILE_BYTES_MAX).unwrap_or_else(|error| {
                log::warn!("{error}; what was told is told again");
                String::new()
            }),
        };
        Self {
            directory: Some(directory.to_owned()),
            marks: Mutex::new(text.lines().filter_map(mark).collect()),
        }
    }

    /// The objects whose files have changed or gone, and nobody with that label was told.
    pub(crate) fn left(&self, outlet: &Outlet, label: &str) -> Result<BTreeSet<ObjectId>, Error> {
        let marks = self.marks.lock();
        let mut objects: BTreeSet<_> = marks.keys().map(|(object, _)| object.clone()).collect();
        objects.extend(published::<Secret>(outlet)?);
        objects.extend(published::<ConfigMap>(outlet)?);
        objects.retain(|object| {
            let told = marks.get(&(object.clone(), label.to_owned()));
            self.files(object).as_ref() != told
        });
        Ok(objects)
    }

    /// The files of these objects as they are.
    pub(crate) fn look(&self, objects: &BTreeSet<ObjectId>) -> BTreeMap<ObjectId, Option<PathBuf>> {
        let all = objects.iter();
        all.map(|object| (object.clone(), self.files(object)))
            .collect()
    }

    /// Keeps that somebody was told of these files.
    pub(crate) fn keep(&self, label: &str, told: BTreeMap<ObjectId, Option<PathBuf>>) {
        let Some(directory) = &self.directory else {
            return;
        };
        let mut marks = self.marks.lock();
        for (object, files) in told {
            let mark = (object, label.to_owned());
            match files {
                Some(files) => drop(marks.insert(mark, files)),
                None => drop(marks.remove(&mark)),
            }
        }
        let lines = marks.iter().map(|((object, label), files)| {
            let ObjectId { kind, key } = object;
            format!("{label} {kind} {key} {}\n", files.display())
        });
        let (file, new) = (directory.join(FILE), directory.join(format!("{FILE}.new")));
        let written = fs::write(&new, lines.collect::<String>());
        if let Err(error) = written.and_then(|()| fs::rename(&new, &file)) {
            log::warn!(
                "{}: {error}; another agent would tell again what was told",
                file.display()
            );
        }
    }

    fn files(&self, object: &ObjectId) -> Option<PathBuf> {
        let folder = if object.kind == "Secret" {
            Secret::FOLDER
        } else {
            ConfigMap::FOLDER
        };
        let path = [object.key.namespace(), folder, object.key.name(), "..data"];
        let path = self.directory.as_ref()?.join(PathBuf::from_iter(path));
        fs::read_link(path).ok()
    }
}

/// A line of the file.
fn mark(line: &str) -> Option<(Mark, PathBuf)> {
    let mut words = line.split(' ');
    let [label, kind, key, files] = [(); 4].map(|()| words.next());
    let object = reference(kind?, key?)?;
    Some(((object, label?.to_owned()), files?.into()))
}

fn published<K: ObjectData>(outlet: &Outlet) -> Result<BTreeSet<ObjectId>, Error> {
    let id = |key: ObjectKey| ObjectId {
        kind: K::resource().kind().to_owned().into(),
        key,
    };
    Ok(outlet.published::<K>()?.into_iter().map(id).collect())
}
