//! What one watch event allocates on its way from the decoder to a handler. `--nocapture` prints
//! the table.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::Error;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::DecodeOptions;
use kubecache::informer::{Handlers, InformerOptions, SharedInformer};
use kubecache::list_watch::{
    ListPage, ListRequest, Listed, ListerWatcher, Next, ObjectEvent, WatchEvent, WatchRequest,
    WatchStream,
};
use kubecache::object::ResourceVersion;
use kubecache::reflector::{Reflector, ReflectorOptions, Replacement, Sink};
use kubecache::store::{Indexers, Store};
use kubecache::testing::EventDecoder;
use kubecache::worker::StopToken;

use crate::COUNTED;
use crate::support::alone;

/// Events before the count begins: maps, queues and buffers have then the size that they keep.
const WARM_UP: usize = 64;

/// Events that are counted. What is made once for several events is a part of each.
const EVENTS: usize = 256;

/// The most that an event may allocate up to the end of each stage, and what the stage allocates.
const STAGES: [(&str, usize, &str); 5] = [
    ("object", 16, "its texts, and a node of each of its maps"),
    (
        "decoder",
        18,
        "the bytes as they were read; the shared object",
    ),
    (
        "reflector",
        19,
        "its version: the position, which the statuses share",
    ),
    ("store", 20, "the position of the content"),
    (
        "informer",
        20,
        "nothing: the queue of a handler keeps its room, and shares the objects",
    ),
];

/// An event that modifies one object: two labels, two values.
fn line(version: usize) -> String {
    format!(
        "{{\"type\":\"MODIFIED\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\
         \"metadata\":{{\"name\":\"settings\",\"namespace\":\"shop\",\"uid\":\"5a1f\",\
         \"resourceVersion\":\"{version:08}\",\"labels\":{{\"app\":\"shop\",\"tier\":\"web\"}}}},\
         \"data\":{{\"a\":\"one\",\"b\":\"two\"}}}}}}"
    )
}

/// All events, as they come from the server.
fn lines() -> Arc<Vec<Vec<u8>>> {
    let versions = 100..100 + WARM_UP + EVENTS;
    Arc::new(versions.map(|version| line(version).into_bytes()).collect())
}

/// Allocations per event that `take_in` makes once the first events have been taken in.
fn count(mut take_in: impl FnMut(usize)) -> usize {
    (0..WARM_UP).for_each(&mut take_in);
    let made = || {
        let stats = COUNTED.stats();
        stats.allocations + stats.reallocations
    };
    let before = made();
    (WARM_UP..WARM_UP + EVENTS).for_each(take_in);
    let made = made() - before;
    // What is not made for each event, such as the next block of a channel, is not counted.
    (made + EVENTS / 2) / EVENTS
}

fn decode(decoder: &mut EventDecoder<ConfigMap>, mut bytes: &[u8]) -> WatchEvent<ConfigMap> {
    while !bytes.is_empty() {
        let space = decoder.space();
        let length = space.len().min(bytes.len());
        let (now, rest) = bytes.split_at(length);
        space[..length].copy_from_slice(now);
        decoder.filled(length);
        bytes = rest;
    }
    decoder.next().unwrap().unwrap()
}

/// Lists nothing, and watches the events that the test calls for.
struct Called {
    lines: Arc<Vec<Vec<u8>>>,
    which: Receiver<usize>,
    /// Told when the watch asks for the next event: the last one has been taken in.
    taken_in: Sender<()>,
}

impl ListerWatcher<ConfigMap> for Called {
    fn list(
        &self,
        _: &ListRequest,
        _: &StopToken,
        _: &mut dyn FnMut(Listed<ConfigMap>),
    ) -> Result<ListPage, Error> {
        Ok(ListPage {
            resource_version: ResourceVersion::from("1"),
            continue_token: None,
            ..ListPage::default()
        })
    }

    fn watch(
        &self,
        _: &WatchRequest,
        _: &StopToken,
    ) -> Result<Box<dyn WatchStream<ConfigMap>>, Error> {
        Ok(Box::new(Events {
            decoder: EventDecoder::new(&DecodeOptions::default()),
            lines: Arc::clone(&self.lines),
            which: self.which.clone(),
            taken_in: self.taken_in.clone(),
            is_out: false,
        }))
    }

    fn describe(&self) -> String {
        "events of the test".to_owned()
    }
}

struct Events {
    decoder: EventDecoder<ConfigMap>,
    lines: Arc<Vec<Vec<u8>>>,
    which: Receiver<usize>,
    taken_in: Sender<()>,
    /// An event was handed out, and the next one not asked for.
    is_out: bool,
}

impl WatchStream<ConfigMap> for Events {
    fn next(&mut self, _: Deadline) -> Result<Next<ConfigMap>, Error> {
        if std::mem::take(&mut self.is_out) {
            self.taken_in.send(()).unwrap();
        }
        // The test goes away before it stops whoever reads this.
        let Ok(which) = self.which.recv() else {
            return Ok(Next::Ended(None));
        };
        self.is_out = true;
        let event = decode(&mut self.decoder, &self.lines[which]);
        Ok(Next::Event(event))
    }

    fn last_contact(&self) -> Instant {
        Clock::system().now()
    }
}

/// The test's end of a [`Called`].
struct Caller {
    call: Sender<usize>,
    taken_in: Receiver<()>,
}

impl Caller {
    fn new() -> (Arc<Called>, Self) {
        let ((call, which), (taken, taken_in)) = (bounded(1), bounded(1));
        let source = Called {
            lines: lines(),
            which,
            taken_in: taken,
        };
        (Arc::new(source), Self { call, taken_in })
    }

    /// Blocks until the event has been taken in.
    fn call(&self, nth: usize) {
        self.call.send(nth).unwrap();
        self.taken_in.recv().unwrap();
    }
}

/// Drops what it is told.
struct Nowhere;

impl Sink<ConfigMap> for Nowhere {
    type Staging = ();

    fn begin(&mut self) {}

    fn stage(&mut self, (): &mut (), _: ObjectEvent<ConfigMap>) {}

    fn commit(&mut self, (): (), _: &Replacement) -> Result<(), Error> {
        Ok(())
    }

    fn apply(&mut self, _: ObjectEvent<ConfigMap>) -> Result<(), Error> {
        Ok(())
    }
}

/// Decodes the object alone.
fn of_object() -> usize {
    let lines = lines();
    count(|nth| {
        let text = std::str::from_utf8(&lines[nth]).unwrap();
        let (_, object) = text.split_once(r#""object":"#).unwrap();
        let object = object.strip_suffix('}').unwrap();
        drop(serde_json::from_str::<ConfigMap>(object).unwrap());
    })
}

fn of_decoder() -> usize {
    let lines = lines();
    let mut decoder = EventDecoder::<ConfigMap>::new(&DecodeOptions::default());
    count(|nth| drop(decode(&mut decoder, &lines[nth])))
}

fn of_reflector() -> usize {
    let (source, caller) = Caller::new();
    let _reflector =
        Reflector::spawn("none", source, Nowhere, ReflectorOptions::default()).unwrap();
    count(move |nth| caller.call(nth))
}

fn of_store() -> usize {
    let (source, caller) = Caller::new();
    let indexers = Indexers::new();
    let _both = Store::spawn("store", source, indexers, ReflectorOptions::default()).unwrap();
    count(move |nth| caller.call(nth))
}

fn of_informer() -> usize {
    let (source, caller) = Caller::new();
    let informer = SharedInformer::<ConfigMap>::new(source, InformerOptions::default());
    let (tell, told) = bounded(1);
    let (first, next) = (tell.clone(), tell);
    let handlers = Handlers::<ConfigMap>::new()
        .on_add(move |_, _| first.send(()).unwrap())
        .on_update(move |_, _| next.send(()).unwrap());
    informer.add_handler(handlers).unwrap();
    informer.start().unwrap();
    let counted = count(move |nth| {
        caller.call(nth);
        told.recv().unwrap();
    });
    informer.shutdown(Deadline::NEVER).unwrap();
    counted
}

#[test]
fn an_event_allocates_what_its_object_needs_and_little_more() {
    alone(|| {
        let counts = [
            of_object(),
            of_decoder(),
            of_reflector(),
            of_store(),
            of_informer(),
        ];
        println!("up to the  allocates  at most  for");
        for ((stage, most, what), made) in STAGES.into_iter().zip(counts) {
            println!("{stage:<9}  {made:>9}  {most:>7}  {what}");
        }
        for ((stage, most, _), made) in STAGES.into_iter().zip(counts) {
            assert!(made <= most, "{stage}: {made}, at most {most}");
        }
    });
}
