//! Whether the server keeps confirming what a manager holds: the sum over its watches, for health checks (B14).

use std::time::Instant;

use super::object_manager::ObjectManager;
use crate::error::{Error, ErrorKind};
use crate::object::{Object, ObjectKey};

/// An object whose watch should have heard from the server and has not.
#[derive(Debug)]
pub(crate) struct Overdue {
    pub(crate) key: ObjectKey,
    /// When the server last confirmed what is known.
    pub(crate) confirmed: Option<Instant>,
    /// When the attempts that failed since began, or the watch.
    pub(crate) began: Instant,
    pub(crate) failure: Option<Error>,
}

impl Overdue {
    fn since(&self) -> Instant {
        self.confirmed.unwrap_or(self.began)
    }
}

impl<K: Object> ObjectManager<K> {
    /// Whether the server keeps confirming the objects that are watched, for a health check: each
    /// running watch by the rule of
    /// [`ReflectorStatus::check_health`](crate::reflector::ReflectorStatus::check_health). An
    /// object that is immutable or idle, so that its watch is stopped, one that found no room, and
    /// one that the server refuses are not unhealthy, nor is anything with `Cache` and `Get`, which
    /// watch nothing (B14). A manager without owners is healthy.
    ///
    /// Never blocks on the network, and does not count as a read.
    /// [`ObjectReport::is_overdue`](crate::manager::ObjectReport::is_overdue) names the objects.
    ///
    /// # Errors
    ///
    /// `Panicked`: the manager's housekeeper did, and has not been round since. `Timeout`: how many
    /// objects there are, and how long ago the server was heard of the one that it was not heard of
    /// for longest; that one's last failure is the source. The text names no object.
    pub fn check_health(&self) -> Result<(), Error> {
        if let Some(failure) = self.housekeeping_failure() {
            return Err(failure);
        }
        let overdue = self.overdue();
        let Some(worst) = overdue.iter().min_by_key(|one| one.since()) else {
            return Ok(());
        };
        let since = self.clock().now().saturating_duration_since(worst.since());
        let how = if worst.confirmed.is_some() {
            format!("the server last confirmed one {since:.0?} ago")
        } else {
            format!("the server has confirmed nothing of one for {since:.0?}")
        };
        let text = format!("{} of {} {}s: {how}", overdue.len(), self.len(), K::KIND);
        log::debug!("{text}: {}", worst.key);
        let error = Error::new(ErrorKind::Timeout, text);
        Err(match &worst.failure {
            Some(failure) => error.with_source(failure.clone()),
            None => error,
        })
    }
}
