//! Name lookup on a thread of its own, so that waiting for it can be stopped; concurrent lookups of a host share one.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use super::blocking::Blocking;
use super::halt::Halt;
use super::handover::{Giver, Taker, handover};

use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Mutex};
use crate::worker::Worker;

/// The system's resolver, or a test's.
pub(crate) trait Lookup: Send + Sync {
    fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

impl<F> Lookup for F
where
    F: Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync,
{
    fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self(host, port)
    }
}

/// getaddrinfo(3).
#[derive(Debug)]
pub(crate) struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        (host, port).to_socket_addrs().map(Iterator::collect)
    }
}

type Answer = Result<Vec<SocketAddr>, Error>;

/// Looks names up on at most one thread, which lives while there is something to look up.
pub(crate) struct Resolver {
    shared: Arc<Shared>,
    threads: Mutex<Vec<Worker>>,
}

struct Shared {
    lookup: Arc<dyn Lookup>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The front one is being looked up by the thread, if it runs.
    pending: VecDeque<Pending>,
    running: bool,
}

struct Pending {
    host: String,
    port: u16,
    waiters: Vec<Giver<Answer>>,
}

impl Resolver {
    pub(crate) fn new(lookup: Arc<dyn Lookup>) -> Self {
        let shared = Shared {
            lookup,
            state: Mutex::new(State::default()),
        };
        Self {
            shared: Arc::new(shared),
            threads: Mutex::new(Vec::new()),
        }
    }

    /// The addresses of `host`; needs no thread when it is an address.
    ///
    /// # Errors
    ///
    /// The stop, the limit of the connect, or what the system's resolver says.
    pub(crate) fn resolve(
        &self,
        host: &str,
        port: u16,
        call: &Blocking,
    ) -> Result<Vec<SocketAddr>, Halt> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let answer = self.ask(host, port).map_err(Halt::Failed)?;
        answer.take_one(call)?.map_err(Halt::Failed)
    }

    fn ask(&self, host: &str, port: u16) -> Result<Taker<Answer>, Error> {
        let (reply, answer) = handover(1);
        let start = {
            let mut state = self.shared.state.lock();
            state.add(host, port, reply);
            !std::mem::replace(&mut state.running, true)
        };
        if start {
            self.start()?;
        }
        Ok(answer)
    }

    fn start(&self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let spawned = Worker::spawn("resolver", move |_| shared.run());
        match spawned {
            Ok(worker) => {
                let ended: Vec<Worker> = {
                    let mut threads = self.threads.lock();
                    let all = std::mem::take(&mut *threads).into_iter();
                    let (ended, rest) = all.partition(Worker::is_finished);
                    *threads = rest;
                    threads.push(worker);
                    ended
                };
                drop(ended);
                Ok(())
            }
            Err(error) => {
                let mut state = self.shared.state.lock();
                state.running = false;
                state.pending.clear();
                Err(Error::new(
                    ErrorKind::Resources,
                    format!("no thread for a name lookup: {error}"),
                ))
            }
        }
    }
}

impl State {
    fn add(&mut self, host: &str, port: u16, reply: Giver<Answer>) {
        let same = |pending: &&mut Pending| pending.host == host && pending.port == port;
        if let Some(pending) = self.pending.iter_mut().find(same) {
            // A lookup may hang for longer than all who asked for it.
            pending.waiters.retain(Giver::is_wanted);
            pending.waiters.push(reply);
        } else {
            self.pending.push_back(Pending {
                host: host.to_owned(),
                port,
                waiters: vec![reply],
            });
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Some((host, port)) = self.next() {
            let answer = self.answer(&host, port);
            let waiters = {
                let mut state = self.state.lock();
                state.pending.pop_front().map(|pending| pending.waiters)
            };
            for waiter in waiters.into_iter().flatten() {
                // A waiter that is gone needs no answer.
                waiter.give(answer.clone(), None);
            }
        }
    }

    fn next(&self) -> Option<(String, u16)> {
        let mut state = self.state.lock();
        let front = state.pending.front();
        let next = front.map(|pending| (pending.host.clone(), pending.port));
        state.running = next.is_some();
        next
    }

    fn answer(&self, host: &str, port: u16) -> Answer {
        let unknown = |why: String| {
            let message = format!("looking up {host}: {why}");
            Err(Error::new(ErrorKind::Unreachable, message))
        };
        match self.lookup.lookup(host, port) {
            Ok(addresses) if addresses.is_empty() => unknown("the name has no address".to_owned()),
            Ok(addresses) => Ok(addresses),
            Err(error) => unknown(error.to_string()),
        }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if !thread.is_finished() {
                log::debug!("a name lookup is still under way: its thread ends with it");
                thread.abandon();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossbeam_channel::{Receiver, Sender, bounded};

    use super::super::blocking::Until;
    use super::super::halt::Limit;
    use super::super::wakeup::WakeUp;
    use super::*;
    use crate::sync::atomic::{AtomicUsize, Ordering};
    use crate::worker::StopSource;

    /// Answers when the test says so.
    struct Gate {
        begun: Sender<()>,
        open: Receiver<()>,
        count: AtomicUsize,
    }

    /// The gate, what tells of each lookup that begins, and what lets one go on.
    fn gate() -> (Arc<Gate>, Receiver<()>, Sender<()>) {
        let (begun, started) = bounded(9);
        let (go_on, open) = bounded(9);
        let count = AtomicUsize::new(0);
        (Arc::new(Gate { begun, open, count }), started, go_on)
    }

    impl Lookup for Gate {
        fn lookup(&self, _host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            self.count.fetch_add(1, Ordering::SeqCst);
            self.begun.send(()).unwrap();
            self.open.recv().unwrap();
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        }
    }

    fn call(source: &StopSource, until: Until) -> Blocking {
        Blocking::new(&source.token(), &WakeUp::new().unwrap(), until)
    }

    #[test]
    fn lookups_of_one_host_share_one_and_a_stop_ends_the_wait_for_it() {
        let (gate, started, open) = gate();
        let resolver = Resolver::new(Arc::<Gate>::clone(&gate));
        let first = resolver.ask("api.test", 6443).unwrap();
        started.recv().unwrap();
        let second = resolver.ask("api.test", 6443).unwrap();
        let source = StopSource::new();
        source.stop();
        let stopped = resolver.resolve("api.test", 6443, &call(&source, Until::NEVER));
        assert!(matches!(stopped, Err(Halt::Stopped)));
        open.send(()).unwrap();
        let waiting = call(&StopSource::new(), Until::NEVER);
        assert_eq!(first.take_one(&waiting).unwrap().unwrap().len(), 1);
        assert_eq!(second.take_one(&waiting).unwrap().unwrap().len(), 1);
        assert_eq!(gate.count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn waiters_that_went_are_forgotten_while_a_lookup_hangs() {
        let (gate, started, open) = gate();
        let resolver = Resolver::new(gate);
        let kept = resolver.ask("api.test", 1).unwrap();
        started.recv().unwrap();
        for _ in 0..100 {
            drop(resolver.ask("api.test", 1).unwrap());
        }
        let waiters = resolver.shared.state.lock().pending[0].waiters.len();
        assert!(waiters <= 2, "{waiters}");
        open.send(()).unwrap();
        let waiting = call(&StopSource::new(), Until::NEVER);
        assert_eq!(kept.take_one(&waiting).unwrap().unwrap().len(), 1);
    }

    #[test]
    fn a_limit_ends_the_wait_and_dropping_the_resolver_does_not_wait_for_a_stuck_lookup() {
        let (gate, started, open) = gate();
        let resolver = Resolver::new(gate);
        let limit = Duration::from_millis(1);
        let until = Until::NEVER.within(limit, Limit::Connect);
        let late = resolver.resolve("api.test", 1, &call(&StopSource::new(), until));
        assert!(matches!(late, Err(Halt::Limit(Limit::Connect(_)))));
        started.recv().unwrap();
        drop(resolver);
        open.send(()).unwrap();
    }

    #[test]
    fn an_address_needs_no_lookup() {
        let (gate, ..) = gate();
        let resolver = Resolver::new(gate);
        let call = call(&StopSource::new(), Until::NEVER);
        for host in ["127.0.0.1", "::1"] {
            let found = resolver.resolve(host, 7, &call).unwrap();
            assert_eq!(found[0].ip().to_string(), host);
        }
    }
}
