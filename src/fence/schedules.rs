//! Thread schedules of a wait against writes and the store's news, explored by a model checker.

use k8s_openapi::api::core::v1::ConfigMap;
use shuttle::thread;

use super::WriteFence;
use crate::clock::{Clock, Deadline};
use crate::manager::Owner;
use crate::object::ObjectKey;
use crate::reflector::{Replacement, Sink as _};
use crate::store::{Indexers, Store};
use crate::sync::Arc;

fn owner() -> Owner {
    Owner::new("Test", ObjectKey::new("", "owner"))
}

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 5_000;

/// A write is noted while another is waited for: no wait misses the store's news, and a write that
/// no wait was for is kept.
#[test]
fn no_news_is_missed_and_no_write_is_lost() {
    shuttle::check_random(
        || {
            let (store, mut writer) = Store::<ConfigMap>::new(Indexers::new(), Clock::system());
            let fence = Arc::new(WriteFence::new(Clock::system()));
            fence.wrote(&owner(), &store, &"5".into()).unwrap();
            let waiting = Arc::clone(&fence);
            let waiter = thread::spawn(move || waiting.wait_until_seen(&owner(), Deadline::NEVER));
            let (noting, seen_by) = (Arc::clone(&fence), store.clone());
            let noted = thread::spawn(move || noting.wrote(&owner(), &seen_by, &"9".into()));
            let staging = writer.begin();
            let list = Replacement {
                resource_version: "1".into(),
                ..Replacement::default()
            };
            writer.commit(staging, &list).unwrap();
            writer.bookmark(&"5".into());
            noted.join().unwrap().unwrap();
            assert_eq!(fence.owners(), [owner()]);
            writer.bookmark(&"9".into());
            waiter.join().unwrap().unwrap();
            fence.wait_until_seen(&owner(), Deadline::NEVER).unwrap();
            assert!(fence.owners().is_empty());
        },
        SCHEDULES,
    );
}
