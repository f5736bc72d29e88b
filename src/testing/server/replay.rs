//! The replay behind the connections: finds the recorded answer to a request, and times its pieces.

use std::time::{Duration, Instant};

use super::matching::{Book, Now, Part, Taken};
use super::pace::{Passage, Speed, Step, StepPace};
use super::quiet::Quiet;
use crate::sync::{Arc, Mutex};
use crate::testing::http::message::RequestMessage;
use crate::testing::http::{Answered, Backend, Caller, Piece, Pieces, Reply};
use crate::testing::recording::{Chunk, End, Exchange, Target};
use crate::worker::StopToken;

/// The recordings to replay, and the speed.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) book: Mutex<Book>,
    pub(super) pace: StepPace,
}

impl Backend for Replay {
    fn answer<'a>(&'a self, request: &RequestMessage, at: Instant, _caller: &Caller) -> Reply<'a> {
        let passed = |since| self.pace.recorded(at.saturating_duration_since(since));
        let now = Now {
            instant: at,
            passed: &passed,
        };
        let taken = self
            .book
            .lock()
            .take(&request.method, &request.target, &now);
        match taken {
            Ok(Taken::Recorded(exchange, part)) => {
                self.play(exchange, &request.target, at, Some(part))
            }
            Ok(Taken::Derived(exchange)) => self.play(exchange, &request.target, at, None),
            Ok(Taken::Quiet(exchange)) => Reply {
                status: 200,
                headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: Box::new(Quiet::after(&exchange, &request.target, &self.pace)),
                answered: Answered::Recorded,
            },
            Err(message) => {
                log::warn!("fixture server: {message}");
                Reply::failure(404, "NotFound", &message, Answered::Unmatched)
            }
        }
    }
}

impl Replay {
    /// Plays that part of an exchange, or all of one that is not recorded.
    fn play(
        &self,
        exchange: Arc<Exchange>,
        asked: &Target,
        arrived: Instant,
        part: Option<Part>,
    ) -> Reply<'_> {
        let answer = &exchange.answer;
        let mut headers = answer.headers.clone();
        if !keeps_its_length(&exchange) {
            headers.retain(|(name, _)| name != "content-length");
        }
        Reply {
            status: answer.status,
            headers,
            answered: part
                .as_ref()
                .map_or(Answered::Derived, |_| Answered::Recorded),
            body: Box::new(Play {
                replay: self,
                exchange,
                asked: asked.clone(),
                quiet: None,
                number: part.as_ref().map(|part| part.number),
                begun: part.as_ref().map_or(arrived, |part| part.begun),
                passage: Passage::new(&self.pace.gate),
                at: part.map_or(0, |part| part.first),
            }),
        }
    }
}

/// Whether to keep a recorded length: the body has it, or was cut before it.
fn keeps_its_length(exchange: &Exchange) -> bool {
    let answer = &exchange.answer;
    let mut headers = answer.headers.iter();
    let stated = headers.find(|(name, _)| name == "content-length");
    let stated = stated.and_then(|(_, value)| value.parse::<usize>().ok());
    let lengths = answer.chunks.iter().map(|chunk| chunk.text.len());
    let there = lengths.sum::<usize>();
    stated.is_some_and(|stated| stated == there || (answer.end != End::Clean && stated > there))
}

/// A recorded answer that is being sent.
struct Play<'a> {
    replay: &'a Replay,
    exchange: Arc<Exchange>,
    asked: Target,
    /// What comes after the last piece of one that stays open.
    quiet: Option<Quiet<'a>>,
    /// Its number in the book; none if it is not recorded.
    number: Option<usize>,
    /// When its times began.
    begun: Instant,
    passage: Passage<'a>,
    /// The next piece.
    at: usize,
}

impl Pieces for Play<'_> {
    fn begin(&mut self, stop: &StopToken) -> bool {
        let after = self.exchange.answer.after;
        self.replay.pace.wait(self.begun, after, stop)
    }

    fn next(&mut self, stop: &StopToken) -> Piece {
        let exchange = Arc::clone(&self.exchange);
        let answer = &exchange.answer;
        if let Some(Chunk { after, text }) = answer.chunks.get(self.at) {
            self.at = self.at.saturating_add(1);
            if !self.turn(*after, text, stop) {
                return Piece::Cut;
            }
            // Before the bytes, so that a client that has read them finds a server that is as far.
            if let Some(number) = self.number {
                self.replay.book.lock().sent(number);
            }
            return Piece::Bytes(text.clone().into_bytes());
        }
        if answer.end == End::Open {
            self.passage = Passage::new(&self.replay.pace.gate);
            let quiet = || Quiet::after(&exchange, &self.asked, &self.replay.pace);
            return self.quiet.get_or_insert_with(quiet).next(stop);
        }
        if !self.turn(answer.end_after, "", stop) || answer.end == End::Cut {
            return Piece::Cut;
        }
        Piece::End
    }
}

impl Play<'_> {
    /// Waits until a piece is due.
    fn turn(&mut self, after: Duration, text: &str, stop: &StopToken) -> bool {
        let pace = &self.replay.pace;
        if pace.speed != Speed::Stepped || !self.exchange.target.is_watch() {
            return pace.wait(self.begun, after, stop);
        }
        let piece = Step {
            path: self.exchange.target.path.clone(),
            text: text.to_owned(),
        };
        self.passage
            .pass(self.exchange.at.saturating_add(after), piece, stop)
    }
}
