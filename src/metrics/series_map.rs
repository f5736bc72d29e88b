//! The series of one type by their labels, each while it has an owner.

use std::sync::Weak;

use super::page::Labels;
use crate::error::Error;
use crate::sync::{Arc, Mutex, Rank};

pub(super) struct SeriesMap<S>(Mutex<Vec<(Labels, Weak<S>)>>);

impl<S> Default for SeriesMap<S> {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::METRICS, Vec::new()))
    }
}

impl<S> SeriesMap<S> {
    /// The series with those labels, made anew if it has no owner.
    pub(super) fn get_or_make(
        &self,
        labels: &Labels,
        make: impl FnOnce(Labels) -> Result<S, Error>,
    ) -> Result<Arc<S>, Error> {
        let mut all = self.0.lock();
        all.retain(|(_, series)| series.strong_count() > 0);
        let mut of_labels = all.iter().filter(|(known, _)| known == labels);
        if let Some(series) = of_labels.find_map(|(_, series)| series.upgrade()) {
            return Ok(series);
        }
        let series = Arc::new(make(labels.clone())?);
        all.push((labels.clone(), Arc::downgrade(&series)));
        Ok(series)
    }

    /// Calls `show` with every series that has an owner, without the lock.
    pub(super) fn each(&self, show: impl Fn(&S)) {
        let all = self.0.lock();
        let living = all.iter().filter_map(|(_, series)| series.upgrade());
        let living: Vec<_> = living.collect();
        drop(all);
        for series in living {
            show(&series);
        }
    }
}
