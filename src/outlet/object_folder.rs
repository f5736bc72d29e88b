//! The folder of one object, which changes as a whole: a folder with the files, a link to that
//! folder, and a link per key. Anything without this layout belongs to someone else.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use rustix::fs::FileType;
use zeroize::Zeroizing;

use super::folder::{Access, Folder};
use crate::unique_name::is_unique_name;

/// The link to the present files.
const CURRENT: &str = "..data";
/// The prefix of a link's name until the link replaces another one.
const NEW_LINK: &str = "..link_new";

/// How long replaced files stay, for a reader that has opened them.
pub(super) const KEPT: Duration = Duration::from_secs(10);

type Data<'a> = BTreeMap<&'a str, &'a [u8]>;

/// A check before each file. Its error stops the work, which the next process finishes.
pub(super) type Check<'a> = &'a dyn Fn() -> io::Result<()>;

/// The parameters of a write.
#[derive(Clone, Copy)]
pub(super) struct Writing<'a> {
    pub(super) access: Access,
    /// The time of the wall clock, from 1970 on.
    pub(super) now: Duration,
    pub(super) check: Check<'a>,
}

/// How often the files are put right while another program changes them. A write takes two rounds:
/// the second one finds what the first one made.
const ROUNDS_MAX: usize = 5;

/// Fails if something else than an outlet wrote in the folder of an object.
pub(super) fn check(folder: &Folder) -> io::Result<()> {
    if is_of_outlet(folder)? {
        return Ok(());
    }
    let why = "the folder has files that no outlet wrote; move them elsewhere";
    Err(io::Error::other(why))
}

/// Publishes these files of the object. Returns whether their content changed, and the [`sum()`]
/// of the right files.
pub(super) fn publish(
    folder: &Folder,
    data: &Data<'_>,
    how: Writing<'_>,
) -> io::Result<(bool, u64)> {
    let mut changed = false;
    for _ in 0..ROUNDS_MAX {
        // In this order, a change by another program is found here, or differs from the sum later.
        let sum = sum(folder);
        let made = put_right(folder, data, how)?;
        changed |= made == Repair::Files;
        if made == Repair::Nothing {
            return Ok((changed, sum?));
        }
    }
    let why = "another program changes the files while they are written";
    Err(io::Error::other(why))
}

/// What it took to put the files of an object right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Repair {
    /// They were right.
    Nothing,
    /// Links were made, or leftovers removed.
    Links,
    Files,
}

fn put_right(folder: &Folder, data: &Data<'_>, how: Writing<'_>) -> io::Result<Repair> {
    let current = folder.link(CURRENT)?.filter(|name| is_generation(name));
    let (current, mut made) = match current {
        Some(name) if holds(folder, &name, data, how)? => (name, Repair::Nothing),
        before @ (Some(_) | None) => {
            remove_unfinished(folder, before.as_deref(), how)?;
            let name = write(folder, data, how)?;
            folder.set_link(CURRENT, &name, NEW_LINK)?;
            (name, Repair::Files)
        }
    };
    // A killed process may have left any of this undone.
    for key in data.keys() {
        (how.check)()?;
        let target = target(key);
        if folder.link(key)?.as_ref() != Some(&target) {
            folder.set_link(key, &target, NEW_LINK)?;
            made = made.max(Repair::Links);
        }
    }
    let names = folder.names()?;
    for name in &names {
        let stays = data.contains_key(name.as_str()) || is_kept(name, &names, &current, how.now);
        if !stays && is_ours(folder, name)? {
            remove(folder, name, how.check)?;
            made = made.max(Repair::Links);
        }
    }
    Ok(made)
}

/// Removes the unfinished files of a killed process. After a step back of the clock, finished ones
/// look the same: what may be one stays a while.
fn remove_unfinished(folder: &Folder, current: Option<&str>, how: Writing<'_>) -> io::Result<()> {
    let current = current.unwrap_or_default();
    let present = generation(current).unwrap_or_default();
    let names = folder.names()?;
    for name in &names {
        let is_later = generation(name).is_some_and(|made| made > present);
        if is_later && !is_kept(name, &names, current, how.now) {
            remove(folder, name, how.check)?;
        }
    }
    Ok(())
}

/// Removes the files that were replaced long enough ago. Returns whether others stay.
pub(super) fn sweep(folder: &Folder, now: Duration, check: Check<'_>) -> io::Result<bool> {
    let Some(current) = folder.link(CURRENT)? else {
        return Ok(false);
    };
    let mut others_stay = false;
    let names = folder.names()?;
    for name in names.iter().filter(|name| is_generation(name)) {
        if is_kept(name, &names, &current, now) {
            others_stay |= *name != current;
        } else {
            remove(folder, name, check)?;
        }
    }
    Ok(others_stay)
}

/// Whether it belongs to the present files, or a reader may still have it open. The next
/// generation's name says when it was made; a reader may keep the old one for [`KEPT`].
fn is_kept(name: &str, names: &[String], current: &str, now: Duration) -> bool {
    let Some(number) = generation(name) else {
        return name == CURRENT;
    };
    let later = names.iter().filter_map(|name| generation(name));
    let next = later.filter(|other| *other > number).min();
    let replaced = next.or_else(|| generation(current)).unwrap_or_default();
    name == current || now.as_nanos().abs_diff(replaced) < KEPT.as_nanos()
}

/// Hashes the folder's facts without reading files. A different hash means that a file, a link or a
/// folder was changed, replaced, added or removed.
fn sum(folder: &Folder) -> io::Result<u64> {
    let mut sum = DefaultHasher::new();
    folder.add_own_facts(&mut sum)?;
    let current = folder.link(CURRENT)?.unwrap_or_default();
    for name in BTreeSet::from_iter(folder.names()?) {
        let is_summed = !is_generation(&name) || name == current;
        if is_summed && is_ours(folder, &name)? {
            folder.add_facts(&name, &mut sum)?;
        }
    }
    if let Some(files) = folder.child(&current)? {
        for name in BTreeSet::from_iter(files.names()?) {
            files.add_facts(&name, &mut sum)?;
        }
    }
    Ok(sum.finish())
}

/// The [`sum()`], if readers find files.
pub(super) fn sum_if_there(folder: &Folder) -> io::Result<Option<u64>> {
    let current = folder.link(CURRENT)?.filter(|name| is_generation(name));
    let files = current.map(|name| folder.child(&name)).transpose()?;
    files.flatten().map(|_files| sum(folder)).transpose()
}

/// Removes everything of the layout, but not the folder. The links that readers open go first.
pub(super) fn withdraw(folder: &Folder, check: Check<'_>) -> io::Result<()> {
    let mut names = folder.names()?;
    names.sort_by_key(|name| (name != CURRENT, is_generation(name)));
    for name in names {
        if is_ours(folder, &name)? {
            remove(folder, &name, check)?;
        }
    }
    Ok(())
}

/// Removes the entry of that name. In a folder it first removes the plain files; the folder stays
/// if it contains anything else.
fn remove(folder: &Folder, name: &str, check: Check<'_>) -> io::Result<()> {
    check()?;
    if let Some(files) = folder.own_child(name)? {
        for file in files.names()? {
            check()?;
            if files.is(&file, FileType::RegularFile)? {
                files.remove(&file)?;
            }
        }
    }
    folder.remove(name)
}

/// Whether only an outlet wrote in it, or it is empty.
pub(super) fn is_of_outlet(folder: &Folder) -> io::Result<bool> {
    let names = folder.names()?;
    for name in &names {
        if is_ours(folder, name)? {
            return Ok(true);
        }
    }
    Ok(names.is_empty())
}

/// Whether it has files of an object. A killed process may have removed the link to them.
pub(super) fn has_files(folder: &Folder) -> io::Result<bool> {
    let mut has_files = folder.link(CURRENT)?.as_deref().is_some_and(is_generation);
    for name in folder.names()?.iter().filter(|name| is_generation(name)) {
        if !has_files && let Some(files) = folder.child(name)? {
            // Anything but a plain file is somebody else's, and stays.
            for file in files.names()? {
                has_files |= files.is(&file, FileType::RegularFile)?;
            }
        }
    }
    Ok(has_files)
}

/// The entries in it that no outlet made.
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

/// Whether an entry, by its name and type, belongs to the layout.
fn is_ours(folder: &Folder, name: &str) -> io::Result<bool> {
    if is_generation(name) {
        return folder.is(name, FileType::Directory);
    }
    let Some(leads_to) = folder.link(name)? else {
        return Ok(false);
    };
    Ok(match name {
        CURRENT => is_generation(&leads_to),
        // Earlier versions had no number in the name.
        NEW_LINK => true,
        _ => is_unique_name(name.as_bytes(), NEW_LINK.as_bytes()) || leads_to == target(name),
    })
}

/// Whether the name is of a folder of files.
fn is_generation(name: &str) -> bool {
    let number = name.strip_prefix("..").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// When the folder of that name was made, in nanoseconds of the wall clock.
fn generation(name: &str) -> Option<u128> {
    let number = name.strip_prefix("..").filter(|_| is_generation(name))?;
    number.parse().ok()
}

/// The target of a key's link.
fn target(key: &str) -> String {
    format!("{CURRENT}/{key}")
}

/// Whether the folder of that name has exactly these files, with these rights.
fn holds(folder: &Folder, name: &str, data: &Data<'_>, how: Writing<'_>) -> io::Result<bool> {
    let Some(files) = folder.own_child(name)? else {
        return Ok(false);
    };
    let names = BTreeSet::from_iter(files.names()?);
    if !files.is_as_made(how.access)? || !names.iter().map(String::as_str).eq(data.keys().copied())
    {
        return Ok(false);
    }
    for (key, bytes) in data {
        (how.check)()?;
        let Some(file) = files.file_as_made(key, how.access)? else {
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

/// Writes the files into a new folder, and returns its name. If that fails, removes the folder,
/// unless the check forbids that too.
fn write(folder: &Folder, data: &Data<'_>, how: Writing<'_>) -> io::Result<String> {
    let Writing { access, now, check } = how;
    // The name begins with two dots, so that no key has it. A clock that stands still or goes back
    // may meet an existing folder.
    let mut number = now.as_nanos();
    let (name, files) = loop {
        let name = format!("..{number}");
        match folder.make_new(&name, access.owner, access.folder()) {
            Ok(files) => break (name, files),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                number = number.saturating_add(1);
            }
            Err(error) => return Err(error),
        }
    };
    let written = data.iter().try_for_each(|(key, bytes)| {
        check()?;
        files.new_file(key, access)?.write_all(bytes)
    });
    if written.is_err() {
        drop(remove(folder, &name, check));
    }
    written.map(|()| name)
}
