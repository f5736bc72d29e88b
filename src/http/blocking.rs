//! The blocking context of a thread: which stop and which limit end the wait that ureq is in on its
//! behalf.
//!
//! ureq hands no per-request value down to a transport. So each call enters its context on its own
//! thread, and the transport waits by the context of the thread it runs on.

use std::cell::RefCell;
use std::io;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::byte_budget::Account;
use super::halt::{Halt, Limit, Outcome};
use super::slots::Slot;
use super::wakeup::WakeUp;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{RequestPhase, RequestProgress};
use crate::sync::Arc;
use crate::wire::Growth;
use crate::worker::StopToken;

/// Room a request needs besides its path and its header values.
const OUTPUT_BYTES_MIN: usize = 1024;

/// What may end a wait.
#[derive(Clone, Debug)]
pub(crate) struct Blocking {
    /// Ends every wait at once.
    pub(crate) stop: StopToken,
    /// Registered with `stop` by whoever made it.
    pub(crate) wake: Arc<WakeUp>,
    /// When the wait ends, and which limit that is.
    pub(crate) until: Until,
    /// The limit of sending the request, and once more of the wait for the answer to it; and the
    /// end of the whole call.
    pub(crate) first_byte: Option<(Duration, Until)>,
    /// After so much silence, before the first byte of the answer, this try of the request ends.
    pub(crate) silence: Option<Duration>,
    /// A shorter one for a kept connection, whose path may have died while nothing moved.
    pub(crate) kept_silence: Option<Duration>,
    /// The largest piece of the request's head.
    pub(crate) output_bytes: usize,
    /// Whether this call made its own connection.
    pub(crate) dialed: bool,
    /// The socket the request went out on.
    pub(crate) socket: Option<Arc<TcpStream>>,
    /// Whether waits fail instead of blocking.
    pub(crate) only_what_is_there: bool,
    /// Given back while a wait is long.
    pub(crate) slot: Option<Arc<Slot>>,
    /// Told of each phase.
    pub(crate) progress: Option<RequestProgress>,
    /// The deadline of the caller, whatever other limits end before it.
    pub(crate) caller: Deadline,
    /// What the answer's unfinished part is counted in; it may be closed.
    pub(crate) account: Option<Account>,
    /// So many bytes more may come before the head of the answer is whole.
    pub(crate) head_bytes_left: Option<usize>,
}

/// A moment and the name of the limit that ends there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    pub(crate) deadline: Deadline,
    pub(crate) limit: Limit,
}

impl Until {
    pub(crate) const NEVER: Self = Self {
        deadline: Deadline::NEVER,
        limit: Limit::Deadline,
    };

    pub(crate) fn caller(deadline: Deadline) -> Self {
        Self {
            deadline,
            limit: Limit::Deadline,
        }
    }

    /// The earlier of this end and that of `limit`, which began now.
    pub(crate) fn within(self, duration: Duration, limit: fn(Duration) -> Limit) -> Self {
        let own = Clock::system().after(duration);
        match (self.deadline.instant(), own.instant()) {
            (Some(ours), Some(theirs)) if ours <= theirs => self,
            (_, None) => self,
            _ => Self {
                deadline: own,
                limit: limit(duration),
            },
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Blocking>> = const { RefCell::new(None) };
}

/// Restores the context that was there before.
#[derive(Debug)]
pub(crate) struct Entered {
    before: Option<Blocking>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        CURRENT.with(|current| *current.borrow_mut() = before);
    }
}

impl Blocking {
    pub(crate) fn new(stop: &StopToken, wake: &Arc<WakeUp>, until: Until) -> Self {
        Self {
            stop: stop.clone(),
            wake: Arc::clone(wake),
            until,
            first_byte: None,
            silence: None,
            kept_silence: None,
            output_bytes: OUTPUT_BYTES_MIN,
            dialed: false,
            socket: None,
            only_what_is_there: false,
            account: None,
            head_bytes_left: None,
            slot: None,
            progress: None,
            caller: until.deadline,
        }
    }

    /// The same call, on a thread that works with `slot`.
    pub(crate) fn with_slot(&self, slot: Arc<Slot>) -> Self {
        Self {
            slot: Some(slot),
            ..self.clone()
        }
    }

    /// The same call, which tells `progress` of each phase.
    pub(crate) fn with_progress(&self, progress: &RequestProgress) -> Self {
        Self {
            progress: Some(progress.clone()),
            ..self.clone()
        }
    }

    pub(crate) fn enter_phase(&self, phase: RequestPhase) {
        if let Some(progress) = &self.progress {
            progress.enter(phase);
        }
    }

    /// A limit's end says which phase it ended; any other outcome stays as it is.
    pub(crate) fn explain(&self, outcome: Outcome) -> Outcome {
        let doing = self.progress.as_ref().and_then(RequestProgress::describe);
        match (outcome, doing) {
            (Outcome::Halt(Halt::Limit(limit)), Some(doing)) => {
                let message = format!("{limit}: {doing}");
                Outcome::Halt(Halt::Failed(Error::new(ErrorKind::Timeout, message)))
            }
            (outcome, _) => outcome,
        }
    }

    /// Gives the slot back before a wait of unknown length.
    pub(crate) fn give_slot_back(&self) {
        if let Some(slot) = &self.slot {
            slot.give_back();
        }
    }

    /// Takes the slot again that was given back. What came in time is not refused because the slot
    /// came late: only the stop and the caller's deadline end this.
    ///
    /// # Errors
    ///
    /// The stop, or the caller's deadline.
    pub(crate) fn resume(&self) -> Result<(), Halt> {
        match &self.slot {
            Some(slot) => slot.resume(&self.stop, self.caller),
            None => Ok(()),
        }
    }

    /// The same call while it reads a body that may be silent for so long.
    pub(crate) fn until_idle(&self, limit: Duration) -> Self {
        Self {
            until: self.until.within(limit, Limit::Idle),
            ..self.clone()
        }
    }

    /// # Errors
    ///
    /// The stop, or the limit: for whoever finds something to read each time, and so never waits.
    pub(crate) fn check(&self) -> Result<(), Halt> {
        if self.stop.is_stopped() {
            return Err(Halt::Stopped);
        }
        self.check_account()?;
        if Clock::system().has_passed(self.until.deadline) {
            return Err(Halt::Limit(self.until.limit));
        }
        Ok(())
    }

    /// # Errors
    ///
    /// `TooLarge`, when the client's byte budget has closed this answer.
    pub(crate) fn check_account(&self) -> Result<(), Halt> {
        let account = self.account.as_ref();
        account.map_or(Ok(()), |account| account.check().map_err(Halt::Failed))
    }

    /// Asks the client's byte budget for room for this answer.
    ///
    /// # Errors
    ///
    /// `TooLarge`, when there is none.
    pub(crate) fn grow(&self, growth: Growth) -> Result<usize, Error> {
        let account = self.account.as_ref();
        account.map_or(Ok(growth.most), |account| account.grow(growth))
    }

    /// Tells the client's byte budget what this answer holds now.
    pub(crate) fn settle(&self, held: usize) {
        if let Some(account) = &self.account {
            account.settle(held);
        }
    }

    fn begin_first_byte(&mut self) {
        if let Some((limit, whole)) = self.first_byte {
            self.until = self.unless_silent(whole.within(limit, Limit::FirstByte));
        }
    }

    /// The earlier of `until` and the end of the silence, which begins now.
    pub(crate) fn unless_silent(&self, until: Until) -> Until {
        let kept = self.kept_silence.filter(|_| !self.dialed);
        match self.silence.into_iter().chain(kept).min() {
            Some(silence) => until.within(silence, Limit::Silence),
            None => until,
        }
    }

    /// Makes this the context of the calling thread until the guard is dropped.
    pub(crate) fn enter(self) -> Entered {
        let before = CURRENT.with(|current| current.borrow_mut().replace(self));
        Entered { before }
    }
}

/// A copy of the thread's context.
pub(crate) fn current() -> Result<Blocking, Halt> {
    CURRENT
        .with(|current| current.borrow().clone())
        .ok_or_else(outside)
}

/// Told when the request's last byte is sent: the wait for the first byte of the answer begins.
pub(crate) fn sent() {
    change(|call| {
        call.begin_first_byte();
        call.enter_phase(RequestPhase::AwaitingHead);
    });
}

/// Told when the call needed a new connection.
pub(crate) fn dialed() {
    change(|call| call.dialed = true);
}

/// Told which socket the request goes out on: the connection is there, and what it took is not the
/// answer's to bear.
pub(crate) fn goes_out_on(socket: &Arc<TcpStream>) {
    change(|call| {
        call.socket = Some(Arc::clone(socket));
        call.begin_first_byte();
    });
}

/// The socket the request went out on.
pub(crate) fn socket() -> Option<Arc<TcpStream>> {
    CURRENT.with(|current| current.borrow().as_ref()?.socket.clone())
}

/// Told that so many bytes came.
///
/// # Errors
///
/// `TooLarge`, when the head of the answer is not whole by then: interim answers can come for ever.
pub(crate) fn received(count: usize) -> Result<(), Halt> {
    let mut is_too_much = false;
    change(|call| {
        if let Some(left) = &mut call.head_bytes_left {
            *left = left.saturating_sub(count);
            is_too_much = *left == 0;
        }
    });
    if is_too_much {
        let message = "interim answers without end: the head of the answer did not come";
        return Err(Halt::Failed(Error::new(ErrorKind::TooLarge, message)));
    }
    Ok(())
}

/// Whether the call needed a new connection.
pub(crate) fn has_dialed() -> bool {
    CURRENT.with(|current| current.borrow().as_ref().is_some_and(|call| call.dialed))
}

/// How large the output buffer has to be for the request under way.
pub(crate) fn output_bytes() -> usize {
    CURRENT.with(|current| {
        current
            .borrow()
            .as_ref()
            .map_or(OUTPUT_BYTES_MIN, |call| call.output_bytes)
    })
}

fn change(change: impl FnOnce(&mut Blocking)) {
    CURRENT.with(|current| {
        if let Some(call) = current.borrow_mut().as_mut() {
            change(call);
        }
    });
}

fn outside() -> Halt {
    Halt::Io(io::Error::other("a transport was used outside of a call"))
}

/// The thread's context: whether it goes on.
///
/// # Errors
///
/// The stop, or the limit.
pub(crate) fn check() -> Result<(), Halt> {
    CURRENT.with(|current| {
        let current = current.borrow();
        current.as_ref().ok_or_else(outside)?.check()
    })
}

/// Waits until `descriptor` is ready for `interest`, by the thread's context.
///
/// # Errors
///
/// The stop, or the limit.
pub(crate) fn wait(descriptor: BorrowedFd<'_>, interest: PollFlags) -> Result<(), Halt> {
    CURRENT.with(|current| {
        let current = current.borrow();
        let call = current.as_ref().ok_or_else(outside)?;
        wait_for_any(call, &[descriptor], interest, Deadline::NEVER).map(drop)
    })
}

/// Waits by `call` until some of `descriptors` are ready, and says which; none is when `pause`
/// ended first. A wait that takes long gives the slot of the call back meanwhile.
///
/// # Errors
///
/// The stop, or the limit.
pub(crate) fn wait_for_any(
    call: &Blocking,
    descriptors: &[BorrowedFd<'_>],
    interest: PollFlags,
    pause: Deadline,
) -> Result<Vec<bool>, Halt> {
    let ready = poll_for_any(call, descriptors, interest, pause)?;
    call.resume()?;
    Ok(ready)
}

fn poll_for_any(
    call: &Blocking,
    descriptors: &[BorrowedFd<'_>],
    interest: PollFlags,
    pause: Deadline,
) -> Result<Vec<bool>, Halt> {
    let clock = Clock::system();
    let polled = descriptors.iter();
    let mut fds: Vec<_> = polled
        .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, interest))
        .chain([PollFd::new(&*call.wake, PollFlags::IN)])
        .collect();
    loop {
        if call.stop.is_stopped() {
            return Err(Halt::Stopped);
        }
        call.check_account()?;
        if call.only_what_is_there {
            return Err(Halt::WouldBlock);
        }
        let now = clock.now();
        let patience = call.slot.as_ref().and_then(|slot| slot.patience());
        let patience = patience.map_or(Deadline::NEVER, |left| clock.after(left));
        let end = call.until.deadline.earlier(pause);
        // What is ready comes before a deadline that has passed: it may be this program that was
        // late.
        let timeout = timespec(end.earlier(patience), now);
        let polled = poll(&mut fds, timeout.as_ref());
        if let Some(slot) = &call.slot {
            slot.has_waited(clock.now().saturating_duration_since(now));
        }
        match polled {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(Halt::Io(error.into())),
            Ok(0) => {}
            Ok(_) => {
                let mut ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
                // The stop or the byte budget wakes. The wake-up is this call's own, and is not
                // taken back: whoever else waits by it sees it too.
                if ready.pop() == Some(true) {
                    call.check_account()?;
                    return Err(Halt::Stopped);
                }
                return Ok(ready);
            }
        }
        if call.until.deadline.has_passed(now) {
            return Err(Halt::Limit(call.until.limit));
        }
        if pause.has_passed(now) {
            return Ok(vec![false; descriptors.len()]);
        }
    }
}

fn timespec(deadline: Deadline, now: Instant) -> Option<Timespec> {
    let remaining = deadline.remaining(now)?;
    Timespec::try_from(remaining).ok()
}
