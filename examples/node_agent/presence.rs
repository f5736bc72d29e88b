//! Whether there is a node of that name, asked where no pod is bound to it.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use k8s_openapi::api::core::v1::Node;
use kubecache::clock::Clock;
use kubecache::http::Client;
use kubecache::object::{ObjectKey, ResourceVersion};
use kubecache::worker::{StopToken, WaitEnd, Worker};
use kubecache::{Error, ErrorKind};

/// How long one answer may take, and how often an absent node is looked for.
const PERIOD: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    There,
    Absent,
    /// The server does not say it.
    Unknown,
}

/// The thread that asks until the node is there or the server refuses; dropping it ends it.
pub(crate) struct Asking {
    /// Each answer that differs from the one before.
    pub(crate) answers: Receiver<Presence>,
    /// The receiver is not closed when the thread ends.
    _open: Sender<Presence>,
    _thread: Worker,
}

impl Asking {
    pub(crate) fn start(client: &Client, name: &str) -> Result<Self, Error> {
        let (client, key) = (client.clone(), ObjectKey::new("", name));
        let (open, answers) = bounded(3);
        let send = open.clone();
        let thread = Worker::spawn("agent-presence", move |stop| {
            let mut before = None;
            loop {
                let (answer, is_last) = ask(&client, &key, stop);
                if before.replace(answer) != Some(answer) && send.send(answer).is_err() {
                    return;
                }
                let clock = Clock::system();
                let next = clock.after(PERIOD);
                if is_last || stop.wait_until(&clock, next) == WaitEnd::Stopped {
                    return;
                }
            }
        });
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Resources, "thread agent-presence").with_source(error)
        })?;
        Ok(Self {
            answers,
            _open: open,
            _thread: thread,
        })
    }
}

/// The server's answer, and whether another question is of no use.
fn ask(client: &Client, key: &ObjectKey, stop: &StopToken) -> (Presence, bool) {
    let deadline = Clock::system().after(PERIOD);
    let getter = client.getter::<Node>();
    match getter.get(key, &ResourceVersion::any(), deadline, stop) {
        Ok(_) => (Presence::There, true),
        Err(error) if error.kind() == ErrorKind::NotFound && names(&error, key) => {
            (Presence::Absent, false)
        }
        Err(error) => {
            log::debug!("whether node {} exists is not known: {error}", key.name());
            (Presence::Unknown, error.kind() == ErrorKind::Forbidden)
        }
    }
}

/// Whether the server's answer is about this node. A path that it does not know is another matter.
fn names(error: &Error, key: &ObjectKey) -> bool {
    let status = error.status();
    let details = status.and_then(|status| status.as_api().details.as_ref());
    details.is_some_and(|details| details.name.as_deref() == Some(key.name()))
}
