//! Runs a child process to its end, within a limit and a stop, and leaves nothing of it behind.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::last_words::{LastWords, is_ready_now};
use crate::clock::{Clock, Deadline};
use crate::http::calls::call_context::CallContext;
use crate::http::calls::interrupt::Interrupt;
use crate::sync::atomic::{AtomicI32, Ordering};
use crate::wire::Buffer;

/// The most that a child may write to standard output.
pub(super) const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// The room for each read. A token fits.
const OUTPUT_BYTES: usize = 16 * 1024;

/// How often a child is checked for its end if the system does not report it.
const TICK: Duration = Duration::from_millis(20);

/// How long to wait for the end of a killed child. The kernel may be inside of a call for it.
const KILLED_WAIT: Duration = Duration::from_secs(5);

/// Within this time a run ends after its limit or a stop, unless a call of the system hangs.
pub(super) const END_WAIT: Duration = Duration::from_secs(10);

/// The exit status and the output of a child that ended by itself.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) output: Buffer,
}

/// Why a child did not end by itself.
pub(super) enum ChildFailure {
    /// The one before it was killed, and has not ended.
    Left(i32),
    /// It could not be started.
    Start(io::Error),
    /// The stop, the limit, or the system's error of a wait.
    Interrupted(Interrupt),
    /// It wrote more than the maximum.
    TooLarge,
    /// Its end could not be read.
    Lost(io::Error),
}

/// A child that was not reaped. Its drop kills it and reaps it.
struct RunningChild<'a> {
    child: Child,
    /// Gets its number if it cannot be reaped.
    left: &'a AtomicI32,
    /// Whether it leads a process group of its own.
    leads_group: bool,
    is_reaped: bool,
}

/// Runs `command` to its end, by the limit and the stop of `call`. Blocks until then.
///
/// With `leads_group` the child leads a process group of its own. The limit, the stop and too much
/// output kill all of that group. The output ends with the child, even if one of its own children
/// keeps the pipe open. `words` reads the child's standard error, if that is a pipe. `left` has the
/// number of a killed child that has not ended, or 0; beside it no other one runs.
///
/// # Errors
///
/// Why it did not end by itself.
pub(super) fn run(
    command: &mut Command,
    leads_group: bool,
    call: &CallContext,
    words: &mut LastWords,
    left: &AtomicI32,
) -> Result<Ended, ChildFailure> {
    reap_left(left)?;
    if leads_group {
        command.process_group(0);
    }
    let child = command.spawn().map_err(ChildFailure::Start)?;
    let mut running = RunningChild {
        child,
        left,
        leads_group,
        is_reaped: false,
    };
    let mut stdout = running.child.stdout.take();
    words.from = running.child.stderr.take();
    let exit = running.exit_descriptor();
    let mut output = Buffer::new(OUTPUT_BYTES, OUTPUT_BYTES);
    loop {
        call.check().map_err(ChildFailure::Interrupted)?;
        let waited = wait(call, stdout.as_ref(), words, exit.as_ref());
        let [is_readable, can_step, has_ended] = waited.map_err(ChildFailure::Interrupted)?;
        if is_readable {
            read(&mut stdout, &mut output)?;
        }
        if can_step {
            words.step();
        }
        if has_ended || exit.is_none() && running.has_ended() {
            break;
        }
    }
    let readable = |stdout: &ChildStdout| is_ready_now(PollFd::new(stdout, PollFlags::IN));
    while stdout.as_ref().is_some_and(readable) {
        read(&mut stdout, &mut output)?;
    }
    let status = running.reap().map_err(ChildFailure::Lost)?;
    Ok(Ended { status, output })
}

/// Waits until one of the three is ready, or for a tick if the system does not report the child's
/// end. Returns which are ready.
fn wait(
    call: &CallContext,
    stdout: Option<&ChildStdout>,
    words: &LastWords,
    exit: Option<&OwnedFd>,
) -> Result<[bool; 3], Interrupt> {
    let awaited = [
        stdout.map(|stdout| PollFd::new(stdout, PollFlags::IN)),
        words.awaited(),
        exit.map(|exit| PollFd::new(exit, PollFlags::IN)),
    ];
    let is_awaited = awaited.each_ref().map(Option::is_some);
    let mut descriptors: Vec<_> = awaited.into_iter().flatten().collect();
    descriptors.push(call.wake_descriptor());
    let tick = Clock::system().after(TICK);
    let pause = exit.map_or(tick, |_reports| Deadline::NEVER);
    call.wait_for_any(&mut descriptors, pause)?;
    let mut ready = descriptors.iter().map(|ready| !ready.revents().is_empty());
    Ok(is_awaited.map(|is_awaited| is_awaited && ready.next().unwrap_or_default()))
}

/// Reads the available output. `stdout` becomes `None` at its end.
fn read(stdout: &mut Option<ChildStdout>, output: &mut Buffer) -> Result<(), ChildFailure> {
    let Some(from) = stdout else {
        return Ok(());
    };
    match from.read(output.space()) {
        Ok(0) => *stdout = None,
        Ok(count) => output.filled(count),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(ChildFailure::Interrupted(Interrupt::Io(error))),
    }
    if output.pending().len() > OUTPUT_BYTES_MAX {
        return Err(ChildFailure::TooLarge);
    }
    Ok(())
}

/// Reaps the child that did not end when it was killed.
fn reap_left(left: &AtomicI32) -> Result<(), ChildFailure> {
    let number = left.load(Ordering::SeqCst);
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let looked = Pid::from_raw(number).map(|pid| waitid(WaitId::Pid(pid), look));
    if let Some(Ok(None) | Err(Errno::INTR)) = looked {
        return Err(ChildFailure::Left(number));
    }
    left.store(0, Ordering::SeqCst);
    Ok(())
}

impl RunningChild<'_> {
    /// A descriptor that becomes readable as the child ends; `None` where the system has none.
    #[cfg(target_os = "linux")]
    fn exit_descriptor(&self) -> Option<OwnedFd> {
        use rustix::process::{PidfdFlags, pidfd_open};
        pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn exit_descriptor(&self) -> Option<OwnedFd> {
        None
    }

    /// Whether the child has ended. It is not reaped, so that its number is still its own.
    fn has_ended(&self) -> bool {
        let pid = WaitId::Pid(Pid::from_child(&self.child));
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(pid, look), Ok(None) | Err(Errno::INTR))
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.is_reaped = true;
        self.child.wait()
    }

    /// Blocks until the killed child has ended, for [`KILLED_WAIT`] at most.
    fn await_end(&self) -> bool {
        let clock = Clock::system();
        let until = clock.after(KILLED_WAIT);
        let exit = self.exit_descriptor();
        while !self.has_ended() {
            if clock.has_passed(until) {
                return false;
            }
            let exit_end = exit.iter().map(|exit| PollFd::new(exit, PollFlags::IN));
            let mut descriptors: Vec<_> = exit_end.collect();
            let wait = if exit.is_some() { KILLED_WAIT } else { TICK };
            let wait = Timespec::try_from(wait).ok();
            let _woken = poll(&mut descriptors, wait.as_ref());
        }
        true
    }
}

impl Drop for RunningChild<'_> {
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        // The group and the child may have ended by themselves: then there is nothing to kill.
        if self.leads_group {
            let _ended = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ended = self.child.kill();
        if self.await_end() {
            let _lost = self.reap();
        } else {
            let pid = Pid::from_child(&self.child).as_raw_nonzero();
            self.left.store(pid.get(), Ordering::SeqCst);
            log::warn!(
                "the plugin's process {pid} was killed and has not ended: the system keeps it"
            );
        }
    }
}
