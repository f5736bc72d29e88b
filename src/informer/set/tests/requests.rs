//! Which request gets which informer, with which options (IS-1, IS-2, IS-9).

use super::*;
use crate::informer::Forward;
use crate::store::{Indexers, NAMESPACE_INDEX};
use std::sync::Barrier;

#[test]
fn is_1_the_same_type_and_scope_asked_for_twice_give_the_same_informer() {
    let stage = Stage::new();
    let set = stage.set();
    let pods = set.informer::<Pod>().unwrap();
    let shop = Scope::namespace("shop");
    let of_shop = set.informer_in::<Pod>(&shop).unwrap();
    let same = [
        (set.informer::<Pod>().unwrap(), &pods),
        (set.informer_in(&Scope::all()).unwrap(), &pods),
        (set.get(&Scope::all()).unwrap(), &pods),
        (set.get(&shop).unwrap(), &of_shop),
    ];
    for (asked, made) in &same {
        assert!(Arc::ptr_eq(asked, made), "{asked:?}");
    }
    assert!(!Arc::ptr_eq(&pods, &of_shop));
    set.informer::<Secret>().unwrap();
    assert!(set.get::<ConfigMap>(&Scope::all()).is_none());
    assert!(set.get::<Secret>(&shop).is_none());
    assert_eq!(set.members().len(), 3);
    assert!(stage.source.pods.requests().is_empty(), "nothing runs yet");
}

#[test]
fn is_1_threads_that_ask_at_once_get_the_same_informer() {
    const ASKING: usize = 4;
    let stage = Stage::new();
    for _ in 0..50 {
        let set = Arc::new(stage.set());
        let together = Arc::new(Barrier::new(ASKING));
        let asking: Vec<_> = (0..ASKING)
            .map(|_| {
                let (set, together) = (Arc::clone(&set), Arc::clone(&together));
                apart(move || {
                    together.wait();
                    set.informer::<Pod>().unwrap()
                })
            })
            .collect();
        let informers: Vec<_> = asking.iter().map(|(_, got)| got.recv().unwrap()).collect();
        assert!(informers.iter().all(|one| Arc::ptr_eq(one, &informers[0])));
        assert_eq!(set.members().len(), 1);
    }
}

#[test]
fn is_2_options_for_an_informer_that_exists_are_an_error_that_says_so() {
    let stage = Stage::new();
    let set = stage.set();
    let first = set
        .informer_with::<Pod>(&Scope::all(), |options| options.name("web pods"))
        .unwrap();
    assert_eq!(first.name(), "web pods");
    let again = set.informer_with::<Pod>(&Scope::all(), |_| panic!("nobody asks for options"));
    let error = again.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "informer web pods exists already, with the options of its first request"
    );
    let plain = set.informer::<Pod>().unwrap();
    assert!(
        Arc::ptr_eq(&plain, &first),
        "who says nothing of options gets it"
    );
}

#[test]
fn is_9_the_sets_options_are_those_of_its_informers() {
    let stage = Stage::new();
    let mut reflector = ReflectorOptions {
        clock: stage.clock.clone(),
        ..ReflectorOptions::default()
    };
    reflector.page_size = Some(7);
    let shop = Scope::namespace("shop");
    let options = InformerSetOptions::default()
        .scope(shop.clone())
        .reflector(reflector);
    let set = stage.set_with(options);
    let pods = set.informer::<Pod>().unwrap();
    let nodes = set.informer::<Node>().unwrap();
    let same = set.informer_in::<Node>(&Scope::all()).unwrap();
    assert!(Arc::ptr_eq(&nodes, &same));
    assert_eq!((pods.name(), nodes.name()), ("pods", "nodes"));
    set.start().unwrap();
    set.wait_until_synced(Deadline::NEVER)
        .into_result()
        .unwrap();
    let request = &stage.source.pods.requests()[0];
    assert_eq!((&request.scope, request.limit), (&shop, 7));
    assert_eq!(
        stage.source.nodes.requests()[0].scope,
        Scope::all(),
        "nodes live in no namespace"
    );
    assert_eq!(
        pods.store()
            .by_index(NAMESPACE_INDEX, "shop")
            .unwrap()
            .len(),
        1
    );
    assert!(
        nodes.store().by_index(NAMESPACE_INDEX, "").is_err(),
        "nodes live in no namespace"
    );
}

#[test]
fn is_9_a_kind_without_namespaces_has_the_sets_selectors_alone() {
    let stage = Stage::new();
    let web = crate::object::LabelSelector::new("app=web");
    let shop = Scope::namespace("shop").labels(web.clone());
    let set = stage.set_with(stage.options().scope(shop.clone()));
    let nodes = set.informer::<Node>().unwrap();
    let pods = set.informer::<Pod>().unwrap();
    let of_scope = set.get::<Node>(&Scope::all().labels(web)).unwrap();
    assert!(Arc::ptr_eq(&of_scope, &nodes));
    assert!(Arc::ptr_eq(&set.get::<Pod>(&shop).unwrap(), &pods));
}

#[test]
fn is_9_an_informer_may_have_options_of_its_own() {
    let stage = Stage::new();
    let options = stage.options().resync_period(Duration::from_secs(10));
    let set = stage.set_with(options);
    let config_maps = set.informer::<ConfigMap>().unwrap();
    let pods = set
        .informer_with::<Pod>(&Scope::all(), |options| {
            let by_node = Indexers::new().with("node", |pod: &Pod| {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
                node.into_iter().collect()
            });
            options.resync_period(Duration::ZERO).indexers(by_node)
        })
        .unwrap();
    let (handler, resynced) = Forward::unbounded();
    config_maps.add_handler(handler).unwrap();
    let (handler, not_resynced) = Forward::unbounded();
    pods.add_handler(handler).unwrap();
    set.start().unwrap();
    set.wait_until_handlers_synced(Deadline::NEVER)
        .into_result()
        .unwrap();
    assert_eq!(pods.store().by_index("node", "node-1").unwrap().len(), 1);
    resynced.recv().unwrap();
    let period = Duration::from_secs(10);
    for _ in 0..2 {
        stage.fake.wait_for_timer(period);
        stage.fake.advance(period);
        resynced.recv().unwrap();
    }
    assert_eq!(not_resynced.len(), 1, "its initial list alone");
}

#[test]
fn is_9_each_informer_has_its_own_chance_so_that_they_do_not_retry_in_step() {
    let stage = Stage::new();
    let mut reflector = ReflectorOptions {
        clock: stage.clock.clone(),
        ..ReflectorOptions::default()
    };
    reflector.seed = Some(1);
    let set = stage.set_with(InformerSetOptions::default().reflector(reflector));
    set.informer::<ConfigMap>().unwrap();
    set.informer::<Pod>().unwrap();
    let sources = &stage.source;
    sources.config_maps.fail_all(RequestKind::List, down());
    sources.pods.fail_all(RequestKind::List, down());
    set.start().unwrap();
    let first = stage.fake.wait_for_timers(2);
    stage.fake.advance(first);
    // A thread that was woken counts once it backs off again.
    stage.fake.wait_for_timers(2);
    let asked = sources.config_maps.requests().len() + sources.pods.requests().len();
    assert_eq!(asked, 3, "one of them waits longer");
}

/// An index of the namespaces is what generated listers use.
#[test]
fn is_1_a_lister_is_that_of_the_types_informer() {
    let stage = Stage::new();
    let set = stage.set();
    let lister = set.lister::<Pod>().unwrap();
    assert!(
        lister
            .namespace("shop")
            .get("web")
            .unwrap_err()
            .is_not_found()
    );
    set.start().unwrap();
    set.wait_until_synced(Deadline::NEVER)
        .into_result()
        .unwrap();
    assert!(lister.namespace("shop").get("web").is_ok());
    assert_eq!(set.members().len(), 1);
}
