//! Reads of a state not older than a version: how often the server is asked, and what ends the
//! asking (R11).

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;

use crate::clock::{Clock, FakeClock};
use crate::error::{Error, ErrorKind};
use crate::manager::entry::consistent_reads::is_reached;
use crate::manager::kinds::KindTraits;
use crate::manager::registry::Registry;
use crate::manager::strategy::Strategy as _;
use crate::manager::ttl::store::TtlStore;
use crate::manager::{ChangeDetection, ManagerOptions};
use crate::object::{ResourceVersion, Status};
use crate::sync::Arc;
use crate::testing::{FakeSource, RequestKind, SourceFault, objects};
use crate::worker::Worker;

struct Stage {
    source: FakeSource<Secret>,
    fake: FakeClock,
    /// Keeps nothing, and nobody references an object of it.
    store: Arc<TtlStore<Secret>>,
}

impl Stage {
    fn new() -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let source = FakeSource::with_clock(clock.clone());
        source.set(objects::secret("ns", "s", "", &[("key", "canary")]));
        let options = ManagerOptions::default()
            .clock(clock)
            .change_detection(ChangeDetection::Get);
        let store = Arc::new(TtlStore::new(Registry::new(
            KindTraits::default(),
            Arc::new(source.clone()),
            options,
        )));
        Self {
            source,
            fake,
            store,
        }
    }

    /// Asks on a thread of its own: the version that was found, or why there is none.
    fn ask(&self, version: &str, within: Duration) -> Asked {
        let (send, answer) = crossbeam_channel::bounded(1);
        let deadline = Clock::from(self.fake.clone()).after(within);
        let store = Arc::clone(&self.store);
        let version = ResourceVersion::from(version);
        let worker = Worker::spawn("t-at-least", move |_| {
            let answer = match store.get_at_least("ns", "s", &version, deadline) {
                Ok(found) => Ok(found.metadata.resource_version.clone()),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            };
            send.send(answer).unwrap();
        });
        Asked {
            answer,
            worker: worker.unwrap(),
        }
    }

    /// Which versions were asked for.
    fn versions(&self) -> Vec<String> {
        let requests = self.source.requests().into_iter();
        requests
            .inspect(|request| assert_eq!(request.kind, RequestKind::Get))
            .map(|request| request.resource_version.to_string())
            .collect()
    }
}

struct Asked {
    answer: crossbeam_channel::Receiver<Answer>,
    worker: Worker,
}

impl Asked {
    fn answer(self) -> Answer {
        let answer = self.answer.recv().unwrap();
        self.worker.join().unwrap();
        answer
    }
}

type Answer = Result<Option<String>, Error>;

const SECOND: Duration = Duration::from_secs(1);

/// R11: a server that has come that far is asked once, for that version.
#[test]
fn a_version_the_server_has_costs_one_request() {
    let stage = Stage::new();
    let answer = stage.ask("2", SECOND).answer();
    assert_eq!(answer.unwrap().as_deref(), Some("2"));
    stage.source.delete("ns", "s");
    assert_eq!(stage.ask("3", SECOND).answer().unwrap(), None);
    assert_eq!(stage.versions(), ["2", "3"]);
}

/// R11: a server that has not is asked again after 50 ms, doubling to a second.
#[test]
fn a_version_from_the_future_is_asked_for_again_until_it_is_there() {
    let stage = Stage::new();
    let asked = stage.ask("9", 10 * SECOND);
    for (count, pause) in [50, 100, 200, 400, 800, 1_000, 1_000]
        .into_iter()
        .enumerate()
    {
        stage.source.wait_for_requests(count + 1);
        let pause = Duration::from_millis(pause);
        stage.fake.wait_for_timer(pause);
        if count == 6 {
            stage.source.skip_to(9);
        }
        stage.fake.advance(pause);
    }
    assert_eq!(asked.answer().unwrap().as_deref(), Some("2"));
    assert_eq!(stage.versions(), ["9"; 8]);
}

/// R11, BK-8: the time the server names wins over the doubling, which it does not use up.
#[test]
fn the_server_says_when_it_wants_to_be_asked_again() {
    let stage = Stage::new();
    let too_large = {
        let asked = stage.ask("9", Duration::ZERO + Duration::from_nanos(1));
        stage.source.wait_for_requests(1);
        stage.fake.wait_for_timer(Duration::from_nanos(1));
        stage.fake.advance(Duration::from_nanos(1));
        let error = asked.answer().unwrap_err();
        error.last_failure().unwrap().clone()
    };
    let fault = SourceFault::Fail(too_large.with_retry_after(3 * SECOND));
    stage.source.fail_next(RequestKind::Get, fault);
    let asked = stage.ask("9", 10 * SECOND);
    stage.fake.wait_for_timer(3 * SECOND);
    stage.fake.advance(3 * SECOND);
    let pause = Duration::from_millis(50);
    stage.fake.wait_for_timer(pause);
    stage.source.skip_to(9);
    stage.fake.advance(pause);
    assert_eq!(asked.answer().unwrap().as_deref(), Some("2"));
}

/// R11, B2: the deadline ends it with the server's own words, the requests that were made, and
/// since when.
#[test]
fn the_deadline_ends_it_in_the_servers_words() {
    let stage = Stage::new();
    let begin = stage.fake.now();
    let asked = stage.ask("9", SECOND);
    for pause in [50, 100, 200, 400, 250] {
        let pause = Duration::from_millis(pause);
        stage.fake.wait_for_timer(pause);
        stage.fake.advance(pause);
    }
    let error = asked.answer().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "timed out waiting for secret ns/s at version 9 or later\n5 attempts in 1.0s, the last one failed: \
         Timeout: Too large resource version: 9, current: 2"
    );
    assert_eq!((error.attempts(), error.since()), (5, Some(begin)));
    let status = error.last_failure().and_then(Error::status).unwrap();
    assert!(status.is_too_large_resource_version());
}

/// R11, B2: a request that gets no answer at all ends at the deadline too, and says what was waited
/// for.
#[test]
fn a_request_that_hangs_ends_at_the_deadline() {
    let stage = Stage::new();
    stage.source.fail_next(RequestKind::Get, SourceFault::Hang);
    let asked = stage.ask("2", SECOND);
    stage.fake.wait_for_timer(SECOND);
    stage.fake.advance(SECOND);
    let error = asked.answer().unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(
            "timed out waiting for secret ns/s at version 2 or later\n1 attempt in 1.0s"
        ),
        "{text}"
    );
    let late = stage.ask("2", Duration::ZERO).answer().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    assert_eq!(stage.versions().len(), 1, "nothing is sent when time is up");
}

/// R11: what is no delay of the server's is the answer at once, a version that is none included.
#[test]
fn other_errors_are_the_servers_own_and_come_at_once() {
    let stage = Stage::new();
    let words = "invalid resource version: strconv.ParseUint: parsing \"odd\": invalid syntax";
    let refusal = Error::from_status(Status::new(400, words));
    stage
        .source
        .fail_next(RequestKind::Get, SourceFault::Fail(refusal));
    let error = stage.ask("odd", SECOND).answer().unwrap_err();
    assert_eq!(error.to_string(), words);
    assert_eq!(stage.versions(), ["odd"]);
}

/// Promise 4: a stop ends the pause between two requests.
#[test]
fn a_stop_ends_the_pause() {
    let stage = Stage::new();
    let asked = stage.ask("9", SECOND);
    stage.fake.wait_for_timer(Duration::from_millis(50));
    stage.store.stop();
    assert!(asked.answer().unwrap_err().is_stopped());
    assert_eq!(stage.versions().len(), 1);
}

/// R11: versions have the order of numbers, and those that are none have no order.
#[test]
fn what_is_reached_is_decided_by_number() {
    let version = ResourceVersion::from;
    for (position, asked, reached) in [
        ("9", "9", true),
        ("10", "9", true),
        ("9", "10", false),
        ("", "9", false),
        ("odd", "odd", true),
        ("odd", "9", false),
        ("9", "odd", false),
    ] {
        let is = is_reached(&version(position), &version(asked));
        assert_eq!(is, reached, "{position} {asked}");
    }
}
