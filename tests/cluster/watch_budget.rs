//! A manager with fewer watches than objects against a real server: its sockets, how old its
//! answers are, and its watches by the audit log.

use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use kubecache::clock::Clock;
use kubecache::manager::{ManagerOptions, Owner, PastLimit, SecretManager};
use kubecache::object::ObjectKey;

use super::audit::asked_by;
use super::support::*;

const NAMESPACE: &str = "budget";
const OBJECTS: usize = 50;
const BUDGET: usize = 10;
const TTL: Duration = Duration::from_secs(4);

fn name(number: usize) -> String {
    format!("budget-{number}")
}

fn apply_all(value: &str) {
    let mut manifest =
        format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}");
    for number in 0..OBJECTS {
        let name = name(number);
        write!(
            manifest,
            "\n---\n{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: \
             {NAMESPACE}}}, stringData: {{key: canary-{value}}}}}"
        )
        .unwrap();
    }
    apply(&manifest);
}

fn sockets() -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}

/// Past the budget the objects are polled over one connection; all are readable, none is older than
/// the time to live, and a watch that ends makes room.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn fifty_objects_take_ten_sockets_and_no_answer_is_older_than_the_time_to_live() {
    const USER_AGENT: &str = "watch-budget";
    let _alone = cluster_alone();
    apply_all("first");
    let before = sockets();
    let (ends, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                most.fetch_max(sockets(), Ordering::SeqCst);
                thread::park_timeout(Duration::from_millis(5));
            }
        });
        let clock = Clock::system();
        let options = ManagerOptions::default()
            .watches_max(BUDGET)
            .ttl(TTL)
            .get_timeout(PATIENCE)
            .past_limit(PastLimit::Poll);
        let manager = SecretManager::new(client_named("admin.yaml", USER_AGENT), options).unwrap();
        let owner = |number| Owner::new("Test", ObjectKey::new(NAMESPACE, name(number)));
        for number in 0..OBJECTS {
            manager.add_reference(&owner(number), &ObjectKey::new(NAMESPACE, name(number)));
        }
        let read = |number| {
            let read = manager.get(NAMESPACE, &name(number)).unwrap();
            let value = read.data.as_ref().unwrap()["key"].0.clone();
            (read.is_polled(), read.is_stale(), value)
        };
        let polled = (0..OBJECTS).filter(|number| read(*number).0).count();
        assert_eq!(polled, OBJECTS - (BUDGET - 1));
        manager.health().unwrap();

        apply_all("second");
        let changed = clock.now();
        let mut old: Vec<usize> = (0..OBJECTS).collect();
        while !old.is_empty() {
            old.retain(|number| {
                let asked = clock.now();
                let (is_polled, is_stale, value) = read(*number);
                let is_old = value == b"canary-first";
                let may_be = is_stale || !is_polled || asked.duration_since(changed) < TTL;
                assert!(!is_old || may_be, "{} is too old", name(*number));
                is_old
            });
        }
        report(&format!("all changed {:.1?} later", changed.elapsed()));

        let watched = (0..OBJECTS).find(|number| !read(*number).0).unwrap();
        manager.remove_reference(&owner(watched), &ObjectKey::new(NAMESPACE, name(watched)));
        let others = || (0..OBJECTS).filter(|number| *number != watched);
        let since = clock.now();
        while others().filter(|number| read(*number).0).count() > OBJECTS - BUDGET {
            assert!(since.elapsed() < PATIENCE);
        }
        drop(manager);
        ends.store(true, Ordering::SeqCst);
    });
    let most = most.load(Ordering::SeqCst) - before;
    report(&format!("at most {most} sockets"));
    // The polls keep one busy, and up to three more while one of them takes long.
    assert!(most <= BUDGET + 3, "{most} sockets");
    let asked = asked_by(USER_AGENT);
    let watches = asked.iter().filter(|asked| asked.verb == "watch");
    assert_eq!(watches.count(), BUDGET, "nine, and the promoted one");
}

#[expect(clippy::print_stdout, reason = "figures for people")]
fn report(what: &str) {
    println!("{OBJECTS} Secrets with a budget of {BUDGET}: {what}");
}
