//! What can be read of a set, whatever the types of its members (IS-8, B14).

use super::*;
use crate::informer::AnyInformer;
use k8s_openapi::api::apps::v1::Deployment;

#[test]
fn is_8_members_are_read_whatever_their_types() {
    let world = World::new();
    let set = world.running();
    let shop = Scope::namespace("shop");
    set.informer_in::<Pod>(&shop).unwrap();
    let read: Vec<_> = set
        .members()
        .iter()
        .map(|member| {
            let words = (member.kind(), member.api_version(), member.resource());
            (member.name().to_owned(), words, member.objects())
        })
        .collect();
    let pod = ("Pod", "v1", "pods");
    assert_eq!(
        read,
        [
            (
                "configmaps".to_owned(),
                ("ConfigMap", "v1", "configmaps"),
                1
            ),
            ("pods".to_owned(), pod, 1),
            ("secrets".to_owned(), ("Secret", "v1", "secrets"), 1),
            ("pods (shop)".to_owned(), pod, 0),
        ]
    );
    let members = set.members();
    assert_eq!(members[3].scope(), &shop);
    assert!(members[1].has_synced() && !members[3].has_synced());
    assert!(members[1].status().synced && !members[1].is_stopped());
    let pods = set.informer::<Pod>().unwrap();
    pods.add_handler(Handlers::new()).unwrap();
    assert_eq!(members[1].registrations().len(), 1);
    let same = members[1].downcast::<Pod>().unwrap();
    assert!(Arc::ptr_eq(&same, &pods));
    assert!(members[1].downcast::<Secret>().is_none());
}

#[test]
fn is_8_names_say_the_group_and_what_sets_informers_apart() {
    let source = FakeSource::<Deployment>::new();
    let set = InformerSet::new(source, InformerSetOptions::default());
    let shop = Scope::namespace("shop");
    let web = shop
        .clone()
        .labels(crate::object::LabelSelector::new("app=web"));
    for scope in [Scope::all(), shop, web] {
        set.informer_in::<Deployment>(&scope).unwrap();
    }
    let names: Vec<_> = set
        .members()
        .iter()
        .map(|member| member.name().to_owned())
        .collect();
    assert_eq!(
        names,
        [
            "deployments.apps",
            "deployments.apps (shop)",
            "deployments.apps (shop app=web)"
        ]
    );
    assert_eq!(set.members()[0].api_version(), "apps/v1");
}

#[test]
fn b14_a_set_is_fresh_while_all_that_run_are() {
    let limit = Duration::from_mins(1);
    let names = |members: Vec<AnyInformer>| -> Vec<String> {
        let names = members.iter().map(|member| member.name().to_owned());
        names.collect()
    };
    let world = World::new();
    assert!(world.set().is_fresh_within(limit), "nothing is not fresh");
    let set = world.running();
    assert!(set.is_fresh_within(limit));
    set.informer::<Node>().unwrap();
    assert_eq!(names(set.stale(limit)), ["nodes"], "not started");
    set.start().unwrap();
    set.wait_for_sync(Deadline::NEVER).into_result().unwrap();
    world.cluster.nodes.wait_for_watches(1);
    assert!(set.is_fresh_within(limit));
    world.fake.wait_for_timers(4);
    world.fake.advance(Duration::from_secs(61));
    assert!(!set.is_fresh_within(limit), "the servers fell silent");
    assert_eq!(set.stale(limit).len(), 4);
    for member in set.members() {
        if member.name() != "pods" {
            member.member().stop();
        }
    }
    assert_eq!(
        names(set.stale(limit)),
        ["pods"],
        "the stopped do not count"
    );
    set.members()[1].member().stop();
    assert!(set.is_fresh_within(limit));
    set.stop();
    assert!(!set.is_fresh_within(limit), "nothing keeps it fresh");
}

/// The rule is the informer's own: what is silent for too long is named, what is refused or was stopped is not.
#[test]
fn b14_a_health_check_names_the_informers_whose_server_is_silent() {
    let world = World::new();
    let sources = &world.cluster;
    sources.secrets.fail_all(RequestKind::List, forbidden());
    for kind in [RequestKind::List, RequestKind::Watch] {
        sources.pods.fail_all(kind, down());
        sources.nodes.fail_all(kind, down());
    }
    let set = world.set();
    set.check_health().unwrap();
    set.informer::<Pod>().unwrap();
    set.informer::<Secret>().unwrap();
    set.informer::<Node>().unwrap();
    let stopped = set.informer::<ConfigMap>().unwrap();
    set.check_health().unwrap();
    set.start().unwrap();
    stopped.stop();
    // Three threads back off: the refused one hears its refusal again before time goes on.
    let members = set.members();
    world.pass_among(3, || {
        members[0].check_health().is_err() && members[2].check_health().is_err()
    });
    let error = set.check_health().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = error.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("pods: the server has confirmed nothing for"));
    assert!(lines[1].starts_with("nodes: the server has confirmed nothing for"));
    sources.pods.heal();
    sources.nodes.heal();
    world.pass_until(|| set.check_health().is_ok());
}

/// B14: an informer whose source panics goes on trying, and is neither fresh nor well.
#[test]
fn b14_an_informer_whose_source_panics_is_neither_fresh_nor_well() {
    let world = World::new();
    let set = world.set();
    world.cluster.pods.plan(|_| panic!("a bad source"));
    set.informer::<Pod>().unwrap();
    set.start().unwrap();
    world.pass_until(|| set.check_health().is_err());
    assert_eq!(set.stale(Duration::from_mins(1)).len(), 1);
    let text = set.check_health().unwrap_err().to_string();
    assert!(text.starts_with("pods: "), "{text}");
    let result = set.wait_for_sync(world.now()).into_result();
    let text = result.unwrap_err().to_string();
    assert!(text.contains("a bad source"), "{text}");
}

#[test]
fn is_8_a_set_is_shared_between_threads_and_can_be_debugged() {
    fn is_shared<T: Send + Sync + std::fmt::Debug + 'static>(_: &T) {}
    let world = World::new();
    let set = Arc::new(world.running());
    is_shared(&set);
    is_shared(&set.members()[0]);
    is_shared(&set.informer::<Pod>().unwrap());
    is_shared(&set.wait_for_sync(world.now()));
    let text = format!("{set:?}");
    assert!(
        text.contains("configmaps") && !text.contains("settings"),
        "{text}"
    );
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let set = Arc::clone(&set);
            apart(move || set.lister::<Pod>().unwrap().namespace("shop").get("web"))
        })
        .collect();
    for (_worker, read) in threads {
        read.recv().unwrap().unwrap();
    }
}
