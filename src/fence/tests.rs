//! The fence over each kind of cache, by the cases of client-go's consistency store.

use std::error::Error as _;
use std::slice;
use std::time::Duration;

use crossbeam_channel::bounded;
use k8s_openapi::api::core::v1::ConfigMap;

use super::WriteFence;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::informer::{InformerSet, InformerSetOptions};
use crate::list_watch::{ObjectEvent, Undecodable};
use crate::manager::{ChangeDetection, ConfigMapManager, ManagerOptions, Owner};
use crate::object::{ObjectKey, ResourceVersion, StoredObject};
use crate::reflector::{Replacement, Sink as _};
use crate::store::{Indexers, Store, StoreWriter};
use crate::sync::Arc;
use crate::testing::{FakeSource, objects};
use crate::worker::Worker;
use crate::{Error, ErrorKind};

const PATIENCE: Duration = Duration::from_secs(5 * 60);

fn named(name: &str) -> Owner {
    Owner::new("Test", ObjectKey::new("", name))
}

fn owner() -> Owner {
    named("owner-1")
}

struct Stage {
    fake: FakeClock,
    fence: WriteFence,
    store: Store<ConfigMap>,
    writer: StoreWriter<ConfigMap>,
}

impl Stage {
    /// A store that has no list yet.
    fn new() -> Self {
        let fake = FakeClock::new();
        let (store, writer) = Store::new(Indexers::new(), Clock::from(fake.clone()));
        Self {
            fence: WriteFence::new(Clock::from(fake.clone())),
            fake,
            store,
            writer,
        }
    }

    fn wrote(&self, version: &str) {
        self.fence
            .wrote(&owner(), &self.store, &version.into())
            .unwrap();
    }

    fn list(&mut self, objects: Vec<ConfigMap>, version: &str) {
        let mut staging = self.writer.begin();
        for object in objects {
            let event = ObjectEvent::added(Arc::new(StoredObject::new(object)));
            self.writer.stage(&mut staging, event);
        }
        let of = Replacement {
            resource_version: version.into(),
            ..Replacement::default()
        };
        self.writer.commit(staging, &of).unwrap();
    }

    /// Looks without a wait.
    fn seen(&self) -> Result<(), Error> {
        let passed = Deadline::at(self.fake.now());
        self.fence.wait_until_seen(&owner(), passed)
    }

    fn bookmark(&mut self, version: &str) {
        self.writer.bookmark(&version.into());
    }
}

fn key() -> ObjectKey {
    ObjectKey::new("shop", "settings")
}

fn config_map(version: &str, uid: &str) -> ConfigMap {
    let mut object = objects::config_map("shop", "settings", version, &[]);
    object.metadata.uid = Some(uid.to_owned());
    object
}

fn version(number: u64) -> ResourceVersion {
    number.to_string().as_str().into()
}

#[test]
fn an_owner_without_writes_is_seen() {
    assert!(Stage::new().seen().is_ok());
}

#[test]
fn a_write_is_seen_once_the_store_is_as_new() {
    let mut stage = Stage::new();
    stage.wrote("10");
    let error = stage.seen().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "no list yet");
    stage.list(vec![], "5");
    stage.fake.advance(Duration::from_secs(3));
    let error = stage.seen().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = "the configmap cache has not seen version 10, noted 3.0s ago";
    assert_eq!(error.to_string(), text);
    assert!(error.source().is_some(), "what the store said");
    stage.bookmark("10");
    assert!(stage.seen().is_ok());
    assert!(stage.fence.owners().is_empty(), "nothing is kept");
}

#[test]
fn the_newest_version_counts_and_a_malformed_one_is_refused() {
    let mut stage = Stage::new();
    for malformed in ["", "invalid"] {
        let noted = stage.fence.wrote(&owner(), &stage.store, &malformed.into());
        assert_eq!(noted.unwrap_err().kind(), ErrorKind::Config);
        assert!(stage.fence.owners().is_empty());
    }
    for version in ["5", "10", "8"] {
        stage.wrote(version);
    }
    assert!(
        stage
            .fence
            .wrote(&owner(), &stage.store, &"invalid".into())
            .is_err()
    );
    stage.list(vec![], "9");
    let text = stage.seen().unwrap_err().to_string();
    assert!(text.contains("version 10,"), "{text}");
    stage.list(vec![], "11");
    assert!(stage.seen().is_ok());
}

#[test]
fn every_cache_must_have_seen_its_write() {
    let mut stage = Stage::new();
    let other = Stage::new();
    let (mut other_writer, other_store) = (other.writer, other.store);
    stage.list(vec![], "10");
    stage.wrote("10");
    stage
        .fence
        .wrote(&owner(), &other_store, &"100".into())
        .unwrap();
    stage
        .fence
        .wrote(&owner(), &stage.store, &"12".into())
        .unwrap();
    let text = stage.seen().unwrap_err().to_string();
    assert!(text.contains("version 12,"), "{text}");
    assert!(text.contains("version 100,"), "{text}");
    stage.bookmark("12");
    let text = stage.seen().unwrap_err().to_string();
    assert!(!text.contains("version 12,"), "{text}");
    let staging = other_writer.begin();
    let of = Replacement {
        resource_version: "100".into(),
        ..Replacement::default()
    };
    other_writer.commit(staging, &of).unwrap();
    assert!(stage.seen().is_ok());
    assert!(stage.fence.owners().is_empty());
}

/// A later write to the same cache covers the creation.
#[test]
fn a_deletion_of_what_the_cache_has_not_had_yet_is_not_seen_before_the_creation() {
    let mut stage = Stage::new();
    stage.list(vec![], "4");
    stage.wrote("5");
    stage.fence.deleted(&owner(), &stage.store, &key(), "uid-1");
    stage.wrote("7");
    let text = stage.seen().unwrap_err().to_string();
    assert!(text.contains("version 7,"), "{text}");
    let waiting = std::thread::scope(|scope| {
        let (fence, limit) = (&stage.fence, Duration::from_secs(9));
        let waits = scope.spawn(move || fence.wait_until_seen(&owner(), limit));
        stage.fake.wait_for_timer(limit);
        let object = Arc::new(StoredObject::new(config_map("5", "uid-1")));
        stage.writer.apply(ObjectEvent::added(object)).unwrap();
        stage.writer.bookmark(&"7".into());
        stage.fake.advance(limit);
        waits.join().unwrap()
    });
    let text = waiting.unwrap_err().to_string();
    assert!(text.contains("the end of shop/settings (uid-1)"), "{text}");
}

#[test]
fn an_owner_that_is_gone_leaves_nothing_and_the_others_alone() {
    let stage = Stage::new();
    stage.wrote("10");
    stage
        .fence
        .wrote(&named("owner-2"), &stage.store, &"20".into())
        .unwrap();
    stage.fence.forget(&named("owner-3"));
    assert_eq!(stage.fence.owners(), [owner(), named("owner-2")]);
    stage.fence.forget(&owner());
    assert_eq!(stage.fence.owners(), [named("owner-2")]);
    assert!(stage.seen().is_ok());
}

/// A UID is an owner's own: the successor of its name waits for nothing of it, and forgets nothing.
#[test]
fn an_owner_that_was_made_again_begins_anew() {
    let mut stage = Stage::new();
    let [first, second] = ["uid-1", "uid-2"].map(|uid| Owner::of(&config_map("1", uid)));
    let wrote = |stage: &Stage, owner: &Owner, version: &str| {
        let noted = stage.fence.wrote(owner, &stage.store, &version.into());
        noted.unwrap();
    };
    wrote(&stage, &first, "10");
    stage.list(vec![], "5");
    let passed = Deadline::at(stage.fake.now());
    stage.fence.wait_until_seen(&second, passed).unwrap();
    stage.fence.forget(&second);
    assert!(stage.fence.wait_until_seen(&first, passed).is_err());
    wrote(&stage, &second, "7");
    stage.fence.forget(&first);
    assert_eq!(stage.fence.owners(), slice::from_ref(&second));
    wrote(&stage, &first, "10");
    stage.bookmark("7");
    stage.fence.wait_until_seen(&second, passed).unwrap();
    assert_eq!(stage.fence.owners(), [first]);
}

#[test]
fn a_deletion_is_seen_when_the_object_is_gone_or_another() {
    let mut stage = Stage::new();
    stage.list(vec![config_map("5", "uid-1")], "5");
    let note = |stage: &Stage| stage.fence.deleted(&owner(), &stage.store, &key(), "uid-1");
    note(&stage);
    note(&stage);
    let error = stage.seen().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = "the configmap cache has not seen the end of shop/settings (uid-1), noted 0.0ns ago";
    assert_eq!(error.to_string(), text);
    let gone = Arc::new(StoredObject::new(config_map("7", "uid-1")));
    stage.writer.apply(ObjectEvent::deleted(gone)).unwrap();
    assert!(stage.seen().is_ok());
    assert!(stage.fence.owners().is_empty());

    // The deletion came while no watch was open: the next list settles it.
    stage.list(vec![config_map("9", "uid-1")], "9");
    note(&stage);
    assert!(stage.seen().is_err());
    stage.list(vec![], "12");
    assert!(stage.seen().is_ok());

    // Another object of that name was made meanwhile.
    stage.list(vec![config_map("13", "uid-1")], "13");
    note(&stage);
    stage.list(vec![config_map("15", "uid-2")], "15");
    assert!(stage.seen().is_ok());
}

#[test]
fn a_wait_ends_with_the_write_and_keeps_what_was_noted_meanwhile() {
    let mut stage = Stage::new();
    stage.list(vec![], "5");
    stage.wrote("10");
    let fence = Arc::new(std::mem::replace(
        &mut stage.fence,
        WriteFence::new(Clock::from(stage.fake.clone())),
    ));
    let (waiting, (tell, told)) = (Arc::clone(&fence), bounded(1));
    let waiter = Worker::spawn("t-fence", move |_| {
        let _told = tell.send(waiting.wait_until_seen(&owner(), PATIENCE));
    });
    stage.fake.wait_for_timer(PATIENCE);
    fence.wrote(&owner(), &stage.store, &"20".into()).unwrap();
    stage.bookmark("10");
    told.recv_timeout(PATIENCE).unwrap().unwrap();
    waiter.unwrap().join().unwrap();
    assert_eq!(fence.owners(), [owner()]);
    stage.bookmark("20");
    let passed = Deadline::at(stage.fake.now());
    fence.wait_until_seen(&owner(), passed).unwrap();
    assert!(fence.owners().is_empty());
}

#[test]
fn a_cache_that_has_ended_says_so() {
    let stage = Stage::new();
    stage.wrote("10");
    let Stage { fence, writer, .. } = stage;
    drop(writer);
    let error = fence.wait_until_seen(&owner(), PATIENCE).unwrap_err();
    assert!(error.is_stopped(), "{error}");
    assert_eq!(fence.owners(), [owner()]);
}

#[test]
fn informers_of_a_set() {
    let source = FakeSource::<ConfigMap>::new();
    let set = InformerSet::new(source.clone(), InformerSetOptions::default());
    let informer = set.informer::<ConfigMap>().unwrap();
    set.start().unwrap();
    informer.wait_until_synced(PATIENCE).unwrap();
    let fence = WriteFence::new(Clock::system());
    let version = version(source.set(objects::config_map("shop", "settings", "", &[("tax", "7")])));
    fence.wrote(&owner(), informer.store(), &version).unwrap();
    fence.wait_until_seen(&owner(), PATIENCE).unwrap();
    let stored = informer.store().get("shop", "settings").unwrap().unwrap();
    source.delete("shop", "settings");
    let uid = stored.metadata.uid.as_deref().unwrap();
    fence.deleted(&owner(), informer.store(), &key(), uid);
    fence.wait_until_seen(&owner(), PATIENCE).unwrap();
    assert!(informer.store().is_empty());
    assert!(fence.owners().is_empty());
}

/// Another object of that name that does not decode has another uid, too.
#[test]
fn an_end_is_seen_by_the_uid_of_what_does_not_decode() {
    let mut stage = Stage::new();
    stage.list(vec![config_map("5", "uid-1")], "5");
    stage.fence.deleted(&owner(), &stage.store, &key(), "uid-1");
    let undecodable = |uid: &str, version: &str| Undecodable {
        key: key(),
        uid: uid.to_owned(),
        resource_version: version.into(),
        error: Error::new(ErrorKind::Undecodable, "data: expected a map"),
    };
    for (uid, version, is_seen) in [("uid-1", "6", false), ("uid-2", "7", true)] {
        let event = ObjectEvent::added(undecodable(uid, version));
        stage.writer.apply(event).unwrap();
        let seen = stage.seen();
        assert_eq!(seen.is_ok(), is_seen, "{seen:?}");
    }
}

#[test]
fn objects_of_a_manager() {
    for how in [
        ChangeDetection::Watch,
        ChangeDetection::Cache,
        ChangeDetection::Get,
    ] {
        let source = FakeSource::<ConfigMap>::new();
        let options = ManagerOptions::default().change_detection(how);
        let manager = ConfigMapManager::new(source.clone(), options).unwrap();
        let (fence, key) = (WriteFence::new(Clock::system()), key());
        // No owner references it yet, so nothing old can be read.
        fence
            .wrote(&owner(), (&manager, &key), &"1".into())
            .unwrap();
        source.set(objects::config_map("shop", "settings", "", &[("tax", "7")]));
        fence.wait_until_seen(&owner(), PATIENCE).unwrap();

        manager.register_pod(&objects::pod("shop", "till", "node", &[], &["settings"]));
        assert_eq!(
            manager
                .get("shop", "settings")
                .unwrap()
                .text("tax")
                .unwrap(),
            "7"
        );
        let changed = objects::config_map("shop", "settings", "", &[("tax", "19")]);
        let version = version(source.set(changed));
        fence.wrote(&owner(), (&manager, &key), &version).unwrap();
        fence.wait_until_seen(&owner(), PATIENCE).unwrap();
        let read = manager.get("shop", "settings").unwrap();
        assert_eq!(read.text("tax").unwrap(), "19", "{how:?}");

        let uid = read.metadata.uid.clone().unwrap();
        fence.deleted(&owner(), (&manager, &key), &key, &uid);
        let soon = Duration::from_millis(20);
        let error = fence.wait_until_seen(&owner(), soon).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{how:?}");
        if how == ChangeDetection::Watch {
            // A finalizer keeps it, in a state that this program cannot read.
            source.set_undecodable("shop", "settings");
            let error = fence.wait_until_seen(&owner(), soon).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
        source.delete("shop", "settings");
        fence.wait_until_seen(&owner(), PATIENCE).unwrap();
        assert!(manager.get("shop", "settings").unwrap_err().is_not_found());
        assert!(fence.owners().is_empty());
    }
}
