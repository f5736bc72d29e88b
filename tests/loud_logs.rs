//! A logger that takes every record of every crate must not be given a secret: the client refuses
//! to work with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Secret;
use kubecache::ErrorKind;
use kubecache::clock::Deadline;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::Getter;
use kubecache::object::{ObjectKey, ResourceVersion};
use kubecache::worker::StopToken;
use log::{LevelFilter, Log, Metadata, Record};

use crate::support::alone;

/// Takes all records, or all but those of ureq's protocol.
struct Everything {
    filtered: AtomicBool,
}

static LOGGER: Everything = Everything {
    filtered: AtomicBool::new(false),
};

impl Log for Everything {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !(self.filtered.load(Ordering::SeqCst) && metadata.target().starts_with("ureq_proto"))
    }

    fn log(&self, _: &Record<'_>) {}

    fn flush(&self) {}
}

#[test]
fn a_logger_that_would_see_tokens_and_secrets_is_refused_by_name() {
    alone(|| {
        log::set_logger(&LOGGER).unwrap();
        log::set_max_level(LevelFilter::Trace);
        // Nobody listens there: what is not refused ends as unreachable.
        let config = Config::for_server("http://127.0.0.1:1").unwrap();
        let client = Client::new(&config, ClientOptions::default()).unwrap();
        let getter: Arc<dyn Getter<Secret>> = client.getter();
        let get = || {
            let key = ObjectKey::new("shop", "db");
            let newest = ResourceVersion::most_recent();
            let got = getter.get(&key, &newest, Deadline::NEVER, &StopToken::never());
            got.map(drop).unwrap_err()
        };
        let refused = get();
        assert_eq!(refused.kind(), ErrorKind::Config);
        assert!(
            refused.to_string().contains("ureq_proto=debug"),
            "{refused}"
        );
        #[cfg(feature = "testing")]
        a_recorder_is_refused_as_well(&config);
        LOGGER.filtered.store(true, Ordering::SeqCst);
        assert_eq!(get().kind(), ErrorKind::Unreachable);
        LOGGER.filtered.store(false, Ordering::SeqCst);
        log::set_max_level(LevelFilter::Debug);
        assert_eq!(get().kind(), ErrorKind::Unreachable);
    });
}

/// It passes on the token of its configuration and whatever the server says.
#[cfg(feature = "testing")]
fn a_recorder_is_refused_as_well(config: &Config) {
    use std::io::{Read, Write};

    let recorder = kubecache::testing::Recorder::start(config, 0).unwrap();
    let mut socket = std::net::TcpStream::connect(recorder.address()).unwrap();
    socket
        .write_all(b"GET /api/v1/secrets HTTP/1.1\r\nHost: recorder\r\n\r\n")
        .unwrap();
    // It closes without an answer.
    assert_eq!(socket.read_to_end(&mut Vec::new()).unwrap(), 0);
    let (_, refused) = recorder.failures().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused}");
}
