//! `--exec-on-change`: a program that is run after files changed, in a process group of its own and
//! within a limit. Nothing of that group is left behind.

use std::collections::BTreeSet;
use std::io::{self, PipeReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubecache::clock::Clock;
use kubecache::worker::{StopToken, Wake};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::bell::Bell;
use crate::log_format;
use crate::managers::ObjectId;
use crate::notify::VARIABLES;
use crate::outflow::STDERR;
use crate::reads::later;

/// The objects whose files changed, one per line, as `secret shop/db`.
const CHANGED: &str = "KUBECACHE_CHANGED";
/// How many more there are.
const LEFT_OUT: &str = "KUBECACHE_CHANGED_LEFT_OUT";
/// The system takes variables of twice this size.
const CHANGED_BYTES_MAX: usize = 64 * 1024;

/// So much of a run's output is passed on.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Reads after the program's end: enough for what a pipe holds.
const LAST_READS: usize = 256;

/// How long a run has between SIGTERM and SIGKILL, after its limit and when the agent ends.
const GRACE: Duration = Duration::from_secs(2);
const LAST_GRACE: Duration = Duration::from_millis(500);
/// How long the end of a killed program is awaited. The kernel may be inside of a call for it.
const KILLED_WAIT: Duration = Duration::from_secs(5);
/// How often its end is looked for where the system does not tell of it.
const TICK: Duration = Duration::from_millis(20);
/// A run without a limit counts as long after this.
const LONG: Duration = Duration::from_secs(30);
/// How long a run that is being started holds up the end at a second signal.
const START_WAIT: Duration = Duration::from_millis(200);

/// The groups of the runs. A leader is not reaped before it has left this list, so that its number
/// is no other's.
static RUNNING: Mutex<Running> = Mutex::new(Running {
    groups: Vec::new(),
    starting: 0,
    ends: false,
});

/// Told when no run is being started any more.
static STARTED: Condvar = Condvar::new();

struct Running {
    groups: Vec<Pid>,
    /// So many are being started: a file system that hangs may never let that end.
    starting: usize,
    /// The process ends: no run begins any more.
    ends: bool,
}

/// What is run, and how long a run may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HookOptions {
    /// The flag or field that names it.
    pub(crate) label: &'static str,
    /// A program and its arguments; empty: none.
    pub(crate) command: Vec<String>,
    /// `None`: without end.
    pub(crate) limit: Option<Duration>,
}

impl HookOptions {
    /// How long a run may take before it is told of.
    pub(crate) fn long(&self) -> Duration {
        let half = self.limit.and_then(|limit| limit.checked_div(2));
        half.unwrap_or(LONG)
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) took: Duration,
    pub(crate) failure: Option<String>,
}

/// Ends the process, and a run with it.
pub(crate) fn exit(code: i32) -> ! {
    let mut running = RUNNING.lock();
    running.ends = true;
    let starts = |running: &mut Running| running.starting > 0;
    let _late = STARTED.wait_while_for(&mut running, starts, START_WAIT);
    for group in &running.groups {
        let _ended = kill_process_group(*group, Signal::KILL).is_err();
    }
    std::process::exit(code)
}

/// Runs the program to its end, its limit or the stop. Blocks so long.
pub(crate) fn run(options: &HookOptions, changed: &BTreeSet<ObjectId>, stop: &StopToken) -> Ran {
    let clock = Clock::system();
    let began = clock.now();
    let ended = Run::start(options, changed, stop).and_then(|run| run.oversee(options, stop));
    Ran {
        took: clock.now().saturating_duration_since(began),
        failure: ended.err(),
    }
}

/// A program that runs.
struct Run {
    child: Child,
    group: Pid,
    exit: Option<OwnedFd>,
    output: Output,
}

/// How far a run is towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// It was sent a SIGTERM.
    Asked,
    Killed,
}

impl Run {
    fn start(
        options: &HookOptions,
        changed: &BTreeSet<ObjectId>,
        stop: &StopToken,
    ) -> Result<Self, String> {
        let told = |error: io::Error| error.to_string();
        let (program, arguments) = options.command.split_first().ok_or("no program is named")?;
        let (names, left_out) = names(changed);
        let (from, to) = io::pipe().map_err(told)?;
        rustix::io::ioctl_fionbio(&from, true).map_err(|error| told(error.into()))?;
        let mut command = Command::new(program);
        // Its output must not stand between the rows.
        command
            .args(arguments)
            .env(CHANGED, names)
            .env(LEFT_OUT, left_out.to_string())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(to.try_clone().map_err(told)?)
            .stderr(to);
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        let mut running = RUNNING.lock();
        if running.ends || stop.is_stopped() {
            return Err("the agent ends".to_owned());
        }
        running.starting = running.starting.saturating_add(1);
        drop(running);
        let spawned = command.spawn();
        let mut running = RUNNING.lock();
        running.starting = running.starting.saturating_sub(1);
        STARTED.notify_all();
        let child = spawned.map_err(told)?;
        let group = Pid::from_child(&child);
        running.groups.push(group);
        drop(running);
        Ok(Self {
            child,
            group,
            exit: exit_descriptor(group),
            output: Output::new(from),
        })
    }

    /// Waits for the end, and brings it about once the limit has passed or the stop is raised.
    fn oversee(mut self, options: &HookOptions, stop: &StopToken) -> Result<(), String> {
        let clock = Clock::system();
        let (ring, heard) = Bell::pair().map_err(|error| self.lost(&error.to_string()))?;
        let ring: Arc<dyn Wake> = ring;
        let _registration = stop.register(&ring);
        let mut stage = Stage::Running;
        let began = clock.now();
        let mut until = options.limit.map(|limit| later(began, limit));
        let mut long = Some(later(began, options.long()));
        while !self.has_ended() {
            let now = clock.now();
            let has_passed = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if stop.is_stopped() && stage != Stage::Killed {
                let last = later(now, LAST_GRACE);
                until = Some(match (stage, until) {
                    (Stage::Asked, Some(until)) => until.min(last),
                    _ => now,
                });
            }
            if has_passed(until) {
                let grace = if stop.is_stopped() { LAST_GRACE } else { GRACE };
                let (signal, next, wait) = match stage {
                    Stage::Running => (Signal::TERM, Stage::Asked, grace),
                    Stage::Asked => (Signal::KILL, Stage::Killed, KILLED_WAIT),
                    Stage::Killed => {
                        return Err(self.lost("it was killed and has not ended"));
                    }
                };
                let _ended = kill_process_group(self.group, signal).is_err();
                (stage, until) = (next, Some(later(now, wait)));
            }
            if long.take_if(|long| *long <= now).is_some() && stage == Stage::Running {
                let program = options.command.first().map_or("", String::as_str);
                let long = options.long();
                let label = options.label;
                log::warn!("{label} {program}: still running after {long:?}");
            }
            let wake = until.into_iter().chain(long).min();
            self.wait(&heard, wake.map(|at| at.saturating_duration_since(now)));
        }
        self.end(stage, options, stop)
    }

    /// Waits until there is output, an end, a stop, or the time has passed.
    fn wait(&mut self, heard: &UnixStream, most: Option<Duration>) {
        let tick = self.exit.is_none().then_some(TICK);
        let most = most.into_iter().chain(tick).min();
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        let mut awaited = vec![PollFd::new(heard, PollFlags::IN)];
        awaited.extend(self.exit.as_ref().map(|at| PollFd::new(at, PollFlags::IN)));
        let output = self.output.from.as_ref();
        awaited.extend(output.map(|from| PollFd::new(from, PollFlags::IN)));
        // Interrupted, it looks again.
        let _ready = poll(&mut awaited, most.as_ref()).is_ok();
        drop(awaited);
        let mut rung = [0; 64];
        drop((&mut &*heard).read(&mut rung));
        self.output.read();
    }

    /// Whether the program has ended. It is not reaped, so that its number is still its own.
    fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let found = waitid(WaitId::Pid(self.group), look);
        !matches!(found, Ok(None) | Err(Errno::INTR))
    }

    /// Kills what the program has left in its group, and reaps it.
    fn end(mut self, stage: Stage, options: &HookOptions, stop: &StopToken) -> Result<(), String> {
        for _ in 0..LAST_READS {
            if !self.output.read() {
                break;
            }
        }
        self.output.end(options.label);
        let status = {
            let mut running = RUNNING.lock();
            let _ended = kill_process_group(self.group, Signal::KILL).is_err();
            running.groups.retain(|group| *group != self.group);
            self.child.wait().map_err(|error| error.to_string())?
        };
        self.reap_rest();
        match options.limit {
            _ if stage == Stage::Running && status.success() => Ok(()),
            _ if stage == Stage::Running => Err(status.to_string()),
            Some(limit) if !stop.is_stopped() => {
                Err(format!("it ran longer than {limit:?} and was ended"))
            }
            _ => Err("it was ended with the agent".to_owned()),
        }
    }

    /// Reaps what was killed in its group: a container's first process inherits that. While one is
    /// left, the group's number is no other's.
    fn reap_rest(&self) {
        let clock = Clock::system();
        let until = later(clock.now(), LAST_GRACE);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::Pgid(Some(self.group)), options) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) if clock.now() < until => {
                    let tick = Timespec::try_from(TICK).ok();
                    let _passed = poll(&mut [], tick.as_ref()).is_ok();
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Lets go of a run whose end cannot be awaited.
    fn lost(&self, why: &str) -> String {
        let mut running = RUNNING.lock();
        let _ended = kill_process_group(self.group, Signal::KILL).is_err();
        running.groups.retain(|group| *group != self.group);
        format!("process {}: {why}", self.child.id())
    }
}

/// A descriptor that becomes readable as the program ends; `None` where the system has none.
#[cfg(target_os = "linux")]
fn exit_descriptor(pid: Pid) -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, pidfd_open};
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn exit_descriptor(_pid: Pid) -> Option<OwnedFd> {
    None
}

/// The names of objects, and how many did not fit.
fn names(changed: &BTreeSet<ObjectId>) -> (String, usize) {
    let mut names = String::new();
    let mut left_out: usize = 0;
    for object in changed {
        let name = format!("{} {}\n", object.kind.to_lowercase(), object.key);
        if names.len().saturating_add(name.len()) > CHANGED_BYTES_MAX {
            left_out = left_out.saturating_add(1);
        } else {
            names.push_str(&name);
        }
    }
    names.pop();
    (names, left_out)
}

/// What a run writes, on its way to the agent's log.
struct Output {
    /// `None` at its end.
    from: Option<PipeReader>,
    /// What came of a line.
    line: Vec<u8>,
    room: usize,
    left_out: usize,
}

impl Output {
    fn new(from: PipeReader) -> Self {
        Self {
            from: Some(from),
            line: Vec::new(),
            room: OUTPUT_BYTES_MAX,
            left_out: 0,
        }
    }

    /// Takes what is there; `false` if that is nothing. What is too much is taken too, so that the
    /// program goes on.
    fn read(&mut self) -> bool {
        let mut piece = [0; 4096];
        let read = self.from.as_mut().map(|from| from.read(&mut piece));
        let count = match read {
            Some(Ok(count @ 1..)) => count,
            Some(Err(error))
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return false;
            }
            _ => {
                self.from = None;
                return false;
            }
        };
        let taken = count.min(self.room);
        self.room = self.room.saturating_sub(taken);
        self.left_out = self.left_out.saturating_add(count.saturating_sub(taken));
        self.line.extend(piece.iter().take(taken));
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.line.split_off(end.saturating_add(1));
            let lines = std::mem::replace(&mut self.line, rest);
            STDERR.push(log_format::passed_on(lines));
        }
        true
    }

    fn end(&mut self, label: &str) {
        if !self.line.is_empty() {
            self.line.push(b'\n');
            STDERR.push(log_format::passed_on(std::mem::take(&mut self.line)));
        }
        if self.left_out > 0 {
            let left_out = self.left_out;
            log::warn!("{label}: {left_out} bytes of its output are left out");
        }
    }
}

#[cfg(test)]
mod tests {
    use kubecache::object::ObjectKey;

    use super::*;

    #[test]
    fn the_changed_objects_are_named_as_far_as_a_variable_has_room() {
        let object = |kind: &'static str, name: String| ObjectId {
            kind: kind.into(),
            key: ObjectKey::new("shop", name),
        };
        let two = [("Secret", "db"), ("ConfigMap", "flags")];
        let two = two.map(|(kind, name)| object(kind, name.to_owned()));
        let expected = "configmap shop/flags\nsecret shop/db".to_owned();
        assert_eq!(names(&two.into()), (expected, 0));
        let many = (0..1000).map(|number| object("Secret", format!("{number:0>200}")));
        let (text, left_out) = names(&many.collect());
        assert!(text.len() <= CHANGED_BYTES_MAX && text.len() > CHANGED_BYTES_MAX - 300);
        assert_eq!(text.lines().count() + left_out, 1000);
        assert!(text.lines().all(|line| line.len() == 212), "whole lines");
    }
}
