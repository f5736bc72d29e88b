//! The folder of one object, which changes as a whole: files in a folder beside it, a link that
//! leads there, and a link per key.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use zeroize::Zeroizing;

use super::folder::Folder;
use super::options::OwnerIds;

/// The link that leads to the files of now.
const CURRENT: &str = "..data";

type Data<'a> = BTreeMap<&'a str, &'a [u8]>;

/// Makes the object's files these. Returns whether others were there.
pub(super) fn publish(folder: &Folder, data: &Data<'_>, owner: OwnerIds) -> io::Result<bool> {
    // A link of somebody else's making leads nowhere.
    let current = folder.link(CURRENT)?.filter(|name| !name.contains('/'));
    let holds = match &current {
        Some(name) => match folder.child(name)? {
            Some(files) => holds(&files, data)?,
            None => false,
        },
        None => false,
    };
    let current = match current {
        Some(name) if holds => name,
        Some(_) | None => {
            let name = write(folder, data, owner)?;
            folder.set_link(CURRENT, &name)?;
            name
        }
    };
    // A process that was killed in between may have left any of this undone.
    for key in data.keys() {
        let target = format!("{CURRENT}/{key}");
        if folder.link(key)?.as_ref() != Some(&target) {
            folder.set_link(key, &target)?;
        }
    }
    for name in folder.names()? {
        let is_ours = name == CURRENT || name == current || data.contains_key(name.as_str());
        if !is_ours {
            folder.remove(&name)?;
        }
    }
    Ok(!holds)
}

/// Removes all of it but the folder: first what readers open.
pub(super) fn withdraw(folder: &Folder) -> io::Result<()> {
    let mut names = folder.names()?;
    names.sort_by_key(|name| name.starts_with(".."));
    names.iter().try_for_each(|name| folder.remove(name))
}

/// Whether a folder has these files and no others.
fn holds(files: &Folder, data: &Data<'_>) -> io::Result<bool> {
    let mut names = files.names()?;
    names.sort();
    if !names.iter().map(String::as_str).eq(data.keys().copied()) {
        return Ok(false);
    }
    for (key, bytes) in data {
        let Some(file) = files.file(key)? else {
            return Ok(false);
        };
        let length = bytes.len().saturating_add(1);
        let mut found = Zeroizing::new(Vec::with_capacity(length));
        let most = u64::try_from(length).unwrap_or(u64::MAX);
        file.take(most).read_to_end(&mut found)?;
        if found.as_slice() != *bytes {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes the files into a new folder, and returns its name. If that fails, the folder goes.
fn write(folder: &Folder, data: &Data<'_>, owner: OwnerIds) -> io::Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // It begins with two points, so that no key has it. A clock that stands still or goes back
    // meets the folder of another time.
    let mut number = now.unwrap_or_default().as_nanos();
    let (name, files) = loop {
        let name = format!("..{number}");
        match folder.make_new(&name, owner) {
            Ok(files) => break (name, files),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                number = number.saturating_add(1);
            }
            Err(error) => return Err(error),
        }
    };
    let written = data
        .iter()
        .try_for_each(|(key, bytes)| files.new_file(key, owner)?.write_all(bytes));
    if written.is_err() {
        drop(folder.remove(&name));
    }
    written.map(|()| name)
}
