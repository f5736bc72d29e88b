//! An informer set over the HTTP client: kinds with and without namespaces on one server, and one
//! that it does not serve.

#![cfg(feature = "testing")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Secret};
use kubecache::ErrorKind;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::informer::{AnyInformer, Handlers, InformerSet, InformerSetOptions, SyncResult};
use kubecache::object::Scope;
use kubecache::reflector::ReflectorOptions;
use kubecache::testing::{Act, Answer, End, Exchange, Fault, FixtureServer, Recording};

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const NODES: &str = "/api/v1/nodes";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";

/// What a busy machine may take for what ought to be done at once.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// A server with one object at each of these paths.
fn story(objects: &[(&str, &str)]) -> Recording {
    let mut story = Recording::new();
    for (path, metadata) in objects {
        let list = format!(
            "{{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"7\"}},\
             \"items\":[{{\"metadata\":{metadata}}}]}}"
        );
        let open = Answer::new(200).ending(End::Open, Duration::ZERO);
        story = story
            .with(Exchange::get(path, Answer::text(200, &list)))
            .with(Exchange::get(&format!("{path}?watch=true"), open));
    }
    story
}

fn synced(result: &SyncResult) -> Vec<&str> {
    result
        .outcomes
        .iter()
        .filter(|o| o.error.is_none())
        .map(|o| &*o.name)
        .collect()
}

/// IS-7, IS-9, R28: the set's namespace is that of the kinds that have one; what the server does
/// not serve, it says.
#[test]
fn is_9_one_client_serves_kinds_with_and_without_namespaces() {
    let secret = r#"{"name":"db","namespace":"shop","uid":"s","resourceVersion":"5"}"#;
    let node = r#"{"name":"node-1","uid":"n","resourceVersion":"6"}"#;
    let not_served = Act::Status {
        code: 404,
        reason: "NotFound".to_owned(),
        retry_after: None,
    };
    let server = FixtureServer::replaying(story(&[(SECRETS, secret), (NODES, node)]))
        .fault(Fault::new(not_served).on(DEPLOYMENTS))
        .start()
        .unwrap();
    let client = Client::new(
        &Config::for_server(&server.url()).unwrap(),
        ClientOptions::default(),
    );
    let reflector = ReflectorOptions::default();
    let options = InformerSetOptions::default()
        .scope(Scope::namespace("shop"))
        .reflector(reflector);
    let set = InformerSet::new(client.unwrap(), options);
    let secrets = set.lister::<Secret>().unwrap();
    let nodes = set.lister::<Node>().unwrap();
    set.informer::<Deployment>().unwrap();
    let added = set.informer::<Node>().unwrap().add_handler(Handlers::new());
    let added = added.unwrap();
    set.start().unwrap();

    let clock = Clock::system();
    let deadline = clock.after(PATIENCE);
    let result = set.wait_until_synced(deadline);
    assert!(!clock.has_passed(deadline), "{result:?}");
    assert_eq!(synced(&result), ["secrets", "nodes"], "{result:?}");
    let unknown = result
        .get("deployments.apps")
        .unwrap()
        .error
        .as_ref()
        .unwrap();
    assert_eq!(unknown.kind(), ErrorKind::NotFound, "{unknown}");
    assert!(secrets.namespace("shop").get("db").is_ok());
    assert_eq!(
        nodes
            .list(&kubecache::object::LabelMatcher::everything())
            .len(),
        1
    );
    let handlers = set.wait_until_handlers_synced(deadline);
    assert_eq!(synced(&handlers), [added.sync_name()]);

    let watches = server.wait_for_requests(deadline, |requests| {
        let watches = requests.iter().filter(|request| request.is_watch());
        let mut paths: Vec<_> = watches.map(|request| request.path().to_owned()).collect();
        paths.sort();
        paths == [SECRETS, NODES]
    });
    assert!(watches, "{:?}", server.requests());
    set.shutdown(deadline).unwrap();
    assert!(set.members().iter().all(AnyInformer::is_stopped));
}
