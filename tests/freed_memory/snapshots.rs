//! The snapshot as a way in: what a file has of an object, and what is written into one.

use std::fs;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use kubecache::Error;
use kubecache::http::Client;
use kubecache::manager::{Cached, ManagerOptions, ObjectManager, Owner};
use kubecache::object::{Object, ObjectKey, Resource};
use kubecache::snapshot::{Snapshot, SnapshotKey, SnapshotObject, SnapshotOptions};
use serde_derive::Deserialize;

use super::{OUTCOMES, Outcome, Own, PATIENCE, Representation, object};
use crate::support::TempDirectory;
use kubecache::clock::Clock;

/// The outcome of the cell that runs, as its place in `OUTCOMES`: `write_json` has no other way to
/// know.
static OUTCOME: AtomicUsize = AtomicUsize::new(0);

struct Key;

impl SnapshotKey for Key {
    fn read(&self, to: &mut [u8; 32]) -> Result<(), Error> {
        to.fill(7);
        Ok(())
    }
}

/// Writes an object as the cell wants it found in the file.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
struct Crafted(Own);

impl Object for Crafted {
    fn resource() -> Resource {
        Own::resource()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn namespace(&self) -> &str {
        self.0.namespace()
    }

    fn uid(&self) -> &str {
        self.0.uid()
    }

    fn resource_version_text(&self) -> &str {
        self.0.resource_version_text()
    }
}

impl SnapshotObject for Crafted {
    fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        let outcome = OUTCOMES[OUTCOME.load(Ordering::SeqCst)];
        let text = object(outcome, false, "", "");
        let end = if outcome == Outcome::CutOff {
            text.len() * 3 / 4
        } else {
            text.len()
        };
        to.write_all(&text[..end])
    }
}

impl SnapshotObject for Own {
    /// Fails behind the values in all ways that a program's code can.
    fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        let metadata = &self.metadata;
        write!(
            to,
            r#"{{"metadata":{{"name":"{}","namespace":"{}","uid":"{}","resourceVersion":"{}"}}"#,
            metadata.name, metadata.namespace, metadata.uid, metadata.resource_version
        )?;
        to.write_all(br#","data":{"k":""#)?;
        to.write_all(self.data["k"].as_bytes())?;
        match OUTCOMES[OUTCOME.load(Ordering::SeqCst)] {
            Outcome::BadMetadata => return Err(io::Error::other("it cannot be written")),
            Outcome::BadField => panic!("it cannot be written"),
            Outcome::ForeignKind => to.write_all(b"\n")?,
            Outcome::Good | Outcome::NoName | Outcome::CutOff => {}
        }
        to.write_all(b"\"}}")
    }
}

fn manager_of<K: SnapshotObject + Clone>(client: &Client) -> ObjectManager<K> {
    ObjectManager::new(client.clone(), ManagerOptions::default()).unwrap()
}

/// A manager of a server that answers keeps the object in this snapshot: whether that is written.
fn write<K: SnapshotObject + Clone>(
    client: &Client,
    options: SnapshotOptions,
) -> Result<(), Error> {
    let (soon, key) = (
        Clock::system().after(PATIENCE),
        ObjectKey::new("shop", "db"),
    );
    let snapshot = Snapshot::open(options).unwrap();
    let manager = manager_of::<K>(client);
    snapshot.attach(&manager).unwrap();
    manager.add_reference(&Owner::new("Test", key.clone()), &key);
    drop(manager.get_by("shop", "db", soon).unwrap());
    snapshot.write_by(soon)
}

/// A manager whose server is away reads the object out of this snapshot, which is written anew at
/// the end.
fn restore<K: Representation + SnapshotObject>(
    away: &Client,
    options: SnapshotOptions,
) -> Option<bool> {
    let snapshot = Snapshot::open(options).unwrap();
    let manager = manager_of::<K>(away);
    snapshot.attach(&manager).unwrap();
    snapshot.restore(&manager);
    let read = manager.get_by("shop", "db", Clock::system().after(super::BRIEFLY));
    let read = read.ok();
    assert!(read.as_ref().is_none_or(Cached::is_stale));
    read.map(|cached| cached.stored().shows_copy())
}

/// What a reader sees of an object out of a file. Then the object itself is written.
pub(super) fn see<K: Representation + SnapshotObject>(
    outcome: Outcome,
    client: &Client,
    away: &Client,
) -> Option<bool> {
    let at = OUTCOMES.iter().position(|one| *one == outcome).unwrap();
    OUTCOME.store(at, Ordering::SeqCst);
    let directory = TempDirectory::new("freed-memory");
    let path = directory.join("snapshot");
    let options = || SnapshotOptions::new(&path, Key);
    write::<Crafted>(client, options()).unwrap();
    if outcome == Outcome::CutOff {
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() * 3 / 4]).unwrap();
        assert_eq!(restore::<K>(away, options()), None);
        fs::write(&path, whole).unwrap();
    }
    let seen = restore::<K>(away, options());
    // No more than a half of the values has room in the file.
    let room = match outcome {
        Outcome::CutOff => object(outcome, false, "", "").len() / 4,
        _ => usize::MAX / 2,
    };
    let path = directory.join("other");
    let written = write::<K>(client, SnapshotOptions::new(&path, Key).bytes_max(room));
    if matches!(outcome, Outcome::Good | Outcome::CutOff) {
        let is_good = outcome == Outcome::Good;
        assert_eq!(written.is_ok(), is_good, "{outcome:?}: {written:?}");
    }
    seen
}
