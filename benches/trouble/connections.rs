//! What dead connections hold up: every other one accepts and is silent; and 49 of 60 lists hang.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::list_watch::{ListRequest, ListerWatcher};
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::object::{ObjectKey, Scope};
use kubecache::testing::objects;
use kubecache::worker::{StopSource, Worker};

use super::{client, now, pause, server};

const OBJECTS: usize = 200;
const SYNCED_BUDGET: Duration = Duration::from_secs(45);
const HEALTHY_BUDGET: Duration = Duration::from_secs(2);
/// So many lists hang for certain when the healthy ones begin.
const HANGING_FIRST: usize = 32;
/// How long either is watched.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn run() -> bool {
    let synced = every_other_is_dead();
    let healthy = most_hang();
    synced && healthy
}

fn every_other_is_dead() -> bool {
    let url = server::start(|number, request, socket| {
        let alive = number % 2 == 0;
        if alive {
            server::answer(request, socket);
        }
        alive
    });
    let options = ManagerOptions::default().idle_max(Duration::from_secs(60 * 60));
    let manager = SecretManager::new(client(&url), options).unwrap();
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("s-{number}")).collect();
    for name in &names {
        manager.register_pod(&objects::pod("shop", name, "node-1", &[name], &[]));
    }
    let begun = now();
    let synced = || {
        let read = names.iter();
        read.filter(|name| matches!(manager.get_cached("shop", name), Ok(Some(_))))
            .count()
    };
    let goal = OBJECTS * 95 / 100;
    let mut at_budget = None;
    while synced() < goal && begun.elapsed() < PATIENCE {
        if begun.elapsed() > SYNCED_BUDGET && at_budget.is_none() {
            at_budget = Some(synced());
        }
        pause(Duration::from_millis(50));
    }
    let took = begun.elapsed();
    let met = synced() >= goal && took <= SYNCED_BUDGET;
    let reached = synced();
    println!(
        "  every other connection dead: {reached} of {OBJECTS} objects synced after {took:.1?}{} \
         (budget 95 % within {SYNCED_BUDGET:?})",
        at_budget
            .map(|count| format!(", {count} after {SYNCED_BUDGET:?}"))
            .unwrap_or_default(),
    );
    met
}

fn most_hang() -> bool {
    let (hung, hangs) = crossbeam_channel::unbounded();
    let url = server::start(move |_, request, socket| {
        let alive = server::name(request).starts_with("ok");
        if alive {
            server::answer(request, socket);
        } else {
            hung.send(()).unwrap();
        }
        alive
    });
    let client = client(&url);
    let stop = StopSource::new();
    let (told, tell) = crossbeam_channel::unbounded();
    let list = |name: String| {
        let key = ObjectKey::new("shop", name.clone());
        let source: Arc<dyn ListerWatcher<Secret>> = client.lister_watcher(Scope::object(&key));
        let (stop, told) = (stop.token(), told.clone());
        let begun = now();
        Worker::spawn(name.clone(), move |_| {
            let listed = source.list(&ListRequest::default(), &stop, &mut drop);
            if listed.is_ok() && name.starts_with("ok") {
                told.send(begun.elapsed()).unwrap();
            }
        })
        .unwrap()
    };
    let hanging = (0..49).map(|number| format!("hang-{number}"));
    let healthy = (0..11).map(|number| format!("ok-{number}"));
    let mut workers: Vec<Worker> = hanging.map(list).collect();
    for _ in 0..HANGING_FIRST {
        hangs.recv().unwrap();
    }
    let begun = now();
    workers.extend(healthy.map(list));
    let mut slowest = Duration::ZERO;
    let mut answered = 0;
    while answered < 11
        && let Ok(took) = tell.recv_timeout(PATIENCE.saturating_sub(begun.elapsed()))
    {
        answered += 1;
        slowest = slowest.max(took);
    }
    stop.stop();
    drop(workers);
    println!(
        "  60 lists, 49 of them hang: {answered} of 11 healthy ones answered, the last after \
         {slowest:.1?} (budget {HEALTHY_BUDGET:?})"
    );
    answered == 11 && slowest <= HEALTHY_BUDGET
}
