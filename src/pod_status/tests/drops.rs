//! Code of the program runs without a lock: the constructor of a default status, and the drop by
//! the last holder.

use std::cell::RefCell;
use std::fmt;

use super::*;
use crate::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// The cache that the statuses of this test's thread read.
    static CACHE: RefCell<Option<PodStatusCache<Nosy>>> = const { RefCell::new(None) };
}

/// Counts reads of the cache from inside code of the program. A read under the lock would never
/// return.
static READS: AtomicUsize = AtomicUsize::new(0);

/// A status, and an error, that reads the cache whenever its code runs.
#[derive(Debug)]
struct Nosy;

fn read_the_cache() {
    let cache = CACHE.with(|cache| cache.borrow().clone());
    if let Some(cache) = cache {
        assert!(cache.waiting().is_empty());
        READS.fetch_add(1, Ordering::Relaxed);
    }
}

impl CachedStatus for Nosy {
    fn with_id(_uid: &str) -> Self {
        read_the_cache();
        Self
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        read_the_cache();
    }
}

impl fmt::Display for Nosy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nosy")
    }
}

impl std::error::Error for Nosy {}

#[test]
fn user_code_runs_under_no_lock() {
    let stage = Stage::new();
    let cache = PodStatusCache::<Nosy>::evented(stage.clock.clone());
    CACHE.with(|slot| slot.replace(Some(cache.clone())));
    let reads = || READS.swap(0, Ordering::Relaxed);
    let set = |seconds| {
        let (status, error) = (Arc::new(Nosy), Arc::new(Nosy));
        cache.set("uid-1", Some(status), Some(error), stage.at(seconds))
    };
    drop(cache.get("uid-1"));
    assert_eq!(reads(), 2, "the default status is made and dropped");
    assert!(set(0) && set(1));
    assert_eq!(reads(), 2, "status and error were replaced");
    assert!(!set(0));
    assert_eq!(reads(), 2, "status and error were refused");
    cache.delete("uid-1");
    assert_eq!(reads(), 2, "status and error were deleted");
    cache.update_time(stage.at(10));
    drop(cache.get_newer_than("uid-1", stage.at(9)).unwrap());
    assert_eq!(reads(), 2, "the default status again");
    CACHE.with(|slot| slot.replace(None));
}
