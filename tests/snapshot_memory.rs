//! What a snapshot gives back: no memory of the process holds a value or the key once it is
//! dropped.
#![cfg(target_os = "linux")]

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::manager::{ManagerOptions, Owner, SecretManager};
use kubecache::object::ObjectKey;
use kubecache::snapshot::{Snapshot, SnapshotKey, SnapshotOptions};
use kubecache::testing::{FakeSource, SourceFault, objects};
use std::time::Duration;

use crate::freed_memory::{base64, found, inverted, value};
use crate::support::{TempDirectory, alone};

/// Each test has its own value.
const KEPT: u64 = 3;
const KEY: u64 = 4;

struct Key;

impl SnapshotKey for Key {
    /// The key does not stand in the program.
    fn read(&self, to: &mut [u8; 32]) -> Result<(), Error> {
        to.copy_from_slice(&value(KEY)[300..332]);
        Ok(())
    }
}

fn secret() -> Secret {
    let mut secret = objects::secret("shop", "db", "", &[]);
    let bytes = ByteString(value(KEPT).to_vec());
    secret.data = Some([("k".to_owned(), bytes)].into());
    secret
}

#[test]
fn nothing_of_a_snapshot_stays_in_memory() {
    alone(|| {
        let directory = TempDirectory::new("snapshot-memory");
        let options = || SnapshotOptions::new(directory.join("snapshot"), Key);
        let samples = [inverted(&value(KEPT)), inverted(&base64(&value(KEPT)))];
        let of_key = inverted(&value(KEY))[..32].to_vec();
        let count = || found([&samples[0], &samples[1], &of_key]);
        assert_eq!(count(), [0, 0, 0], "before anything was written");
        let soon = Clock::system().after(Duration::from_secs(5 * 60));
        let db = ObjectKey::new("shop", "db");

        let server = FakeSource::<Secret>::new();
        server.set(secret());
        let snapshot = Snapshot::open(options()).unwrap();
        let secrets = SecretManager::new(server.clone(), ManagerOptions::default()).unwrap();
        snapshot.attach(&secrets).unwrap();
        secrets.add_reference(&Owner::new("Test", db.clone()), &db);
        secrets.get_by("shop", "db", soon).unwrap();
        snapshot.write_by(soon).unwrap();
        assert_eq!(count()[1..], [0, 0], "what was written");
        drop((snapshot, secrets, server));
        assert_eq!(count(), [0, 0, 0]);

        let away = FakeSource::<Secret>::new();
        away.plan(|_request| Some(SourceFault::Hang));
        let snapshot = Snapshot::open(options()).unwrap();
        let secrets = SecretManager::new(away, ManagerOptions::default()).unwrap();
        snapshot.attach(&secrets).unwrap();
        assert_eq!(
            count(),
            [0, 1, 0],
            "what nobody has claimed yet, as its text"
        );
        snapshot.restore(&secrets);
        assert!(secrets.get("shop", "db").unwrap().is_stale());
        assert_eq!(count(), [1, 0, 0], "the object");
        drop((snapshot, secrets));
        assert_eq!(count(), [0, 0, 0]);
    });
}
