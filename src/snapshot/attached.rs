//! A manager as the snapshot's thread sees it: what of it goes into the next file.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::time::SystemTime;

use super::content::{self, KindPart};
use super::object::SnapshotObject;
use super::text::PlainText;
use crate::clock::Clock;
use crate::guard::guard;
use crate::manager::seeds::{KeptObject, KeptObjects};
use crate::sync::Arc;

/// A manager whose objects are kept.
pub(super) trait Attached: Send + Sync {
    fn kind(&self) -> &str;

    /// Writes the lines of its kind, with what nobody has claimed yet. Returns what tells this
    /// state from others. Runs code of the program: under no lock.
    fn write(&self, to: &mut PlainText, unclaimed: KindPart) -> io::Result<u64>;
}

pub(super) struct AttachedManager<K: SnapshotObject> {
    pub(super) kind: String,
    pub(super) objects: Arc<dyn KeptObjects<K>>,
}

impl<K: SnapshotObject> Attached for AttachedManager<K> {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn write(&self, to: &mut PlainText, unclaimed: KindPart) -> io::Result<u64> {
        let mut state = DefaultHasher::new();
        let mut owners = self.objects.owners();
        for (owner, keys) in unclaimed.owners {
            owners.entry(owner).or_insert(keys);
        }
        owners.hash(&mut state);
        content::write_owners(to, &self.kind, &owners)?;
        let clock = &self.objects.options().reflector.clock;
        let mut left = unclaimed.objects;
        for kept in self.objects.kept() {
            left.remove(&kept.key);
            (&kept.key, kept.object.uid(), kept.object.version()).hash(&mut state);
            content::write_object(to, &kept.key, wall_time(kept.contact, clock))?;
            write_line(&kept, to)?;
        }
        for (key, object) in &left {
            key.hash(&mut state);
            content::write_object(to, key, object.contact)?;
            to.write_all(&object.json)?;
            to.write_all(b"\n")?;
        }
        Ok(state.finish())
    }
}

/// Writes the line of an object, by the code of the program.
fn write_line<K: SnapshotObject>(kept: &KeptObject<K>, to: &mut PlainText) -> io::Result<()> {
    let port = format!("write_json of {} {}", K::resource().kind(), kept.key);
    let begin = to.bytes.len();
    let written = guard(&port, || kept.object.write_json(to)).map_err(io::Error::other)?;
    written.map_err(|error| io::Error::new(error.kind(), format!("{port}: {error}")))?;
    let line = to.bytes.get(begin..).unwrap_or_default();
    if line.contains(&b'\n') {
        return Err(io::Error::other(format!("{port} wrote more than one line")));
    }
    to.write_all(b"\n")
}

fn wall_time(then: std::time::Instant, clock: &Clock) -> SystemTime {
    let age = clock.now().saturating_duration_since(then);
    let now = SystemTime::now();
    now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
}
