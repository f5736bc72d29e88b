//! The client's end of a watch of the fake server.

use std::time::Instant;

use crate::clock::{Clock, Deadline};
use crate::error::Error;
use crate::list_watch::{Next, WatchStream};
use crate::object::{Object, Scope};
use crate::sync::{Arc, Monitor};
use crate::worker::{StopToken, Wake, WakeRegistration};

use super::server::Server;

/// The client's end of a watch.
pub(super) struct Stream<K: Object> {
    pub(super) server: Arc<Monitor<Server<K>>>,
    pub(super) clock: Clock,
    pub(super) scope: Scope,
    pub(super) id: u64,
    pub(super) deadline: Deadline,
    pub(super) stop: StopToken,
    pub(super) last_contact: Instant,
    /// Wakes `next` at a stop, while this lives.
    pub(super) _registration: WakeRegistration,
}

impl<K: Object> WatchStream<K> for Stream<K> {
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        let clock = &self.clock;
        let mut server = self.server.lock();
        let end = if server.is_silent(self.id) {
            Deadline::NEVER
        } else {
            self.deadline
        };
        loop {
            if self.stop.is_stopped() {
                return Err(Error::stopped("a watch"));
            }
            if let Some(next) = server.due(self.id, &self.scope) {
                self.last_contact = clock.now();
                return Ok(next);
            }
            if clock.has_passed(end) {
                return Ok(Next::Ended(None));
            }
            if clock.has_passed(deadline) {
                if server.trickles(self.id) {
                    self.last_contact = clock.now();
                }
                return Ok(Next::DeadlinePassed);
            }
            let until = deadline.earlier(end);
            server = clock.wait_until(&self.server, server, until);
        }
    }

    fn last_contact(&self) -> Instant {
        self.last_contact
    }
}

impl<K: Object> Drop for Stream<K> {
    fn drop(&mut self) {
        self.server.lock().close(self.id);
        self.server.notify_all();
    }
}

/// Wakes threads that wait for the fake server, so that they check their stop.
pub(super) fn waker<K: Object>(server: &Arc<Monitor<Server<K>>>) -> Arc<dyn Wake> {
    Arc::new(WakeServer(Arc::clone(server)))
}

struct WakeServer<K: Object>(Arc<Monitor<Server<K>>>);

impl<K: Object> Wake for WakeServer<K> {
    fn wake(&self) {
        // Taking the mutex first closes the gap between a waiter's check of its stop and its wait.
        drop(self.0.lock());
        self.0.notify_all();
    }
}
