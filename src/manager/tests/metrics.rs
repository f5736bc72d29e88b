//! The metrics of a manager: the events of its reads, and its counts.

use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use k8s_openapi::api::core::v1::Secret;

use super::fake::pod;
use super::stage::Stage;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::hooks::{Hook, Reading};
use crate::manager::{ChangeDetection, ManagerMetric, ManagerOptions, ManagerState, SecretManager};
use crate::reflector::ReflectorMetric;
use crate::testing::{FakeSource, objects};

/// The calls of the manager's hook.
struct Told {
    reads: Receiver<Option<ErrorKind>>,
    listed: Receiver<usize>,
    kind: String,
    change_detection: ChangeDetection,
    reading: Reading<ManagerState>,
}

fn stage(mode: ChangeDetection) -> (Stage, Told) {
    let (send_reads, reads) = unbounded();
    let (send_listed, listed) = unbounded();
    let (send_readings, readings) = unbounded();
    // It passes on what it is told.
    let scribe = Hook::new(move |metric| match metric {
        ManagerMetric::Started {
            kind,
            change_detection,
            reading,
        } => {
            drop(send_readings.send((kind.clone(), *change_detection, reading.clone())));
        }
        ManagerMetric::Read { took, failure } => {
            assert_eq!(*took, Duration::ZERO, "no time passes in these tests");
            let _gone = send_reads.send(failure.as_ref().map(Error::kind));
        }
        ManagerMetric::Reflector(ReflectorMetric::Listed { items, .. }) => {
            let _gone = send_listed.send(*items);
        }
        ManagerMetric::Reflector(_) => {}
    });
    let stage = Stage::of(mode)
        .options(|options| options.metrics(scribe))
        .start();
    let (kind, change_detection, reading) = readings.recv().unwrap();
    let told = Told {
        reads,
        listed,
        kind: kind.into_owned(),
        change_detection,
        reading,
    };
    (stage, told)
}

#[test]
fn each_read_is_told_with_its_failure_whatever_the_strategy() {
    for mode in ChangeDetection::ALL {
        let (stage, told) = stage(mode);
        let manager = &stage.manager;
        stage
            .source
            .set(objects::secret("ns", "s", "", &[("k", "v")]));
        manager.register_pod(&pod("p", &["s", "missing"]));
        manager.get("ns", "s").unwrap();
        assert_eq!(told.reads.recv(), Ok(None), "{mode}");
        manager
            .get_by("ns", "missing", Deadline::NEVER)
            .unwrap_err();
        assert_eq!(told.reads.recv(), Ok(Some(ErrorKind::NotFound)), "{mode}");
        manager.get_fresh("ns", "s", Deadline::NEVER).unwrap();
        assert_eq!(told.reads.recv(), Ok(None), "{mode}");
        let version = "2".into();
        manager
            .get_at_least("ns", "s", &version, Deadline::NEVER)
            .unwrap();
        assert_eq!(told.reads.recv(), Ok(None), "{mode}");
        manager.get_cached("ns", "s").unwrap();
        assert!(told.reads.is_empty(), "{mode}: a look is no read");
        if mode == ChangeDetection::Watch {
            let mut listed = [told.listed.recv().unwrap(), told.listed.recv().unwrap()];
            listed.sort_unstable();
            assert_eq!(listed, [0, 1], "its reflectors share the metrics");
        }
    }
}

#[test]
fn a_reading_counts_objects_references_and_watches_until_the_drop() {
    for mode in ChangeDetection::ALL {
        let (stage, told) = stage(mode);
        stage.manager.register_pod(&pod("p", &["s", "t"]));
        stage.manager.register_pod(&pod("q", &["s"]));
        let counts = told.reading.state().unwrap();
        assert_eq!((counts.objects, counts.references), (2, 3), "{mode}");
        let watches = if mode == ChangeDetection::Watch { 2 } else { 0 };
        assert_eq!(counts.watches, watches, "{mode}");
        assert_eq!(told.kind, "Secret");
        assert_eq!(told.change_detection, mode);
        drop(stage.manager);
        assert!(told.reading.is_over() && told.reading.state().is_none());
    }
}

/// Metrics of another kind or strategy would count under the wrong labels.
#[test]
fn metrics_can_refuse_a_manager() {
    let picky = Hook::fallible(|_: &ManagerMetric| Err(Error::new(ErrorKind::Config, "not me")));
    let options = ManagerOptions::default().metrics(picky);
    let refused = SecretManager::new(FakeSource::<Secret>::new(), options);
    assert_eq!(refused.unwrap_err().to_string(), "not me");
}

/// A watch that cannot start says so when it is read, and holds up no end (B16).
#[test]
fn metrics_that_panic_at_a_reflectors_start_are_the_reads_failure() {
    let panicky = Hook::new(|metric| {
        let starts = matches!(
            metric,
            ManagerMetric::Reflector(ReflectorMetric::Started(_))
        );
        assert!(!starts, "made up");
    });
    let options = ManagerOptions::default().metrics(panicky);
    let manager = SecretManager::new(FakeSource::<Secret>::new(), options).unwrap();
    manager.register_pod(&pod("p", &["s"]));
    let deadline = Clock::system().after(Duration::ZERO);
    let error = manager.get_by("ns", "s", deadline).unwrap_err();
    assert!(error.to_string().contains("panicked: made up"), "{error}");
}
