//! The TTL store against a naive model, from a seed: pods, reads of every kind, changes, faults and
//! time in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::fake::{pod, secret};
use super::stage::{FIRST_BACKOFF, MINUTE, failed, millis, refused, seconds};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::{Error, ErrorKind};
use crate::manager::node_ttl::NodeTtl;
use crate::manager::{Cached, ChangeDetection, ManagerOptions, SecretManager};
use crate::object::{ResourceVersion, Status};
use crate::testing::{FakeSource, RequestKind};
use crate::tests::dice::Dice;
use k8s_openapi::api::core::v1::Secret;

const STEPS: usize = 400;
const PAUSE: Duration = Duration::from_secs(2);

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Object {
        version: u64,
        stale: bool,
        failure: Option<ErrorKind>,
    },
    Failed(ErrorKind),
    Nothing,
}

impl Said {
    fn of(result: Result<Cached<Secret>, Error>) -> Self {
        match result {
            Ok(cached) => Self::Object {
                version: version(&cached),
                stale: cached.is_stale(),
                failure: cached.last_error().map(Error::kind),
            },
            Err(error) => Self::Failed(error.kind()),
        }
    }
}

fn version(secret: &Secret) -> u64 {
    let version = secret.metadata.resource_version.as_deref();
    version.unwrap().parse().unwrap()
}

fn later(instant: Instant, by: Duration) -> Instant {
    instant.checked_add(by).unwrap()
}

/// The fault of each request, for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Unavailable,
    Refused,
    /// The server asks for a pause.
    Busy,
}

impl Fault {
    fn error(self) -> Error {
        match self {
            Self::Unavailable => failed(409, "the object has a conflict"),
            Self::Refused => refused(),
            Self::Busy => {
                let status = Status::new(429, "too many requests");
                Error::from_status(status).with_retry_after(PAUSE)
            }
        }
    }

    fn kind(self) -> ErrorKind {
        match self {
            Self::Unavailable => ErrorKind::Api,
            Self::Refused => ErrorKind::Forbidden,
            Self::Busy => ErrorKind::TooManyRequests,
        }
    }
}

/// One state of one object: which one it is, and its version. A server that was put back gives its
/// versions again, so that the version at which an object was made is no name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerState {
    made: u64,
    version: u64,
}

/// The model's state of one object, in the words of the rows.
#[derive(Clone, Debug, Default)]
struct ModelEntry {
    object: Option<ServerState>,
    absent: bool,
    updated: Option<Instant>,
    known: u64,
    gone: Option<u64>,
    /// The object that was dropped last, until another comes.
    dropped: Option<u64>,
    past_cache: bool,
    failure: Option<ErrorKind>,
    backoff: Option<Duration>,
    retry_at: Option<Instant>,
}

impl ModelEntry {
    fn said(&self, stale: bool) -> Option<Said> {
        let object = self.object?;
        Some(Said::Object {
            version: object.version,
            stale,
            failure: self.failure,
        })
    }

    fn is_fresh(&self, now: Instant, ttl: Duration) -> bool {
        let updated = self.updated.filter(|_| self.object.is_some());
        updated.is_some_and(|updated| now < later(updated, ttl))
    }

    fn answered(&mut self, now: Instant) {
        self.updated = Some(now);
        self.past_cache = false;
        self.reset_failures();
    }

    fn reset_failures(&mut self) {
        self.failure = None;
        self.backoff = None;
        self.retry_at = None;
    }

    fn hold(&mut self, found: Option<ServerState>) {
        self.object = found;
        self.dropped.take_if(|_| found.is_some());
    }

    /// A read past every cache is always believed; `at_least` is what it was asked for.
    fn take(&mut self, found: Option<ServerState>, at_least: u64, now: Instant) {
        self.answered(now);
        self.absent = found.is_none();
        if let Some(found) = found {
            let put_back = match self.object.filter(|held| held.made == found.made) {
                Some(held) => found.version < held.version,
                None => found.version < self.known,
            };
            if put_back {
                self.known = found.version;
            }
            self.gone = None;
            self.known = self.known.max(found.version);
        } else {
            let held = self.object.map(|held| held.made);
            self.gone = held.or(self.dropped).or(self.gone);
        }
        self.known = self.known.max(at_least);
        self.hold(found);
    }

    /// OS-10, OS-15 and B18: whether an answer of the server's cache goes behind nothing that is
    /// known.
    fn admits(&self, found: ServerState) -> bool {
        if self.gone == Some(found.made) {
            return false;
        }
        match self.object.filter(|held| held.made == found.made) {
            Some(held) => found.version >= held.version,
            None => found.version >= self.known,
        }
    }

    fn fail(&mut self, fault: Fault, shared: bool, now: Instant, ttl: Duration) {
        self.failure = Some(fault.kind());
        let until = if fault == Fault::Busy {
            Some(later(now, PAUSE))
        } else if shared {
            let pause = self
                .backoff
                .map_or(FIRST_BACKOFF, |last| last.saturating_mul(2));
            let pause = pause.min(ttl.max(FIRST_BACKOFF));
            self.backoff = Some(pause);
            Some(later(now, pause))
        } else {
            None
        };
        self.retry_at = self.retry_at.max(until);
    }

    /// OS-12..OS-14.
    fn after_failure(&self, kind: ErrorKind) -> Said {
        match self.said(true) {
            Some(said) => said,
            None if self.absent => Said::Failed(ErrorKind::NotFound),
            None => Said::Failed(kind),
        }
    }
}

/// The server and the manager, as simply as they can be told.
#[derive(Debug)]
struct Naive {
    version: u64,
    /// Objects that were ever made.
    made: u64,
    /// Every change: the version, the name, and the object, unless it was deleted.
    history: Vec<(u64, String, Option<ServerState>)>,
    lag: Option<u64>,
    fault: Option<Fault>,
    ttl: Duration,
    invalidates: bool,
    pods: BTreeMap<String, BTreeSet<String>>,
    entries: BTreeMap<String, ModelEntry>,
    requests: Vec<String>,
}

impl Naive {
    fn at(&self, name: &str, version: u64) -> Option<ServerState> {
        let changes = self.history.iter().rev();
        let mut known = changes.filter(|(at, of, _)| *at <= version && of == name);
        known.next().and_then(|(_, _, state)| *state)
    }

    fn cached(&self) -> u64 {
        self.lag.unwrap_or(self.version).min(self.version)
    }

    fn register(&mut self, pod: &str, names: &BTreeSet<String>) {
        let before = self.pods.insert(pod.to_owned(), names.clone());
        let held = before.unwrap_or_default();
        for name in names {
            // OS-2: an added reference drops what is cached.
            if self.invalidates || !held.contains(name) {
                let entry = self.entries.entry(name.clone()).or_default();
                let held = entry.object.map(|held| held.made);
                *entry = ModelEntry {
                    known: entry.known,
                    gone: entry.gone,
                    dropped: held.or(entry.dropped),
                    ..ModelEntry::default()
                };
            }
        }
        self.sweep();
    }

    fn sweep(&mut self) {
        let named: BTreeSet<&String> = self.pods.values().flatten().collect();
        self.entries.retain(|name, _| named.contains(name));
    }

    fn get(&mut self, name: &str, now: Instant) -> Said {
        let ttl = self.ttl;
        let Some(mut entry) = self.entries.get(name).cloned() else {
            return Said::Failed(ErrorKind::NotRegistered);
        };
        if entry.is_fresh(now, ttl) {
            return entry.said(false).unwrap();
        }
        if let (Some(kind), Some(at)) = (entry.failure, entry.retry_at)
            && now < at
        {
            return entry.after_failure(kind);
        }
        let said = self.fetch(&mut entry, name, now);
        self.entries.insert(name.to_owned(), entry);
        said
    }

    fn fetch(&mut self, entry: &mut ModelEntry, name: &str, now: Instant) -> Said {
        let cached = entry.object.is_some() && !entry.past_cache;
        self.requests.push(if cached { "0" } else { "" }.to_owned());
        if let Some(fault) = self.fault {
            entry.fail(fault, true, now, self.ttl);
            return entry.after_failure(fault.kind());
        }
        let mut found = self.at(name, if cached { self.cached() } else { self.version });
        let mut consistent = !cached;
        if cached && found.is_none() {
            self.requests.push(String::new());
            found = self.at(name, self.version);
            consistent = true;
        }
        match found {
            Some(found) if !consistent && !entry.admits(found) => {
                entry.past_cache = true;
                entry.reset_failures();
                return entry.said(true).unwrap();
            }
            Some(found) if !consistent => {
                entry.answered(now);
                entry.hold(Some(found));
                entry.known = entry.known.max(found.version);
            }
            found => entry.take(found, 0, now),
        }
        entry
            .said(false)
            .unwrap_or(Said::Failed(ErrorKind::NotFound))
    }

    fn get_past(&mut self, name: &str, wanted: Option<u64>, now: Instant) -> Said {
        let Some(mut entry) = self.entries.get(name).cloned() else {
            return Said::Failed(ErrorKind::NotRegistered);
        };
        let at_least = wanted.map_or(0, |wanted| wanted.max(entry.known));
        if wanted.is_some_and(|wanted| entry.is_fresh(now, self.ttl) && entry.known >= wanted) {
            return entry.said(false).unwrap();
        }
        self.requests
            .push(wanted.map(|_| at_least.to_string()).unwrap_or_default());
        let said = if let Some(fault) = self.fault {
            entry.fail(fault, false, now, self.ttl);
            Said::Failed(fault.kind())
        } else {
            let at = wanted.map_or(self.version, |_| at_least.max(self.cached()));
            let found = self.at(name, at);
            // An object that is known to be gone comes back by a read of the most recent state
            // only.
            let gone = found.is_some_and(|found| entry.gone == Some(found.made));
            if !gone || wanted.is_none() {
                entry.take(found, at_least, now);
            }
            entry
                .said(false)
                .unwrap_or(Said::Failed(ErrorKind::NotFound))
        };
        self.entries.insert(name.to_owned(), entry);
        said
    }

    fn get_cached(&self, name: &str, now: Instant) -> Said {
        match self.entries.get(name) {
            None => Said::Failed(ErrorKind::NotRegistered),
            Some(entry) => {
                let stale = !entry.is_fresh(now, self.ttl);
                entry.said(stale).unwrap_or(Said::Nothing)
            }
        }
    }
}

/// The real store over the fake server, beside the model.
struct TtlModel {
    dice: Dice,
    clock: FakeClock,
    source: FakeSource<Secret>,
    node_ttl: NodeTtl,
    manager: SecretManager,
    naive: Naive,
}

impl TtlModel {
    fn new(invalidates: bool, dice: Dice) -> Self {
        let clock = FakeClock::new();
        let source = FakeSource::with_clock(Clock::from(clock.clone()));
        let node_ttl = NodeTtl::new();
        let options = ManagerOptions::default()
            .clock(Clock::from(clock.clone()))
            .change_detection(ChangeDetection::Cache)
            .node_ttl(node_ttl.clone())
            .invalidate_on_update(invalidates);
        let naive = Naive {
            version: source.version(),
            made: 0,
            history: Vec::new(),
            lag: None,
            fault: None,
            ttl: MINUTE,
            invalidates,
            pods: BTreeMap::new(),
            entries: BTreeMap::new(),
            requests: Vec::new(),
        };
        Self {
            dice,
            manager: SecretManager::new(source.clone(), options).unwrap(),
            clock,
            source,
            node_ttl,
            naive,
        }
    }

    fn name(&mut self) -> String {
        format!("s{}", self.dice.roll(5))
    }

    /// One thing that happens; a read gives what was said and what the model says.
    fn step(&mut self) -> Option<(Said, Said)> {
        match self.dice.roll(32) {
            0..3 => self.register(),
            3 => self.unregister(),
            4..8 => self.set(),
            8 => self.delete(),
            9 => self.lag(),
            10 => self.restore(),
            11..13 => self.fault(),
            13 => self.change_ttl(),
            14..20 => self.pass_time(),
            20 => return Some(self.read_from_server(false)),
            21..23 => return self.reachable().then(|| self.read_from_server(true)),
            23 => return Some(self.read_cached()),
            _ => return Some(self.read()),
        }
        None
    }

    fn register(&mut self) {
        let pod_name = format!("p{}", self.dice.roll(3));
        let names: BTreeSet<String> = (0..self.dice.roll(4)).map(|_| self.name()).collect();
        let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
        self.manager.register_pod(&pod(&pod_name, &borrowed));
        self.naive.register(&pod_name, &names);
    }

    fn unregister(&mut self) {
        let name = format!("p{}", self.dice.roll(3));
        self.manager.unregister_pod(&pod(&name, &[]));
        self.naive.pods.remove(&name);
        self.naive.sweep();
    }

    fn set(&mut self) {
        let name = self.name();
        let version = self.source.set(secret(&name, ""));
        let before = self.naive.at(&name, self.naive.version);
        let made = before.map_or(self.naive.made.saturating_add(1), |state| state.made);
        self.naive.made = self.naive.made.max(made);
        self.naive.version = version;
        let state = ServerState { made, version };
        self.naive.history.push((version, name, Some(state)));
    }

    fn delete(&mut self) {
        let name = self.name();
        if let Some(version) = self.source.delete("ns", &name) {
            self.naive.version = version;
            self.naive.history.push((version, name, None));
        }
    }

    fn lag(&mut self) {
        let behind = self.dice.roll(20);
        let lag = (behind > 0).then(|| self.naive.version.saturating_sub(behind).max(1));
        self.source.lag(lag);
        self.naive.lag = lag;
    }

    /// Seldom, because what comes after it is another server.
    fn restore(&mut self) {
        if self.dice.roll(4) > 0 {
            return;
        }
        let back = self.naive.version.saturating_sub(self.dice.roll(6)).max(1);
        self.source.restore(back);
        self.naive.version = back;
        self.naive
            .history
            .retain(|(version, _, _)| *version <= back);
    }

    fn fault(&mut self) {
        let faults = [Fault::Unavailable, Fault::Refused, Fault::Busy];
        let which = usize::try_from(self.dice.roll(6)).unwrap();
        self.naive.fault = faults.get(which).copied();
        self.source.heal();
        if let Some(fault) = self.naive.fault {
            self.source.fail_all(RequestKind::Get, fault.error());
        }
    }

    fn change_ttl(&mut self) {
        let ttl = [None, Some(Duration::ZERO), Some(seconds(15))];
        let which = usize::try_from(self.dice.roll(3)).unwrap();
        self.node_ttl.set(ttl[which]);
        self.naive.ttl = ttl[which].unwrap_or(MINUTE);
    }

    fn pass_time(&mut self) {
        let steps = [
            millis(1),
            millis(49),
            millis(50),
            millis(500),
            seconds(1),
            seconds(15),
            seconds(59),
            MINUTE,
        ];
        let which = usize::try_from(self.dice.roll(8)).unwrap();
        self.clock.advance(steps[which]);
    }

    fn read(&mut self) -> (Said, Said) {
        let (name, now) = (self.name(), self.clock.now());
        // No read has the time for the server's pause.
        let real = self
            .manager
            .get_by("ns", &name, Deadline::at(later(now, PAUSE)));
        (Said::of(real), self.naive.get(&name, now))
    }

    fn read_cached(&mut self) -> (Said, Said) {
        let (name, now) = (self.name(), self.clock.now());
        let real = match self.manager.get_cached("ns", &name) {
            Ok(None) => Said::Nothing,
            Ok(Some(cached)) => Said::of(Ok(cached)),
            Err(error) => Said::of(Err(error)),
        };
        (real, self.naive.get_cached(&name, now))
    }

    /// Whether no known version is ahead of a server that was put back: readers would wait for it.
    fn reachable(&self) -> bool {
        let mut entries = self.naive.entries.values();
        entries.all(|entry| entry.known <= self.naive.version)
    }

    fn read_from_server(&mut self, at_least: bool) -> (Said, Said) {
        let (name, now) = (self.name(), self.clock.now());
        let deadline = Deadline::at(later(now, PAUSE));
        if at_least {
            let wanted = self.dice.roll(self.naive.version).max(1);
            let text = ResourceVersion::from(wanted.to_string());
            let real = self.manager.get_at_least("ns", &name, &text, deadline);
            return (
                Said::of(real),
                self.naive.get_past(&name, Some(wanted), now),
            );
        }
        let real = self.manager.get_fresh("ns", &name, deadline);
        (Said::of(real), self.naive.get_past(&name, None, now))
    }
}

fn run(invalidates: bool) {
    for (dice, seed) in Dice::histories(10) {
        play(TtlModel::new(invalidates, dice), seed);
    }
}

fn play(mut model: TtlModel, seed: u64) {
    for step in 0..STEPS {
        if let Some((real, expected)) = model.step() {
            assert_eq!(real, expected, "step {step} of seed {seed}");
        }
        let requests = model.source.requests();
        let asked: Vec<String> = requests
            .get(model.naive.requests.len().saturating_sub(3)..)
            .unwrap_or_default()
            .iter()
            .map(|seen| seen.resource_version.to_string())
            .collect();
        let from = model.naive.requests.len().saturating_sub(3);
        assert_eq!(
            asked,
            model.naive.requests[from..],
            "step {step} of seed {seed}"
        );
    }
}

/// OS-1..OS-17, B17, B18, R11, CM-2: each answer and each request is the model's.
#[test]
fn os_1_to_os_17_anything_in_any_order_is_as_the_model_says() {
    run(false);
}

/// The same with the rule of kubelets before 1.29, by which each update drops what is cached (CM-2,
/// OLD).
#[test]
fn cm_2_anything_in_any_order_with_the_older_rule_of_updates() {
    run(true);
}
