//! The network between one cache and the server: it fails requests, cuts watches, and falls silent.

use std::collections::BTreeSet;
use std::io;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;

use super::weather::Weather;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{
    Api as _, Backlog, Getter, ListPage, ListRequest, Listed, ListerWatcher, Next, Selection,
    WatchEvent, WatchRequest, WatchStream,
};
use crate::object::{Object as _, ObjectKey, ResourceVersion, Scope, Status, StoredObject};
use crate::policy::Chance;
use crate::sync::{Arc, Mutex};
use crate::testing::{FakeSource, RequestKind, SourceFault};
use crate::worker::StopToken;

/// The shortest silence that means a dead watch, where bookmarks are known to come.
const IDLE_LIMIT: Duration = Duration::from_secs(130);

/// The state of one cache's network.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct State {
    chance: Chance,
    /// One request in so many fails; 0 for none.
    fault_rate: u64,
    codes: Vec<u16>,
    cuts: bool,
    silences: bool,
    bursts: bool,
    /// Until when nothing comes on open watches.
    silent_until: Option<Instant>,
    /// Until when nothing listens at the server's address.
    down_until: Option<Instant>,
    /// Watches of an earlier number are cut.
    cut: u64,
    /// The faults that requests met, for the story.
    met: Vec<&'static str>,
    open: usize,
    most_open: usize,
    /// Watches that were opened before a bookmark was known to come.
    unknowing: usize,
    /// Whether bookmarks were known to come when the last watch was opened.
    knows: bool,
    /// The events that say what the server had, each with the scope of its watch.
    read: Vec<(Scope, ReadEvent)>,
    /// Called by the next get, as by another thread.
    interrupt: Option<Meanwhile>,
    /// The versions whose events no watch brings.
    lost: BTreeSet<u64>,
    /// The version at which the server's cache stands still, for watches too.
    stuck_at: Option<u64>,
}

/// What another thread does while a call waits for the server.
pub(super) type Meanwhile = Box<dyn FnOnce() + Send>;

/// What an event says of the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Says {
    /// It is the change to this version; later ones may be on their way.
    Version(u64),
    /// Nothing else had changed until then.
    Until(Instant),
}

/// An event that a cache has read, which counts from then on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadEvent {
    pub(super) at: Instant,
    pub(super) says: Says,
}

/// One cache's way to the server. Cheap to clone; all clones are one network.
#[derive(Clone)]
pub(super) struct Link {
    server: FakeSource<ConfigMap>,
    scope: Scope,
    scoped: Arc<dyn ListerWatcher<ConfigMap>>,
    /// Selects the objects that come; `None` for all.
    selection: Option<Arc<dyn Selection>>,
    clock: Clock,
    state: Arc<Mutex<State>>,
    learned: Arc<Mutex<Learned>>,
}

/// What the client of one cache has learned of its server.
#[derive(Debug, Default)]
struct Learned {
    streams_failed: bool,
    bookmarks: Option<Duration>,
}

impl Link {
    pub(super) fn new(
        server: &FakeSource<ConfigMap>,
        scope: Scope,
        clock: Clock,
        weather: &Weather,
        chance: Chance,
    ) -> Self {
        let state = State {
            chance,
            fault_rate: weather.fault_rate,
            codes: weather.codes.clone(),
            cuts: weather.cuts,
            silences: weather.silences,
            bursts: weather.bursts,
            silent_until: None,
            down_until: None,
            cut: 0,
            met: Vec::new(),
            open: 0,
            most_open: 0,
            unknowing: 0,
            knows: false,
            read: Vec::new(),
            interrupt: None,
            lost: BTreeSet::new(),
            stuck_at: None,
        };
        Self {
            server: server.clone(),
            scoped: server.lister_watcher(scope.clone()),
            scope,
            selection: None,
            clock,
            state: Arc::new(Mutex::new(state)),
            learned: Arc::default(),
        }
    }

    /// The same network, for requests of another scope.
    pub(super) fn with_scope(&self, scope: Scope) -> Self {
        Self {
            scoped: self.server.lister_watcher(scope.clone()),
            scope,
            ..self.clone()
        }
    }

    /// The same network, for those objects of another scope that `selection` selects.
    pub(super) fn selecting(&self, scope: Scope, selection: Arc<dyn Selection>) -> Self {
        Self {
            selection: Some(selection),
            ..self.with_scope(scope)
        }
    }

    /// Draws the faults of the next requests from this number.
    pub(super) fn reseed(&self, chance: Chance) {
        self.state.lock().chance = chance;
    }

    pub(super) fn silence(&self, until: Instant) {
        self.state.lock().silent_until = Some(until);
    }

    pub(super) fn take_down(&self, until: Instant) {
        let mut state = self.state.lock();
        state.down_until = Some(until);
        state.cut = state.cut.wrapping_add(1);
    }

    /// No watch brings the events of these versions.
    pub(super) fn lose(&self, versions: RangeInclusive<u64>) {
        self.state.lock().lost.extend(versions);
    }

    /// Watches bring nothing that is newer than this version; `None`: they do.
    pub(super) fn stick(&self, version: Option<u64>) {
        self.state.lock().stuck_at = version;
    }

    /// The server goes back in its history, and cuts its connections.
    pub(super) fn restored(&self) {
        self.state.lock().lost.clear();
        self.cut();
    }

    pub(super) fn cut(&self) {
        let mut state = self.state.lock();
        state.cut = state.cut.wrapping_add(1);
    }

    /// Ends all faults; watches that were silent stay so, as on a path that died without a word.
    pub(super) fn heal(&self) {
        let mut state = self.state.lock();
        state.fault_rate = 0;
        state.cuts = false;
        state.silences = false;
        state.down_until = None;
    }

    /// What the last event said that a watch of the scope read at that instant.
    pub(super) fn read_at(&self, scope: &Scope, at: Instant) -> Option<Says> {
        let state = self.state.lock();
        let mut read = state.read.iter().rev();
        let (_, event) = read.find(|(own, event)| event.at == at && own == scope)?;
        Some(event.says)
    }

    /// Whether a watch has brought the change to this version.
    pub(super) fn has_read(&self, version: u64) -> bool {
        let state = self.state.lock();
        let mut read = state.read.iter();
        read.any(|(_, event)| matches!(event.says, Says::Version(own) if own == version))
    }

    /// For how long an open watch may be silent before it counts as dead, if it must count so at
    /// all: bookmarks were known to come when each was opened.
    pub(super) fn idle_limit(&self, longest: Duration) -> Option<Duration> {
        let state = self.state.lock();
        let knows = state.knows && state.unknowing == 0;
        drop(state);
        let interval = self.bookmark_interval().filter(|_| knows)?;
        Some(IDLE_LIMIT.max(interval.saturating_mul(3).min(longest)))
    }

    /// The next get calls this, and fails.
    pub(super) fn interrupt(&self, interrupt: Option<Meanwhile>) {
        let before = std::mem::replace(&mut self.state.lock().interrupt, interrupt);
        drop(before);
    }

    /// The faults since the last call.
    pub(super) fn take_met(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state.lock().met)
    }

    /// How many watches are open, and the most that ever were at a time.
    pub(super) fn watches(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.open, state.most_open)
    }

    /// Fails the request, or plans the fault that its answer meets.
    fn pass(&self, kind: RequestKind) -> Result<(), Error> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.down_until.is_some_and(|until| now < until) {
            state.met.push("refused");
            let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
            return Err(Error::new(ErrorKind::Unreachable, "dialing").with_source(refused));
        }
        let rate = state.fault_rate;
        if rate == 0 || state.chance.below(rate) != 0 {
            return Ok(());
        }
        let count = u64::try_from(state.codes.len()).unwrap_or_default();
        let at = usize::try_from(state.chance.below(count.max(1))).unwrap_or_default();
        let code = state.codes.get(at).copied().unwrap_or(500);
        let way = state.chance.below(6);
        let is_watch = kind == RequestKind::Watch;
        let cut_after = usize::try_from(state.chance.below(3)).unwrap_or_default();
        let fault = match way {
            0 if state.cuts && kind != RequestKind::Get => {
                state.met.push("cut-in-answer");
                Some(SourceFault::CutAfter(cut_after))
            }
            1 if state.silences && is_watch => {
                state.met.push("silent-watch");
                Some(SourceFault::Silent)
            }
            2 if state.silences && is_watch => {
                state.met.push("trickling-watch");
                Some(SourceFault::Trickle)
            }
            3 if state.cuts => {
                state.met.push("reset");
                let reset = io::Error::from(io::ErrorKind::ConnectionReset);
                let error = Error::new(ErrorKind::Unreachable, "reset").with_source(reset);
                return Err(error);
            }
            4 if state.silences => {
                state.met.push("timeout");
                return Err(Error::new(ErrorKind::Timeout, "no answer in time"));
            }
            _ => None,
        };
        let Some(fault) = fault else {
            // That would be an answer, and a wrong one.
            let is_lie = code == 404 && kind == RequestKind::Get;
            let code = if is_lie { 500 } else { code };
            state.met.push(code_name(code));
            let error = Error::from_status(Status::new(code, format!("made up {code}")));
            let names_wait = code == 429 || code == 503;
            let wait = Duration::from_secs(1 + state.chance.below(5));
            return Err(if names_wait && state.chance.below(2) == 0 {
                error.with_retry_after(wait)
            } else {
                error
            });
        };
        drop(state);
        self.server.fail_next(kind, fault);
        Ok(())
    }
}

fn code_name(code: u16) -> &'static str {
    match code {
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        410 => "410",
        422 => "422",
        429 => "429",
        500 => "500",
        503 => "503",
        _ => "another code",
    }
}

impl ListerWatcher<ConfigMap> for Link {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<ConfigMap>),
    ) -> Result<ListPage, Error> {
        self.pass(RequestKind::List)?;
        self.scoped.list(request, stop, &mut |object| {
            if is_selected(self.selection.as_deref(), &object) {
                each(object);
            }
        })
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<ConfigMap>>, Error> {
        self.pass(RequestKind::Watch)?;
        let inner = self.scoped.watch(request, stop)?;
        let knows = self.bookmark_interval().is_some();
        let mut state = self.state.lock();
        state.knows = knows;
        state.unknowing += usize::from(!knows);
        state.open = state.open.saturating_add(1);
        state.most_open = state.most_open.max(state.open);
        Ok(Box::new(LinkStream {
            inner,
            number: state.cut,
            scope: self.scope.clone(),
            selection: self.selection.clone(),
            opened_at: self.clock.now(),
            knows,
            held: None,
            clock: self.clock.clone(),
            state: Arc::clone(&self.state),
        }))
    }

    fn supports_watch_list(&self) -> bool {
        !self.learned.lock().streams_failed && self.scoped.supports_watch_list()
    }

    fn watch_list_failed(&self) {
        self.learned.lock().streams_failed = true;
    }

    fn bookmark_interval(&self) -> Option<Duration> {
        self.learned.lock().bookmarks
    }

    fn bookmark_came(&self, interval: Duration) {
        let mut learned = self.learned.lock();
        learned.bookmarks = learned.bookmarks.max(Some(interval));
    }

    fn lists_one_object(&self) -> bool {
        self.scoped.lists_one_object()
    }

    fn describe(&self) -> String {
        self.scoped.describe()
    }
}

impl Getter<ConfigMap> for Link {
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<ConfigMap>>, Error> {
        let interrupt = self.state.lock().interrupt.take();
        if let Some(interrupt) = interrupt {
            interrupt();
            return Err(Error::from_status(Status::new(503, "made up 503")));
        }
        self.pass(RequestKind::Get)?;
        self.server.get(key, version, deadline, stop)
    }
}

/// The version of an event that has one.
fn version_of(next: &Next<ConfigMap>) -> Option<u64> {
    let version = match next {
        Next::Event(WatchEvent::Object(event)) => match &event.object {
            Listed::Object(object) => object.resource_version(),
            Listed::Undecodable(why) => why.resource_version.clone(),
        },
        Next::Event(WatchEvent::Bookmark {
            resource_version, ..
        }) => resource_version.clone(),
        Next::Event(_) | Next::Ended(_) | Next::DeadlinePassed => return None,
    };
    version.as_str().parse().ok()
}

/// A watch as it comes over the network.
struct LinkStream {
    inner: Box<dyn WatchStream<ConfigMap>>,
    /// The cuts before it.
    number: u64,
    scope: Scope,
    selection: Option<Arc<dyn Selection>>,
    opened_at: Instant,
    /// Whether bookmarks were known to come.
    knows: bool,
    /// An event that a cache which stands still has not brought yet, and when it was made.
    held: Option<(Next<ConfigMap>, Instant)>,
    clock: Clock,
    state: Arc<Mutex<State>>,
}

impl WatchStream<ConfigMap> for LinkStream {
    fn next(&mut self, deadline: Deadline) -> Result<Next<ConfigMap>, Error> {
        let (cut, silent_until) = {
            let state = self.state.lock();
            (state.cut, state.silent_until)
        };
        if cut != self.number {
            let cut = io::Error::from(io::ErrorKind::ConnectionReset);
            let error = Error::new(ErrorKind::Unreachable, "a cut watch").with_source(cut);
            return Ok(Next::Ended(Some(error)));
        }
        if silent_until.is_some_and(|until| self.clock.now() < until) {
            return Ok(Next::DeadlinePassed);
        }
        let (next, made_at) = loop {
            let (next, made_at) = match self.held.take() {
                Some(held) => held,
                None => (self.inner.next(deadline)?, self.clock.now()),
            };
            let Some(version) = version_of(&next) else {
                break (next, made_at);
            };
            let state = self.state.lock();
            if state.stuck_at.is_some_and(|stuck| version > stuck) {
                drop(state);
                self.held = Some((next, made_at));
                return Ok(Next::DeadlinePassed);
            }
            if !state.lost.contains(&version) {
                break (next, made_at);
            }
        };
        if let Next::Event(event) = &next
            && let Some(says) = self.says(event, made_at)
        {
            let at = self.clock.now();
            let read = (self.scope.clone(), ReadEvent { at, says });
            self.state.lock().read.push(read);
        }
        Ok(self.select(next))
    }

    fn last_contact(&self) -> Instant {
        self.inner.last_contact()
    }

    fn backlog(&self) -> Backlog {
        let mut state = self.state.lock();
        if state.bursts && state.chance.below(2) == 0 {
            Backlog::Bytes
        } else {
            Backlog::Unknown
        }
    }
}

/// Whether the selection has the object. It asks at the moment when the object is decoded.
fn is_selected(selection: Option<&dyn Selection>, object: &Listed<ConfigMap>) -> bool {
    let key = object.key_ref();
    let (_, version) = object.identity();
    selection.is_none_or(|it| it.selects(key.namespace, key.name, version))
}

impl LinkStream {
    /// Passes over the event of an object that is not selected, as the client does.
    fn select(&self, next: Next<ConfigMap>) -> Next<ConfigMap> {
        if let Next::Event(WatchEvent::Object(event)) = &next
            && !is_selected(self.selection.as_deref(), &event.object)
        {
            return Next::Event(WatchEvent::Unselected {
                kind: event.kind,
                resource_version: event.object.resource_version(),
            });
        }
        next
    }

    fn says(&self, event: &WatchEvent<ConfigMap>, made_at: Instant) -> Option<Says> {
        match event {
            WatchEvent::Object(event) => {
                let version = event.object.resource_version();
                Some(Says::Version(version.as_str().parse().ok()?))
            }
            // The list is as old as the stream, and its end comes behind it.
            WatchEvent::Bookmark {
                initial_events_end: true,
                ..
            } => Some(Says::Until(self.opened_at)),
            WatchEvent::Bookmark { .. } => Some(Says::Until(made_at)),
            WatchEvent::Unselected { .. } | WatchEvent::Error(_) | WatchEvent::Skipped { .. } => {
                None
            }
        }
    }
}

impl Drop for LinkStream {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.open = state.open.saturating_sub(1);
        state.unknowing -= usize::from(!self.knows);
    }
}
