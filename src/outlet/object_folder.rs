//! The folder of one object, which changes as a whole: files in a folder beside it, a link that
//! leads there, and a link per key. What has not this layout is somebody else's.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use zeroize::Zeroizing;

use super::folder::Folder;
use super::options::OwnerIds;
use crate::unique_name::is_unique_name;

/// The link that leads to the files of now.
const CURRENT: &str = "..data";
/// How the name of a link begins until it replaces another one.
const NEW_LINK: &str = "..link_new";

type Data<'a> = BTreeMap<&'a str, &'a [u8]>;

/// Is called before each file. Its error ends the work there: the next process finishes it.
pub(super) type Check<'a> = &'a dyn Fn() -> io::Result<()>;

/// Makes the object's files these. Returns whether others were there.
pub(super) fn publish(
    folder: &Folder,
    data: &Data<'_>,
    owner: OwnerIds,
    check: Check<'_>,
) -> io::Result<bool> {
    if !is_of_outlet(folder)? {
        let why = "the folder has files that no outlet wrote; move them elsewhere";
        return Err(io::Error::other(why));
    }
    let current = folder.link(CURRENT)?.filter(|name| is_generation(name));
    let holds = match &current {
        Some(name) => match folder.child(name)? {
            Some(files) => holds(&files, data, check)?,
            None => false,
        },
        None => false,
    };
    let current = match current {
        Some(name) if holds => name,
        Some(_) | None => {
            let name = write(folder, data, owner, check)?;
            folder.set_link(CURRENT, &name, NEW_LINK)?;
            name
        }
    };
    // A process that was killed in between may have left any of this undone.
    for key in data.keys() {
        check()?;
        let target = target(key);
        if folder.link(key)?.as_ref() != Some(&target) {
            folder.set_link(key, &target, NEW_LINK)?;
        }
    }
    for name in folder.names()? {
        let stays = name == CURRENT || name == current || data.contains_key(name.as_str());
        if !stays && is_ours(folder, &name)? {
            remove(folder, &name, check)?;
        }
    }
    Ok(!holds)
}

/// Removes all that has the layout, and leaves the folder: first what readers open.
pub(super) fn withdraw(folder: &Folder, check: Check<'_>) -> io::Result<()> {
    let mut names = folder.names()?;
    names.sort_by_key(|name| name.starts_with(".."));
    for name in names {
        if is_ours(folder, &name)? {
            remove(folder, &name, check)?;
        }
    }
    Ok(())
}

/// Removes what has that name. Of a folder it removes the plain files in it and then the folder,
/// which stays if something else is in it.
fn remove(folder: &Folder, name: &str, check: Check<'_>) -> io::Result<()> {
    check()?;
    if let Some(files) = folder.child(name)? {
        for file in files.names()? {
            check()?;
            if files.file(&file)?.is_some() {
                files.remove(&file)?;
            }
        }
    }
    folder.remove(name)
}

/// Whether an outlet wrote in it, or nobody did.
pub(super) fn is_of_outlet(folder: &Folder) -> io::Result<bool> {
    if is_whole(folder)? {
        return Ok(true);
    }
    let names = folder.names()?;
    for name in &names {
        if is_ours(folder, name)? {
            return Ok(true);
        }
    }
    Ok(names.is_empty())
}

/// Whether it has the files of an object.
pub(super) fn is_whole(folder: &Folder) -> io::Result<bool> {
    Ok(folder
        .link(CURRENT)?
        .is_some_and(|name| is_generation(&name)))
}

/// The names in it that no outlet made.
pub(super) fn strays(folder: &Folder) -> io::Result<Vec<String>> {
    let mut strays = Vec::new();
    for name in folder.names()? {
        if !is_ours(folder, &name)? {
            strays.push(name);
        } else if let Some(files) = folder.child(&name)? {
            for inner in files.names()? {
                if files.file(&inner)?.is_none() {
                    strays.push(format!("{name}/{inner}"));
                }
            }
        }
    }
    Ok(strays)
}

/// Whether the name and what has it are of the layout.
fn is_ours(folder: &Folder, name: &str) -> io::Result<bool> {
    if is_generation(name) {
        return Ok(folder.child(name)?.is_some());
    }
    let Some(leads_to) = folder.link(name)? else {
        return Ok(false);
    };
    Ok(match name {
        CURRENT => is_generation(&leads_to),
        // Earlier versions gave it no number.
        name if name == NEW_LINK => true,
        name => {
            let is_new = is_unique_name(name.as_bytes(), NEW_LINK.as_bytes());
            is_new || leads_to == target(name)
        }
    })
}

/// Whether it is the name of a folder of files.
fn is_generation(name: &str) -> bool {
    let number = name.strip_prefix("..").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Where the link of a key leads.
fn target(key: &str) -> String {
    format!("{CURRENT}/{key}")
}

/// Whether a folder has these files and no others.
fn holds(files: &Folder, data: &Data<'_>, check: Check<'_>) -> io::Result<bool> {
    let mut names = files.names()?;
    names.sort();
    if !names.iter().map(String::as_str).eq(data.keys().copied()) {
        return Ok(false);
    }
    for (key, bytes) in data {
        check()?;
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

/// Writes the files into a new folder, and returns its name. If that fails, the folder goes, unless
/// the check forbids that too.
fn write(
    folder: &Folder,
    data: &Data<'_>,
    owner: OwnerIds,
    check: Check<'_>,
) -> io::Result<String> {
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
    let written = data.iter().try_for_each(|(key, bytes)| {
        check()?;
        files.new_file(key, owner)?.write_all(bytes)
    });
    if written.is_err() {
        drop(remove(folder, &name, check));
    }
    written.map(|()| name)
}
