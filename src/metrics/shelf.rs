//! The series of one sort by their labels, each there as long as somebody holds it.

use std::sync::Weak;

use crate::sync::Arc;

pub(super) struct Shelf<L, S>(Vec<(L, Weak<S>)>);

impl<L, S> Default for Shelf<L, S> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<L: Clone + PartialEq, S> Shelf<L, S> {
    /// The series of those labels; made if nobody holds one.
    pub(super) fn get_or_make<E>(
        &mut self,
        labels: &L,
        make: impl FnOnce() -> Result<S, E>,
    ) -> Result<Arc<S>, E> {
        self.0.retain(|(_, series)| series.strong_count() > 0);
        let mut held = self.0.iter().filter(|(known, _)| known == labels);
        if let Some(series) = held.find_map(|(_, series)| series.upgrade()) {
            return Ok(series);
        }
        let series = Arc::new(make()?);
        self.0.push((labels.clone(), Arc::downgrade(&series)));
        Ok(series)
    }

    /// Every series that somebody holds.
    pub(super) fn living(&mut self) -> Vec<Arc<S>> {
        self.0.retain(|(_, series)| series.strong_count() > 0);
        let series = self.0.iter();
        series.filter_map(|(_, series)| series.upgrade()).collect()
    }
}
