//! What a panic of the user's own code formats may hold what is in an object: it stands in no log
//! line of the crate's.
#![cfg(feature = "testing")]

use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Sender, unbounded};
use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Deadline;
use kubecache::informer::{Handlers, InformerOptions, SharedInformer};
use kubecache::list_watch::{
    ListPage, ListRequest, Listed, ListerWatcher, WatchRequest, WatchStream,
};
use kubecache::testing::{FakeSource, objects};
use kubecache::worker::StopToken;
use kubecache::{Error, ErrorKind};
use log::{LevelFilter, Log, Metadata, Record};

use crate::support::{alone, until_some};

/// Passes every line on.
struct Kept(OnceLock<Sender<String>>);

static LOGGER: Kept = Kept(OnceLock::new());

impl Log for Kept {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if let Some(lines) = self.0.get() {
            lines.send(record.args().to_string()).unwrap();
        }
    }

    fn flush(&self) {}
}

/// A source whose watch panics with what is in an object.
struct Talkative(FakeSource<Secret>);

impl ListerWatcher<Secret> for Talkative {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<Secret>),
    ) -> Result<ListPage, Error> {
        self.0.list(request, stop, each)
    }

    fn watch(
        &self,
        _: &WatchRequest,
        _: &StopToken,
    ) -> Result<Box<dyn WatchStream<Secret>>, Error> {
        let held = self.0.objects();
        let said: Vec<_> = held.iter().map(|secret| &secret.string_data).collect();
        assert!(said.is_empty(), "a bad source: {said:?}");
        Err(Error::new(ErrorKind::Protocol, "it did not panic"))
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

#[test]
fn a_panic_that_formats_a_secret_is_logged_without_its_words() {
    alone(|| {
        let (send, lines) = unbounded();
        LOGGER.0.set(send).unwrap();
        log::set_logger(&LOGGER).unwrap();
        log::set_max_level(LevelFilter::Trace);
        let source = FakeSource::<Secret>::new();
        let mut secret = objects::secret("shop", "db", "", &[]);
        secret.string_data = Some([("password".to_owned(), "canary".to_owned())].into());
        source.set(secret);
        let options = InformerOptions::default();
        let informer = SharedInformer::new(Arc::new(Talkative(source)), options);
        let handler =
            Handlers::<Secret>::new().on_add(|secret, _| panic!("{:?}", secret.string_data));
        let registration = informer.add_handler(handler).unwrap();
        informer.start().unwrap();
        informer.wait_until_synced(Deadline::NEVER).unwrap();
        let failure = until_some(|| informer.status().failures.last().cloned());
        informer.shutdown(Deadline::NEVER).unwrap();
        assert_eq!(failure.kind(), ErrorKind::Panicked);
        assert!(!failure.to_string().contains("canary"), "{failure}");
        drop((registration, informer));
        let lines: Vec<String> = lines.try_iter().collect();
        assert!(lines.iter().any(|line| line.contains("panicked")));
        let told: Vec<_> = lines
            .iter()
            .filter(|line| line.contains("canary"))
            .collect();
        assert!(told.is_empty(), "{told:?}");
    });
}
