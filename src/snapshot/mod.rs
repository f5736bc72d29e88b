//! The content of managers in a sealed file, for a node that boots while its API server is away.
//!
//! A [`Snapshot`] is attached to managers. Its thread writes what they hold after changes, at the
//! end, and once an hour while the server confirms what is unchanged. The next process attaches it
//! to its own managers. Then an object that is referenced has an answer at once: what the file has,
//! marked as stale, with its age. The server's first word about the object takes its place.
//!
//! The file is sealed with ChaCha20-Poly1305 under a key of the program's ([`SnapshotKey`]). Nobody
//! without the key reads a value in it, or changes it unnoticed. Who can write the file's directory
//! can put an older file of the same node back; the ages tell.

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
use crate::rounds::Rounds;
use crate::sync::{Arc, Mutex, Rank};
use crate::worker::{StopToken, Worker};
use crate::writer_lock::WriterLock;

/// How a snapshot stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SnapshotStatus {
    /// When this process wrote the file last.
    pub written: Option<SystemTime>,
    /// The size of that file in bytes.
    pub bytes: usize,
    /// Why the last write failed; the file of before is still there, whole. Else the first of
    /// `left_out`. The next interval tries again.
    pub last_error: Option<Error>,
    /// The objects that this file leaves out, because `write_json` failed or panicked: each error
    /// names one.
    pub left_out: Vec<Error>,
}

/// The content of managers in a sealed file.
///
/// A drop writes once more, which blocks on the disk, and joins the thread. It waits less than a
/// second for the key. The snapshot holds the content of the attached managers in memory until
/// then.
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

/// What the thread remembers from write to write.
struct LastWrite {
    /// What tells the state in the file from others, and which objects it leaves out, as a sum.
    state: Option<(u64, u64)>,
    /// Whether the file that is there could not be used, and is somebody's perhaps.
    keeps_old: bool,
    /// No file is written without it.
    lock: Option<WriterLock>,
}

impl Snapshot {
    /// Reads the file, if there is one, and starts the thread, which is called `snapshot`.
    ///
    /// A file that cannot be used is [`load_error`](Self::load_error), and the start is one without
    /// it. The first write renames it to its name with `.unusable` behind it, and a number if there
    /// is such a file.
    ///
    /// The file is this snapshot's alone until the snapshot is dropped: by a lock on the file that
    /// has its name with `.lock` behind it.
    ///
    /// Blocks on the disk, and on the program's key.
    ///
    /// # Errors
    ///
    /// - `Config`: the name is too long, or the error of the key. Without a key nothing is read or
    ///   written.
    /// - `Config`: another process or snapshot writes the file. The message names the process.
    /// - `Panicked`: the key panicked.
    /// - `Resources`: the system has no thread to give.
    pub fn open(options: SnapshotOptions) -> Result<Self, Error> {
        if !seal::is_name(&options.name) {
            let text = "the name of the snapshot is longer than 1024 bytes";
            return Err(Error::new(ErrorKind::Config, text));
        }
        let (lock, loaded) = options.read_on_a_thread()?;
        let lock = match lock {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let text = format!("the snapshot {}: {error}", options.path.display());
                return Err(Error::new(ErrorKind::Config, text));
            }
            // Of use for a read nevertheless; the first write tells what is wrong.
            Err(_) => None,
        };
        let (loaded, load_error) = match loaded {
            Ok(parts) => (parts, None),
            Err(why) => {
                let text = format!("the snapshot {}: {why}", options.path.display());
                (Parts::new(), Some(Error::new(ErrorKind::Config, text)))
            }
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
            let _ending = on_thread.writes.until_dropped();
            on_thread.run(&woken, stop, &mut last);
        });
        let worker = worker.map_err(|error| {
            Error::new(ErrorKind::Resources, "thread snapshot").with_source(error)
        })?;
        Ok(Self {
            core,
            load_error,
            _worker: worker,
        })
    }

    /// Why the file that was there is not used: it is damaged, cut off, too old, too large, no
    /// snapshot, or was written with another key, name or form. The message names it.
    pub fn load_error(&self) -> Option<&Error> {
        self.load_error.as_ref()
    }

    /// Keeps the objects of a manager from now on, and answers its readers from the file, for
    /// references that are added from now on.
    ///
    /// Reads get the file's object, with [`Cached::is_stale`](crate::manager::Cached::is_stale) and
    /// its age, until the server has been heard about it. With `Cache` a read still asks the server
    /// first. [`get_fresh`](ObjectManager::get_fresh) and
    /// [`get_at_least`](ObjectManager::get_at_least) never get it.
    ///
    /// # Errors
    ///
    /// `Config`: the manager keeps no objects (`Get`), or has a snapshot already, or the snapshot
    /// has a manager of this kind.
    pub fn attach<K: SnapshotObject>(&self, manager: &ObjectManager<K>) -> Result<(), Error> {
        let refused = |why: &str| Error::new(ErrorKind::Config, why.to_owned());
        let objects = manager.kept_objects();
        let objects = objects.ok_or_else(|| {
            refused("no snapshot of a manager with the strategy Get: it keeps no objects")
        })?;
        let kind = loaded::kind_of::<K>();
        let mut all = self.core.attached.lock();
        if all.iter().any(|other| other.kind() == kind) {
            return Err(refused(&format!(
                "the snapshot has a manager of {kind} already"
            )));
        }
        objects.seed_from(Box::new(Seeds {
            loaded: Arc::clone(&self.core.loaded),
            on_difference: self.core.options.on_difference.clone(),
            of: PhantomData,
        }))?;
        all.push(Arc::new(AttachedManager { kind, objects }));
        Ok(())
    }

    /// Adds the references that owners had in the process before, and returns those owners. For
    /// programs that learn their owners from the server. Once they are known, take back those that
    /// are gone: [`set_references`](ObjectManager::set_references) with none.
    ///
    /// Returns none at the second call.
    pub fn restore<K: SnapshotObject>(&self, manager: &ObjectManager<K>) -> Vec<Owner> {
        let loaded = &self.core.loaded;
        let restored = loaded.owners::<K>().into_iter().filter(|(owner, keys)| {
            manager.set_references(owner, keys.iter().cloned());
            loaded.claim_owner::<K>(owner)
        });
        restored.map(|(owner, _)| owner).collect()
    }

    /// Waits until a file is written that has what is in memory now, or until `deadline`.
    ///
    /// # Errors
    ///
    /// [`SnapshotStatus::last_error`] after the write, also that of an object that the file leaves
    /// out; `Timeout` at the deadline.
    pub fn write_by(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&Clock::system());
        let what = format!("writing the snapshot {}", self.core.options.path.display());
        let status = self.core.writes.wait(&what, deadline)?;
        status.last_error.map_or(Ok(()), Err)
    }

    /// Returns how it stands. Never blocks on the disk.
    pub fn status(&self) -> SnapshotStatus {
        self.core.writes.status()
    }
}

debug_of!([] Snapshot, |it| path: it.core.options.path, status: it.status(), ..);

/// The lock of a file, and its parts or why it is not used.
type Opened = (io::Result<WriterLock>, Result<Parts, String>);

impl SnapshotOptions {
    /// Reads the key and the file. A thread that hangs in either takes no signal of its process,
    /// and the caller's may be the main one.
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

    /// The parts of the file, none without a file. Fails with why it is not used.
    fn load(&self, key: &KeyBytes, now: SystemTime) -> Result<Parts, String> {
        let most = self.bytes_max.saturating_add(seal::HEAD_BYTES_MAX);
        let read = file::read(&self.path, most).map_err(|error| error.to_string())?;
        let Some(mut sealed) = read else {
            return Ok(Parts::new());
        };
        let text = seal::open(key, &self.name, &mut sealed);
        let text = text.map_err(|why| why.words(&self.name))?;
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
        // So old, the file would soon be too old for the next process.
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
            let mut status = self.writes.status();
            let errors = status.last_error.iter().chain(&status.left_out);
            let mut told: HashSet<_> = errors.map(ToString::to_string).collect();
            let age = status.written.and_then(|written| written.elapsed().ok());
            if is_asked || age.is_none_or(|age| age >= ageing) {
                last.state = None;
            }
            // The manager's objects may have code of the program beside `write_json`.
            let written = guard_call(&name, || self.write(last, stop));
            match written {
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
            self.writes.end(began, status);
            if is_last {
                return;
            }
        }
    }

    /// Writes the file if anything changed since the last write. Returns its size if it did, and
    /// which objects it leaves out.
    fn write(
        &self,
        last: &mut LastWrite,
        stop: &StopToken,
    ) -> Result<Option<(usize, Vec<Error>)>, Error> {
        let path = self.options.path.display();
        let failed = |error: io::Error| {
            let kind = error.kind();
            let text = if kind == io::ErrorKind::FileTooLarge {
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
        let Some((state, parts)) = self.look() else {
            return Ok(None);
        };
        // An object that could not be written may be written now.
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
        (last.state, last.keeps_old) = (Some(state), false);
        let bytes = [head.len(), text.bytes.len(), tag.len()];
        for error in &mut left_out {
            *error = error
                .clone()
                .context(&format!("the snapshot {path} leaves an object out"));
        }
        Ok(Some((bytes.into_iter().sum(), left_out)))
    }

    /// Returns what tells the state of the managers from others, and what each has that nobody has
    /// claimed; `None` before a manager is attached.
    fn look(&self) -> Option<(u64, Vec<AttachedPart>)> {
        let attached = self.attached.lock().clone();
        if attached.is_empty() {
            return None;
        }
        let now = Clock::system().now();
        if self.claim_until.is_some_and(|until| now >= until) {
            let unclaimed = std::mem::take(&mut *self.loaded.0.lock());
            drop(unclaimed);
        }
        let mut state = DefaultHasher::new();
        let parts = attached.into_iter().map(|manager| {
            // Before the manager's own objects: the entry of one that is claimed has it by then.
            let unclaimed = self.loaded.0.lock().get(manager.kind()).cloned();
            let unclaimed = unclaimed.unwrap_or_default();
            manager.add_state(&unclaimed, &mut state);
            (manager, unclaimed)
        });
        let parts = parts.collect();
        Some((state.finish(), parts))
    }
}

/// A manager, and what of its kind nobody has claimed.
type AttachedPart = (Arc<dyn Attached>, content::KindPart);

/// Sums up which objects are left out, and why.
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
