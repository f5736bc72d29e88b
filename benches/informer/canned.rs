//! A server in memory: a list and watch lines as bytes, decoded as a client decodes them, no
//! network in between.

#![allow(
    dead_code,
    reason = "each program that includes this file uses a part of it"
)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select, unbounded};
use kubecache::Error;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::DecodeOptions;
use kubecache::list_watch::{
    Backlog, ListPage, ListRequest, Listed, ListerWatcher, Next, WatchEvent, WatchRequest,
    WatchStream,
};
use kubecache::object::Object;
use kubecache::testing::{EventDecoder, ListDecoder};
use kubecache::worker::StopToken;

/// How much the HTTP client decodes at once.
const BURST_BYTES: usize = 64 * 1024;

/// Gives a list's body, piece by piece.
pub(crate) type ListBody = dyn Fn(&mut dyn FnMut(&[u8])) + Send + Sync;

/// Lists one body, and watches whatever lines are sent.
pub(crate) struct Canned {
    list: Box<ListBody>,
    lines: Receiver<Arc<Vec<u8>>>,
}

impl Canned {
    /// The server, and where lines of its watch are sent.
    pub(crate) fn new(list: Box<ListBody>) -> (Arc<Self>, Sender<Arc<Vec<u8>>>) {
        let (send, lines) = unbounded();
        (Arc::new(Self { list, lines }), send)
    }
}

impl<K: Object> ListerWatcher<K> for Canned {
    fn list(
        &self,
        _request: &ListRequest,
        _stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        let mut decoder = ListDecoder::<K>::new(&DecodeOptions::default());
        (self.list)(&mut |mut piece| {
            while !piece.is_empty() {
                let space = decoder.space();
                let count = fill(space, &mut piece);
                decoder.filled(count, each).unwrap();
            }
        });
        decoder.finish()
    }

    fn watch(
        &self,
        _request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error> {
        Ok(Box::new(Lines {
            decoding: Decoding::new(Arc::default()),
            decoded: VecDeque::new(),
            more: self.lines.clone(),
            stop: stop.clone(),
            last_contact: Clock::system().now(),
        }))
    }

    fn describe(&self) -> String {
        "canned objects".to_owned()
    }
}

/// Watch lines being decoded: the floor, and what the informer's stream does as well.
pub(crate) struct Decoding<K: Object> {
    decoder: EventDecoder<K>,
    lines: Arc<Vec<u8>>,
    at: usize,
}

impl<K: Object> Decoding<K> {
    pub(crate) fn new(lines: Arc<Vec<u8>>) -> Self {
        Self {
            decoder: EventDecoder::new(&DecodeOptions::default()),
            lines,
            at: 0,
        }
    }

    /// The next event, read as from a socket that always has more; `None` at the end of the lines.
    pub(crate) fn next(&mut self) -> Option<WatchEvent<K>> {
        loop {
            if let Some(event) = self.decoder.next().unwrap() {
                return Some(event);
            }
            let mut rest = self.lines.get(self.at..).filter(|rest| !rest.is_empty())?;
            let count = fill(self.decoder.space(), &mut rest);
            self.decoder.filled(count);
            self.at += count;
        }
    }
}

/// An open watch. As the HTTP client, it decodes what has come, up to a limit, before it hands over
/// the first event of it.
struct Lines<K: Object> {
    decoding: Decoding<K>,
    decoded: VecDeque<WatchEvent<K>>,
    more: Receiver<Arc<Vec<u8>>>,
    stop: StopToken,
    last_contact: Instant,
}

impl<K: Object> WatchStream<K> for Lines<K> {
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        loop {
            if let Some(event) = self.decoded.pop_front() {
                return Ok(Next::Event(event));
            }
            let begun = self.decoding.at;
            while self.decoding.at - begun < BURST_BYTES
                && let Some(event) = self.decoding.next()
            {
                self.decoded.push_back(event);
            }
            if !self.decoded.is_empty() {
                continue;
            }
            let now = Clock::system().now();
            let patience = deadline.remaining(now).unwrap_or(Duration::MAX);
            select! {
                recv(self.more) -> more => {
                    self.last_contact = now;
                    self.decoding.lines = more.unwrap();
                    self.decoding.at = 0;
                }
                recv(self.stop.channel()) -> _ => return Ok(Next::Ended(None)),
                default(patience) => return Ok(Next::DeadlinePassed),
            }
        }
    }

    fn last_contact(&self) -> Instant {
        self.last_contact
    }

    fn backlog(&self) -> Backlog {
        if !self.decoded.is_empty() {
            Backlog::Event
        } else if self.decoding.at < self.decoding.lines.len() {
            Backlog::Bytes
        } else {
            Backlog::Unknown
        }
    }
}

/// Moves bytes as a read of a socket does.
fn fill(space: &mut [u8], from: &mut &[u8]) -> usize {
    let count = space.len().min(from.len());
    let (piece, rest) = from.split_at(count);
    space[..count].copy_from_slice(piece);
    *from = rest;
    count
}
