//! An open watch. Its caller's thread waits for bytes and reads them.
//!
//! That thread decodes a collection's events too, so that one thread allocates an object, applies
//! it and frees the one before. With a second thread in between, both wait for the lock of one
//! allocator's arena, and each event costs two wake-ups.
//!
//! A watch of one object is idle, and there are many of them. A stack stays resident as deep as it
//! was ever used, and an allocator keeps a cache for each thread. So another thread decodes the
//! object, and frees the watch at its end. The caller decodes bookmarks itself, because they need
//! little of either.
//!
//! The watch reads no more than the next event needs. If the caller is slow, the bytes wait in the
//! socket. A read that finds less than it had room for has emptied the socket. So the watch empties
//! the buffers of TLS and HTTP as well, and the caller waits for the next event at once.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::agent::ResponseReader;
use super::calls::call_context::NamedDeadline;
use super::calls::channel::answering;
use super::calls::errors;
use super::calls::interrupt::{Interrupt, Limit};
use super::client_context::ClientInner;
use crate::clock::{Clock, Deadline};
use crate::error::Error;
use crate::guard::guard_call;
use crate::list_watch::{Backlog, Next, WatchEvent, WatchStream};
use crate::object::Object;
use crate::sync::Arc;
use crate::wire::EventDecoder;
use crate::worker::StopToken;

/// The maximum of reads after a passed deadline. It suffices for the bytes in a socket, and for the
/// longest event.
const LATE_READS: usize = 256;

/// From this size on, bytes of one object are decoded, so that they have a bound.
const UNDECODED_BYTES_MAX: usize = 64 * 1024;

/// An open watch, on its lister-watcher's connection.
pub(crate) struct OpenWatch<K: Object> {
    what: Arc<str>,
    stop: StopToken,
    /// The client whose threads decode events. `None`: the caller's thread does.
    decoded_by: Option<Arc<ClientInner>>,
    /// `None` at the end of the stream. Dropping it returns or closes the connection (RF-44).
    body: Option<Box<WatchBody<K>>>,
    last_contact: Instant,
}

/// The body of the response, in the box in which it moves between threads.
pub(crate) struct WatchBody<K> {
    answer: ResponseReader,
    decoder: EventDecoder<K>,
    /// Whether the next event has come whole.
    has_event: bool,
    /// Whether all available bytes were read, so that `poll` reports new ones.
    drained: bool,
    /// Whether the body is at its end. The bytes before it are decoded first.
    at_end: bool,
    /// What ends the stream at the next read.
    failed: Option<Interrupt>,
}

impl<K: Object> OpenWatch<K> {
    pub(crate) fn new(decoded_by: Option<Arc<ClientInner>>, body: Box<WatchBody<K>>) -> Self {
        Self {
            what: Arc::clone(&body.answer.what),
            stop: body.answer.call.stop().clone(),
            decoded_by,
            body: Some(body),
            last_contact: Clock::system().now(),
        }
    }

    /// Decodes the next event from the bytes read so far.
    ///
    /// # Errors
    ///
    /// The decoder's, or `Panicked` of the type's own decoding. The stream is then at its end.
    fn decode(&mut self) -> Result<Option<WatchEvent<K>>, Error> {
        let Some(mut body) = self.body.take() else {
            return Ok(None);
        };
        let (body, event) = match &self.decoded_by {
            Some(client) if !body.decoder.has_bookmark() => {
                if !body.may_have_event() {
                    self.body = Some(body);
                    return Ok(None);
                }
                decode_elsewhere(client, body)?
            }
            Some(_) | None => {
                let event = guard_call(errors::DECODER, || body.decode())?;
                (body, event)
            }
        };
        if !body.decoder.is_ended() {
            self.body = Some(body);
        }
        Ok(event)
    }

    /// Frees the body at its end where events are decoded.
    fn free_body(&mut self) {
        let body = self.body.take();
        if let Some(client) = &self.decoded_by {
            let free = move |_: Result<(), Error>| {
                drop(body);
                None
            };
            client.threads.readers.run(Box::new(free));
        }
    }

    /// Returns the end of the stream that a broken connection causes.
    ///
    /// # Errors
    ///
    /// The stop; `TooLarge`, when the client's byte budget has closed the response.
    fn cut_off(&mut self, interrupt: Interrupt) -> Result<Next<K>, Error> {
        let Some(body) = self.body.take() else {
            return Ok(Next::Ended(None));
        };
        // RS-5, over HTTP/1.1: the ordinary ends of a connection.
        let everyday = interrupt.is_closed_by_peer() || interrupt.is_timed_out();
        let closed = body.answer.call.check_account().is_err();
        let error = body.answer.cut_off(interrupt);
        if everyday {
            Ok(Next::Ended(Some(error)))
        } else if closed || error.is_stopped() {
            Err(error)
        } else {
            // RS-4: any other failure is an error event, and the stream ends.
            Ok(Next::Event(WatchEvent::Error(error)))
        }
    }
}

/// A body, and the next of its events.
type Decoded<K> = (Box<WatchBody<K>>, Option<WatchEvent<K>>);

/// Decodes the next event on a thread of the client. Decoding never waits for the network, so only
/// the stop ends this wait early.
fn decode_elsewhere<K: Object>(
    client: &ClientInner,
    mut body: Box<WatchBody<K>>,
) -> Result<Decoded<K>, Error> {
    let what = Arc::clone(&body.answer.what);
    let call = body.answer.call.ending(NamedDeadline::NEVER);
    let (job, decoding) = answering(errors::DECODER, move |_| {
        let event = body.decode()?;
        Ok((body, event))
    });
    client.threads.readers.run(job);
    match decoding.result(&call) {
        Err(Interrupt::Failed(error)) => Err(error),
        decoded => decoded.map_err(|interrupt| errors::cut_off(&what, interrupt)),
    }
}

impl<K: Object> WatchBody<K> {
    /// Makes the body in its box, because no stack frame may hold it.
    pub(crate) fn boxed(decoder: EventDecoder<K>, answer: ResponseReader) -> Box<Self> {
        Box::new(Self {
            answer,
            decoder,
            has_event: false,
            drained: false,
            at_end: false,
            failed: None,
        })
    }

    fn decode(&mut self) -> Result<Option<WatchEvent<K>>, Error> {
        let event = self.decoder.next();
        let mut event = event.map_err(|error| self.answer.failed(error))?;
        if event.is_some() {
            self.answer.decoded(&mut self.decoder.skipped_bytes);
        }
        self.has_event = self.decoder.has_line();
        if let Some(WatchEvent::Error(error)) = event {
            event = Some(WatchEvent::Error(self.answer.failed(error)));
        }
        Ok(event)
    }

    /// Whether another thread should look for an event.
    fn may_have_event(&mut self) -> bool {
        let pending = self.decoder.pending_bytes();
        let no_more_come = self.drained || self.at_end;
        let is_large = pending >= UNDECODED_BYTES_MAX;
        pending > 0 && (no_more_come || is_large || self.decoder.has_line())
    }

    /// Reads once. Blocks for new bytes if all available ones were read.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none came after all; the limit of the deadline; the stop; the failure of the
    /// connection.
    fn read(&mut self, deadline: Deadline) -> Result<usize, Interrupt> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        if self.drained
            && let Some(socket) = &self.answer.socket
        {
            let call = &self.answer.call;
            let mut waits_for = [
                PollFd::new(&**socket, PollFlags::IN),
                call.wake_descriptor(),
            ];
            if !call.wait_for_any(&mut waits_for, deadline)? {
                return Err(Interrupt::Limit(Limit::Deadline));
            }
        }
        let call = &self.answer.call;
        let grow = &mut |growth| call.grow(growth);
        self.decoder.reserve(grow).map_err(Interrupt::Failed)?;
        call.settle(self.decoder.held_bytes());
        self.drained = false;
        let count = self.answer.read_available(self.decoder.space())?;
        if count == 0 {
            self.decoder.end_of_body();
            self.at_end = true;
        }
        self.decoder.filled(count);
        Ok(count)
    }

    /// Reads on after an event if the socket is known to be empty, so that the caller can wait at
    /// once. poll(2) does not report the bytes in the buffers of TLS and HTTP.
    fn look_ahead(&mut self) {
        if !self.answer.is_drained || self.decoder.pending_bytes() > 0 {
            return;
        }
        match self.read(Deadline::NEVER) {
            Ok(_) => self.has_event = self.decoder.has_line(),
            Err(Interrupt::WouldBlock) => self.rest(),
            Err(failed) => self.failed = Some(failed),
        }
    }

    /// Frees the memory that a quiet stream does not need.
    fn rest(&mut self) {
        self.drained = true;
        self.decoder.release();
        self.answer.call.settle(self.decoder.held_bytes());
    }
}

impl<K: Object> WatchStream<K> for OpenWatch<K> {
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        let mut late_reads = 0_usize;
        loop {
            // A busy stream never calls poll(2), which reports the stop.
            if self.stop.is_stopped() {
                return Err(Error::stopped(&self.what));
            }
            if let Some(event) = self.decode()? {
                if let Some(body) = &mut self.body {
                    body.look_ahead();
                }
                return Ok(Next::Event(event));
            }
            let Some(body) = &mut self.body else {
                return Ok(Next::Ended(None));
            };
            if body.at_end {
                let end = body.decoder.finish();
                let end = end.map(|error| body.answer.failed(error));
                self.free_body();
                return Ok(Next::Ended(end));
            }
            if Clock::system().has_passed(deadline) {
                // Without an event, bytes that come without a pause would keep this loop running.
                if late_reads == LATE_READS {
                    return Ok(Next::DeadlinePassed);
                }
                late_reads = late_reads.saturating_add(1);
            }
            match body.read(deadline) {
                Ok(0) => {}
                Ok(_) => self.last_contact = Clock::system().now(),
                Err(Interrupt::WouldBlock) => {
                    body.rest();
                    let is_empty = body.decoder.pending_bytes() == 0;
                    if is_empty && Clock::system().has_passed(deadline) {
                        return Ok(Next::DeadlinePassed);
                    }
                }
                Err(Interrupt::Limit(_)) => return Ok(Next::DeadlinePassed),
                Err(interrupt) => return self.cut_off(interrupt),
            }
        }
    }

    fn last_contact(&self) -> Instant {
        self.last_contact
    }

    fn backlog(&self) -> Backlog {
        match &self.body {
            Some(body) if body.has_event => Backlog::Event,
            Some(body) if body.drained && body.decoder.pending_bytes() == 0 => Backlog::Unknown,
            Some(_) => Backlog::Bytes,
            None => Backlog::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    use crossbeam_channel::Sender;
    use k8s_openapi::api::core::v1::Secret;
    use serde::{Deserialize, Deserializer};

    use super::super::calls::byte_budget::ByteBudget;
    use super::super::calls::call_context::CallContext;
    use super::super::lister_watcher::HttpListerWatcher;
    use super::*;
    use crate::error::ErrorKind;
    use crate::http::{Client, ClientOptions, Config};
    use crate::list_watch::WatchRequest;
    use crate::object::{Resource, Scope};
    use crate::tests::until::until;
    use crate::wire::DecodeOptions;
    use crate::worker::Worker;

    /// It only ends a test that fails.
    const PATIENCE: Duration = Duration::from_secs(5 * 60);

    const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;

    /// Notes the name of the thread that decoded it. Decoding it panics if it is called `bomb`.
    #[derive(Debug)]
    struct Touchy {
        name: String,
        decoded_on: Option<String>,
    }

    impl<'de> Deserialize<'de> for Touchy {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            #[derive(serde_derive::Deserialize)]
            struct Raw {
                metadata: Name,
            }
            #[derive(serde_derive::Deserialize)]
            struct Name {
                name: String,
            }
            let name = Raw::deserialize(deserializer)?.metadata.name;
            assert!(name != "bomb", "boom");
            let decoded_on = std::thread::current().name().map(str::to_owned);
            Ok(Self { name, decoded_on })
        }
    }

    impl Object for Touchy {
        fn resource() -> Resource {
            Resource::new("example.com", "v1", "touchies", "Touchy")
        }
        fn name(&self) -> &str {
            &self.name
        }
        fn namespace(&self) -> &'static str {
            "shop"
        }
        fn uid(&self) -> &'static str {
            ""
        }
        fn resource_version_text(&self) -> &'static str {
            "8"
        }
    }

    fn added(name: &str) -> Vec<u8> {
        let object = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n").into_bytes()
    }

    fn client(url: &str) -> Client {
        let config = Config::for_server(url).unwrap();
        Client::new(&config, ClientOptions::default()).unwrap()
    }

    /// A watch of one object, or of a collection. A read of its body never waits.
    fn watch(one_object: bool, body: Vec<u8>) -> OpenWatch<Touchy> {
        let budget = ByteBudget::new(64 * 1024 * 1024);
        let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap();
        let answer = ResponseReader::of(Cursor::new(body), call.counted_in(&budget));
        let decoder = EventDecoder::new(&DecodeOptions::default());
        let decoded_by = one_object.then(|| client("http://127.0.0.1:1").inner);
        OpenWatch::new(decoded_by, WatchBody::boxed(decoder, answer))
    }

    fn decoded_on(watch: &mut OpenWatch<Touchy>) -> String {
        let next = watch.next(Deadline::NEVER).unwrap();
        let Next::Event(WatchEvent::Object(event)) = next else {
            panic!("{next:?}");
        };
        event.object.decoded().unwrap().decoded_on.clone().unwrap()
    }

    #[test]
    fn what_came_is_returned_before_the_end_and_the_end_frees_the_connection() {
        for one_object in [false, true] {
            let mut watch = watch(one_object, BOOKMARK.repeat(700));
            for _ in 0..700 {
                let next = watch.next(Deadline::NEVER).unwrap();
                assert!(matches!(next, Next::Event(WatchEvent::Bookmark { .. })));
            }
            for _ in 0..2 {
                let next = watch.next(Deadline::NEVER).unwrap();
                assert!(matches!(next, Next::Ended(None)), "{next:?}");
            }
            assert!(watch.body.is_none());
        }
    }

    #[test]
    fn an_object_is_decoded_by_its_caller_and_the_one_object_of_a_watch_by_a_thread_of_the_client()
    {
        let here = std::thread::current().name().map(str::to_owned);
        assert_eq!(Some(decoded_on(&mut watch(false, added("db")))), here);
        let there = decoded_on(&mut watch(true, added("db")));
        assert!(there.starts_with("read-"), "{there}");
    }

    /// A bookmark costs an idle watch no other thread.
    #[test]
    fn a_bookmark_is_decoded_by_its_caller() {
        let line = [BOOKMARK, b"\n"].concat();
        let mut watch = watch(true, line.repeat(3));
        for _ in 0..3 {
            let next = watch.next(Deadline::NEVER).unwrap();
            assert!(matches!(next, Next::Event(WatchEvent::Bookmark { .. })));
        }
        let client = watch.decoded_by.unwrap();
        assert_eq!(client.threads.readers.started(), 0);
    }

    #[test]
    fn a_panic_of_the_decoding_is_the_error_of_its_watch() {
        for one_object in [false, true] {
            let mut watch = watch(
                one_object,
                [added("db"), added("bomb"), added("db")].concat(),
            );
            decoded_on(&mut watch);
            let error = watch.next(Deadline::NEVER).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Panicked);
            assert_eq!(
                error.to_string(),
                "the decoder of the objects panicked: boom"
            );
            let next = watch.next(Deadline::NEVER).unwrap();
            assert!(matches!(next, Next::Ended(None)), "{next:?}");
        }
    }

    fn request() -> WatchRequest {
        WatchRequest {
            resource_version: "1".into(),
            timeout: Duration::ZERO,
            head_timeout: PATIENCE,
            bookmarks: true,
            send_initial_events: false,
            urgent: false,
        }
    }

    /// A chunk with the bookmark of this version.
    fn chunk(version: &str) -> String {
        let object = format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#);
        let line = format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n");
        format!("{:x}\r\n{line}\r\n", line.len())
    }

    /// Opens a watch on a server that writes one of the pieces whenever the test says so.
    fn serve(pieces: [String; 6]) -> (OpenWatch<Secret>, Sender<()>, Worker) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (go, gone) = crossbeam_channel::unbounded();
        let serving = Worker::spawn("t-server", move |_| {
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_nodelay(true).unwrap();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                        Transfer-Encoding: chunked\r\n\r\n";
            socket.write_all(head.as_bytes()).unwrap();
            for (piece, ()) in pieces.iter().zip(&gone) {
                socket.write_all(piece.as_bytes()).unwrap();
            }
            // The test has ended.
            assert!(gone.recv().is_err());
        });
        let client = client(&url);
        let source =
            HttpListerWatcher::<Secret>::new(&client.inner, Secret::resource(), Scope::all());
        let watch = source.open_watch(&request(), &StopToken::never());
        (watch.unwrap(), go, serving.unwrap())
    }

    fn next_version(watch: &mut OpenWatch<Secret>, deadline: Deadline) -> String {
        match watch.next(deadline).unwrap() {
            Next::Event(WatchEvent::Bookmark {
                resource_version, ..
            }) => resource_version.to_string(),
            other @ (Next::Event(_) | Next::Ended(_) | Next::DeadlinePassed) => panic!("{other:?}"),
        }
    }

    /// After an event that emptied the socket, the caller waits at once. It misses no byte, however
    /// the server cuts its answer.
    #[test]
    fn a_read_that_empties_the_socket_is_the_last_before_a_wait() {
        let [four, five] = ["4", "5"].map(chunk);
        let ((four, end), (half, rest)) = (four.split_at(four.len() - 2), five.split_at(20));
        let (mut watch, go, serving) = serve([
            chunk("1"),
            chunk("2") + &chunk("3"),
            four.to_owned(),
            end.to_owned() + half,
            rest.to_owned(),
            chunk("6"),
        ]);
        let patience = Clock::system().after(PATIENCE);
        for (pieces, versions) in [(1, &["1"][..]), (1, &["2", "3"]), (1, &["4"]), (2, &["5"])] {
            (0..pieces).for_each(|_| go.send(()).unwrap());
            for version in versions {
                assert_eq!(next_version(&mut watch, patience), *version);
            }
            assert_eq!(watch.backlog(), Backlog::Unknown, "after {versions:?}");
        }
        // What comes after that read is an event that has come, also for who looks late.
        go.send(()).unwrap();
        let socket = watch.body.as_ref().unwrap().answer.socket.clone().unwrap();
        until(|| rustix::io::ioctl_fionread(&*socket).unwrap() > 0);
        let passed = Deadline::at(Clock::system().now());
        assert_eq!(next_version(&mut watch, passed), "6");
        drop((watch, go, serving));
    }

    /// No buffer grows behind a slow caller.
    #[test]
    fn b7_what_the_next_event_does_not_need_waits_in_the_socket() {
        const BODY_BYTES: usize = 256 * 1024;
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
        let client = client(&url);
        let source =
            HttpListerWatcher::<Secret>::new(&client.inner, Secret::resource(), Scope::all());
        let mut watch = source.open_watch(&request(), &StopToken::never()).unwrap();
        let patience = Clock::system().after(PATIENCE);
        assert!(matches!(watch.next(patience), Ok(Next::Event(_))));
        let body = watch.body.as_ref().unwrap();
        let socket = body.answer.socket.clone().unwrap();
        until(|| rustix::io::ioctl_fionread(&*socket).unwrap() >= 16 * 1024);
        assert!(body.decoder.held_bytes() <= 16 * 1024);
        drop((watch, serving));
    }
}
