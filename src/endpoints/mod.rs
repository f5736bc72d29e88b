//! Health probes, metrics and pages of a program over HTTP (feature `endpoints`).
//!
//! [`Endpoints`] listens at an address and serves `/livez`, `/healthz` and `/readyz` in the form of
//! Kubernetes components, from checks that the program adds: named functions that return `Ok`, or
//! the reason why not. With the feature `metrics`, `Endpoints::add_metrics` adds `/metrics`;
//! [`add_page`](Endpoints::add_page) adds pages of the program.
//!
//! This agent knows the pods of a node. It is ready once it knows them, and healthy while the
//! server keeps confirming them.
//!
//! ```
//! # #[cfg(feature = "testing")] mod program {
//! use std::error::Error;
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kubecache::endpoints::{Endpoints, EndpointsOptions, Probe};
//! use kubecache::http::{Client, ClientOptions, Config};
//! use kubecache::informer::{InformerOptions, SharedInformer};
//! use kubecache::object::{FieldSelector, Scope};
//! use signal_hook::consts::{SIGINT, SIGTERM};
//! use signal_hook::iterator::Signals;
//!
//! fn run(config: &Config, address: &str) -> Result<(), Box<dyn Error>> {
//!     let endpoints = Endpoints::new(&address.parse()?, EndpointsOptions::default())?;
//!     let client = Client::new(config, ClientOptions::default())?;
//!     let source = client.lister_watcher(Scope::all().fields(FieldSelector::node_name("node-1")));
//!     let pods = Arc::new(SharedInformer::<Pod>::new(source, InformerOptions::default()));
//!     let [fresh, known] = [(); 2].map(|()| Arc::clone(&pods));
//!     let is_known = move || known.has_synced().then_some(()).ok_or("the pods are not known yet");
//!     endpoints.add_check(Probe::Health, "pods", move || fresh.health())?;
//!     endpoints.add_check(Probe::Ready, "synced", is_known)?;
//!     let mut signals = Signals::new([SIGINT, SIGTERM])?;
//!     pods.start()?;
//!     endpoints.start(); // now a kubelet may ask /readyz
//!     # let answer = || -> Result<String, Box<dyn Error>> {
//!     #     use std::io::{Read as _, Write as _};
//!     #     let mut client = std::net::TcpStream::connect(endpoints.address())?;
//!     #     client.write_all(b"GET /readyz?verbose HTTP/1.1\r\n\r\n")?;
//!     #     let mut answer = String::new();
//!     #     client.read_to_string(&mut answer)?;
//!     #     Ok(answer)
//!     # };
//!     # pods.wait_until_synced(std::time::Duration::from_secs(300))?;
//!     # let lines = "[+]ping ok\n[+]pods ok\n[+]synced ok\nreadyz check passed\n";
//!     # while !answer()?.ends_with(lines) {}
//!     # signal_hook::low_level::raise(SIGINT)?;
//!     signals.forever().next(); // blocks until the first signal
//!     Ok(()) // the drops end and join all threads
//! }
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     run(&Config::infer()?, ":8080")
//! }
//! # pub fn test(config: &Config) -> Result<(), Box<dyn Error>> {
//! #     let _ = main;
//! #     run(config, "127.0.0.1:0")
//! # }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #     #[cfg(feature = "testing")] {
//! #     use kubecache::testing::{FixtureServer, Recording};
//! #     let recording = Recording::load("fixtures/recordings/node-1.jsonl")?;
//! #     let server = FixtureServer::replaying(recording).start()?;
//! #     program::test(&kubecache::http::Config::for_server(&server.url())?)?;
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! # Answers
//!
//! - `/livez` asks the checks of [`Probe::Live`], `/healthz` also those of [`Probe::Health`], and
//!   `/readyz` all. The check `ping` is always there and always passes.
//! - Code 200 and `ok` mean that all checks pass. Code 500 comes with a line for each check:
//!   `[+]ping ok`, `[-]pods failed: the reason`.
//! - `?verbose` shows these lines at a success, too. `?exclude=NAME` leaves a check out, and may
//!   stand several times. `/readyz/NAME` asks one check.
//! - Only GET and HEAD of HTTP/1 are answered, and each connection carries one request.
//!
//! Whoever reaches the port can read the reasons: the text of a check's error, and of an
//! [`Error`] of this crate also the kind of its source. The source's own text may
//! repeat words of a server, and goes to the log alone, at level `debug`. No content of an object
//! belongs into a check's error. There is no TLS and no authorization: bind to loopback, or guard
//! the port.
//!
//! # Limits
//!
//! - A check runs in a thread of its own, one run at a time; requests that come meanwhile wait for
//!   the same run. So a check takes at most one thread, and holds up no other check or page.
//! - A check that does not return within [`check_limit`](EndpointsOptions::check_limit) fails by
//!   its name (`no answer for 0.8s`), and is not run again before it returns. A page of the program
//!   has five seconds.
//! - A check or a page that panics fails by its name.
//! - At most 16 clients are served at a time. One more replaces the oldest that has its answer,
//!   else the oldest that has not sent its request, else the oldest. Each has five seconds to send
//!   its request, of at most 8 KiB and 64 headers, and five to take the answer.
//!
//! # Threads and locks
//!
//! `endpoints` accepts, reads and writes, and never blocks but in poll(2). `ep-NAME` runs a check
//! or a page, without a lock. [`stop`](Endpoints::stop), [`shutdown`](Endpoints::shutdown) and a
//! drop end the first in milliseconds. Locks of rank 57 guard the tables of checks and pages.

mod address;
mod exchange;
mod named_call;
mod options;
mod page;
mod probe;
#[cfg(all(test, shuttle))]
mod schedules;
mod server;
mod table;
#[cfg(test)]
mod tests;

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::time::Duration;

use named_call::NamedCall;
use server::EndpointsServer;
use table::Table;

pub use address::BindAddress;
pub use options::EndpointsOptions;
pub use page::WebPage;
pub use probe::Probe;

use crate::clock::{Clock, Deadline, IntoDeadline};
use crate::error::{Error, ErrorKind, debug_of};
#[cfg(feature = "metrics")]
use crate::metrics::{CONTENT_TYPE, Exposition};
use crate::sync::{Arc, atomic::Ordering};
use crate::worker::{Wake as _, WakeUp, Worker, WorkerGroup};

/// How long a check may take by default: within the second that a kubelet waits.
const CHECK_LIMIT: Duration = Duration::from_millis(800);

/// How long a page of the program may take.
const PAGE_LIMIT: Duration = Duration::from_secs(5);

/// How long a drop waits for calls of the program.
const DROP_PATIENCE: Duration = Duration::from_millis(100);

/// Serves health probes, and pages of the program, at one address ([the module](self) says how).
///
/// It listens from [`new`](Self::new) on, and serves from [`start`](Self::start) on: clients that
/// connect before wait. A drop stops it and joins its threads within milliseconds. If a check or a
/// page runs, the drop waits for at most 100 ms; then its thread ends detached, when the call
/// returns.
pub struct Endpoints {
    address: SocketAddr,
    table: Arc<Table>,
    server: WorkerGroup,
}

debug_of!([] Endpoints, |it| address: it.address, ..);

impl Endpoints {
    /// Listens at `address`, and starts a thread named `endpoints`, which does not serve yet.
    /// Blocks only for the lookup of a host name.
    ///
    /// # Errors
    ///
    /// `Resources` if the system refuses the address, which the error names, a thread or a
    /// descriptor. Its source has the reason.
    pub fn new(address: &BindAddress, options: EndpointsOptions) -> Result<Self, Error> {
        let (address, listener) = address.listen()?;
        let whose = format!("the endpoints at {address}");
        let bell = WakeUp::new().map_err(Error::no_thread(&whose))?;
        let table = Arc::new(Table::new(bell, options));
        let server = WorkerGroup::default();
        let serving = EndpointsServer::new(listener, Arc::clone(&table));
        let thread = Worker::spawn("endpoints", move |stop| serving.run(stop));
        server.add(thread.map_err(Error::no_thread(&whose))?);
        Ok(Self {
            address,
            table,
            server,
        })
    }

    /// Returns the address, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a check to `probe` and to the stricter probes. The probes show it as `name`, after the
    /// checks that were added before.
    ///
    /// A thread of the endpoints calls it without a lock for each request that needs it, one call
    /// at a time. Its error becomes the reason on the page: a text, an [`Error`], or any other
    /// error. Checks can be added and removed at any time.
    ///
    /// # Errors
    ///
    /// `Config` if `name` has other characters than ASCII letters, digits, `-`, `_` and `.`, or if
    /// a check has it already.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// use kubecache::endpoints::{Endpoints, EndpointsOptions, Probe};
    ///
    /// let endpoints = Endpoints::new(&"127.0.0.1:0".parse()?, EndpointsOptions::default())?;
    /// let is_warm = Arc::new(AtomicBool::new(false));
    /// let warm = Arc::clone(&is_warm);
    /// endpoints.add_check(Probe::Ready, "cache", move || {
    ///     warm.load(Ordering::Relaxed).then_some(()).ok_or("the cache is still cold")
    /// })?;
    /// endpoints.start(); // now /readyz answers: [-]cache failed: the cache is still cold
    /// is_warm.store(true, Ordering::Relaxed);
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn add_check<E: Into<Box<dyn StdError + Send + Sync>>>(
        &self,
        probe: Probe,
        name: &str,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let of = name.to_owned();
        let checked = move || {
            check().map_err(|error| probe::reason(&of, &*error.into()))?;
            Ok(WebPage::text("ok"))
        };
        let limit = self.table.options.check_limit.unwrap_or(CHECK_LIMIT);
        self.table
            .add(Some(probe), NamedCall::new("check", name, limit, checked))
    }

    /// Removes a check; `false` if there is none of that name. A call that runs goes on.
    pub fn remove_check(&self, name: &str) -> bool {
        self.table.remove_check(name)
    }

    /// Adds a page at `path`, such as `/statusz`. A thread of the endpoints calls `page` without a
    /// lock for each request, one call at a time.
    ///
    /// A page that panics, or takes more than five seconds, becomes an answer with the code 500.
    ///
    /// # Errors
    ///
    /// `Config` if `path` does not begin with a slash, if it has other characters than ASCII
    /// letters, digits, `-`, `_`, `.` and `/`, or if it is taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use kubecache::endpoints::{Endpoints, EndpointsOptions, WebPage};
    ///
    /// let endpoints = Endpoints::new(&"127.0.0.1:0".parse()?, EndpointsOptions::default())?;
    /// endpoints.add_page("/version", || WebPage::text(env!("CARGO_PKG_VERSION")))?;
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn add_page(
        &self,
        path: &str,
        page: impl Fn() -> WebPage + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let page = NamedCall::new("page", path, PAGE_LIMIT, move || Ok(page()));
        self.table.add(None, page)
    }

    /// Adds the page `/metrics`, which renders the counts of `exposition`.
    ///
    /// # Errors
    ///
    /// `Config` if the page is there already.
    ///
    /// # Examples
    ///
    /// ```
    /// use kubecache::endpoints::{Endpoints, EndpointsOptions};
    /// use kubecache::http::ClientOptions;
    /// use kubecache::metrics::Exposition;
    ///
    /// let exposition = Exposition::new();
    /// let options = ClientOptions::default().metrics(exposition.client("agent")?);
    /// let endpoints = Endpoints::new(&"127.0.0.1:0".parse()?, EndpointsOptions::default())?;
    /// endpoints.add_metrics(&exposition)?;
    /// # drop(options);
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn add_metrics(&self, exposition: &Exposition) -> Result<(), Error> {
        let exposition = exposition.clone();
        let page = move || WebPage::text(exposition.text()).content_type(CONTENT_TYPE);
        self.add_page("/metrics", page)
    }

    /// Serves from now on, and returns at once. Clients that connected before get their answers. A
    /// second start does nothing, nor does one after a stop.
    pub fn start(&self) {
        self.table.is_served.store(true, Ordering::SeqCst);
        self.table.bell.wake();
    }

    /// Asks the endpoints to end, and returns at once. Connections are closed, whatever their
    /// clients do, and the port becomes free.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Stops the endpoints and blocks until their threads have ended, at most until `deadline`.
    ///
    /// The server's thread ends within milliseconds. A shutdown cannot interrupt a check or a page
    /// that runs. It does not wait for the calling thread, if that runs one.
    ///
    /// # Errors
    ///
    /// `Timeout` with the names of the threads that still run, such as `ep-pods`. They end when
    /// their calls return; a drop does not wait for them.
    pub fn shutdown(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let clock = Clock::system();
        let deadline = deadline.into_deadline(&clock);
        self.stop();
        self.server.join(&clock, Deadline::NEVER); // it runs no code of the program
        let late = self.table.threads.join(&clock, deadline).join(", ");
        if late.is_empty() {
            return Ok(());
        }
        let text = format!(
            "timed out waiting for the endpoints at {}: thread {late} still runs, held up by a \
             check or a page",
            self.address
        );
        Err(Error::new(ErrorKind::Timeout, text))
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        let _late = self.shutdown(DROP_PATIENCE);
        self.server.close();
        self.table.threads.close();
    }
}
