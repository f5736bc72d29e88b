//! The endpoints' server: one thread that accepts, reads and answers, and sleeps in poll(2)
//! between.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubecache::clock::Clock;
use kubecache::worker::{StopToken, Wake, Worker};
use kubecache::{Error, ErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::exchange::{Exchange, Left, Pages};

/// Clients at a time: a kubelet, a scraper, somebody who looks. One more takes the place of the
/// oldest.
const CLIENTS_MAX: usize = 16;
/// Until descriptors are looked for again: who waits keeps the listener readable meanwhile.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// A listener that is served. Dropping it ends its thread at once, whatever its clients do.
pub(crate) struct Server {
    _thread: Worker,
}

impl Server {
    /// Serves `pages` to those who connect, on a thread called `name`.
    pub(crate) fn start(
        name: &str,
        listener: TcpListener,
        pages: impl Pages,
    ) -> Result<Self, Error> {
        let started = Bell::pair().and_then(|(bell, heard)| {
            Worker::spawn(name, move |stop| {
                let wake: Arc<dyn Wake> = bell;
                let _registration = stop.register(&wake);
                Serving {
                    listener,
                    heard,
                    pages: Box::new(pages),
                    clients: Vec::new(),
                    accepts_from: None,
                }
                .run(stop);
            })
        });
        let thread = started.map_err(|error| {
            Error::new(ErrorKind::Resources, "starting the endpoints' thread").with_source(error)
        })?;
        Ok(Self { _thread: thread })
    }
}

/// Wakes a thread out of its poll.
pub(crate) struct Bell(UnixStream);

impl Bell {
    /// The bell, and what its ring makes readable.
    pub(crate) fn pair() -> io::Result<(Arc<Self>, UnixStream)> {
        let (ring, heard) = UnixStream::pair()?;
        ring.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok((Arc::new(Self(ring)), heard))
    }
}

impl Wake for Bell {
    fn wake(&self) {
        // A full pipe has woken it already.
        let _rung = (&self.0).write(&[1]);
    }
}

struct Serving {
    listener: TcpListener,
    heard: UnixStream,
    pages: Box<dyn Pages>,
    /// Oldest first.
    clients: Vec<Exchange<TcpStream>>,
    /// After a failure: when the next client is looked for.
    accepts_from: Option<Instant>,
}

impl Serving {
    fn run(mut self, stop: &StopToken) {
        let clock = Clock::system();
        while !stop.is_stopped() {
            let ready = match self.wait(clock.now()) {
                Ok(ready) => ready,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    log::error!("the endpoints end: poll: {error}");
                    return;
                }
            };
            let mut rung = [0; 64];
            while matches!((&self.heard).read(&mut rung), Ok(count) if count > 0) {}
            let now = clock.now();
            self.serve(&ready, now);
            self.accepts_from = self.accepts_from.filter(|from| *from > now);
            if self.accepts_from.is_none() {
                self.accept(now);
            }
        }
    }

    /// Blocks until somebody connects, sends, takes, is late, or the stop is raised; says which
    /// clients can go on.
    fn wait(&self, now: Instant) -> io::Result<Vec<bool>> {
        let arrivals = match self.accepts_from {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let mut descriptors = vec![
            PollFd::new(&self.heard, PollFlags::IN),
            PollFd::new(&self.listener, arrivals),
        ];
        descriptors.extend(self.clients.iter().map(|client| {
            let wanted = if client.is_writing() {
                PollFlags::OUT
            } else {
                PollFlags::IN
            };
            PollFd::new(client.socket(), wanted)
        }));
        let ends = self.clients.iter().map(Exchange::until);
        let next = ends.chain(self.accepts_from).min();
        let timeout = next.and_then(|at| {
            let left = at.saturating_duration_since(now);
            Timespec::try_from(left).ok()
        });
        poll(&mut descriptors, timeout.as_ref())?;
        let clients = descriptors.iter().skip(2);
        Ok(clients.map(|at| !at.revents().is_empty()).collect())
    }

    fn serve(&mut self, ready: &[bool], now: Instant) {
        let mut ready = ready.iter();
        let pages = &*self.pages;
        self.clients.retain_mut(|client| {
            let ready = ready.next().is_some_and(|ready| *ready);
            let left = if ready {
                client.go_on(pages, now)
            } else {
                Left::More
            };
            left == Left::More && client.until() > now
        });
    }

    fn accept(&mut self, now: Instant) {
        // Who connects without end must not have the thread for itself.
        for _ in 0..CLIENTS_MAX {
            let accepted = self.listener.accept().and_then(|(socket, _)| {
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            match accepted {
                Ok(socket) => {
                    if self.clients.len() >= CLIENTS_MAX {
                        drop(self.clients.remove(0));
                    }
                    self.clients.push(Exchange::new(socket, now));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if passes(&error) => {}
                Err(error) => {
                    log::warn!("the endpoints: a client could not be taken: {error}");
                    self.accepts_from = now.checked_add(EXHAUSTED_PAUSE);
                    return;
                }
            }
        }
    }
}

/// Whether it is about one client, or one call, and the next may be tried at once.
fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::exchange::{Asked, Page};

    struct Hello;

    impl Pages for Hello {
        fn answer(&self, _asked: Asked<'_>) -> Page {
            Page::text(200, "hello")
        }
    }

    fn start() -> (Server, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (Server::start("t-serve", listener, Hello).unwrap(), address)
    }

    fn get(address: SocketAddr) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn clients_that_say_nothing_keep_nobody_out_and_hold_up_no_end() {
        let (server, address) = start();
        let mut idle: Vec<_> = (0..CLIENTS_MAX + 3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        idle[CLIENTS_MAX].write_all(b"GET / HT").unwrap();
        for _ in 0..50 {
            assert!(get(address).ends_with("\r\n\r\nhello"));
        }
        // The oldest had to go.
        assert_eq!(idle[0].read(&mut [0; 8]).unwrap_or(0), 0);
        drop(server);
        assert_eq!(idle[CLIENTS_MAX].read(&mut [0; 8]).unwrap_or(0), 0);
        // The port is free again.
        drop(TcpListener::bind(address).unwrap());
    }
}
