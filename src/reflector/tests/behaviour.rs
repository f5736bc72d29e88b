//! The requests to the server, and the content that reaches the store.

use super::*;
use crate::ErrorKind;
use crate::list_watch::{
    ListPage, ListRequest, Listed, ListerWatcher, ObjectEvent, WatchEvent, WatchRequest,
    WatchStream,
};
use crate::reflector::{Phase, ReflectorStatus};
use crate::testing::{RequestKind, SourceFault};
use crate::tests::until::{until, until_some};
use crate::worker::StopToken;

/// `TestReflectorListAndWatch`: list, then events into the store; the watch starts at the list's
/// version (RF-21).
#[test]
fn a_list_and_then_a_watch_fill_the_store() {
    let stage = Stage::new();
    let listed = stage.set("a", "1");
    let (store, reflector) = stage.synced();
    assert_eq!(
        stage.requests(),
        ["list 0".to_owned(), format!("watch {listed}")]
    );
    stage.set("b", "2");
    stage.catch_up(&store);
    assert_eq!(value(&store, "b").as_deref(), Some("2"));
    stage.source.delete("shop", "a").unwrap();
    stage.catch_up(&store);
    assert_eq!(value(&store, "a"), None);
    stage.fake.wait_for_parked(1);
    assert_eq!(reflector.status().resource_version.as_str(), "4", "RF-50");
    reflector.join().unwrap();
}

/// `TestReflectorWatchHandler`: a foreign type is skipped (RF-25), a deletion, a change at 55, an
/// addition at 32; the position stays at 55 (B18 instead of RF-29).
#[test]
fn the_watch_handler_table_of_upstream() {
    let stage = Stage::new();
    stage.set("foo", "1");
    stage.set("bar", "1");
    let (store, reflector) = stage.synced();
    stage.source.send(|| WatchEvent::Skipped {
        reason: "foreign".to_owned(),
        resource_version: ResourceVersion::default(),
    });
    stage
        .source
        .send(|| ObjectEvent::deleted(held("foo", "uid-1", "50")).into());
    stage
        .source
        .send(|| ObjectEvent::updated(held("bar", "uid-2", "55")).into());
    stage
        .source
        .send(|| ObjectEvent::added(held("baz", "uid-3", "32")).into());
    stage.source.send(|| WatchEvent::Bookmark {
        resource_version: ResourceVersion::from("56"),
        initial_events_end: false,
    });
    store
        .wait_until_at_least(&ResourceVersion::from("56"), Deadline::NEVER)
        .unwrap();
    assert_eq!(names(&store), ["bar", "baz"]);
    assert_eq!(
        store
            .get("shop", "baz")
            .unwrap()
            .unwrap()
            .metadata
            .resource_version
            .as_deref(),
        Some("32")
    );
    assert_eq!(reflector.status().skipped, 1);
}

/// B18: an older state of the same object is refused and counted; so is an old deletion, and a
/// resurrection.
#[test]
fn nothing_goes_back_in_time() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.set("b", "1");
    let (store, _reflector) = stage.synced();
    stage.set("a", "2");
    stage.source.delete("shop", "b");
    stage.catch_up(&store);
    stage
        .source
        .send(|| ObjectEvent::updated(held("a", "uid-1", "2")).into());
    stage
        .source
        .send(|| ObjectEvent::deleted(held("a", "uid-1", "3")).into());
    stage
        .source
        .send(|| ObjectEvent::added(held("b", "uid-2", "3")).into());
    stage.source.skip_to(90);
    stage.source.bookmark();
    stage.catch_up(&store);
    assert_eq!(value(&store, "a").as_deref(), Some("2"));
    assert_eq!(names(&store), ["a"]);
    assert_eq!(store.refused(), 3);
}

/// B18, B4: a restored backup is taken, by the list at the most recent version that its refusal
/// leads to.
#[test]
fn a_restored_server_is_followed_back() {
    let stage = Stage::new();
    let before = stage.set("a", "old");
    stage.set("a", "new");
    stage.source.skip_to(100);
    let (store, _reflector) = stage.synced();
    assert_eq!(value(&store, "a").as_deref(), Some("new"));
    stage.source.restore(before);
    stage.pass(millis(800));
    stage.source.wait_for_requests(5);
    stage.source.wait_for_watches(1);
    assert_eq!(value(&store, "a").as_deref(), Some("old"));
    assert_eq!(store.resource_version().as_str(), "2");
    assert_eq!(
        stage.requests()[2..],
        ["list 100", "list most-recent", "watch 2"],
        "the watch broke off within a second"
    );
}

/// B4, OC-22: a restart lists at 0, and once more at the most recent when that answer is older than
/// the known version.
#[test]
fn a_restart_asks_once_more_when_the_cache_lags() {
    let mut stage = Stage::new();
    let old = stage.set("a", "old");
    let known = stage.set("a", "new");
    stage.source.lag(Some(old));
    stage.options.known_version = Some(ResourceVersion::from(known.to_string()));
    let (store, _reflector) = stage.synced();
    assert_eq!(stage.requests(), ["list 0", "list most-recent", "watch 3"]);
    assert_eq!(value(&store, "a").as_deref(), Some("new"));
}

/// PG-1..PG-5: pages reach the store as one replacement.
#[test]
fn pages_are_one_list() {
    let mut stage = Stage::new();
    for name in ["a", "b", "c", "d", "e"] {
        stage.set(name, "1");
    }
    stage.source.page_at_zero(true);
    stage.options.page_size = Some(2);
    let (store, _reflector) = stage.synced();
    assert_eq!(names(&store), ["a", "b", "c", "d", "e"]);
    assert_eq!(
        stage.requests(),
        [
            "list 0 limit=2",
            "list most-recent limit=2 continue=6:shop/c",
            "list most-recent limit=2 continue=6:shop/e",
            "watch 6"
        ]
    );
}

/// PG-6: a token that expired between pages leads to a full list, and nothing of the pages before
/// is kept.
#[test]
fn a_page_that_expired_is_no_list() {
    let mut stage = Stage::new();
    for name in ["a", "b", "c"] {
        stage.set(name, "1");
    }
    stage.source.page_at_zero(true);
    stage.options.page_size = Some(2);
    let source = stage.source.clone();
    let mut pages = 0;
    stage.source.plan(move |request| {
        pages += usize::from(request.kind == RequestKind::List);
        let expired = Status::from(k8s_openapi::apimachinery::pkg::apis::meta::v1::Status {
            code: Some(410),
            reason: Some("Expired".to_owned()),
            ..Default::default()
        });
        (pages == 2).then(|| SourceFault::Fail(Error::from_status(expired)))
    });
    let (store, _reflector) = stage.synced();
    assert_eq!(source.requests().len(), 4);
    assert_eq!(stage.requests()[2], "list 0", "limit 0: everything");
    assert_eq!(names(&store), ["a", "b", "c"]);
}

/// A list that breaks off in its middle leaves the content as it was (ST-5, RF-17).
#[test]
fn half_a_list_is_no_list() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.set("b", "1");
    let (store, _reflector) = stage.synced();
    stage
        .source
        .fail_next(RequestKind::List, SourceFault::CutAfter(1));
    stage.source.send(|| WatchEvent::Error(status(403)));
    stage.pass(millis(800));
    stage.source.wait_for_requests(3);
    stage.fake.wait_for_timer(millis(1600));
    assert_eq!(
        names(&store),
        ["a", "b"],
        "the list of one item is not taken"
    );
    stage.fake.advance(millis(1600));
    stage.source.wait_for_watches(1);
    assert_eq!(store.status().lists, 2);
}

/// A relist shares unchanged objects with the content that it replaces, so only new ones cost
/// memory.
#[test]
fn a_relist_keeps_what_has_not_changed() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.set("b", "1");
    let (store, _reflector) = stage.synced();
    let before = (
        store.get("shop", "a").unwrap().unwrap(),
        store.get("shop", "b").unwrap().unwrap(),
    );
    stage
        .source
        .fail_next(RequestKind::Watch, SourceFault::Fail(status(410)));
    stage.set("b", "2");
    stage.catch_up(&store);
    stage.source.end_watches(None);
    stage.pass(millis(50));
    stage.soon();
    stage.source.wait_for_requests(5);
    stage.source.wait_for_watches(1);
    assert_eq!(store.status().lists, 2);
    assert!(Arc::ptr_eq(
        &before.0,
        &store.get("shop", "a").unwrap().unwrap()
    ));
    assert!(!Arc::ptr_eq(
        &before.1,
        &store.get("shop", "b").unwrap().unwrap()
    ));
}

/// B12: an undecodable object is set aside with key and reason; the rest syncs; no reader sees a
/// false delete.
#[test]
fn one_bad_object_does_not_hold_up_the_rest() {
    let stage = Stage::new();
    stage.set("good", "1");
    stage.source.set_undecodable("shop", "bad");
    let (store, _reflector) = stage.synced();
    assert_eq!(names(&store), ["bad", "good"], "it is present");
    assert_eq!(store.list().len(), 1);
    let error = store.get("shop", "bad").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Undecodable);
    assert!(store.get_last_good("shop", "bad").is_none());
    assert_eq!(store.undecodable()[0].key.name(), "bad");

    stage.source.set_undecodable("shop", "good");
    stage.catch_up(&store);
    assert_eq!(
        store.get("shop", "good").unwrap_err().kind(),
        ErrorKind::Undecodable
    );
    let last = store.get_last_good("shop", "good").unwrap();
    assert_eq!(
        last.data.as_ref().unwrap()["value"],
        "1",
        "the last good copy, on request"
    );
    assert!(store.by_index("namespace", "shop").unwrap().is_empty());

    stage.set("bad", "mended");
    stage.source.delete("shop", "good");
    stage.catch_up(&store);
    assert_eq!(value(&store, "bad").as_deref(), Some("mended"));
    assert_eq!(
        names(&store),
        ["bad"],
        "an undecodable deletion deletes by key"
    );
    assert!(store.undecodable().is_empty());
}

/// B14: phase, contact, age and freshness, while a watch is silent and after it spoke.
#[test]
fn freshness_can_be_read() {
    let stage = Stage::new();
    stage.set("a", "1");
    let (store, reflector) = stage.synced();
    stage.fake.wait_for_parked(1);
    assert_eq!(reflector.status().phase, Phase::Watching);
    assert!(stage.is_fresh_within(seconds(1), &reflector));
    stage.fake.advance(seconds(60));
    assert_eq!(stage.age(&reflector), Some(seconds(60)));
    assert_eq!(store.age(), Some(seconds(60)));
    assert!(!stage.is_fresh_within(seconds(59), &reflector));
    stage.source.skip_to(70);
    stage.source.bookmark();
    stage.catch_up(&store);
    stage.fake.wait_for_timer(seconds(180));
    assert_eq!(
        stage.age(&reflector),
        Some(Duration::ZERO),
        "a bookmark is a contact"
    );
    reflector.stop();
    stage.source.wait_for_watches(0);
    let status = store.status();
    assert!(status.synced && status.failures.last().is_none());
}

/// B14: a server that falls silent fails the health check at the idle limit and not before, for the
/// reflector's owner and for readers; its return mends it.
#[test]
fn b14_silence_fails_the_health_check_and_an_open_watch_mends_it() {
    let stage = Stage::new();
    stage.set("a", "1");
    let (store, reflector) = stage.synced();
    stage.source.skip_to(9);
    stage.source.bookmark();
    stage.catch_up(&store);
    stage.fake.wait_for_timer(seconds(130));
    stage
        .source
        .fail_next(RequestKind::Watch, SourceFault::Hang);
    stage.fake.advance(seconds(129));
    reflector.health().unwrap();
    store.health().unwrap();
    stage.fake.advance(seconds(1));
    stage.source.wait_for_requests(3);
    for health in [reflector.health(), store.health()] {
        let error = health.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let text = error.to_string();
        let start = "the server last confirmed the content 130s ago; 1 attempt failed in 0s, the \
             last one: ";
        assert!(text.starts_with(start), "{text}");
        let cause = "no event came on the watch for 130s: it is opened again";
        assert!(text.ends_with(cause), "{text}");
    }
    stage.source.heal();
    stage.set("a", "2");
    stage.catch_up(&store);
    // The status follows the content.
    until(|| reflector.health().is_ok() && store.health().is_ok());
    reflector.stop();
    stage.source.wait_for_watches(0);
    stage.fake.advance(seconds(1_000));
    until(|| reflector.is_finished());
    reflector.health().unwrap();
    store.health().unwrap();
}

/// B11: a watch that fell silent is opened again at its last version, without a list, on another
/// connection.
#[test]
fn silence_opens_the_watch_anew() {
    let stage = Stage::new();
    stage.set("a", "1");
    let (store, _reflector) = stage.synced();
    stage.source.skip_to(9);
    stage.source.bookmark();
    stage.catch_up(&store);
    stage.pass(seconds(130));
    stage.source.wait_for_requests(3);
    assert_eq!(stage.requests()[2], "watch 9");
    stage.set("a", "2");
    stage.catch_up(&store);
    assert_eq!(value(&store, "a").as_deref(), Some("2"));
    assert_eq!(store.status().lists, 1);
}

/// B11: a reflector knows the bookmark interval that an earlier one learnt, so silence on its first
/// watch is noticed.
#[test]
fn b11_bookmarks_are_remembered_by_server_and_resource_beyond_a_run() {
    let stage = Stage::new();
    let (_store, first) = stage.synced();
    let due = |reflector: &Reflector| {
        let watching = |status: &ReflectorStatus| status.phase == Phase::Watching;
        let status = until_some(|| Some(reflector.status()).filter(watching));
        let due = status.contact_deadline.unwrap();
        due.saturating_duration_since(stage.options.clock.now())
    };
    assert!(due(&first) >= seconds(330), "the watch's own time-out");
    stage.source.bookmark();
    let source: &dyn ListerWatcher<ConfigMap> = &stage.source;
    until(|| source.bookmark_interval().is_some());
    first.join().unwrap();
    let (_store, second) = stage.synced();
    assert_eq!(due(&second), seconds(130));
}

/// F21: a wait of the longest possible duration never ends, and does not end at once either.
#[test]
fn the_longest_durations_are_without_end() {
    let mut stage = Stage::new();
    stage.options.watch_timeout_min = Duration::MAX;
    stage.options.idle_limit = Duration::MAX;
    stage.options.resync_period = Some(Duration::MAX);
    stage.options.internal_error_retry = Duration::MAX;
    stage.options.forbidden_grace = Duration::MAX;
    stage.options.backoff.reset_after = Duration::MAX;
    stage.set("a", "1");
    let (store, reflector) = stage.synced();
    for day in 0..3 {
        stage.fake.wait_for_parked(1);
        stage.fake.advance(Duration::from_secs(24 * 60 * 60));
        stage.set("a", &format!("{day}"));
        stage.catch_up(&store);
    }
    assert_eq!(stage.requests().len(), 2, "{:?}", stage.requests());
    drop(reflector);
}

/// F21: also between two tries.
#[test]
fn the_longest_backoff_is_without_end() {
    let mut stage = Stage::new();
    stage.options.backoff.initial = Duration::MAX;
    stage.options.backoff.cap = Duration::MAX;
    stage.source.fail_all(RequestKind::List, status(500));
    let (_store, reflector) = stage.start();
    for _ in 0..3 {
        stage.fake.wait_for_parked(1);
        stage.fake.advance(Duration::from_secs(24 * 60 * 60));
    }
    assert_eq!(stage.requests().len(), 1, "{:?}", stage.requests());
    drop(reflector);
}

/// B11, B18: after a restore from a backup a watch from our version, which lies in the server's
/// future, is opened and silent. The cache says that nothing is confirmed, asks where the server
/// stands, and follows it back.
#[test]
fn b11_a_server_that_opens_silent_watches_after_a_restore_is_followed_back() {
    let stage = Stage::new();
    let before = stage.set("a", "old");
    stage.set("a", "new");
    stage.source.skip_to(100);
    stage.source.silent_futures(true);
    let (store, reflector) = stage.synced();
    stage.source.bookmark();
    stage.fake.wait_for_timer(seconds(130));
    stage.fake.advance(seconds(10));
    stage.source.restore(before);
    stage.source.wait_for_requests(3);
    // The watch is opened again where it was, and nothing comes on it any more.
    stage.pass(seconds(130));
    stage.soon();
    stage.source.wait_for_requests(6);
    stage.source.wait_for_watches(1);
    assert_eq!(
        stage.requests()[2..],
        [
            "watch 100",
            "list most-recent limit=1",
            "list most-recent",
            "watch 2"
        ]
    );
    assert_eq!(value(&store, "a").as_deref(), Some("old"));
    assert!(!reflector.status().is_behind());
}

/// B14: bytes without an end and without an event keep the connection for a while, and the health
/// for no moment.
#[test]
fn b14_a_trickle_is_no_contact_and_ends() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage
        .source
        .fail_next(RequestKind::Watch, SourceFault::Trickle);
    let source: &dyn ListerWatcher<ConfigMap> = &stage.source;
    source.bookmark_came(seconds(7));
    let (store, reflector) = stage.synced();
    stage.fake.wait_for_timer(seconds(130));
    stage.fake.advance(seconds(130));
    stage.fake.wait_for_timer(seconds(60));
    assert_eq!(stage.age(&reflector), Some(seconds(130)));
    assert!(store.health().is_err());
    stage.source.fail_next(RequestKind::List, SourceFault::Hang);
    stage.fake.advance(seconds(60));
    stage.source.wait_for_requests(3);
    let phase = reflector.status().phase;
    assert_eq!(phase, Phase::Opening, "no watch is open while it asks");
    stage.source.heal();
    stage.source.wait_for_requests(4);
    stage.source.wait_for_watches(1);
    assert_eq!(
        stage.requests()[1..],
        ["watch 2", "list most-recent limit=1", "watch 2"]
    );
    until(|| reflector.health().is_ok());
}

/// B10: a read during a backoff shortens it to its first step.
#[test]
fn b10_a_read_shortens_a_backoff() {
    let stage = Stage::new();
    stage.set("a", "1");
    let refused = || Error::new(ErrorKind::Unreachable, "connection refused");
    let (store, _reflector) = stage.synced();
    stage.source.skip_to(9);
    stage.source.bookmark();
    stage.catch_up(&store);
    stage.source.fail_all(RequestKind::Watch, refused());
    stage.fake.advance(seconds(10));
    stage.source.end_watches(Some(&refused()));
    for wait in [800, 1600, 3200] {
        stage.pass(millis(wait));
    }
    stage.fake.wait_for_timer(millis(6400));
    stage.fake.advance(millis(300));
    store.waiters().expedite();
    stage.fake.wait_for_timer(millis(500));
    store.waiters().expedite();
    stage.source.heal();
    stage.fake.advance(millis(500));
    stage.source.wait_for_watches(1);
}

/// A server's objects, with one selected.
struct Selected(FakeSource<ConfigMap>, &'static str);

impl ListerWatcher<ConfigMap> for Selected {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<ConfigMap>),
    ) -> Result<ListPage, Error> {
        let mut unselected: usize = 0;
        let page = self.0.list(request, stop, &mut |item| {
            if item.key().name() == self.1 {
                each(item);
            } else {
                unselected = unselected.saturating_add(1);
            }
        })?;
        Ok(ListPage { unselected, ..page })
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<ConfigMap>>, Error> {
        self.0.watch(request, stop)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// B9: a page without a selected item is not an empty page, however many of them come.
#[test]
fn b9_pages_of_which_nothing_is_selected_are_no_empty_pages() {
    let names_of_objects: Vec<_> = (0..20).map(|number| format!("n{number:02}")).collect();
    for selected in ["n00", "n10", "n19", "none"] {
        let stage = Stage::new();
        stage.source.page_at_zero(true);
        for name in &names_of_objects {
            stage.set(name, "1");
        }
        let source = Arc::new(Selected(stage.source.clone(), selected));
        let options = stage.options.clone().page_size(1);
        let (store, reflector) = Store::spawn("t", source, Indexers::new(), options).unwrap();
        store.wait_until_synced(Deadline::NEVER).unwrap();
        stage.source.wait_for_watches(1);
        let expected: Vec<_> = names_of_objects
            .iter()
            .filter(|name| *name == selected)
            .collect();
        assert!(names(&store).iter().eq(expected), "{selected}");
        let failures = reflector.status().failures.count();
        assert_eq!((failures, stage.requests().len()), (0, 21), "{selected}");
    }
}
