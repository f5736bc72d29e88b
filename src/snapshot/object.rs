//! Writes objects into a snapshot: as JSON, without copies of secret values.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use zeroize::Zeroizing;

use crate::object::Object;

/// The number of bytes of a value that are encoded at a time: a multiple of three, so that the
/// pieces make one text.
const PIECE: usize = 3 * 1024;

/// An object that a [`Snapshot`](super::Snapshot) can hold.
///
/// A program implements this for its own kinds, usually with `serde_json::to_writer`.
pub trait SnapshotObject: Object {
    /// Writes the object as the API's JSON, on one line. `to` overwrites its bytes after use; the
    /// implementation must do so with its own copies.
    ///
    /// The snapshot's thread calls it, without a lock. It may block, which delays only the
    /// snapshot. After a panic, a second line or an error, the file leaves the object out.
    ///
    /// # Errors
    ///
    /// The errors of `to`: the snapshot is full, and is not written. Any other error concerns only
    /// this object.
    fn write_json(&self, to: &mut dyn Write) -> io::Result<()>;
}

impl SnapshotObject for ConfigMap {
    fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(to, self)?)
    }
}

impl SnapshotObject for Secret {
    /// It copies nothing, because annotations may contain values too. It encodes values piece by
    /// piece, because the JSON library would copy each.
    fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(br#"{"apiVersion":"v1","kind":"Secret""#)?;
        if let Some(immutable) = self.immutable {
            write!(to, r#","immutable":{immutable}"#)?;
        }
        to.write_all(br#","metadata":"#)?;
        serde_json::to_writer(&mut *to, &self.metadata)?;
        if let Some(type_) = &self.type_ {
            to.write_all(br#","type":"#)?;
            serde_json::to_writer(&mut *to, type_)?;
        }
        to.write_all(br#","data":{"#)?;
        let mut between: &[u8] = b"";
        for (key, value) in self.data.iter().flatten() {
            to.write_all(between)?;
            between = b",";
            serde_json::to_writer(&mut *to, key)?;
            to.write_all(b":\"")?;
            let mut text = Zeroizing::new([0; PIECE / 3 * 4]);
            for piece in value.0.chunks(PIECE) {
                let length = STANDARD.encode_slice(piece, &mut *text);
                let length = length.map_err(io::Error::other)?;
                to.write_all(text.get(..length).unwrap_or_default())?;
            }
            to.write_all(b"\"")?;
        }
        to.write_all(b"}}")
    }
}
