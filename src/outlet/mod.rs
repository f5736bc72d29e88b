//! Objects as files: each key of a [Secret][kubernetes] or [ConfigMap][kubernetes] is a file, and
//! an [object][objects] changes as a whole.
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use std::{sync::Arc, time::Duration};
//!
//! use kubecache::manager::{ManagerOptions, Owner, SecretManager};
//! use kubecache::object::ObjectKey;
//! use kubecache::outlet::{Outlet, OutletOptions, Publisher};
//!
//! # let source = kubecache::testing::FakeSource::new();
//! # source.set(kubecache::testing::objects::secret("shop", "db", "", &[("password", "made-up")]));
//! # let client = source;
//! # let directory = std::env::temp_dir();
//! # let directory = directory.join(format!("kubecache-files-{}", std::process::id()));
//! let secrets = SecretManager::new(client, ManagerOptions::default())?;
//! let proxy = Owner::new("Service", ObjectKey::new("", "proxy"));
//! secrets.add_reference(&proxy, &ObjectKey::new("shop", "db"));
//! secrets.get_by("shop", "db", Duration::from_secs(60))?; // or the reason why not
//! let outlet = Arc::new(Outlet::open(OutletOptions::new(&directory))?);
//! let publisher = Publisher::start(secrets, outlet, None)?; // until it is dropped
//! publisher.publish_by(Duration::from_secs(60))?; // its files are there
//! let password = std::fs::read(directory.join("shop/secrets/db/password"))?;
//! # drop(publisher);
//! # assert_eq!(password, b"made-up");
//! # std::fs::remove_dir_all(&directory)?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This is how services, virtual machines and plain processes of a [node][kubernetes] get Secrets,
//! as containers do. [`Outlet`] writes and removes files. A [`Publisher`] is a thread that makes an
//! outlet follow a [manager].
//!
//! The files of an object are at `DIR/NAMESPACE/secrets/NAME/KEY`, or `configmaps`. They are links
//! into a folder beside them, to which `..data` leads, as in the [kubelet][kubernetes]'s volumes. A
//! change writes another folder and then makes `..data` lead there, in one step. So a reader that
//! opens `..data` once sees all of the old or all of the new, whenever the writer is killed. For
//! such a reader replaced files stay for 10 s; withdrawn files go at once.
//!
//! Use a `tmpfs` for Secrets: written data can be found on a disk later.
//!
//! A directory is an outlet's if its [marker][outlet] says so, the file `.kubecache`. An outlet
//! makes the marker in a directory that is empty, or that has only files of an outlet. It refuses
//! any other, unless [`OutletOptions::adopt`] allows it. It removes only files and folders of the
//! layout above. One outlet at a time has a directory: a lock on it refuses the others, of other
//! processes too. An outlet refuses a directory in which others can write.
//!
//! [kubernetes]: crate::manual::glossary#kubernetes
//! [manager]: crate::manual::glossary#manager
//! [objects]: crate::manual::glossary#objects-and-the-server
//! [outlet]: crate::manual::glossary#outlet

mod folder;
mod layout;
mod object_folder;
mod options;
mod ownership;
mod publisher;

pub use layout::{Laid, Layout, Presence};
pub use options::OutletOptions;
pub use publisher::{Publisher, PublisherStatus};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};
use crate::guard::guard_call;
use crate::object::{Object, ObjectData, ObjectKey};
use crate::sync::{Arc, Mutex, Rank};
use folder::{Access, Folder, check_name};
use object_folder::{Check, Writing};
use ownership::{Claim, Notice};

/// How often a folder is opened again that another write made, or another removal removed.
const FOLDER_TRIES: usize = 20;

/// A directory in which objects are files.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::outlet::{Outlet, OutletOptions};
/// use kubecache::testing::objects;
///
/// # let directory = std::env::temp_dir().join(format!("kubecache-outlet-{}", std::process::id()));
/// let outlet = Outlet::open(OutletOptions::new(&directory))?;
/// let settings = objects::config_map("shop", "settings", "1", &[("tax", "7")]);
/// assert!(outlet.publish(&settings)?);
/// let tax = directory.join("shop/configmaps/settings/tax");
/// assert_eq!(std::fs::read(tax)?, b"7");
/// assert!(!outlet.publish(&settings)?, "nothing has changed");
/// # std::fs::remove_dir_all(&directory)?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Outlet {
    /// Locked while the directory is checked: a slow disk delays the callers that need it.
    root: Mutex<Arc<Claim>>,
    options: OutletOptions,
}

/// The result of writing an object's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The files are there, with this sum; `true` if they were written.
    Files(bool, u64),
    /// The layout keeps them as they are.
    Kept,
    /// They are gone; `true` if there were any.
    Removed(bool),
}

impl Outlet {
    /// Opens the directory of the options, and makes it with mode 0700 if it does not exist. It
    /// belongs to this outlet alone until the outlet is dropped.
    ///
    /// The outlet adopts a directory without a marker that has only files of an outlet. The log
    /// says so, and names the strays, which stay.
    ///
    /// Blocks on the disk, as all calls of an outlet do.
    ///
    /// # Errors
    ///
    /// `Config`, and the message names the directory:
    ///
    /// - It cannot be made, opened, locked or marked, or users other than root and the owner can
    ///   write in it.
    /// - Another process or outlet has it. The message names the process.
    /// - It has strays and no marker, or its marker has another name or is no marker.
    ///   [`OutletOptions::adopt`] takes it nevertheless.
    /// - Its marker is of a newer version of this crate.
    /// - The owner's user or group is no number that a system gives, or the name is unfit.
    pub fn open(options: OutletOptions) -> Result<Self, Error> {
        let directory = options.directory.display();
        let failed =
            |why: String| Error::config(format!("the output directory {directory}: {why}"));
        options.check().map_err(failed)?;
        let root = options.root();
        let root = root.map_err(|error| failed(error.to_string()).with_source(error))?;
        let (root, notice) = ownership::claim(root, &options).map_err(failed)?;
        tell(notice);
        Ok(Self {
            root: Mutex::ranked(Rank::OUTLET, Arc::new(root)),
            options,
        })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.options.directory
    }

    /// Writes the files of the object, unless they are there. Returns whether it wrote.
    ///
    /// Files have mode 0600 and folders 0700, unless the [`layout`](OutletOptions::layout) says
    /// otherwise. The first call after 10 s removes the files of an earlier content; strays stay.
    /// Calls for one object must not overlap.
    ///
    /// # Errors
    ///
    /// - `Config`: the namespace, the name or a key is no name of a file. Nothing is written.
    /// - `Config`: the layout has a name or a mode that no file can have. Nothing is written.
    /// - `Panicked`: the layout panicked; or the layout's own error. Nothing is written.
    /// - `Resources`: the system's own error, such as a full disk, with the file's path. The
    ///   earlier files are still there, whole. The next call tries again.
    /// - `Resources`: the directory is on another disk now, as after an unmount. An outlet writes
    ///   to no disk that it did not open. On the same disk it makes and claims the directory again.
    /// - `Resources`: the object's folder has files, and none of an outlet; or another program
    ///   changes the files again and again meanwhile.
    /// - `Resources`: users other than root and the owner can write in the directory or a folder,
    ///   or the marker was changed.
    pub fn publish<K: ObjectData>(&self, object: &K) -> Result<bool, Error> {
        let outcome = self.publish_checked(object, &|| Ok(()))?;
        let is_changed = matches!(outcome, Outcome::Files(true, _) | Outcome::Removed(true));
        Ok(is_changed)
    }

    /// Does the same, until the check fails.
    fn publish_checked<K: ObjectData>(
        &self,
        object: &K,
        check: Check<'_>,
    ) -> Result<Outcome, Error> {
        let (key, data) = (object.key(), object.data());
        path::<K>(&key)?;
        match self.lay_out::<K>(&key, Presence::There(&data))? {
            None => {
                for name in data.keys() {
                    let why = |why| refused::<K>(&key, &format!("key {name:?} {why}"));
                    check_name(name).map_err(why)?;
                }
                let access = Access::of_owner(self.options.owner);
                self.write::<K>(&key, &data, access, check)
            }
            Some(Laid::Files(layout)) => {
                layout.check().map_err(|why| refused::<K>(&key, &why))?;
                let files = layout.files.iter();
                let files = files.map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
                let access = layout.access(self.options.owner);
                self.write::<K>(&key, &files.collect(), access, check)
            }
            Some(Laid::Kept) => Ok(Outcome::Kept),
            Some(Laid::Removed) => Ok(Outcome::Removed(self.withdraw_checked::<K>(&key, check)?)),
        }
    }

    /// Asks the program's function, if there is one. Does not check its layout yet.
    fn lay_out<K: ObjectData>(
        &self,
        key: &ObjectKey,
        presence: Presence<'_>,
    ) -> Result<Option<Laid>, Error> {
        let Some(lay_out) = &self.options.layouts.0 else {
            return Ok(None);
        };
        let resource = K::resource();
        let kind = resource.kind();
        let port = format!("the layout of {kind} {key}");
        guard_call(port, || lay_out(kind, key, presence)).map(Some)
    }

    /// Asks the layout about the files of an object that the server does not have. Also returns
    /// whether there are any.
    fn lay_out_absent<K: ObjectData>(
        &self,
        key: &ObjectKey,
    ) -> Result<Option<(Laid, bool)>, Error> {
        if self.options.layouts.0.is_none() {
            return Ok(None);
        }
        let has_files = self.at::<K, _>(key, |path| match self.existing(path)? {
            Some(folder) => object_folder::has_files(&folder),
            None => Ok(false),
        })?;
        let presence = if has_files {
            Presence::Deleted
        } else {
            Presence::Missing
        };
        let laid = self.lay_out::<K>(key, presence)?;
        Ok(laid.map(|laid| (laid, has_files)))
    }

    fn write<K: ObjectData>(
        &self,
        key: &ObjectKey,
        data: &BTreeMap<&str, &[u8]>,
        access: Access,
        check: Check<'_>,
    ) -> Result<Outcome, Error> {
        let how = Writing {
            access,
            now: self.options.clock.wall_instant().since_epoch(),
            check,
        };
        let (is_written, sum) = self.at::<K, _>(key, |path| {
            object_folder::publish(&self.folder(path, access)?, data, how)
        })?;
        Ok(Outcome::Files(is_written, sum))
    }

    /// Works at the folder of an object, which an error of the disk names.
    fn at<K: ObjectData, T>(
        &self,
        key: &ObjectKey,
        work: impl FnOnce(&[&str; 3]) -> io::Result<T>,
    ) -> Result<T, Error> {
        let path = path::<K>(key)?;
        work(&path).map_err(|error| self.failed(&path, error))
    }

    /// Returns the folder of an object, and makes it if necessary. A write or removal of another
    /// object may make or remove a folder of the same path meanwhile.
    fn folder(&self, path: &[&str; 3], access: Access) -> io::Result<Folder> {
        let changed = [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists];
        for _ in 0..FOLDER_TRIES {
            match self.folder_once(path, access) {
                Err(error) if changed.contains(&error.kind()) => {}
                other => return other,
            }
        }
        self.folder_once(path, access)
    }

    fn folder_once(
        &self,
        [namespace, kind, name]: &[&str; 3],
        access: Access,
    ) -> io::Result<Folder> {
        let root = &self.root()?.folder;
        root.check_passage(access)?;
        let of_namespace = root.make(namespace, access, ownership::is_namespace)?;
        let of_kind = of_namespace.make(kind, access, ownership::is_kind)?;
        if let Some(there) = of_kind.child(name)? {
            object_folder::check(&there)?;
        }
        let folder = of_kind.make(name, access, |checked| Ok(!checked.names()?.is_empty()))?;
        folder.set_access(access)?;
        Ok(folder)
    }

    /// Returns the directory, which is still this outlet's. Claims one again that was removed or
    /// replaced.
    fn root(&self) -> io::Result<Arc<Claim>> {
        let mut root = self.root.lock();
        let mut notices = [None, None];
        if !root.folder.is_at(&self.options.directory)? {
            let claimed = ownership::claim(self.options.root()?, &self.options);
            let (claim, notice) = claimed.map_err(io::Error::other)?;
            (*root, notices[0]) = (Arc::new(claim), notice);
        }
        notices[1] = ownership::check(&root, &self.options)?;
        let claimed = Arc::clone(&root);
        drop(root);
        notices.into_iter().for_each(tell);
        Ok(claimed)
    }

    /// Sums up the files of an object, if readers find any. Another sum means that another program
    /// changed them.
    fn sum<K: ObjectData>(&self, key: &ObjectKey) -> Result<Option<u64>, Error> {
        self.at::<K, _>(key, |path| match self.existing(path)? {
            Some(folder) => object_folder::sum_if_there(&folder),
            None => Ok(None),
        })
    }

    /// Removes the files of an object that were replaced long enough ago. Returns whether others
    /// stay.
    fn sweep<K: ObjectData>(&self, key: &ObjectKey, check: Check<'_>) -> Result<bool, Error> {
        let now = self.options.clock.wall_instant().since_epoch();
        self.at::<K, _>(key, |path| match self.existing(path)? {
            Some(folder) => object_folder::sweep(&folder, now, check),
            None => Ok(false),
        })
    }

    /// Returns the folder of an object, if it exists. Fails if others can write in one that leads
    /// there.
    fn existing(&self, path: &[&str; 3]) -> io::Result<Option<Folder>> {
        let root = self.root()?;
        let mut folder = None;
        for name in path {
            let parent = folder.as_ref().unwrap_or(&root.folder);
            let Some(child) = parent.child(name)? else {
                return Ok(None);
            };
            child.check_private(self.options.owner)?;
            folder = Some(child);
        }
        Ok(folder)
    }

    /// Removes the files of an object, and the folders that are empty then. An object without files
    /// is no error. Strays stay.
    ///
    /// # Errors
    ///
    /// `Config` and `Resources`, as [`publish`](Self::publish).
    pub fn withdraw<K: ObjectData>(&self, key: &ObjectKey) -> Result<(), Error> {
        self.withdraw_checked::<K>(key, &|| Ok(())).map(drop)
    }

    /// Does the same, until the check fails. Returns whether there were files.
    fn withdraw_checked<K: ObjectData>(
        &self,
        key: &ObjectKey,
        check: Check<'_>,
    ) -> Result<bool, Error> {
        self.at::<K, _>(key, |path| self.remove(path, check))
    }

    fn remove(&self, path: &[&str; 3], check: Check<'_>) -> io::Result<bool> {
        let [namespace, kind, name] = path;
        let root = &self.root()?.folder;
        let Some(in_namespace) = root.child(namespace)? else {
            return Ok(false);
        };
        let mut had_files = false;
        if let Some(of_kind) = in_namespace.child(kind)? {
            if let Some(folder) = of_kind.child(name)? {
                had_files = object_folder::has_files(&folder)?;
                object_folder::withdraw(&folder, check)?;
                of_kind.remove_if_empty(name)?;
            }
            in_namespace.remove_if_empty(kind)?;
        }
        root.remove_if_empty(namespace)?;
        Ok(had_files)
    }

    /// Returns the objects of a kind that have a folder, those of earlier processes among them.
    /// Skips strays, and folders that cannot be opened.
    ///
    /// # Errors
    ///
    /// `Resources`, as [`publish`](Self::publish).
    pub fn published<K: ObjectData>(&self) -> Result<BTreeSet<ObjectKey>, Error> {
        let mut found = BTreeSet::new();
        let listed = (|| {
            let root = &self.root()?.folder;
            for namespace in root.names()? {
                let Some(in_namespace) = allowed(root.child(&namespace))? else {
                    continue;
                };
                let Some(of_kind) = allowed(in_namespace.child(K::FOLDER))? else {
                    continue;
                };
                for name in of_kind.names()? {
                    let key = ObjectKey::new(namespace.as_str(), name.as_str());
                    let folder = allowed(of_kind.child(&name))?.filter(|_| path::<K>(&key).is_ok());
                    if let Some(folder) = folder
                        && object_folder::is_of_outlet(&folder)?
                    {
                        found.insert(key);
                    }
                }
            }
            Ok(())
        })();
        listed.map_err(|error| self.failed(&[], error))?;
        Ok(found)
    }

    /// Where the files of an object are.
    fn path<K: ObjectData>(&self, key: &ObjectKey) -> PathBuf {
        let folder = [key.namespace(), K::FOLDER, key.name()];
        self.options.directory.join(PathBuf::from_iter(folder))
    }

    fn failed(&self, path: &[&str], error: io::Error) -> Error {
        let folder = self.options.directory.join(PathBuf::from_iter(path));
        let folder = folder.display();
        let text = format!("writing {folder}: {error}; what was there is kept");
        Error::new(ErrorKind::Resources, text).with_source(error)
    }
}

fn tell(notice: Notice) {
    if let Some(notice) = notice {
        log::warn!("{notice}");
    }
}

/// Skips a folder that this process may not open, because this process did not make it.
fn allowed(folder: io::Result<Option<Folder>>) -> io::Result<Option<Folder>> {
    match folder {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        other => other,
    }
}

/// The folders that lead to an object.
fn path<K: ObjectData>(key: &ObjectKey) -> Result<[&str; 3], Error> {
    let [namespace, name] = [key.namespace(), key.name()];
    for (what, text) in [("namespace", namespace), ("name", name)] {
        check_name(text).map_err(|why| refused::<K>(key, &format!("{what} {text:?} {why}")))?;
    }
    Ok([namespace, K::FOLDER, name])
}

fn refused<K: Object>(key: &ObjectKey, why: &str) -> Error {
    let kind = K::resource().kind().to_owned();
    Error::config(format!("{kind} {key} is not written: its {why}"))
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;
