//! Whether what one object costs stays the same in a large store: pods decoded and as `Compact`,
//! 1,000, 10,000 and 100,000 of them, and then a million events.
//!
//! `KUBECACHE_SCALE_OBJECTS` and `KUBECACHE_SCALE_EVENTS` change the largest amounts.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a program for people, which fails by panicking"
)]

mod bodies;

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use k8s_openapi::api::core::v1::Pod;
use kubecache::Compact;
use kubecache::clock::Clock;
use kubecache::list_watch::{EventKind, Listed, ObjectEvent};
use kubecache::object::{Object, ResourceVersion, StoredObject};
use kubecache::reflector::{Replacement, Sink as _};
use kubecache::store::{Indexers, Store, StoreWriter};
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use bodies::{Dress, Kind, Random, decode};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Objects of one piece of a list, and events of one round.
const AT_ONCE: usize = 1_000;

/// Rounds of events whose fastest counts, and gets.
const ROUNDS: usize = 10;
const GETS: usize = 100_000;

fn main() {
    let objects = number("KUBECACHE_SCALE_OBJECTS", 100_000);
    let events = number("KUBECACHE_SCALE_EVENTS", 1_000_000);
    println!("pods as a server sends them; CPU time, and bytes that stay allocated");
    for count in [objects / 100, objects / 10, objects] {
        Cluster::<Pod>::listed("decoded", count).measure();
        Cluster::<Compact<Pod>>::listed("Compact", count).measure();
    }
    Cluster::<Compact<Pod>>::listed("Compact", objects).last(events);
}

fn number(variable: &str, usual: usize) -> usize {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// A store with as many pods as a cluster has.
struct Cluster<K: Object> {
    name: &'static str,
    count: usize,
    store: Store<K>,
    writer: StoreWriter<K>,
    version: usize,
    region: Region<'static, System>,
    listed_in: Duration,
}

impl<K: Object> Cluster<K> {
    fn listed(name: &'static str, count: usize) -> Self {
        let region = Region::new(ALLOCATOR);
        let (store, writer) = Store::new(Indexers::new().by_namespace(), Clock::system());
        let mut cluster = Self {
            name,
            count,
            store,
            writer,
            version: count,
            region,
            listed_in: Duration::ZERO,
        };
        let mut staging = cluster.writer.begin();
        for from in (0..count).step_by(AT_ONCE) {
            let body = cluster.body(from, 1);
            let began = cpu();
            for object in decode::<K>(&body) {
                let item = Listed::Object(object);
                cluster.writer.stage(&mut staging, ObjectEvent::added(item));
            }
            cluster.listed_in += cpu().saturating_sub(began);
        }
        let of = Replacement {
            resource_version: ResourceVersion::from(count.to_string()),
            consistent: true,
            history_expired: false,
        };
        let began = cpu();
        cluster.writer.commit(staging, &of).unwrap();
        cluster.listed_in += cpu().saturating_sub(began);
        cluster
    }

    /// The next states of `AT_ONCE` pods, as a list of them.
    fn body(&mut self, from: usize, step: usize) -> Vec<u8> {
        let mut body = String::from(r#"{"metadata":{"resourceVersion":"1"},"items":["#);
        for nth in 0..AT_ONCE.min(self.count) {
            let nth = (from + nth * step) % self.count;
            // The same uid each time.
            let mut random = Random(nth as u64);
            let mut json = bodies::object(Kind::Pod, Dress::AsServed, nth, &mut random);
            let key = r#""resourceVersion":""#;
            let begin = json.find(key).unwrap() + key.len();
            let end = begin + json.get(begin..).unwrap().find('"').unwrap();
            self.version += 1;
            json.replace_range(begin..end, &self.version.to_string());
            body.push_str(&json);
            body.push(',');
        }
        body.pop();
        body.push_str("]}");
        body.into_bytes()
    }

    /// The CPU time of a round of events on pods that lie apart from each other.
    fn round(&mut self, number: usize) -> Duration {
        let body = self.body(number, self.count / AT_ONCE.min(self.count));
        let began = cpu();
        for object in decode::<K>(&body) {
            let event = ObjectEvent {
                kind: EventKind::Updated,
                object: Listed::Object(object),
            };
            self.writer.apply(event).unwrap();
        }
        cpu().saturating_sub(began)
    }

    fn kept(&self) -> f64 {
        let change = self.region.change();
        let kept = change.bytes_allocated - change.bytes_deallocated;
        kept as f64 / 1024.0 / self.count as f64
    }

    fn measure(mut self) {
        let kept = self.kept();
        let rounds = (0..ROUNDS).map(|number| self.round(number));
        let event = rounds.min().unwrap();
        let all: Vec<Arc<StoredObject<K>>> = self.store.list();
        let names = (0..GETS).map(|nth| &all[nth * 7919 % self.count]);
        let key =
            |object: &StoredObject<K>| (object.namespace().to_owned(), object.name().to_owned());
        let names: Vec<_> = names.map(|object| key(object)).collect();
        let bare: HashMap<_, _> = all.iter().map(|it| (key(it), Arc::clone(it))).collect();
        drop(all);
        let bare = || {
            for name in &names {
                black_box(bare.get(name).map(Arc::clone).unwrap());
            }
        };
        let ours = || {
            for (namespace, name) in &names {
                black_box(self.store.get(namespace, name).unwrap().unwrap());
            }
        };
        let time = |gets: &dyn Fn()| {
            let began = cpu();
            gets();
            cpu().saturating_sub(began)
        };
        time(&bare);
        let floor = time(&bare);
        let unread = self.kept();
        let first = time(&ours);
        let copy = (self.kept() - unread) * 1024.0;
        let get = time(&ours);
        let each = |time: Duration, count: usize| time.as_secs_f64() * 1e6 / count as f64;
        println!(
            "{:8} {:7} pods: {kept:5.1} KiB each; list {:6.1} us each; event {:6.1} us; \
             get {:4.0} ns, an object's first {:4.0} and {copy:.0} bytes, of a bare map {:4.0}",
            self.name,
            self.count,
            each(self.listed_in, self.count),
            each(event, AT_ONCE.min(self.count)),
            each(get, GETS) * 1e3,
            each(first, GETS) * 1e3,
            each(floor, GETS) * 1e3,
        );
    }

    /// Plays events until there were as many, and shows the first tenth of them beside the last.
    fn last(mut self, events: usize) {
        let before = self.kept();
        let tenth = events.div_ceil(AT_ONCE * 10);
        let mut play = |rounds: std::ops::Range<usize>| {
            let times = rounds.map(|number| self.round(number));
            times.sum::<Duration>().as_secs_f64() * 1e6 / (tenth * AT_ONCE) as f64
        };
        let first = play(0..tenth);
        play(tenth..tenth * 9);
        let last = play(tenth * 9..tenth * 10);
        println!(
            "{:8} {:7} pods, {events} events: the first tenth {first:.1} us each, the last \
             {last:.1}; {before:.2} KiB a pod before, {:.2} after",
            self.name,
            self.count,
            self.kept()
        );
    }
}
