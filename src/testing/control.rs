//! The control port, through which programs in other languages steer the API server of their tests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::ApiServer;
use super::http::message::RequestMessage;
use super::http::{
    Answered, Backend, Caller, Fault, FaultId, HttpServer, Piece, Pieces, Received, Reply,
    ServerOptions,
};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::Error;
use crate::sync::{Arc, Monitor, Wake};
use crate::worker::StopToken;

/// The maximum time before a waiting request gets its answer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A second port of an [`ApiServer`], through which any program steers it over HTTP and JSON.
///
/// | request | does |
/// |---|---|
/// | `GET /faults` | lists the faults with their numbers |
/// | `POST /faults` | adds a fault, or an array of faults, as [`Fault::from_json`] reads them |
/// | `DELETE /faults`, `/faults/N` | removes all faults, or one |
/// | `GET /requests` | lists the requests that the server received, the last ones |
/// | `GET /watches` | tells how many watches are open |
/// | `GET /version` | tells the version of the state |
/// | `GET /wait/requests/N` | answers when the server has received N requests |
/// | `GET /wait/watches/N` | answers when N watches are open |
/// | `POST /objects` | writes objects, YAML or JSON, as [`ApiServer::load`] does |
/// | `POST /compact` | forgets the history: the next watch from before gets 410 |
/// | `POST /expire-watches`, `/cut-watches` | ends every watch by a 410, or by a cut |
/// | `POST /restore/N` | puts state and versions back, as a restored etcd |
/// | `POST /crash`, `/come-back` | closes the port and resets all connections; listens again |
/// | `POST /rotate-tls/NAME` | shows certificates of another authority of that name |
/// | `POST /clock/SECONDS` | lets time pass, for a server with a clock of its own |
/// | `GET /kubeconfig` | tells a kubeconfig |
///
/// A refusal is a `Status` of the API with the reason. It refuses each request with an `Origin`
/// (403), which a browser sends for a page. A wait ends after at most 60 s of the system's clock;
/// its answer is `{"count": …}`, the number by then. This value owns a thread per connection;
/// dropping it ends and joins them.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::testing::{ApiServer, ControlServer};
/// use std::sync::Arc;
///
/// let server = Arc::new(ApiServer::new()?);
/// let control = ControlServer::start(Arc::clone(&server), None, 0)?;
/// println!("steer {} through {}", server.url(), control.url());
/// # }
/// # Ok::<_, kubecache::Error>(())
/// ```
#[derive(Debug)]
pub struct ControlServer(HttpServer<Control>);

#[derive(Debug)]
struct Control {
    server: Arc<ApiServer>,
    clock: Option<FakeClock>,
}

impl ControlServer {
    /// Starts to listen on that loopback port, or on a free one for 0. `clock` is the server's fake
    /// clock, if it has one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Resources`](crate::ErrorKind::Resources) when the system refuses a socket, port
    /// or thread.
    pub fn start(
        server: Arc<ApiServer>,
        clock: Option<FakeClock>,
        port: u16,
    ) -> Result<Self, Error> {
        let options = ServerOptions {
            port,
            ..ServerOptions::default()
        };
        HttpServer::start("control", Control { server, clock }, options).map(Self)
    }

    /// Returns its address as a URL.
    pub fn url(&self) -> String {
        self.0.url()
    }
}

/// A code with its reason and message.
type ControlRefusal = (u16, &'static str, String);

/// The outcome of a request.
type ControlResult = Result<Value, ControlRefusal>;

impl Backend for Control {
    fn answer<'a>(&'a self, request: &RequestMessage, _at: Instant, _caller: &Caller) -> Reply<'a> {
        if request.header("origin").is_some() {
            let text = "the control port answers programs, and no page of a browser (Origin)";
            return Reply::failure(403, "Forbidden", text, Answered::Served);
        }
        let path = request.target.path.trim_matches('/');
        let (what, which) = path.split_once('/').unwrap_or((path, ""));
        if (request.method.as_str(), what) == ("GET", "kubeconfig") {
            let text = self.server.kubeconfig().into_bytes();
            let yaml = ("content-type".to_owned(), "application/yaml".to_owned());
            return Reply::whole(200, vec![yaml], text, Answered::Served);
        }
        if let ("GET", "wait") = (request.method.as_str(), what) {
            return self.waiting(which);
        }
        match self.answer_json(&request.method, what, which, &request.body) {
            Ok(value) => Reply::whole(200, json_type(), line(&value), Answered::Served),
            Err((code, reason, message)) => {
                Reply::failure(code, reason, &message, Answered::Served)
            }
        }
    }
}

impl Control {
    fn waiting(&self, which: &str) -> Reply<'_> {
        let (what, enough) = which.split_once('/').unwrap_or((which, ""));
        let wait: Box<dyn Pieces> = match (what, enough.parse()) {
            ("requests", Ok(enough)) => Box::new(WaitForCount {
                monitor: self.server.request_log(),
                enough,
                count: |log| log.count(),
                has_ended: false,
            }),
            ("watches", Ok(enough)) => Box::new(WaitForCount {
                monitor: self.server.watch_count(),
                enough,
                count: |open| *open,
                has_ended: false,
            }),
            _ => {
                let text = "wait for /wait/requests/N or /wait/watches/N";
                return Reply::failure(400, "BadRequest", text, Answered::Served);
            }
        };
        Reply {
            status: 200,
            headers: json_type(),
            body: wait,
            answered: Answered::Served,
        }
    }

    fn answer_json(&self, method: &str, what: &str, which: &str, body: &[u8]) -> ControlResult {
        let server = &self.server;
        match (method, what, which) {
            ("GET", "faults", "") => Ok(server.faults().iter().map(listed).collect()),
            ("GET", "requests", "") => Ok(server.requests().iter().map(seen).collect()),
            ("GET", "watches", "") => Ok(json!({ "open": server.open_watches() })),
            ("GET", "version", "") => Ok(json!({ "version": server.version() })),
            ("POST", "faults", "") => self.add_faults(text(body)?),
            ("POST", "objects", "") => {
                let written = server.load(text(body)?).map_err(refused)?;
                Ok(json!({ "written": written }))
            }
            ("DELETE", "faults", which) => self.remove_faults(which).map(|()| json!({})),
            ("POST", what, which) => self.act(what, which).map(|()| json!({})),
            _ => Err(unknown(method, what)),
        }
    }

    fn add_faults(&self, text: &str) -> ControlResult {
        let added = Fault::list_from_json(text).map_err(refused)?;
        let ids = added
            .into_iter()
            .map(|fault| self.server.add_fault(fault).to_string());
        Ok(json!({ "ids": ids.collect::<Vec<_>>() }))
    }

    fn remove_faults(&self, which: &str) -> Result<(), ControlRefusal> {
        if which.is_empty() {
            self.server.clear_faults();
            return Ok(());
        }
        let id = number(which)?;
        let was_there = self.server.remove_fault(FaultId::from(id));
        let none = || (404, "NotFound", format!("there is no fault {id}"));
        was_there.then_some(()).ok_or_else(none)
    }

    /// Performs a request on the server that has no answer of its own.
    fn act(&self, what: &str, which: &str) -> Result<(), ControlRefusal> {
        match (what, which) {
            ("compact", "") => self.server.compact(),
            ("expire-watches", "") => self.server.expire_watches(),
            ("cut-watches", "") => self.server.cut_watches(),
            ("crash", "") => self.server.crash(),
            ("come-back", "") => self.server.come_back().map_err(refused)?,
            ("restore", version) => self.server.restore(number(version)?).map_err(refused)?,
            ("rotate-tls", name) if !name.is_empty() => {
                self.server.rotate_authority(name).map_err(refused)?;
            }
            ("clock", seconds) => {
                let none = "the server runs on the system's clock";
                let clock = self.clock.as_ref();
                let clock = clock.ok_or_else(|| (400, "BadRequest", none.to_owned()))?;
                clock.advance(Duration::from_secs(number(seconds)?));
            }
            _ => return Err(unknown("POST", what)),
        }
        Ok(())
    }
}

/// The answer to a request that waits for a count.
struct WaitForCount<'a, T> {
    monitor: &'a Arc<Monitor<T>>,
    enough: usize,
    count: fn(&T) -> usize,
    has_ended: bool,
}

impl<T: Send + 'static> Pieces for WaitForCount<'_, T> {
    fn next(&mut self, stop: &StopToken) -> Piece {
        if std::mem::replace(&mut self.has_ended, true) {
            return Piece::End;
        }
        let wake: Arc<dyn Wake> = Arc::<Monitor<T>>::clone(self.monitor);
        let _registered = stop.register(&wake);
        let clock = Clock::system();
        let deadline: Deadline = clock.after(LONGEST_WAIT);
        let (enough, count) = (self.enough, self.count);
        let look = |what: &mut T| (count(what) >= enough || stop.is_stopped()).then_some(());
        let guard = self.monitor.lock();
        let (_found, guard) = clock.wait_for(self.monitor, guard, deadline, look);
        if stop.is_stopped() {
            return Piece::Cut;
        }
        Piece::Bytes(line(&json!({ "count": count(&guard) })))
    }
}

fn json_type() -> Vec<(String, String)> {
    vec![("content-type".to_owned(), "application/json".to_owned())]
}

fn line(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

fn listed((id, fault): &(FaultId, Fault)) -> Value {
    let fault: Value = serde_json::from_str(&fault.to_json()).unwrap_or_default();
    json!({ "id": id.to_string(), "fault": fault })
}

fn seen(request: &Received) -> Value {
    json!({
        "method": request.method(), "path": request.path(), "watch": request.is_watch(),
        "answered": format!("{:?}", request.answered()),
    })
}

fn unknown(method: &str, what: &str) -> ControlRefusal {
    (
        404,
        "NotFound",
        format!("the control port has no {method} /{what}"),
    )
}

fn text(body: &[u8]) -> Result<&str, ControlRefusal> {
    let wrong = |_not_text| (400, "BadRequest", "the body is not UTF-8".to_owned());
    std::str::from_utf8(body).map_err(wrong)
}

fn number(which: &str) -> Result<u64, ControlRefusal> {
    let wrong = |_no_number| (400, "BadRequest", format!("{which:?} is no number"));
    which.parse().map_err(wrong)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is the function of map_err"
)]
fn refused(error: Error) -> ControlRefusal {
    (422, "Invalid", error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    /// A page of a browser may send requests to any port of its machine.
    #[test]
    fn a_request_of_a_page_is_refused_and_does_nothing() {
        let server = Arc::new(ApiServer::new().unwrap());
        let control = ControlServer::start(Arc::clone(&server), None, 0).unwrap();
        let manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: a, name: b}}";
        let before = server.version();
        let rows = [
            (
                "POST",
                "/objects",
                "Origin: http://evil.example.com\r\n",
                "403",
            ),
            ("POST", "/objects", "origin: null\r\n", "403"),
            ("POST", "/crash", "ORIGIN: \r\n", "403"),
            ("GET", "/kubeconfig", "Origin: http://127.0.0.1\r\n", "403"),
            ("GET", "/wait/watches/9", "Origin: x\r\n", "403"),
            ("GET", "/version", "", "200"),
        ];
        for (method, path, header, code) in rows {
            let mut stream = TcpStream::connect(control.0.address()).unwrap();
            let length = manifest.len();
            let head = format!("{method} {path} HTTP/1.1\r\n{header}content-length: {length}");
            let request = format!("{head}\r\nconnection: close\r\n\r\n{manifest}");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {code} ")),
                "{path}: {answer}"
            );
        }
        assert_eq!(server.version(), before);
    }

    /// For any part of it that came, and also after another request.
    #[test]
    fn a_request_that_is_never_finished_ends_its_connection() {
        let options = ServerOptions {
            request_wait: Duration::from_millis(50),
            ..ServerOptions::default()
        };
        let server = Arc::new(ApiServer::new().unwrap());
        let control = Control {
            server,
            clock: None,
        };
        let control = HttpServer::start("test", control, options).unwrap();
        for part in [
            "G",
            "GET /version HTTP/1.1\r\nhost: x\r\n",
            "POST /objects HTTP/1.1\r\ncontent-length: 9\r\n\r\nkind: A",
            "POST /objects HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n9\r\nkind",
            "POST /objects HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nX: y\r\n",
            "GET /version HTTP/1.1\r\n\r\nGET /ver",
        ] {
            let mut stream = TcpStream::connect(control.address()).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(5 * 60)))
                .unwrap();
            stream.write_all(part.as_bytes()).unwrap();
            let ended = stream.read_to_end(&mut Vec::new());
            let is_late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!is_late, "{part:?}");
        }
    }

    #[test]
    fn a_wait_ends_with_the_control_port() {
        let server = Arc::new(ApiServer::new().unwrap());
        let control = ControlServer::start(server, None, 0).unwrap();
        let mut stream = TcpStream::connect(control.0.address()).unwrap();
        let request = "GET /wait/watches/1 HTTP/1.1\r\nhost: control\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let soon = Clock::system().after(Duration::from_secs(5 * 60));
        assert!(
            control
                .0
                .wait_for_requests(soon, |requests| requests.len() == 1)
        );
        drop(control);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap_or_default();
        assert!(!answer.contains("count"), "{answer}");
    }
}
