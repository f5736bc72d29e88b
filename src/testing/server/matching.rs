//! Finds the answer to a request: the recorded one by verb, path, selectors and the number of
//! earlier requests of its kind. For an unrecorded get of one object, or list, derives it from the
//! recording.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::history::{PlayedHistory, Point};
use super::plain::Halves;
use super::single;
use crate::sync::Arc;
use crate::testing::recording::{Exchange, PathPlace, Recording, Target, is_true};

/// Parameters that show a client's position, not its question. A replay ignores them unless the
/// recording says otherwise.
const IGNORED: [&str; 7] = [
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "timeout",
    "limit",
    "allowWatchBookmarks",
    "pretty",
];

/// How many recorded requests of a path an error lists for an unrecorded one.
const LISTED_MAX: usize = 5;

/// Parameters that are absent when they are false.
const FLAGS: [&str; 2] = ["watch", "sendInitialEvents"];

/// The question of a request, independent of the order of its parameters and selector terms.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    method: String,
    path: String,
    parameters: BTreeMap<String, String>,
}

impl Question {
    fn of(method: &str, target: &Target) -> Self {
        let asked = target.query.iter().filter_map(|(name, value)| {
            if IGNORED.contains(&name.as_str()) {
                return None;
            }
            let value = match name.as_str() {
                flag if FLAGS.contains(&flag) => is_true(value).then(|| "true".to_owned())?,
                "fieldSelector" | "labelSelector" => in_order(value),
                _ => value.clone(),
            };
            (!value.is_empty()).then(|| (name.clone(), value))
        });
        Self {
            method: method.to_owned(),
            path: target.path.clone(),
            parameters: asked.collect(),
        }
    }

    /// The question of a client that has the same objects listed as a stream.
    fn streamed(&self) -> Self {
        let mut streamed = self.clone();
        for flag in FLAGS {
            streamed
                .parameters
                .insert(flag.to_owned(), "true".to_owned());
        }
        streamed
    }
}

/// A selector's terms in order. Commas inside parentheses, or after a backslash, do not separate
/// terms.
fn in_order(selector: &str) -> String {
    let mut terms = BTreeSet::new();
    let (mut term, mut depth, mut quoted) = (String::new(), 0_usize, false);
    for character in selector.chars() {
        match character {
            ',' if depth == 0 && !quoted => {
                terms.insert(std::mem::take(&mut term).trim().to_owned());
                continue;
            }
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        quoted = character == '\\' && !quoted;
        term.push(character);
    }
    terms.insert(term.trim().to_owned());
    Vec::from_iter(terms).join(",")
}

/// How far ahead a recorded get may be to match a present request.
const SLACK: Duration = Duration::from_secs(1);

/// The recorded exchanges, each used once.
#[derive(Debug)]
pub(super) struct Book {
    pages: Vec<Page>,
    /// The exchanges' knowledge of single objects, read when first needed.
    history: Option<Arc<PlayedHistory>>,
    /// Whether there are answers after the end of the recording.
    endless: bool,
}

/// The time on the server's clock, and the recorded time that has passed since an instant.
pub(super) struct Now<'a> {
    pub(super) instant: Instant,
    pub(super) passed: &'a dyn Fn(Instant) -> Duration,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Taken {
    /// An exchange, and how much of it.
    Recorded(Arc<Exchange>, Part),
    /// A get of one object, or a list, answered from the recording so far.
    Derived(Arc<Exchange>),
    /// A watch after the end of an endless recording, and the last one that was recorded: it opens
    /// and has no event.
    Quiet(Arc<Exchange>),
}

/// What to send of an exchange.
#[derive(Debug)]
pub(super) struct Part {
    /// Its number for [`Book::sent`].
    pub(super) number: usize,
    /// The first piece.
    pub(super) first: usize,
    /// The instant from which its times count.
    pub(super) begun: Instant,
}

#[derive(Debug)]
struct Page {
    exchange: Arc<Exchange>,
    question: Question,
    /// Whether its recording has times: a handmade one has none between its exchanges.
    timed: bool,
    /// When its use began.
    begun: Option<Instant>,
    /// Whether only its beginning was used, for a plain list: the question is now the watch's.
    halved: bool,
    /// How many pieces of its answer were sent.
    sent: usize,
}

impl Page {
    fn new(exchange: Exchange, timed: bool) -> Self {
        Self {
            question: Question::of(&exchange.method, &exchange.target),
            exchange: Arc::new(exchange),
            timed,
            begun: None,
            halved: false,
            sent: 0,
        }
    }

    fn used(&self) -> bool {
        self.begun.is_some() && !self.halved
    }

    /// The position to which it has brought the replay, after `passed` of recorded time since its
    /// beginning.
    fn reached(&self, passed: Duration) -> Duration {
        let answer = &self.exchange.answer;
        let sent = self.sent.checked_sub(1);
        let sent = sent.and_then(|last| answer.chunks.get(last));
        let sent = sent.map_or(Duration::ZERO, |piece| piece.after);
        let reached = passed.min(answer.end_after).max(sent);
        self.exchange.at.saturating_add(reached)
    }
}

impl Book {
    pub(super) fn new(recordings: Vec<Recording>, endless: bool) -> Self {
        let pages = recordings.into_iter().flat_map(|recording| {
            let timed = recording.exchanges.iter().any(|one| !one.at.is_zero());
            let exchanges = recording.exchanges.into_iter();
            exchanges.map(move |exchange| Page::new(exchange, timed))
        });
        Self {
            pages: pages.collect(),
            history: None,
            endless,
        }
    }

    /// The first unused exchange of that kind, or its substitute. `Err` has the question and the
    /// recorded ones.
    pub(super) fn take(
        &mut self,
        method: &str,
        target: &Target,
        now: &Now<'_>,
    ) -> Result<Taken, String> {
        let question = Question::of(method, target);
        let single = (method == "GET")
            .then(|| PathPlace::of(target))
            .flatten()
            .and_then(|place| self.derive(&place, target, now));
        let due = single.is_none().then_some(Duration::MAX);
        let due = due.unwrap_or_else(|| self.present(now).saturating_add(SLACK));
        let alike =
            |page: &Page| page.question == question && conditions_hold(&page.exchange, target);
        let mut pages = self.pages.iter_mut().enumerate();
        let unused = pages.find(|(_, page)| !page.used() && page.exchange.at <= due && alike(page));
        if let Some((number, page)) = unused {
            page.halved = false;
            let part = Part {
                number,
                first: page.sent,
                begun: *page.begun.get_or_insert(now.instant),
            };
            return Ok(Taken::Recorded(Arc::clone(&page.exchange), part));
        }
        let lists = method == "GET" && !target.is_watch();
        let plain = |book: &mut Self| lists.then(|| book.plain_list(target, now)).flatten();
        if let Some(answer) = single.or_else(|| plain(self)) {
            return Ok(Taken::Derived(Arc::new(answer)));
        }
        let last = self.pages.iter().enumerate().rfind(|(_, page)| alike(page));
        let again = |number, page: &Page| {
            let part = Part {
                number,
                first: 0,
                begun: now.instant,
            };
            Ok(Taken::Recorded(Arc::clone(&page.exchange), part))
        };
        match last {
            // A client that was refused is refused again each time it asks.
            Some((number, page)) if page.exchange.answer.status >= 400 => again(number, page),
            Some((_, page)) if self.endless && target.is_watch() => {
                Ok(Taken::Quiet(Arc::clone(&page.exchange)))
            }
            Some((number, page)) if self.endless => again(number, page),
            _ => {
                let again = (self.endless && lists).then(|| self.last_plain_list(target));
                let again = again.flatten().map(Arc::new).map(Taken::Derived);
                again.ok_or_else(|| self.missing(method, target, &question))
            }
        }
    }

    /// The list out of the first unused streamed list of the same objects. The rest of that, the
    /// watch, is then to come.
    fn plain_list(&mut self, target: &Target, now: &Now<'_>) -> Option<Exchange> {
        let streamed = Question::of("GET", target).streamed();
        let unused = self.pages.iter_mut().find_map(|page| {
            let alike = page.question == streamed && conditions_hold(&page.exchange, target);
            let halves = (alike && !page.used()).then(|| Halves::of(&page.exchange, target));
            Some((page, halves.flatten()?))
        });
        let (page, halves) = unused?;
        page.begun = Some(now.instant);
        page.halved = true;
        page.sent = halves.first;
        page.question.parameters.remove("sendInitialEvents");
        page.exchange = Arc::new(halves.whole);
        // It numbers pieces, one of which may be two now.
        self.history = None;
        Some(halves.list)
    }

    /// The list out of the last streamed list of the same objects.
    fn last_plain_list(&self, target: &Target) -> Option<Exchange> {
        let streamed = Question::of("GET", target).streamed();
        self.pages.iter().rev().find_map(|page| {
            let recorded = Question::of(&page.exchange.method, &page.exchange.target);
            let halves = (recorded == streamed).then(|| Halves::of(&page.exchange, target));
            Some(halves.flatten()?.list)
        })
    }

    /// Notes that one more piece of an answer is sent.
    pub(super) fn sent(&mut self, number: usize) {
        if let Some(page) = self.pages.get_mut(number) {
            page.sent = page.sent.saturating_add(1);
        }
    }

    /// The position of the replay: that of its furthest answer.
    fn present(&self, now: &Now<'_>) -> Duration {
        let reached = self.pages.iter().filter_map(|page| {
            let passed = (now.passed)(page.begun?);
            Some(page.reached(passed))
        });
        reached.max().unwrap_or_default()
    }

    fn derive(&mut self, place: &PathPlace, target: &Target, now: &Now<'_>) -> Option<Exchange> {
        let pages = &self.pages;
        let history = self.history.get_or_insert_with(|| {
            let mut exchanges = pages.iter().map(|page| &page.exchange);
            Arc::new(PlayedHistory::of(&mut exchanges))
        });
        let history = Arc::clone(history);
        let present = self.present(now);
        let past = |point: &Point| {
            self.pages
                .get(point.page)
                .is_some_and(|page| (page.timed && point.at <= present) || point.piece < page.sent)
        };
        single::answer(&history, place, target, &past)
    }

    /// The unused exchanges.
    pub(super) fn unused(&self) -> Vec<Arc<Exchange>> {
        let unused = self.pages.iter().filter(|page| !page.used());
        unused.map(|page| Arc::clone(&page.exchange)).collect()
    }

    fn missing(&self, method: &str, target: &Target, question: &Question) -> String {
        let alike = self
            .pages
            .iter()
            .filter(|page| page.question == *question)
            .count();
        let mut message = format!("no recorded answer for {method} {target}");
        let mut say = |text: std::fmt::Arguments<'_>| {
            let written = message.write_fmt(text);
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        };
        if alike > 0 {
            say(format_args!(
                ": all {alike} recorded answers to this question are given out or have other \
                 conditions"
            ));
        }
        let mut there = BTreeMap::<_, (usize, usize)>::new();
        for page in self
            .pages
            .iter()
            .filter(|page| page.question.path == question.path)
        {
            let recorded = &page.exchange.target.query;
            let shared = target.query.iter().filter(|pair| recorded.contains(pair));
            let what = format!("{} {}", page.exchange.method, page.exchange.target);
            let counts = there.entry((Reverse(shared.count()), what)).or_default();
            counts.0 = counts.0.saturating_add(1);
            counts.1 = counts.1.saturating_add(usize::from(page.used()));
        }
        if there.is_empty() {
            say(format_args!("; nothing is recorded for this path"));
            return message;
        }
        say(format_args!("; recorded for this path:"));
        for ((_, what), (count, used)) in there.iter().take(LISTED_MAX) {
            say(format_args!(" {what} (x{count}, {used} given out)"));
        }
        if let Some(more) = there.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
            say(format_args!(" and {more} other requests"));
        }
        message
    }
}

fn conditions_hold(exchange: &Exchange, target: &Target) -> bool {
    let mut conditions = exchange.matches.iter();
    conditions.all(|name| {
        exchange.target.value(name).unwrap_or_default() == target.value(name).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recording::Answer;

    fn book(targets: &[&str]) -> Book {
        let mut recording = Recording::new();
        for (status, target) in (200..).zip(targets) {
            recording.push(Exchange::get(target, Answer::new(status)));
        }
        Book::new(vec![recording], false)
    }

    fn ask(book: &mut Book, target: &str) -> Result<u16, String> {
        let now = Now {
            instant: crate::clock::FakeClock::new().now(),
            passed: &|_since| Duration::ZERO,
        };
        match book.take("GET", &Target::parse(target), &now)? {
            Taken::Recorded(exchange, _) | Taken::Derived(exchange) => Ok(exchange.answer.status),
            Taken::Quiet(_) => Ok(0),
        }
    }

    #[test]
    fn the_same_question_gets_its_answers_in_order_and_then_none() {
        let mut book = book(&["/s", "/s?watch=1", "/s"]);
        assert_eq!(ask(&mut book, "/s?limit=500&resourceVersion=0"), Ok(200));
        assert_eq!(ask(&mut book, "/s?watch=0"), Ok(202));
        assert_eq!(ask(&mut book, "/s?watch=true&timeoutSeconds=9"), Ok(201));
        let why = ask(&mut book, "/s").unwrap_err();
        assert_eq!(
            why,
            "no recorded answer for GET /s: all 2 recorded answers to this question are given out \
             or have other conditions; recorded for this path: GET /s (x2, 2 given out) \
             GET /s?watch=1 (x1, 1 given out)"
        );
        assert!(
            ask(&mut book, "/t")
                .unwrap_err()
                .ends_with("nothing is recorded for this path")
        );
    }

    #[test]
    fn of_many_requests_those_are_listed_that_share_most_with_what_was_asked() {
        let targets: Vec<_> = (0..20).map(|n| format!("/s?limit={n}&watch=1")).collect();
        let targets: Vec<_> = targets.iter().map(String::as_str).collect();
        let mut book = book(&targets);
        let why = ask(&mut book, "/s?limit=7").unwrap_err();
        assert!(why.contains("path: GET /s?limit=7&watch=1 (x1, 0"), "{why}");
        assert!(why.ends_with(" and 15 other requests"), "{why}");
    }

    #[test]
    fn selectors_match_in_any_order_and_tell_requests_apart() {
        let mut book =
            book(&["/s?labelSelector=b+in+(x,y),a%3D1&fieldSelector=metadata.name%3Ddb"]);
        assert!(
            ask(
                &mut book,
                "/s?fieldSelector=metadata.name%3Dweb&labelSelector=a%3D1"
            )
            .is_err()
        );
        assert_eq!(
            ask(
                &mut book,
                "/s?fieldSelector=metadata.name%3Ddb&labelSelector=a%3D1,b in (x,y)"
            ),
            Ok(200)
        );
    }

    #[test]
    fn a_condition_of_the_recording_makes_an_ignored_parameter_count() {
        let expired = Exchange::get("/s?watch=1&resourceVersion=5", Answer::new(410))
            .only_with("resourceVersion");
        let fine = Exchange::get("/s?watch=1&resourceVersion=9", Answer::new(200));
        let mut book = Book::new(vec![Recording::new().with(expired).with(fine)], false);
        assert_eq!(ask(&mut book, "/s?watch=1&resourceVersion=12"), Ok(200));
        assert_eq!(ask(&mut book, "/s?watch=1&resourceVersion=5"), Ok(410));
        assert!(book.unused().is_empty());
    }

    #[test]
    fn refusals_repeat_and_an_endless_recording_has_answers_behind_its_end() {
        let recording = Recording::new()
            .with(Exchange::get("/s", Answer::new(200)))
            .with(Exchange::get("/s?watch=1", Answer::new(200)))
            .with(Exchange::get("/forbidden", Answer::new(403)));
        for endless in [false, true] {
            let mut book = Book::new(vec![recording.clone()], endless);
            for target in ["/s", "/s?watch=1", "/forbidden"] {
                assert!(ask(&mut book, target).is_ok());
            }
            assert_eq!(ask(&mut book, "/forbidden"), Ok(403));
            assert_eq!(ask(&mut book, "/s").ok(), endless.then_some(200));
            assert_eq!(ask(&mut book, "/s?watch=1").ok(), endless.then_some(0));
            assert!(
                ask(&mut book, "/s?labelSelector=a").is_err(),
                "never asked while it was recorded"
            );
        }
    }
}
