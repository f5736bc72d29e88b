//! The context of a call: the stop and the limits that end its waits, also those inside ureq.
//!
//! ureq passes no value of a request to a transport. So each call sets its context on its thread,
//! and the transport reads the context of the thread it runs on.

use std::cell::RefCell;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::CertificateDer;

use super::byte_budget::{Account, ByteBudget, is_uncounted};
use super::interrupt::{Interrupt, Limit};
use super::slots::Slot;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{RequestPhase, RequestProgress};
use crate::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use crate::wire::Growth;
use crate::worker::{StopToken, Wake, WakeRegistration, WakeUp};

/// The bytes of a request's head besides its path and its header values.
const OUTPUT_BYTES_MIN: usize = 1024;

/// The most bytes in a row that may come without one of the body: chunk sizes, trailers after the
/// last chunk, and gzip data without content.
const FRAMING_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The stop, the limits and the state of one call.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that are known or not, each for itself"
)]
pub(crate) struct CallContext {
    shared: Arc<SharedByClones>,
    /// When the whole call ends.
    pub(crate) whole: NamedDeadline,
    /// When the current wait ends, and the limit that ends it.
    pub(crate) until: NamedDeadline,
    /// The limit of sending the request, and then of the wait for its response.
    pub(crate) first_byte: Option<Duration>,
    /// The silence before the first byte of the response that ends this try of the request.
    pub(crate) silence: Option<Duration>,
    /// A shorter limit for a kept connection: its path may have died while it was idle.
    pub(crate) kept_silence: Option<Duration>,
    /// The largest piece of the request's head.
    pub(crate) output_bytes: usize,
    /// Whether this call made its own connection.
    pub(crate) dialed: bool,
    /// The facts of the handshake, for the error if it fails.
    pub(crate) handshake: HandshakeNotes,
    /// The socket the request went out on.
    pub(crate) socket: Option<Arc<TcpStream>>,
    /// How many bytes of the request have gone out, at least.
    pub(crate) bytes_out: usize,
    /// Whether its request was sent before, for metrics.
    pub(crate) is_retry: bool,
    /// Whether waits fail instead of blocking.
    pub(crate) is_nonblocking: bool,
    /// Whether the last read without blocking found less in the socket than it had room for.
    pub(crate) is_drained: bool,
    /// The slot, released during a long wait.
    pub(crate) slot: Option<Arc<Slot>>,
    /// Receives each phase of the request.
    pub(crate) progress: Option<RequestProgress>,
    /// Counts the unfinished part of the response. The budget may close it.
    account: Option<Account>,
    /// The number of bytes that may still come before the head of the response is complete.
    pub(crate) head_bytes_left: Option<usize>,
}

/// The part of a context that its clones share. It is one value, so that a clone raises one count.
/// An idle watch clones its context for each event, and finds each count in memory only.
struct SharedByClones {
    /// Ends every wait at once.
    stop: StopToken,
    /// Ends a wait in poll(2), for the stop or the byte budget.
    wake: Arc<WakeUp>,
    /// The number of bytes that came since the last one of the body.
    framing: AtomicUsize,
    _registration: WakeRegistration,
}

/// The facts of a TLS handshake.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandshakeNotes {
    pub(crate) refused: Option<Arc<RefusedChain>>,
    /// Whether the server asked for a client certificate where none is configured.
    pub(crate) asks_for_certificate: bool,
    /// Whether the server refused the client certificate.
    pub(crate) refuses_identity: bool,
    /// The client's offer, in words.
    pub(crate) offer: String,
}

/// The certificates of a refused peer.
#[derive(Debug)]
pub(crate) struct RefusedChain {
    /// The peer's own first.
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    /// Whether the peer did not prove that it has the key of its own certificate.
    pub(crate) is_about_key: bool,
}

/// A deadline, and the limit that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedDeadline {
    pub(crate) deadline: Deadline,
    pub(crate) limit: Limit,
}

impl NamedDeadline {
    pub(crate) const NEVER: Self = Self::caller(Deadline::NEVER);

    pub(crate) const fn caller(deadline: Deadline) -> Self {
        Self {
            deadline,
            limit: Limit::Deadline,
        }
    }

    /// The earlier of this deadline and the end of `limit`, which begins now.
    pub(crate) fn within(self, duration: Duration, limit: fn(Duration) -> Limit) -> Self {
        let deadline = Clock::system().after(duration);
        if self.deadline.earlier(deadline) == self.deadline {
            return self;
        }
        let limit = limit(duration);
        Self { deadline, limit }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<CallContext>> = const { RefCell::new(None) };
}

/// Removes the context from the thread, also after a panic.
pub(crate) struct ContextGuard;

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
    /// `Resources`, when the system has no descriptor for the wake-up.
    pub(crate) fn new(stop: &StopToken, until: NamedDeadline) -> Result<Self, Error> {
        let wake = WakeUp::new().map_err(|error| {
            let message = format!("no descriptor for a request: {error}");
            Error::new(ErrorKind::Resources, message)
        })?;
        let as_wake: Arc<dyn Wake> = Arc::<WakeUp>::clone(&wake);
        let shared = SharedByClones {
            stop: stop.clone(),
            wake,
            framing: AtomicUsize::new(0),
            _registration: stop.register(&as_wake),
        };
        Ok(Self {
            shared: Arc::new(shared),
            whole: until,
            until,
            first_byte: None,
            silence: None,
            kept_silence: None,
            output_bytes: OUTPUT_BYTES_MIN,
            dialed: false,
            handshake: HandshakeNotes::default(),
            socket: None,
            bytes_out: 0,
            is_retry: false,
            is_nonblocking: false,
            is_drained: false,
            account: None,
            head_bytes_left: None,
            slot: None,
            progress: None,
        })
    }

    /// Ends every wait at once.
    pub(crate) fn stop(&self) -> &StopToken {
        &self.shared.stop
    }

    /// The same call; its answer is counted in `budget`.
    pub(crate) fn counted_in(mut self, budget: &Arc<ByteBudget>) -> Self {
        self.account = Some(budget.open(Arc::<WakeUp>::clone(&self.shared.wake)));
        self
    }

    /// The same call; an answer whose head says that it is small counts in no budget.
    pub(crate) fn of_length(mut self, bytes: Option<u64>) -> Self {
        self.account.take_if(|_| is_uncounted(bytes));
        self
    }

    /// The same call; its waits end after `duration` at the latest.
    pub(crate) fn within(&self, duration: Duration, limit: fn(Duration) -> Limit) -> Self {
        self.ending(self.until.within(duration, limit))
    }

    /// The same call; its waits end at `until`.
    pub(crate) fn ending(&self, until: NamedDeadline) -> Self {
        let mut call = self.clone();
        call.until = until;
        call
    }

    /// Sets this context on the calling thread while `run` runs. Returns the context as `run` left
    /// it.
    pub(crate) fn during<T>(self, run: impl FnOnce() -> T) -> (T, Option<Self>) {
        CURRENT.set(Some(self));
        let _guard = ContextGuard;
        (run(), CURRENT.take())
    }

    /// Sets a copy of this context on the calling thread until the guard drops. The waits of the
    /// copy fail. If `is_drained`, its reads pass over the socket.
    ///
    /// The copy is made in a frame of its own: the stack of a watching thread stays resident as
    /// deep as its reads go.
    #[inline(never)]
    pub(crate) fn enter_nonblocking(&self, is_drained: bool) -> ContextGuard {
        let copy = Self {
            is_nonblocking: true,
            is_drained,
            ..self.clone()
        };
        CURRENT.set(Some(copy));
        ContextGuard
    }

    /// The same call, on a thread that works with `slot`.
    pub(crate) fn with_slot(mut self, slot: Arc<Slot>) -> Self {
        self.slot = Some(slot);
        self
    }

    /// The same call, whose request is sent once more.
    pub(crate) fn again(&self) -> Self {
        Self {
            is_retry: true,
            ..self.clone()
        }
    }

    /// The same call. It reports each phase to `progress`.
    pub(crate) fn with_progress(mut self, progress: RequestProgress) -> Self {
        self.progress = Some(progress);
        self
    }

    pub(crate) fn enter_phase(&self, phase: RequestPhase) {
        if let Some(progress) = &self.progress {
            progress.enter(phase);
        }
    }

    /// Adds the phase to a limit. Any other interrupt stays as it is.
    pub(crate) fn explain(&self, interrupt: Interrupt) -> Interrupt {
        let doing = self.progress.as_ref().and_then(RequestProgress::describe);
        match (interrupt, doing) {
            (Interrupt::Limit(limit), Some(doing)) => {
                Interrupt::Failed(Error::new(ErrorKind::Timeout, format!("{limit}: {doing}")))
            }
            (interrupt, _) => interrupt,
        }
    }

    /// Releases the slot before a wait of unknown length.
    pub(crate) fn release_slot(&self) {
        if let Some(slot) = &self.slot {
            slot.release();
        }
    }

    /// Takes the released slot again. Blocks until a slot is free, the stop is raised, or the
    /// caller's deadline passes. The limits of the request do not end this wait, because its bytes
    /// came in time.
    ///
    /// # Errors
    ///
    /// The stop, or the caller's deadline.
    pub(crate) fn resume(&self) -> Result<(), Interrupt> {
        match &self.slot {
            Some(slot) => slot.resume(self.stop(), self.whole.deadline),
            None => Ok(()),
        }
    }

    /// # Errors
    ///
    /// The stop, or the limit. A caller that always finds bytes to read never waits, and so has to
    /// check.
    pub(crate) fn check(&self) -> Result<(), Interrupt> {
        if self.stop().is_stopped() {
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
    /// `TooLarge`, when the client's byte budget has closed this response.
    pub(crate) fn check_account(&self) -> Result<(), Interrupt> {
        let account = self.account.as_ref();
        account.map_or(Ok(()), |account| account.check().map_err(Interrupt::Failed))
    }

    /// Asks the client's byte budget for room for this response.
    ///
    /// # Errors
    ///
    /// `TooLarge`, when there is none.
    pub(crate) fn grow(&self, growth: Growth) -> Result<usize, Error> {
        let account = self.account.as_ref();
        account.map_or(Ok(growth.most), |account| account.grow(growth))
    }

    /// Reports the present memory of this response to the client's byte budget.
    pub(crate) fn settle(&self, held: usize) {
        if let Some(account) = &self.account {
            account.settle(held);
        }
    }

    /// The earlier of `until` and the end of the allowed silence, which begins now.
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

    /// Sets the socket of the request. The limit of the response begins anew, because the
    /// connection took its own time.
    pub(crate) fn use_socket(&mut self, socket: &Arc<TcpStream>) {
        self.socket = Some(Arc::clone(socket));
        self.begin_first_byte();
    }

    /// Begins the wait for the first byte of the response, after the request's last byte was sent.
    pub(crate) fn sent(&mut self) {
        self.begin_first_byte();
        self.enter_phase(RequestPhase::AwaitingHead);
    }

    /// Counts received bytes.
    ///
    /// # Errors
    ///
    /// `TooLarge`, when too many bytes come without a complete head, or without one of the body:
    /// interim responses and trailers can go on without end.
    pub(crate) fn received(&mut self, count: usize) -> Result<(), Interrupt> {
        if let Some(left) = &mut self.head_bytes_left {
            *left = left.saturating_sub(count);
            if *left == 0 {
                let message = "interim answers without end: the head of the answer did not come";
                return Err(Interrupt::Failed(Error::new(ErrorKind::TooLarge, message)));
            }
        } else if self.shared.framing.fetch_add(count, Ordering::Relaxed) > FRAMING_BYTES_MAX {
            let message = format!(
                "the answer's framing has no end: more than {FRAMING_BYTES_MAX} bytes of it \
                 without one of the body"
            );
            return Err(Interrupt::Failed(Error::new(ErrorKind::TooLarge, message)));
        }
        Ok(())
    }

    /// Waits until `descriptor` is ready for `interest`. Releases the slot of the call during a
    /// long wait.
    ///
    /// # Errors
    ///
    /// The stop, or the limit.
    pub(crate) fn wait(&self, descriptor: impl AsFd, interest: PollFlags) -> Result<(), Interrupt> {
        let mut descriptors = [PollFd::new(&descriptor, interest), self.wake_descriptor()];
        self.wait_for_any(&mut descriptors, Deadline::NEVER)?;
        Ok(())
    }

    /// The last descriptor of each wait. The stop and the byte budget make it readable.
    pub(crate) fn wake_descriptor(&self) -> PollFd<'_> {
        PollFd::new(&*self.shared.wake, PollFlags::IN)
    }

    /// Waits until some of `descriptors` are ready, and marks those. Returns `false` when `pause`
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
            if self.stop().is_stopped() {
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
            // Ready bytes come before a passed deadline: perhaps this program was late, not the
            // server.
            let polled = poll(descriptors, timespec(end, now).as_ref());
            if let Some(slot) = &self.slot {
                slot.add_wait(clock.now().saturating_duration_since(now));
            }
            match polled {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(Interrupt::Io(error.into())),
                Ok(0) => {}
                Ok(_) => {
                    // The wake-up belongs to this call and stays set, so that its other threads see
                    // it too.
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

/// Runs `run` with the thread's context.
///
/// # Errors
///
/// The thread has none.
pub(crate) fn current<T>(run: impl FnOnce(&mut CallContext) -> T) -> Result<T, Interrupt> {
    CURRENT.with_borrow_mut(|current| {
        let outside = || io::Error::other("a transport was used outside of a call");
        let call = current.as_mut().ok_or_else(|| Interrupt::Io(outside()))?;
        Ok(run(call))
    })
}

/// Reads from a socket. Saves a call without blocking the second read, which only says that the
/// first one has taken all bytes: poll(2) reports later ones.
pub(crate) fn receive(mut socket: impl Read, into: &mut [u8]) -> io::Result<usize> {
    if is_drained() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let count = socket.read(into)?;
    // 0 is the end.
    let is_short = (1..into.len()).contains(&count);
    let _noted = current(|call| call.is_drained = call.is_nonblocking && is_short);
    Ok(count)
}

/// Whether a read without blocking would find nothing in the socket.
pub(crate) fn is_drained() -> bool {
    current(|call| call.is_drained).unwrap_or_default()
}

/// Notes that the body of the current response yielded bytes.
pub(crate) fn gave() {
    // Outside of a call there is nothing to note.
    let _told = current(|call| call.shared.framing.store(0, Ordering::Relaxed));
}

/// The size of the output buffer for the current request.
pub(crate) fn output_bytes() -> usize {
    current(|call| call.output_bytes).unwrap_or(OUTPUT_BYTES_MIN)
}

fn timespec(deadline: Deadline, now: Instant) -> Option<Timespec> {
    Timespec::try_from(deadline.remaining(now)?).ok()
}
