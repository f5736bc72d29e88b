//! An index function that takes long: how far the server gets with its writes, and how far behind
//! the store is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TrySendError, bounded};
use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::Error;
use kubecache::clock::{Clock, Deadline};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::list_watch::{
    ListPage, ListRequest, Listed, ListerWatcher, Next, ObjectEvent, WatchRequest, WatchStream,
};
use kubecache::object::{ResourceVersion, StoredObject};
use kubecache::store::Indexers;
use kubecache::worker::StopToken;

/// Events that the buffers between server and client hold.
const BUFFERED: usize = 64;

/// Events of the burst.
const EVENTS: usize = 2_000;

/// How long the index function takes for each object.
const SLOW: Duration = Duration::from_micros(200);

/// Lists nothing, and watches what is written.
struct Socket(Receiver<Arc<StoredObject<ConfigMap>>>);

struct Reader(Receiver<Arc<StoredObject<ConfigMap>>>, StopToken);

impl ListerWatcher<ConfigMap> for Socket {
    fn list(
        &self,
        _request: &ListRequest,
        _stop: &StopToken,
        _each: &mut dyn FnMut(Listed<ConfigMap>),
    ) -> Result<ListPage, Error> {
        Ok(ListPage {
            resource_version: ResourceVersion::from("1"),
            continue_token: None,
            ..ListPage::default()
        })
    }

    fn watch(
        &self,
        _request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<ConfigMap>>, Error> {
        Ok(Box::new(Reader(self.0.clone(), stop.clone())))
    }

    fn describe(&self) -> String {
        "what is written".to_owned()
    }
}

impl WatchStream<ConfigMap> for Reader {
    fn next(&mut self, deadline: Deadline) -> Result<Next<ConfigMap>, Error> {
        let patience = deadline.remaining(Clock::system().now());
        crossbeam_channel::select! {
            recv(self.0) -> object => {
                Ok(Next::Event(ObjectEvent::updated(object.unwrap()).into()))
            }
            recv(self.1.channel()) -> _ => Ok(Next::Ended(None)),
            default(patience.unwrap_or(Duration::MAX)) => Ok(Next::DeadlinePassed),
        }
    }

    fn last_contact(&self) -> Instant {
        Clock::system().now()
    }
}

fn since(begun: Instant) -> Duration {
    Clock::system().now().saturating_duration_since(begun)
}

/// Prints the figures; there is no budget.
pub(crate) fn run() {
    let (server, socket) = bounded(BUFFERED);
    let indexers = Indexers::new().with("slow", |_: &ConfigMap| {
        let end = Clock::system().now() + SLOW;
        while Clock::system().now() < end {
            std::hint::spin_loop();
        }
        Vec::new()
    });
    let options = InformerOptions::default().indexers(indexers);
    let informer = SharedInformer::new(Arc::new(Socket(socket)), options);
    informer.start().unwrap();
    let patient = || Clock::system().after(Duration::from_secs(60));
    informer.wait_until_synced(patient()).unwrap();
    let begun = Clock::system().now();
    let mut before_blocked = None;
    for nth in 0..EVENTS {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(format!("settings-{}", nth % 100));
        object.metadata.uid.clone_from(&object.metadata.name);
        object.metadata.resource_version = Some((nth + 2).to_string());
        match server.try_send(Arc::new(StoredObject::new(object))) {
            Ok(()) => {}
            Err(TrySendError::Full(object)) => {
                before_blocked.get_or_insert(nth);
                server.send(object).unwrap();
            }
            Err(TrySendError::Disconnected(_)) => panic!("nobody reads"),
        }
    }
    let written = since(begun);
    let last = ResourceVersion::from((EVENTS + 1).to_string());
    informer
        .store()
        .wait_until_at_least(&last, patient())
        .unwrap();
    let stored = since(begun);
    println!(
        "{EVENTS} events, an index function of {SLOW:?}, {BUFFERED} events fit between server and \
         client:\n  \
         written before the server was blocked: {}; all written after {written:.0?}; \
         the store had the last one {:.0?} later, {stored:.0?} after the first",
        before_blocked.unwrap_or(EVENTS),
        stored.saturating_sub(written),
    );
}
