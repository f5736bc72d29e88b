//! The numbers of users and groups by their names, out of the machine's own files.

use std::path::Path;

use kubecache::local_file::read_text;

pub(crate) const PASSWD: &str = "/etc/passwd";
pub(crate) const GROUP: &str = "/etc/group";

/// More than a machine with its own users has.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The number that a text is, or that a user or group of this name has in the file.
pub(crate) fn id(file: &str, name: &str) -> Result<u32, String> {
    // To the system, the highest number means that the owner stays as it is.
    let number = |text: &str| text.parse().ok().filter(|number| *number < u32::MAX);
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(name).ok_or_else(|| format!("{name:?} is no number that a system gives"));
    }
    let text = read_text(Path::new(file), FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1).and_then(number))
    });
    line.flatten()
        .ok_or_else(|| format!("{file} has no {name:?}; a number is possible too"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_a_number() {
        assert_eq!(id(PASSWD, "root"), Ok(0));
        assert_eq!(id(GROUP, "root"), Ok(0));
        assert_eq!(id("/nowhere", "1000"), Ok(1000));
        assert!(
            id(PASSWD, "no:one")
                .unwrap_err()
                .starts_with("/etc/passwd has no ")
        );
        assert!(id(PASSWD, "4294967295").is_err());
        assert!(id(PASSWD, "99999999999").is_err());
        assert!(id("/nowhere", "alice").unwrap_err().contains("/nowhere"));
    }
}
