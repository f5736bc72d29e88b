//! An open watch: waits on its caller's thread, and has what comes read and decoded on another.
//!
//! A stack stays resident as deep as it was ever used, and an allocator's thread cache keeps what it was ever given:
//! decoding on the watching thread would double the memory of an idle watch.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::Instant;

use rustix::event::PollFlags;

use super::agent::Answer;
use super::blocking::{Blocking, Until};
use super::context::ClientInner;
use super::failure;
use super::halt::Halt;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{Backlog, Next, WatchEvent, WatchStream};
use crate::object::Object;
use crate::sync::Arc;
use crate::wire::EventDecoder;

/// After so many bytes the events decoded so far are handed over, though more are there.
const BURST_BYTES: usize = 64 * 1024;

/// So many events are decoded before they are handed over: what is behind stays bytes.
const BURST_EVENTS: usize = 1024;

/// So often what has come is read although the deadline has passed: more than a socket holds, and
/// than the longest event has.
const LATE_READS: usize = 256;

/// An open watch, on its lister-watcher's connection.
pub(crate) struct OpenWatch<K: Object> {
    client: Arc<ClientInner>,
    call: Blocking,
    what: Arc<str>,
    socket: Option<Arc<TcpStream>>,
    /// `None` once it was lost with a thread.
    stream: Option<Box<WatchReader<K>>>,
}

/// The half that travels between threads.
pub(crate) struct WatchReader<K: Object> {
    /// Gone at the end: that gives the connection back, or closes it.
    answer: Option<Answer>,
    decoder: EventDecoder<K>,
    events: VecDeque<WatchEvent<K>>,
    events_max: usize,
    /// Whether all that had come was read, so that the socket tells of more.
    drained: bool,
    failure: Option<Error>,
    end: Option<Error>,
    last_contact: Instant,
}

impl<K: Object> OpenWatch<K> {
    pub(crate) fn new(
        client: &Arc<ClientInner>,
        call: Blocking,
        stream: Box<WatchReader<K>>,
    ) -> Self {
        let answer = stream.answer.as_ref();
        Self {
            client: Arc::clone(client),
            call,
            what: answer.map_or_else(|| "".into(), |answer| Arc::clone(&answer.what)),
            socket: answer.and_then(|answer| answer.socket.clone()),
            stream: Some(stream),
        }
    }

    /// Waits for more by the deadline, unless more is there; then has it read.
    fn more(&mut self, deadline: Deadline) -> Result<(), Halt> {
        let Some(mut stream) = self.stream.take() else {
            let lost = "the watch was lost with the failure before";
            return Err(Halt::Failed(Error::new(ErrorKind::Resources, lost)));
        };
        if let (true, Some(socket)) = (stream.drained, &self.socket) {
            self.call.until = Until::caller(deadline);
            let waited = self.call.wait(&**socket, PollFlags::IN);
            if let Err(halt) = waited {
                let ended = if let Halt::Failed(error) = halt {
                    // What it holds goes now, and not when its caller drops it.
                    stream.fail(error.context(&self.what));
                    Ok(())
                } else {
                    Err(halt)
                };
                self.stream = Some(stream);
                return ended;
            }
        }
        let reading = move || {
            stream.read();
            Ok(stream)
        };
        let read = self
            .client
            .threads
            .read("the decoder of the objects", reading);
        // A reader waits for nothing, so that only the stop is to be heeded.
        self.call.until = Until::NEVER;
        self.stream = Some(read.answer(&self.call)?);
        Ok(())
    }
}

impl<K: Object> WatchStream<K> for OpenWatch<K> {
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        let mut late_reads = 0_usize;
        loop {
            // A busy stream is not in poll(2) when the stop is raised.
            if self.call.stop.is_stopped() {
                return Err(Error::stopped(&self.what));
            }
            if let Some(stream) = &mut self.stream {
                if let Some(event) = stream.events.pop_front() {
                    return Ok(Next::Event(event));
                }
                if let Some(error) = stream.failure.take() {
                    return Err(error);
                }
                if stream.answer.is_none() {
                    return Ok(Next::Ended(stream.end.take()));
                }
                stream.events = VecDeque::new();
            }
            if Clock::system().has_passed(deadline) {
                // What comes without a pause, and is no event, has no end of its own.
                if late_reads == LATE_READS {
                    return Ok(Next::DeadlinePassed);
                }
                late_reads = late_reads.saturating_add(1);
            }
            match self.more(deadline) {
                Ok(()) => {}
                Err(Halt::Limit(_)) => return Ok(Next::DeadlinePassed),
                Err(halt) => return Err(failure::cut_off(&self.what, halt)),
            }
        }
    }

    fn last_contact(&self) -> Instant {
        let now = || Clock::system().now();
        self.stream
            .as_ref()
            .map_or_else(now, |stream| stream.last_contact)
    }

    fn backlog(&self) -> Backlog {
        match &self.stream {
            Some(stream) if !stream.events.is_empty() => Backlog::Event,
            Some(stream) if !stream.drained => Backlog::Bytes,
            Some(_) | None => Backlog::Unknown,
        }
    }
}

impl<K: Object> WatchReader<K> {
    /// A stream of `answer`, in the box in which it travels.
    pub(crate) fn boxed(decoder: EventDecoder<K>, answer: Answer, events_max: usize) -> Box<Self> {
        Box::new(Self {
            answer: Some(answer),
            decoder,
            events: VecDeque::new(),
            events_max: events_max.clamp(1, BURST_EVENTS),
            drained: false,
            failure: None,
            end: None,
            last_contact: Clock::system().now(),
        })
    }

    /// Reads and decodes what has come, and waits for nothing.
    fn read(&mut self) {
        let mut read = 0_usize;
        self.drained = false;
        // What the last burst left undecoded.
        self.decode();
        while read < BURST_BYTES && self.events.len() < self.events_max && !self.drained {
            let Some(answer) = &mut self.answer else {
                break;
            };
            let reserved = self.decoder.reserve(&mut |growth| answer.call.grow(growth));
            if let Err(error) = reserved {
                let error = error.context(&answer.what);
                self.fail(error);
                break;
            }
            answer.call.settle(self.decoder.held_bytes());
            match answer.read_what_is_there(self.decoder.space()) {
                Ok(0) => {
                    self.answer = None;
                    self.end = self.decoder.finish();
                }
                Ok(count) => {
                    read = read.saturating_add(count);
                    self.last_contact = Clock::system().now();
                    self.decoder.filled(count);
                    self.decode();
                }
                Err(Halt::WouldBlock) => self.drained = true,
                Err(halt) => {
                    // RS-5, over HTTP/1.1: how a connection ends in everyday life.
                    let everyday = halt.is_closed_by_peer() || halt.is_timed_out();
                    let closed = answer.call.check_account().is_err();
                    let error = answer.cut_off(halt);
                    self.answer = None;
                    if everyday {
                        self.end = Some(error);
                    } else if error.is_stopped() {
                        self.failure = Some(error);
                    } else if closed {
                        self.fail(error);
                    } else {
                        // RS-4: what is no end of a connection is told as an event, then the stream ends.
                        self.events.push_back(WatchEvent::Error(error));
                    }
                }
            }
        }
        self.decoder.release();
        if let Some(answer) = &self.answer {
            answer.call.settle(self.decoder.held_bytes());
        }
    }

    /// Ends the stream and gives back what it holds.
    fn fail(&mut self, error: Error) {
        self.failure = Some(error);
        self.decoder.discard();
        if let Some(answer) = self.answer.take() {
            answer.call.settle(0);
        }
    }

    /// Decodes what was read, up to as many events as may wait to be taken.
    fn decode(&mut self) {
        while self.events.len() < self.events_max {
            match self.decoder.next() {
                Ok(Some(WatchEvent::Error(error))) => {
                    let error = match &self.answer {
                        Some(answer) => answer.hide(error),
                        None => error,
                    };
                    self.events.push_back(WatchEvent::Error(error));
                }
                Ok(Some(event)) => self.events.push_back(event),
                Ok(None) => break,
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        if self.decoder.is_ended() {
            self.answer = None;
        }
    }
}
