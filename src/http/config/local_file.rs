//! Reads whole local files, no larger than allowed.

use std::fs::File;
use std::io::{self, Read as _};
use std::mem;
use std::path::Path;

use zeroize::Zeroizing;

/// Says why a file cannot be read, in plain words for the usual reasons.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the system's own words serve for other reasons"
)]
pub(super) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Reads a whole file of at most `bytes_max`. The error says why it fails, without the path.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = File::open(path).map_err(|error| describe(&error))?;
    // A buffer that grows would leave copies behind that nothing overwrites.
    let expected = file
        .metadata()
        .map_err(|error| describe(&error))?
        .len()
        .min(bytes_max);
    let room = usize::try_from(expected).unwrap_or_default();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room.saturating_add(1)));
    // One byte more than allowed distinguishes a full file from a larger one.
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| describe(&error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
        return Err(format!("larger than {bytes_max} bytes"));
    }
    Ok(bytes)
}

/// Reads a file of text as [`read_bounded`] does.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> Result<Zeroizing<String>, String> {
    let mut bytes = read_bounded(path, bytes_max)?;
    let text = String::from_utf8(mem::take(&mut *bytes)).map_err(|error| {
        drop(Zeroizing::new(error.into_bytes()));
        "holds bytes that are not text"
    })?;
    Ok(Zeroizing::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let why = read_bounded(Path::new("/dev/zero"), 64).unwrap_err();
        assert_eq!(why, "larger than 64 bytes");
    }
}
