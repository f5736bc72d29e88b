//! The decision tables: each behaviour ID is a story of inputs and the actions they lead to.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    clippy::unchecked_time_subtraction,
    reason = "a test fails by panicking"
)]

mod bounds;
mod health;
mod lists;
mod policy;
mod readings;
mod refusals;
mod streams;
mod waits;
mod watches;

use std::io;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::*;
use crate::clock::Clock;
use crate::list_watch::{EventKind, ListPage, VersionMatch};
use crate::object::Status;

/// A row: the ID, the options it needs, and its story.
///
/// Each line of a story is `input -> action`. An input may begin with the time that passes before
/// it (`+5s`, `+50ms`); `paused` passes exactly the time of the pause. `soon` is a pause of less
/// than a second that no caller expedites.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) options: &'static str,
    pub(super) story: &'static str,
}

pub(super) const fn row(id: &'static str, options: &'static str, story: &'static str) -> Row {
    Row { id, options, story }
}

/// A core, and the world as its driver would see it.
pub(super) struct Stage {
    pub(super) core: Core,
    pub(super) now: Instant,
    pub(super) urgent: bool,
    streams: bool,
    bookmarks: Option<Duration>,
    pub(super) left_out: usize,
    pause_until: Option<Instant>,
    pub(super) effects: Vec<Effect>,
}

impl Stage {
    pub(super) fn new(options: &str) -> Self {
        let mut settings = ReflectorOptions::exact(Clock::system());
        let (mut urgent, mut streams, mut one_object) = (false, false, false);
        let mut bookmarks = None;
        for word in options.split_whitespace() {
            match word.split_once('=').unwrap_or((word, "")) {
                ("waited", _) => urgent = true,
                ("streams", _) => streams = true,
                ("bookmarks", "") => bookmarks = Some(Duration::ZERO),
                ("bookmarks", interval) => bookmarks = Some(duration(interval)),
                ("one-object", _) => one_object = true,
                ("page", size) => settings.page_size = Some(size.parse().unwrap()),
                ("resync", period) => settings.resync_period = Some(duration(period)),
                ("internal", window) => settings.internal_error_retry = duration(window),
                ("seed", seed) => settings.seed = Some(seed.parse().unwrap()),
                ("known", version) => settings.known_version = Some(version.into()),
                ("no-watch-list", _) => settings.watch_list = false,
                (other, _) => panic!("unknown option {other}"),
            }
        }
        let now = Clock::system().now();
        Self {
            core: Core::new(&settings, "things".to_owned(), one_object, now),
            now,
            urgent,
            streams,
            bookmarks,
            left_out: 0,
            pause_until: None,
            effects: Vec::new(),
        }
    }

    pub(super) fn step(&mut self, input: Input) -> Action {
        let facts = Facts {
            now: self.now,
            urgent: self.urgent,
            streams: self.streams,
            bookmarks: self.bookmarks,
            left_out: self.left_out,
        };
        let action = self.core.step(input, &facts);
        self.effects.extend(self.core.take_effects());
        self.pause_until = match &action {
            Action::Pause { until, .. } | Action::PauseInList { until } => Some(*until),
            _ => None,
        };
        action
    }

    /// Plays one line's input, and writes the action.
    pub(super) fn play(&mut self, input: &str) -> String {
        let input = match input.strip_prefix('+') {
            Some(rest) => {
                let (time, input) = rest.split_once(' ').unwrap();
                self.now += duration(time);
                input
            }
            None => input,
        };
        if input == "paused" {
            self.now = self.pause_until.unwrap_or(self.now);
        }
        let action = self.step(parse(input, self.now));
        self.write(&action)
    }

    /// Plays a story to its end, whatever the actions are.
    pub(super) fn tell(&mut self, story: &str) -> &mut Self {
        for line in lines(story) {
            let (input, expected) = line.split_once("->").unwrap_or((line, ""));
            let action = self.play(input.trim());
            let expected = expected.trim();
            if !expected.is_empty() {
                assert!(matches(&action, expected), "{line}: got {action}");
            }
        }
        self
    }

    fn write(&self, action: &Action) -> String {
        let ahead = |until: &Instant| format!("{:?}", until.saturating_duration_since(self.now));
        let version = |version: &ResourceVersion| match version.as_str() {
            "" => "most-recent".to_owned(),
            version => version.to_owned(),
        };
        match action {
            Action::List { request, fresh } => {
                let page = match (&request.continue_token, fresh) {
                    (Some(token), false) => format!(" continue={token}"),
                    (None, true) => String::new(),
                    (token, fresh) => panic!("{token:?} with fresh {fresh}"),
                };
                let asked = version(&request.resource_version);
                let at_least = match request.version_match {
                    None => "",
                    Some(VersionMatch::NotOlderThan) => "at-least ",
                    Some(VersionMatch::Exact) => panic!("an old list confirms nothing"),
                };
                format!("list {at_least}{asked} limit={}{page}", request.limit)
            }
            Action::Probe(request) => {
                assert_eq!((request.resource_version.as_str(), request.limit), ("", 1));
                "probe".to_owned()
            }
            Action::Commit(of) => {
                let consistent = if of.consistent { " consistent" } else { "" };
                let expired = if of.history_expired { " expired" } else { "" };
                format!(
                    "commit {}{consistent}{expired}",
                    version(&of.resource_version)
                )
            }
            Action::Open(request) => {
                assert!(request.bookmarks);
                let asked = version(&request.resource_version);
                if request.send_initial_events {
                    return format!("stream {asked}");
                }
                format!("watch {asked} head={:?}", request.head_timeout)
            }
            Action::Read { until } => format!("read {}", ahead(until)),
            Action::Apply => "apply".to_owned(),
            Action::Stage => "stage".to_owned(),
            Action::Bookmark(at) => format!("bookmark {}", version(at)),
            Action::Resync => "resync".to_owned(),
            Action::Pause { until, on_demand } => {
                let waiters = if *on_demand { " on-demand" } else { "" };
                format!("pause {}{waiters}", ahead(until))
            }
            Action::PauseInList { until } => format!("pause-in-list {}", ahead(until)),
            Action::End => "end".to_owned(),
        }
    }

    pub(super) fn logged(&self, level: log::Level) -> Vec<&str> {
        let texts = self.effects.iter().filter_map(|effect| match effect {
            Effect::Log(at, text) if *at == level => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// `read` and `pause` without a time stand for any; a pause is taken with or without demand, unless
/// it says `firm`.
pub(super) fn matches(action: &str, expected: &str) -> bool {
    if matches!(expected, "read" | "pause") {
        return action.split_whitespace().next() == Some(expected);
    }
    if expected == "soon" {
        let pause = action.strip_prefix("pause ").unwrap_or("never");
        return pause.ends_with("ms") || pause.ends_with("µs");
    }
    if expected.starts_with("watch ") && !expected.contains(" head=") {
        return action.split(" head=").next() == Some(expected);
    }
    match expected.strip_suffix(" firm") {
        Some(firm) => action == firm,
        None => action == expected || action.strip_suffix(" on-demand") == Some(expected),
    }
}

pub(super) fn check(rows: &[Row]) {
    for row in rows {
        let mut stage = Stage::new(row.options);
        for line in lines(row.story) {
            let (input, expected) = line
                .split_once("->")
                .unwrap_or_else(|| panic!("{}: no arrow in {line:?}", row.id));
            let action = stage.play(input.trim());
            let expected = expected.trim();
            assert!(
                matches(&action, expected),
                "{}: {input}-> {action}, expected {expected}\n{}",
                row.id,
                row.story
            );
        }
    }
}

fn lines(story: &str) -> impl Iterator<Item = &str> {
    story.lines().map(str::trim).filter(|line| !line.is_empty())
}

pub(super) fn duration(text: &str) -> Duration {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => match text.strip_suffix('m') {
            Some(number) => (number, 60_000),
            None => (text.strip_suffix('s').unwrap(), 1000),
        },
    };
    Duration::from_millis(number.parse::<u64>().unwrap() * unit)
}

fn parse(input: &str, now: Instant) -> Input {
    let (verb, rest) = input.split_once(' ').unwrap_or((input, ""));
    let version = || ResourceVersion::from(rest);
    match verb {
        "start" => Input::Start,
        "page" | "probed" => paged(Ok(page(rest)), false),
        "empty-page" => paged(Ok(page(rest)), true),
        "page-error" | "probe-error" => paged(Err(error(rest)), true),
        "committed" | "opened" => Input::Done(Ok(())),
        "commit-error" | "open-error" => Input::Done(Err(error(rest))),
        "applied" => Input::Applied(Ok(())),
        "apply-error" => Input::Applied(Err(error(rest))),
        "added" | "undecodable" => changed(EventKind::Added, version()),
        "modified" => changed(EventKind::Updated, version()),
        "deleted" => changed(EventKind::Deleted, version()),
        "skipped" => Input::Seen(Seen::Skipped {
            reason: "unexpected".to_owned(),
            version: version(),
        }),
        "bookmark" => Input::Seen(Seen::Bookmark {
            version: version(),
            ends_initial: false,
        }),
        "final-bookmark" => Input::Seen(Seen::Bookmark {
            version: version(),
            ends_initial: true,
        }),
        "error" => Input::Seen(Seen::Error(error(rest))),
        "ended" if rest.is_empty() => Input::Ended(None),
        "ended" => Input::Ended(Some(error(rest))),
        "quiet" => Input::Quiet {
            last_contact: now - duration(rest),
        },
        "resynced" => Input::Resynced(Ok(())),
        "resync-error" => Input::Resynced(Err(error(rest))),
        "paused" => Input::Paused,
        "demanded" => Input::Demanded,
        "stop" => Input::Stop,
        other => panic!("unknown input {other}"),
    }
}

fn page(text: &str) -> ListPage {
    let (version, token) = text.split_once(" more=").unwrap_or((text, ""));
    ListPage {
        resource_version: if version == "none" { "" } else { version }.into(),
        continue_token: (!token.is_empty()).then(|| token.to_owned()),
        ..ListPage::default()
    }
}

/// `410 Expired`, `504 too-large`, `429 retry-after=7`, `refused`, `eof`, `silence`, `sink`.
pub(super) fn error(text: &str) -> Error {
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    match text {
        "refused" => Error::new(ErrorKind::Unreachable, "could not connect").with_source(refused),
        "eof" => Error::new(ErrorKind::Unreachable, "unexpected EOF"),
        "silence" => Error::new(ErrorKind::Timeout, "no answer within 30 s"),
        "too-long" => Error::new(ErrorKind::TooLarge, "a line is longer than 16 MiB"),
        "stale" => Error::new(ErrorKind::Stale, "the sink knows better"),
        "sink" => Error::new(ErrorKind::Protocol, "the sink refuses"),
        answer => of_status(answer),
    }
}

fn of_status(text: &str) -> Error {
    let mut words = text.split_whitespace();
    let mut status = meta::Status {
        code: words.next().map(|code| code.parse().unwrap()),
        message: Some(text.to_owned()),
        ..meta::Status::default()
    };
    let mut details = meta::StatusDetails::default();
    for word in words {
        match word.split_once('=') {
            Some(("retry-after", seconds)) => {
                details.retry_after_seconds = Some(seconds.parse().unwrap());
            }
            None if word == "too-large" => {
                status.reason = Some("Timeout".to_owned());
                status.message =
                    Some("Timeout: Too large resource version: 9, current: 3".to_owned());
            }
            None | Some(_) => status.reason = Some(word.to_owned()),
        }
    }
    status.details = Some(details);
    Error::from_status(Status::from(status))
}

fn changed(kind: EventKind, version: ResourceVersion) -> Input {
    Input::Seen(Seen::Object { kind, version })
}

fn paged(page: Result<ListPage, Error>, is_empty: bool) -> Input {
    Input::Page { page, is_empty }
}
