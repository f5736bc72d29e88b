//! A manager as the snapshot's thread sees it: what of it goes into the next file.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::time::SystemTime;

use super::content::{self, KindPart};
use super::loaded::kind_of;
use super::object::SnapshotObject;
use super::text::PlainText;
use crate::clock::Clock;
use crate::manager::seeds::{KeptObject, KeptObjects};
use crate::object::ObjectKey;
use crate::sync::Arc;

/// A manager whose objects are kept.
pub(super) trait Attached: Send + Sync {
    fn kind(&self) -> String;

    /// Writes the lines of its kind, with what nobody has claimed yet. Returns what tells this
    /// state from others.
    fn write(&self, to: &mut PlainText, unclaimed: Option<&KindPart>) -> io::Result<u64>;
}

pub(super) struct AttachedManager<K: SnapshotObject> {
    pub(super) objects: Arc<dyn KeptObjects<K>>,
}

impl<K: SnapshotObject> Attached for AttachedManager<K> {
    fn kind(&self) -> String {
        kind_of::<K>()
    }

    fn write(&self, to: &mut PlainText, unclaimed: Option<&KindPart>) -> io::Result<u64> {
        use io::Write as _;
        let mut state = DefaultHasher::new();
        let mut owners = self.objects.owners();
        for (owner, keys) in unclaimed.iter().flat_map(|part| &part.owners) {
            owners.entry(owner.clone()).or_insert_with(|| keys.clone());
        }
        owners.hash(&mut state);
        content::write_owners(to, &self.kind(), &owners)?;
        let clock = &self.objects.options().reflector.clock;
        let kept = self.objects.kept();
        for KeptObject {
            key,
            object,
            contact,
        } in &kept
        {
            (key, object.uid(), object.version()).hash(&mut state);
            content::write_object(to, key, wall_time(*contact, clock))?;
            object.write_json(to)?;
            to.write_all(b"\n")?;
        }
        let is_kept = |key: &ObjectKey| kept.iter().any(|object| object.key == *key);
        let left = unclaimed.into_iter().flat_map(|part| &part.objects);
        for (key, object) in left.filter(|(key, _)| !is_kept(key)) {
            key.hash(&mut state);
            content::write_object(to, key, object.contact)?;
            to.write_all(&object.json)?;
            to.write_all(b"\n")?;
        }
        Ok(state.finish())
    }
}

fn wall_time(then: std::time::Instant, clock: &Clock) -> SystemTime {
    let age = clock.now().saturating_duration_since(then);
    let now = SystemTime::now();
    now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
}
