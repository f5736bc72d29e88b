//! A pod worker: waits for what the cache knows of its pod, compares it with what should be, and
//! acts.

use std::collections::BTreeMap;
use std::io;

use crossbeam_channel::Sender;
use kubecache::clock::{Clock, Deadline};
use kubecache::pod_status::{ContainerState, PodStatus, PodStatusCache, RelistRequests, Timestamp};
use kubecache::worker::{StopToken, Worker};

use crate::container::Run;
use crate::processes::Processes;

/// What a pod should be: each container with its runs, one after the other as long as they fail.
pub(crate) struct PodSpec {
    pub(crate) uid: &'static str,
    pub(crate) containers: &'static [(&'static str, &'static [Run])],
}

/// What a worker saw or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Starting {
        container: &'static str,
        restart: u32,
    },
    Running {
        container: &'static str,
        restart: u32,
        process: String,
    },
    Exited {
        container: &'static str,
        code: i32,
    },
    /// Every container exited with code 0.
    Completed,
    /// The runtime knows nothing of the pod any more.
    Gone {
        syncs: u32,
    },
    /// The runtime could not say; the worker tries again with the next status.
    NoStatus(String),
    Failed(String),
}

pub(crate) struct PodWorker {
    pub(crate) spec: PodSpec,
    pub(crate) cache: PodStatusCache<PodStatus>,
    pub(crate) clock: Clock,
    pub(crate) processes: Processes,
    pub(crate) relist: RelistRequests,
    pub(crate) seen: Sender<(&'static str, Seen)>,
}

impl PodWorker {
    /// Starts its thread.
    pub(crate) fn spawn(self) -> io::Result<Worker> {
        Worker::spawn(format!("pod-{}", self.spec.uid), move |stop| {
            self.work(stop);
        })
    }

    /// Works until the pod is gone, the cache is closed, or it is stopped.
    fn work(self, stop: &StopToken) {
        let mut told = BTreeMap::new();
        let mut syncs = 0_u32;
        // The first sync takes any status; each one after it only what was found after the one
        // before had ended: it sees what that one did, and does not do it twice.
        let mut end_of_sync = Timestamp::ZERO;
        while let Ok(reading) =
            self.cache
                .get_newer_than_or_stop(self.spec.uid, end_of_sync, Deadline::NEVER, stop)
        {
            syncs = syncs.saturating_add(1);
            let mut did_something = false;
            match (reading.error(), reading.status()) {
                (Some(error), _) => {
                    self.tell(Seen::NoStatus(error.to_string()));
                }
                (None, Some(status)) if syncs > 1 && status.container_statuses.is_empty() => {
                    self.tell(Seen::Gone { syncs });
                    return;
                }
                (None, Some(status)) => did_something = self.sync(status, &mut told),
                (None, None) => {}
            }
            end_of_sync = Timestamp::now(&self.clock);
            if did_something {
                // The result is seen at once, and not only at the end of the period.
                self.relist.request_relist(self.spec.uid);
            }
        }
    }

    /// Brings the pod from what it is to what it should be. Returns whether that took an action.
    fn sync(&self, status: &PodStatus, told: &mut BTreeMap<String, ContainerState>) -> bool {
        let mut did_something = false;
        let mut completed = true;
        let mut news = false;
        for (name, runs) in self.spec.containers {
            let Some(container) = status.find_container(name) else {
                completed = false;
                did_something |= self.start(name, runs, 0);
                continue;
            };
            completed &= container.exit_code == Some(0);
            if told.insert(container.id.clone(), container.state) == Some(container.state) {
                continue;
            }
            news = true;
            match container.exit_code {
                None => self.tell(Seen::Running {
                    container: name,
                    restart: container.restart_count,
                    process: container.message.clone(),
                }),
                Some(code) => {
                    self.tell(Seen::Exited {
                        container: name,
                        code,
                    });
                    if code != 0 {
                        let restart = container.restart_count.saturating_add(1);
                        did_something |= self.start(name, runs, restart);
                    }
                }
            }
        }
        if completed && news {
            self.tell(Seen::Completed);
        }
        did_something
    }

    /// Starts a container's next run, if it has one. Returns whether it did.
    fn start(&self, name: &'static str, runs: &[Run], restart: u32) -> bool {
        let run = usize::try_from(restart)
            .ok()
            .and_then(|number| runs.get(number));
        let Some(run) = run else {
            return false;
        };
        self.tell(Seen::Starting {
            container: name,
            restart,
        });
        let started = self.processes.start(self.spec.uid, name, restart, *run);
        if let Err(error) = &started {
            self.tell(Seen::Failed(format!("starting {name}: {error}")));
        }
        started.is_ok()
    }

    fn tell(&self, seen: Seen) {
        // The story may be over.
        drop(self.seen.send((self.spec.uid, seen)));
    }
}
