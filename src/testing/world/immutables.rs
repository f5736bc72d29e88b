//! Immutable objects of a manager: nothing watches one after its first read (B7, OC-16).

use super::manager::WorldManager;
use super::truth::{Shown, Truth};
use crate::manager::ChangeDetection;

impl WorldManager {
    /// Whether readers may have an immutable state that the server has replaced: nothing watches it
    /// after its first read, until a pod refers to it anew (B7, OC-16).
    pub(super) fn is_kept(&self, shown: &Shown, truth: &Truth) -> bool {
        let replaced = truth.replaced(shown).filter(|_| shown.is_immutable);
        let Some(replaced) = replaced.map(|state| state.instant) else {
            return false;
        };
        let referenced = self.referenced_at.get(shown.key).copied().flatten();
        let is_due = referenced.is_some_and(|referenced| referenced > replaced);
        // A cache that lags may have given it after its end.
        self.mode == ChangeDetection::Watch && (self.weather.lags || !is_due)
    }
}
