//! The runtime: pods whose containers are child processes of this program.

#![expect(
    clippy::disallowed_types,
    reason = "a program brings its own locks: the library's are its own"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use kubecache::pod_status::{
    CachedStatus as _, ContainerState, ContainerStatus, PodStatus, Runtime, RuntimeError,
    RuntimePod,
};
use kubecache::worker::StopToken;

use crate::container::Run;

/// The handle of the runtime, for who starts and removes pods; cheap to clone. Every process ends
/// with the last handle.
#[derive(Clone, Default)]
pub(crate) struct Processes(Arc<Mutex<Pods>>);

/// Containers by the uid of their pod, in the order of their start.
#[derive(Default)]
struct Pods {
    by_uid: BTreeMap<String, Vec<Container>>,
    /// Pods that were removed: nothing is started for them any more.
    removed: BTreeSet<String>,
    started: u64,
}

struct Container {
    /// New with each start, so that a restart between two lists is seen.
    id: String,
    name: String,
    restarts: u32,
    child: Child,
    started_at: SystemTime,
    exited: Option<(ExitStatus, SystemTime)>,
}

impl Processes {
    /// Starts a container as a process of its own; its number says how often it was started before.
    /// A pod that was removed gets none.
    pub(crate) fn start(&self, uid: &str, name: &str, restarts: u32, run: Run) -> io::Result<()> {
        // Held all along, so that no container starts behind its pod's removal.
        let mut pods = self.lock();
        if pods.removed.contains(uid) {
            return Ok(());
        }
        let child = Command::new(std::env::current_exe()?)
            .arg("--be-a-container")
            .arg(run.argument())
            .stdin(Stdio::piped())
            // A Ctrl-C at the terminal is for the program: it ends its containers itself.
            .process_group(0)
            .spawn()?;
        pods.started = pods.started.saturating_add(1);
        let container = Container {
            id: format!("{name}-{}", pods.started),
            name: name.to_owned(),
            restarts,
            child,
            started_at: SystemTime::now(),
            exited: None,
        };
        pods.by_uid
            .entry(uid.to_owned())
            .or_default()
            .push(container);
        Ok(())
    }

    /// Ends what runs of a pod and forgets it.
    pub(crate) fn remove(&self, uid: &str) {
        let containers = {
            let mut pods = self.lock();
            pods.removed.insert(uid.to_owned());
            pods.by_uid.remove(uid)
        };
        // Their drop waits for the ends of the processes.
        drop(containers);
    }

    fn lock(&self) -> MutexGuard<'_, Pods> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime for Processes {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        let mut pods = self.lock();
        let listed = pods.by_uid.iter_mut().map(|(uid, all)| list(uid, all));
        Ok(listed.collect::<io::Result<_>>()?)
    }

    fn find_pods(
        &mut self,
        uids: &[String],
        _stop: &StopToken,
    ) -> Result<Vec<RuntimePod>, RuntimeError> {
        let mut pods = self.lock();
        let mut found = Vec::new();
        for uid in uids {
            if let Some(containers) = pods.by_uid.get_mut(uid) {
                found.push(list(uid, containers)?);
            }
        }
        Ok(found)
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        let mut status = PodStatus::with_id(pod.uid());
        status.namespace = pod.namespace().into();
        status.name = pod.name().into();
        status.timestamp = Some(SystemTime::now());
        let mut pods = self.lock();
        let containers = pods.by_uid.get_mut(pod.uid()).into_iter().flatten();
        // The newest first: a search by name finds the run that counts.
        for container in containers.rev() {
            status.container_statuses.push(container.status()?);
        }
        Ok(status)
    }
}

fn list(uid: &str, containers: &mut [Container]) -> io::Result<RuntimePod> {
    let mut pod = RuntimePod::new(uid, "example", uid);
    for container in containers {
        let state = container.look()?;
        pod = pod.container(&container.id, state);
    }
    Ok(pod)
}

impl Container {
    /// Asks the system; an ended process is collected by that.
    fn look(&mut self) -> io::Result<ContainerState> {
        if self.exited.is_none() {
            let ended = self.child.try_wait()?;
            self.exited = ended.map(|status| (status, SystemTime::now()));
        }
        Ok(match self.exited {
            Some(_) => ContainerState::Exited,
            None => ContainerState::Running,
        })
    }

    fn status(&mut self) -> io::Result<ContainerStatus> {
        let mut status = ContainerStatus::default();
        status.state = self.look()?;
        status.id.clone_from(&self.id);
        status.name.clone_from(&self.name);
        status.restart_count = self.restarts;
        status.started_at = Some(self.started_at);
        status.message = format!("process {}", self.child.id());
        if let Some((ended, at)) = self.exited {
            status.finished_at = Some(at);
            // As a shell tells of a process that a signal ended.
            let by_signal = ended.signal().map(|signal| signal.saturating_add(128));
            status.exit_code = ended.code().or(by_signal);
        }
        Ok(status)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // A process that has ended already needs no signal; the wait collects it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
