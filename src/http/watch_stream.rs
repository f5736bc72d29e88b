//! An open watch. Its caller's thread waits for bytes; a thread of the client reads and decodes
//! them.
//!
//! A stack stays resident as deep as it was ever used, and an allocator keeps a cache per thread.
//! Decoding on the watching thread would double the memory of an idle watch.
//!
//! Behind a burst of events more bytes may have come. While the caller applies the events, the
//! reading thread takes those bytes off the socket, so that the server can go on writing. It
//! decodes them when the caller asks: events need more memory than their bytes.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::Instant;

use rustix::event::PollFlags;

use super::client_context::ClientInner;
use super::errors;
use super::transport::agent::ResponseReader;
use super::transport::call_context::{CallContext, NamedDeadline};
use super::transport::channel::{ItemReceiver, ItemSender};
use super::transport::interrupt::Interrupt;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{Backlog, Next, WatchEvent, WatchStream};
use crate::object::Object;
use crate::sync::Arc;
use crate::wire::EventDecoder;

/// The reading thread hands its events over after so many bytes, even when more are available.
const BURST_BYTES: usize = 64 * 1024;

/// The reading thread hands its events over after so many events. The rest stays undecoded.
const BURST_EVENTS: usize = 1024;

/// The reading thread reads at most so many bytes ahead of its caller.
const AHEAD_BYTES: usize = 256 * 1024;

/// So many reads may follow a passed deadline. They are enough for the bytes in a socket, and for
/// the longest event.
const LATE_READS: usize = 256;

/// An open watch, on its lister-watcher's connection.
pub(crate) struct OpenWatch<K: Object> {
    client: Arc<ClientInner>,
    call: CallContext,
    what: Arc<str>,
    socket: Option<Arc<TcpStream>>,
    /// Decoded events that the caller has not taken yet.
    events: VecDeque<WatchEvent<K>>,
    last_contact: Instant,
    /// `None` while a thread reads, and after a thread that had it panicked.
    reader: Option<Box<WatchReader<K>>>,
    /// Receives the events that a thread decodes, and at the end the reader.
    reading: Option<ItemReceiver<Result<Burst<K>, Error>>>,
}

/// The events that a reading thread hands over.
struct Burst<K: Object> {
    events: VecDeque<WatchEvent<K>>,
    /// `None` while the thread reads ahead.
    reader: Option<Box<WatchReader<K>>>,
}

/// The half of a watch that moves between threads.
pub(crate) struct WatchReader<K: Object> {
    /// `None` at the end of the stream. Dropping it returns or closes the connection.
    answer: Option<ResponseReader>,
    decoder: EventDecoder<K>,
    events: VecDeque<WatchEvent<K>>,
    events_max: usize,
    /// Whether all available bytes were read, so that `poll` reports new ones.
    drained: bool,
    /// The end that reading ahead met. It takes effect after the bytes before it are decoded.
    end_read_ahead: Option<Result<usize, Interrupt>>,
    failure: Option<Error>,
    end: Option<Error>,
    last_contact: Instant,
}

impl<K: Object> OpenWatch<K> {
    pub(crate) fn new(
        client: &Arc<ClientInner>,
        call: CallContext,
        reader: Box<WatchReader<K>>,
    ) -> Self {
        let answer = reader.answer.as_ref();
        Self {
            client: Arc::clone(client),
            call,
            what: answer.map_or_else(|| "".into(), |answer| Arc::clone(&answer.what)),
            socket: answer.and_then(|answer| answer.socket.clone()),
            events: VecDeque::new(),
            last_contact: reader.last_contact,
            reader: Some(reader),
            reading: None,
        }
    }

    /// Has the available bytes read and decoded. If there are none, waits for bytes until the
    /// deadline.
    fn more(&mut self, deadline: Deadline) -> Result<(), Interrupt> {
        if let Some(mut reader) = self.reader.take() {
            if let Err(interrupt) = self.wait(&reader, deadline) {
                let ended = if let Interrupt::Failed(error) = interrupt {
                    // Its memory is freed now, and not when its caller drops it.
                    reader.fail(error.context(&self.what));
                    Ok(())
                } else {
                    Err(interrupt)
                };
                self.reader = Some(reader);
                return ended;
            }
            let read = move |caller: &ItemSender<_>| Ok(reader.read_for(caller));
            let readers = &self.client.threads.readers;
            self.reading = Some(readers.run("the decoder of the objects", read));
        }
        let Some(reading) = self.reading.take() else {
            let lost = "the watch was lost with the failure before";
            return Err(Interrupt::Failed(Error::new(ErrorKind::Resources, lost)));
        };
        // A reader never blocks, so only the stop ends this wait.
        self.call.until = NamedDeadline::NEVER;
        let burst = reading.result(&self.call)?;
        self.events = burst.events;
        match burst.reader {
            Some(reader) => {
                self.last_contact = reader.last_contact;
                self.reader = Some(reader);
            }
            None => self.reading = Some(reading),
        }
        Ok(())
    }

    /// Waits until the socket is readable, unless there are bytes that were not read yet.
    fn wait(&mut self, reader: &WatchReader<K>, deadline: Deadline) -> Result<(), Interrupt> {
        match &self.socket {
            Some(socket) if reader.drained => {
                self.call.until = NamedDeadline::caller(deadline);
                self.call.wait(&**socket, PollFlags::IN)
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl<K: Object> WatchStream<K> for OpenWatch<K> {
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        let mut late_reads = 0_usize;
        loop {
            // A busy stream never calls poll(2), which reports the stop.
            if self.call.stop.is_stopped() {
                return Err(Error::stopped(&self.what));
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(Next::Event(event));
            }
            self.events = VecDeque::new();
            if let Some(reader) = &mut self.reader {
                if let Some(error) = reader.failure.take() {
                    return Err(error);
                }
                if reader.answer.is_none() {
                    return Ok(Next::Ended(reader.end.take()));
                }
            }
            if Clock::system().has_passed(deadline) {
                // Bytes without a pause that are no event would keep this loop running.
                if late_reads == LATE_READS {
                    return Ok(Next::DeadlinePassed);
                }
                late_reads = late_reads.saturating_add(1);
            }
            match self.more(deadline) {
                Ok(()) => {}
                Err(Interrupt::Limit(_)) => return Ok(Next::DeadlinePassed),
                Err(interrupt) => return Err(errors::cut_off(&self.what, interrupt)),
            }
        }
    }

    fn last_contact(&self) -> Instant {
        self.last_contact
    }

    fn backlog(&self) -> Backlog {
        let drained = self.reader.as_ref().is_none_or(|reader| reader.drained);
        if !self.events.is_empty() {
            Backlog::Event
        } else if self.reading.is_some() || !drained {
            Backlog::Bytes
        } else {
            Backlog::Unknown
        }
    }
}

/// RF-44: closes the connection before its caller opens another one.
impl<K: Object> Drop for OpenWatch<K> {
    fn drop(&mut self) {
        if self.reading.is_some() {
            let _stopped = self.more(Deadline::NEVER);
        }
    }
}

impl<K: Object> WatchReader<K> {
    /// A reader of `answer`, in the box in which it moves between threads.
    pub(crate) fn boxed(
        decoder: EventDecoder<K>,
        answer: ResponseReader,
        events_max: usize,
    ) -> Box<Self> {
        Box::new(Self {
            answer: Some(answer),
            decoder,
            events: VecDeque::new(),
            events_max: events_max.clamp(1, BURST_EVENTS),
            drained: false,
            end_read_ahead: None,
            failure: None,
            end: None,
            last_contact: Clock::system().now(),
        })
    }

    /// Reads and decodes the available bytes for its caller. Then reads ahead until the caller asks
    /// for more.
    fn read_for(mut self: Box<Self>, caller: &ItemSender<Result<Burst<K>, Error>>) -> Burst<K> {
        self.read();
        if self.answer.is_some() && !self.drained && !self.events.is_empty() {
            let events = std::mem::take(&mut self.events);
            let burst = Burst {
                events,
                reader: None,
            };
            caller.send(Ok(burst), None);
            self.read_ahead(caller);
        }
        Burst {
            events: std::mem::take(&mut self.events),
            reader: Some(self),
        }
    }

    /// Reads and decodes the available bytes. Never blocks.
    fn read(&mut self) {
        let mut read = 0_usize;
        self.drained = false;
        // The bytes that the last burst left undecoded, and those that were read ahead.
        self.decode();
        while self.answer.is_some()
            && read < BURST_BYTES
            && self.events.len() < self.events_max
            && !self.drained
        {
            match self.fill(false) {
                Ok(0) => {
                    self.decoder.end_of_body();
                    self.decode();
                    if self.events.len() < self.events_max {
                        self.answer = None;
                        self.end = self.decoder.finish();
                    }
                }
                Ok(count) => {
                    read = read.saturating_add(count);
                    self.decode();
                }
                Err(Interrupt::WouldBlock) => self.drained = true,
                Err(interrupt) => self.cut_off(interrupt),
            }
        }
        self.release();
    }

    /// Reads without decoding, until the caller asks, the bound, or the last available byte.
    fn read_ahead(&mut self, caller: &ItemSender<Result<Burst<K>, Error>>) {
        while self.decoder.pending_bytes() < AHEAD_BYTES && !caller.is_awaited() {
            match self.fill(true) {
                Ok(1..) => {}
                Err(Interrupt::WouldBlock) => break,
                ended => {
                    self.end_read_ahead = Some(ended);
                    break;
                }
            }
        }
        self.release();
    }

    /// Reads once. 0 is the end of the body. Reading ahead takes only room that no other response
    /// needs.
    fn fill(&mut self, ahead: bool) -> Result<usize, Interrupt> {
        if let Some(ended) = self.end_read_ahead.take() {
            return ended;
        }
        let Some(answer) = &mut self.answer else {
            return Ok(0);
        };
        let call = &answer.call;
        let reserved = if ahead {
            let grow = &mut |growth| call.grow_ahead(growth);
            self.decoder
                .reserve(grow)
                .map_err(|_full| Interrupt::WouldBlock)
        } else {
            let grow = &mut |growth| call.grow(growth);
            self.decoder.reserve(grow).map_err(Interrupt::Failed)
        };
        reserved?;
        call.settle(self.decoder.held_bytes());
        let count = answer.read_available(self.decoder.space())?;
        if count > 0 {
            self.last_contact = Clock::system().now();
            self.decoder.filled(count);
        }
        Ok(count)
    }

    fn cut_off(&mut self, interrupt: Interrupt) {
        let Some(answer) = &self.answer else {
            return;
        };
        // RS-5, over HTTP/1.1: the ordinary ends of a connection.
        let everyday = interrupt.is_closed_by_peer() || interrupt.is_timed_out();
        let closed = answer.call.check_account().is_err();
        let error = answer.cut_off(interrupt);
        if everyday {
            self.answer = None;
            self.end = Some(error);
        } else if closed || error.is_stopped() {
            self.fail(error);
        } else {
            self.answer = None;
            // RS-4: any other failure is an error event, and the stream ends.
            self.events.push_back(WatchEvent::Error(error));
        }
    }

    /// Frees the memory that a quiet stream does not need.
    fn release(&mut self) {
        self.decoder.release();
        if let Some(answer) = &self.answer {
            answer.call.settle(self.decoder.held_bytes());
        }
    }

    /// Ends the stream and frees its memory.
    fn fail(&mut self, error: Error) {
        self.failure = Some(error);
        self.decoder.discard();
        if let Some(answer) = self.answer.take() {
            answer.call.settle(0);
        }
    }

    /// Decodes the bytes that were read, up to the maximum of undelivered events.
    fn decode(&mut self) {
        while self.events.len() < self.events_max {
            match self.decoder.next() {
                Ok(Some(WatchEvent::Error(error))) => {
                    let error = match &self.answer {
                        Some(answer) => answer.redact(error),
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

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write as _};
    use std::iter::Cycle;
    use std::net::TcpListener;
    use std::slice::Iter;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Secret;

    use super::super::lister_watcher::HttpListerWatcher;
    use super::super::transport::byte_budget::ByteBudget;
    use super::super::transport::channel::channel;
    use super::*;
    use crate::http::{Client, ClientOptions, Config};
    use crate::list_watch::WatchRequest;
    use crate::object::Scope;
    use crate::wire::DecodeOptions;
    use crate::worker::{StopToken, Worker};

    /// It only ends a test that fails.
    const PATIENCE: Duration = Duration::from_mins(5);

    const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;

    /// A body of events; a read of it never waits.
    struct Events {
        left: usize,
        bytes: Cycle<Iter<'static, u8>>,
    }

    impl Read for Events {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = into.len().min(self.left);
            for byte in into.iter_mut().take(count) {
                *byte = *self.bytes.next().unwrap();
            }
            self.left = self.left.strict_sub(count);
            Ok(count)
        }
    }

    /// Hands over three events at a time.
    fn reader(budget: &Arc<ByteBudget>, bytes: usize) -> Box<WatchReader<Secret>> {
        let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap();
        let body = Events {
            left: bytes,
            bytes: BOOKMARK.iter().cycle(),
        };
        let answer = ResponseReader::of(body, call.counted_in(budget));
        WatchReader::boxed(EventDecoder::new(&DecodeOptions::default()), answer, 3)
    }

    #[test]
    fn while_events_are_applied_no_more_is_read_than_the_bound() {
        let budget = ByteBudget::new(64 * 1024 * 1024);
        let (sender, receiver) = channel();
        let mut reader = reader(&budget, usize::MAX);
        for _ in 0..3 {
            let home = reader.read_for(&sender);
            let burst = receiver
                .result(&CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap());
            assert_eq!(burst.unwrap().events.len(), 3);
            assert!(home.events.is_empty());
            reader = home.reader.unwrap();
            let held = reader.decoder.held_bytes();
            assert!(reader.decoder.pending_bytes() >= AHEAD_BYTES);
            assert!(held <= 2 * AHEAD_BYTES, "{held}");
        }
    }

    #[test]
    fn what_was_read_ahead_is_decoded_before_the_end_counts() {
        let budget = ByteBudget::new(64 * 1024 * 1024);
        let (sender, receiver) = channel();
        let mut reader = reader(&budget, 7 * BOOKMARK.len());
        for events in [3, 3] {
            let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap();
            reader = reader.read_for(&sender).reader.unwrap();
            assert_eq!(receiver.result(&call).unwrap().events.len(), events);
            assert!(reader.answer.is_some());
        }
        let last = reader.read_for(&sender);
        assert_eq!(last.events.len(), 1);
        let reader = last.reader.unwrap();
        assert!(reader.answer.is_none() && reader.end.is_none());
        assert_eq!(reader.decoder.held_bytes(), 0);
    }

    /// B7: half of the budget is left to answers that need it.
    #[test]
    fn b7_reading_ahead_takes_half_of_the_budget_and_closes_nothing() {
        let budget = ByteBudget::new(128 * 1024);
        let (sender, _taker) = channel();
        let reader = reader(&budget, usize::MAX)
            .read_for(&sender)
            .reader
            .unwrap();
        let held = reader.decoder.held_bytes();
        assert!((16 * 1024..=64 * 1024).contains(&held), "{held}");
        assert!(reader.failure.is_none() && reader.answer.is_some());
    }

    #[test]
    fn a_caller_that_asks_or_is_gone_ends_reading_ahead() {
        let budget = ByteBudget::new(64 * 1024 * 1024);
        let (sender, receiver) = channel();
        drop(receiver);
        let reader = reader(&budget, usize::MAX)
            .read_for(&sender)
            .reader
            .unwrap();
        assert!(reader.decoder.pending_bytes() < 16 * 1024);
    }

    /// A sink that is slow does not hold up the server.
    #[test]
    fn bytes_are_taken_off_the_socket_while_the_first_event_is_applied() {
        const BODY_BYTES: usize = 32 * 1024;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = Worker::spawn("t-server", move |stop| {
            let (mut socket, _) = listener.accept().unwrap();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
            let events = BOOKMARK.repeat(BODY_BYTES / BOOKMARK.len());
            socket.write_all(head.as_bytes()).unwrap();
            socket.write_all(&events).unwrap();
            let stopped = stop.channel().recv();
            assert!(stopped.is_err());
        });
        let mut options = ClientOptions::default();
        options.decode.list_items_max = 3;
        let client = Client::new(&Config::for_server(&url).unwrap(), options).unwrap();
        let source =
            HttpListerWatcher::<Secret>::new(client.inner(), Secret::resource(), Scope::all());
        let request = WatchRequest {
            resource_version: "1".into(),
            timeout: Duration::ZERO,
            head_timeout: PATIENCE,
            bookmarks: true,
            send_initial_events: false,
            urgent: false,
        };
        let mut watch = source.open_watch(&request, &StopToken::never()).unwrap();
        let socket = watch.socket.clone().unwrap();
        let patience = Clock::system().after(PATIENCE);
        let unread = || {
            assert!(!Clock::system().has_passed(patience));
            std::thread::yield_now();
            rustix::io::ioctl_fionread(&*socket).unwrap()
        };
        while unread() < 16 * 1024 {}
        assert!(matches!(watch.next(patience), Ok(Next::Event(_))));
        while unread() > 0 {}
        assert_eq!(watch.events.len(), 2, "nobody asked for the next burst");
        drop((watch, serving));
    }
}
