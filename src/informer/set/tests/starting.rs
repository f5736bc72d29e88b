//! The informers that a start starts (IS-3).

use super::*;
use crate::http::{Client, ClientOptions, Config};
use crate::{Compact, Metadata};

/// As `StartWithContext`, which may be called again after more were asked for.
#[test]
fn is_3_a_start_starts_those_that_were_not_started_and_may_be_repeated() {
    let stage = Stage::new();
    let set = stage.set();
    set.start().unwrap();
    let pods = set.informer::<Pod>().unwrap();
    assert!(stage.source.pods.requests().is_empty());
    set.start().unwrap();
    pods.wait_until_synced(Deadline::NEVER).unwrap();
    stage.source.pods.wait_for_watches(1);
    let secrets = set.informer::<Secret>().unwrap();
    let alone = set.wait_until_synced(Deadline::NEVER);
    assert_eq!(
        alone.get("secrets").unwrap().error.as_ref().unwrap().kind(),
        ErrorKind::Config
    );
    set.start().unwrap();
    secrets.wait_until_synced(Deadline::NEVER).unwrap();
    let lists = |requests: Vec<crate::testing::SeenRequest>| {
        let lists = requests.iter();
        lists
            .filter(|request| request.kind == RequestKind::List)
            .count()
    };
    assert_eq!(lists(stage.source.pods.requests()), 1, "it ran on");
    assert_eq!(lists(stage.source.secrets.requests()), 1);
}

#[test]
fn is_3_an_informer_that_its_user_started_or_stopped_stays_as_it_is() {
    let stage = Stage::new();
    let set = stage.set();
    let pods = set.informer::<Pod>().unwrap();
    let secrets = set.informer::<Secret>().unwrap();
    pods.start().unwrap();
    secrets.stop();
    set.start().unwrap();
    pods.wait_until_synced(Deadline::NEVER).unwrap();
    assert!(secrets.is_stopped() && stage.source.secrets.requests().is_empty());
    let again = set.informer::<Secret>().unwrap();
    assert!(Arc::ptr_eq(&again, &secrets), "it is not made anew");
}

/// A client whose requests nobody answers.
fn client() -> Client {
    let config = Config::for_server("http://127.0.0.1:1").unwrap();
    Client::new(&config, ClientOptions::default()).unwrap()
}

/// Seen: the start was `Ok`, and the informer was dead.
#[test]
fn is_3_an_informer_that_cannot_start_fails_the_start() {
    let set = InformerSet::new(client(), InformerSetOptions::default());
    let nodes = set.informer_in::<Node>(&Scope::namespace("shop")).unwrap();
    let error = set.start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().starts_with("nodes (shop): "), "{error}");
    assert!(nodes.is_stopped());
}

/// Results and errors name informers.
#[test]
fn informers_of_one_kind_in_several_representations_have_names_of_their_own() {
    let set = InformerSet::new(client(), InformerSetOptions::default());
    let names = [
        set.informer::<Pod>().unwrap().name().to_owned(),
        set.informer::<Metadata<Pod>>().unwrap().name().to_owned(),
        set.informer::<Compact<Pod>>().unwrap().name().to_owned(),
    ];
    assert_eq!(names, ["pods", "pods v1", "pods v1 2"]);
}

#[test]
fn is_4_nothing_is_made_or_started_after_the_stop() {
    let stage = Stage::new();
    let set = stage.set();
    let pods = set.informer::<Pod>().unwrap();
    set.stop();
    set.stop();
    let error = set.start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    let late = [
        set.informer::<Secret>().map(drop),
        set.informer_with::<Secret>(&Scope::all(), |options| options)
            .map(drop),
        set.lister::<Secret>().map(drop),
    ];
    for error in late.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Stopped);
        assert_eq!(
            error.to_string(),
            "informer secrets was not made because its set has stopped already"
        );
    }
    assert!(set.is_stopped() && pods.is_stopped());
    let known = set.informer::<Pod>().unwrap();
    assert!(Arc::ptr_eq(&known, &pods), "its content can be read");
    assert!(stage.source.pods.requests().is_empty());
}

/// A thread asks for an informer while another stops the set: the informer does not run afterwards.
#[test]
fn is_4_whoever_asks_and_starts_while_the_set_stops_leaves_nothing_running() {
    let stage = Stage::new();
    for _ in 0..50 {
        let set = Arc::new(stage.running());
        let asking = Arc::clone(&set);
        let (_worker, asked) = apart(move || {
            let nodes = asking.informer::<Node>();
            drop(asking.start());
            nodes.ok()
        });
        set.shutdown(Deadline::NEVER).unwrap();
        if let Some(nodes) = asked.recv().unwrap() {
            assert!(nodes.is_stopped());
        }
        assert_eq!(stage.open_watches(), 0);
        stage.source.nodes.wait_for_watches(0);
    }
}
