//! The requests around a restore: what is there before it, what it loses, and what clients with the
//! versions of either see.

use super::rows::{Row, View};

const MAPS: &str = "/api/v1/namespaces/restored/configmaps";

/// So often an object changes and changes back before these changes are lost.
pub(super) const ROUNDS: usize = 50;

pub(super) const ROUND: &[Row] = &[
    Row::of("change", "PUT", "/api/v1/namespaces/restored/configmaps/a")
        .body(r#"{"metadata":{"name":"a"},"data":{"k":"2"}}"#),
    Row::of(
        "change-again",
        "PUT",
        "/api/v1/namespaces/restored/configmaps/a",
    )
    .body(r#"{"metadata":{"name":"a"},"data":{"k":"3"}}"#),
];

pub(super) const BEFORE: &[Row] = &[
    Row::of("ns", "POST", "/api/v1/namespaces").body(r#"{"metadata":{"name":"restored"}}"#),
    Row::of("a", "POST", MAPS).body(r#"{"metadata":{"name":"a"},"data":{"k":"1"}}"#),
    Row::of("b", "POST", MAPS).body(r#"{"metadata":{"name":"b"},"data":{"k":"1"}}"#),
    Row::of("c", "POST", MAPS).body(r#"{"metadata":{"name":"c"},"data":{"k":"1"}}"#),
    Row::of(
        "page",
        "GET",
        "/api/v1/namespaces/restored/configmaps?limit=1",
    ),
];

pub(super) const LOST: &[Row] = &[
    Row::of(
        "delete-b",
        "DELETE",
        "/api/v1/namespaces/restored/configmaps/b",
    ),
    Row::of("d", "POST", MAPS).body(r#"{"metadata":{"name":"d"},"data":{"k":"1"}}"#),
    Row::of(
        "lost-page",
        "GET",
        "/api/v1/namespaces/restored/configmaps?limit=1",
    ),
];

pub(super) const AFTER: &[Row] = &[
    Row::of("list", "GET", MAPS),
    Row::of(
        "list-any",
        "GET",
        "/api/v1/namespaces/restored/configmaps?resourceVersion=0",
    ),
    Row::of(
        "list-lost",
        "GET",
        "/api/v1/namespaces/restored/configmaps?resourceVersion=$rv(d)",
    ),
    Row::of(
        "list-lost-exact",
        "GET",
        "/api/v1/namespaces/restored/configmaps?resourceVersion=$rv(d)&resourceVersionMatch=Exact",
    ),
    Row::of(
        "list-lost-limit",
        "GET",
        "/api/v1/namespaces/restored/configmaps?resourceVersion=$rv(d)&limit=1",
    ),
    Row::of(
        "list-old",
        "GET",
        "/api/v1/namespaces/restored/configmaps?resourceVersion=$rv(b)",
    ),
    Row::of(
        "list-old-exact",
        "GET",
        "/api/v1/namespaces/restored/configmaps?resourceVersion=$rv(b)&resourceVersionMatch=Exact",
    ),
    Row::of(
        "page-goes-on",
        "GET",
        "/api/v1/namespaces/restored/configmaps?limit=1&continue=$token(page)",
    ),
    Row::of(
        "lost-page-goes-on",
        "GET",
        "/api/v1/namespaces/restored/configmaps?limit=1&continue=$token(lost-page)",
    ),
    Row::of(
        "get-lost",
        "GET",
        "/api/v1/namespaces/restored/configmaps/a?resourceVersion=$rv(d)",
    ),
    Row::of("get-d", "GET", "/api/v1/namespaces/restored/configmaps/d"),
    Row::of("get-b", "GET", "/api/v1/namespaces/restored/configmaps/b"),
    Row::of(
        "watch-old",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=1&resourceVersion=$rv(b)",
    )
    .view(View::Events),
    Row::of(
        "watch-on",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=1&resourceVersion=$rv(list)",
    )
    .view(View::Events),
    Row::of(
        "watch-lost",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=3&resourceVersion=$rv(d)\
         &allowWatchBookmarks=true",
    )
    .view(View::Events),
    Row::of(
        "watch-state",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=1",
    )
    .view(View::Events),
    Row::of(
        "stream",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    )
    .view(View::Events),
    Row::of(
        "stream-old",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=$rv(b)",
    )
    .view(View::Events),
    Row::of(
        "stream-lost",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=$rv(d)",
    )
    .view(View::Events),
    Row::of(
        "stream-lost-error",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan&resourceVersion=$rv(d)",
    ),
    Row::of(
        "put-lost",
        "PUT",
        "/api/v1/namespaces/restored/configmaps/a",
    )
    .body(r#"{"metadata":{"name":"a","resourceVersion":"$rv(d)"},"data":{"k":"3"}}"#),
    Row::of(
        "delete-lost",
        "DELETE",
        "/api/v1/namespaces/restored/configmaps/a",
    )
    .body(r#"{"preconditions":{"resourceVersion":"$rv(d)"}}"#)
    .view(View::Reason),
    Row::of("d-again", "POST", MAPS).body(r#"{"metadata":{"name":"d"},"data":{"k":"1"}}"#),
    Row::of(
        "watch-from-list",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=1&resourceVersion=$rv(list)",
    )
    .view(View::Events),
];

/// The server's version has passed those that were lost.
pub(super) const BEYOND: &[Row] = &[
    Row::of("e", "POST", MAPS).body(r#"{"metadata":{"name":"e"},"data":{"k":"1"}}"#),
    Row::of(
        "list-passed",
        "GET",
        "/api/v1/namespaces/restored/configmaps?resourceVersion=$rv(d)",
    ),
    Row::of(
        "get-passed",
        "GET",
        "/api/v1/namespaces/restored/configmaps/d?resourceVersion=$rv(lost-page)",
    ),
    Row::of(
        "watch-passed",
        "GET",
        "/api/v1/namespaces/restored/configmaps?watch=1&timeoutSeconds=1&resourceVersion=$rv(d)\
         &fieldSelector=metadata.name%3De",
    )
    .view(View::Events),
];
