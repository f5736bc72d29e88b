//! What a real server accepts and answers: pages, identities, refusals, expiry, bookmarks, streamed
//! lists.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubecache::ErrorKind;
use kubecache::clock::Clock;
use kubecache::list_watch::{EventKind, ListRequest, Next, WatchEvent, WatchRequest};
use kubecache::object::{
    FieldSelector, Object, ObjectKey, Reason, ResourceVersion, Scope, StoredObject,
};
use kubecache::worker::StopToken;

use super::support::*;

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_list_in_pages_is_the_list_in_one() {
    let _up = cluster();
    let source = watcher::<Secret>(&client_of("admin.yaml"), Scope::namespace("shop"));
    let (whole, first) = list(&*source, &ListRequest::default()).unwrap();
    assert!(whole.len() > 6, "{} secrets", whole.len());
    assert!(!first.resource_version.is_unset());
    let mut request = ListRequest {
        limit: 3,
        ..ListRequest::default()
    };
    let mut paged = Vec::new();
    loop {
        let (page, end) = list(&*source, &request).unwrap();
        assert!(page.len() <= 3);
        paged.extend(page);
        request.continue_token = end.continue_token;
        if request.continue_token.is_none() {
            break;
        }
    }
    let keys =
        |objects: &[Arc<StoredObject<Secret>>]| objects.iter().map(|o| o.key()).collect::<Vec<_>>();
    assert_eq!(keys(&paged), keys(&whole));
    assert!(
        whole
            .iter()
            .all(|secret| secret.metadata.managed_fields.is_none()),
        "trimmed (B19)"
    );
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn every_kind_of_credentials_reaches_the_server() {
    let _up = cluster();
    for kubeconfig in ["admin.yaml", "admin-files.yaml", "admin-token.yaml"] {
        let secret = get::<Secret>(&client_of(kubeconfig), "shop", "storefront-session").unwrap();
        assert!(
            secret
                .data
                .as_ref()
                .is_some_and(|data| data.contains_key("SESSION_KEY"))
        );
        assert!(
            secret.metadata.managed_fields.is_some(),
            "a plain get keeps them (B19)"
        );
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_refusal_carries_the_servers_own_words() {
    let _up = cluster();
    let wrong = get::<Secret>(&client_of("wrong-token.yaml"), "shop", "storefront-session");
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Unauthorized);
    let expired = get::<Secret>(&client_of("expired.yaml"), "shop", "storefront-session");
    assert_eq!(expired.unwrap_err().kind(), ErrorKind::Unauthorized);
    let stranger = get::<Secret>(&client_of("wrong-ca.yaml"), "shop", "storefront-session");
    assert_eq!(stranger.unwrap_err().kind(), ErrorKind::Tls);
    let source = watcher::<Pod>(&client_of("nobody.yaml"), Scope::all());
    let refused = list(&*source, &ListRequest::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Forbidden);
    assert!(
        refused
            .to_string()
            .contains("pods is forbidden: User \"nobody\" cannot list resource"),
        "{refused}"
    );
    let missing = get::<ConfigMap>(&client_of("admin.yaml"), "shop", "no-such-map").unwrap_err();
    let words = ": configmaps \"no-such-map\" not found";
    assert!(missing.to_string().ends_with(words), "{missing}");
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_node_reads_what_its_own_pods_name_and_nothing_else() {
    let _up = cluster();
    for kubeconfig in ["node.yaml", "node-token.yaml"] {
        let client = client_of(kubeconfig);
        let source = watcher::<Pod>(&client, Scope::all().fields(FieldSelector::node_name(NODE)));
        let (pods, _) = list(&*source, &ListRequest::default()).unwrap();
        assert!(pods.len() >= 8, "{} pods", pods.len());
        let on_the_node = |pod: &Arc<StoredObject<Pod>>| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(NODE)
        };
        assert!(pods.iter().all(on_the_node));
        let key = ObjectKey::new("shop", "storefront-session");
        let own = watcher::<Secret>(&client, Scope::object(&key));
        assert_eq!(list(&*own, &ListRequest::default()).unwrap().0.len(), 1);
        let refused = watcher::<Secret>(&client, Scope::namespace("shop"));
        let refused = list(&*refused, &ListRequest::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Forbidden, "{refused}");
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_watch_from_a_version_the_server_forgot_expires() {
    let _alone = cluster_alone();
    restart_the_server();
    let source = watcher::<Secret>(&client_of("admin.yaml"), Scope::namespace("shop"));
    let mut stream = source
        .watch(&from(&"1".into()), &StopToken::never())
        .unwrap();
    match next(&mut *stream) {
        WatchEvent::Error(error) => {
            assert_eq!(error.kind(), ErrorKind::Expired);
            assert!(
                error
                    .to_string()
                    .contains("secrets: too old resource version: 1 ("),
                "{error}"
            );
        }
        other => panic!("no error but {other:?}"),
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_version_from_the_future_is_told_apart() {
    let _up = cluster();
    let source = watcher::<Secret>(&client_of("admin.yaml"), Scope::namespace("shop"));
    let request = ListRequest {
        resource_version: "999999999".into(),
        ..ListRequest::default()
    };
    let error = list(&*source, &request).unwrap_err();
    assert!(
        error.status().unwrap().is_too_large_resource_version(),
        "{error:?}"
    );
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_watch_that_the_server_ends_sends_a_bookmark_first_and_ends_cleanly() {
    let _up = cluster();
    let key = ObjectKey::new("shop", "storefront-session");
    let source = watcher::<Secret>(&client_of("node.yaml"), Scope::object(&key));
    let (_, page) = list(&*source, &ListRequest::default()).unwrap();
    let request = WatchRequest {
        timeout: Duration::from_secs(15),
        ..from(&page.resource_version)
    };
    let mut stream = source.watch(&request, &StopToken::never()).unwrap();
    // A bookmark tells of a position behind the watch's own: another Secret's change makes one.
    apply("{apiVersion: v1, kind: Secret, metadata: {name: moves-the-position, namespace: ops}}");
    let mut bookmarks = 0;
    loop {
        match stream.next(Clock::system().after(PATIENCE)).unwrap() {
            Next::Event(WatchEvent::Bookmark {
                resource_version,
                initial_events_end,
            }) => {
                assert!(!resource_version.is_older_than(&page.resource_version));
                assert!(!initial_events_end);
                bookmarks += 1;
            }
            // Other tests play the story meanwhile.
            Next::Event(WatchEvent::Object(event)) if event.kind == EventKind::Updated => {}
            Next::Ended(None) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(bookmarks >= 1);
}

/// The WatchList gate was on in 1.32, off in 1.33, the oldest server here, and is on since 1.34.
fn streams_lists() -> bool {
    let version = std::env::var("KUBECACHE_CLUSTER_VERSION").expect("run tests/cluster/run");
    !version.starts_with("v1.33.")
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_streamed_list_ends_with_its_bookmark_where_the_server_streams() {
    let _up = cluster();
    let source = watcher::<Pod>(&client_of("admin.yaml"), Scope::namespace("ops"));
    let (listed, _) = list(&*source, &ListRequest::default()).unwrap();
    let request = WatchRequest {
        send_initial_events: true,
        ..from(&ResourceVersion::default())
    };
    let opened = source.watch(&request, &StopToken::never());
    if !streams_lists() {
        let refused = opened.err().expect("its WatchList gate is off");
        let status = refused.status().expect("the server's own answer");
        assert_eq!((status.code(), status.reason()), (422, Reason::Invalid));
        return;
    }
    let mut stream = opened.unwrap();
    let mut streamed = 0;
    loop {
        match next(&mut *stream) {
            WatchEvent::Object(event) if event.kind == EventKind::Added => streamed += 1,
            WatchEvent::Bookmark {
                initial_events_end: true,
                resource_version,
            } => {
                assert!(!resource_version.is_unset());
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(streamed, listed.len());
}
