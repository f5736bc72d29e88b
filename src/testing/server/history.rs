//! A recording's knowledge of single objects: the facts in its lists and watches, and the state
//! that they add up to.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::object::ResourceVersion;
use crate::sync::Arc;
use crate::testing::recording::{Exchange, PathName, PathPlace, PathResource, PathScope, is_true};

/// The facts of some recordings, in the order of their times.
#[derive(Debug)]
pub(super) struct PlayedHistory(Vec<Fact>);

/// The position of a fact in the recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    /// Since the recording's start.
    pub(super) at: Duration,
    /// Which exchange.
    pub(super) page: usize,
    /// Which piece of its answer completes the fact.
    pub(super) piece: usize,
}

/// The state of an object.
#[derive(Debug)]
pub(super) enum State<'a> {
    There(&'a Value),
    Absent,
    /// The server refused the client, with this answer.
    Refused(&'a Arc<Exchange>),
}

#[derive(Debug)]
struct Fact {
    point: Point,
    /// The version up to which it holds; empty if it has none.
    version: ResourceVersion,
    /// Whether it comes from a get, which shows only its own moment.
    of_get: bool,
    tells: Tells,
}

#[derive(Debug)]
enum Tells {
    /// The object's state, and whether it appeared at that moment.
    There {
        place: PathPlace,
        object: Value,
        appeared: bool,
    },
    /// The object is gone; its last state.
    Gone {
        place: PathPlace,
        last: Option<Value>,
    },
    /// Exactly these objects exist.
    All {
        scope: PathScope,
        names: BTreeSet<PathName>,
    },
    /// A watch was open, which will report new objects.
    Watched(PathScope),
    Refused {
        about: About,
        answer: Arc<Exchange>,
    },
    /// The position of the server's history.
    Progress,
}

#[derive(Debug)]
enum About {
    PathScope(PathScope),
    Object(PathPlace),
}

impl PlayedHistory {
    /// Reads the facts of these exchanges; `page` numbers them.
    pub(super) fn of(exchanges: &mut dyn Iterator<Item = &Arc<Exchange>>) -> Self {
        let mut facts = Vec::new();
        for (page, exchange) in exchanges.enumerate() {
            HistoryReader {
                page,
                exchange,
                facts: &mut facts,
            }
            .read();
        }
        facts.sort_by_key(|fact| fact.point);
        Self(facts)
    }

    /// The object's state after all facts for which `past` is true; `None` when no list and no
    /// watch mentions it.
    ///
    /// The state before its first fact follows from that fact.
    pub(super) fn state(
        &self,
        place: &PathPlace,
        past: &dyn Fn(&Point) -> bool,
    ) -> Option<State<'_>> {
        if !self.0.iter().any(|fact| !fact.of_get && fact.covers(place)) {
            return None;
        }
        let mut latest: Option<(&Fact, State<'_>)> = None;
        for fact in self.0.iter().filter(|fact| past(&fact.point)) {
            let Some(state) = fact.state(place) else {
                continue;
            };
            // Lists and watches run side by side, so a later fact may have an earlier version.
            let is_older = |(known, _): &(&Fact, _)| fact.version.is_older_than(&known.version);
            if !latest.as_ref().is_some_and(is_older) {
                latest = Some((fact, state));
            }
        }
        let first = || {
            let mut facts = self.0.iter().filter(|fact| !fact.of_get);
            facts.find_map(|fact| fact.state_before(place))
        };
        let latest = latest.map(|(_, state)| state);
        latest.or_else(first).or(Some(State::Absent))
    }

    /// The latest version in the facts for which `past` is true.
    pub(super) fn version(&self, past: &dyn Fn(&Point) -> bool) -> ResourceVersion {
        let facts = self.0.iter().filter(|fact| past(&fact.point));
        let versions = facts.map(|fact| &fact.version);
        let latest = versions.fold(None, |latest: Option<&ResourceVersion>, version| {
            let is_later = latest.is_none_or(|latest| latest.is_older_than(version));
            if is_later && !version.is_empty() {
                Some(version)
            } else {
                latest
            }
        });
        latest.cloned().unwrap_or_default()
    }
}

impl Fact {
    fn covers(&self, place: &PathPlace) -> bool {
        match &self.tells {
            Tells::There { place: of, .. } | Tells::Gone { place: of, .. } => of == place,
            Tells::All { scope, .. } | Tells::Watched(scope) => scope.covers(place),
            Tells::Refused { about, .. } => about.covers(place),
            Tells::Progress => false,
        }
    }

    /// The object's state by this fact.
    fn state(&self, place: &PathPlace) -> Option<State<'_>> {
        if !self.covers(place) {
            return None;
        }
        match &self.tells {
            Tells::There { object, .. } => Some(State::There(object)),
            Tells::Gone { .. } => Some(State::Absent),
            Tells::All { names, .. } => (!names.contains(&place.object)).then_some(State::Absent),
            Tells::Refused { answer, .. } => Some(State::Refused(answer)),
            Tells::Watched(_) | Tells::Progress => None,
        }
    }

    /// The object's state before this fact.
    fn state_before(&self, place: &PathPlace) -> Option<State<'_>> {
        match &self.tells {
            Tells::There { appeared: true, .. } => self.covers(place).then_some(State::Absent),
            Tells::Gone {
                last: Some(last), ..
            } => self.covers(place).then_some(State::There(last)),
            Tells::There { .. }
            | Tells::Gone { .. }
            | Tells::All { .. }
            | Tells::Watched(_)
            | Tells::Refused { .. }
            | Tells::Progress => self.state(place),
        }
    }
}

impl About {
    fn covers(&self, place: &PathPlace) -> bool {
        match self {
            Self::PathScope(scope) => scope.covers(place),
            Self::Object(of) => of == place,
        }
    }
}

/// Reads the facts of one exchange.
struct HistoryReader<'a> {
    page: usize,
    exchange: &'a Arc<Exchange>,
    facts: &'a mut Vec<Fact>,
}

impl HistoryReader<'_> {
    fn read(mut self) {
        let (exchange, target) = (self.exchange, &self.exchange.target);
        if exchange.method != "GET" {
            return;
        }
        let place = PathPlace::of(target);
        let scope = PathScope::of(target);
        let about = match (&place, &scope) {
            (Some(place), _) => About::Object(place.clone()),
            (None, Some(scope)) => About::PathScope(scope.clone()),
            (None, None) => return,
        };
        match (exchange.answer.status, place, scope) {
            (401 | 403, ..) => {
                let answer = Arc::clone(exchange);
                self.tell_at_the_end("", Tells::Refused { about, answer });
            }
            (404, Some(place), _) => {
                self.tell_at_the_end("", Tells::Gone { place, last: None });
            }
            (200, Some(place), _) => self.object(place),
            (200, None, Some(scope)) if target.is_watch() => self.watch(&scope),
            (200, None, Some(scope)) => self.list(scope),
            _ => {}
        }
    }

    fn tell(&mut self, (piece, after): (usize, Duration), version: &str, tells: Tells) {
        let point = Point {
            at: self.exchange.at.saturating_add(after),
            page: self.page,
            piece,
        };
        self.facts.push(Fact {
            point,
            version: ResourceVersion::from(version),
            of_get: PathPlace::of(&self.exchange.target).is_some(),
            tells,
        });
    }

    fn tell_at_the_end(&mut self, version: &str, tells: Tells) {
        let pieces = &self.exchange.answer.chunks;
        let after = pieces.last().map_or(Duration::ZERO, |piece| piece.after);
        self.tell((pieces.len().saturating_sub(1), after), version, tells);
    }

    fn object(&mut self, place: PathPlace) {
        let Ok(object) = serde_json::from_str::<Value>(&self.exchange.answer.body()) else {
            return;
        };
        let version = version_of(&object);
        let tells = Tells::There {
            place,
            object,
            appeared: false,
        };
        self.tell_at_the_end(&version, tells);
    }

    fn list(&mut self, scope: PathScope) {
        let Ok(mut list) = serde_json::from_str::<Value>(&self.exchange.answer.body()) else {
            return;
        };
        let version = version_of(&list);
        let is_page = self.exchange.target.value("continue").is_some()
            || !text(&list, &["metadata", "continue"]).is_empty();
        let kind = text(&list, &["kind"]);
        let kind = kind.strip_suffix("List").unwrap_or_default().to_owned();
        let api_version = text(&list, &["apiVersion"]).to_owned();
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
            return;
        };
        let mut names = BTreeSet::new();
        for mut object in items {
            // Items of a list leave out fields that the list states for all.
            for (field, value) in [("kind", &kind), ("apiVersion", &api_version)] {
                if let Some(fields) = object.as_object_mut()
                    && !fields.contains_key(field)
                {
                    fields.insert(field.to_owned(), Value::from(value.as_str()));
                }
            }
            let name = name_of(&object);
            names.insert(name.clone());
            let tells = Tells::There {
                place: place(&scope.resource, name),
                object,
                appeared: false,
            };
            self.tell_at_the_end(&version, tells);
        }
        if !is_page {
            self.tell_at_the_end(&version, Tells::All { scope, names });
        }
    }

    fn watch(&mut self, scope: &PathScope) {
        let target = &self.exchange.target;
        self.tell((0, Duration::ZERO), "", Tells::Watched(scope.clone()));
        let streamed = target.value("sendInitialEvents").is_some_and(is_true);
        let from = ResourceVersion::from(target.value("resourceVersion").unwrap_or_default());
        // Without a version, a watch begins with the present objects.
        let mut initial = streamed || from.is_unset();
        let mut names = BTreeSet::new();
        let mut line = String::new();
        let exchange = Arc::clone(self.exchange);
        for (piece, chunk) in exchange.answer.chunks.iter().enumerate() {
            for part in chunk.text.split_inclusive('\n') {
                line.push_str(part);
                if !part.ends_with('\n') {
                    continue;
                }
                let event = serde_json::from_str::<Value>(&line).unwrap_or_default();
                line.clear();
                let place = (piece, chunk.after);
                if streamed && initial {
                    initial = !self.initial(place, &event, scope, &mut names);
                }
                self.event(place, event, scope, initial);
            }
        }
    }

    /// Counts an initial event. Returns whether it ends them.
    fn initial(
        &mut self,
        at: (usize, Duration),
        event: &Value,
        scope: &PathScope,
        names: &mut BTreeSet<PathName>,
    ) -> bool {
        let object = event.get("object").unwrap_or(&Value::Null);
        match text(event, &["type"]) {
            "ADDED" => {
                names.insert(name_of(object));
            }
            "BOOKMARK" if ends_initial_events(object) => {
                let (scope, names) = (scope.clone(), std::mem::take(names));
                self.tell(at, &version_of(object), Tells::All { scope, names });
                return true;
            }
            _ => {}
        }
        false
    }

    fn event(&mut self, at: (usize, Duration), mut event: Value, scope: &PathScope, initial: bool) {
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        let version = version_of(&object);
        let place = place(&scope.resource, name_of(&object));
        let kind = text(&event, &["type"]);
        let tells = match kind {
            "ADDED" | "MODIFIED" => Tells::There {
                place,
                appeared: kind == "ADDED" && !initial,
                object,
            },
            "DELETED" => Tells::Gone {
                place,
                last: Some(object),
            },
            "BOOKMARK" => Tells::Progress,
            _ => return,
        };
        self.tell(at, &version, tells);
    }
}

fn place(resource: &PathResource, object: PathName) -> PathPlace {
    PathPlace {
        resource: resource.clone(),
        object,
    }
}

/// Whether this bookmark is the end of a streamed list.
pub(super) fn ends_initial_events(bookmark: &Value) -> bool {
    let end = ["metadata", "annotations", "k8s.io/initial-events-end"];
    text(bookmark, &end) == "true"
}

pub(super) fn name_of(object: &Value) -> PathName {
    PathName {
        namespace: text(object, &["metadata", "namespace"]).to_owned(),
        name: text(object, &["metadata", "name"]).to_owned(),
    }
}

pub(super) fn version_of(object: &Value) -> String {
    text(object, &["metadata", "resourceVersion"]).to_owned()
}

pub(super) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    let found = path
        .iter()
        .try_fold(value, |value, field| value.get(*field));
    found.and_then(Value::as_str).unwrap_or_default()
}
