//! What was told of which files, on the disk: what an agent had not told when it ended, the next
//! one tells.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
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

/// The object, the label of who was told of it, and its files then: the name of their folder.
type Mark = (ObjectId, String, PathBuf);

/// Objects with their files; `None` without any.
pub(crate) type Files = Vec<(ObjectId, Option<PathBuf>)>;

/// What was told, as far as it still is so.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// `None`: nothing is kept.
    directory: Option<PathBuf>,
    marks: Mutex<Vec<Mark>>,
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
        let mut objects: BTreeSet<_> = marks.iter().map(|(object, ..)| object.clone()).collect();
        objects.extend(published::<Secret>(outlet)?);
        objects.extend(published::<ConfigMap>(outlet)?);
        objects.retain(|object| {
            let mut marks = marks.iter();
            let told = marks.find(|(of, by, _)| of == object && by == label);
            self.files(object).as_ref() != told.map(|(.., files)| files)
        });
        Ok(objects)
    }

    /// The files of these objects as they are.
    pub(crate) fn look(&self, objects: &BTreeSet<ObjectId>) -> Files {
        let all = objects.iter();
        all.map(|object| (object.clone(), self.files(object)))
            .collect()
    }

    /// Keeps that somebody was told of these files.
    pub(crate) fn keep(&self, label: &str, told: Files) {
        let Some(directory) = &self.directory else {
            return;
        };
        let mut marks = self.marks.lock();
        for (object, files) in told {
            marks.retain(|(of, by, _)| *of != object || by != label);
            marks.extend(files.map(|files| (object, label.to_owned(), files)));
        }
        let lines = marks.iter().map(|(object, label, files)| {
            let ObjectId { kind, key } = object;
            format!("{label} {kind} {key} {}\n", files.display())
        });
        let file = directory.join(FILE);
        if let Err(error) = replace(&file, &lines.collect::<String>()) {
            let file = file.display();
            log::warn!("{file}: {error}; the next agent tells again what was told");
        }
    }

    /// The files of an object: what `..data` leads to.
    pub(crate) fn files(&self, object: &ObjectId) -> Option<PathBuf> {
        let folder = if object.kind == "Secret" {
            Secret::FOLDER
        } else {
            ConfigMap::FOLDER
        };
        let path = [object.key.namespace(), folder, object.key.name(), "..data"];
        let path = self.directory.as_ref()?.join(PathBuf::from_iter(path));
        let files = fs::read_link(path).ok()?;
        // Another user may own the folder, and lead the link anywhere.
        let number = files.to_str()?.strip_prefix("..")?;
        let is_ours = number.bytes().all(|byte| byte.is_ascii_digit());
        is_ours.then_some(files)
    }
}

/// Replaces a file in one step. Its folder may belong to a user with fewer rights, so this opens
/// nothing that is there.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("told-new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(&new);
    made?.write_all(text.as_bytes())?;
    fs::rename(&new, file)
}

/// A line of the file.
fn mark(line: &str) -> Option<Mark> {
    let mut words = line.split(' ');
    let [label, kind, key, files] = [(); 4].map(|()| words.next());
    let object = reference(kind?, key?)?;
    Some((object, label?.to_owned(), files?.into()))
}

fn published<K: ObjectData>(outlet: &Outlet) -> Result<BTreeSet<ObjectId>, Error> {
    let id = |key: ObjectKey| ObjectId {
        kind: K::resource().kind().to_owned().into(),
        key,
    };
    Ok(outlet.published::<K>()?.into_iter().map(id).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::temp_directory::TempDirectory;

    /// Seen: root wrote through a link that the owner of the directory had made.
    #[test]
    fn what_is_kept_follows_no_link_and_is_for_the_agent_alone() {
        let directory = TempDirectory::new("agent-told");
        let target = directory.join("target");
        fs::write(&target, "as it was").unwrap();
        for name in [".kubecache.told", ".kubecache.told-new"] {
            symlink(&target, directory.join(name)).unwrap();
        }
        let object = reference("secret", "shop/db").unwrap();
        let folder = directory.join("shop/secrets/db");
        fs::create_dir_all(&folder).unwrap();
        let link = folder.join("..data");
        for (leads_to, is_ours) in [("..1\nexec Secret shop/other ..2", false), ("..12", true)] {
            drop(fs::remove_file(&link));
            symlink(leads_to, &link).unwrap();
            let told = Told::read(&directory);
            let files = told.look(&[object.clone()].into());
            assert_eq!(files[0].1.is_some(), is_ours, "{leads_to}");
            told.keep("exec", files);
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "as it was");
        let file = directory.join(FILE);
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "exec Secret shop/db ..12\n"
        );
        let mode = fs::symlink_metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
}
