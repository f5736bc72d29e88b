//! Streamed lists through the driver: staging, the final bookmark, and the way back to plain lists.

use super::*;
use crate::list_watch::WatchEvent;
use crate::testing::{RequestKind, SourceFault};

/// WL-3, WL-4: nothing reaches the store before the final bookmark; then the same watch goes on.
#[test]
fn a_streamed_list_is_one_replacement() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.set("b", "1");
    stage.source.stream_lists(true);
    let (store, _reflector) = stage.synced();
    assert_eq!(names(&store), ["a", "b"]);
    stage.set("c", "1");
    stage.catch_up(&store);
    assert_eq!(names(&store), ["a", "b", "c"]);
    assert_eq!(stage.requests(), ["stream most-recent"]);
    assert_eq!(stage.source.open_watches(), 1);
}

/// WL-12: after the hand-over it is reopened as a plain watch; a new cycle streams at the last
/// version (WL-2).
#[test]
fn a_streamed_watch_is_reopened_as_a_watch() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.source.stream_lists(true);
    let (store, _reflector) = stage.synced();
    stage.source.end_watches(None);
    stage.pass(millis(50));
    stage.source.wait_for_requests(2);
    stage.source.wait_for_watches(1);
    stage.source.expire_watches();
    stage.soon();
    stage.source.wait_for_requests(3);
    stage.fake.wait_for_timer(seconds(130));
    assert_eq!(
        stage.requests(),
        ["stream most-recent", "watch 2", "stream 2"]
    );
    assert_eq!(store.status().lists, 2);
}

/// WL-9: a server that refuses streams is listed: requests are stream, list, watch.
#[test]
fn a_refused_stream_falls_back_to_a_list() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.source.stream_lists(true);
    stage
        .source
        .fail_next(RequestKind::Watch, SourceFault::Fail(status(422)));
    let (store, _reflector) = stage.synced();
    assert_eq!(
        stage.requests(),
        ["stream most-recent", "list 0", "watch 2"]
    );
    assert_eq!(names(&store), ["a"]);
}

/// B8, LW-5: a server that never sends the final bookmark is listed after ten seconds, and that is
/// remembered.
#[test]
fn a_stream_without_its_bookmark_is_given_up() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.source.stream_lists(true);
    stage
        .source
        .fail_next(RequestKind::Watch, SourceFault::Silent);
    let (store, _reflector) = stage.start();
    stage.pass(seconds(10));
    stage.source.wait_for_requests(3);
    stage.source.wait_for_watches(1);
    assert_eq!(
        stage.requests(),
        ["stream most-recent", "list 0", "watch 2"]
    );
    assert_eq!(stage.source.watch_list_failures(), 1);
    assert_eq!(names(&store), ["a"]);
    stage.source.send(|| WatchEvent::Error(status(403)));
    stage.pass(millis(800));
    stage.source.wait_for_requests(5);
    assert_eq!(stage.requests()[3..], ["list 2", "watch 2"]);
}

/// WL-6: a stream that is cut leaves nothing behind; the next one begins anew.
#[test]
fn half_a_stream_is_no_list() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.set("b", "1");
    stage.source.stream_lists(true);
    stage
        .source
        .fail_next(RequestKind::Watch, SourceFault::CutAfter(1));
    let (store, _reflector) = stage.start();
    stage.fake.wait_for_timer(millis(50));
    assert!(!store.has_synced() && store.is_empty());
    stage.fake.advance(millis(50));
    stage.source.wait_for_requests(2);
    store.wait_until_synced(Deadline::NEVER).unwrap();
    assert_eq!(names(&store), ["a", "b"]);
}

/// WL-1: whatever the source supports, a reflector streams no list unless its options say so.
#[test]
fn wl_1_lists_are_plain_by_default() {
    let mut stage = Stage::new();
    stage.source.stream_lists(true);
    stage.options.watch_list = ReflectorOptions::default().watch_list;
    let (_store, _reflector) = stage.synced();
    assert_eq!(stage.requests()[0], "list 0");
}
