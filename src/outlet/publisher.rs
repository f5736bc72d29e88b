//! A thread that makes an outlet follow a manager: it writes the referenced objects, and removes
//! those that are no longer referenced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, select};

use super::object_folder::KEPT;
use super::{Laid, Outcome, Outlet};
use crate::clock::{Clock, IntoDeadline, later};
use crate::error::{Error, ErrorKind, debug_of};
use crate::failures::{FailureLog, FailureReporter};
use crate::hooks::Hook;
use crate::manager::{Cached, ChangeDetection, Changes, ObjectManager, ObjectState};
use crate::object::{ObjectData, ObjectKey, ResourceVersion, StoredObject};
use crate::policy::doubled;
use crate::rounds::Rounds;
use crate::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use crate::worker::{StopToken, Worker};

/// How often each object is read, so that it does not count as idle, and its files are checked.
/// With `Cache` and `Get` this read is what notices a change.
pub(super) const READ_PERIOD: Duration = Duration::from_secs(30);

/// The pause after a round that failed. It doubles up to [`READ_PERIOD`]: objects that did not fail
/// are still read on time.
const RETRY: Duration = Duration::from_secs(1);

/// The shortest time between two writes of an object, unless a caller waits for it. Replaced files
/// stay for [`KEPT`], and a disk has room for only a few of them.
const WRITE_PERIOD: Duration = Duration::from_secs(1);

/// How long the server may take to confirm that an object is gone, before its files go.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

/// A thread that writes the objects of a manager to an outlet.
///
/// The thread writes an object once it is in memory, and after each change. While the server has no
/// answer, refuses the object or has deleted it, the files keep their last content, as in a pod's
/// volumes. They go when the last reference goes. A slow disk delays this thread alone. An object
/// that changes several times in a second is written once in that second.
///
/// What only a snapshot has is written where there are no files: those of an earlier process may be
/// newer. With `Cache` and `Get`, after a read without an answer the thread asks for the other
/// objects in its next round.
///
/// Every half minute the thread checks the files, without reading them. If another program has
/// changed, removed or replaced something, the object counts as failed for a second. Then it is
/// written again.
///
/// If a [`layout`](super::OutletOptions::layout) removes the files of a deleted object, the server
/// confirms the deletion first, within at most 5 seconds. After a deletion that it did not confirm,
/// the thread asks for none for half a minute, and the files stay.
///
/// A drop stops the thread and joins it. The files stay.
pub struct Publisher<K: ObjectData> {
    shared: Arc<PublisherCore<K>>,
    worker: Worker,
}

/// The state of a publisher.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PublisherStatus {
    /// How many objects have their files, with the content in memory. If that is only what a
    /// snapshot had, the files of an earlier process count, too.
    pub published: usize,
    /// The objects whose files could not be written or removed, with the error. The publisher tries
    /// them again, first after a second, later every half minute. An empty key stands for what an
    /// earlier process wrote, which could not be looked through.
    pub failed: BTreeMap<ObjectKey, Error>,
    /// When it last found or wrote the files of every object.
    pub last_success: Option<SystemTime>,
    /// For how long the thread has been at its present file, read or hook; `None` between its
    /// rounds. It grows while a disk hangs.
    pub at_work: Option<Duration>,
}

struct PublisherCore<K: ObjectData> {
    manager: ObjectManager<K>,
    outlet: Arc<Outlet>,
    on_change: Option<Hook<BTreeSet<ObjectKey>>>,
    /// Whether all references have been added, so that unreferenced objects may go.
    is_complete: AtomicBool,
    /// Whether layouts have changed, so that each object needs a new layout.
    are_layouts_new: AtomicBool,
    rounds: Rounds<PublisherStatus>,
}

impl<K: ObjectData> Publisher<K> {
    /// Starts the thread, which is called `publish-` and the folder of the kind.
    ///
    /// After all changes of a round, the thread calls `on_change` with the objects whose files
    /// changed or went.
    ///
    /// # Errors
    ///
    /// `Resources`, if the system has no thread.
    pub fn start(
        manager: ObjectManager<K>,
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
            let _ending = on_thread.rounds.until_dropped(stop);
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

    /// Tells the thread that all references have been added. Only then does it remove unreferenced
    /// objects of earlier processes. Returns at once.
    pub fn references_are_complete(&self) {
        self.shared.is_complete.store(true, Ordering::SeqCst);
        self.shared.rounds.ask();
    }

    /// Tells the thread that [`OutletOptions::layout`](super::OutletOptions::layout) now returns
    /// other layouts, so that each object gets a new one. Returns at once.
    pub fn layouts_changed(&self) {
        self.shared.are_layouts_new.store(true, Ordering::SeqCst);
        self.shared.rounds.ask();
    }

    /// Waits until the present objects in memory have their files.
    ///
    /// Blocks on the disk, and with `Cache` and `Get` on the network, until `deadline`.
    ///
    /// # Errors
    ///
    /// - The first error of an object that failed.
    /// - `Timeout`: the deadline passed, or the call is on the publisher's own thread, such as in
    ///   `on_change` or a layout. `Stopped`: the publisher was stopped.
    pub fn publish_by(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&Clock::system());
        let what = format!("writing the {} to the disk", K::FOLDER);
        let status = self.shared.rounds.wait(&what, deadline)?;
        status.failed.into_values().next().map_or(Ok(()), Err)
    }

    /// Returns the publisher's state. Never blocks on the disk.
    pub fn status(&self) -> PublisherStatus {
        let (mut status, step) = self.shared.rounds.status();
        status.at_work = step.map(|began| self.shared.now().saturating_duration_since(began));
        status
    }

    /// Asks the thread to end, after the file that it is writing. Readers see the object's earlier
    /// files, and the next process removes the rest. Returns at once.
    pub fn stop(&self) {
        self.worker.stop();
    }
}

debug_of!([K: ObjectData] Publisher<K>, |it|
    directory: it.shared.outlet.directory(), status: it.status(), ..);

impl<K: ObjectData> PublisherCore<K> {
    fn run(&self, changes: &Changes, woken: &Receiver<()>, stop: &StopToken) {
        let mut written = Written::nothing(self.now());
        let mut pause = None;
        let mut last_success = None;
        while !stop.is_stopped() {
            // This round is for whoever has asked by now: another one for them would do nothing.
            let _served = woken.try_recv().is_ok();
            let began = self.rounds.begin();
            // A round that the stop cut off is no success for the callers that wait for it.
            let Some(failed) = self.round(&mut written, stop) else {
                return self.rounds.step(None);
            };
            let mut next = next_pause(!failed.is_empty(), &mut pause);
            if let Some(due) = written.next {
                next = next.min(due.saturating_duration_since(self.now()));
            }
            if failed.is_empty() {
                last_success = Some(SystemTime::now());
            }
            let status = PublisherStatus {
                published: written.files.values().flatten().count(),
                failed,
                last_success,
                at_work: None,
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

    /// Writes changed objects, and removes unreferenced ones. Returns the failed objects; `None` if
    /// the stop came before the end.
    fn round(
        &self,
        written: &mut Written<K>,
        stop: &StopToken,
    ) -> Option<BTreeMap<ObjectKey, Error>> {
        let now = self.now();
        let go_on = || self.go_on(stop);
        go_on().ok()?;
        let mut failed = BTreeMap::new();
        let mut changed = BTreeSet::new();
        let looks = now.saturating_duration_since(written.looked) >= READ_PERIOD;
        if looks {
            written.looked = now;
        }
        written.next = None;
        if self.are_layouts_new.swap(false, Ordering::SeqCst) {
            let files = written.files.values_mut().flatten();
            files.for_each(|(version, _)| *version = None);
        }
        let is_complete = self.is_complete.load(Ordering::SeqCst);
        let reports = self.manager.inspect().into_values().flatten();
        let referenced: BTreeMap<_, _> = reports.map(|report| (report.key, report.state)).collect();
        let mut in_turn: Vec<_> = referenced.iter().collect();
        // Those that the last round left out come first.
        let silent = written.silent.take();
        in_turn.sort_by_key(|(key, _)| silent.as_ref() >= Some(*key));
        for (key, state) in in_turn {
            go_on().ok()?;
            let looked = looks.then(|| self.look(key, written)).transpose();
            match looked.and_then(|_looked| self.write(key, *state, written, stop)) {
                Ok(true) => drop(changed.insert(key.clone())),
                Ok(false) => {}
                Err(_) if stop.is_stopped() => return None,
                Err(error) => drop(failed.insert(key.clone(), error)),
            }
        }
        if is_complete && let Err(error) = self.take_over(written) {
            failed.insert(ObjectKey::new("", ""), error);
        }
        let unreferenced = written.files.keys().cloned();
        let unreferenced = unreferenced.filter(|key| !referenced.contains_key(key));
        for key in unreferenced.collect::<Vec<_>>() {
            match self.outlet.withdraw_checked::<K>(&key, &go_on) {
                Ok(had_files) => {
                    if written.forget(&key) || had_files {
                        changed.insert(key);
                    }
                }
                Err(_) if stop.is_stopped() => return None,
                Err(error) => drop(failed.insert(key, error)),
            }
        }
        self.sweep(written, &mut failed, stop)?;
        for error in failed.values() {
            written.log.failed(error, Clock::system().now());
        }
        if failed.is_empty() {
            written.log.recovered();
        }
        if let (Some(hook), false) = (&self.on_change, changed.is_empty()) {
            hook.tell("the on_change of a publisher", &changed);
        }
        Some(failed)
    }

    /// Takes note of the files of earlier processes, once all references are known.
    fn take_over(&self, written: &mut Written<K>) -> Result<(), Error> {
        if written.has_taken_over {
            return Ok(());
        }
        let now = self.now();
        for key in self.outlet.published::<K>()? {
            // What that process replaced may still be there.
            written.replaced.entry(key.clone()).or_insert(now);
            written.files.entry(key).or_default();
        }
        written.has_taken_over = true;
        Ok(())
    }

    /// Reads an object. After a read without an answer, the rest of the round takes what is in
    /// memory: each further request may take as long, and all objects wait for it.
    fn read(&self, key: &ObjectKey, written: &mut Written<K>) -> Result<Option<Cached<K>>, Error> {
        let (namespace, name) = (key.namespace(), key.name());
        let is_watched = self.manager.change_detection() == ChangeDetection::Watch;
        if is_watched || written.silent.is_some() {
            return self.manager.get_cached(namespace, name);
        }
        let found = self.manager.get(namespace, name);
        let error = found.as_ref().map_or_else(Some, Cached::last_error);
        if let Some(ErrorKind::NotSynced | ErrorKind::Timeout | ErrorKind::Unreachable) =
            error.map(Error::kind)
        {
            written.silent = Some(key.clone());
        }
        found.map(Some)
    }

    /// Writes an object if the version in memory differs from the one on the disk.
    fn write(
        &self,
        key: &ObjectKey,
        state: ObjectState,
        written: &mut Written<K>,
        stop: &StopToken,
    ) -> Result<bool, Error> {
        let found = self.read(key, written);
        let is_absent = match &found {
            Ok(found) => found.is_none() && state == ObjectState::NotFound,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if is_absent && let Some(is_changed) = self.end_absent(key, written, stop)? {
            return Ok(is_changed);
        }
        // What a snapshot had may be older than the files of an earlier process.
        let may_be_older = matches!(&found, Ok(Some(found)) if found.is_stale())
            && !matches!(state, ObjectState::Synced | ObjectState::Refused)
            && !written.last.contains_key(key);
        let found = found.ok().flatten().map(|it| Arc::clone(it.stored()));
        let Some(mut object) = found.or_else(|| written.last.get(key).cloned()) else {
            return Ok(false);
        };
        let version = Some(object.resource_version());
        let before = written.files.get(key).and_then(Option::as_ref);
        if before.is_some_and(|(before, _)| *before == version) {
            return Ok(false);
        }
        if may_be_older && let Some(sum) = self.outlet.sum::<K>(key)? {
            written.files.insert(key.clone(), Some((None, sum)));
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
        // A failed write may have changed some files, and the next round may find them right.
        let is_untold = !written.untold.insert(key.clone());
        let last = before.is_none().then(|| written.last.get(key).cloned());
        let go_on = || self.go_on(stop);
        let outcome = self.outlet.publish_checked(&**object, &go_on);
        // What the outlet refuses as it is has no files.
        if outcome.as_ref().err().map(Error::kind) != Some(ErrorKind::Config) {
            written.files.entry(key.clone()).or_default();
        }
        let mut outcome = outcome?;
        if let (Outcome::Kept, Some(last)) = (outcome, last.flatten()) {
            // Kept files that were removed come back, too.
            object = last;
            outcome = self.outlet.publish_checked(&**object, &go_on)?;
        }
        let (changed, sum) = match outcome {
            Outcome::Files(changed, sum) => (changed, sum),
            Outcome::Kept => {
                written.untold.remove(key);
                return Ok(is_untold);
            }
            Outcome::Removed(changed) => {
                written.forget(key);
                return Ok(changed || is_untold);
            }
        };
        written.last.insert(key.clone(), object);
        written.files.insert(key.clone(), Some((version, sum)));
        written.replaced.insert(key.clone(), self.now());
        written.untold.remove(key);
        Ok(changed || is_untold)
    }

    /// Removes the files of an object that the server does not have, if its layout says so. Returns
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
            if self.now() < written.asks_from {
                written.is_due(written.asks_from);
                return Ok(None);
            }
            // The cache of a server may lag, and programs still use these files.
            let deadline = Clock::system().after(CONFIRMED_WITHIN);
            let (namespace, name) = (key.namespace(), key.name());
            match self.manager.get_fresh(namespace, name, deadline) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Ok(_) => return Ok(None),
                // Waiting does not mend that, and the files would stay without a word.
                Err(error) if error.kind() == ErrorKind::Forbidden => {
                    return Err(error.context("whether the object is gone"));
                }
                Err(_) => {
                    // Each further request may take as long, and all other objects wait for it.
                    written.asks_from = later(self.now(), READ_PERIOD);
                    written.is_due(written.asks_from);
                    return Ok(None);
                }
            }
        }
        if has_files || written.files.contains_key(key) {
            self.outlet
                .withdraw_checked::<K>(key, &|| self.go_on(stop))?;
        }
        written.forget(key);
        Ok(Some(has_files))
    }

    /// Fails if the files of an object are not as they were written. The next round writes them
    /// again.
    fn look(&self, key: &ObjectKey, written: &mut Written<K>) -> Result<(), Error> {
        let Some(Some((_, sum))) = written.files.get(key) else {
            return Ok(());
        };
        let found = self.outlet.sum::<K>(key);
        if found.as_ref().is_ok_and(|found| *found == Some(*sum)) {
            return Ok(());
        }
        written.files.insert(key.clone(), None);
        Err(changed_by_another(&self.outlet.path::<K>(key), found.err()))
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
        for (key, mut at) in std::mem::take(&mut written.replaced) {
            // The names of folders follow the wall clock, whose pace may differ for a while.
            let kept = KEPT.saturating_add(WRITE_PERIOD);
            let due = later(at, kept);
            if now >= due {
                match self.outlet.sweep::<K>(&key, &|| self.go_on(stop)) {
                    Ok(false) => continue,
                    // The wall clock stepped back.
                    Ok(true) => {
                        at = now;
                        written.is_due(later(now, kept));
                    }
                    Err(_) if stop.is_stopped() => return None,
                    // An error that the look has found comes first.
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

    /// Notes the next step, which may block on the disk. Fails once the stop was raised.
    fn go_on(&self, stop: &StopToken) -> io::Result<()> {
        self.rounds.step(Some(self.now()));
        if stop.is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }
}

/// Not part of the generic function above, which is there for each kind.
fn changed_by_another(folder: &Path, cause: Option<Error>) -> Error {
    let what = "another program changed or removed files";
    let text = format!("{what} of {}; they are written again", folder.display());
    Error::new(ErrorKind::Resources, text).caused_by(cause)
}

/// The pause after a round. `last` is the one after the last failure in a row.
fn next_pause(has_failed: bool, last: &mut Option<Duration>) -> Duration {
    *last = has_failed.then(|| doubled(*last, RETRY, READ_PERIOD));
    last.unwrap_or(READ_PERIOD)
}

/// The memory of the thread from round to round.
struct Written<K: ObjectData> {
    /// The objects that may have files, of this process or of an earlier one, until these are gone.
    /// What this process wrote has its version and sum, what it left the sum. Without a version it
    /// is written again.
    files: BTreeMap<ObjectKey, Option<(Option<ResourceVersion>, u64)>>,
    /// The objects written last. They stay after the server has deleted them, and come back after
    /// another program has removed them from the disk.
    last: BTreeMap<ObjectKey, Arc<StoredObject<K>>>,
    /// The objects whose last write failed. Their files may have changed nevertheless.
    untold: BTreeSet<ObjectKey>,
    /// When objects were written whose replaced files may still be there.
    replaced: BTreeMap<ObjectKey, Instant>,
    /// When the files were last checked.
    looked: Instant,
    /// When a round is due, if one is.
    next: Option<Instant>,
    /// When the server may next be asked to confirm a deletion.
    asks_from: Instant,
    /// The object of the last read without an answer, behind which the next round begins.
    silent: Option<ObjectKey>,
    /// Reports the failures to the log.
    log: FailureReporter,
    /// Whether the files of earlier processes are in the map.
    has_taken_over: bool,
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
            silent: None,
            log: FailureLog::default().reporter("kubecache::outlet", K::FOLDER, &name, K::FOLDER),
            has_taken_over: false,
        }
    }

    /// Forgets an object whose files are gone. Returns whether it had the files that were written.
    fn forget(&mut self, key: &ObjectKey) -> bool {
        self.replaced.remove(key);
        self.last.remove(key);
        self.untold.remove(key);
        self.files.remove(key).flatten().is_some()
    }

    fn is_due(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen: while the files of one object failed, changes of the others were noticed after a
    /// minute instead of half of one.
    #[test]
    fn an_object_that_fails_does_not_put_off_the_reads_of_the_others() {
        let mut last = None;
        let pauses: Vec<_> = (0..7)
            .map(|_| next_pause(true, &mut last).as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(next_pause(false, &mut last), READ_PERIOD);
        assert_eq!(next_pause(true, &mut last), RETRY);
    }
}
