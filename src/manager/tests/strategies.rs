//! The three strategies side by side, over real reflectors and the fake API server: what each
//! promises, asks and says.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;

use super::fake::pod;
use super::stage::{MINUTE, Stage, version};
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::manager::{
    ChangeDetection, ConfigMapManager, ManagerOptions, ObjectState, SecretManager,
};
use crate::object::{ObjectKey, ResourceVersion, Status};
use crate::testing::{FakeSource, RequestKind, SourceFault, objects};
use crate::tests::until::{until, until_some};

/// The Secret `s` on the server, referenced, and read once.
fn warm(mode: ChangeDetection) -> Stage {
    // As short as it can be, so that watches fall idle within the tests' minutes.
    let stage = Stage::of(mode)
        .options(|options| options.idle_max(MINUTE))
        .start();
    stage.set("s");
    stage.manager.register_pod(&pod("p", &["s"]));
    assert_eq!(stage.version("s"), 2, "{mode}");
    if mode == ChangeDetection::Watch {
        stage.source.wait_for_watches(1);
    }
    stage
}

/// Two minutes without a read: a time to live passes, and a watch that is open falls idle and is
/// stopped.
fn rest(stage: &Stage) {
    let watches = stage.manager.change_detection() == ChangeDetection::Watch;
    if watches {
        stage.source.wait_for_watches(1);
        stage.clock.wait_for_timer(MINUTE);
    }
    stage.clock.advance(Duration::from_secs(2 * 60));
    if watches {
        stage.source.wait_for_watches(0);
    }
}

fn fresh(stage: &Stage) -> u64 {
    version(&stage.get_fresh("s").unwrap())
}

fn at_least(stage: &Stage, asked: &str) -> u64 {
    version(&stage.get_at_least("s", asked).unwrap())
}

fn each_strategy(test: impl Fn(ChangeDetection)) {
    ChangeDetection::ALL.into_iter().for_each(test);
}

/// SC-1, SC-3, `TestCacheBasedSecretManager`: registered, read, changed, deleted, let go: the same
/// calls with each strategy, each within its promise.
#[test]
fn sc_1_a_secret_from_registration_to_release() {
    each_strategy(|mode| {
        let stage = warm(mode);
        assert_eq!(stage.inspect("s").state, ObjectState::Synced, "{mode}");
        let changed = stage.set("s");
        match mode {
            ChangeDetection::Watch => until(|| stage.version("s") == changed),
            ChangeDetection::Cache => {
                assert_eq!(stage.version("s"), 2, "it is fresh");
                stage.clock.advance(MINUTE);
            }
            ChangeDetection::Get => {}
        }
        assert_eq!(stage.version("s"), changed, "{mode}");
        stage.source.delete("ns", "s");
        stage.clock.advance(MINUTE);
        let gone = until_some(|| stage.get("s").err());
        let words = match mode {
            ChangeDetection::Watch => "secret \"s\" not found",
            // OS-11 stores what the server said.
            ChangeDetection::Cache | ChangeDetection::Get => {
                "get secret ns/s: secrets \"s\" not found"
            }
        };
        assert_eq!(gone.to_string(), words, "{mode}");
        assert_eq!(stage.inspect("s").state, ObjectState::NotFound, "{mode}");
        stage.manager.unregister_pod(&pod("p", &[]));
        assert_eq!(stage.manager.inspect().len(), 0, "{mode}");
        let released = stage.get("s").unwrap_err().kind();
        let expected = match mode {
            ChangeDetection::Watch | ChangeDetection::Cache => ErrorKind::NotRegistered,
            ChangeDetection::Get => ErrorKind::NotFound,
        };
        assert_eq!(released, expected, "{mode}");
    });
}

/// SC-1, SC-3, `TestCacheBasedConfigMapManager`: many `ConfigMaps` of many pods, each found,
/// nothing left behind.
#[test]
fn sc_1_config_maps_of_many_pods() {
    each_strategy(|mode| {
        let source = FakeSource::<ConfigMap>::new();
        let options = ManagerOptions::default().change_detection(mode);
        let manager = ConfigMapManager::new(source.clone(), options).unwrap();
        let names: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
        for name in &names {
            source.set(objects::config_map("shop", name, "", &[("name", name)]));
            manager.register_pod(&objects::pod("shop", name, "node", &[], &[name]));
        }
        for name in &names {
            let found = manager.get_by("shop", name, Deadline::NEVER).unwrap();
            assert_eq!(&found.data.as_ref().unwrap()["name"], name, "{mode}");
        }
        let requests = source.requests();
        let gets = requests
            .iter()
            .filter(|request| request.kind == RequestKind::Get)
            .count();
        let expected = if mode == ChangeDetection::Watch {
            0
        } else {
            10
        };
        assert_eq!(gets, expected, "{mode}");
        drop(manager);
        assert_eq!(source.open_watches(), 0, "{mode}");
    });
}

/// SC-3: what a strategy costs: lists and watches, gets while the time to live lasts, or a get per
/// read.
#[test]
fn sc_3_what_ten_reads_ask_of_the_server() {
    each_strategy(|mode| {
        let stage = warm(mode);
        for _ in 0..9 {
            stage.get("s").unwrap();
        }
        let requests = stage.source.requests();
        let kinds: Vec<_> = requests.iter().map(|request| request.kind).collect();
        let expected = match mode {
            ChangeDetection::Watch => vec![RequestKind::List, RequestKind::Watch],
            ChangeDetection::Cache => vec![RequestKind::Get],
            ChangeDetection::Get => vec![RequestKind::Get; 10],
        };
        assert_eq!(kinds, expected, "{mode}");
    });
}

/// SC-6: one word chooses the strategy. `Watch` is the default.
#[test]
fn sc_6_a_manager_tells_its_strategy() {
    let manager = SecretManager::new(FakeSource::new(), ManagerOptions::default()).unwrap();
    assert_eq!(manager.change_detection(), ChangeDetection::Watch);
    each_strategy(|mode| {
        let mode_of_text = mode.as_str().parse().unwrap();
        let stage = Stage::of(mode_of_text).start();
        assert_eq!(stage.manager.change_detection(), mode);
    });
}

/// How many gets each step of upstream's `TestCacheInvalidation` costs.
fn gets_per_step(stage: &Stage) -> [usize; 3] {
    for name in ["s1", "s10", "s2", "s20", "s21"] {
        stage.set(name);
    }
    let steps: [(&str, &[&str]); 3] = [
        ("p1", &["s1", "s10", "s2"]),
        // An update: s10 is let go, s20 and s21 are new.
        ("p1", &["s1", "s2", "s20", "s21"]),
        // Another pod.
        ("p2", &["s1", "s2", "s20"]),
    ];
    steps.map(|(name, secrets)| {
        let before = stage.source.requests().len();
        stage.manager.register_pod(&pod(name, secrets));
        for _ in 0..2 {
            for secret in secrets {
                stage.get(secret).unwrap();
            }
        }
        stage.asked_since(before).len()
    })
}

/// CM-2, OS-2; `TestCacheInvalidation`: a registration drops what is cached of the objects it newly
/// references; with `invalidate_on_update`, as before 1.29, an update drops what the pod names,
/// too.
#[test]
fn cm_2_which_registrations_force_fetches() {
    let new = Stage::of(ChangeDetection::Cache).start();
    assert_eq!(gets_per_step(&new), [3, 2, 3]);
    let old = Stage::of(ChangeDetection::Cache)
        .options(|options| options.invalidate_on_update(true))
        .start();
    assert_eq!(gets_per_step(&old), [3, 4, 3]);
    for stage in [new, old] {
        let pods = |name| {
            let row = stage.manager.inspect_object(&ObjectKey::new("ns", name));
            row.map_or(0, |row| row.owners)
        };
        let counts = ["s1", "s10", "s2", "s20", "s21"].map(pods);
        assert_eq!(counts, [2, 0, 2, 2, 1], "the counts end the same");
        stage.manager.unregister_pod(&pod("p1", &[]));
        stage.manager.unregister_pod(&pod("p2", &[]));
        assert!(stage.manager.inspect().is_empty());
        assert_eq!(
            stage.get("s1").unwrap_err().kind(),
            ErrorKind::NotRegistered
        );
    }
}

/// CM-2: the older rule has no effect where nothing is cached for a time, or where a watch keeps it
/// current.
#[test]
fn cm_2_the_older_rule_is_the_caches_alone() {
    for mode in [ChangeDetection::Watch, ChangeDetection::Get] {
        let stage = Stage::of(mode)
            .options(|options| options.invalidate_on_update(true))
            .start();
        let mut immutable = objects::secret("ns", "s", "", &[("key", "canary")]);
        immutable.immutable = Some(true);
        stage.source.set(immutable);
        stage.manager.register_pod(&pod("p", &["s"]));
        stage.get("s").unwrap();
        let before = stage.source.requests().len();
        stage.manager.register_pod(&pod("p", &["s"]));
        let row = stage.manager.inspect_object(&ObjectKey::new("ns", "s"));
        assert_eq!(row.unwrap().owners, 1, "{mode}");
        if mode == ChangeDetection::Watch {
            stage.get("s").unwrap();
        }
        assert_eq!(stage.asked_since(before), Vec::<String>::new(), "{mode}");
    }
}

/// R11: a fresh read sees what the server has, whatever the strategy's lag, by one consistent get.
#[test]
fn r11_a_fresh_read_sees_what_the_server_has() {
    each_strategy(|mode| {
        let stage = warm(mode);
        let before = stage.source.requests().len();
        let changed = stage.set("s");
        assert_eq!(fresh(&stage), changed, "{mode}");
        assert_eq!(at_least(&stage, ""), changed, "{mode}");
        assert_eq!(stage.asked_since(before), ["", ""], "{mode}");
        stage.source.delete("ns", "s");
        let gone = stage.get_fresh("s").unwrap_err();
        assert_eq!(gone.cause(), "secrets \"s\" not found", "{mode}");
    });
}

/// R11, B18: cached reads after a fresh one never go back behind it, though the server's own cache
/// lags.
#[test]
fn r11_cached_reads_never_go_back_behind_a_fresh_one() {
    each_strategy(|mode| {
        let stage = warm(mode);
        let old = stage.source.version();
        stage.source.lag(Some(old));
        let changed = stage.set("s");
        assert_eq!(fresh(&stage), changed, "{mode}");
        for _ in 0..3 {
            rest(&stage);
            assert_eq!(stage.version("s"), changed, "{mode}");
            assert_eq!(at_least(&stage, "0"), changed, "{mode}");
        }
        stage.source.delete("ns", "s");
        assert!(stage.get_fresh("s").unwrap_err().is_not_found(), "{mode}");
        for _ in 0..3 {
            rest(&stage);
            assert!(stage.get("s").unwrap_err().is_not_found(), "{mode}");
        }
    });
}

/// R11, B18: the same after a read that was not older than a version.
#[test]
fn r11_cached_reads_never_go_back_behind_a_read_not_older_than_a_version() {
    each_strategy(|mode| {
        let stage = warm(mode);
        let changed = stage.set("s");
        let asked = changed.to_string();
        assert_eq!(at_least(&stage, &asked), changed, "{mode}");
        stage.source.lag(Some(2));
        for _ in 0..3 {
            rest(&stage);
            assert_eq!(stage.version("s"), changed, "{mode}");
            assert_eq!(at_least(&stage, "2"), changed, "{mode}");
        }
        stage.source.lag(None);
        assert_eq!(stage.set("s"), changed + 1);
        let later = (changed + 1).to_string();
        assert_eq!(at_least(&stage, &later), changed + 1);
    });
}

/// R11: what memory knows to be so new already is not asked for, by the strategy's own rule of what
/// is current.
#[test]
fn r11_what_is_current_and_new_enough_is_not_asked_for() {
    each_strategy(|mode| {
        let stage = warm(mode);
        let before = stage.source.requests().len();
        assert_eq!(at_least(&stage, "2"), 2, "{mode}");
        let none: &[&str] = &[];
        let expected = match mode {
            ChangeDetection::Watch | ChangeDetection::Cache => none,
            ChangeDetection::Get => &["2"],
        };
        assert_eq!(stage.asked_since(before), expected, "{mode}");
        stage.source.skip_to(9);
        assert_eq!(at_least(&stage, "9"), 2, "{mode}");
        assert_eq!(stage.asked_since(before).last().unwrap(), "9", "{mode}");
    });
}

/// R11, B2: a version that does not come by the deadline: the server's words, on each strategy.
#[test]
fn r11_a_version_that_does_not_come_ends_at_the_deadline() {
    each_strategy(|mode| {
        let stage = warm(mode);
        let clock = Clock::from(stage.clock.clone());
        let deadline = clock.after(Duration::from_secs(1));
        let reader = stage.reader(move |manager| {
            manager
                .get_at_least("ns", "s", &"100".into(), deadline)
                .map(drop)
        });
        for pause in [50, 100, 200, 400, 250] {
            let pause = Duration::from_millis(pause);
            stage.clock.wait_for_timer(pause);
            stage.clock.advance(pause);
        }
        let error = reader.answer().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{mode}");
        assert_eq!(
            error.to_string(),
            "timed out waiting for secret ns/s at version 100 or later\n\
             5 attempts in 1.0s, the last one failed: get secret ns/s: \
             Timeout: Too large resource version: 100, current: 2",
            "{mode}"
        );
        // It failed for one who asked much; the others have what they had.
        if mode != ChangeDetection::Get {
            let cached = stage.manager.get("ns", "s").unwrap();
            assert!(cached.last_error().is_none(), "{mode}");
        }
        assert_eq!(stage.version("s"), 2, "{mode}");
    });
}

/// R11: a version that is none is refused by the server, in its words.
#[test]
fn r11_a_version_that_is_none_is_the_servers_to_refuse() {
    each_strategy(|mode| {
        let stage = warm(mode);
        let words = "resourceVersion: Invalid value: \"odd\"";
        let refusal = Error::from_status(Status::new(400, words));
        let fault = SourceFault::Fail(refusal);
        stage.source.fail_next(RequestKind::Get, fault);
        let error = stage.get_at_least("s", "odd").unwrap_err();
        assert_eq!(error.cause(), words, "{mode}");
        assert_eq!(stage.asked_since(0).last().unwrap(), "odd", "{mode}");
    });
}

/// B1, B2: a read that gets no answer ends at its deadline and says what it waited for.
#[test]
fn a_read_without_an_answer_ends_at_its_deadline() {
    each_strategy(|mode| {
        let stage = Stage::of(mode).start();
        stage.source.plan(|_| Some(SourceFault::Hang));
        stage.manager.register_pod(&pod("p", &["s"]));
        let reader = stage.reader(|manager| manager.get("ns", "s").map(drop));
        // As much time as the option gives by default: the kubelet's second, or a request's.
        let limit = match mode {
            ChangeDetection::Watch => Duration::from_secs(1),
            ChangeDetection::Cache | ChangeDetection::Get => Duration::from_secs(10),
        };
        stage.clock.wait_for_timer(limit);
        stage.clock.advance(limit);
        let error = reader.answer().unwrap_err();
        let (kind, words) = match mode {
            ChangeDetection::Watch | ChangeDetection::Cache => (
                ErrorKind::NotSynced,
                "failed to sync secret cache: timed out waiting for the condition\n",
            ),
            ChangeDetection::Get => (ErrorKind::Timeout, "timed out waiting for secret ns/s\n"),
        };
        assert_eq!(error.kind(), kind, "{mode}");
        assert!(error.to_string().starts_with(words), "{mode}: {error}");
    });
}

/// OC-25, promise 4: a shutdown ends every read that is under way, at once, and nothing is asked
/// after it.
#[test]
fn oc_25_a_shutdown_ends_what_is_under_way() {
    type Ask = fn(&SecretManager) -> Result<(), Error>;
    let asks: [Ask; 3] = [
        |manager| manager.get_by("ns", "s", Deadline::NEVER).map(drop),
        |manager| manager.get_fresh("ns", "s", Deadline::NEVER).map(drop),
        |manager| {
            let version = ResourceVersion::from("9");
            let never = Deadline::NEVER;
            manager.get_at_least("ns", "s", &version, never).map(drop)
        },
    ];
    each_strategy(|mode| {
        for (which, ask) in asks.into_iter().enumerate() {
            let stage = Stage::of(mode).start();
            stage.source.plan(|_| Some(SourceFault::Hang));
            stage.manager.register_pod(&pod("p", &["s"]));
            let reader = stage.reader(ask);
            let watched = usize::from(mode == ChangeDetection::Watch);
            let own = usize::from(mode != ChangeDetection::Watch || which > 0);
            stage.source.wait_for_requests(watched + own);
            stage.manager.stop();
            let error = reader.answer().unwrap_err();
            assert!(error.is_stopped(), "{mode} {which}: {error:?}");
            let asked = stage.source.requests().len();
            let error = ask(&stage.manager).unwrap_err();
            assert!(error.is_stopped(), "{mode} {which}: {error:?}");
            assert_eq!(stage.source.requests().len(), asked, "{mode} {which}");
        }
    });
}

/// Promise 1: what is there is given at once, whatever its age, and marked; with `Get` nothing ever
/// is.
#[test]
fn what_is_cached_is_given_at_once() {
    each_strategy(|mode| {
        let stage = warm(mode);
        stage.source.plan(|_| Some(SourceFault::Hang));
        stage.clock.advance(3 * MINUTE);
        let cached = stage.manager.get_cached("ns", "s").unwrap();
        let expected = (mode != ChangeDetection::Get).then_some(2);
        assert_eq!(cached.map(|cached| version(&cached)), expected, "{mode}");
    });
}
