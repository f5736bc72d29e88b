//! Reads past the cache of the TTL store: the object as the server has it now, or not older than a version (R11).

use super::{Place, TtlStore};
use crate::clock::Deadline;
use crate::error::Error;
use crate::manager::at_least::{Meanwhile, Reached, get_at_least, later};
use crate::manager::cached::Cached;
use crate::manager::ttl::record::{Fetched, Past};
use crate::object::{Object, Reason, ResourceVersion, Status};
use crate::worker::StopToken;

impl<K: Object> TtlStore<K> {
    /// The object past the cache, from the server.
    ///
    /// # Errors
    ///
    /// See [`ObjectManager::get_fresh`](crate::manager::ObjectManager::get_fresh).
    pub(crate) fn get_fresh(
        &self,
        namespace: &str,
        name: &str,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let place = self.find(namespace, name)?;
        let token = self.stop.token();
        let ask = self.request(&place, deadline, &token);
        let latest = ResourceVersion::most_recent();
        let read = place.record.lock().ask(latest, &self.moment());
        let found = Fetched::of(self.gets.ask(&ask, &read.version), &ask);
        self.hand_on(&place, &found);
        self.change(&place, found, |record, found, at| {
            record.take_read(&read, found, &place.key, at)
        })
    }

    /// The object in a state not older than `version` (R11).
    ///
    /// # Errors
    ///
    /// See [`ObjectManager::get_at_least`](crate::manager::ObjectManager::get_at_least).
    pub(crate) fn get_at_least(
        &self,
        namespace: &str,
        name: &str,
        version: &ResourceVersion,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let place = self.find(namespace, name)?;
        let read = {
            let (record, at) = (place.record.lock(), self.moment());
            if let Some(answer) = record.reached(version, &place.key, &at) {
                return answer;
            }
            record.ask(version.clone(), &at)
        };
        let token = self.stop.token();
        let ask = self.request(&place, deadline, &token);
        let mut waiting = Waiting {
            store: self,
            place: &place,
            version,
            stop: &token,
            read,
        };
        let found = match get_at_least(&self.gets, &ask, &mut waiting) {
            Ok(Reached::Answer(object, _)) => Fetched::Object(object),
            Ok(Reached::Gone(error, _)) => Fetched::Absent(error),
            Ok(Reached::InMemory(answer)) => return answer,
            Err(error) if is_about_the_version(&error) => return Err(error),
            Err(error) => Fetched::of(Err(error), &ask),
        };
        self.hand_on(&place, &found);
        self.change(&place, found, |record, found, at| {
            record.take_read(&waiting.read, found, &place.key, at)
        })
    }
}

/// Whether the server does not understand the version that a caller asks for, which says nothing about the object.
fn is_about_the_version(error: &Error) -> bool {
    let reason = error.status().map(Status::reason);
    matches!(reason, Some(Reason::BadRequest | Reason::Invalid))
}

/// A reader that waits for the server to come as far as a version.
struct Waiting<'a, K: Object> {
    store: &'a TtlStore<K>,
    place: &'a Place<K>,
    version: &'a ResourceVersion,
    stop: &'a StopToken,
    /// The last request.
    read: Past,
}

impl<K: Object> Meanwhile<K> for Waiting<'_, K> {
    fn version(&mut self) -> ResourceVersion {
        let record = self.place.record.lock();
        let version = later(self.version, record.content().floor());
        self.read = record.ask(version.clone(), &self.store.moment());
        version
    }

    fn rest(&mut self, pause: Deadline) -> Option<Result<Cached<K>, Error>> {
        let clock = &self.store.options.clock;
        let mut record = self.place.record.lock();
        loop {
            let at = self.store.moment();
            let answer = record.reached(self.version, &self.place.key, &at);
            if answer.is_some() {
                return answer;
            }
            if record.is_orphaned() {
                // Nothing comes in here any more, and a shutdown does not know of it.
                drop(record);
                self.stop.wait_until(clock, pause);
                return None;
            }
            if clock.has_passed(pause) || self.stop.is_stopped() {
                return None;
            }
            record = clock.wait_until(&self.place.record, record, pause);
        }
    }
}
