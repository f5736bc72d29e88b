//! An informer of the world: the real one, with a stepped reflector and stepped handlers, and what
//! it must hold after each step.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;

use super::coverage::Counts;
use super::handler::SteppedHandler;
use super::link::Link;
use super::oracle::{BrokenPromise, Oracle};
use super::stepped::{Steppable as _, Stepped, SteppedReflector};
use super::truth::{Content, KEYS, Shown, Truth, UNDECODABLE, key_of, name};
use super::weather::Weather;
use crate::clock::Clock;
use crate::error::Error;
use crate::informer::shared::sink::InformerSink;
use crate::informer::{HandlerOptions, InformerOptions, SharedInformer};
use crate::list_watch::{ListerWatcher, StoredPosition};
use crate::object::ResourceVersion;
use crate::policy::Chance;
use crate::reflector::driver::ReflectorDriver;
use crate::reflector::guarded::Guarded;
use crate::reflector::{Phase, ReflectorOptions, WaiterGuard};
use crate::store::Indexers;
use crate::sync::Arc;

/// How long a call may wait for the first sync.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest time-out of a watch, and the wait for its end.
const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 60);
const TIMEOUT_SLACK: Duration = Duration::from_secs(30);
/// How long a request may hang.
const HANG: Duration = Duration::from_secs(30);

/// The number of an informer, its way to the server, and its namespace.
type InformerPlace = (usize, Link, Option<&'static str>);

/// One informer and its handlers.
pub(super) struct WorldInformer {
    pub(super) number: usize,
    /// When it began: in the time in which the machine was awake, and on the clock.
    began: (Duration, Instant),
    informer: SharedInformer<ConfigMap>,
    pub(super) reflector: SteppedReflector<InformerSink<ConfigMap>>,
    pub(super) link: Link,
    pub(super) handlers: Vec<SteppedHandler>,
    namespace: Option<&'static str>,
    /// The newest state of each object that was visible.
    latest: [Option<Shown>; KEYS.len()],
    /// The server was restored, and this cache may still be in its lost future.
    pub(super) is_lost: bool,
    has_restored: bool,
    /// It has restarted, after the last restore of the server, and has not listed yet.
    is_new: bool,
    position: ResourceVersion,
    pub(super) waits: Option<WaiterGuard>,
    resync: Duration,
    queue_max: Option<usize>,
}

impl WorldInformer {
    pub(super) fn new(
        (number, awake): (usize, Duration),
        link: Link,
        namespace: Option<&'static str>,
        (clock, weather): (&Clock, &Weather),
        chance: &mut Chance,
    ) -> Result<Self, Error> {
        let source = Arc::new(link.clone());
        let place = (number, link, namespace);
        Self::over(source, (place, awake), (clock, weather), chance)
    }

    /// The next run of the program, which begins with what this one stored.
    pub(super) fn next_run(
        &self,
        (position, awake): (Option<StoredPosition<ConfigMap>>, Duration),
        parts: (&Clock, &Weather),
        chance: &mut Chance,
    ) -> Result<Self, Error> {
        let link: Arc<dyn ListerWatcher<ConfigMap>> = Arc::new(self.link.clone());
        let source = match position {
            Some(position) => position.over(link),
            None => link,
        };
        let place = (self.number, self.link.clone(), self.namespace);
        let next = Self::over(source, (place, awake), parts, chance)?;
        let mut handlers = next.handlers;
        if self.has_restored {
            handlers.iter_mut().for_each(SteppedHandler::restored);
        }
        Ok(Self {
            handlers,
            is_lost: self.is_lost,
            has_restored: self.has_restored,
            is_new: true,
            ..next
        })
    }

    fn over(
        source: Arc<dyn ListerWatcher<ConfigMap>>,
        ((number, link, namespace), awake): (InformerPlace, Duration),
        (clock, weather): (&Clock, &Weather),
        chance: &mut Chance,
    ) -> Result<Self, Error> {
        let mut options = ReflectorOptions::default()
            .clock(clock.clone())
            .watch_list(true)
            .seed(chance.below(u64::MAX))
            .internal_error_retry(Duration::from_secs(30 * chance.below(2)));
        options.page_size = weather.page_size;
        let resync = weather.resync.unwrap_or_default();
        let informer_options = InformerOptions::default()
            .indexers(Indexers::new().by_namespace())
            .resync_period(resync)
            .reflector(options);
        let informer = SharedInformer::new(source, informer_options);
        let mut handlers = Vec::new();
        for _ in 0..=chance.below(2) {
            let options = HandlerOptions::default().queue_max(weather.queue_max);
            let handler = SteppedHandler::add(informer.processor(), options, resync)?;
            handlers.push(handler);
        }
        let mut driver = None;
        informer.start_with(|(source, sink, options)| {
            let source = Arc::new(Guarded::new("sim", source)?);
            let name = "sim".to_owned();
            driver = Some(ReflectorDriver::new(
                name,
                source,
                sink,
                options,
                Arc::default(),
            )?);
            Ok(())
        })?;
        let driver = driver.ok_or_else(|| Error::stopped("an informer that starts"))?;
        Ok(Self {
            number,
            began: (awake, clock.now()),
            informer,
            reflector: SteppedReflector::new(driver, weather.latency),
            link,
            handlers,
            namespace,
            latest: [None; KEYS.len()],
            is_lost: false,
            has_restored: false,
            is_new: false,
            position: ResourceVersion::default(),
            waits: None,
            resync,
            queue_max: weather.queue_max,
        })
    }

    /// Another one in its place, with the same client.
    pub(super) fn again(
        &self,
        awake: Duration,
        world: (&Clock, &Weather),
        chance: &mut Chance,
    ) -> Result<Self, Error> {
        Self::new(
            (self.number, awake),
            self.link.clone(),
            self.namespace,
            world,
            chance,
        )
    }

    /// One step of the reflector, and what must hold after it.
    pub(super) fn step(
        &mut self,
        now: Instant,
        chance: &mut Chance,
        truth: &Truth,
        counts: &mut Counts,
    ) -> Result<Stepped, BrokenPromise> {
        let stepped = self.reflector.step(now, chance, counts);
        if let Some(storm) = self.reflector.take_storm() {
            return Err(storm);
        }
        let (_, most) = self.link.watches();
        if most > 1 {
            let seen = format!("{most} watches of informer {} were open", self.number);
            let broken = Err(BrokenPromise::new(Oracle::Watches, seen));
            BrokenPromise::unless_off(broken, ())?;
        }
        if stepped == Stepped::Changed {
            self.check(truth, counts)?;
        }
        Ok(stepped)
    }

    /// The content of the store, by key.
    fn content(&mut self) -> Result<Content, BrokenPromise> {
        let mut content = Content::default();
        let mut broken = None;
        for object in self.informer.store().list() {
            let Some(shown) = Shown::of(&object) else {
                let seen = "a cache has an object that the server never had";
                return Err(BrokenPromise::new(Oracle::Position, seen));
            };
            if let Some(place) = content.get_mut(shown.key) {
                *place = Some((shown.uid, shown.serial));
            }
            let Some(latest) = self.latest.get_mut(shown.key) else {
                continue;
            };
            if let Some(before) = latest.filter(|_| !self.has_restored) {
                let is_older = shown.uid < before.uid
                    || shown.uid == before.uid && shown.version < before.version;
                if is_older {
                    let seen = format!("{}: {shown:?} after {before:?}", name(shown.key));
                    broken = Some(BrokenPromise::new(Oracle::Backwards, seen));
                }
            }
            *latest = Some(shown);
        }
        for object in self.informer.store().undecodable() {
            let uid = object
                .uid
                .strip_prefix("uid-")
                .and_then(|uid| uid.parse().ok());
            let place = key_of(&object.key).and_then(|key| content.get_mut(key));
            if let (Some(place), Some(uid)) = (place, uid) {
                *place = Some((uid, UNDECODABLE));
            }
        }
        let broken = broken.map_or(Ok(()), Err);
        BrokenPromise::unless_off(broken, ()).map(|()| content)
    }

    /// Holds the content against the server's state at the version that the store names.
    fn check(&mut self, truth: &Truth, counts: &mut Counts) -> Result<(), BrokenPromise> {
        let content = self.content()?;
        let position = self.informer.store().resource_version();
        let version = position.as_str().parse().unwrap_or_default();
        let expected = truth.at(version, self.namespace);
        self.position = position;
        self.is_lost &= !std::mem::take(&mut self.is_new);
        if content == expected {
            counts.met("oracle held", "position");
            self.is_lost &= version > truth.version();
            return Ok(());
        }
        if self.is_lost {
            counts.met("oracle held", "position, in a lost future");
            return Ok(());
        }
        let seen = format!(
            "informer {} is at {version} with {}, the server had {}",
            self.number,
            describe(&content),
            describe(&expected)
        );
        Err(BrokenPromise::new(Oracle::Position, seen))
    }

    /// Whether a cache that is behind says so in time.
    pub(super) fn check_health(
        &self,
        (awake, now): (Duration, Instant),
        truth: &Truth,
        counts: &mut Counts,
    ) -> Result<(), BrokenPromise> {
        if self.is_lost || self.informer.health().is_err() {
            counts.met("health", "failed");
            return Ok(());
        }
        counts.met("health", "well");
        let version = self.position.as_str().parse().unwrap_or_default();
        let Some(since) = truth.missed_since(version, self.namespace) else {
            return Ok(());
        };
        // One watch may be silent for that time, and so may the one after a probe. A third may
        // bring an old change first, or end in time without bookmarks, which is no sign of death.
        let behind = awake.saturating_sub(since.at.max(self.began.0));
        let limit = self.link.idle_limit(TIMEOUT_MAX);
        if behind > self.finds_dead_within() * 3 + HANG {
            let seen = format!(
                "informer {} is at {version} and has missed a change for {behind:?}, and is well",
                self.number
            );
            return Err(BrokenPromise::new(Oracle::Stale, seen));
        }
        // Where bookmarks come, each silence counts from the last event, bookmark or answer.
        let heard = self.reflector.heard().filter(|_| version > 0);
        let heard = heard.map(|at| at.max(since.instant).max(self.began.1));
        let silent = heard.map(|at| now.saturating_duration_since(at));
        if silent
            .zip(limit)
            .is_some_and(|(silent, limit)| silent > limit)
        {
            let seen = format!(
                "informer {} is at {version}, has heard nothing for {silent:?}, and is well",
                self.number
            );
            return Err(BrokenPromise::new(Oracle::Stale, seen));
        }
        Ok(())
    }

    /// How long it may take to find that an open watch is dead.
    pub(super) fn finds_dead_within(&self) -> Duration {
        let limit = self.link.idle_limit(TIMEOUT_MAX);
        limit.unwrap_or(TIMEOUT_MAX + TIMEOUT_SLACK)
    }

    pub(super) fn restored(&mut self) {
        self.is_lost = true;
        self.is_new = false;
        self.has_restored = true;
        for handler in &mut self.handlers {
            handler.restored();
        }
    }

    /// Whether the cache has left the lost future of a server that was restored.
    pub(super) fn is_found(&mut self, truth: &Truth) -> bool {
        let is_there = self.reflector.is_reading() && self.version() <= truth.version();
        let here = truth.at(self.version(), self.namespace);
        self.is_lost = !(is_there && self.content().is_ok_and(|content| content == here));
        !self.is_lost
    }

    /// What the program stores for its next run, in an order that depends on nothing else.
    pub(super) fn stored(&self) -> Option<StoredPosition<ConfigMap>> {
        let position = self.informer.store().position()?;
        let mut objects = position.objects().to_vec();
        objects.sort_by_key(|object| Shown::of(object).map(|shown| shown.key));
        let version = position.resource_version().clone();
        Some(StoredPosition::new(version, position.taken(), objects))
    }

    /// A handler joins while the informer runs.
    pub(super) fn add_handler(&mut self) -> Result<(), Error> {
        // Its initial list comes in no particular order, so that a bound would make the story
        // depend on more than the seed.
        let options = HandlerOptions::default();
        let mut handler = SteppedHandler::add(self.informer.processor(), options, self.resync)?;
        if self.has_restored {
            handler.restored();
        }
        self.handlers.push(handler);
        Ok(())
    }

    pub(super) fn remove_handler(&mut self, at: usize) {
        if let Some(handler) = self.handlers.get_mut(at) {
            handler.remove(self.informer.processor());
        }
    }

    pub(super) fn has_bound(&self) -> bool {
        self.queue_max.is_some()
    }

    pub(super) fn wait(&mut self) {
        self.waits = Some(self.informer.store().waiters().wait());
    }

    /// Whether the content equals the server's, and the cache says that it is well.
    pub(super) fn has_converged(&mut self, truth: &Truth) -> Result<bool, BrokenPromise> {
        let content = self.content()?;
        self.position = self.informer.store().resource_version();
        let is_there = self.version() <= truth.version();
        let is_equal = is_there && content == truth.at(u64::MAX, self.namespace);
        Ok(is_equal && self.informer.health().is_ok())
    }

    /// Holds each handler's view against the server's state.
    pub(super) fn check_views(&self, truth: &Truth) -> Result<(), BrokenPromise> {
        let content = truth.at(u64::MAX, self.namespace);
        for (number, handler) in self.handlers.iter().enumerate() {
            if !handler.is_removed() && !handler.sees(&content) {
                let seen = format!(
                    "handler {number} of informer {} knows {}, the server has {}",
                    self.number,
                    handler.view(),
                    describe(&content)
                );
                return Err(BrokenPromise::new(Oracle::Told, seen));
            }
        }
        Ok(())
    }

    /// Stops the informer: the reflector must end at its next step.
    pub(super) fn check_stop(
        &mut self,
        now: Instant,
        chance: &mut Chance,
        counts: &mut Counts,
    ) -> Result<(), BrokenPromise> {
        self.reflector.stop();
        let stepped = self.reflector.step(now, chance, counts);
        if stepped != Stepped::Ended || !self.reflector.is_over() {
            let seen = format!(
                "informer {} goes on after its stop: {stepped:?}",
                self.number
            );
            return Err(BrokenPromise::new(Oracle::Stops, seen));
        }
        let (open, _) = self.link.watches();
        if open > 0 {
            let seen = format!("informer {} left {open} watches open", self.number);
            return Err(BrokenPromise::new(Oracle::Watches, seen));
        }
        self.informer.stop();
        // A wait that does not end would move the clock, at which the caller looks.
        drop(self.informer.wait_until_synced(PATIENCE));
        for handler in self.handlers.iter().filter(|it| !it.is_removed()) {
            if handler.wakes_at().is_none() && !handler.is_idle() {
                let seen = format!("a handler of informer {} gets more calls", self.number);
                return Err(BrokenPromise::new(Oracle::Stops, seen));
            }
        }
        Ok(())
    }

    /// Whether its watch is open, or it is between two.
    pub(super) fn is_watching(&self) -> bool {
        self.informer.status().phase == Phase::Watching
    }

    /// The version of its content.
    pub(super) fn version(&self) -> u64 {
        self.position.as_str().parse().unwrap_or_default()
    }

    pub(super) fn describe_content(&mut self, truth: &Truth) -> Result<String, BrokenPromise> {
        let content = describe(&self.content()?);
        let there = describe(&truth.at(u64::MAX, self.namespace));
        Ok(format!("it has {content}, the server has {there}"))
    }

    pub(super) fn describe(&self) -> String {
        let status = self.informer.status();
        let health = self.informer.health();
        format!(
            "informer {}: {:?} at {}, {} lists, {} watches, health {:?}",
            self.number,
            status.phase,
            status.resource_version,
            status.lists,
            status.watches,
            health.map_err(|error| error.kind())
        )
    }
}

fn describe(content: &Content) -> String {
    let places = content.iter().enumerate();
    let known = places.filter_map(|(key, place)| {
        place.map(|(uid, serial)| {
            if serial == UNDECODABLE {
                format!("{} uid-{uid} that does not decode", name(key))
            } else {
                format!("{} uid-{uid} #{serial}", name(key))
            }
        })
    });
    let known: Vec<_> = known.collect();
    if known.is_empty() {
        "nothing".to_owned()
    } else {
        known.join(", ")
    }
}
