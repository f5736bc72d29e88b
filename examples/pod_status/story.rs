//! The story: three pods, what happens to them, and what their workers see of it.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select, unbounded};
use kubecache::clock::Clock;
use kubecache::pod_status::{PodStatus, PodStatusCache, Relist, RelistOptions};

use crate::Failure;
use crate::args::Options;
use crate::container::Run;
use crate::pod_worker::{PodSpec, PodWorker, Seen};
use crate::processes::Processes;
use crate::signals::Stop;

/// How long the end may take: the runtime's calls are short.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// A server that fails once, and what stands beside it.
const WEB: PodSpec = PodSpec {
    uid: "web",
    containers: &[
        (
            "server",
            &[Run::exits(Duration::from_millis(700), 1), Run::UNTIL_KILLED],
        ),
        ("proxy", &[Run::UNTIL_KILLED]),
    ],
};

/// A job.
const MIGRATE: PodSpec = PodSpec {
    uid: "migrate",
    containers: &[("schema", &[Run::exits(Duration::from_millis(400), 0)])],
};

/// A pod that is removed while it runs.
const DB: PodSpec = PodSpec {
    uid: "db",
    containers: &[("postgres", &[Run::UNTIL_KILLED])],
};

const PODS: [&str; 3] = [WEB.uid, MIGRATE.uid, DB.uid];

/// How far the story is.
#[derive(Default)]
struct Progress {
    web_restarted: bool,
    migrated: bool,
    db_runs: bool,
    removed: BTreeSet<&'static str>,
    gone: usize,
}

/// Plays the story to its end.
pub(crate) fn play(options: &Options) -> Result<(), Failure> {
    let signals = Stop::listen(None, |code| std::process::exit(code))?;
    signals.is_listened_to();
    let clock = Clock::system();
    let cache = PodStatusCache::<PodStatus>::new(clock.clone());
    let processes = Processes::default();
    let relist = Relist::spawn(
        processes.clone(),
        cache.clone(),
        RelistOptions::default().period(options.period),
    )?;
    let (send, seen) = unbounded();
    // Dropped where the story is cut off: that stops and joins them, whatever they wait for.
    let mut workers = Vec::new();
    for spec in [WEB, MIGRATE, DB] {
        let worker = PodWorker {
            spec,
            cache: cache.clone(),
            clock: clock.clone(),
            processes: processes.clone(),
            relist: relist.requests().clone(),
            seen: send.clone(),
        };
        workers.push(worker.spawn()?);
    }
    let mut teller = Teller {
        began: clock.now(),
        clock: clock.clone(),
        progress: Progress::default(),
        processes,
    };
    let period = options.period;
    println(&format!(
        "Three pods of child processes, a relist every {period:?}, a worker for each pod."
    ))?;
    let told = teller.tell_all(&seen, &signals);
    let report = relist.report();
    relist.health()?;
    relist.shutdown(clock.after(SHUTDOWN))?;
    drop(workers);
    told?;
    println(&format!(
        "Every pod is gone and no process is left: {} relists, {} pods on request, {} failed.",
        report.relists, report.requested, report.failures
    ))?;
    Ok(())
}

struct Teller {
    began: Instant,
    clock: Clock,
    progress: Progress,
    processes: Processes,
}

impl Teller {
    /// Prints what the workers see and moves the story on, until every pod is gone.
    fn tell_all(
        &mut self,
        seen: &Receiver<(&'static str, Seen)>,
        signals: &Stop,
    ) -> Result<(), Failure> {
        while self.progress.gone < PODS.len() {
            select! {
                recv(seen) -> seen => {
                    let (uid, seen) = seen?;
                    self.line(uid, &text(&seen))?;
                    self.go_on(uid, seen)?;
                }
                // It tells no more than that it came.
                recv(signals.came) -> _ => self.remove(&PODS, "interrupted")?,
            }
        }
        Ok(())
    }

    /// What follows in the story.
    fn go_on(&mut self, uid: &str, seen: Seen) -> Result<(), Failure> {
        let progress = &mut self.progress;
        match seen {
            Seen::Running { restart: 1.., .. } => progress.web_restarted = true,
            Seen::Running { .. } if uid == DB.uid => progress.db_runs = true,
            Seen::Completed => progress.migrated = true,
            Seen::Gone { .. } => progress.gone = progress.gone.saturating_add(1),
            Seen::Failed(why) => return Err(format!("pod {uid}: {why}").into()),
            Seen::Starting { .. }
            | Seen::Running { .. }
            | Seen::Exited { .. }
            | Seen::NoStatus(_) => {}
        }
        if progress.gone > 0 && progress.migrated {
            self.remove(&PODS, "the story ends")?;
        } else if progress.web_restarted && progress.db_runs {
            self.remove(&[DB.uid], "nobody needs it any more")?;
        }
        Ok(())
    }

    /// Removes pods; those that are removed already stay so.
    fn remove(&mut self, uids: &[&'static str], why: &str) -> io::Result<()> {
        for uid in uids {
            if self.progress.removed.insert(uid) {
                self.line(uid, &format!("is removed: {why}"))?;
                self.processes.remove(uid);
            }
        }
        Ok(())
    }

    fn line(&self, uid: &str, text: &str) -> io::Result<()> {
        let passed = self.clock.now().saturating_duration_since(self.began);
        println(&format!("{:6.2}s  {uid:<8} {text}", passed.as_secs_f64()))
    }
}

fn text(seen: &Seen) -> String {
    match seen {
        Seen::Starting {
            container,
            restart: 0,
        } => format!("starts {container}"),
        Seen::Starting { container, .. } => format!("starts {container} again"),
        Seen::Running {
            container,
            restart: 0,
            process,
        } => format!("{container} runs ({process})"),
        Seen::Running {
            container,
            restart,
            process,
        } => format!("{container} runs again ({process}, restart {restart})"),
        Seen::Exited { container, code } => format!("{container} exited with code {code}"),
        Seen::Completed => "completed".to_owned(),
        Seen::Gone { syncs } => format!("is gone, after {syncs} syncs"),
        Seen::NoStatus(why) => format!("error determining status: {why}"),
        Seen::Failed(why) => why.clone(),
    }
}

fn println(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
