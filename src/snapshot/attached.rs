//! A manager as the snapshot's thread sees it: what of it goes into the next file.

use std::hash::{DefaultHasher, Hash as _};
use std::io::{self, Write as _};
use std::time::SystemTime;

use super::content::{self, KindPart};
use super::object::SnapshotObject;
use super::text::PlainText;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::guard::guard;
use crate::manager::seeds::{KeptObject, KeptObjects};
use crate::sync::Arc;

/// A manager whose objects are kept.
pub(super) trait Attached: Send + Sync {
    fn kind(&self) -> &str;

    /// Writes the lines of its kind, with what nobody has claimed yet. Adds to what tells this
    /// state from others, and to the objects that are left out. Runs code of the program: under no
    /// lock.
    fn write(
        &self,
        to: &mut PlainText,
        unclaimed: KindPart,
        state: &mut DefaultHasher,
        left_out: &mut Vec<Error>,
    ) -> io::Result<()>;
}

pub(super) struct AttachedManager<K: SnapshotObject> {
    pub(super) kind: String,
    pub(super) objects: Arc<dyn KeptObjects<K>>,
}

impl<K: SnapshotObject> Attached for AttachedManager<K> {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn write(
        &self,
        to: &mut PlainText,
        unclaimed: KindPart,
        state: &mut DefaultHasher,
        left_out: &mut Vec<Error>,
    ) -> io::Result<()> {
        let mut owners = self.objects.owners();
        for (owner, keys) in unclaimed.owners {
            owners.entry(owner).or_insert(keys);
        }
        owners.hash(state);
        content::write_owners(to, &self.kind, &owners)?;
        let clock = &self.objects.options().reflector.clock;
        let mut left = unclaimed.objects;
        for kept in self.objects.kept() {
            left.remove(&kept.key);
            kept.key.hash(state);
            let begin = to.bytes.len();
            content::write_object(to, &kept.key, wall_time(kept.contact, clock))?;
            let written = write_json(&kept, to);
            // Also where the program's code does not tell.
            to.write_all(b"\n")?;
            written.as_ref().map_err(ToString::to_string).hash(state);
            if let Err(error) = written {
                to.bytes.truncate(begin);
                left_out.push(error);
            }
        }
        for (key, object) in &left {
            key.hash(state);
            content::write_object(to, key, object.contact)?;
            to.write_all(&object.json)?;
            to.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Writes an object, by the code of the program. Returns what tells this state of it from others.
fn write_json<K: SnapshotObject>(
    kept: &KeptObject<K>,
    to: &mut PlainText,
) -> Result<[String; 2], Error> {
    let port = format!("write_json of {} {}", K::resource().kind(), kept.key);
    let begin = to.bytes.len();
    let (state, written) = guard(&port, || {
        let object = &kept.object;
        let state = [object.uid(), object.version()].map(str::to_owned);
        (state, object.write_json(to))
    })?;
    let failed = |text: String| Error::new(ErrorKind::Resources, text);
    written.map_err(|error| failed(format!("{port}: {error}")).with_source(error))?;
    if to.bytes.iter().skip(begin).any(|byte| *byte == b'\n') {
        return Err(failed(format!("{port} wrote more than one line")));
    }
    Ok(state)
}

fn wall_time(then: std::time::Instant, clock: &Clock) -> SystemTime {
    let age = clock.now().saturating_duration_since(then);
    let now = SystemTime::now();
    now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
}
