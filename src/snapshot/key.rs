//! The key of a snapshot: where it comes from, and how its file is read.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossbeam_channel::{RecvTimeoutError, bounded, select};
use zeroize::Zeroizing;

use crate::error::{Error, ErrorKind};
use crate::guard::guard_call;
use crate::local_file;
use crate::sync::Arc;
use crate::worker::{StopToken, Worker};

/// The bytes of a key.
pub(super) const KEY_BYTES: usize = 32;

/// A key in one place: a value that moves leaves copies behind.
#[derive(Default)]
pub(super) struct KeyBytes(pub(super) Box<Zeroizing<[u8; KEY_BYTES]>>);

/// A key file has at most so many bytes: 32 bytes as base64, with an end of line.
const FILE_BYTES_MAX: u64 = 64;

/// So long the end of a snapshot waits for its key.
const WAIT_AT_THE_END: Duration = Duration::from_millis(750);

impl KeyBytes {
    /// Asks the program for the key. Blocks for as long as that takes.
    pub(super) fn of(key: &Arc<dyn SnapshotKey>) -> Result<Self, Error> {
        let mut bytes = Self::default();
        guard_call("the key of a snapshot", || key.read(&mut bytes.0))?;
        Ok(bytes)
    }

    /// Asks for the key on a thread of its own: a key that hangs holds up a stop for
    /// [`WAIT_AT_THE_END`] alone.
    pub(super) fn until_stopped(
        key: &Arc<dyn SnapshotKey>,
        stop: &StopToken,
    ) -> Result<Self, Error> {
        let (send, read) = bounded(1);
        let key = Arc::clone(key);
        let reader = Worker::spawn("snapshot-key", move |_stop| drop(send.send(Self::of(&key))));
        let reader = reader.map_err(|error| {
            Error::new(ErrorKind::Resources, "thread snapshot-key").with_source(error)
        })?;
        select! {
            recv(read) -> key => return key.unwrap_or_else(|_| Err(Error::stopped("its key"))),
            recv(stop.channel()) -> _ => {}
        }
        match read.recv_timeout(WAIT_AT_THE_END) {
            Ok(key) => key,
            Err(RecvTimeoutError::Disconnected) => Err(Error::stopped("its key")),
            Err(RecvTimeoutError::Timeout) => {
                reader.abandon();
                let text = format!("the key of the snapshot did not come in {WAIT_AT_THE_END:?}");
                Err(Error::new(ErrorKind::Timeout, text))
            }
        }
    }
}

/// Where the key of a snapshot comes from: a file, a TPM, a keyring.
///
/// The snapshot asks for it when it opens the file, and on a thread of its own before each write.
/// It keeps no key in between, and overwrites what it was given.
pub trait SnapshotKey: Send + Sync + 'static {
    /// Writes the key to `to`: 32 bytes that nobody else knows.
    ///
    /// It may block: that holds up the snapshot alone, and its drop for less than a second. A panic
    /// is an error of that write.
    ///
    /// # Errors
    ///
    /// The program's own; the snapshot tells it, and tries again with its next write.
    fn read(&self, to: &mut [u8; 32]) -> Result<(), Error>;
}

/// A key in a plain file: 32 bytes, or the same as base64 text. Only its owner may have rights to
/// it.
///
/// `head -c 32 /dev/urandom > FILE` makes one. A file that is replaced applies to the next write.
///
/// # Examples
///
/// ```
/// use kubecache::snapshot::{SnapshotKey as _, SnapshotKeyFile};
///
/// let read = SnapshotKeyFile::new("/nowhere/key").read(&mut [0; 32]);
/// let error = read.unwrap_err().to_string();
/// assert!(error.starts_with("the key of the snapshot, /nowhere/key: "), "{error}");
/// ```
#[derive(Clone, Debug)]
pub struct SnapshotKeyFile(PathBuf);

impl SnapshotKeyFile {
    /// The key in that file. Reads nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

impl SnapshotKey for SnapshotKeyFile {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// `Config` names the file: it cannot be read, others than its owner have rights to it, or it
    /// does not hold 32 bytes.
    fn read(&self, to: &mut [u8; 32]) -> Result<(), Error> {
        read(&self.0, to).map_err(|why| {
            let text = format!("the key of the snapshot, {}: {why}", self.0.display());
            Error::new(ErrorKind::Config, text)
        })
    }
}

fn read(path: &Path, to: &mut [u8; KEY_BYTES]) -> Result<(), String> {
    let file = local_file::open(path)?;
    let mode = file.metadata().map_err(|error| error.to_string())?.mode();
    if mode & 0o077 != 0 {
        let rights = mode & 0o777;
        return Err(format!(
            "its rights are {rights:o}, so that others can read it: use 600"
        ));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(128));
    let limit = FILE_BYTES_MAX.saturating_add(1);
    let read = file.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() == KEY_BYTES {
        to.copy_from_slice(&bytes);
        return Ok(());
    }
    // The estimate of what a text may come to is larger.
    let mut decoded = Zeroizing::new(vec![0; 2 * KEY_BYTES]);
    let length = STANDARD.decode_slice(bytes.trim_ascii(), &mut decoded);
    if length == Ok(KEY_BYTES) {
        to.copy_from_slice(decoded.get(..KEY_BYTES).unwrap_or_default());
        return Ok(());
    }
    Err(format!(
        "it has {} bytes and no key: write 32 random bytes, or their base64",
        bytes.len()
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::temp_directory::TempDirectory;

    #[test]
    fn a_key_is_32_bytes_or_their_text_and_nobody_elses() {
        let directory = TempDirectory::new("key");
        let path = directory.join("key");
        let plain: Vec<u8> = (0..32).collect();
        let text = format!("{}\n", STANDARD.encode(&plain));
        let key = SnapshotKeyFile::new(&path);
        for (bytes, mode, expected) in [
            (plain.clone(), 0o600, Ok(())),
            (text.into_bytes(), 0o400, Ok(())),
            (plain.clone(), 0o640, Err("rights are 640")),
            (plain[1..].to_vec(), 0o600, Err("has 31 bytes and no key")),
            (vec![7; 4096], 0o600, Err("has 65 bytes and no key")),
        ] {
            drop(fs::remove_file(&path));
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let mut read = [0; KEY_BYTES];
            match (key.read(&mut read), expected) {
                (Ok(()), Ok(())) => assert_eq!(read.as_slice(), plain),
                (Err(error), Err(words)) => {
                    let error = error.to_string();
                    assert!(error.contains(words), "{error}");
                    assert!(error.contains(path.to_str().unwrap()), "{error}");
                }
                (key, expected) => panic!("{key:?}, not {expected:?}"),
            }
        }
    }
}
