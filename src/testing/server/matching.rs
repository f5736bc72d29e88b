//! Which recorded answer a request gets: verb, path, selectors, and the how-manieth request of its kind it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::sync::Arc;
use crate::testing::recording::{Exchange, Recording, Target, is_true};

/// Parameters that say where a client stands, not what it asks for. A replay ignores them unless the recording says
/// otherwise.
const IGNORED: [&str; 7] = [
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "timeout",
    "limit",
    "allowWatchBookmarks",
    "pretty",
];

/// Parameters that are absent when they are false.
const FLAGS: [&str; 2] = ["watch", "sendInitialEvents"];

/// What makes two requests ask for the same, whatever the order of their parameters and selector terms.
#[derive(Debug, PartialEq, Eq)]
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
}

/// A selector's terms in order; commas inside of parentheses or behind a backslash separate none.
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

/// The recorded exchanges, each given out once.
#[derive(Debug)]
pub(super) struct Book {
    pages: Vec<Page>,
    /// Whether there are answers behind the end of the recording.
    endless: bool,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Taken {
    Recorded(Arc<Exchange>),
    /// A watch behind the end of an endless recording: it opens, and nothing happens any more.
    Silence,
}

#[derive(Debug)]
struct Page {
    exchange: Arc<Exchange>,
    question: Question,
    used: bool,
}

impl Book {
    pub(super) fn new(recordings: Vec<Recording>, endless: bool) -> Self {
        let exchanges = recordings
            .into_iter()
            .flat_map(|recording| recording.exchanges);
        let pages = exchanges.map(|exchange| Page {
            question: Question::of(&exchange.method, &exchange.target),
            exchange: Arc::new(exchange),
            used: false,
        });
        Self {
            pages: pages.collect(),
            endless,
        }
    }

    /// The first exchange of that kind which nobody had yet; `Err` says what was asked and what there would be.
    pub(super) fn take(&mut self, method: &str, target: &Target) -> Result<Taken, String> {
        let question = Question::of(method, target);
        let alike =
            |page: &&mut Page| page.question == question && conditions_hold(&page.exchange, target);
        let unused = self.pages.iter_mut().filter(|page| !page.used).find(alike);
        if let Some(page) = unused {
            page.used = true;
            return Ok(Taken::Recorded(Arc::clone(&page.exchange)));
        }
        let last = self.pages.iter_mut().rfind(alike);
        match last {
            // Who was refused and asks again is refused again, however often.
            Some(page) if page.exchange.answer.status >= 400 => {
                Ok(Taken::Recorded(Arc::clone(&page.exchange)))
            }
            Some(_) if self.endless && target.is_watch() => Ok(Taken::Silence),
            Some(page) if self.endless => Ok(Taken::Recorded(Arc::clone(&page.exchange))),
            _ => Err(self.missing(method, target, &question)),
        }
    }

    /// The exchanges nobody has had yet.
    pub(super) fn unused(&self) -> Vec<Arc<Exchange>> {
        let unused = self.pages.iter().filter(|page| !page.used);
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
                ": all {alike} recorded answers to this question are given out or have other conditions"
            ));
        }
        let mut there = BTreeMap::<_, (usize, usize)>::new();
        for page in self
            .pages
            .iter()
            .filter(|page| page.question.path == question.path)
        {
            let counts = there
                .entry(format!("{} {}", page.exchange.method, page.exchange.target))
                .or_default();
            counts.0 = counts.0.saturating_add(1);
            counts.1 = counts.1.saturating_add(usize::from(page.used));
        }
        if there.is_empty() {
            say(format_args!("; nothing is recorded for this path"));
        } else {
            say(format_args!("; recorded for this path:"));
            for (what, (count, used)) in there {
                say(format_args!(" {what} (x{count}, {used} given out)"));
            }
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
        match book.take("GET", &Target::parse(target))? {
            Taken::Recorded(exchange) => Ok(exchange.answer.status),
            Taken::Silence => Ok(0),
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
            "no recorded answer for GET /s: all 2 recorded answers to this question are given out or have other \
             conditions; recorded for this path: GET /s (x2, 2 given out) GET /s?watch=1 (x1, 1 given out)"
        );
        assert!(
            ask(&mut book, "/t")
                .unwrap_err()
                .ends_with("nothing is recorded for this path")
        );
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
