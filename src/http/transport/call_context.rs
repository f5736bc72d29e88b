//! The blocking context of a thread: which stop and which limit end the wait that ureq is in on its
//! behalf.
//!
//! ureq hands no per-request value down to a transport. So each call enters its context on its own
//! thread, and the transport waits by the context of the thread it runs on.

use std::cell::RefCell;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::slots::Slot;
use super::byte_budget::{Account, ByteBudget};
use super::interrupt::{Interrupt, Limit};
use super::wakeup::WakeUp;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{RequestPhase, RequestProgress};
use crate::sync::Arc;
use crate::wire::Growth;
use crate::worker::{StopToken, Wake, WakeRegistration};

/// Room a request needs besides its path and its header values.
const OUTPUT_BYTES_MIN: usize = 1024;

/// What may end a wait.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    /// Ends every wait at once.
    pub(crate) stop: StopToken,
    /// Ended by the stop, or by the byte budget.
    wake: Arc<WakeUp>,
    _registration: Arc<WakeRegistration>,
    /// When the whole call ends.
    pub(crate) whole: NamedDeadline,
    /// When the wait ends, and which limit that is.
    pub(crate) until: NamedDeadline,
    /// The limit of sending the request, and once more of the wait for the answer to it.
    pub(crate) first_byte: Option<Duration>,
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
    pub(crate) is_nonblocking: bool,
    /// Given back while a wait is long.
    pub(crate) slot: Option<Arc<Slot>>,
    /// Told of each phase.
    pub(crate) progress: Option<RequestProgress>,
    /// What the answer's unfinished part is counted in; it may be closed.
    account: Option<Account>,
    /// So many bytes more may come before the head of the answer is whole.
    pub(crate) head_bytes_left: Option<usize>,
}

/// A moment and the name of the limit that ends there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedDeadline {
    pub(crate) deadline: Deadline,
    pub(crate) limit: Limit,
}

impl NamedDeadline {
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
    static CURRENT: RefCell<Option<CallContext>> = const { RefCell::new(None) };
}

/// Ends the context of the thread, also by a panic.
struct ContextGuard;

impl Drop for ContextGuard {
    fn drop(&mut self) {
        let left = CURRENT.with_borrow_mut(Option::take);
        drop(left);
    }
}

impl CallContext {
    /// A call that `stop` and `until` end.
    ///
    /// # Errors
    ///
    /// `Resources`, when the system has no descriptor to wake it by.
    pub(crate) fn new(stop: &StopToken, until: NamedDeadline) -> Result<Self, Error> {
        let wake = WakeUp::new().map_err(|error| {
            let message = format!("no descriptor for a request: {error}");
            Error::new(ErrorKind::Resources, message)
        })?;
        let as_wake: Arc<dyn Wake> = Arc::<WakeUp>::clone(&wake);
        Ok(Self {
            stop: stop.clone(),
            wake,
            _registration: Arc::new(stop.register(&as_wake)),
            whole: until,
            until,
            first_byte: None,
            silence: None,
            kept_silence: None,
            output_bytes: OUTPUT_BYTES_MIN,
            dialed: false,
            socket: None,
            is_nonblocking: false,
            account: None,
            head_bytes_left: None,
            slot: None,
            progress: None,
        })
    }

    /// The same call; its answer is counted in `budget`.
    pub(crate) fn counted_in(mut self, budget: &Arc<ByteBudget>) -> Self {
        self.account = Some(budget.open(Arc::<WakeUp>::clone(&self.wake)));
        self
    }

    /// The same call; its waits end after `duration` if not before.
    pub(crate) fn within(&self, duration: Duration, limit: fn(Duration) -> Limit) -> Self {
        self.ending(self.until.within(duration, limit))
    }

    /// The same call; its waits end at `until`.
    pub(crate) fn ending(&self, until: NamedDeadline) -> Self {
        let mut call = self.clone();
        call.until = until;
        call
    }

    /// Makes this the context of the calling thread while `run` runs; gives it back as that left
    /// it.
    pub(crate) fn during<T>(self, run: impl FnOnce() -> T) -> (T, Option<Self>) {
        CURRENT.set(Some(self));
        let _guard = ContextGuard;
        (run(), CURRENT.take())
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

    /// A limit's end says which phase it ended; anything else stays as it is.
    pub(crate) fn explain(&self, halt: Interrupt) -> Interrupt {
        let doing = self.progress.as_ref().and_then(RequestProgress::describe);
        match (halt, doing) {
            (Interrupt::Limit(limit), Some(doing)) => {
                let message = format!("{limit}: {doing}");
                Interrupt::Failed(Error::new(ErrorKind::Timeout, message))
            }
            (halt, _) => halt,
        }
    }

    /// Gives the slot back before a wait of unknown length.
    pub(crate) fn release_slot(&self) {
        if let Some(slot) = &self.slot {
            slot.release();
        }
    }

    /// Takes the slot again that was given back. What came in time is not refused because the slot
    /// came late: only the stop and the caller's deadline end this.
    ///
    /// # Errors
    ///
    /// The stop, or the caller's deadline.
    pub(crate) fn resume(&self) -> Result<(), Interrupt> {
        match &self.slot {
            Some(slot) => slot.resume(&self.stop, self.whole.deadline),
            None => Ok(()),
        }
    }

    /// # Errors
    ///
    /// The stop, or the limit: for whoever finds something to read each time, and so never waits.
    pub(crate) fn check(&self) -> Result<(), Interrupt> {
        if self.stop.is_stopped() {
            return Err(Interrupt::Stopped);
        }
        self.check_account()?;
        if Clock::system().has_passed(self.until.deadline) {
            return Err(Interrupt::Limit(self.until.limit));
        }
        Ok(())
    }

    /// # Errors
    ///
    /// `TooLarge`, when the client's byte budget has closed this answer.
    pub(crate) fn check_account(&self) -> Result<(), Interrupt> {
        let account = self.account.as_ref();
        account.map_or(Ok(()), |account| account.check().map_err(Interrupt::Failed))
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

    /// Asks the client's byte budget for room for what nothing needs yet.
    ///
    /// # Errors
    ///
    /// `TooLarge`, when others may need that room.
    pub(crate) fn grow_ahead(&self, growth: Growth) -> Result<usize, Error> {
        let account = self.account.as_ref();
        account.map_or(Ok(growth.most), |account| account.grow_ahead(growth))
    }

    /// Tells the client's byte budget what this answer holds now.
    pub(crate) fn settle(&self, held: usize) {
        if let Some(account) = &self.account {
            account.settle(held);
        }
    }

    /// The earlier of `until` and the end of the silence, which begins now.
    pub(crate) fn unless_silent(&self, until: NamedDeadline) -> NamedDeadline {
        let kept = self.kept_silence.filter(|_| !self.dialed);
        match self.silence.into_iter().chain(kept).min() {
            Some(silence) => until.within(silence, Limit::Silence),
            None => until,
        }
    }

    fn begin_first_byte(&mut self) {
        if let Some(limit) = self.first_byte {
            self.until = self.unless_silent(self.whole.within(limit, Limit::FirstByte));
        }
    }

    /// Told which socket the request goes out on: the connection is there, and what it took is not
    /// the answer's to bear.
    pub(crate) fn use_socket(&mut self, socket: &Arc<TcpStream>) {
        self.socket = Some(Arc::clone(socket));
        self.begin_first_byte();
    }

    /// Told when the request's last byte is sent: the wait for the first byte of the answer begins.
    pub(crate) fn sent(&mut self) {
        self.begin_first_byte();
        self.enter_phase(RequestPhase::AwaitingHead);
    }

    /// Told that so many bytes came.
    ///
    /// # Errors
    ///
    /// `TooLarge`, when the head of the answer is not whole by then: interim answers can come for
    /// ever.
    pub(crate) fn received(&mut self, count: usize) -> Result<(), Interrupt> {
        if let Some(left) = &mut self.head_bytes_left {
            *left = left.saturating_sub(count);
            if *left == 0 {
                let message = "interim answers without end: the head of the answer did not come";
                return Err(Interrupt::Failed(Error::new(ErrorKind::TooLarge, message)));
            }
        }
        Ok(())
    }

    /// Waits until `descriptor` is ready for `interest`. A wait that takes long gives the slot of
    /// the call back meanwhile.
    ///
    /// # Errors
    ///
    /// The stop, or the limit.
    pub(crate) fn wait(&self, descriptor: impl AsFd, interest: PollFlags) -> Result<(), Interrupt> {
        let mut descriptors = [PollFd::new(&descriptor, interest), self.wake_descriptor()];
        self.wait_for_any(&mut descriptors, Deadline::NEVER)?;
        Ok(())
    }

    /// Becomes readable by the stop or the byte budget; the last descriptor of each wait.
    pub(crate) fn wake_descriptor(&self) -> PollFd<'_> {
        PollFd::new(&*self.wake, PollFlags::IN)
    }

    /// Waits until some of `descriptors` are ready, as they tell then; `false` is when `pause`
    /// ended first.
    ///
    /// # Errors
    ///
    /// The stop, or the limit.
    pub(crate) fn wait_for_any(
        &self,
        descriptors: &mut [PollFd<'_>],
        pause: Deadline,
    ) -> Result<bool, Interrupt> {
        let is_ready = self.poll(descriptors, pause)?;
        self.resume()?;
        Ok(is_ready)
    }

    fn poll(&self, descriptors: &mut [PollFd<'_>], pause: Deadline) -> Result<bool, Interrupt> {
        let clock = Clock::system();
        loop {
            if self.stop.is_stopped() {
                return Err(Interrupt::Stopped);
            }
            self.check_account()?;
            if self.is_nonblocking {
                return Err(Interrupt::WouldBlock);
            }
            let now = clock.now();
            let patience = self.slot.as_ref().and_then(|slot| slot.patience());
            let patience = patience.map_or(Deadline::NEVER, |left| clock.after(left));
            let end = self.until.deadline.earlier(pause).earlier(patience);
            // What is ready comes before a deadline that has passed: it may be this program that
            // was late.
            let polled = poll(descriptors, timespec(end, now).as_ref());
            if let Some(slot) = &self.slot {
                slot.add_wait(clock.now().saturating_duration_since(now));
            }
            match polled {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(Interrupt::Io(error.into())),
                Ok(0) => {}
                Ok(_) => {
                    // The wake-up is this call's own, and is not taken back: whoever else waits by
                    // it sees it too.
                    let wake = descriptors.last();
                    if wake.is_some_and(|wake| !wake.revents().is_empty()) {
                        self.check_account()?;
                        return Err(Interrupt::Stopped);
                    }
                    return Ok(true);
                }
            }
            if self.until.deadline.has_passed(now) {
                return Err(Interrupt::Limit(self.until.limit));
            }
            if pause.has_passed(now) {
                return Ok(false);
            }
        }
    }
}

/// What `run` makes of the thread's context.
///
/// # Errors
///
/// Those of `run`.
pub(crate) fn current<T>(
    run: impl FnOnce(&mut CallContext) -> Result<T, Interrupt>,
) -> Result<T, Interrupt> {
    CURRENT.with_borrow_mut(|current| {
        let outside = || io::Error::other("a transport was used outside of a call");
        run(current.as_mut().ok_or_else(|| Interrupt::Io(outside()))?)
    })
}

/// How large the output buffer has to be for the request under way.
pub(crate) fn output_bytes() -> usize {
    current(|call| Ok(call.output_bytes)).unwrap_or(OUTPUT_BYTES_MIN)
}

fn timespec(deadline: Deadline, now: Instant) -> Option<Timespec> {
    let remaining = deadline.remaining(now)?;
    Timespec::try_from(remaining).ok()
}
