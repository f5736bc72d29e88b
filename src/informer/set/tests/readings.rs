//! The readings of a set with members of any type (IS-8, B14).

use super::*;
use k8s_openapi::api::apps::v1::Deployment;

#[test]
fn is_8_members_are_read_whatever_their_types() {
    let stage = Stage::new();
    let set = stage.running();
    let shop = Scope::namespace("shop");
    set.informer_in::<Pod>(&shop).unwrap();
    let read: Vec<_> = set
        .members()
        .iter()
        .map(|member| (member.name().to_owned(), member.objects()))
        .collect();
    let expected = [
        ("configmaps", 1),
        ("pods", 1),
        ("secrets", 1),
        ("pods (shop)", 0),
    ];
    assert_eq!(read, expected.map(|(name, len)| (name.to_owned(), len)));
    let members = set.members();
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
}

/// The informer's own rule: informers whose requests keep failing are named; stopped ones are not.
#[test]
fn b14_a_health_check_names_the_informers_whose_requests_fail_and_says_why() {
    let stage = Stage::new();
    let sources = &stage.source;
    sources.secrets.fail_all(RequestKind::List, forbidden());
    for kind in [RequestKind::List, RequestKind::Watch] {
        sources.pods.fail_all(kind, down());
        sources.nodes.fail_all(kind, down());
    }
    let set = stage.set();
    set.health().unwrap();
    set.informer::<Pod>().unwrap();
    set.informer::<Secret>().unwrap();
    set.informer::<Node>().unwrap();
    let stopped = set.informer::<ConfigMap>().unwrap();
    set.health().unwrap();
    set.start().unwrap();
    stopped.stop();
    // Three threads back off: the server refuses the first once more before time goes on.
    let members = set.members();
    stage.pass_among(3, || {
        members[..3].iter().all(|member| member.health().is_err())
    });
    let error = set.health().unwrap_err();
    assert_eq!(error.kind(), down().kind());
    let text = error.to_string();
    // A page of probes has the kind in place of the servers' words.
    assert_eq!(error.last_error().unwrap().to_string(), text);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    let rows = [
        ("pods", down()),
        ("secrets", forbidden()),
        ("nodes", down()),
    ];
    for (line, (name, cause)) in lines.iter().zip(rows) {
        assert!(
            line.starts_with(&format!("{name}: no watch serves; ")),
            "{text}"
        );
        assert!(line.ends_with(cause.cause()), "{text}");
    }
    sources.pods.heal();
    sources.secrets.heal();
    sources.nodes.heal();
    stage.pass_until(|| set.health().is_ok());
}

/// B14: an informer whose source panics keeps trying, and is not healthy.
#[test]
fn b14_an_informer_whose_source_panics_is_not_healthy() {
    let stage = Stage::new();
    let set = stage.set();
    stage.source.pods.plan(|_| panic!("a bad source"));
    set.informer::<Pod>().unwrap();
    set.start().unwrap();
    stage.pass_until(|| set.health().is_err());
    let text = set.health().unwrap_err().to_string();
    assert!(text.starts_with("pods: "), "{text}");
    let result = set.wait_until_synced(stage.now()).into_result();
    let text = result.unwrap_err().to_string();
    assert!(text.contains("a bad source"), "{text}");
}

#[test]
fn is_8_a_set_is_shared_between_threads_and_can_be_debugged() {
    fn is_shared<T: Send + Sync + std::fmt::Debug + 'static>(_: &T) {}
    let stage = Stage::new();
    let set = Arc::new(stage.running());
    is_shared(&set);
    is_shared(&set.members()[0]);
    is_shared(&set.informer::<Pod>().unwrap());
    is_shared(&set.wait_until_synced(stage.now()));
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
