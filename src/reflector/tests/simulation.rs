//! A seeded simulation on one thread: the real core and driver against a server with random faults,
//! which must heal and converge. Calls that would block advance the fake clock instead.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::time::Instant;

use super::*;
use crate::list_watch::{ObjectEvent, WatchEvent};
use crate::object::Object as _;
use crate::policy::Chance;
use crate::reflector::core::{Action, Input};
use crate::reflector::driver::ReflectorDriver;
use crate::reflector::guarded::Guarded;
use crate::reflector::{ReflectorStatus, Replacement, Sink, WaiterGuard};
use crate::store::StoreWriter;
use crate::sync::Mutex;
use crate::testing::{RequestKind, SourceFault};
use crate::tests::dice::seeds;
use crate::worker::StopSource;

/// Seeds tried in each run, or more if `KUBECACHE_SEEDS` says so; a failure names its seed.
const SEEDS: u64 = 50;
/// Steps before the server heals, and the most that healing may take.
const STEPS: usize = 600;
const HEALING_STEPS: usize = 2_000;
/// No request follows another sooner, unless data came between or an exemption holds (B9).
const DELAY_MIN: Duration = Duration::from_millis(50);

/// One request as the driver made it, and how it went.
struct Made {
    what: String,
    at: Instant,
    /// A list that succeeded: data came.
    data: bool,
}

struct Simulation {
    seed: u64,
    chance: Chance,
    stage: Stage,
    store: Store<ConfigMap>,
    driver: ReflectorDriver<ConfigMap, Watched>,
    stop: StopSource,
    made: Vec<Made>,
    /// Events since the last replacement, which a server may repeat.
    recent: Vec<Repeat>,
    commits: Arc<Mutex<usize>>,
    seen_commits: usize,
    /// A stream delivers its initial events: what would be repeated on it now would come after its
    /// end.
    collecting: bool,
    /// A caller waits for the first sync.
    waiting: Option<WaiterGuard>,
}

#[derive(Clone)]
enum Repeat {
    Changed(Arc<StoredObject<ConfigMap>>),
    Deleted(Arc<StoredObject<ConfigMap>>),
}

/// A store whose every change is checked: no object goes back to an older version.
struct Watched {
    writer: StoreWriter<ConfigMap>,
    store: Store<ConfigMap>,
    latest: BTreeMap<String, ResourceVersion>,
    commits: Arc<Mutex<usize>>,
    seed: u64,
}

impl Watched {
    fn check(&mut self) {
        for object in self.store.list() {
            let version = ResourceVersion::from(object.metadata.resource_version.clone().unwrap());
            let uid = object.metadata.uid.clone().unwrap();
            if let Some(before) = self.latest.get(&uid) {
                assert!(
                    !version.is_older_than(before),
                    "seed {}: {uid} went from {before} to {version}",
                    self.seed
                );
            }
            self.latest.insert(uid, version);
        }
    }
}

impl Sink<ConfigMap> for Watched {
    type Staging = <StoreWriter<ConfigMap> as Sink<ConfigMap>>::Staging;

    fn begin(&mut self) -> Self::Staging {
        self.writer.begin()
    }

    fn stage(&mut self, staging: &mut Self::Staging, item: ObjectEvent<ConfigMap>) {
        if let Some(object) = item.object.decoded() {
            assert!(object.metadata.uid.is_some());
        }
        self.writer.stage(staging, item);
    }

    fn commit(&mut self, staging: Self::Staging, of: &Replacement) -> Result<(), Error> {
        self.writer.commit(staging, of)?;
        *self.commits.lock() += 1;
        self.check();
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<ConfigMap>) -> Result<(), Error> {
        self.writer.apply(event)?;
        self.check();
        Ok(())
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.writer.bookmark(version);
    }

    fn report(&mut self, status: &ReflectorStatus) {
        self.writer.report(status);
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let mut stage = Stage::new();
        stage.options.backoff.jitter = 1.0;
        stage.options.seed = Some(seed);
        stage.options.page_size = (chance.below(3) == 0).then_some(3);
        stage.options.internal_error_retry = seconds(30 * chance.below(2));
        stage.source.stream_lists(chance.below(2) == 0);
        stage.source.page_at_zero(chance.below(4) == 0);
        let (store, writer) =
            Store::new(Indexers::new().by_namespace(), stage.options.clock.clone());
        let commits = Arc::new(Mutex::new(0));
        let sink = Watched {
            writer,
            store: store.clone(),
            latest: BTreeMap::new(),
            commits: Arc::clone(&commits),
            seed,
        };
        let options = ReflectorOptions {
            waiters: Some(store.waiters()),
            ..stage.options.clone()
        };
        let source = Arc::new(stage.source.clone());
        let source = Guarded::new("sim", source).unwrap();
        let source = Arc::new(source);
        let driver = ReflectorDriver::new("sim".to_owned(), source, sink, options, Arc::default());
        let driver = driver.unwrap();
        Self {
            seed,
            chance,
            stage,
            store,
            driver,
            stop: StopSource::new(),
            made: Vec::new(),
            recent: Vec::new(),
            commits,
            seen_commits: 0,
            collecting: false,
            waiting: None,
        }
    }

    fn now(&self) -> Instant {
        self.stage.fake.now()
    }

    /// Plans faults: the server fails some requests, in some of the ways servers do.
    fn break_server(&mut self) {
        let mut chance = Chance::new(self.seed.wrapping_mul(31));
        let (rate, mean) = (2 + chance.below(8), chance.below(2) == 0);
        self.stage.source.plan(move |request| {
            if chance.below(rate) != 0 && !(mean && chance.below(3) == 0) {
                return None;
            }
            let code =
                [401, 403, 410, 422, 429, 500, 503][usize::try_from(chance.below(7)).unwrap()];
            Some(match (request.kind, chance.below(4)) {
                (RequestKind::Watch, 0) if mean => SourceFault::Trickle,
                (RequestKind::Watch, 0) => SourceFault::Silent,
                (_, 1) => SourceFault::CutAfter(usize::try_from(chance.below(3)).unwrap()),
                _ => SourceFault::Fail(status(code)),
            })
        });
    }

    /// Something happens on the server, or on the way from it.
    fn happen(&mut self) {
        let name = format!("o{}", self.chance.below(6));
        match self.chance.below(23) {
            0..=5 => {
                self.stage.set(&name, "x");
                let changed = self.stage.source.objects();
                let changed = changed
                    .iter()
                    .max_by_key(|object| number(&object.resource_version()));
                self.recent.extend(changed.cloned().map(Repeat::Changed));
            }
            6..=8 => {
                let objects = self.stage.source.objects();
                let gone = objects
                    .iter()
                    .find(|o| o.metadata.name.as_deref() == Some(&name));
                if let (Some(gone), Some(version)) = (gone, self.stage.source.delete("shop", &name))
                {
                    let uid = gone.metadata.uid.clone().unwrap();
                    let last = held(&name, &uid, &version.to_string());
                    self.recent.push(Repeat::Deleted(last));
                }
            }
            9 => self.stage.source.bookmark(),
            10 => self.stage.source.end_watches(None),
            11 => self.stage.source.end_watches(Some(&status(500))),
            12 => self.stage.source.expire_watches(),
            13 => self.stage.source.compact(),
            14 => self.stage.source.skip_to(self.stage.source.version() + 3),
            15 => {
                let known = self.stage.source.version();
                let lag = self.chance.below(2) == 0;
                self.stage
                    .source
                    .lag(lag.then(|| known.saturating_sub(2).max(1)));
            }
            16 => self.stage.source.send(|| WatchEvent::Error(status(429))),
            17 => self.stage.source.send(|| WatchEvent::Skipped {
                reason: "foreign".to_owned(),
                resource_version: ResourceVersion::default(),
            }),
            18 => self.waiting = Some(self.store.waiters().wait()),
            19 => self.waiting = None,
            _ => self.repeat(),
        }
    }

    /// The server sends again what it has sent already.
    fn repeat(&mut self) {
        if self.collecting {
            return;
        }
        let position = number(&self.store.resource_version());
        let mut sent: Vec<_> = self.recent.clone();
        sent.retain(|repeat| {
            let (Repeat::Changed(object) | Repeat::Deleted(object)) = repeat;
            number(&object.resource_version()) <= position
        });
        let count = u64::try_from(sent.len()).unwrap().max(1);
        let at = usize::try_from(self.chance.below(count)).unwrap();
        let Some(repeat) = sent.get(at) else {
            return;
        };
        self.stage.source.send(|| match repeat.clone() {
            Repeat::Changed(object) => ObjectEvent::added(object).into(),
            Repeat::Deleted(object) => ObjectEvent::deleted(object).into(),
        });
    }

    /// Performs one action of the driver; a call that would block advances the clock.
    fn step(&mut self, input: Input, calm: bool) -> Input {
        let token = self.stop.token();
        let action = self.driver.decide(input, &token);
        if *self.commits.lock() != self.seen_commits {
            self.seen_commits = *self.commits.lock();
            self.recent.clear();
            self.collecting = false;
        }
        let what = match &action {
            Action::List { request, .. } | Action::Probe(request) => format!("{request:?}"),
            Action::Open(request) => {
                self.collecting = request.send_initial_events;
                format!(
                    "watch {} {}",
                    request.resource_version, request.send_initial_events
                )
            }
            Action::PauseInList { until } => {
                self.advance_to(*until);
                return Input::Paused;
            }
            Action::Pause { until, on_demand } => {
                if !calm {
                    self.happen();
                }
                if *on_demand && self.waiting.is_some() {
                    self.stage.fake.advance(millis(self.chance.below(100)));
                    return Input::Demanded;
                }
                self.advance_to(*until);
                return Input::Paused;
            }
            Action::Read { until } => return self.read(*until, calm),
            _ => {
                return self
                    .driver
                    .perform(action, &token)
                    .expect("nobody stops it");
            }
        };
        let at = self.now();
        let input = self
            .driver
            .perform(action, &token)
            .expect("nobody stops it");
        let data = matches!(
            &input,
            Input::Page { page: Ok(page), is_empty } if !is_empty || page.continue_token.is_none()
        );
        self.made.push(Made { what, at, data });
        input
    }

    fn advance_to(&self, until: Instant) {
        let wait = until.saturating_duration_since(self.now());
        assert!(
            wait <= seconds(300),
            "seed {}: a pause of {wait:?}",
            self.seed
        );
        self.stage.fake.advance(wait);
    }

    /// Reads without blocking, after some time and some events.
    fn read(&mut self, until: Instant, calm: bool) -> Input {
        let rest = until.saturating_duration_since(self.now());
        if calm {
            self.stage.fake.advance(rest.min(seconds(1)));
        } else {
            let wait = match self.chance.below(10) {
                0..=5 => millis(self.chance.below(50)),
                6..=8 => seconds(self.chance.below(20)),
                _ => rest,
            };
            self.stage.fake.advance(wait.min(rest));
            self.happen();
        }
        let token = self.stop.token();
        let now = self.now();
        self.driver
            .perform(Action::Read { until: now }, &token)
            .expect("nobody stops it")
    }

    /// Whether the store equals the server.
    fn has_converged(&self) -> bool {
        let identity = |object: &Arc<StoredObject<ConfigMap>>| {
            let metadata = &object.metadata;
            (
                metadata.name.clone(),
                metadata.uid.clone(),
                metadata.resource_version.clone(),
            )
        };
        let mut held: Vec<_> = self.store.list().iter().map(identity).collect();
        held.sort();
        let there: Vec<_> = self.stage.source.objects().iter().map(identity).collect();
        held == there
    }

    /// B9: in a run of requests without a delay each one after the first follows data, or is one of
    /// three exemptions, and none repeats another.
    fn check_delays(&self) {
        let mut run: Vec<&Made> = Vec::new();
        for made in &self.made {
            if run.last().is_none_or(|last| made.at - last.at >= DELAY_MIN) {
                run.clear();
            }
            let exempt = run
                .iter()
                .skip(1)
                .zip(&run)
                .filter(|(_, before)| !before.data)
                .count();
            let exempt = exempt + usize::from(run.last().is_some_and(|last| !last.data));
            let after_data = run.last().is_some_and(|last| last.data);
            let repeated = !after_data && run.iter().any(|before| before.what == made.what);
            assert!(
                exempt <= 3 && !repeated,
                "seed {}: {} follows {:?} without a delay",
                self.seed,
                made.what,
                run.iter().map(|made| &made.what).collect::<Vec<_>>()
            );
            run.push(made);
        }
    }
}

fn number(version: &ResourceVersion) -> u64 {
    version.as_str().parse().unwrap_or(0)
}

#[test]
fn whatever_the_server_does_the_store_converges() {
    for seed in 0..seeds(SEEDS) {
        let mut simulation = Simulation::new(seed);
        simulation.break_server();
        let mut input = Input::Start;
        for _ in 0..STEPS {
            input = simulation.step(input, false);
        }
        simulation.stage.source.heal();
        simulation.stage.source.lag(None);
        let mut steps = 0;
        let mut calm_since = 0;
        // The store may look right by chance in the middle of things: it has to stay so.
        while calm_since < 20 {
            input = simulation.step(input, true);
            steps += 1;
            calm_since = if simulation.has_converged() {
                calm_since + 1
            } else {
                0
            };
            assert!(steps < HEALING_STEPS, "seed {seed} does not converge");
        }
        simulation.check_delays();
        assert!(
            simulation.made.len() < STEPS,
            "seed {seed}: {} requests",
            simulation.made.len()
        );
    }
}
