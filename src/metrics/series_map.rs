//! The series of one sort by their labels, each there as long as somebody holds it.

use std::sync::Weak;

use super::page::Labels;
use crate::error::Error;
use crate::sync::Arc;

pub(super) struct SeriesMap<S>(Vec<(Labels, Weak<S>)>);

impl<S> Default for SeriesMap<S> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<S> SeriesMap<S> {
    /// The series of those labels; made if nobody holds one.
    pub(super) fn get_or_make(
        &mut self,
        labels: &Labels,
        make: impl FnOnce(Labels) -> Result<S, Error>,
    ) -> Result<Arc<S>, Error> {
        self.0.retain(|(_, series)| series.strong_count() > 0);
        let mut held = self.0.iter().filter(|(known, _)| known == labels);
        if let Some(series) = held.find_map(|(_, series)| series.upgrade()) {
            return Ok(series);
        }
        let series = Arc::new(make(labels.clone())?);
        self.0.push((labels.clone(), Arc::downgrade(&series)));
        Ok(series)
    }

    /// Every series that somebody holds.
    pub(super) fn living(&self) -> Vec<Arc<S>> {
        let series = self.0.iter();
        series.filter_map(|(_, series)| series.upgrade()).collect()
    }
}
