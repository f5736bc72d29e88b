//! The objects as files of a directory, and who is told when they change.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded, select};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::clock::Deadline;
use kubecache::object::ObjectKey;
use kubecache::outlet::{Outlet, OutletOptions, Publisher};
use kubecache::worker::{StopToken, Worker};
use kubecache::{Error, ErrorKind, Hook};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::managers::Managers;
use crate::pid_file;

/// What the flags say of files.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileOptions {
    /// `None`: no files.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) owner: Option<(u32, u32)>,
    /// Whether a directory is taken that has other files.
    pub(crate) adopts: bool,
    /// A program and its arguments.
    pub(crate) run: Vec<String>,
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
        let hook = || {
            let (changed, shared) = teller.as_ref()?.hook();
            Some(Hook::new(move |_keys: &BTreeSet<ObjectKey>| {
                shared.state.lock().due = true;
                // A full channel holds the message this one would have been.
                let _full = changed.try_send(()).is_err();
            }))
        };
        let (secrets, config_maps) = managers.shared();
        Ok(Some(Self {
            secrets: Publisher::start(secrets, Arc::clone(&outlet), hook())?,
            config_maps: Publisher::start(config_maps, outlet, hook())?,
            teller,
        }))
    }

    /// References came or went. What nobody references now may go, also what an earlier agent
    /// wrote.
    pub(crate) fn references_are_complete(&self) {
        self.secrets.references_are_complete();
        self.config_maps.references_are_complete();
    }

    /// Waits until all that is known has its files.
    pub(crate) fn write_by(&self, deadline: Deadline) -> Result<(), Error> {
        self.secrets.publish_by(deadline)?;
        self.config_maps.publish_by(deadline)
    }

    /// Waits until who is told of the changes so far has been told.
    pub(crate) fn tell_by(&self, deadline: Deadline) -> Result<(), Error> {
        self.teller
            .as_ref()
            .map_or(Ok(()), |teller| teller.tell_by(deadline))
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
    running: Option<Pid>,
}

impl Teller {
    fn start(options: &FileOptions) -> Result<Option<Self>, Error> {
        if options.run.is_empty() && options.signal.is_none() {
            return Ok(None);
        }
        let (changed, woken) = bounded(1);
        let shared = Arc::<Telling>::default();
        let (options, own) = (options.clone(), Arc::clone(&shared));
        let worker = Worker::spawn("agent-tells", move |stop| {
            tell_until_stopped(&options, &woken, &own, stop);
        });
        let worker = worker.map_err(|error| {
            Error::new(ErrorKind::Resources, "thread agent-tells").with_source(error)
        })?;
        Ok(Some(Self {
            changed,
            shared,
            worker,
        }))
    }

    fn hook(&self) -> (Sender<()>, Arc<Telling>) {
        (self.changed.clone(), Arc::clone(&self.shared))
    }

    fn tell_by(&self, deadline: Deadline) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        while state.due || state.busy {
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
        Ok(())
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.worker.stop();
        // The thread waits for its child.
        let state = self.shared.state.lock();
        if let Some(pid) = state.running {
            // It has ended by itself if that fails.
            let _ended = kill_process(pid, Signal::KILL).is_err();
        }
    }
}

fn tell_until_stopped(
    options: &FileOptions,
    woken: &Receiver<()>,
    shared: &Telling,
    stop: &StopToken,
) {
    loop {
        select! {
            recv(woken) -> gone => if gone.is_err() {
                return;
            },
            recv(stop.channel()) -> _ => return,
        }
        {
            let mut state = shared.state.lock();
            (state.due, state.busy) = (false, true);
        }
        if let Some(file) = &options.signal
            && let Err(error) = pid_file::signal(file)
        {
            log::error!("--signal-on-change {}: {error}", file.display());
        }
        if let Some((program, arguments)) = options.run.split_first() {
            match run(program, arguments, shared, stop) {
                Ok(None) => {}
                Ok(Some(ended)) => log::error!("--exec-on-change {program}: {ended}"),
                Err(error) => log::error!("--exec-on-change {program}: {error}"),
            }
        }
        shared.state.lock().busy = false;
        shared.at_rest.notify_all();
    }
}

/// Runs the program to its end. Returns how it ended, if that is a failure.
fn run(
    program: &str,
    arguments: &[String],
    shared: &Telling,
    stop: &StopToken,
) -> std::io::Result<Option<String>> {
    let mut command = Command::new(program);
    // Its output must not stand between the rows.
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(std::io::stderr());
    let (mut child, pid) = {
        let mut state = shared.state.lock();
        if stop.is_stopped() {
            return Ok(None);
        }
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        state.running = Some(pid);
        (child, pid)
    };
    // Its number is its own until it is waited for, so it is nobody else's while it can be killed.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), ended), Err(Errno::INTR)) {}
    shared.state.lock().running = None;
    let status = child.wait()?;
    Ok((!status.success() && !stop.is_stopped()).then(|| status.to_string()))
}
