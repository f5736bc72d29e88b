//! Name lookup whose wait a stop can end. Concurrent lookups of a host share one.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::super::calls::call_context::CallContext;
use super::super::calls::channel::ItemReceiver;
use super::super::calls::helper_threads::HelperThreads;
use super::super::calls::interrupt::Interrupt;
use crate::error::{Error, ErrorKind};
use crate::jobs::JobKind;
use crate::sync::Arc;

/// The system's resolver, or a test's.
pub(crate) type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// getaddrinfo(3).
pub(crate) fn system_lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    (host, port).to_socket_addrs().map(Iterator::collect)
}

/// The maximum of concurrent lookups of a client, stuck ones included.
const THREADS_MAX: usize = 4;

/// A lookup is tried again beside one that has hung for this long.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Looks names up on helper threads.
pub(crate) struct Resolver {
    lookup: Arc<Lookup>,
    helpers: HelperThreads<Vec<SocketAddr>>,
}

impl Resolver {
    pub(crate) fn new(lookup: Box<Lookup>) -> Self {
        Self {
            lookup: lookup.into(),
            helpers: HelperThreads::new("resolver", THREADS_MAX, STUCK_AFTER, JobKind::Hang),
        }
    }

    /// Returns the addresses of `host`. Needs no thread when `host` is an address. Blocks within
    /// the limits of `call`.
    ///
    /// # Errors
    ///
    /// The stop, the limit of the connect, or the error of the system's resolver.
    pub(crate) fn resolve(
        &self,
        host: &str,
        port: u16,
        call: &CallContext,
    ) -> Result<Vec<SocketAddr>, Interrupt> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        self.start_lookup(host, port).result(call)
    }

    fn start_lookup(&self, host: &str, port: u16) -> ItemReceiver<Result<Vec<SocketAddr>, Error>> {
        let (lookup, host) = (Arc::clone(&self.lookup), host.to_owned());
        // One resolver asks for one server: its port is always the same.
        let name = format!("looking up {host}");
        self.helpers.run(&name.clone(), move || {
            let why = match lookup(&host, port) {
                Ok(addresses) if !addresses.is_empty() => return Ok(addresses),
                Ok(_) => io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
                Err(error) if may_pass(&error) => error,
                Err(error) => io::Error::new(io::ErrorKind::NotFound, error),
            };
            Err(Error::new(ErrorKind::Unreachable, format!("{name}: {why}")).with_source(why))
        })
    }
}

/// Whether another lookup may find the name: the system's error, or `EAI_AGAIN`, which `std` shows
/// only in the words of glibc or musl.
fn may_pass(error: &io::Error) -> bool {
    let text = error.to_string();
    let again = ["Temporary failure in name resolution", "Try again"];
    error.raw_os_error().is_some() || again.iter().any(|words| text.ends_with(words))
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, bounded};

    use super::*;
    use crate::http::calls::call_context::NamedDeadline;
    use crate::http::calls::interrupt::Limit;
    use crate::sync::atomic::{AtomicUsize, Ordering};
    use crate::worker::StopSource;

    /// Answers when the test says so.
    struct Gate {
        begun: Sender<()>,
        open: Receiver<()>,
        count: AtomicUsize,
    }

    /// The gate, the receiver of each lookup's begin, and the sender that lets one go on.
    fn gate() -> (Arc<Gate>, Receiver<()>, Sender<()>) {
        let (begun, started) = bounded(9);
        let (go_on, open) = bounded(9);
        let count = AtomicUsize::new(0);
        (Arc::new(Gate { begun, open, count }), started, go_on)
    }

    impl Gate {
        fn lookup(self: &Arc<Self>) -> Box<Lookup> {
            let gate = Arc::clone(self);
            Box::new(move |_, port| {
                gate.count.fetch_add(1, Ordering::SeqCst);
                gate.begun.send(()).unwrap();
                gate.open.recv().unwrap();
                Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
            })
        }
    }

    fn call(source: &StopSource, until: NamedDeadline) -> CallContext {
        CallContext::new(&source.token(), until).unwrap()
    }

    #[test]
    fn lookups_of_one_host_share_one_and_a_stop_ends_the_wait_for_it() {
        let (gate, started, open) = gate();
        let resolver = Resolver::new(gate.lookup());
        let first = resolver.start_lookup("api.test", 1);
        started.recv().unwrap();
        let second = resolver.start_lookup("api.test", 1);
        let source = StopSource::new();
        source.stop();
        let stopped = resolver.resolve("api.test", 1, &call(&source, NamedDeadline::NEVER));
        assert!(matches!(stopped, Err(Interrupt::Stopped)));
        open.send(()).unwrap();
        let waiting = call(&StopSource::new(), NamedDeadline::NEVER);
        assert_eq!(first.result(&waiting).unwrap().len(), 1);
        assert_eq!(second.result(&waiting).unwrap().len(), 1);
        assert_eq!(gate.count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_limit_ends_the_wait_and_dropping_the_resolver_does_not_wait_for_a_stuck_lookup() {
        let (gate, started, open) = gate();
        let resolver = Resolver::new(gate.lookup());
        let limit = Duration::from_millis(1);
        let until = NamedDeadline::NEVER.within(limit, Limit::Connect);
        let late = resolver.resolve("api.test", 1, &call(&StopSource::new(), until));
        assert!(matches!(late, Err(Interrupt::Limit(Limit::Connect(_)))));
        started.recv().unwrap();
        drop(resolver);
        open.send(()).unwrap();
    }

    fn soon() -> NamedDeadline {
        NamedDeadline::NEVER.within(Duration::from_secs(20), Limit::Connect)
    }

    /// F21: one name that hangs holds up no other.
    #[test]
    fn a_stuck_lookup_does_not_hold_up_another_name() {
        let (stuck, gate) = bounded::<()>(0);
        let lookup = move |host: &str, port: u16| {
            if host == "stuck.test" {
                let _open = gate.recv();
            }
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        };
        let resolver = Resolver::new(Box::new(lookup));
        let waiting = resolver.start_lookup("stuck.test", 1);
        let found = resolver.resolve("api.test", 2, &call(&StopSource::new(), soon()));
        assert_eq!(found.unwrap().len(), 1);
        drop(stuck);
        let waiting = waiting.result(&call(&StopSource::new(), NamedDeadline::NEVER));
        assert_eq!(waiting.unwrap().len(), 1);
    }

    /// F21: a lookup of the program's own that panics is an error of that lookup.
    #[test]
    fn a_lookup_that_panics_frees_the_resolver() {
        let lookup = |host: &str, port: u16| {
            assert_ne!(host, "bad.test");
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        };
        let resolver = Resolver::new(Box::new(lookup));
        let stop = StopSource::new();
        for _ in 0..2 {
            let error = match resolver.resolve("bad.test", 1, &call(&stop, soon())) {
                Err(Interrupt::Failed(error)) => error,
                other => panic!("{other:?}"),
            };
            assert_eq!(error.kind(), ErrorKind::Panicked, "{error}");
        }
        assert!(
            resolver
                .resolve("api.test", 1, &call(&stop, soon()))
                .is_ok()
        );
    }

    #[test]
    fn an_address_needs_no_lookup() {
        let (gate, ..) = gate();
        let resolver = Resolver::new(gate.lookup());
        let call = call(&StopSource::new(), NamedDeadline::NEVER);
        for host in ["127.0.0.1", "::1"] {
            let found = resolver.resolve(host, 7, &call).unwrap();
            assert_eq!(found[0].ip().to_string(), host);
        }
    }
}
