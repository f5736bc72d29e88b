//! Who is told that files have changed: a program is run, a process is signalled.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use kubecache::clock::{Clock, Deadline};
use kubecache::hooks::Hook;
use kubecache::object::ObjectKey;
use kubecache::worker::{StopToken, Worker};
use kubecache::{Error, ErrorKind};
use parking_lot::{Condvar, Mutex};

use crate::declaration::Declaration;
use crate::hook::{self, HookOptions, Ran};
use crate::managers::ObjectId;
use crate::pid_file::PidFile;
use crate::plan::Plan;
use crate::told::Told;

/// The flag that names a program.
pub(crate) const FLAG: &str = "--exec-on-change";

/// The field of an entry that names one.
pub(crate) const FIELD: &str = "exec";

/// Who is told that files have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tells {
    pub(crate) hook: HookOptions,
    /// A file with the number of the process that gets a SIGHUP.
    pub(crate) signal: Option<PathBuf>,
    /// How long changes are gathered before they are told.
    pub(crate) debounce: Duration,
}

impl Tells {
    pub(crate) fn is_empty(&self) -> bool {
        self.hook.command.is_empty() && self.signal.is_none()
    }
}

/// The threads that tell: one that the flags name, which is told of all, and those of entries.
pub(crate) struct Tellers {
    of_flags: Option<Arc<Teller>>,
    of_entries: Mutex<OfEntries>,
    plan: Plan,
    told: Arc<Told>,
    /// What earlier agents did not tell: of the flags, of entries.
    left: Mutex<[BTreeSet<ObjectId>; 2]>,
}

#[derive(Default)]
struct OfEntries {
    /// Entries that name the same have one.
    tellers: Vec<Arc<Teller>>,
    /// The objects of entries that name somebody who is not among them yet.
    early: BTreeSet<ObjectId>,
    /// What was told as of no entry, while a selection might still find it.
    unclaimed: BTreeSet<ObjectId>,
}

impl Tellers {
    /// `told` is what earlier agents told, and `left` what they did not: of the flags, of entries.
    pub(crate) fn start(
        of_flags: &Tells,
        plan: Plan,
        told: Told,
        left: [BTreeSet<ObjectId>; 2],
    ) -> Result<Self, Error> {
        let told = Arc::new(told);
        let is_given = !of_flags.is_empty();
        let of_flags = is_given.then(|| Teller::start(of_flags, &told));
        Ok(Self {
            of_flags: of_flags.transpose()?.map(Arc::new),
            of_entries: Mutex::default(),
            plan,
            told,
            left: Mutex::new(left),
        })
    }

    /// Tells what earlier agents did not, and what had nobody to tell it, once all objects have
    /// their entries.
    pub(crate) fn tell_left(&self) {
        let (mut early, unclaimed) = {
            let mut of_entries = self.of_entries.lock();
            let early = std::mem::take(&mut of_entries.early);
            (early, std::mem::take(&mut of_entries.unclaimed))
        };
        let claimed = |object: &ObjectId| self.plan.has_own_tells(object);
        // Where their files are not yet as their entry says, they are told again.
        early.extend(unclaimed.into_iter().filter(claimed));
        let [of_flags, of_entries] = std::mem::take(&mut *self.left.lock());
        early.extend(of_entries);
        if let (Some(teller), false) = (&self.of_flags, of_flags.is_empty()) {
            teller.tell(of_flags);
        }
        self.tell_entries(&early);
    }

    /// Tells those that the entries name by now, and no others any more.
    /// What the others had not told, or in vain, is told by those that its entries name by now.
    pub(crate) fn declare(self: &Arc<Self>, declaration: &Declaration) -> Result<(), Error> {
        let mut before = self.of_entries.lock().tellers.clone();
        let mut now: Vec<Arc<Teller>> = Vec::new();
        for entry in &declaration.entries {
            let is_it = |teller: &Arc<Teller>| teller.tells == entry.tells;
            if entry.tells.is_empty() || now.iter().any(is_it) {
                continue;
            }
            now.push(match before.iter().position(is_it) {
                Some(at) => before.swap_remove(at),
                None => Arc::new(Teller::start(&entry.tells, &self.told)?),
            });
        }
        let early = {
            let mut of_entries = self.of_entries.lock();
            of_entries.tellers = now;
            std::mem::take(&mut of_entries.early)
        };
        self.tell_entries(&early);
        for old in before {
            old.stop();
            let tellers = Arc::clone(self);
            // Its end may take as long as that of the program that it runs.
            let ends = std::thread::Builder::new().name("agent-ends".to_owned());
            drop(ends.spawn(move || tellers.tell_entries(&old.left())));
        }
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Teller>> {
        let of_entries = self.of_entries.lock();
        self.of_flags
            .iter()
            .chain(of_entries.tellers.iter())
            .cloned()
            .collect()
    }

    /// What a publisher of objects of this kind calls.
    pub(crate) fn hook(self: &Arc<Self>, kind: &'static str) -> Hook<BTreeSet<ObjectKey>> {
        let tellers = Arc::clone(self);
        Hook::new(move |keys: &BTreeSet<ObjectKey>| {
            let objects = keys.iter().map(|key| ObjectId {
                kind: kind.into(),
                key: key.clone(),
            });
            tellers.tell(&objects.collect());
        })
    }

    fn tell(&self, objects: &BTreeSet<ObjectId>) {
        if let Some(teller) = &self.of_flags {
            teller.tell(objects.clone());
        }
        self.tell_entries(objects);
    }

    /// Tells each of them once of all its objects, so that it runs its program once.
    fn tell_entries(&self, objects: &BTreeSet<ObjectId>) {
        // Under no lock, as the disk may hang.
        let has_files = |object| !self.plan.has_left(object) || self.told.files(object).is_some();
        let have_files: Vec<_> = objects.iter().map(has_files).collect();
        let mut of_entries = self.of_entries.lock();
        let mut told = vec![BTreeSet::new(); of_entries.tellers.len()];
        for (object, has_files) in objects.iter().zip(have_files) {
            if self.plan.may_find(object) {
                of_entries.unclaimed.insert(object.clone());
            }
            let Some(entry) = self.plan.entry_of_change(object, has_files) else {
                continue;
            };
            let mut tellers = of_entries.tellers.iter().zip(&mut told);
            match tellers.find(|(teller, _)| teller.tells == entry.tells) {
                Some((_, told)) => drop(told.insert(object.clone())),
                // Nobody of now had to do with files that are gone.
                None if entry.tells.is_empty() || !has_files => {}
                None => drop(of_entries.early.insert(object.clone())),
            }
        }
        let told = of_entries.tellers.iter().zip(told);
        for (teller, objects) in told.filter(|(_, objects)| !objects.is_empty()) {
            teller.tell(objects);
        }
    }

    /// Tells again what was told in vain.
    pub(crate) fn tell_again(&self) {
        self.all().iter().for_each(|teller| teller.tell_again());
    }

    /// Waits until the changes so far have been told.
    pub(crate) fn tell_by(&self, deadline: Deadline) -> Result<(), Error> {
        let all = self.all();
        let told = all.iter().map(|teller| teller.tell_by(deadline));
        told.fold(Ok(()), Result::and)
    }

    /// Whether the last run of each program was a success, and no present one is too long; `None`
    /// without a program.
    pub(crate) fn health(&self) -> Option<Result<(), Error>> {
        let all = self.all();
        let mut verdicts = all
            .iter()
            .filter(|teller| teller.runs_program())
            .map(|teller| teller.health());
        let first = verdicts.next()?;
        Some(verdicts.fold(first, Result::and))
    }

    /// How the runs of all programs stand together; `None` without a program.
    pub(crate) fn runs(&self) -> Option<HookRuns> {
        let all = self.all();
        let runs = all.iter().filter(|teller| teller.runs_program());
        runs.map(|teller| teller.shared.state.lock().runs.clone())
            .reduce(HookRuns::and)
    }

    pub(crate) fn stop(&self) {
        self.all().iter().for_each(|teller| teller.stop());
    }
}

/// A thread that tells others that files have changed: all changes during a run are one more run.
struct Teller {
    changed: Sender<()>,
    shared: Arc<Telling>,
    tells: Tells,
    worker: Worker,
}

/// What the thread is at.
#[derive(Debug, Default)]
struct Telling {
    state: Mutex<TellerState>,
    at_rest: Condvar,
}

#[derive(Debug, Default)]
struct TellerState {
    /// Files have changed since the last run began.
    due: bool,
    busy: bool,
    life: Life,
    /// The objects whose files have changed since then, and those of runs that failed.
    changed: BTreeSet<ObjectId>,
    runs: HookRuns,
}

/// Whether the thread goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Runs,
    Stops,
    Ended,
}

/// Tells that the thread ends, also by a panic.
struct Ending<'a>(&'a Telling);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().life = Life::Ended;
        self.0.at_rest.notify_all();
    }
}

/// How the runs of the hook stand.
#[derive(Clone, Debug, Default)]
pub(crate) struct HookRuns {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) last_took: Duration,
    /// Why the last one failed.
    pub(crate) failure: Option<String>,
    /// When the present one began.
    pub(crate) began: Option<Instant>,
}

impl Teller {
    fn start(tells: &Tells, told: &Arc<Told>) -> Result<Self, Error> {
        let (changed, woken) = bounded(1);
        let shared = Arc::<Telling>::default();
        let (on_thread, own) = (tells.clone(), Arc::clone(&shared));
        let told = Arc::clone(told);
        let worker = Worker::spawn("agent-tells", move |stop| {
            let _ending = Ending(&own);
            tell_until_stopped(&on_thread, &woken, (&own, &told), stop);
        });
        let worker = worker.map_err(|error| {
            Error::new(ErrorKind::Resources, "thread agent-tells").with_source(error)
        })?;
        Ok(Self {
            changed,
            shared,
            tells: tells.clone(),
            worker,
        })
    }

    fn runs_program(&self) -> bool {
        !self.tells.hook.command.is_empty()
    }

    fn tell(&self, objects: BTreeSet<ObjectId>) {
        let mut state = self.shared.state.lock();
        state.changed.extend(objects);
        state.due = true;
        drop(state);
        // A full channel holds the message this one would have been.
        let _full = self.changed.try_send(()).is_err();
    }

    fn tell_again(&self) {
        let mut state = self.shared.state.lock();
        if state.busy || !state.changed.is_empty() {
            state.due = true;
            drop(state);
            let _full = self.changed.try_send(()).is_err();
        }
    }

    fn tell_by(&self, deadline: Deadline) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        while (state.due || state.busy) && state.life == Life::Runs {
            let late = if let Some(instant) = deadline.instant() {
                let waited = self.shared.at_rest.wait_until(&mut state, instant);
                waited.timed_out()
            } else {
                self.shared.at_rest.wait(&mut state);
                false
            };
            if late {
                let label = self.tells.hook.label;
                let text = format!("timed out waiting for the end of {label}; it is ended now");
                return Err(Error::new(ErrorKind::Timeout, text));
            }
        }
        match &state.runs.failure {
            _ if state.life != Life::Runs => Err(Error::stopped(&format!(
                "the end of {}",
                self.tells.hook.label
            ))),
            None => Ok(()),
            Some(why) => {
                let text = format!("{} {}: {why}", self.tells.hook.label, self.program());
                Err(Error::new(ErrorKind::Resources, text))
            }
        }
    }

    fn health(&self) -> Result<(), Error> {
        let runs = self.shared.state.lock().runs.clone();
        let took = runs.took(Clock::system().now());
        if took > self.tells.hook.long() {
            let text = format!("a run is still under way after {}s", took.as_secs());
            return Err(Error::new(ErrorKind::Timeout, text));
        }
        runs.failure.map_or(Ok(()), |why| {
            let text = format!("the last run failed: {why}");
            Err(Error::new(ErrorKind::Resources, text))
        })
    }

    fn program(&self) -> &str {
        self.tells.hook.command.first().map_or("", String::as_str)
    }

    /// Waits for the end of its thread. Returns the objects that it has not told, or in vain.
    fn left(&self) -> BTreeSet<ObjectId> {
        let mut state = self.shared.state.lock();
        while state.life != Life::Ended {
            self.shared.at_rest.wait(&mut state);
        }
        std::mem::take(&mut state.changed)
    }

    /// Ends the run, and who waits for it waits no more.
    fn stop(&self) {
        let mut state = self.shared.state.lock();
        if state.life == Life::Runs {
            state.life = Life::Stops;
        }
        drop(state);
        self.shared.at_rest.notify_all();
        self.worker.stop();
    }
}

impl HookRuns {
    /// How long the present run has taken.
    pub(crate) fn took(&self, now: Instant) -> Duration {
        self.began
            .map(|began| now.saturating_duration_since(began))
            .unwrap_or_default()
    }

    /// The runs of both.
    fn and(self, other: Self) -> Self {
        Self {
            succeeded: self.succeeded.saturating_add(other.succeeded),
            failed: self.failed.saturating_add(other.failed),
            last_took: self.last_took.max(other.last_took),
            failure: self.failure.or(other.failure),
            began: self.began.into_iter().chain(other.began).min(),
        }
    }

    fn ended(&mut self, ran: Ran) {
        let count = match ran.failure {
            None => &mut self.succeeded,
            Some(_) => &mut self.failed,
        };
        *count = count.saturating_add(1);
        (self.last_took, self.failure, self.began) = (ran.took, ran.failure, None);
    }
}

fn tell_until_stopped(
    tells: &Tells,
    woken: &Receiver<()>,
    (shared, told): (&Telling, &Told),
    stop: &StopToken,
) {
    let label = tells.hook.label;
    let signal = if label == FLAG {
        "--signal-on-change"
    } else {
        "signal"
    };
    let mut pid_file = tells.signal.clone().map(PidFile::new);
    loop {
        select! {
            recv(woken) -> gone => if gone.is_err() {
                return;
            },
            recv(stop.channel()) -> _ => return,
        }
        if !tells.debounce.is_zero() {
            select! {
                recv(stop.channel()) -> _ => return,
                default(tells.debounce) => {}
            }
        }
        let changed = {
            let mut state = shared.state.lock();
            // The message of a change may come after the run that was told of it.
            if !std::mem::take(&mut state.due) {
                continue;
            }
            // Asked again during a run that was a success.
            if state.changed.is_empty() {
                shared.at_rest.notify_all();
                continue;
            }
            state.busy = true;
            std::mem::take(&mut state.changed)
        };
        let files = told.look(&changed);
        let signalled = pid_file.as_mut().map_or(Ok(()), |file| file.signal(stop));
        let mut has_failed = signalled.is_err() || stop.is_stopped();
        let mut is_in_vain = has_failed;
        if let Err(error) = signalled {
            log::error!("{signal} {error}");
        }
        if let Some(program) = tells.hook.command.first() {
            shared.state.lock().runs.began = Some(Clock::system().now());
            let ran = hook::run(&tells.hook, &changed, stop);
            let took = ran.took;
            match &ran.failure {
                None => log::info!("{label} {program}: ended well after {took:?}"),
                Some(_) if stop.is_stopped() => {}
                Some(why) => log::error!("{label} {program}: {why}, after {took:?}"),
            }
            let mut state = shared.state.lock();
            // A program that was told is told of no more than what changes.
            is_in_vain = ran.failure.is_some();
            has_failed |= is_in_vain;
            state.runs.ended(ran);
        }
        if !has_failed {
            told.keep(label, files);
        }
        let mut state = shared.state.lock();
        if is_in_vain {
            // They are told again, with the next ones.
            state.changed.extend(changed);
        }
        state.busy = false;
        drop(state);
        shared.at_rest.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kubecache::object::ObjectKey;

    use super::*;
    use crate::declaration::{Entry, Selection, What};
    use crate::layout::Rules;
    use crate::references;
    use crate::temp_directory::TempDirectory;

    /// Seen: a run was told of nothing, since the message of a change came after the run that was
    /// told of it.
    #[test]
    fn a_message_without_a_change_runs_nothing() {
        let mut tells = Tells::default();
        tells.hook.command = vec!["true".to_owned()];
        let teller = Teller::start(&tells, &Arc::default()).unwrap();
        let object = || ObjectId {
            kind: "Secret".into(),
            key: ObjectKey::new("shop", "db"),
        };
        // The second waits until the thread has taken the first.
        for _ in 0..2 {
            teller.changed.send(()).unwrap();
        }
        teller.tell(BTreeSet::from([object()]));
        let soon = Clock::system().after(Duration::from_secs(300));
        teller.tell_by(soon).unwrap();
        assert_eq!(teller.shared.state.lock().runs.succeeded, 1);
    }

    fn of_all(command: &str) -> Declaration {
        let mut entry = Entry {
            name: "all".to_owned(),
            what: What::Pods(None),
            rules: Rules::default(),
            tells: Tells::default(),
        };
        entry.tells.hook.command = vec![command.to_owned()];
        Declaration {
            entries: vec![Arc::new(entry)],
            ..Declaration::default()
        }
    }

    /// Seen: after the name of a program was corrected, nobody was told, and health was good.
    #[test]
    fn what_a_program_was_told_in_vain_the_next_one_is_told() {
        let plan = Plan::default();
        let none = (Tells::default(), Told::default());
        let tellers = Tellers::start(&none.0, plan.clone(), none.1, Default::default());
        let tellers = Arc::new(tellers.unwrap());
        let soon = || Clock::system().after(Duration::from_secs(300));
        let declare = |command| {
            plan.declare(&of_all(command), BTreeSet::new());
            tellers.declare(&of_all(command)).unwrap();
        };
        declare("/nowhere/relaod");
        let object = |name| references::of_flag("secret", name).unwrap();
        tellers.tell(&["shop/a", "shop/b"].map(object).into());
        tellers.tell_by(soon()).unwrap_err();
        assert_eq!(tellers.runs().unwrap().failed, 1, "both in one run");
        declare("true");
        while tellers.runs().unwrap().succeeded == 0 {
            std::thread::yield_now();
        }
        tellers.health().unwrap().unwrap();
    }

    /// Seen: after the name of a file was corrected, no process was told.
    #[test]
    fn what_a_process_was_told_in_vain_the_next_one_is_told() {
        let object = references::of_flag("secret", "shop/a").unwrap();
        // A program is not told again of what it was told.
        for (program, left) in [
            (None, BTreeSet::from([object.clone()])),
            (Some("true"), BTreeSet::new()),
        ] {
            let mut tells = Tells {
                signal: Some(PathBuf::from("/nowhere/pid")),
                ..Tells::default()
            };
            tells.hook.command = program.map(str::to_owned).into_iter().collect();
            let teller = Teller::start(&tells, &Arc::default()).unwrap();
            teller.tell([object.clone()].into());
            let soon = Clock::system().after(Duration::from_secs(300));
            teller.tell_by(soon).unwrap();
            teller.stop();
            assert_eq!(teller.left(), left);
        }
    }

    /// Seen: what changed while a selection was not known was told at the next reload.
    #[test]
    fn what_had_nobody_to_tell_it_is_told_once_all_entries_are_known() {
        let directory = TempDirectory::new("teller-early");
        for name in ["there", "gone"] {
            let folder = directory.join("shop/secrets").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            if name == "there" {
                std::os::unix::fs::symlink("..1", folder.join("..data")).unwrap();
            }
        }
        let plan = Plan::default();
        let none = (Tells::default(), Told::read(&directory));
        let tellers = Tellers::start(&none.0, plan.clone(), none.1, Default::default());
        let tellers = Arc::new(tellers.unwrap());
        let object = |name: &str| references::of_flag("secret", name).unwrap();
        let lost = [object("shop/there"), object("shop/gone")];
        let mut before = of_all("/nowhere/before").entries;
        let entry = before.pop().unwrap();
        plan.select(
            lost.clone()
                .map(|object| (object, Arc::clone(&entry)))
                .into(),
        );
        plan.select(BTreeMap::new());
        plan.declare(&of_all("true"), BTreeSet::new());
        tellers.declare(&of_all("true")).unwrap();
        tellers.tell(&lost.clone().into());
        assert_eq!(tellers.runs().unwrap().succeeded, 0, "of another entry");
        plan.complete(&BTreeSet::new());
        for _ in 0..2 {
            tellers.tell_left();
            let soon = Clock::system().after(Duration::from_secs(300));
            tellers.tell_by(soon).unwrap();
            assert_eq!(tellers.runs().unwrap().succeeded, 1);
        }
        let early = &tellers.of_entries.lock().early;
        assert!(early.is_empty(), "{early:?}");
    }

    /// Seen: an object was written before its selection was known, and its entry's program was
    /// never told.
    #[test]
    fn who_a_selection_names_is_told_of_what_was_written_before_it_was_known() {
        let plan = Plan::default();
        let none = (Tells::default(), Told::default());
        let tellers = Tellers::start(&none.0, plan.clone(), none.1, Default::default());
        let tellers = Arc::new(tellers.unwrap());
        let mut declaration = of_all("true");
        let mut selected = of_all("/bin/true").entries;
        Arc::get_mut(&mut selected[0]).unwrap().what = What::Selected(Selection {
            kind: "Secret",
            namespace: "shop".to_owned(),
            labels: String::new(),
        });
        declaration.entries.append(&mut selected.clone());
        plan.declare(&declaration, BTreeSet::new());
        tellers.declare(&declaration).unwrap();
        let object = |name| references::of_flag("secret", name).unwrap();
        let names = ["shop/found", "shop/other", "else/where"];
        tellers.tell(&names.map(object).into());
        let told = |runs| {
            let soon = Clock::system().after(Duration::from_secs(300));
            tellers.tell_by(soon).unwrap();
            assert_eq!(tellers.runs().unwrap().succeeded, runs);
        };
        told(1);
        assert_eq!(tellers.of_entries.lock().unclaimed.len(), 2);
        plan.select([(object("shop/found"), selected.remove(0))].into());
        plan.complete(&BTreeSet::new());
        for _ in 0..2 {
            tellers.tell_left();
            told(2);
        }
    }

    /// Seen: what was written before the tellers of entries were there, nobody was told.
    #[test]
    fn who_comes_after_a_change_is_told_of_it() {
        let plan = Plan::default();
        let none = (Tells::default(), Told::default());
        let tellers = Tellers::start(&none.0, plan.clone(), none.1, Default::default());
        let tellers = Arc::new(tellers.unwrap());
        plan.declare(&of_all("true"), BTreeSet::new());
        let object = references::of_flag("secret", "shop/a").unwrap();
        tellers.tell(&[object].into());
        for _ in 0..2 {
            tellers.declare(&of_all("true")).unwrap();
            let soon = Clock::system().after(Duration::from_secs(300));
            tellers.tell_by(soon).unwrap();
            assert_eq!(tellers.runs().unwrap().succeeded, 1);
        }
    }
}
