//! What a manager of the world must hold: its answers, their ages, and its stop.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;

use super::coverage::Counts;
use super::link::Says;
use super::manager::{PATIENCE, WorldManager};
use super::oracle::{BrokenPromise, Oracle};
use super::stepped::Stepped;
use super::truth::{KEYS, Key, Shown, StateKind, TrueState, Truth, name};
use super::weather::Weather;
use crate::error::ErrorKind;
use crate::manager::{Cached, ChangeDetection};
use crate::object::{ObjectKey, Scope};
use crate::policy::Chance;
use crate::sync::{Arc, Mutex};
use crate::testing::objects;

/// How long a manager keeps what it polls, unless told otherwise.
const TTL: Duration = Duration::from_secs(60);

impl WorldManager {
    /// Holds an answer that there is no such object against the server: of a fresh read, of one at
    /// a version, or of another.
    pub(super) fn check_absence(
        &self,
        key: Key,
        (is_fresh, at_least): (bool, Option<u64>),
        (truth, weather): (&Truth, &Weather),
        story: &str,
    ) -> Result<(), BrokenPromise> {
        let last = truth.last(key, u64::MAX);
        if is_fresh && last.is_some_and(|state| state.kind != StateKind::Gone) {
            let seen = format!("{story}, the server has {last:?}");
            return Err(BrokenPromise::new(Oracle::Fresh, seen));
        }
        if at_least.is_some_and(|version| !truth.was_absent_since(key, version)) {
            let seen = format!("{story} at {at_least:?}, the server has {last:?}");
            return Err(BrokenPromise::new(Oracle::AtLeast, seen));
        }
        let before = self.latest.get(key).copied().flatten();
        let before = before.filter(|_| self.keeps(weather));
        if before.is_some_and(|it| !truth.was_absent_since(key, it.version)) {
            let seen = format!("{story} after {before:?}");
            return Err(BrokenPromise::new(Oracle::Backwards, seen));
        }
        Ok(())
    }

    /// `Get` keeps nothing, so a cache of the server that lags answers as it is.
    pub(super) fn keeps(&self, weather: &Weather) -> bool {
        self.mode != ChangeDetection::Get || !weather.lags
    }

    /// Holds an answer against the earlier ones, and its age against the server.
    pub(super) fn note(
        &mut self,
        key: Key,
        cached: &Cached<ConfigMap>,
        truth: &Truth,
        weather: &Weather,
    ) -> Result<Shown, BrokenPromise> {
        let Some(shown) = Shown::of(cached.stored()) else {
            let seen = format!("{} is an object that the server never had", name(key));
            return Err(BrokenPromise::new(Oracle::Position, seen));
        };
        let keeps = self.keeps(weather);
        if let Some(latest) = self.latest.get_mut(key) {
            let older = |before: &Shown| keeps && shown.serial < before.serial;
            if let Some(before) = latest.filter(older) {
                let seen = format!("{}: {shown:?} after {before:?}", name(key));
                let broken = Err(BrokenPromise::new(Oracle::Backwards, seen));
                BrokenPromise::unless_off(broken, ())?;
            }
            *latest = Some(shown);
        }
        let is_cached = self.mode != ChangeDetection::Get;
        if is_cached && self.ended.get(key).is_some_and(|end| shown.serial < *end) {
            let seen = format!(
                "{}: {shown:?} after a reader was told of its end",
                name(key)
            );
            return Err(BrokenPromise::new(Oracle::Backwards, seen));
        }
        let now = self.clock.now();
        // An absence has no version, and that of an object which was never read has no uid.
        let known = *self.uids.entry(shown.uid).or_insert(now);
        let absent = self.absent.get(key).copied().flatten();
        let absent = absent.filter(|absent| keeps && known < *absent);
        let replaced = truth.replaced(&shown);
        // The absence had no version that a list from the server's cache could be held against.
        let replaced = replaced.filter(|state| !Self::is_cached(cached, state, truth, weather));
        let replaced = replaced.map(|state| state.instant);
        if absent
            .zip(replaced)
            .is_some_and(|(absent, replaced)| replaced < absent)
        {
            let seen = format!("{}: {shown:?} after a fresh read found none", name(key));
            return Err(BrokenPromise::new(Oracle::Backwards, seen));
        }
        self.check_age(key, (cached, shown), truth, weather)?;
        Ok(shown)
    }

    /// Whether a cache of the server that had not come as far as `replaced` may have given the
    /// answer.
    fn is_cached(
        cached: &Cached<ConfigMap>,
        replaced: &TrueState,
        truth: &Truth,
        weather: &Weather,
    ) -> bool {
        let asked = cached.last_contact();
        let answered = asked.checked_add(weather.latency).unwrap_or(asked);
        let lagged = truth.lagged(asked, answered);
        lagged.is_some_and(|version| version < replaced.version)
    }

    /// Holds the time of the last confirmation against the server. An answer that a cache of the
    /// server gave confirms what that cache had.
    fn check_age(
        &self,
        key: Key,
        (cached, shown): (&Cached<ConfigMap>, Shown),
        truth: &Truth,
        weather: &Weather,
    ) -> Result<(), BrokenPromise> {
        let (Some(replaced), Some((namespace, own))) = (truth.replaced(&shown), KEYS.get(key))
        else {
            return Ok(());
        };
        let contact = cached.last_contact();
        // Until its time to live is over, a polled state may be as old as its poll.
        if cached.is_polled() && !cached.is_stale() && cached.age() >= TTL {
            let seen = format!("{}: {shown:?} was polled {:?} ago", name(key), cached.age());
            return Err(BrokenPromise::new(Oracle::Age, seen));
        }
        let scopes = [
            Scope::object(&ObjectKey::new(*namespace, *own)),
            Scope::namespace(*namespace),
        ];
        // An event counts from when it is read, and says what the server had when it was sent. The
        // watches of the object and of its namespace may each have read one at that time.
        let read = scopes
            .iter()
            .filter_map(|scope| self.link.read_at(scope, contact));
        let said = read.map(|says| match says {
            Says::Version(version) => truth.written(version).unwrap_or(contact),
            Says::Until(until) => until,
        });
        let confirmed = said.min().unwrap_or(contact);
        let is_excused =
            Self::is_cached(cached, replaced, truth, weather) || self.is_kept(&shown, truth);
        if replaced.instant >= confirmed || is_excused {
            return Ok(());
        }
        let now = self.clock.now();
        let behind = now.saturating_duration_since(replaced.instant);
        let age = cached.age();
        let seen = format!("{}: {shown:?} is {behind:?} old, age {age:?}", name(key));
        Err(BrokenPromise::new(Oracle::Age, seen))
    }

    /// Whether the subscriber knows the last change of each object. Only watches tell of changes
    /// that no reader asks for.
    pub(super) fn check_told(&mut self, truth: &Truth) -> Result<(), BrokenPromise> {
        self.look();
        for key in 0..KEYS.len() {
            let last = truth.last(key, u64::MAX);
            let last = last.filter(|state| state.kind != StateKind::Undecodable);
            let present = last.filter(|state| state.kind == StateKind::Decodes);
            let told = self.told.get(key).copied().flatten();
            let knows = told.map(|shown| shown.serial) == present.map(|state| state.serial);
            let is_kept = told.is_some_and(|shown| shown.is_immutable);
            let counts = last.is_some() && self.is_referenced(key) && !is_kept;
            if counts && !knows && self.mode == ChangeDetection::Watch {
                let seen = format!(
                    "{}: the subscriber knows {told:?}, the server has {last:?}",
                    name(key)
                );
                return Err(BrokenPromise::new(Oracle::Subscribers, seen));
            }
        }
        Ok(())
    }

    /// Stops the manager while a reader waits for an answer of the server.
    pub(super) fn check_stop_in_read(&mut self, key: Key) -> Result<(), BrokenPromise> {
        let Some((namespace, own)) = KEYS.get(key) else {
            return Ok(());
        };
        let stopped = Arc::new(Mutex::new(None));
        let (manager, clock) = (self.manager.clone(), self.clock.clone());
        let noted = Arc::clone(&stopped);
        self.link.interrupt(Some(Box::new(move || {
            manager.stop();
            *noted.lock() = Some(clock.now());
        })));
        let by = self.clock.after(PATIENCE);
        let found = self.manager.get_fresh(namespace, own, by);
        self.link.interrupt(None);
        let stopped = *stopped.lock();
        let now = self.clock.now();
        if stopped.is_some_and(|at| at != now || found.is_ok()) {
            let found = found.map_err(|error| error.kind());
            let seen = format!("a read from {stopped:?} to {now:?} had {found:?}");
            return Err(BrokenPromise::new(Oracle::Stops, seen));
        }
        Ok(())
    }

    /// What a manager that was stopped does: it answers at once, and starts nothing.
    fn check_stopped(&self, now: Instant) -> Result<(), BrokenPromise> {
        let names = KEYS.map(|(_, own)| own);
        let pod = objects::pod("a", "late", "node", &[], &names);
        self.manager.register_pod(&pod);
        for (namespace, own) in KEYS.iter().take(KEYS.len() / 2) {
            let by = self.clock.after(PATIENCE);
            let found = self.manager.get_by(namespace, own, by);
            if self.clock.now() != now || found.is_err_and(|it| it.kind() == ErrorKind::Timeout) {
                let seen = format!("a read of {own} waits after its manager's stop");
                return Err(BrokenPromise::new(Oracle::Stops, seen));
            }
        }
        let slots = self.slots.lock().clone();
        if slots.iter().all(|slot| slot.lock().has_ended) {
            return Ok(());
        }
        let seen = "a manager starts a run after its stop";
        Err(BrokenPromise::new(Oracle::Stops, seen))
    }

    /// Stops the manager: all runs end at their next step.
    pub(super) fn check_stop(
        &mut self,
        chance: &mut Chance,
        counts: &mut Counts,
    ) -> Result<(), BrokenPromise> {
        let now = self.clock.now();
        self.manager.stop();
        self.stop.stop();
        let slots = self.slots.lock().clone();
        for slot in &slots {
            let stepped = self.step_slot(slot, chance, counts)?;
            if stepped != Stepped::Ended {
                let seen = format!("a run goes on after the manager's stop: {stepped:?}");
                return Err(BrokenPromise::new(Oracle::Stops, seen));
            }
        }
        drop(slots);
        let has_ended = (0..8).any(|_| self.keep());
        if !has_ended {
            let seen = "the housekeeper goes on after its manager's stop";
            return Err(BrokenPromise::new(Oracle::Stops, seen));
        }
        let (open, _) = self.link.watches();
        let slots = self.slots.lock().clone();
        let left = slots.iter().filter(|slot| !slot.lock().has_ended).count();
        if open > 0 || left > 0 {
            let seen = format!("{left} runs and {open} watches are left after a manager's stop");
            return Err(BrokenPromise::new(Oracle::Watches, seen));
        }
        self.check_stopped(now)
    }
}
