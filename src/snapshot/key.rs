//! The key of a snapshot: its source, and how to read a key file.

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

/// The length of a key.
pub(super) const KEY_BYTES: usize = 32;

/// A key that stays in one place, because a value that moves leaves copies behind.
#[derive(Default)]
pub(super) struct KeyBytes(pub(super) Box<Zeroizing<[u8; KEY_BYTES]>>);

/// The maximum size of a key file: 32 bytes as base64, with an end of line.
const FILE_BYTES_MAX: u64 = 64;

/// How long the end of a snapshot waits for its key.
const WAIT_AT_THE_END: Duration = Duration::from_millis(750);

impl KeyBytes {
    /// Asks the program for the key. Blocks until it answers.
    pub(super) fn of(key: &Arc<dyn SnapshotKey>) -> Result<Self, Error> {
        let mut bytes = Self::default();
        guard_call("the key of a snapshot", || key.read(&mut bytes.0))?;
        Ok(bytes)
    }

    /// Asks for the key on a separate thread, so that a key that hangs delays a stop only by
    /// [`WAIT_AT_THE_END`].
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

/// The source of a snapshot's key: a file, a TPM, a keyring.
///
/// The snapshot asks for the key when it opens the file, and on a separate thread before each
/// write. It keeps no key in between, and overwrites the bytes after use.
pub trait SnapshotKey: Send + Sync + 'static {
    /// Writes the key to `to`: 32 secret bytes.
    ///
    /// It may block, which delays only the snapshot, and its drop by less than a second. If it
    /// panics, that write fails.
    ///
    /// # Errors
    ///
    /// The program's own. The snapshot reports it, and tries again at its next write.
    fn read(&self, to: &mut [u8; 32]) -> Result<(), Error>;
}

/// A key in a plain file: 32 bytes, or the same as base64 text. The file's mode must give rights
/// only to its owner.
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
    /// Creates the key for that file, without reading it yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

impl SnapshotKey for SnapshotKeyFile {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// `Config` names the file: it cannot be read, users other than its owner have rights to it, or
    /// it does not contain 32 bytes.
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
        let why = format!("its rights are {rights:o}, so that others can read it: use 600");
        return Err(why);
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(128));
    let limit = FILE_BYTES_MAX.saturating_add(1);
    let read = file.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() == KEY_BYTES {
        to.copy_from_slice(&bytes);
        return Ok(());
    }
    // The decoder's estimate of the length is larger.
    let mut decoded = Zeroizing::new(vec![0; 2 * KEY_BYTES]);
    if STANDARD.decode_slice(bytes.trim_ascii(), &mut decoded) == Ok(KEY_BYTES) {
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
    use crate::tests::temp_directory::TempDirectory;

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
