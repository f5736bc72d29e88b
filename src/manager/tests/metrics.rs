//! What a manager's metrics are told of its reads, and what its reading gives.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use k8s_openapi::api::core::v1::Secret;

use super::fake::pod;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::{Error, ErrorKind};
use crate::manager::{
    ChangeDetection, ManagerMetrics, ManagerOptions, ManagerReading, SecretManager,
};
use crate::reflector::{ReflectorMetrics, ReflectorReading};
use crate::sync::Arc;
use crate::testing::{FakeSource, objects};

/// Passes on what it is told.
#[derive(Debug)]
struct Scribe {
    reads: Sender<Option<ErrorKind>>,
    listed: Sender<usize>,
    readings: Sender<ManagerReading>,
}

impl ReflectorMetrics for Scribe {
    fn listed(&self, items: usize, _: Duration) {
        let _gone = self.listed.send(items);
    }
}

impl ManagerMetrics for Scribe {
    fn manager_started(&self, reading: ManagerReading) -> Result<(), Error> {
        drop(self.readings.send(reading));
        Ok(())
    }

    fn read(&self, took: Duration, failure: Option<&Error>) {
        assert_eq!(took, Duration::ZERO, "no time passes in these tests");
        let _gone = self.reads.send(failure.map(Error::kind));
    }
}

struct Stage {
    source: FakeSource<Secret>,
    manager: SecretManager,
    reads: Receiver<Option<ErrorKind>>,
    listed: Receiver<usize>,
    reading: ManagerReading,
}

impl Stage {
    fn new(mode: ChangeDetection) -> Self {
        let clock = Clock::from(FakeClock::new());
        let source = FakeSource::with_clock(clock.clone());
        let (send_reads, reads) = unbounded();
        let (send_listed, listed) = unbounded();
        let (send_readings, readings) = unbounded();
        let scribe = Scribe {
            reads: send_reads,
            listed: send_listed,
            readings: send_readings,
        };
        let options = ManagerOptions::default()
            .clock(clock)
            .change_detection(mode)
            .metrics(Arc::new(scribe));
        let manager = SecretManager::new(source.clone(), options).unwrap();
        Self {
            source,
            manager,
            reads,
            listed,
            reading: readings.recv().unwrap(),
        }
    }
}

#[test]
fn each_read_is_told_with_its_failure_whatever_the_strategy() {
    for mode in ChangeDetection::ALL {
        let stage = Stage::new(mode);
        let manager = &stage.manager;
        stage
            .source
            .set(objects::secret("ns", "s", "", &[("k", "v")]));
        manager.register_pod(&pod("p", &["s", "missing"]));
        manager.get("ns", "s").unwrap();
        assert_eq!(stage.reads.recv(), Ok(None), "{mode}");
        manager
            .get_by("ns", "missing", Deadline::NEVER)
            .unwrap_err();
        assert_eq!(stage.reads.recv(), Ok(Some(ErrorKind::NotFound)), "{mode}");
        manager.get_fresh("ns", "s", Deadline::NEVER).unwrap();
        assert_eq!(stage.reads.recv(), Ok(None), "{mode}");
        let version = "2".into();
        manager
            .get_at_least("ns", "s", &version, Deadline::NEVER)
            .unwrap();
        assert_eq!(stage.reads.recv(), Ok(None), "{mode}");
        manager.get_cached("ns", "s").unwrap();
        assert!(stage.reads.is_empty(), "{mode}: a look is no read");
        if mode == ChangeDetection::Watch {
            let mut listed = [stage.listed.recv().unwrap(), stage.listed.recv().unwrap()];
            listed.sort_unstable();
            assert_eq!(listed, [0, 1], "its reflectors share the metrics");
        }
    }
}

#[test]
fn a_reading_counts_objects_references_and_watches_until_the_drop() {
    for mode in ChangeDetection::ALL {
        let stage = Stage::new(mode);
        stage.manager.register_pod(&pod("p", &["s", "t"]));
        stage.manager.register_pod(&pod("q", &["s"]));
        let counts = stage.reading.state().unwrap();
        assert_eq!((counts.objects, counts.references), (2, 3), "{mode}");
        let watches = if mode == ChangeDetection::Watch { 2 } else { 0 };
        assert_eq!(counts.watches, watches, "{mode}");
        assert_eq!(stage.reading.kind(), "Secret");
        assert_eq!(stage.reading.change_detection(), mode);
        drop(stage.manager);
        assert!(stage.reading.is_over() && stage.reading.state().is_none());
    }
}

/// Metrics of another kind or strategy would count under the wrong labels.
#[test]
fn metrics_can_refuse_a_manager() {
    #[derive(Debug)]
    struct Picky;
    impl ReflectorMetrics for Picky {}
    impl ManagerMetrics for Picky {
        fn manager_started(&self, reading: ManagerReading) -> Result<(), Error> {
            Err(Error::new(ErrorKind::Config, reading.kind()))
        }
    }
    let options = ManagerOptions::default().metrics(Arc::new(Picky));
    let refused = SecretManager::new(FakeSource::<Secret>::new(), options);
    assert_eq!(refused.unwrap_err().to_string(), "Secret");
}

/// What cannot start says so when it is read, and holds up no end (B16).
#[test]
fn metrics_that_panic_at_a_reflectors_start_are_the_reads_failure() {
    #[derive(Debug)]
    struct Panicky;
    impl ReflectorMetrics for Panicky {
        fn reflector_started(&self, _: ReflectorReading) {
            panic!("made up");
        }
    }
    impl ManagerMetrics for Panicky {}
    let options = ManagerOptions::default().metrics(Arc::new(Panicky));
    let manager = SecretManager::new(FakeSource::<Secret>::new(), options).unwrap();
    manager.register_pod(&pod("p", &["s"]));
    let deadline = Clock::system().after(Duration::ZERO);
    let error = manager.get_by("ns", "s", deadline).unwrap_err();
    assert!(error.to_string().contains("panicked: made up"), "{error}");
}
