//! The client's process: reflectors that keep one Secret each, started together, measured when all
//! are idle.

use std::io::BufRead;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use k8s_openapi::api::core::v1::Secret;
use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::{EventKind, Listed, ObjectEvent};
use kubecache::object::{ObjectKey, ResourceVersion, Scope, StoredObject};
use kubecache::reflector::{Reflector, ReflectorOptions, Replacement, Sink};
use kubecache::worker::live_workers;

use super::memory;

/// Keeps the object, and says when the watch was opened again: the server tells by a bookmark.
pub(crate) struct Slot {
    held: Option<Arc<StoredObject<Secret>>>,
    modified: bool,
    idle: Option<Sender<()>>,
}

impl Slot {
    pub(crate) fn new(idle: Sender<()>) -> Self {
        Self {
            held: None,
            modified: false,
            idle: Some(idle),
        }
    }
}

impl Sink<Secret> for Slot {
    type Staging = Option<Arc<StoredObject<Secret>>>;

    fn begin(&mut self) -> Self::Staging {
        None
    }

    fn stage(&mut self, staging: &mut Self::Staging, item: ObjectEvent<Secret>) {
        if let Listed::Object(object) = item.object {
            *staging = Some(object);
        }
    }

    fn commit(&mut self, staging: Self::Staging, _: &Replacement) -> Result<(), Error> {
        self.held = staging;
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<Secret>) -> Result<(), Error> {
        if let ObjectEvent {
            kind: EventKind::Updated,
            object: Listed::Object(object),
        } = event
        {
            self.held = Some(object);
            self.modified = true;
        }
        Ok(())
    }

    fn bookmark(&mut self, _: &ResourceVersion) {
        assert!(self.held.is_some() && self.modified);
        if let Some(idle) = self.idle.take() {
            idle.send(()).unwrap();
        }
    }
}

pub(crate) fn client(config: &Config) -> Client {
    // The start is not what is measured.
    let rate = NonZeroU32::new(100_000).unwrap();
    let options = ClientOptions::default().rate(rate).burst(rate);
    Client::new(config, options).unwrap()
}

pub(crate) fn start(client: &Client, count: usize) -> (Vec<Reflector>, impl Fn()) {
    let (idle, all_idle) = crossbeam_channel::unbounded();
    let reflectors = (0..count).map(|number| {
        let key = ObjectKey::new("shop", format!("secret-{number}"));
        let source = client.lister_watcher(Scope::object(&key));
        let sink = Slot::new(idle.clone());
        Reflector::spawn(key.to_string(), source, sink, ReflectorOptions::default()).unwrap()
    });
    let reflectors = reflectors.collect();
    let wait = move || {
        for _ in 0..count {
            all_idle.recv().unwrap();
        }
        // Most threads that had sent the requests end soon after.
        while live_workers() > count + 4 {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    };
    (reflectors, wait)
}

pub(crate) fn run(count: usize, port: &str) {
    let config = Config::for_server(&format!("https://127.0.0.1:{port}")).unwrap();
    let authority = include_bytes!("../../fixtures/certs/authority.pem");
    let client = client(&config.with_authorities(authority.as_slice()));
    let (warm, wait) = start(&client, 1);
    wait();
    drop(warm);
    let (before, stacks, tables) = (
        memory::resident("self"),
        memory::stacks(),
        memory::page_tables(),
    );
    let descriptors = memory::descriptors();
    let (reflectors, wait) = start(&client, count);
    wait();
    println!(
        "{} {} {before} {} {}",
        memory::resident("self") - before,
        memory::stacks() - stacks,
        memory::page_tables() - tables,
        memory::descriptors() - descriptors,
    );
    wait_for_line();
    let clock = Clock::system();
    let begun = clock.now();
    for reflector in &reflectors {
        reflector.stop();
    }
    drop(reflectors);
    println!("{:.1?}", clock.now() - begun);
    wait_for_line();
}

pub(crate) fn wait_for_line() {
    std::io::stdin()
        .lock()
        .read_line(&mut String::new())
        .unwrap();
}
