//! A manager as the snapshot's thread sees it: its part of the next file.

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
use crate::object::ObjectKey;
use crate::sync::Arc;

/// The precision of the last contact in the file, while nothing else changes.
const CONTACT_SECONDS: u64 = 60 * 60;

/// A manager whose objects the snapshot keeps.
pub(super) trait Attached: Send + Sync {
    fn kind(&self) -> &str;

    /// Whether an owner references the object and the server has not answered about it.
    fn awaits(&self, key: &ObjectKey) -> bool;

    /// Hashes its state without reading the objects: their versions, and the hour of the last
    /// contact with the server. Runs code of the program, so no lock may be held.
    fn add_state(&self, unclaimed: &KindPart, state: &mut DefaultHasher);

    /// Writes the lines of its kind, including unclaimed objects. Adds the objects that it leaves
    /// out to `left_out`. Runs code of the program, so no lock may be held.
    fn write(
        &self,
        to: &mut PlainText,
        unclaimed: KindPart,
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

    fn awaits(&self, key: &ObjectKey) -> bool {
        let report = self.objects.inspect(key);
        report.is_some_and(|report| report.since_contact.is_none())
    }

    fn add_state(&self, unclaimed: &KindPart, state: &mut DefaultHasher) {
        self.objects.owners().hash(state);
        unclaimed.owners.hash(state);
        let clock = &self.objects.options().reflector.clock;
        let mut newest = SystemTime::UNIX_EPOCH;
        for kept in self.objects.kept() {
            newest = newest.max(wall_time(kept.contact, clock));
            let port = format!("the version of {} {}", K::resource().kind(), kept.key);
            let version = guard(port, || {
                let object = &kept.object;
                [object.uid(), object.resource_version_text()].map(str::to_owned)
            });
            (&kept.key, version.ok()).hash(state);
        }
        let newest = newest.duration_since(SystemTime::UNIX_EPOCH);
        (newest.unwrap_or_default().as_secs() / CONTACT_SECONDS).hash(state);
        unclaimed.objects.keys().for_each(|key| key.hash(state));
    }

    fn write(
        &self,
        to: &mut PlainText,
        unclaimed: KindPart,
        left_out: &mut Vec<Error>,
    ) -> io::Result<()> {
        let mut owners = self.objects.owners();
        for (owner, keys) in unclaimed.owners {
            owners.entry(owner).or_insert(keys);
        }
        content::write_owners(to, &self.kind, &owners)?;
        let clock = &self.objects.options().reflector.clock;
        let mut left = unclaimed.objects;
        for kept in self.objects.kept() {
            left.remove(&kept.key);
            let begin = to.bytes.len();
            content::write_object(to, &kept.key, wall_time(kept.contact, clock))?;
            let written = write_json(&kept, to);
            // This fails on a full file even if the program's code hid that.
            to.write_all(b"\n")?;
            if let Err(error) = written {
                to.bytes.truncate(begin);
                left_out.push(error);
            }
        }
        content::write_loaded(to, &left)
    }
}

/// Writes an object with the program's code.
fn write_json<K: SnapshotObject>(kept: &KeptObject<K>, to: &mut PlainText) -> Result<(), Error> {
    let port = format!("write_json of {} {}", K::resource().kind(), kept.key);
    let begin = to.bytes.len();
    let written = guard(&port, || kept.object.write_json(to))?;
    let failed = |text: String| Error::new(ErrorKind::Resources, text);
    written.map_err(|error| failed(format!("{port}: {error}")).with_source(error))?;
    if to.bytes.iter().skip(begin).any(|byte| *byte == b'\n') {
        return Err(failed(format!("{port} wrote more than one line")));
    }
    Ok(())
}

fn wall_time(then: std::time::Instant, clock: &Clock) -> SystemTime {
    let age = clock.now().saturating_duration_since(then);
    let now = SystemTime::now();
    now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
}
