//! Restarts of informers, from the position that the last one stored.

use k8s_openapi::api::core::v1::ConfigMap;

use super::informer::WorldInformer;
use super::oracle::{BrokenPromise, Oracle};
use super::play::Play;
use crate::clock::Clock;
use crate::list_watch::StoredPosition;
use crate::policy::Chance;

impl Play {
    /// An informer stops, and the next run of its program begins with what it stored.
    pub(super) fn restart(&mut self, at: usize, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let position = self.informers.get(at).and_then(WorldInformer::stored);
        self.restart_from(at, position, chance)
    }

    fn restart_from(
        &mut self,
        at: usize,
        position: Option<StoredPosition<ConfigMap>>,
        chance: &mut Chance,
    ) -> Result<(), BrokenPromise> {
        let now = self.now();
        let Some(informer) = self.informers.get_mut(at) else {
            return Ok(());
        };
        // An order of a hash map would meet the bound of a queue.
        if informer.has_bound() {
            return Ok(());
        }
        let what = if position.is_some() {
            "restarts, with a position"
        } else {
            "restarts"
        };
        informer.check_stop(now, chance, &mut self.counts)?;
        let parts = (&Clock::from(self.clock.clone()), &self.weather);
        let next = informer.next_run((position, self.awake), parts, chance);
        *informer = next.map_err(|error| BrokenPromise::new(Oracle::Stops, error.to_string()))?;
        self.counts.met("user", what);
        self.note(|| format!("informer {at} {what}"));
        Ok(())
    }

    /// The server is restored from a backup, and perhaps the programs restart meanwhile.
    pub(super) fn restore_amid_restarts(
        &mut self,
        chance: &mut Chance,
    ) -> Result<(), BrokenPromise> {
        let restarts = self.weather.restarts && chance.below(2) == 0;
        let stored: Vec<_> = self.informers.iter().map(WorldInformer::stored).collect();
        self.restore(chance.below(6));
        if restarts {
            for (at, position) in stored.into_iter().enumerate() {
                self.restart_from(at, position, chance)?;
            }
        }
        Ok(())
    }
}
