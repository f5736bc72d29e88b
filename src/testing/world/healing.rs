//! The end of a run: the world heals, each cache and each view must equal the server, and all parts
//! stop.

use std::time::Duration;

use super::informer::WorldInformer;
use super::manager::WorldManager;
use super::oracle::{BrokenPromise, Oracle};
use super::play::{MOMENT, Play};
use super::stepped::Steppable as _;
use crate::list_watch::ListerWatcher as _;
use crate::policy::Chance;

/// The longest pause between two tries, after a refusal.
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);
/// For how much longer bytes that are no news keep a watch alive.
const BYTES: Duration = Duration::from_secs(60);
/// The requests and the shorter pauses after the end of a long one, then the next bookmark.
const REQUESTS: Duration = Duration::from_secs(120);
/// The most steps that healing may take.
const HEALING_STEPS: u64 = 20_000;

impl Play {
    /// Ends all faults, and waits until each cache equals the server.
    pub(super) fn heal(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        self.server.heal();
        BrokenPromise::unless_off(self.check_absences(chance), ())?;
        self.server.lag(None);
        self.truth.lags(self.clock.now(), None);
        if let Some(manager) = &self.manager {
            manager.link.stick(None);
        }
        for informer in &mut self.informers {
            informer.link.heal();
            informer.reflector.heal();
        }
        if let Some(manager) = &mut self.manager {
            manager.link.heal();
            manager.heal();
        }
        // A server that streams lists, or has sent a bookmark, sends them for ever.
        let informers = self.informers.iter().map(|informer| &informer.link);
        let mut links = informers.chain(self.manager.as_ref().map(|manager| &manager.link));
        let has_sent = links.any(|link| link.bookmark_interval().is_some());
        self.weather.bookmarks |= has_sent || self.weather.streams;
        self.note(|| "the world is healed".to_owned());
        let healed = self.now();
        let within = self.heals_within();
        let mut calm = 0;
        for _ in 0..HEALING_STEPS {
            BrokenPromise::unless_off(self.settle(chance), ())?;
            BrokenPromise::unless_off(self.check_health(), ())?;
            let mut all = true;
            for informer in &mut self.informers {
                let converged = informer.has_converged(&self.truth);
                all &= BrokenPromise::unless_off(converged, false)?;
            }
            if let Some(manager) = &mut self.manager {
                let converged = manager.has_converged(&self.truth, &self.weather);
                all &= BrokenPromise::unless_off(converged, None)?.is_none();
            }
            calm = if all { calm + 1 } else { 0 };
            if calm > 3 {
                return self.check_handlers(chance);
            }
            if calm == 0 && self.now().saturating_duration_since(healed) > within {
                break;
            }
            let next = self.until_next_wake().unwrap_or(MOMENT);
            self.advance(next.clamp(Duration::from_millis(1), Duration::from_secs(30)));
        }
        if Oracle::Converges.is_off() {
            return self.check_handlers(chance);
        }
        let mut states = Vec::new();
        for informer in &mut self.informers {
            if !informer.has_converged(&self.truth)? {
                states.push(informer.describe());
                states.push(informer.describe_content(&self.truth)?);
            }
        }
        if let Some(manager) = &mut self.manager {
            states.extend(manager.has_converged(&self.truth, &self.weather)?);
        }
        let passed = self.now().saturating_duration_since(healed);
        let seen = format!("after {passed:.0?} a cache differs: {}", states.join("; "));
        Err(BrokenPromise::new(Oracle::Converges, seen))
    }

    /// How long the caches may take to equal a healed server. A cache waits after a refusal, or it
    /// still believes in a watch that died without a word.
    fn heals_within(&self) -> Duration {
        let informers = self.informers.iter().map(WorldInformer::finds_dead_within);
        let manager = self.manager.as_ref().map(WorldManager::finds_dead_within);
        let longest = informers.chain(manager).max().unwrap_or_default();
        // Two watches from a lost future may be open one after the other. Without bookmarks, only
        // the end of the watch after a dead one shows that nothing changed.
        let watches = 1 + u32::from(self.weather.restores) + u32::from(!self.weather.bookmarks);
        ((longest + BYTES) * watches).max(PAUSE_MAX) + REQUESTS
    }

    /// Lets all handlers catch up, and compares their views.
    fn check_handlers(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        for at in 0..self.informers.len() {
            let count = self.informers.get(at).map_or(0, |it| it.handlers.len());
            for handler in 0..count {
                for _ in 0..HEALING_STEPS {
                    if !self.step_handler(at, handler, chance)? {
                        let informer = self.informers.get(at);
                        let busy = informer.and_then(|it| it.handlers.get(handler)?.wakes_at());
                        let Some(until) = busy else { break };
                        let wait = until.saturating_duration_since(self.now());
                        self.advance(wait);
                    }
                }
            }
        }
        for informer in &self.informers {
            informer.check_views(&self.truth)?;
        }
        if let Some(manager) = &mut self.manager {
            manager.check_told(&self.truth)?;
        }
        if let Some(pods) = &mut self.pods {
            let clock = &self.clock;
            pods.check_healed(&mut self.counts, |by| clock.advance(by))?;
        }
        self.counts.met("oracle held", "converges, told");
        Ok(())
    }

    pub(super) fn stop(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let now = self.now();
        for informer in &mut self.informers {
            informer.check_stop(now, chance, &mut self.counts)?;
        }
        if let Some(manager) = &mut self.manager {
            manager.check_stop(chance, &mut self.counts)?;
        }
        self.stopped_at_once(now)?;
        self.counts.met("oracle held", "stops");
        Ok(())
    }
}
