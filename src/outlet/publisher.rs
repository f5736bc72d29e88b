//! A thread that has an outlet follow a manager: what is referenced is written, and what nobody
//! references any more goes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, select};

use super::object_folder::KEPT;
use super::{Laid, Outcome, Outlet};
use crate::clock::{Clock, IntoDeadline, later};
use crate::error::{Error, ErrorKind, debug_of};
use crate::failures::{FailureLog, FailureReporter};
use crate::hooks::Hook;
use crate::manager::{ChangeDetection, Changes, ObjectManager, ObjectState};
use crate::object::{ObjectData, ObjectKey, ResourceVersion, StoredObject};
use crate::rounds::Rounds;
use crate::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use crate::worker::{StopToken, Worker};

/// Each object is read so often, so that it does not count as idle, and its files are looked at.
/// With `Cache` and `Get` this read is what notices a change.
pub(super) const READ_PERIOD: Duration = Duration::from_secs(30);

/// The pause after a round that failed. It doubles up to [`READ_PERIOD`]: the objects that did not
/// fail are read as often as ever.
const RETRY: Duration = Duration::from_secs(1);

/// An object is written no more often, unless somebody waits for it: what is replaced stays for
/// [`KEPT`], and a disk has room for a few of these alone.
const WRITE_PERIOD: Duration = Duration::from_secs(1);

/// How long the server may take to confirm that it has no object whose files shall go.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

/// A thread that writes the objects of a manager to an outlet.
///
/// An object is written once it is in memory, and each time that it changes. It stays, with its
/// last content, while the server has no answer, refuses it, or has deleted it, as the volumes of a
/// pod do. It goes when its last reference goes. A slow disk holds up this thread alone. An object
/// that changes several times in a second is written once in that second.
///
/// Each half minute it looks at what is there, without reading the files. Where somebody changed,
/// removed or replaced something, the object has failed for a second, and is then written again.
///
/// Where a [`layout`](super::OutletOptions::layout) removes the files of a deleted object, the
/// server confirms the deletion first, which takes 5 seconds at most. After a deletion that it did
/// not confirm, the thread asks for none for half a minute, and the files stay.
///
/// A drop stops the thread and joins it. The files stay.
pub struct Publisher<K: ObjectData> {
    shared: Arc<PublisherCore<K>>,
    worker: Worker,
}

/// How a publisher stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PublisherStatus {
    /// How many objects have their files, as they are in memory.
    pub published: usize,
    /// The objects whose files could not be written or removed, and why. It tries again, first
    /// after a second, later each half minute.
    pub failed: BTreeMap<ObjectKey, Error>,
    /// When it last found or wrote the files of every object.
    pub last_success: Option<SystemTime>,
}

struct PublisherCore<K: ObjectData> {
    manager: Arc<ObjectManager<K>>,
    outlet: Arc<Outlet>,
    on_change: Option<Hook<BTreeSet<ObjectKey>>>,
    /// Whether all references have been added, so that what nobody references may go.
    is_complete: AtomicBool,
    /// Whether layouts have changed, so that each object is laid out again.
    are_layouts_new: AtomicBool,
    rounds: Rounds<PublisherStatus>,
}

impl<K: ObjectData> Publisher<K> {
    /// Starts the thread, which is called `publish-` and the folder of the kind.
    ///
    /// `on_change` is called on the thread with the objects whose files changed or went, after all
    /// changes of a round.
    ///
    /// # Errors
    ///
    /// `Resources`: the system has no thread to give.
    pub fn start(
        manager: Arc<ObjectManager<K>>,
        outlet: Arc<Outlet>,
        on_change: Option<Hook<BTreeSet<ObjectKey>>>,
    ) -> Result<Self, Error> {
        let (rounds, woken) = Rounds::new(PublisherStatus::default());
        let changes = manager.subscribe();
        let shared = Arc::new(PublisherCore {
            manager,
            outlet,
            on_change,
            is_complete: AtomicBool::new(false),
            are_layouts_new: AtomicBool::new(false),
            rounds,
        });
        let on_thread = Arc::clone(&shared);
        let name = format!("publish-{}", K::FOLDER);
        let worker = Worker::spawn(name.as_str(), move |stop| {
            let _ending = on_thread.rounds.until_dropped();
            on_thread.run(&changes, &woken, stop);
        });
        let worker = worker.map_err(|error| {
            Error::new(ErrorKind::Resources, format!("thread {name}")).with_source(error)
        })?;
        Ok(Self { shared, worker })
    }

    /// Tells the thread that references have changed. Returns at once.
    pub fn look(&self) {
        self.shared.rounds.ask();
    }

    /// Tells the thread that all references have been added, so that objects of earlier processes
    /// that nobody references may go. Before that, it removes none of those. Returns at once.
    pub fn references_are_complete(&self) {
        self.shared.is_complete.store(true, Ordering::SeqCst);
        self.shared.rounds.ask();
    }

    /// Tells the thread that [`OutletOptions::layout`](super::OutletOptions::layout) lays objects
    /// out otherwise now, so that each is laid out again. Returns at once.
    pub fn layouts_changed(&self) {
        self.shared.are_layouts_new.store(true, Ordering::SeqCst);
        self.shared.rounds.ask();
    }

    /// Waits until what is in memory now has its files.
    ///
    /// Blocks on the disk, and with `Cache` and `Get` on the network, until `deadline`.
    ///
    /// # Errors
    ///
    /// - The first error of an object that failed.
    /// - `Timeout`: the deadline passed. `Stopped`: the publisher was stopped.
    pub fn publish_by(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&Clock::system());
        let what = format!("writing the {} to the disk", K::FOLDER);
        let status = self.shared.rounds.wait(&what, deadline)?;
        status.failed.into_values().next().map_or(Ok(()), Err)
    }

    /// Returns how it stands. Never blocks on the disk.
    pub fn status(&self) -> PublisherStatus {
        self.shared.rounds.status()
    }

    /// Asks the thread to end, after the file that it writes. Readers see the object's files of
    /// before, and the next process removes what is left over. Returns at once.
    pub fn stop(&self) {
        self.worker.stop();
    }
}

debug_of!([K: ObjectData] Publisher<K>, |it|
    directory: it.shared.outlet.directory(), status: it.status(), ..);

impl<K: ObjectData> PublisherCore<K> {
    fn run(&self, changes: &Changes, woken: &Receiver<()>, stop: &StopToken) {
        let mut written = Written::nothing(self.now());
        let mut after_failure = RETRY;
        let mut last_success = None;
        while !stop.is_stopped() {
            let began = self.rounds.begin();
            // A round that the stop cut off has done nothing for those who wait for it.
            let Some(failed) = self.round(&mut written, stop) else {
                return;
            };
            let mut next;
            (next, after_failure) = pauses(!failed.is_empty(), after_failure);
            if let Some(due) = written.next {
                next = next.min(due.saturating_duration_since(self.now()));
            }
            if failed.is_empty() {
                last_success = Some(SystemTime::now());
            }
            let status = PublisherStatus {
                published: written.files.len(),
                failed,
                last_success,
            };
            self.rounds.end(began, status);
            select! {
                recv(changes.signal()) -> gone => if gone.is_err() {
                    return;
                },
                recv(woken) -> _ => {}
                recv(stop.channel()) -> _ => return,
                default(next) => {}
            }
            drop(changes.take());
        }
    }

    /// Writes what has changed, and removes what nobody references. Returns what failed; `None` if
    /// the stop came before the end.
    fn round(
        &self,
        written: &mut Written<K>,
        stop: &StopToken,
    ) -> Option<BTreeMap<ObjectKey, Error>> {
        let mut failed = BTreeMap::new();
        let mut changed = BTreeSet::new();
        let now = self.now();
        let looks = now.saturating_duration_since(written.looked) >= READ_PERIOD;
        if looks {
            written.looked = now;
        }
        written.next = None;
        if self.are_layouts_new.swap(false, Ordering::SeqCst) {
            written
                .files
                .values_mut()
                .for_each(|(version, _)| *version = None);
        }
        let is_complete = self.is_complete.load(Ordering::SeqCst);
        let owners = self.manager.inspect().into_values();
        let reports = owners.flatten();
        let referenced: BTreeMap<_, _> = reports.map(|report| (report.key, report.state)).collect();
        for (key, state) in &referenced {
            if stop.is_stopped() {
                return None;
            }
            let looked = if looks {
                self.look(key, written)
            } else {
                Ok(())
            };
            match looked.and_then(|()| self.write(key, *state, written, stop)) {
                Ok(true) => drop(changed.insert(key.clone())),
                Ok(false) => {}
                Err(_) if stop.is_stopped() => return None,
                Err(error) => drop(failed.insert(key.clone(), error)),
            }
        }
        let gone = self.unreferenced(&referenced, is_complete, written);
        for key in gone {
            match self.outlet.withdraw_checked::<K>(&key, &|| go_on(stop)) {
                Ok(_) => {
                    written.forget(&key);
                    changed.insert(key);
                }
                Err(_) if stop.is_stopped() => return None,
                Err(error) => {
                    // It is tried again as one of this process's own.
                    written.files.insert(key.clone(), Default::default());
                    failed.insert(key, error);
                }
            }
        }
        self.sweep(written, &mut failed, stop)?;
        for error in failed.values() {
            written.log.failed(error, Clock::system().now());
        }
        if failed.is_empty() && (written.has_swept || !is_complete) {
            written.log.recovered();
        }
        if let (Some(hook), false) = (&self.on_change, changed.is_empty()) {
            hook.tell("the on_change of a publisher", &changed);
        }
        Some(failed)
    }

    /// The objects that have files and that nobody references, those of earlier processes once all
    /// references are known.
    fn unreferenced(
        &self,
        referenced: &BTreeMap<ObjectKey, ObjectState>,
        is_complete: bool,
        written: &mut Written<K>,
    ) -> Vec<ObjectKey> {
        let mut leftovers = Vec::new();
        if is_complete && !written.has_swept {
            match self.outlet.published::<K>() {
                Ok(found) => {
                    leftovers.extend(found);
                    written.has_swept = true;
                }
                Err(error) => {
                    written.log.failed(&error, Clock::system().now());
                }
            }
        }
        leftovers.extend(written.files.keys().cloned());
        leftovers.retain(|key| !referenced.contains_key(key));
        leftovers
    }

    /// Writes an object if it is in memory in another version than on the disk.
    fn write(
        &self,
        key: &ObjectKey,
        state: ObjectState,
        written: &mut Written<K>,
        stop: &StopToken,
    ) -> Result<bool, Error> {
        let (namespace, name) = (key.namespace(), key.name());
        let found = if self.manager.change_detection() == ChangeDetection::Watch {
            self.manager.get_cached(namespace, name)
        } else {
            self.manager.get(namespace, name).map(Some)
        };
        let is_absent = match &found {
            Ok(found) => found.is_none() && state == ObjectState::NotFound,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if is_absent && let Some(is_changed) = self.end_absent(key, written, stop)? {
            return Ok(is_changed);
        }
        let found = found.ok().flatten();
        let found = found.map(|found| Arc::clone(found.stored()));
        let Some(mut object) = found.or_else(|| written.last.get(key).cloned()) else {
            return Ok(false);
        };
        let version = Some(object.resource_version());
        let before = written.files.get(key);
        if before.is_some_and(|(before, _)| *before == version) {
            return Ok(false);
        }
        let again = written.replaced.get(key).map(|at| later(*at, WRITE_PERIOD));
        if let Some(again) = again.filter(|again| self.now() < *again)
            && before.is_some()
            && !self.rounds.is_awaited()
        {
            written.is_due(again);
            return Ok(false);
        }
        // What fails half-way may have changed the files, and the next round finds them right.
        let is_untold = !written.untold.insert(key.clone());
        let mut outcome = self.outlet.publish_checked(&**object, &|| go_on(stop))?;
        let last = written.last.get(key).filter(|_| before.is_none());
        if let (Outcome::Kept, Some(last)) = (outcome, last) {
            // Files that stay come back, too.
            object = Arc::clone(last);
            outcome = self.outlet.publish_checked(&**object, &|| go_on(stop))?;
        }
        let changed = match outcome {
            Outcome::Written => true,
            Outcome::Held => false,
            Outcome::Kept => {
                written.untold.remove(key);
                return Ok(false);
            }
            Outcome::Removed(changed) => {
                written.forget(key);
                return Ok(changed || is_untold);
            }
        };
        written.last.insert(key.clone(), object);
        let sum = self.outlet.sum::<K>(key)?;
        written.files.insert(key.clone(), (version, sum));
        written.replaced.insert(key.clone(), self.now());
        written.untold.remove(key);
        Ok(changed || is_untold)
    }

    /// Removes the files of an object that the server has not, if its layout says so. Returns
    /// whether there were any; `None` if they stay.
    fn end_absent(
        &self,
        key: &ObjectKey,
        written: &mut Written<K>,
        stop: &StopToken,
    ) -> Result<Option<bool>, Error> {
        let Some((Laid::Removed, has_files)) = self.outlet.lay_out_absent::<K>(key)? else {
            return Ok(None);
        };
        if has_files {
            let now = self.now();
            if now < written.asks_from {
                written.is_due(written.asks_from);
                return Ok(None);
            }
            // The cache of a server may lag, and what is removed is missed by those who use it.
            let deadline = Clock::system().after(CONFIRMED_WITHIN);
            let fresh = self
                .manager
                .get_fresh(key.namespace(), key.name(), deadline);
            match fresh {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Ok(_) => return Ok(None),
                Err(_) => {
                    // Each further question may take as long, and all other objects wait for it.
                    written.asks_from = later(self.now(), READ_PERIOD);
                    written.is_due(written.asks_from);
                    return Ok(None);
                }
            }
            self.outlet.withdraw_checked::<K>(key, &|| go_on(stop))?;
        }
        written.forget(key);
        Ok(Some(has_files))
    }

    /// Fails if the files of an object are not those that were written. The next round writes them.
    fn look(&self, key: &ObjectKey, written: &mut Written<K>) -> Result<(), Error> {
        let Some((_, sum)) = written.files.get(key) else {
            return Ok(());
        };
        let found = self.outlet.sum::<K>(key);
        if found.as_ref().is_ok_and(|found| found == sum) {
            return Ok(());
        }
        written.files.remove(key);
        let folder = self.outlet.path::<K>(key);
        let text = format!(
            "another program changed or removed files of {}; they are written again",
            folder.display()
        );
        let error = Error::new(ErrorKind::Resources, text);
        Err(match found {
            Ok(_) => error,
            Err(why) => error.with_source(why),
        })
    }

    /// Removes the files that were replaced long enough ago. `None` if the stop came before the
    /// end.
    fn sweep(
        &self,
        written: &mut Written<K>,
        failed: &mut BTreeMap<ObjectKey, Error>,
        stop: &StopToken,
    ) -> Option<()> {
        let now = self.now();
        let replaced = std::mem::take(&mut written.replaced);
        for (key, at) in replaced {
            // The names of folders are of the wall clock, which may go otherwise for a while.
            let due = later(at, KEPT.saturating_add(WRITE_PERIOD));
            if now >= due {
                match self.outlet.sweep::<K>(&key, &|| go_on(stop)) {
                    Ok(()) => continue,
                    Err(_) if stop.is_stopped() => return None,
                    // What a look has found is told first.
                    Err(error) => drop(failed.entry(key.clone()).or_insert(error)),
                }
            } else {
                written.is_due(due);
            }
            written.replaced.insert(key, at);
        }
        Some(())
    }

    fn now(&self) -> Instant {
        self.outlet.options.clock.now()
    }
}

/// Fails once the stop was raised.
fn go_on(stop: &StopToken) -> io::Result<()> {
    if stop.is_stopped() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(())
}

/// The pause after a round, and the one after the next failure in a row.
fn pauses(has_failed: bool, after_failure: Duration) -> (Duration, Duration) {
    if has_failed {
        let doubled = after_failure.saturating_mul(2);
        (after_failure, doubled.min(READ_PERIOD))
    } else {
        (READ_PERIOD, RETRY)
    }
}

/// What the thread remembers from round to round.
struct Written<K: ObjectData> {
    /// The version of each object whose files are on the disk, and their sum. `None`: they are
    /// written anew, whatever version they have.
    files: BTreeMap<ObjectKey, (Option<ResourceVersion>, u64)>,
    /// What was written last: it stays where the server has it no more, also when somebody removes
    /// it from the disk.
    last: BTreeMap<ObjectKey, Arc<StoredObject<K>>>,
    /// The objects whose last write failed: their files may have changed nevertheless.
    untold: BTreeSet<ObjectKey>,
    /// When objects were written whose replaced files may still be there.
    replaced: BTreeMap<ObjectKey, Instant>,
    /// When what is there was looked at.
    looked: Instant,
    /// When a round is due, if one is.
    next: Option<Instant>,
    /// From when on the server is asked to confirm a deletion.
    asks_from: Instant,
    /// What the log is told of failures.
    log: FailureReporter,
    /// Whether the objects of earlier processes were looked at.
    has_swept: bool,
}

impl<K: ObjectData> Written<K> {
    fn nothing(now: Instant) -> Self {
        let name = format!("publish-{}", K::FOLDER);
        Self {
            files: BTreeMap::new(),
            last: BTreeMap::new(),
            untold: BTreeSet::new(),
            replaced: BTreeMap::new(),
            looked: now,
            next: None,
            asks_from: now,
            log: FailureLog::default().reporter("kubecache::outlet", K::FOLDER, &name, K::FOLDER),
            has_swept: false,
        }
    }

    /// Its files are gone.
    fn forget(&mut self, key: &ObjectKey) {
        self.files.remove(key);
        self.replaced.remove(key);
        self.last.remove(key);
        self.untold.remove(key);
    }

    fn is_due(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen: while the files of one object failed, the changes of the others were noticed after a
    /// minute instead of half of one.
    #[test]
    fn an_object_that_fails_does_not_put_off_the_reads_of_the_others() {
        let mut after_failure = RETRY;
        for _ in 0..20 {
            let (pause, next) = pauses(true, after_failure);
            assert!((RETRY..=READ_PERIOD).contains(&pause), "{pause:?}");
            after_failure = next;
        }
        assert_eq!(pauses(false, after_failure), (READ_PERIOD, RETRY));
    }
}
