//! The objects as files of a directory, and who is told when they change.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::clock::{Clock, Deadline};
use kubecache::object::ObjectKey;
use kubecache::outlet::{Outlet, OutletOptions, Publisher};
use kubecache::worker::{StopToken, Worker};
use kubecache::{Error, ErrorKind, Hook};
use parking_lot::{Condvar, Mutex};

use crate::hook::{self, HookOptions, Ran};
use crate::managers::{Managers, ObjectId};
use crate::pid_file::PidFile;

/// What the flags say of files.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileOptions {
    /// `None`: no files.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) owner: Option<(u32, u32)>,
    /// Whether a directory is taken that has other files.
    pub(crate) adopts: bool,
    pub(crate) hook: HookOptions,
    /// A file with the number of the process that gets a SIGHUP.
    pub(crate) signal: Option<PathBuf>,
}

/// The threads that write.
pub(crate) struct Files {
    secrets: Publisher<Secret>,
    config_maps: Publisher<ConfigMap>,
    // Last: what is written before the end is told.
    teller: Option<Teller>,
}

impl Files {
    /// Starts to write the objects of the managers; `None` without a directory.
    pub(crate) fn start(options: &FileOptions, managers: &Managers) -> Result<Option<Self>, Error> {
        let Some(directory) = &options.directory else {
            return Ok(None);
        };
        let mut outlet = OutletOptions::new(directory)
            .name("node_agent")
            .adopt(options.adopts);
        if let Some((user, group)) = options.owner {
            outlet = outlet.owner(user, group);
        }
        let outlet = Arc::new(Outlet::open(outlet)?);
        let teller = Teller::start(options)?;
        let hook = |kind| Some(teller.as_ref()?.hook(kind));
        let (secrets, config_maps) = managers.shared();
        Ok(Some(Self {
            secrets: Publisher::start(secrets, Arc::clone(&outlet), hook("Secret"))?,
            config_maps: Publisher::start(config_maps, outlet, hook("ConfigMap"))?,
            teller,
        }))
    }

    /// References came or went. What nobody references now may go, also what an earlier agent
    /// wrote.
    pub(crate) fn references_are_complete(&self) {
        self.secrets.references_are_complete();
        self.config_maps.references_are_complete();
    }

    /// References came or went before all are known.
    pub(crate) fn look(&self) {
        self.secrets.look();
        self.config_maps.look();
    }

    /// Runs the hook again if its last run failed.
    pub(crate) fn tell_again(&self) {
        if let Some(teller) = &self.teller {
            teller.tell_again();
        }
    }

    /// Waits until all that is known has its files.
    pub(crate) fn write_by(&self, deadline: Deadline) -> Result<(), Error> {
        self.secrets.publish_by(deadline)?;
        self.config_maps.publish_by(deadline)
    }

    /// Asks the threads that write to end. Who waits for them waits no more.
    pub(crate) fn stop(&self) {
        self.secrets.stop();
        self.config_maps.stop();
        if let Some(teller) = &self.teller {
            teller.stop();
        }
    }

    /// Waits until who is told of the changes so far has been told.
    pub(crate) fn tell_by(&self, deadline: Deadline) -> Result<(), Error> {
        self.teller
            .as_ref()
            .map_or(Ok(()), |teller| teller.tell_by(deadline))
    }

    /// Whether the last run of the hook was a success, and the present one is not too long; `None`
    /// without a hook.
    pub(crate) fn hook_health(&self) -> Option<Result<(), Error>> {
        let teller = self.teller.as_ref()?;
        (!teller.hook.command.is_empty()).then(|| teller.health())
    }

    /// How the runs of the hook stand; `None` without one.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "a metric"))]
    pub(crate) fn hook_runs(&self) -> Option<HookRuns> {
        let teller = self.teller.as_ref()?;
        (!teller.hook.command.is_empty()).then(|| teller.shared.state.lock().runs.clone())
    }

    /// Says what is missing until so many objects have their files.
    pub(crate) fn missing(&self, objects: usize) -> Option<String> {
        let [secrets, config_maps] = [self.secrets.status(), self.config_maps.status()];
        let failed = secrets
            .failed
            .len()
            .saturating_add(config_maps.failed.len());
        let written = secrets.published.saturating_add(config_maps.published);
        let missing = objects.saturating_sub(written).max(failed);
        (missing > 0).then(|| format!("the files of {missing} objects"))
    }

    /// Whether each object has its files.
    pub(crate) fn health(&self) -> Result<(), Error> {
        let failed = [
            self.secrets.status().failed,
            self.config_maps.status().failed,
        ];
        let mut failed = failed
            .into_iter()
            .flat_map(std::collections::BTreeMap::into_values);
        match failed.next() {
            None => Ok(()),
            Some(error) => {
                let number = failed.count().saturating_add(1);
                let text = format!("objects that could not be written: {number}");
                Err(Error::new(ErrorKind::Resources, text).with_source(error))
            }
        }
    }
}

/// A thread that tells others that files have changed: all changes during a run are one more run.
struct Teller {
    changed: Sender<()>,
    shared: Arc<Telling>,
    hook: HookOptions,
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
    stops: bool,
    /// The objects whose files have changed since then, and those of runs that failed.
    changed: BTreeSet<ObjectId>,
    runs: HookRuns,
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
    fn start(options: &FileOptions) -> Result<Option<Self>, Error> {
        if options.hook.command.is_empty() && options.signal.is_none() {
            return Ok(None);
        }
        let (changed, woken) = bounded(1);
        let shared = Arc::<Telling>::default();
        let (on_thread, own) = (options.clone(), Arc::clone(&shared));
        let worker = Worker::spawn("agent-tells", move |stop| {
            tell_until_stopped(&on_thread, &woken, &own, stop);
        });
        let worker = worker.map_err(|error| {
            Error::new(ErrorKind::Resources, "thread agent-tells").with_source(error)
        })?;
        Ok(Some(Self {
            changed,
            shared,
            hook: options.hook.clone(),
            worker,
        }))
    }

    /// What a publisher of objects of this kind calls.
    fn hook(&self, kind: &'static str) -> Hook<BTreeSet<ObjectKey>> {
        let (changed, shared) = (self.changed.clone(), Arc::clone(&self.shared));
        Hook::new(move |keys: &BTreeSet<ObjectKey>| {
            let mut state = shared.state.lock();
            state.changed.extend(keys.iter().map(|key| ObjectId {
                kind: kind.into(),
                key: key.clone(),
            }));
            state.due = true;
            drop(state);
            // A full channel holds the message this one would have been.
            let _full = changed.try_send(()).is_err();
        })
    }

    fn tell_again(&self) {
        let mut state = self.shared.state.lock();
        if state.runs.failure.is_some() {
            state.due = true;
            drop(state);
            let _full = self.changed.try_send(()).is_err();
        }
    }

    fn tell_by(&self, deadline: Deadline) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        while (state.due || state.busy) && !state.stops {
            let late = if let Some(instant) = deadline.instant() {
                let waited = self.shared.at_rest.wait_until(&mut state, instant);
                waited.timed_out()
            } else {
                self.shared.at_rest.wait(&mut state);
                false
            };
            if late {
                let text = "timed out waiting for the end of --exec-on-change; it is ended now";
                return Err(Error::new(ErrorKind::Timeout, text));
            }
        }
        match &state.runs.failure {
            _ if state.stops => Err(Error::stopped("the end of --exec-on-change")),
            None => Ok(()),
            Some(why) => {
                let text = format!("--exec-on-change {}: {why}", self.program());
                Err(Error::new(ErrorKind::Resources, text))
            }
        }
    }

    fn health(&self) -> Result<(), Error> {
        let runs = self.shared.state.lock().runs.clone();
        let took = runs.took(Clock::system().now());
        if took > self.hook.long() {
            let text = format!("a run is still under way after {}s", took.as_secs());
            return Err(Error::new(ErrorKind::Timeout, text));
        }
        runs.failure.map_or(Ok(()), |why| {
            let text = format!("the last run failed: {why}");
            Err(Error::new(ErrorKind::Resources, text))
        })
    }

    fn program(&self) -> &str {
        self.hook.command.first().map_or("", String::as_str)
    }

    /// Ends the run, and who waits for it waits no more.
    fn stop(&self) {
        self.shared.state.lock().stops = true;
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
    options: &FileOptions,
    woken: &Receiver<()>,
    shared: &Telling,
    stop: &StopToken,
) {
    let mut pid_file = options.signal.clone().map(PidFile::new);
    loop {
        select! {
            recv(woken) -> gone => if gone.is_err() {
                return;
            },
            recv(stop.channel()) -> _ => return,
        }
        let changed = {
            let mut state = shared.state.lock();
            (state.due, state.busy) = (false, true);
            std::mem::take(&mut state.changed)
        };
        if let Some(file) = &mut pid_file
            && let Err(error) = file.signal(stop)
        {
            log::error!("--signal-on-change {error}");
        }
        if let Some(program) = options.hook.command.first() {
            shared.state.lock().runs.began = Some(Clock::system().now());
            let ran = hook::run(&options.hook, &changed, stop);
            let took = ran.took;
            match &ran.failure {
                None => log::info!("--exec-on-change {program}: ended well after {took:?}"),
                Some(_) if stop.is_stopped() => {}
                Some(why) => log::error!("--exec-on-change {program}: {why}, after {took:?}"),
            }
            let mut state = shared.state.lock();
            if ran.failure.is_some() {
                // The next run is told of them too.
                state.changed.extend(changed);
            }
            state.runs.ended(ran);
        }
        shared.state.lock().busy = false;
        shared.at_rest.notify_all();
    }
}
