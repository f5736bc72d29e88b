//! An hour in which the server refuses: how many lines the log gets, of one reflector and of a
//! manager with fifty objects, and what they say.
#![cfg(feature = "testing")]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::clock::{Clock, Deadline, FakeClock};
use kubecache::manager::{ManagerOptions, Owner, SecretManager};
use kubecache::object::{ObjectKey, Status};
use kubecache::reflector::ReflectorOptions;
use kubecache::store::{Indexers, Store};
use kubecache::testing::{FakeSource, RequestKind, objects};
use kubecache::{Error, ErrorKind};
use log::kv::{Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::support::{alone, until, until_some};

const HOUR: Duration = Duration::from_secs(60 * 60);
const OBJECTS: usize = 50;

/// A line of the log.
#[derive(Debug)]
struct Line {
    level: Level,
    text: String,
    fields: BTreeMap<String, String>,
}

/// The lines since they were taken last.
struct Lines(LazyLock<(Sender<Line>, Receiver<Line>)>);

static LOGGER: Lines = Lines(LazyLock::new(unbounded));

struct Fields(BTreeMap<String, String>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        self.0.insert(key.to_string(), value.to_string());
        Ok(())
    }
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("kubecache::reflector")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut fields = Fields(BTreeMap::new());
        record.key_values().visit(&mut fields).unwrap();
        let line = Line {
            level: record.level(),
            text: record.args().to_string(),
            fields: fields.0,
        };
        self.0.0.send(line).unwrap();
    }

    fn flush(&self) {}
}

impl Lines {
    fn take(&self) -> Vec<Line> {
        self.0.1.try_iter().collect()
    }
}

/// The lines at `Info` and above, and the count of those below.
fn loud(what: &str, lines: Vec<Line>) -> (Vec<Line>, usize) {
    let all = lines.len();
    let loud: Vec<_> = lines
        .into_iter()
        .filter(|line| line.level <= Level::Info)
        .collect();
    let quiet = all - loud.len();
    println!("{what}: {} lines, and {quiet} for debugging", loud.len());
    for line in &loud {
        println!("  {} {} {:?}", line.level, line.text, line.fields);
    }
    (loud, quiet)
}

/// Lets time pass; `threads` are those that wait for it.
fn pass(clock: &FakeClock, time: Duration, threads: usize) {
    let end = clock.now() + time;
    while clock.now() < end {
        clock.advance(clock.wait_for_timers(threads));
    }
    clock.wait_for_timers(threads);
}

#[test]
fn an_hour_of_refusals_is_few_lines_that_say_how_many_there_were() {
    alone(|| {
        log::set_logger(&LOGGER).unwrap();
        log::set_max_level(LevelFilter::Trace);
        each_failure_for_an_hour();
        one_reflector_of_a_kind_that_is_gone();
        fifty_objects_of_a_permission_that_is_withdrawn();
    });
}

/// The table of the manual's page about differences.
fn each_failure_for_an_hour() {
    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let refused = Error::new(ErrorKind::Unreachable, "could not connect").with_source(refused);
    let status = |code| Error::from_status(Status::new(code, "no"));
    // What fails, its error, and the most requests.
    let failures = [
        ("403", status(403), 40),
        ("404, the kind is gone", status(404), 40),
        ("connection refused", refused, 110),
    ];
    for (what, error, most) in failures {
        let clock = FakeClock::new();
        let source = Arc::new(FakeSource::<ConfigMap>::new());
        source.fail_all(RequestKind::List, error);
        let options = ReflectorOptions::default().clock(Clock::from(clock.clone()));
        let server: Arc<FakeSource<ConfigMap>> = Arc::clone(&source);
        let (_store, reflector) = Store::spawn("maps", server, Indexers::new(), options).unwrap();
        pass(&clock, HOUR, 1);
        let requests = source.requests().len();
        let (told, quiet) = loud(what, LOGGER.take());
        println!(
            "| {what} | {requests} requests | {} lines | {quiet} at debug |",
            told.len()
        );
        assert!(requests <= most, "{what}: {requests}");
        assert!((4..=7).contains(&told.len()), "{what}: {told:?}");
        drop(reflector);
        LOGGER.take();
    }
}

fn one_reflector_of_a_kind_that_is_gone() {
    let clock = FakeClock::new();
    let source = Arc::new(FakeSource::<ConfigMap>::new());
    let gone = "the server could not find the requested resource";
    source.fail_all(
        RequestKind::List,
        Error::from_status(Status::new(404, gone)),
    );
    let options = ReflectorOptions::default().clock(Clock::from(clock.clone()));
    let server: Arc<FakeSource<ConfigMap>> = Arc::clone(&source);
    let (store, _reflector) = Store::spawn("widgets", server, Indexers::new(), options).unwrap();
    pass(&clock, HOUR, 1);
    let (told, _) = loud("one reflector of a kind that is gone", LOGGER.take());
    assert!((5..=7).contains(&told.len()), "{told:?}");
    assert!(told.iter().all(|line| line.text.ends_with(gone)));
    let refused = store.wait_until_synced(Deadline::NEVER).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let last = told.last().unwrap();
    assert_eq!(last.fields["name"], "widgets");
    let counts: Vec<u64> = ["failures", "left_out"]
        .iter()
        .map(|field| last.fields[*field].parse().unwrap())
        .collect();
    assert!(counts[0] > counts[1] && counts[1] > 0, "{last:?}");

    // It works again: at once when somebody asks, and that is told.
    source.heal();
    assert!(store.wait_until_synced(Deadline::NEVER).is_err());
    let healed = clock.now();
    until(|| {
        if clock.now() < healed + Duration::from_secs(60) {
            clock.advance(Duration::from_secs(1));
        }
        store.status().watches > 0
    });
    until(|| loud("it works again", LOGGER.take()).0.len() == 1);
}

fn fifty_objects_of_a_permission_that_is_withdrawn() {
    let clock = FakeClock::new();
    let source = FakeSource::<Secret>::new();
    let options = ManagerOptions::default()
        .clock(Clock::from(clock.clone()))
        .idle_max(HOUR * 10);
    let manager = SecretManager::new(source.clone(), options).unwrap();
    let owner = Owner::new("Test", ObjectKey::new("shop", "owner"));
    for number in 0..OBJECTS {
        let name = format!("s{number}");
        source.set(objects::secret(
            "shop",
            &name,
            "",
            &[("password", "canary")],
        ));
        manager.add_reference(&owner, &ObjectKey::new("shop", &*name));
        manager.get_by("shop", &name, Deadline::NEVER).unwrap();
    }
    source.wait_for_watches(OBJECTS);
    LOGGER.take();
    let before = source.requests().len();
    let refusal = Error::from_status(Status::new(403, "secrets is forbidden"));
    source.fail_all(RequestKind::Watch, refusal.clone());
    source.fail_all(RequestKind::List, refusal.clone());
    clock.advance(Duration::from_secs(10));
    source.end_watches(Some(&refusal));
    pass(&clock, HOUR, OBJECTS + 1);
    println!("{} requests", source.requests().len() - before);
    let (told, quiet) = loud("fifty objects", LOGGER.take());
    assert!((5..=8).contains(&told.len()), "{told:?}");
    assert_eq!(told.last().unwrap().fields["failing"], OBJECTS.to_string());
    let left_out = told.iter().filter_map(|line| line.fields.get("left_out"));
    let left_out: usize = left_out.map(|count| count.parse::<usize>().unwrap()).sum();
    assert!(left_out > 500 && left_out <= quiet, "{left_out} of {quiet}");

    source.heal();
    manager.get("shop", "s7").unwrap();
    until(|| {
        clock.advance(Duration::from_secs(1));
        source.open_watches() == OBJECTS
    });
    let told = until_some(|| {
        let told = loud("all are back", LOGGER.take()).0;
        (!told.is_empty()).then_some(told)
    });
    let text: Vec<_> = told.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(text, ["recovered"], "{told:?}");
    assert!(!format!("{told:?}").contains("canary"));
}
