//! The parameters of requests, as a kube-apiserver reads them.

use serde_json::{Value, json};

use super::{MAPS, Watch, ask, config_map, get};
use crate::testing::ApiServer;

/// All but `0` and `false` are true, also no value at all.
#[test]
fn a_flag_is_true_unless_it_says_no() {
    let server = ApiServer::new().unwrap();
    server.create(&config_map("a", "1")).unwrap();
    let rows = [
        ("=", true),
        ("", true),
        ("=yes", true),
        ("=2", true),
        ("=off", true),
        ("=no", true),
        ("=0", false),
        ("=false", false),
        ("=FALSE", false),
        ("=False", false),
        ("=00", true),
    ];
    let watch = |query: &str| Watch::open(&server, &format!("{MAPS}?{query}"));
    // What comes behind the first event: a bookmark, or else the next change.
    let is_marked = |query: &str| {
        let mut watch = watch(&format!("watch=1&{query}"));
        assert!(watch.told().starts_with("ADDED"), "{query}");
        server.apply(&config_map("a", query)).unwrap();
        watch.told().starts_with("BOOKMARK")
    };
    for (value, expected) in rows {
        let first = watch(&format!("watch{value}")).next().unwrap();
        assert_eq!(first["type"] == "ADDED", expected, "watch{value}");
        let marks = is_marked(&format!("allowWatchBookmarks{value}"));
        assert_eq!(marks, expected, "allowWatchBookmarks{value}");
        let streams = format!(
            "allowWatchBookmarks=1&resourceVersionMatch=NotOlderThan&resourceVersion=1\
             &sendInitialEvents{value}"
        );
        assert_eq!(is_marked(&streams), expected, "sendInitialEvents{value}");
        let both = format!("DELETE {MAPS}/a?propagationPolicy=Orphan&orphanDependents{value}");
        assert_eq!(ask(&server, &both, &Value::Null).status, 422, "{value}");
    }
}

#[test]
fn a_number_that_is_there_is_a_number() {
    let server = ApiServer::new().unwrap();
    for query in ["limit=", "watch=1&timeoutSeconds=", "limit=x"] {
        let refused = get(&server, &format!("{MAPS}?{query}"));
        assert_eq!(
            (refused.status, &refused.body["reason"]),
            (400, &json!("BadRequest")),
            "{query}"
        );
    }
    let delete = format!("DELETE {MAPS}/a?gracePeriodSeconds=");
    assert_eq!(ask(&server, &delete, &Value::Null).status, 400);
}
