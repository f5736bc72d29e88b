//! The progress of a request. The thread that sends it writes, and threads that wait for it read.

use std::net::SocketAddr;
use std::time::Instant;

use crate::clock::Clock;
use crate::error::debug_of;
use crate::sync::{Arc, Mutex, Rank};

/// The phase of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestPhase {
    /// No request is under way.
    #[default]
    Idle,
    /// The request waits for the client's rate limit; nothing was sent.
    Limited,
    /// The request waits in the client's queue; nothing was sent.
    Queued {
        /// How many requests go first.
        behind: usize,
    },
    /// The request waits for credentials: a token file, a plugin, or the program's token source.
    Credentials,
    /// The client looks up the server's name.
    LookingUp,
    /// The client looks up the name of the proxy to the server.
    LookingUpProxy,
    /// The client connects to the server or its proxy; this is one of the addresses it tries.
    Connecting(SocketAddr),
    /// The client has asked the proxy at this address for a connection to the server.
    Tunnel(SocketAddr),
    /// The TLS handshake with this address is in progress.
    Handshake(SocketAddr),
    /// The client has sent the request. The head of the answer has not come.
    AwaitingHead,
    /// The head of the answer has come, and `bytes` of the body.
    Body {
        /// The status code of the head.
        status: u16,
        /// The size of the body so far, in decompressed bytes.
        bytes: usize,
    },
}

/// The phase of a running request, shared by its thread and the threads that wait for it.
///
/// All clones share one progress. No method blocks, and only [`describe`](Self::describe)
/// allocates.
#[derive(Clone)]
pub struct RequestProgress {
    server: Arc<str>,
    /// The phase, and since when.
    state: Arc<Mutex<(RequestPhase, Instant)>>,
}

impl RequestProgress {
    /// Creates the progress of a client without a running request. `server` names the server in
    /// texts, such as `10.0.0.1:6443`.
    pub fn new(server: Arc<str>) -> Self {
        let idle = (RequestPhase::Idle, Clock::system().now());
        Self {
            server,
            state: Arc::new(Mutex::ranked(Rank::REQUEST_PHASE, idle)),
        }
    }

    /// Notes that the request enters `phase`.
    pub fn enter(&self, phase: RequestPhase) {
        *self.state.lock() = (phase, Clock::system().now());
    }

    /// Notes that more of the body has come.
    pub fn came(&self, count: usize) {
        let mut state = self.state.lock();
        if let RequestPhase::Body { bytes, .. } = &mut state.0 {
            *bytes = bytes.saturating_add(count);
        }
    }

    /// The present phase.
    pub fn phase(&self) -> RequestPhase {
        self.state.lock().0
    }

    /// Describes the present phase and its duration so far; `None` while no request runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use kubecache::list_watch::{RequestPhase, RequestProgress};
    ///
    /// let progress = RequestProgress::new("10.0.0.1:6443".into());
    /// assert_eq!(progress.describe(), None);
    /// progress.enter(RequestPhase::LookingUp);
    /// assert!(progress.describe().unwrap().starts_with("looking up 10.0.0.1:6443 for "));
    /// ```
    pub fn describe(&self) -> Option<String> {
        let (phase, since) = *self.state.lock();
        let words = self.words(phase)?;
        let time = Clock::system().now().saturating_duration_since(since);
        Some(if let RequestPhase::Body { bytes, .. } = phase {
            format!("{words}: {bytes} bytes in {time:.1?}")
        } else {
            format!("{words} for {time:.1?}")
        })
    }

    /// Describes the present phase in words that stay the same throughout, for a table.
    pub(crate) fn describe_phase(&self) -> Option<String> {
        self.words(self.phase())
    }

    fn words(&self, phase: RequestPhase) -> Option<String> {
        let server = &self.server;
        Some(match phase {
            RequestPhase::Idle => return None,
            RequestPhase::Limited => "held back by the rate limit of this client".to_owned(),
            RequestPhase::Queued { behind } => {
                format!("queued in this client behind {behind} other requests")
            }
            RequestPhase::Credentials => {
                format!("waiting for the credentials for {server}")
            }
            RequestPhase::LookingUp => format!("looking up {server}"),
            RequestPhase::LookingUpProxy => format!("looking up the proxy of {server}"),
            RequestPhase::Tunnel(address) => {
                format!("waiting for the proxy at {address} to reach {server}")
            }
            RequestPhase::Connecting(address) => format!("connecting to {address}"),
            RequestPhase::Handshake(address) => format!("in the TLS handshake with {address}"),
            RequestPhase::AwaitingHead => {
                format!("waiting for the head of the answer of {server}")
            }
            RequestPhase::Body { status, .. } => {
                format!("reading the body of an answer with status {status}")
            }
        })
    }
}

debug_of!([] RequestProgress, |it| phase: it.phase(), ..);

#[cfg(test)]
mod tests {
    use super::*;

    /// D14: each phase has its own words.
    #[test]
    fn d14_each_phase_says_what_is_waited_for() {
        let progress = RequestProgress::new("api.test:6443".into());
        let address = SocketAddr::from(([10, 0, 0, 1], 6443));
        let rows = [
            (
                RequestPhase::Limited,
                "held back by the rate limit of this client for ",
            ),
            (
                RequestPhase::Queued { behind: 7 },
                "queued in this client behind 7 other requests for ",
            ),
            (RequestPhase::LookingUp, "looking up api.test:6443 for "),
            (
                RequestPhase::LookingUpProxy,
                "looking up the proxy of api.test:6443 for ",
            ),
            (
                RequestPhase::Tunnel(address),
                "waiting for the proxy at 10.0.0.1:6443 to reach api.test:6443 for ",
            ),
            (
                RequestPhase::Connecting(address),
                "connecting to 10.0.0.1:6443 for ",
            ),
            (
                RequestPhase::Handshake(address),
                "in the TLS handshake with 10.0.0.1:6443 for ",
            ),
            (
                RequestPhase::AwaitingHead,
                "waiting for the head of the answer of api.test:6443 for ",
            ),
            (
                RequestPhase::Body {
                    status: 200,
                    bytes: 0,
                },
                "reading the body of an answer with status 200: 12 bytes in ",
            ),
        ];
        for (phase, words) in rows {
            progress.enter(phase);
            progress.came(12);
            let told = progress.describe().unwrap();
            assert!(told.starts_with(words), "{told}");
            let same = progress.describe_phase().unwrap();
            assert!(told.starts_with(&same), "{same}");
        }
        progress.enter(RequestPhase::Idle);
        assert_eq!(progress.describe(), None);
        assert_eq!(progress.describe_phase(), None);
    }
}
