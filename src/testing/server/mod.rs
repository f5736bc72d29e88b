//! The fixture server: recordings replayed over real HTTP on a loopback port, with faults on
//! request.

mod connection;
mod faults;
mod history;
mod matching;
mod pace;
mod place;
mod single;
mod tls;

use std::time::Instant;

use rustls::crypto::CryptoProvider;

use self::matching::Book;
use self::pace::{Gate, Pace};
use super::http1::Request;
use super::recording::{Exchange, Recording};
use super::service::Service;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Monitor, Mutex};

pub use self::faults::{Act, Fault};
pub use self::pace::{Speed, Step};

/// A server that replays recordings of an API server, over real HTTP/1.1 on a loopback socket.
///
/// A request gets the first unused recorded answer to the same verb, path and parameters. The order
/// of parameters and of the terms of a selector does not count. `resourceVersion`, `limit`,
/// `timeoutSeconds` and their like count only where the recording has them. A request without a
/// recorded answer gets a 404 that says what was asked and what the recording has. A recorded
/// refusal (status 400 and above) is repeated for each such request.
///
/// A get of one object that was not recorded is answered from the recorded lists and watches, up to
/// the present position of the replay. It gets the object, the API server's 404 while the object
/// does not exist, or the refusal that its list got. The position is that of the furthest piece
/// sent. In a recording with times, everything recorded before it counts as past, also on watches
/// that nobody has opened. With [`Speed::Times`] the position also moves between two pieces. The
/// state of an object before its first event follows from that event.
///
/// Such a get with the version `""` or `0` asks for the present state. Any other version asks for a
/// state that is not older: the answer is the API server's 504 while the replay has not reached it.
/// A recorded get goes first, once the replay is at most a second of recorded time before it.
///
/// Each connection is a thread with this server as its owner; dropping the server ends and joins
/// them all.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::clock::Clock;
/// use kubecache::http::{Client, ClientOptions, Config};
/// use kubecache::manager::{SecretManager, ManagerOptions};
/// use kubecache::testing::{Answer, End, Exchange, FixtureServer, Recording, objects};
/// use std::time::Duration;
///
/// // What the server has: one Secret, and an update of it half a second after the watch is opened.
/// const SECRETS: &str = "/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Ddb";
/// let first = objects::secret("shop", "db", "7", &[("password", "made-up")]);
/// let second = objects::secret("shop", "db", "8", &[("password", "another")]);
/// let list = Answer::list("7", &[first])?;
/// let watch = Answer::new(200)
///     .modified(Duration::from_millis(500), &second)?
///     .ending(End::Open, Duration::ZERO);
/// let recording = Recording::new()
///     .with(Exchange::get(SECRETS, list))
///     .with(Exchange::get(&format!("{SECRETS}&watch=true"), watch));
/// // Everything comes at once: tests do not wait.
/// let server = FixtureServer::replaying(recording).start()?;
///
/// // Your agent: what it does with a pod, and what it then reads.
/// let client = Client::new(&Config::for_server(&server.url())?, ClientOptions::default())?;
/// let secrets = SecretManager::new(client, ManagerOptions::default())?;
/// let changes = secrets.subscribe();
/// secrets.register_pod(&objects::pod("shop", "web-0", "node-1", &["db"], &[]));
/// let soon = Clock::system().after(Duration::from_secs(60));
/// while secrets.get_by("shop", "db", soon)?.data.as_ref().unwrap()["password"].0 != b"another" {
///     changes.signal().recv()?;
/// }
/// assert!(server.unused().is_empty(), "it has listed and watched");
/// # }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FixtureServer {
    service: Service,
    shared: Arc<Shared>,
}

/// The options of a [`FixtureServer`] before it starts.
#[derive(Debug)]
pub struct FixtureServerBuilder {
    recordings: Vec<Recording>,
    faults: Vec<Fault>,
    speed: Speed,
    clock: Clock,
    port: u16,
    endless: bool,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// What the connections share.
#[derive(Debug)]
struct Shared {
    book: Mutex<Book>,
    faults: Mutex<Vec<Fault>>,
    log: Arc<Monitor<Vec<Received>>>,
    pace: Pace,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// A request that the server received. Its `Debug` prints no header.
#[derive(Clone)]
pub struct Received {
    request: Request,
    at: Instant,
    answered: Answered,
}

/// How the server answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answered {
    /// A recorded answer.
    Recorded,
    /// An answer to a get of one object, made of what the recording has of that object.
    Derived,
    /// 404: nothing is recorded for it, or no more.
    Unmatched,
    /// A fault took the answer's place.
    Fault,
}

impl FixtureServer {
    /// Makes a server that replays `recording`. Without [`speed`](FixtureServerBuilder::speed) it
    /// sends everything at once.
    pub fn replaying(recording: Recording) -> FixtureServerBuilder {
        FixtureServerBuilder {
            recordings: vec![recording],
            faults: Vec::new(),
            speed: Speed::default(),
            clock: Clock::system(),
            port: 0,
            endless: false,
            tls: None,
        }
    }

    /// The loopback address and port on which it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.service.address()
    }

    /// The address as a URL, for a client's configuration: `http://127.0.0.1:…`, or `https`.
    pub fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address())
    }

    /// The requests that came so far, in order.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.log.lock().clone()
    }

    /// Blocks until `enough` says yes to the requests so far, or until `deadline`. Returns whether
    /// it said yes.
    pub fn wait_for_requests(
        &self,
        deadline: Deadline,
        enough: impl Fn(&[Received]) -> bool,
    ) -> bool {
        let clock = &self.shared.pace.clock;
        let mut received = self.shared.log.lock();
        loop {
            if enough(&received) {
                return true;
            }
            if clock.has_passed(deadline) {
                return false;
            }
            received = clock.wait_until(&self.shared.log, received, deadline);
        }
    }

    /// Lets the piece of a watch pass that was recorded earliest of those whose turn it is, and
    /// says what it was.
    ///
    /// Blocks until there is one, at most until `deadline`: then `None`. Only with
    /// [`Speed::Stepped`].
    pub fn step(&self, deadline: Deadline) -> Option<Step> {
        let pace = &self.shared.pace;
        pace.gate.step(&pace.clock, deadline)
    }

    /// Blocks until so many answers wait for a [`step`](Self::step), or until `deadline`. Returns
    /// whether they do.
    pub fn wait_for_steps(&self, count: usize, deadline: Deadline) -> bool {
        let pace = &self.shared.pace;
        pace.gate.gathered(count, &pace.clock, deadline)
    }

    /// Adds a fault, for requests from now on.
    pub fn add_fault(&self, fault: Fault) {
        self.shared.faults.lock().push(fault);
    }

    /// The recorded exchanges that no request has used yet.
    pub fn unused(&self) -> Vec<Arc<Exchange>> {
        self.shared.book.lock().unused()
    }

    /// Ends every connection, at once; returns when all threads have ended. Dropping does the same.
    pub fn stop(self) {
        self.service.stop();
    }
}

impl FixtureServerBuilder {
    /// Adds another recording, whose answers come after those of the recordings before it.
    #[must_use]
    pub fn and(mut self, recording: Recording) -> Self {
        self.recordings.push(recording);
        self
    }

    /// Sets how fast the replay goes; the default is [`Speed::AtOnce`].
    #[must_use]
    pub fn speed(mut self, speed: Speed) -> Self {
        self.speed = speed;
        self
    }

    /// Sets the clock of all waits; with a fake one, recorded time passes when a test advances it.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Adds a fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Sets the port; the default, 0, is a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Goes on behind the end of the recording, for demonstrations: a watch that was recorded opens
    /// again and stays silent, another request gets its last answer once more. The default is a
    /// 404, which a test will notice.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    /// Speaks TLS with these certificates (a chain, the server's own first) and their key, both in
    /// PEM.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when they cannot be used; the message says which of them and why.
    pub fn tls(
        mut self,
        certificates: &[u8],
        key: &[u8],
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        self.tls = Some(tls::configuration(certificates, key, provider)?);
        Ok(self)
    }

    /// Listens and serves from now on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a speed that is not above zero; [`ErrorKind::Resources`] when the
    /// system has no socket, port or thread to give.
    pub fn start(self) -> Result<FixtureServer, Error> {
        if let Speed::Times(factor) = self.speed
            && !(factor.is_finite() && factor > 0.0)
        {
            let message = format!("the speed of a replay is above zero, not {factor}");
            return Err(Error::new(ErrorKind::Config, message));
        }
        let shared = Arc::new(Shared {
            book: Mutex::new(Book::new(self.recordings, self.endless)),
            faults: Mutex::new(self.faults),
            log: Arc::new(Monitor::new(Vec::new())),
            pace: Pace {
                speed: self.speed,
                clock: self.clock,
                gate: Gate::new(),
            },
            tls: self.tls,
        });
        let handler = Arc::<Shared>::clone(&shared);
        let service = Service::spawn("fixture", self.port, handler).map_err(|error| {
            Error::new(
                ErrorKind::Resources,
                format!("starting the fixture server: {error}"),
            )
            .with_source(error)
        })?;
        Ok(FixtureServer { service, shared })
    }
}

impl Shared {
    fn received(&self, request: &Request, at: Instant, answered: Answered) {
        let received = Received {
            request: request.clone(),
            at,
            answered,
        };
        self.log.lock().push(received);
        self.log.notify_all();
    }
}

impl Received {
    /// The verb.
    pub fn method(&self) -> &str {
        &self.request.method
    }

    /// The path, percent-encoding resolved.
    pub fn path(&self) -> &str {
        &self.request.target.path
    }

    /// The value of a query parameter.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.request.target.value(name)
    }

    /// Whether it opens a watch.
    pub fn is_watch(&self) -> bool {
        self.request.target.is_watch()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.request.header(name)
    }

    /// When the request came, on the server's clock.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// How it was answered.
    pub fn answered(&self) -> Answered {
        self.answered
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} ({:?})",
            self.request.method, self.request.target, self.answered
        )
    }
}

#[cfg(test)]
mod tests;
