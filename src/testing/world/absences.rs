//! A cache of the server that is stuck: that it lacks an object proves nothing (B18).

use std::time::Duration;

use super::oracle::{BrokenPromise, Oracle};
use super::play::Play;
use super::truth::name;
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
