//! More objects than a store may have (promise 6): the watch stays open, health says so, and a list
//! brings the rest once there is room.

use super::*;
use crate::ErrorKind;
use crate::testing::RequestKind;
use crate::tests::until::until;

/// The time after which a list follows the end of an object: the waits of this stage have no jitter
/// but this one.
const LONGEST: Duration = Duration::from_secs(10 * 60);

impl Stage {
    /// A stage with these objects, whose stores hold two.
    fn bounded(names: &[&str]) -> Self {
        let stage = Self::new();
        stage.source.limit_objects(2);
        for name in names {
            stage.set(name, "1");
        }
        stage
    }

    fn lists(&self) -> usize {
        let requests = self.source.requests().into_iter();
        let lists = requests
            .filter(|request| request.kind == RequestKind::List || request.send_initial_events);
        lists.count()
    }

    /// Ends timers, while bookmarks keep coming, until the store has had `lists` lists.
    #[track_caller]
    fn until_lists(&self, store: &Store<ConfigMap>, lists: u64) -> Duration {
        let began = self.options.clock.now();
        until(|| {
            if store.status().lists >= lists {
                return true;
            }
            self.source.bookmark();
            if self.source.open_watches() == 0 {
                return false;
            }
            let next = self.fake.wait_for_next_timer();
            self.fake.advance(next.min(seconds(30)));
            false
        });
        self.options.clock.now().saturating_duration_since(began)
    }
}

fn told(left_out: usize) -> String {
    format!(
        "configmaps: the maximum is 2 objects, and {left_out} more found no room: \
         DecodeOptions::list_items_max raises the limit"
    )
}

#[test]
fn a_store_beyond_its_bound_goes_on_and_its_health_says_why() {
    for streams in [false, true] {
        let stage = Stage::bounded(&["a", "b", "c"]);
        stage.source.stream_lists(streams);
        let (store, reflector) = stage.synced();
        let held = names(&store);
        assert_eq!(held.len(), 2, "{streams}: {held:?}");
        // The status comes soon after the content.
        until(|| store.health().is_err());
        for health in [store.health(), reflector.health()] {
            let error = health.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            assert!(error.to_string().ends_with(&told(1)), "{error}");
        }
        stage.set("d", "1");
        stage.set(&held[0], "2");
        stage.catch_up(&store);
        assert_eq!(value(&store, &held[0]).as_deref(), Some("2"));
        assert_eq!(names(&store), held);
        stage.source.wait_for_watches(1);
        let status = reflector.status();
        let last = status.failures.last().unwrap().to_string();
        assert!(last.ends_with(&told(2)), "{last}");
        assert_eq!(status.failures.count(), 0, "no request has failed");
        assert_eq!((status.lists, stage.source.open_watches()), (1, 1));
    }
}

#[test]
fn once_an_object_has_gone_a_list_brings_what_there_is_room_for() {
    let stage = Stage::bounded(&["a", "b", "c", "d"]);
    let (store, reflector) = stage.synced();
    stage.source.delete("shop", "a");
    stage.catch_up(&store);
    assert_eq!(names(&store), ["b"]);
    assert!(store.health().is_err());
    let waited = stage.until_lists(&store, 2);
    assert!(
        LONGEST / 2 <= waited && waited <= LONGEST + seconds(30),
        "{waited:?}"
    );
    assert_eq!(names(&store), ["b", "c"], "there is room for one more");
    assert!(store.health().is_err(), "one is still left out");

    // Many ends lead to one list, and objects that take the room meanwhile are kept.
    stage.source.delete("shop", "b");
    stage.source.delete("shop", "c");
    stage.set("e", "1");
    stage.catch_up(&store);
    assert_eq!(names(&store), ["e"]);
    let waited = stage.until_lists(&store, 3);
    assert!(
        LONGEST / 2 <= waited && waited <= LONGEST + seconds(30),
        "{waited:?}"
    );
    assert_eq!(names(&store), ["d", "e"]);
    store.health().unwrap();
    assert!(reflector.status().failures.last().is_none());
    assert_eq!(stage.lists(), 3);
}

/// Only a list knows that nothing is missing any more.
#[test]
fn the_end_of_an_object_that_was_left_out_leads_to_a_list_too() {
    let stage = Stage::bounded(&["a", "b", "c"]);
    let (store, _reflector) = stage.synced();
    stage.source.delete("shop", "c");
    stage.catch_up(&store);
    assert!(store.health().is_err());
    stage.until_lists(&store, 2);
    store.health().unwrap();
    assert_eq!(names(&store), ["a", "b"]);
}
