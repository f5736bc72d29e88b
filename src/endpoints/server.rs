//! The server of endpoints: one thread that accepts, reads and answers, and sleeps in poll(2)
//! between.

use std::io::{self, ErrorKind as Io};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::exchange::HttpExchange;
use super::table::Table;
use crate::clock::{Clock, later};
use crate::error::{Error, ErrorKind};
use crate::failures::{FailureLog, FailureReporter};
use crate::sync::{Arc, atomic::Ordering};
use crate::worker::{StopToken, Wake, WakeUp};

/// The most clients at a time: a kubelet, a scraper, a person. One more replaces another.
pub(super) const CLIENTS_MAX: usize = 16;
/// The wait before the next accept if the system has no descriptor. The waiting client keeps the
/// listener readable meanwhile.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// What the thread of endpoints serves.
pub(super) struct EndpointsServer {
    listener: TcpListener,
    table: Arc<Table>,
    /// Oldest first.
    clients: Vec<HttpExchange<TcpStream>>,
    /// After a failure: the time of the next accept.
    accepts_from: Option<Instant>,
    log: FailureReporter,
}

impl EndpointsServer {
    pub(super) fn new(listener: TcpListener, table: Arc<Table>) -> Self {
        Self {
            listener,
            table,
            clients: Vec::new(),
            accepts_from: None,
            log: FailureLog::default().reporter("kubecache::endpoints", "", "endpoints", "clients"),
        }
    }

    /// Serves until the stop, then frees the port.
    pub(super) fn run(mut self, stop: &StopToken) {
        let clock = Clock::system();
        let bell: Arc<dyn Wake> = Arc::<WakeUp>::clone(&self.table.bell);
        let _registration = stop.register(&bell);
        while !stop.is_stopped() {
            let ready = match self.wait(clock.now()) {
                Ok(ready) => ready,
                Err(error) if error.kind() == Io::Interrupted => continue,
                Err(error) => {
                    log::error!("the endpoints end: poll: {error}");
                    break;
                }
            };
            // Before the look at what rang, so that no ring is lost.
            self.table.bell.clear();
            let now = clock.now();
            self.serve(&ready, now);
            self.accepts_from = self.accepts_from.filter(|from| *from > now);
            if self.accepts() {
                self.accept(now);
            }
        }
        // A child has the listener, too, from fork to exec.
        let _closed = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }

    /// Blocks until a client connects, sends, takes or is late, a call ends, or the stop is raised.
    /// Returns which clients' sockets have something to say.
    fn wait(&self, now: Instant) -> io::Result<Vec<bool>> {
        let mut descriptors = vec![PollFd::new(&*self.table.bell, PollFlags::IN)];
        let clients = self.clients.iter();
        descriptors.extend(clients.map(|client| PollFd::new(&client.socket, client.events())));
        let listener = self.accepts().then_some(&self.listener);
        descriptors.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
        let ends = self.clients.iter().map(|client| client.until);
        let next = ends.chain(self.accepts_from).min();
        let timeout = next.map(|at| at.saturating_duration_since(now));
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        poll(&mut descriptors, timeout.as_ref())?;
        let clients = descriptors.iter().skip(1);
        Ok(clients.map(|at| !at.revents().is_empty()).collect())
    }

    fn serve(&mut self, ready: &[bool], now: Instant) {
        let mut ready = ready.iter();
        let table = &*self.table;
        self.clients.retain_mut(|client| {
            let is_ready = ready.next().is_some_and(|ready| *ready);
            // The socket of a client that waits for its answer is ready only if it broke.
            match (client.events().is_empty(), is_ready) {
                (true, true) => false,
                (false, false) => client.until > now,
                (true, false) | (false, true) => client.go_on(table, now),
            }
        });
    }

    fn accepts(&self) -> bool {
        self.accepts_from.is_none() && self.table.is_served.load(Ordering::SeqCst)
    }

    fn accept(&mut self, now: Instant) {
        // Clients that connect without end must not keep the thread.
        for _ in 0..CLIENTS_MAX {
            let accepted = self.listener.accept();
            let accepted =
                accepted.and_then(|(socket, _)| socket.set_nonblocking(true).map(|()| socket));
            match accepted {
                Ok(socket) => {
                    self.log.recovered();
                    if self.clients.len() >= CLIENTS_MAX {
                        // The oldest of the lowest rank.
                        let ranks = self.clients.iter().map(HttpExchange::rank);
                        let least = ranks.enumerate().min_by_key(|(_, rank)| *rank);
                        drop(self.clients.remove(least.map_or(0, |(at, _)| at)));
                    }
                    self.clients.push(HttpExchange::new(socket, now));
                }
                Err(error) if error.kind() == Io::WouldBlock => return,
                // They concern one client, or one call: the next may be tried at once.
                Err(error) if matches!(error.kind(), Io::ConnectionAborted | Io::Interrupted) => {}
                Err(error) => {
                    let text = format!("a client could not be taken: {error}");
                    self.log
                        .failed(&Error::new(ErrorKind::Resources, text), now);
                    self.accepts_from = Some(later(now, EXHAUSTED_PAUSE));
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use log::Level;
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::super::EndpointsOptions;
    use super::*;

    /// A process without a free descriptor filled the log ten times a second.
    #[test]
    fn clients_that_cannot_be_taken_are_told_once() {
        // A socket that does not listen accepts nobody.
        let deaf: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let table = Table::new(WakeUp::new().unwrap(), EndpointsOptions::default());
        let mut server = EndpointsServer::new(deaf.into(), Arc::new(table));
        let mut now = Clock::system().now();
        for _ in 0..50 {
            server.accept(now);
            now = later(now, EXHAUSTED_PAUSE);
        }
        let told = server.log.recovered().unwrap();
        assert_eq!(
            (told.level, told.failures, told.left_out),
            (Level::Info, 50, 49)
        );
    }
}
