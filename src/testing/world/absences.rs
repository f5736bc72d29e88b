//! A cache of the server that is stuck: that it lacks an object proves nothing (B18).

use std::time::Duration;

use super::manager::WorldManager;
use super::oracle::{BrokenPromise, Oracle};
use super::play::Play;
use super::truth::{KEYS, Key, StateKind, Truth, name};
use crate::clock::Deadline;
use crate::manager::ChangeDetection;
use crate::policy::Chance;

/// How long, and how often, the world waits for the confirmation of an absence.
const STRIDE: Duration = Duration::from_secs(10);
const STRIDES: usize = 6;

impl Play {
    /// Ends the manager's faults, and not the lag of the server. A reader that was told of an
    /// absence by a cache has the object within a minute.
    pub(super) fn check_absences(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let Some(manager) = self.manager.as_mut().filter(|_| self.weather.lags) else {
            return Ok(());
        };
        manager.link.heal();
        manager.heal();
        self.settle(chance)?;
        let Some(manager) = &mut self.manager else {
            return Ok(());
        };
        let absent = manager.wrongly_absent(&self.truth);
        if absent.is_empty() {
            return Ok(());
        }
        self.counts.met("oracle held", "confirmed");
        for _ in 0..STRIDES {
            self.advance(STRIDE);
            self.settle(chance)?;
        }
        let manager = self.manager.iter_mut();
        let still: Vec<_> = manager
            .flat_map(|it| it.wrongly_absent(&self.truth))
            .collect();
        match absent.into_iter().find(|key| still.contains(key)) {
            Some(key) => {
                let seen = format!(
                    "{} exists, and readers are told for a minute that it does not",
                    name(key)
                );
                Err(BrokenPromise::new(Oracle::Confirmed, seen))
            }
            None => Ok(()),
        }
    }
}

impl WorldManager {
    /// Notes that a reader was told of no object: the end of what was read before has come.
    pub(super) fn note_absence(&mut self, key: Key, truth: &Truth) {
        let latest = self.latest.get(key).copied().flatten();
        let end = latest.and_then(|latest| truth.end_after(key, latest.serial));
        if let (Some(place), Some(end)) = (self.ended.get_mut(key), end) {
            *place = end.max(*place);
        }
    }

    /// The referenced objects that exist, and of which a reader is told that they do not.
    pub(super) fn wrongly_absent(&mut self, truth: &Truth) -> Vec<Key> {
        let mut absent = Vec::new();
        for (key, (namespace, own)) in KEYS.iter().enumerate() {
            let last = truth.last(key, u64::MAX);
            let exists = last.is_some_and(|state| state.kind == StateKind::Decodes);
            // A fresh read may have found rightly that there was none.
            let held = self.held_since.get(key).copied().flatten();
            let is_older = truth.exists_since(key) < held;
            // A watch may have brought the end of an earlier one, which is no list.
            let is_listed = !truth.ends(key).any(|end| self.link.has_read(end));
            if exists
                && is_older
                && is_listed
                && self.is_referenced(key)
                && self.mode == ChangeDetection::Watch
            {
                let now = Deadline::at(self.clock.now());
                let found = self.manager.get_by(namespace, own, now);
                if found.is_err_and(|error| error.is_not_found()) {
                    absent.push(key);
                }
            }
        }
        absent
    }
}
