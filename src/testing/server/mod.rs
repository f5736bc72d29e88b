//! The fixture server: recordings replayed over real HTTP on a loopback port, with faults on
//! request.

mod history;
mod matching;
mod pace;
mod plain;
mod quiet;
mod replay;
mod single;

use rustls::crypto::CryptoProvider;

use self::matching::Book;
use self::pace::{Gate, StepPace};
use self::replay::Replay;
use super::http::{Fault, FaultId, HttpServer, Received, ServerOptions, ServerTls, TestAuthority};
use super::recording::{Exchange, Recording};
use crate::clock::{Clock, IntoDeadline};
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Mutex};

pub use self::pace::{Speed, Step};

/// A server that replays recordings of an API server, over real HTTP/1.1 on a loopback socket.
///
/// A request gets the first unused recorded answer to the same verb, path and parameters. The order
/// of parameters, and of a selector's terms, does not count. `resourceVersion`, `limit`,
/// `timeoutSeconds` and their like count only if the recording has them. A request without a
/// recorded answer gets a 404 with the question and the recorded ones. The server repeats a
/// recorded refusal (status 400 and above) for each such request.
///
/// The server answers an unrecorded plain list out of a recorded streamed one
/// (`sendInitialEvents`) that no request has used. The next watch of the same objects gets the
/// later events, in the recorded time; [`unused`](Self::unused) has the exchange until then. So a
/// recording of either way serves a client that lists plainly. A client that streams needs a
/// recorded stream.
///
/// The server answers an unrecorded get of one object from the recorded lists and watches, up to
/// the present position of the replay. The answer is the object, the API server's 404 while the
/// object does not exist, or the refusal of its list. The position is that of the furthest piece
/// sent. In a recording with times, everything recorded before it counts as past, even on watches
/// that no client has opened. With [`Speed::Times`] the position also moves between two pieces. The
/// state of an object before its first event follows from that event.
///
/// Such a get with the version `""` or `0` asks for the present state. Any other version asks for a
/// state that is not older; the answer is the API server's 504 until the replay has reached it. A
/// recorded get takes precedence once the replay is at most a second of recorded time before it.
///
/// A watch that the recording leaves open stays open. It has a bookmark each minute of the server's
/// clock if the client takes bookmarks. It has none if no event was recorded on it, since only an
/// event tells the kind, and none with [`Speed::Stepped`].
///
/// The server owns a thread per connection; dropping it ends and joins them all.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
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
/// let soon = Duration::from_secs(60);
/// while secrets.get_by("shop", "db", soon)?.data.as_ref().unwrap()["password"].0 != b"another" {
///     changes.signal().recv()?;
/// }
/// assert!(server.unused().is_empty(), "it has listed and watched");
/// # }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FixtureServer(HttpServer<Replay>);

/// The options of a [`FixtureServer`] before it starts.
#[derive(Debug)]
pub struct FixtureServerBuilder {
    recordings: Vec<Recording>,
    speed: Speed,
    endless: bool,
    options: ServerOptions,
}

impl FixtureServer {
    /// Makes a server that replays `recording`. Without [`speed`](FixtureServerBuilder::speed) it
    /// sends everything at once.
    pub fn replaying(recording: Recording) -> FixtureServerBuilder {
        FixtureServerBuilder {
            recordings: vec![recording],
            speed: Speed::default(),
            endless: false,
            options: ServerOptions::default(),
        }
    }

    /// Returns the loopback address and port on which it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.0.address()
    }

    /// Returns the address as a URL for a client's configuration: `http://127.0.0.1:…`, or `https`.
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// Returns the requests so far, in order: at least the last 50,000, unless their heads take
    /// more than 32 MiB.
    pub fn requests(&self) -> Vec<Received> {
        self.0.requests()
    }

    /// Blocks until `enough` accepts [`requests`](Self::requests), or until `deadline`. Returns
    /// whether it did.
    pub fn wait_for_requests(
        &self,
        deadline: impl IntoDeadline,
        enough: impl Fn(&[Received]) -> bool,
    ) -> bool {
        self.0.wait_for_requests(deadline, enough)
    }

    /// Sends the earliest recorded piece among the watches' next ones, and returns it.
    ///
    /// Blocks until there is one; `None` at `deadline`. Only with [`Speed::Stepped`].
    pub fn step(&self, deadline: impl IntoDeadline) -> Option<Step> {
        let deadline = deadline.into_deadline(&self.0.backend().pace.clock);
        let pace = &self.0.backend().pace;
        pace.gate.step(&pace.clock, deadline)
    }

    /// Blocks until `count` answers wait for a [`step`](Self::step), or until `deadline`. Returns
    /// whether they do.
    pub fn wait_for_steps(&self, count: usize, deadline: impl IntoDeadline) -> bool {
        let deadline = deadline.into_deadline(&self.0.backend().pace.clock);
        let pace = &self.0.backend().pace;
        pace.gate.gathered(count, &pace.clock, deadline)
    }

    /// Adds a fault, for connections and requests from now on. [`FAULTS`](super::FAULTS) lists all
    /// faults.
    pub fn add_fault(&self, fault: Fault) -> FaultId {
        self.0.add_fault(fault)
    }

    /// Removes a fault: no later connection or request meets it. Returns whether it existed. Its
    /// effects so far go on: a request that hangs does so until its client gives up.
    pub fn remove_fault(&self, id: FaultId) -> bool {
        self.0.faults().remove(id)
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.0.faults().clear();
    }

    /// Returns the present faults, in the order in which they were added.
    pub fn faults(&self) -> Vec<(FaultId, Fault)> {
        self.0.faults().list()
    }

    /// Closes the port and resets all connections, like a killed server. Returns when all threads
    /// have ended. The system then refuses connections until [`come_back`](Self::come_back).
    pub fn crash(&self) {
        self.0.crash();
    }

    /// Listens again on the same port, after a [`crash`](Self::crash). The replay goes on where it
    /// stood.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Resources`] when another process has the port by now, or the system refuses a
    /// thread.
    pub fn come_back(&self) -> Result<(), Error> {
        self.0.come_back()
    }

    /// Shows certificates of that authority to new connections from now on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the authority's provider does not sign.
    pub fn rotate_tls(&self, authority: &TestAuthority) -> Result<(), Error> {
        self.0.rotate_tls(ServerTls::of_authority(authority)?);
        Ok(())
    }

    /// Returns the recorded exchanges that no request has used yet.
    pub fn unused(&self) -> Vec<Arc<Exchange>> {
        self.0.backend().book.lock().unused()
    }

    /// Ends every connection at once. Returns when all threads have ended. A drop does the same.
    pub fn stop(self) {
        self.0.stop();
    }
}

impl FixtureServerBuilder {
    /// Adds another recording, whose answers come after those of the recordings before it.
    #[must_use]
    pub fn and(mut self, recording: Recording) -> Self {
        self.recordings.push(recording);
        self
    }

    /// Sets the speed of the replay. Default: [`Speed::AtOnce`].
    #[must_use]
    pub fn speed(mut self, speed: Speed) -> Self {
        self.speed = speed;
        self
    }

    /// Sets the clock of all waits. With a fake one, recorded time passes when a test advances it.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.options.clock = clock;
        self
    }

    /// Adds a fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.options.faults.push(fault);
        self
    }

    /// Sets the port. Default: 0, a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.options.port = port;
        self
    }

    /// Goes on after the end of the recording, for demonstrations: a recorded watch opens again and
    /// stays silent, and another request gets its last answer again. The default is a 404, which a
    /// test will notice.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    /// Makes the server speak TLS with these certificates (a chain, the server's own first) and
    /// their key, both in PEM.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when it cannot use them; the message says which one and why.
    pub fn tls(
        mut self,
        certificates: &[u8],
        key: &[u8],
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        self.options.tls = Some(ServerTls::of_pem(certificates, key, provider, None)?);
        Ok(self)
    }

    /// Makes the server speak TLS with a certificate of that authority, and accept its client
    /// certificates.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the authority's provider does not sign.
    pub fn tls_by(mut self, authority: &TestAuthority) -> Result<Self, Error> {
        self.options.tls = Some(ServerTls::of_authority(authority)?);
        Ok(self)
    }

    /// Starts the server.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a speed that is not above zero; [`ErrorKind::Resources`] when the
    /// system refuses a socket, port or thread.
    pub fn start(self) -> Result<FixtureServer, Error> {
        if let Speed::Times(factor) = self.speed
            && !(factor.is_finite() && factor > 0.0)
        {
            let message = format!("the speed of a replay is above zero, not {factor}");
            return Err(Error::new(ErrorKind::Config, message));
        }
        let replay = Replay {
            book: Mutex::new(Book::new(self.recordings, self.endless)),
            pace: StepPace {
                speed: self.speed,
                clock: self.options.clock.clone(),
                gate: Gate::new(),
            },
        };
        HttpServer::start("fixture", replay, self.options).map(FixtureServer)
    }
}

#[cfg(test)]
mod tests;
