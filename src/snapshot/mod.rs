//! The content of [managers][manager] in a sealed file, for a [node][kubernetes] that boots while
//! its [API server][kubernetes] is away.
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use kubecache::manager::{ManagerOptions, SecretManager};
//! use kubecache::snapshot::{Snapshot, SnapshotKeyFile, SnapshotOptions};
//!
//! # use std::{fs, io::Write, os::unix::fs::OpenOptionsExt};
//! # let directory = std::env::temp_dir();
//! # let directory = directory.join(format!("kubecache-boot-{}", std::process::id()));
//! # fs::create_dir_all(&directory)?;
//! # let mut key = fs::OpenOptions::new();
//! # let mut key = key.write(true).create(true).mode(0o600).open(directory.join("key"))?;
//! # key.write_all(&[7; 32])?;
//! # let client = kubecache::testing::FakeSource::new();
//! let key = SnapshotKeyFile::new(directory.join("key")); // 32 bytes that only its owner reads
//! let snapshot = Snapshot::open(SnapshotOptions::new(directory.join("snapshot"), key))?;
//! let secrets = SecretManager::new(client, ManagerOptions::default())?;
//! snapshot.attach(&secrets)?; // from here on the file follows the manager
//! for owner in snapshot.restore(&secrets) {
//!     println!("{owner:?} has its references of the process before");
//! }
//! # drop((snapshot, secrets));
//! # std::fs::remove_dir_all(&directory)?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The program attaches a [`Snapshot`] to managers. Its thread writes their content after changes,
//! at the end, and once an hour while the server confirms unchanged content. The next process
//! attaches it to its own managers. Reads of a [referenced][manager] [object][objects] then have an
//! answer at once: the file's object, marked as stale, with its age. The server's first answer
//! about the object replaces it.
//!
//! The file is sealed with ChaCha20-Poly1305 under the program's key ([`SnapshotKey`]). Without the
//! key, no one can read a value in it, or change it unnoticed. A user who can write the file's
//! directory can put back an older file of the same node; the ages show that.
//!
//! [kubernetes]: crate::manual::glossary#kubernetes
//! [manager]: crate::manual::glossary#manager
//! [objects]: crate::manual::glossary#objects-and-the-server

mod attached;
mod content;
mod difference;
mod file;
mod key;
mod loaded;
mod object;
mod options;
mod seal;
mod text;

#[cfg(feature = "testing")]
pub(crate) use content::kinds_in;

pub use difference::SnapshotDifference;
pub use key::{SnapshotKey, SnapshotKeyFile};
pub use object::SnapshotObject;
pub use options::SnapshotOptions;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, bounded, select};

use self::attached::{Attached, AttachedManager};
use self::content::Parts;
use self::key::KeyBytes;
use self::loaded::{Loaded, Seeds};
use self::text::PlainText;
use crate::clock::{Clock, IntoDeadline};
use crate::error::{Error, ErrorKind, debug_of};
use crate::guard::guard_call;
use crate::manager::{ObjectManager, Owner};
use crate::object::ObjectKey;
use crate::rounds::Rounds;
use crate::sync::{Arc, Mutex, Rank};
use crate::worker::{StopToken, Worker};
use crate::writer_lock::WriterLock;

/// The status of a snapshot.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SnapshotStatus {
    /// When this process last wrote the file.
    pub written: Option<SystemTime>,
    /// The size of that file in bytes.
    pub bytes: usize,
    /// Why the last write failed, which leaves the earlier file whole; otherwise the first error of
    /// `left_out`. The snapshot tries again after the next interval.
    pub last_error: Option<Error>,
    /// The objects that this file leaves out because `write_json` failed or panicked. Each error
    /// names one.
    pub left_out: Vec<Error>,
}

/// The content of managers in a sealed file.
///
/// A drop writes once more, which blocks on the disk, and joins the thread. It waits less than a
/// second for the key. Until then the snapshot keeps the attached managers' content in memory. From
/// then on no reader gets an object of the file anew, and a manager may get another snapshot.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::manager::{ManagerOptions, Owner, SecretManager};
/// use kubecache::object::ObjectKey;
/// use kubecache::snapshot::{Snapshot, SnapshotKey, SnapshotOptions};
/// use kubecache::testing::{FakeSource, SourceFault, objects};
/// use k8s_openapi::api::core::v1::Secret;
/// use std::time::Duration;
///
/// // A program's own key; `SnapshotKeyFile` reads one from a file.
/// struct Sealed;
/// impl SnapshotKey for Sealed {
///     fn read(&self, to: &mut [u8; 32]) -> Result<(), kubecache::Error> {
///         to.fill(7);
///         Ok(())
///     }
/// }
/// # let directory = std::env::temp_dir().join(format!("kubecache-snap-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let options = SnapshotOptions::new(directory.join("snapshot"), Sealed);
/// let soon = Duration::from_secs(60);
/// let proxy = Owner::new("Service", ObjectKey::new("", "proxy"));
///
/// let server = FakeSource::<Secret>::new();
/// server.set(objects::secret("shop", "db", "", &[("password", "made-up")]));
/// let snapshot = Snapshot::open(options.clone())?;
/// let secrets = SecretManager::new(server, ManagerOptions::default())?;
/// snapshot.attach(&secrets)?;
/// secrets.add_reference(&proxy, &ObjectKey::new("shop", "db"));
/// secrets.get_by("shop", "db", soon)?;
/// drop((snapshot, secrets));
///
/// // The next process, whose server is away.
/// let away = FakeSource::<Secret>::new();
/// away.plan(|_request| Some(SourceFault::Hang));
/// let snapshot = Snapshot::open(options)?;
/// let secrets = SecretManager::new(away, ManagerOptions::default())?;
/// snapshot.attach(&secrets)?;
/// assert_eq!(snapshot.restore(&secrets), [proxy]);
/// let secret = secrets.get("shop", "db")?;
/// assert!(secret.is_stale());
/// println!("confirmed {:?} ago", secret.age());
/// # drop((snapshot, secrets));
/// # std::fs::remove_dir_all(&directory)?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot {
    core: Arc<SnapshotCore>,
    load_error: Option<Error>,
    _worker: Worker,
}

struct SnapshotCore {
    options: SnapshotOptions,
    loaded: Arc<Loaded>,
    claim_until: Option<Instant>,
    attached: Mutex<Vec<Arc<dyn Attached>>>,
    writes: Rounds<SnapshotStatus>,
}

/// The thread's memory between writes.
struct LastWrite {
    /// The hashes of the state in the file, and of the objects that it leaves out.
    state: Option<(u64, u64)>,
    /// Whether the present file was unusable, and may belong to another program.
    keeps_old: bool,
    /// The lock, without which no file is written.
    lock: Option<WriterLock>,
}

impl Snapshot {
    /// Reads the file, if there is one, and starts the thread `snapshot`.
    ///
    /// If the file is unusable, [`load_error`](Self::load_error) says why, and the snapshot starts
    /// without it. The first write appends `.unusable` to its name, and a number if such a file
    /// exists. A folder, a pipe or a link at the path stays, and each write fails.
    ///
    /// Until its drop, only this snapshot writes the file: it holds a lock on a file of the same
    /// name plus `.lock`.
    ///
    /// Blocks on the disk and on the program's key.
    ///
    /// # Errors
    ///
    /// - `Config`: the name is too long, or the key failed. Without a key the snapshot reads and
    ///   writes nothing.
    /// - `Config`: another process or snapshot writes the file. The message names the process.
    /// - `Panicked`: the key panicked.
    /// - `Resources`: the system refuses a thread.
    pub fn open(options: SnapshotOptions) -> Result<Self, Error> {
        if options.name.len() > seal::NAME_BYTES_MAX {
            let text = "the name of the snapshot is longer than 1024 bytes";
            return Err(Error::new(ErrorKind::Config, text));
        }
        let (lock, loaded) = options.read_on_a_thread()?;
        let path = options.path.display();
        let refused = |why: String| Error::config(format!("the snapshot {path}: {why}"));
        let lock = match lock {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(refused(error.to_string()));
            }
            // Reads still work; the first write will report the problem.
            Err(_) => None,
        };
        let (loaded, load_error) = match loaded {
            Ok(parts) => (parts, None),
            Err(why) => (Parts::new(), Some(refused(why))),
        };
        if let Some(error) = &load_error {
            log::warn!("{error}; it is not used");
        }
        let (writes, woken) = Rounds::new(SnapshotStatus::default());
        let now = Clock::system().now();
        let core = Arc::new(SnapshotCore {
            claim_until: now.checked_add(options.claim_within),
            options,
            loaded: Arc::new(Loaded(Mutex::ranked(Rank::SNAPSHOT_PARTS, loaded))),
            attached: Mutex::ranked(Rank::SNAPSHOT, Vec::new()),
            writes,
        });
        let on_thread = Arc::clone(&core);
        let mut last = LastWrite {
            state: None,
            keeps_old: load_error.is_some(),
            lock,
        };
        let worker = Worker::spawn("snapshot", move |stop| {
            let _ending = on_thread.writes.until_dropped(stop);
            on_thread.run(&woken, stop, &mut last);
        });
        let failed = |error| Error::new(ErrorKind::Resources, "thread snapshot").with_source(error);
        let worker = worker.map_err(failed)?;
        Ok(Self {
            core,
            load_error,
            _worker: worker,
        })
    }

    /// Returns why the existing file is unusable: it is damaged, cut off, too old, too large, not a
    /// snapshot, or was written with another key, name or format. The message names it.
    pub fn load_error(&self) -> Option<&Error> {
        self.load_error.as_ref()
    }

    /// Keeps the manager's objects from now on, and answers its readers from the file, for
    /// references added from now on.
    ///
    /// Reads return the file's object, with [`Cached::is_stale`](crate::manager::Cached::is_stale)
    /// and its age, until the server has answered about it. With `Cache`, a read still asks the
    /// server first. [`get_fresh`](ObjectManager::get_fresh) and
    /// [`get_at_least`](ObjectManager::get_at_least) never return it.
    ///
    /// # Errors
    ///
    /// `Config`: the manager keeps no objects (`Get`), it has another snapshot that was not
    /// dropped, or the snapshot has a manager of this kind.
    pub fn attach<K: SnapshotObject>(&self, manager: &ObjectManager<K>) -> Result<(), Error> {
        let why = "no snapshot of a manager with the strategy Get: it keeps no objects";
        let objects = manager.kept_objects().ok_or_else(|| Error::config(why))?;
        let kind = loaded::kind_of::<K>();
        let mut all = self.core.attached.lock();
        if all.iter().any(|other| other.kind() == kind) {
            let why = format!("the snapshot has a manager of {kind} already");
            return Err(Error::config(why));
        }
        let before = objects.seed_from(Arc::new(Seeds {
            loaded: Arc::downgrade(&self.core.loaded),
            on_difference: self.core.options.on_difference.clone(),
            of: PhantomData,
        }))?;
        all.push(Arc::new(AttachedManager { kind, objects }));
        drop(all);
        drop(before);
        Ok(())
    }

    /// Adds the references that owners had in the earlier process, and returns those owners. This
    /// is for programs that learn their owners from the server. Once you know them, remove those
    /// that are gone: call [`set_references`](ObjectManager::set_references) with none.
    ///
    /// An owner keeps the references that it has already; each counts once then. An owner whose
    /// references the program has removed stays gone. Call this before other threads change the
    /// manager's references: it may undo what they change meanwhile. A second call returns none.
    pub fn restore<K: SnapshotObject>(&self, manager: &ObjectManager<K>) -> Vec<Owner> {
        let loaded = &self.core.loaded;
        let objects = manager.kept_objects();
        let known = objects.map(|it| it.owners()).unwrap_or_default();
        let restored = loaded.owners::<K>().into_iter().filter(|(owner, keys)| {
            // At once: a file that is written meanwhile has all of them.
            let given = known.get(owner).into_iter().flatten();
            manager.set_references(owner, keys.iter().chain(given).cloned());
            loaded.claim_owner::<K>(owner)
        });
        restored.map(|(owner, _)| owner).collect()
    }

    /// Blocks until a file with the present content is written, or until `deadline`.
    ///
    /// # Errors
    ///
    /// [`SnapshotStatus::last_error`] after the write, even if the file only leaves an object out.
    /// `Timeout` at the deadline, or on the snapshot's own thread, such as in `write_json`.
    pub fn write_by(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&Clock::system());
        let what = format!("writing the snapshot {}", self.core.options.path.display());
        let error = self.core.writes.wait(&what, deadline)?.last_error;
        error.map_or(Ok(()), Err)
    }

    /// Returns the snapshot's status. Never blocks on the disk.
    pub fn status(&self) -> SnapshotStatus {
        self.core.writes.status().0
    }
}

debug_of!([] Snapshot, |it| path: it.core.options.path, status: it.status(), ..);

/// The lock of a file, and its parts or the reason why it is unusable.
type Opened = (io::Result<WriterLock>, Result<Parts, String>);

impl SnapshotOptions {
    /// Reads the key and the file on another thread. A thread that hangs in either takes no
    /// signals, and the caller's may be the main thread.
    fn read_on_a_thread(&self) -> Result<Opened, Error> {
        let options = self.clone();
        let (send, opened) = bounded(1);
        let reader = Worker::spawn("snapshot-open", move |_stop| {
            let opened = KeyBytes::of(&options.key).map(|key| {
                let lock = file::lock(&options.path);
                (lock, options.load(&key, SystemTime::now()))
            });
            drop(send.send(opened));
        });
        let reader = reader.map_err(|error| {
            Error::new(ErrorKind::Resources, "thread snapshot-open").with_source(error)
        })?;
        let opened = opened.recv();
        drop(reader);
        opened.unwrap_or_else(|_ended| Err(Error::stopped("reading the snapshot")))
    }

    /// The parts of the file; none without a file. Fails with the reason why it is unusable.
    fn load(&self, key: &KeyBytes, now: SystemTime) -> Result<Parts, String> {
        let most = self.bytes_max.saturating_add(seal::HEAD_BYTES_MAX);
        let read = file::read(&self.path, most).map_err(|error| error.to_string())?;
        let Some(mut sealed) = read else {
            return Ok(Parts::new());
        };
        let text = seal::open(key, &self.name, &mut sealed).map_err(|why| why.words(&self.name))?;
        let (written, parts) = content::read(text)
            .map_err(|line| format!("line {line} of its text is none that this program writes"))?;
        let age = now.duration_since(written).unwrap_or_default();
        match self.age_max {
            Some(most) if age > most => Err(format!(
                "it was written {} s ago, and {} s are allowed",
                age.as_secs(),
                most.as_secs()
            )),
            _ => Ok(parts),
        }
    }
}

impl SnapshotCore {
    fn run(&self, woken: &Receiver<()>, stop: &StopToken, last: &mut LastWrite) {
        let name = format!("the snapshot {}", self.options.path.display());
        // At this age the file would soon be too old for the next process.
        let ageing = self.options.age_max.and_then(|most| most.checked_div(2));
        let ageing = ageing.unwrap_or(Duration::MAX);
        loop {
            let is_asked = select! {
                recv(woken) -> _ => true,
                recv(stop.channel()) -> _ => true,
                default(self.options.interval) => false,
            };
            let is_last = stop.is_stopped();
            let began = self.writes.begin();
            let mut status = self.writes.status().0;
            let errors = status.last_error.iter().chain(&status.left_out);
            let mut told: HashSet<_> = errors.map(ToString::to_string).collect();
            let age = status.written.and_then(|written| written.elapsed().ok());
            if is_asked || age.is_none_or(|age| age >= ageing) {
                last.state = None;
            }
            // The manager's objects may run code of the program besides `write_json`.
            match guard_call(&name, || self.write(last, stop)) {
                Ok(Some((bytes, left_out))) => {
                    status = SnapshotStatus {
                        written: Some(SystemTime::now()),
                        bytes,
                        last_error: left_out.first().cloned(),
                        left_out,
                    };
                }
                Ok(None) => status.last_error = status.left_out.first().cloned(),
                Err(error) => status.last_error = Some(error),
            }
            for error in status.last_error.iter().chain(&status.left_out) {
                if told.insert(error.to_string()) {
                    log::error!("{error}; it is tried again");
                }
            }
            let error = status.last_error.as_ref();
            let gave_up = error.is_some_and(|error| error.kind() == ErrorKind::Timeout);
            self.writes.end(began, status);
            // Another read of the key would hold up the drop once more.
            if is_last || gave_up && stop.is_stopped() {
                return;
            }
        }
    }

    /// Writes the file if anything changed since the last write. Returns its size if it did, and
    /// the objects that it leaves out.
    fn write(
        &self,
        last: &mut LastWrite,
        stop: &StopToken,
    ) -> Result<Option<(usize, Vec<Error>)>, Error> {
        let path = self.options.path.display();
        let failed = |error: io::Error| {
            let text = if error.kind() == io::ErrorKind::FileTooLarge {
                let most = self.options.bytes_max;
                format!(
                    "the snapshot {path}: more than {most} bytes; SnapshotOptions::bytes_max \
                     raises the limit"
                )
            } else {
                format!("the snapshot {path}: {error}")
            };
            Error::new(ErrorKind::Resources, text).with_source(error)
        };
        let Some((state, parts, others)) = self.look() else {
            return Ok(None);
        };
        // An object that failed before may succeed now.
        if last.state == Some((state, sum_of(&[]))) {
            return Ok(None);
        }
        let mut text = PlainText::new(self.options.bytes_max);
        let mut left_out = Vec::new();
        content::write_head(&mut text, SystemTime::now()).map_err(failed)?;
        for (manager, unclaimed) in parts {
            let written = manager.write(&mut text, unclaimed, &mut left_out);
            written.map_err(failed)?;
        }
        for (kind, part) in &others {
            content::write_owners(&mut text, kind, &part.owners).map_err(failed)?;
            content::write_loaded(&mut text, &part.objects).map_err(failed)?;
        }
        let state = (state, sum_of(&left_out));
        if last.state == Some(state) {
            return Ok(None);
        }
        if last.lock.is_none() {
            last.lock = Some(file::lock(&self.options.path).map_err(failed)?);
        }
        let key = KeyBytes::until_stopped(&self.options.key, stop)?;
        let sealed = seal::seal(&key, &self.options.name, &mut text.bytes);
        drop(key);
        let (head, tag) = sealed.ok_or_else(|| {
            let text = format!("the snapshot {path}: the system has no random bytes to give");
            Error::new(ErrorKind::Resources, text)
        })?;
        let pieces = [&head[..], &text.bytes, &tag];
        file::replace(&self.options.path, &pieces, last.keeps_old).map_err(failed)?;
        // From here on the file is this process's own.
        last.keeps_old = false;
        file::sync_directory(&self.options.path).map_err(failed)?;
        last.state = Some(state);
        let bytes = [head.len(), text.bytes.len(), tag.len()];
        let what = format!("the snapshot {path} leaves an object out");
        let left_out = left_out.into_iter().map(|error| error.context(&what));
        Ok(Some((bytes.into_iter().sum(), left_out.collect())))
    }

    /// Returns a hash of the state, the managers with the unclaimed objects of their kinds, and the
    /// kinds whose managers are still to come. It is `None` before a manager is attached.
    fn look(&self) -> Option<(u64, Vec<AttachedPart>, Parts)> {
        if self.attached.lock().is_empty() {
            return None;
        }
        let now = Clock::system().now();
        if self.claim_until.is_some_and(|until| now >= until) {
            self.end_claims();
        }
        // Read before the managers' own objects: by then the entry of a claimed object has it.
        let mut others = self.loaded.0.lock().clone();
        let attached = self.attached.lock().clone();
        let mut state = DefaultHasher::new();
        let parts = attached.into_iter().map(|manager| {
            let unclaimed = others.remove(manager.kind()).unwrap_or_default();
            manager.add_state(&unclaimed, &mut state);
            (manager, unclaimed)
        });
        let parts = parts.collect();
        for (kind, part) in &others {
            let keys: Vec<_> = part.objects.keys().collect();
            (kind, &part.owners, keys).hash(&mut state);
        }
        Some((state.finish(), parts, others))
    }

    /// Drops what no process claims any more. An object that was referenced before its manager was
    /// attached stays until the server has answered about it.
    fn end_claims(&self) {
        let attached = self.attached.lock().clone();
        // What goes is dropped at the end, under no lock.
        let unclaimed = self.loaded.0.lock().clone();
        let mut awaited = HashSet::new();
        for (kind, part) in &unclaimed {
            let manager = attached.iter().find(|manager| manager.kind() == kind);
            let awaits = |key: &&ObjectKey| manager.is_some_and(|manager| manager.awaits(key));
            awaited.extend(part.objects.keys().filter(awaits).map(|key| (kind, key)));
        }
        self.loaded.0.lock().retain(|kind, part| {
            part.owners.clear();
            part.objects.retain(|key, _| awaited.contains(&(kind, key)));
            !part.objects.is_empty()
        });
    }
}

/// A manager, and the unclaimed objects of its kind.
type AttachedPart = (Arc<dyn Attached>, content::KindPart);

/// Hashes the objects that are left out, and the reasons.
fn sum_of(left_out: &[Error]) -> u64 {
    let mut sum = DefaultHasher::new();
    for error in left_out {
        error.to_string().hash(&mut sum);
    }
    sum.finish()
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;
