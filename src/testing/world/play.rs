//! One run: steps that a seed draws, then a healing, and the oracles all along.

use std::time::{Duration, Instant};

use super::coverage::Counts;
use super::handler::SteppedHandler;
use super::informer::WorldInformer;
use super::link::Link;
use super::manager::WorldManager;
use super::oracle::{BrokenPromise, Oracle};
use super::pods::WorldPods;
use super::sent::Sent;
use super::stepped::{SETTLE_STEPS, Steppable as _, Stepped};
use super::truth::Truth;
use super::weather::Weather;
use crate::clock::{Clock, FakeClock};
use crate::error::Error;
use crate::guard;
use crate::object::Scope;
use crate::policy::Chance;
use crate::testing::FakeSource;

use k8s_openapi::api::core::v1::ConfigMap;

/// The longest time that passes while all parts wait.
const STRIDE: Duration = Duration::from_secs(30);
/// How often a server sends bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// Longer waits come only once all parts have gone as far as they can.
pub(super) const MOMENT: Duration = Duration::from_millis(20);
/// In a weather of stops, one step of so many stops a part.
const STOPS_RATE: u64 = 64;

/// The world of one run.
pub(super) struct Play {
    pub(super) seed: u64,
    pub(super) weather: Weather,
    pub(super) clock: FakeClock,
    pub(super) began: Instant,
    pub(super) server: FakeSource<ConfigMap>,
    pub(super) truth: Truth,
    /// Whether the state that is being written is immutable.
    pub(super) is_immutable: bool,
    pub(super) informers: Vec<WorldInformer>,
    pub(super) manager: Option<WorldManager>,
    pub(super) pods: Option<WorldPods>,
    pub(super) counts: Counts,
    pub(super) story: Vec<String>,
    pub(super) traces: bool,
    /// The last state of each informer in the story.
    pub(super) told: Vec<String>,
    pub(super) next_bookmark: Instant,
    /// The time in which the machine was not suspended.
    pub(super) awake: Duration,
    pub(super) sent: Vec<Sent>,
    pub(super) steps: u64,
    pub(super) faults: u64,
}

impl Play {
    pub(super) fn new(seed: u64, traces: bool) -> Result<Self, Error> {
        let mut chance = Chance::new(seed);
        let weather = Weather::draw(&mut chance);
        let fake = FakeClock::new();
        fake.move_itself();
        let clock = Clock::from(fake.clone());
        let server = FakeSource::with_clock(clock.clone());
        server.stream_lists(weather.streams);
        server.page_at_zero(weather.pages_at_zero);
        server.silent_futures(weather.silent_futures);
        let mut informers = Vec::new();
        for number in 0..weather.caches {
            let namespace = (chance.below(3) == 0).then_some("a");
            let scope = namespace.map_or_else(Scope::all, Scope::namespace);
            let own = Chance::new(chance.below(u64::MAX));
            let link = Link::new(&server, scope, clock.clone(), &weather, own);
            let number = usize::try_from(number).unwrap_or_default();
            let informer = WorldInformer::new(
                (number, Duration::ZERO),
                link,
                namespace,
                (&clock, &weather),
                &mut chance,
            )?;
            informers.push(informer);
        }
        let mut manager = None;
        if weather.manager {
            let own = Chance::new(chance.below(u64::MAX));
            let link = Link::new(&server, Scope::all(), clock.clone(), &weather, own);
            manager = Some(WorldManager::new(link, &clock, &weather, &mut chance)?);
        }
        let pods = weather
            .pods
            .then(|| WorldPods::new(&fake, &weather, &mut chance));
        let began = fake.now();
        let mut play = Self {
            seed,
            clock: fake,
            began,
            server,
            truth: Truth::default(),
            is_immutable: false,
            informers,
            manager,
            pods,
            counts: Counts::default(),
            story: Vec::new(),
            traces,
            told: Vec::new(),
            next_bookmark: began + BOOKMARKS,
            awake: Duration::ZERO,
            sent: Vec::new(),
            steps: 0,
            faults: 0,
            weather,
        };
        let weather = format!("{:?}", play.weather);
        play.note(|| weather);
        for _ in 0..play.weather.objects {
            play.write(&mut chance);
        }
        Ok(play)
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.traces {
            let at = self.now().saturating_duration_since(self.began);
            let line = format!("{:>10.3}s  {}", at.as_secs_f64(), text());
            self.story.push(line);
        }
    }

    /// Runs the steps but those that `skips` names, then heals the world and stops it.
    pub(super) fn run(
        &mut self,
        steps: u64,
        skips: &dyn Fn(u64) -> bool,
    ) -> Result<(), BrokenPromise> {
        for step in 0..steps {
            if skips(step) {
                continue;
            }
            let mixed = self
                .seed
                .wrapping_mul(0xd134_2543_de82_ef95)
                .wrapping_add(step);
            let mut chance = Chance::new(mixed.wrapping_mul(0xaf25_1af3_b0f0_25b5));
            self.steps += 1;
            // A stream of its own, so that a run without stops is the same.
            let mut own = Chance::new(mixed.wrapping_mul(0x9fb2_1c65_1e98_df25));
            if self.weather.stops && own.below(STOPS_RATE) == 0 {
                BrokenPromise::unless_off(self.stop_some(&mut own), ())?;
            }
            BrokenPromise::unless_off(self.step(&mut chance), ())?;
            BrokenPromise::unless_off(no_panic(), ())?;
        }
        let mut chance = Chance::new(self.seed ^ 0x5bd1_e995);
        BrokenPromise::unless_off(self.heal(&mut chance), ())?;
        BrokenPromise::unless_off(self.stop(&mut chance), ())?;
        BrokenPromise::unless_off(no_panic(), ())
    }

    /// A part stops in the midst of all, and another takes its place.
    fn stop_some(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let clock = Clock::from(self.clock.clone());
        let failed = |error: Error| BrokenPromise::new(Oracle::Stops, error.to_string());
        if let Some(manager) = self.manager.as_mut().filter(|_| chance.below(2) == 0) {
            let mut what = "stops the manager";
            if let Some(key) = manager
                .some_referenced(chance)
                .filter(|_| chance.below(2) == 0)
            {
                what = "stops the manager while a call waits";
                BrokenPromise::unless_off(manager.check_stop_in_read(key), ())?;
            }
            manager.check_stop(chance, &mut self.counts)?;
            let link = manager.link.clone();
            *manager = WorldManager::new(link, &clock, &self.weather, chance).map_err(failed)?;
            self.counts.met("user", what);
            self.note(|| what.to_owned());
            return Ok(());
        }
        let (now, at) = (self.now(), self.some_informer(chance));
        let Some(informer) = self.informers.get_mut(at) else {
            return Ok(());
        };
        informer.check_stop(now, chance, &mut self.counts)?;
        *informer = informer
            .again(self.awake, (&clock, &self.weather), chance)
            .map_err(failed)?;
        self.counts.met("user", "stops an informer");
        self.note(|| format!("informer {at} stops, and another begins"));
        self.stopped_at_once(now)
    }

    /// Whether no time has passed since.
    pub(super) fn stopped_at_once(&self, since: Instant) -> Result<(), BrokenPromise> {
        let passed = self.now().saturating_duration_since(since);
        if passed.is_zero() {
            return Ok(());
        }
        let seen = format!("a stop took {passed:?}");
        Err(BrokenPromise::new(Oracle::Stops, seen))
    }

    fn step(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        // Each has a stream of its own: else a fault would go with what the step draws.
        for informer in &self.informers {
            informer.link.reseed(Chance::new(chance.below(u64::MAX)));
        }
        if let Some(manager) = &self.manager {
            manager.link.reseed(Chance::new(chance.below(u64::MAX)));
            if chance.below(2) == 0 {
                return self.step_manager(chance);
            }
        }
        if let Some(pods) = &mut self.pods
            && chance.below(4) == 0
        {
            let story = pods.step(chance, &mut self.counts)?;
            self.note(|| story);
            return Ok(());
        }
        match chance.below(100) {
            0..45 => {
                let at = self.some_informer(chance);
                for _ in 0..=chance.below(6) {
                    if self.step_informer(at, chance)? == Stepped::Blocked {
                        break;
                    }
                }
            }
            45..60 => self.step_some_handler(chance)?,
            60..73 => self.write(chance),
            73..80 => self.server_acts(chance)?,
            80..85 => self.network_acts(chance),
            85..90 => self.users_act(chance)?,
            _ => self.time_passes(chance)?,
        }
        Ok(())
    }

    /// A step of the manager, of its runs or of its users.
    fn step_manager(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let Some(manager) = &mut self.manager else {
            return Ok(());
        };
        let mut story = String::new();
        match chance.below(20) {
            0..8 => {
                for _ in 0..=chance.below(6) {
                    manager.step_run(chance, &mut self.counts)?;
                }
            }
            8..11 => story = manager.change_pods(chance, &mut self.counts),
            11..17 => {
                let (truth, weather) = (&self.truth, &self.weather);
                story = manager.read(chance, truth, weather, &mut self.counts)?;
            }
            17 => manager.look(),
            18 if self.weather.cuts => manager.link.cut(),
            18 if self.weather.outages => {
                let length = Duration::from_millis(1 << chance.below(17));
                manager.link.take_down(self.clock.now() + length);
            }
            _ => _ = manager.keep(),
        }
        let faults = manager.link.take_met();
        for fault in faults {
            self.faults += 1;
            self.counts.met("fault", fault);
            self.note(|| format!("the manager meets a fault: {fault}"));
        }
        if !story.is_empty() {
            self.note(|| story);
        }
        Ok(())
    }

    fn some_informer(&self, chance: &mut Chance) -> usize {
        let count = u64::try_from(self.informers.len()).unwrap_or(1);
        usize::try_from(chance.below(count.max(1))).unwrap_or_default()
    }

    fn step_informer(&mut self, at: usize, chance: &mut Chance) -> Result<Stepped, BrokenPromise> {
        let now = self.now();
        let Some(informer) = self.informers.get_mut(at) else {
            return Ok(Stepped::Ended);
        };
        let stepped = informer.step(now, chance, &self.truth, &mut self.counts);
        for fault in informer.link.take_met() {
            self.faults += 1;
            self.counts.met("fault", fault);
            self.note(|| format!("informer {at} meets a fault: {fault}"));
        }
        if self.traces && !matches!(stepped, Ok(Stepped::Blocked)) {
            let text = self.informers.get(at).map(WorldInformer::describe);
            let text = text.unwrap_or_default();
            let is_news = self.told.get(at) != Some(&text);
            if is_news {
                self.told.resize(self.informers.len(), String::new());
                if let Some(told) = self.told.get_mut(at) {
                    told.clone_from(&text);
                }
                self.note(|| text);
            }
        }
        stepped
    }

    fn step_some_handler(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let at = self.some_informer(chance);
        let count = self.informers.get(at).map_or(0, |it| it.handlers.len());
        let count = u64::try_from(count).unwrap_or_default();
        let handler = usize::try_from(chance.below(count.max(1))).unwrap_or_default();
        for _ in 0..=chance.below(4) {
            if !self.step_handler(at, handler, chance)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn step_handler(
        &mut self,
        at: usize,
        handler: usize,
        chance: &mut Chance,
    ) -> Result<bool, BrokenPromise> {
        let now = self.now();
        let informer = self.informers.get_mut(at);
        let Some(handler) = informer.and_then(|it| it.handlers.get_mut(handler)) else {
            return Ok(false);
        };
        handler.step(now, chance, (&self.weather, &self.truth), &mut self.counts)
    }

    fn network_acts(&mut self, chance: &mut Chance) {
        let now = self.now();
        let at = self.some_informer(chance);
        let Some(informer) = self.informers.get(at) else {
            return;
        };
        let length = Duration::from_millis(1 << chance.below(19));
        let what = match chance.below(3) {
            0 if self.weather.cuts => {
                informer.link.cut();
                "the connection is cut"
            }
            1 if self.weather.silences => {
                informer.link.silence(now + length);
                "the watch falls silent"
            }
            2 if self.weather.outages => {
                informer.link.take_down(now + length);
                "the server is down"
            }
            _ => return,
        };
        self.counts.met("network", what);
        self.faults += 1;
        self.note(|| format!("informer {at}: {what}, for at most {length:?}"));
    }

    fn users_act(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let at = self.some_informer(chance);
        if self.weather.restarts && chance.below(5) == 0 {
            return self.restart(at, chance);
        }
        let weather = &self.weather;
        let Some(informer) = self.informers.get_mut(at) else {
            return Ok(());
        };
        let what = match chance.below(4) {
            0 if weather.late_handlers && informer.handlers.len() < 4 && !informer.has_bound() => {
                let added = informer.add_handler();
                added.map_err(|error| BrokenPromise::new(Oracle::Told, error.to_string()))?;
                "adds a handler"
            }
            1 if weather.removals => {
                let count = u64::try_from(informer.handlers.len()).unwrap_or(1);
                let handler = usize::try_from(chance.below(count)).unwrap_or_default();
                informer.remove_handler(handler);
                "removes a handler"
            }
            2 if weather.waits => {
                informer.wait();
                "waits for the first sync"
            }
            3 => {
                informer.waits = None;
                "waits no longer"
            }
            _ => return Ok(()),
        };
        self.counts.met("user", what);
        self.note(|| format!("a user of informer {at} {what}"));
        Ok(())
    }

    /// Time passes: a moment, or longer once all parts have gone as far as they can.
    fn time_passes(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let pick = chance.below(10);
        if pick < 3 {
            self.advance(chance.within(MOMENT));
            return Ok(());
        }
        self.settle(chance)?;
        let by = match pick {
            3..=5 => self.until_next_wake().unwrap_or(MOMENT),
            6..=7 => chance.within(Duration::from_secs(2)),
            8 => chance.within(Duration::from_secs(20)),
            _ if self.weather.jumps => {
                let by = chance.within(Duration::from_secs(20 * 60));
                self.note(|| format!("the machine is suspended for {by:?}"));
                self.clock.advance(by);
                Duration::ZERO
            }
            _ => chance.within(Duration::from_secs(60)),
        };
        self.check_health()?;
        self.wait(by, chance)?;
        self.settle(chance)?;
        self.check_health()
    }

    /// Lets time pass, at most half a minute without a look at the parts.
    fn wait(&mut self, by: Duration, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let mut left = by;
        while left > STRIDE {
            left = left.saturating_sub(STRIDE);
            self.advance(STRIDE);
            self.settle(chance)?;
        }
        self.advance(left);
        Ok(())
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.awake += by;
        if self.weather.bookmarks && self.now() >= self.next_bookmark {
            self.next_bookmark = self.now() + BOOKMARKS;
            self.server.bookmark();
            self.note(|| "the server sends bookmarks".to_owned());
        }
    }

    pub(super) fn check_health(&mut self) -> Result<(), BrokenPromise> {
        let now = (self.awake, self.now());
        for informer in &self.informers {
            informer.check_health(now, &self.truth, &mut self.counts)?;
        }
        Ok(())
    }

    /// All reflectors go as far as they can without time.
    pub(super) fn settle(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        for at in 0..self.informers.len() {
            let mut steps = 0;
            while !matches!(
                self.step_informer(at, chance)?,
                Stepped::Blocked | Stepped::Ended
            ) {
                steps += 1;
                if steps > SETTLE_STEPS {
                    let seen = format!("informer {at} takes {steps} steps without time");
                    return Err(BrokenPromise::new(Oracle::Livelock, seen));
                }
            }
        }
        if let Some(manager) = &mut self.manager {
            manager.settle(chance, &mut self.counts)?;
        }
        Ok(())
    }

    pub(super) fn until_next_wake(&self) -> Option<Duration> {
        let now = self.now();
        let reflectors = self.informers.iter().map(|it| it.reflector.wakes_at());
        let handlers = self.informers.iter().flat_map(|it| &it.handlers);
        let wakes = reflectors.chain(handlers.map(SteppedHandler::wakes_at));
        let managers = self.manager.iter().flat_map(WorldManager::wakes_at);
        let managers = managers.chain(self.pods.iter().map(WorldPods::due));
        let next = wakes
            .flatten()
            .chain(managers)
            .filter(|at| *at > now)
            .min()?;
        Some(next.saturating_duration_since(now))
    }
}

/// No guard has caught a panic that nobody planned.
fn no_panic() -> Result<(), BrokenPromise> {
    guard::take_caught().map_or(Ok(()), |panic| Err(BrokenPromise::panicked(&panic)))
}
