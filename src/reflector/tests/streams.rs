//! Streamed lists through the driver: staging, the final bookmark, and the way back to plain lists.

use super::*;
use crate::list_watch::WatchEvent;
use crate::testing::{RequestKind, SourceFault};

/// WL-3, WL-4: nothing reaches the store before the final bookmark; then the same watch goes on.
#[test]
fn a_streamed_list_is_one_replacement() {
    let world = World::new();
    world.set("a", "1");
    world.set("b", "1");
    world.source.stream_lists(true);
    let (store, _reflector) = world.synced();
    assert_eq!(names(&store), ["a", "b"]);
    world.set("c", "1");
    world.catch_up(&store);
    assert_eq!(names(&store), ["a", "b", "c"]);
    assert_eq!(world.requests(), ["stream most-recent"]);
    assert_eq!(world.source.open_watches(), 1);
}

/// WL-12: after the hand-over it is reopened as a plain watch; a new cycle streams at the last
/// version (WL-2).
#[test]
fn a_streamed_watch_is_reopened_as_a_watch() {
    let world = World::new();
    world.set("a", "1");
    world.source.stream_lists(true);
    let (store, _reflector) = world.synced();
    world.source.end_watches(None);
    world.pass(millis(50));
    world.source.wait_for_requests(2);
    world.source.wait_for_watches(1);
    world.source.expire_watches();
    world.soon();
    world.source.wait_for_requests(3);
    world.fake.wait_for_timer(seconds(130));
    assert_eq!(
        world.requests(),
        ["stream most-recent", "watch 2", "stream 2"]
    );
    assert_eq!(store.status().lists, 2);
}

/// WL-9: a server that refuses streams is listed: requests are stream, list, watch.
#[test]
fn a_refused_stream_falls_back_to_a_list() {
    let world = World::new();
    world.set("a", "1");
    world.source.stream_lists(true);
    world
        .source
        .fail_next(RequestKind::Watch, SourceFault::Fail(status(422)));
    let (store, _reflector) = world.synced();
    assert_eq!(
        world.requests(),
        ["stream most-recent", "list 0", "watch 2"]
    );
    assert_eq!(names(&store), ["a"]);
}

/// B8, LW-5: a server that never sends the final bookmark is listed after ten seconds, and that is
/// remembered.
#[test]
fn a_stream_without_its_bookmark_is_given_up() {
    let world = World::new();
    world.set("a", "1");
    world.source.stream_lists(true);
    world
        .source
        .fail_next(RequestKind::Watch, SourceFault::Silent);
    let (store, _reflector) = world.start();
    world.pass(seconds(10));
    world.source.wait_for_requests(3);
    world.source.wait_for_watches(1);
    assert_eq!(
        world.requests(),
        ["stream most-recent", "list 0", "watch 2"]
    );
    assert_eq!(world.source.watch_list_failures(), 1);
    assert_eq!(names(&store), ["a"]);
    world.source.send(|| WatchEvent::Error(status(403)));
    world.pass(millis(800));
    world.source.wait_for_requests(5);
    assert_eq!(world.requests()[3..], ["list 2", "watch 2"]);
}

/// WL-6: a stream that is cut leaves nothing behind; the next one begins anew.
#[test]
fn half_a_stream_is_no_list() {
    let world = World::new();
    world.set("a", "1");
    world.set("b", "1");
    world.source.stream_lists(true);
    world
        .source
        .fail_next(RequestKind::Watch, SourceFault::CutAfter(1));
    let (store, _reflector) = world.start();
    world.fake.wait_for_timer(millis(50));
    assert!(!store.has_synced() && store.is_empty());
    world.fake.advance(millis(50));
    world.source.wait_for_requests(2);
    store.wait_until_synced(Deadline::NEVER).unwrap();
    assert_eq!(names(&store), ["a", "b"]);
}

/// B8: a reflector whose options forbid streams does not stream, whatever the source supports.
#[test]
fn streaming_can_be_switched_off() {
    let mut world = World::new();
    world.source.stream_lists(true);
    world.options.watch_list = false;
    let (_store, _reflector) = world.synced();
    assert_eq!(world.requests()[0], "list 0");
}
