//! The ownership of the directory, which a marker in it names. Without a marker an outlet takes a
//! directory that is empty, or contains only files that an outlet writes.

use std::io::{self, Read as _, Write as _};

use super::folder::{Access, Folder, check_name};
use super::object_folder;
use super::options::OutletOptions;
use crate::unique_name::{is_unique_name, unique_name};
use crate::writer_lock::{WriterLock, this_process};

const MARKER: &str = ".kubecache";
/// The prefix of an unfinished marker's name.
const NEW_MARKER: &str = ".kubecache.new";
/// The node agent keeps there what it told of which files, and makes it under the second name.
const TOLD: &str = ".kubecache.told";
const NEW_TOLD: &str = ".kubecache.told-new";
/// The beginning of a marker's first line. A number follows.
const FORMAT: &str = "kubecache outlet, format ";
const NEWEST_FORMAT: u32 = 1;
/// The maximum size of a marker.
const MARKER_BYTES_MAX: u64 = 4096;
/// A new disk contains this folder.
const OF_THE_DISK: &str = "lost+found";
/// The maximum number of strays that an error names.
const STRAYS_MAX: usize = 5;
/// The depth of objects' folders in the directory.
const DEPTH: u8 = 3;

/// The directory's marker.
enum RootMarker {
    No,
    /// One of an outlet: its name, its id, and the process that wrote it.
    By([String; 3]),
    /// An invalid marker, and the reason.
    Wrongly(&'static str),
    ByNewer,
}

/// The content of the directory besides the marker.
#[derive(Default)]
struct Found {
    /// Whether it has files of an object.
    has_objects: bool,
    is_empty: bool,
    /// The first few strays.
    strays: Vec<String>,
}

/// A directory that belongs to this outlet alone.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) folder: Folder,
    /// The id in its marker.
    id: String,
    _lock: WriterLock,
}

/// A message to log once no lock is held.
pub(super) type Notice = Option<String>;

/// Claims the directory for this outlet, if it is or may become an outlet's.
pub(super) fn claim(folder: Folder, options: &OutletOptions) -> Result<(Claim, Notice), String> {
    let root = &folder;
    let told = |error: io::Error| error.to_string();
    root.check_private(options.owner).map_err(told)?;
    let lock = WriterLock::of(root).map_err(|error| format!("it cannot be locked: {error}"))?;
    let lock = lock.ok_or_else(|| {
        let Ok(RootMarker::By([_, _, holder])) = read(root) else {
            return "another process writes there: not known".to_owned();
        };
        format!("another process writes there: {holder}")
    })?;
    // The directory may have been replaced before this took the lock.
    if !root.is_at(&options.directory).map_err(told)? {
        return Err("another directory is there now; try again".to_owned());
    }
    let marked = read(root).map_err(told)?;
    let (found, adopts) = (look(root).map_err(told)?, options.adopts);
    let directory = options.directory.display();
    let strays = found.strays.join(", ");
    let (id, notice) = match marked {
        RootMarker::ByNewer => {
            return Err("its marker is of a newer program, which it is left to".to_owned());
        }
        RootMarker::By([name, id, _]) if name == options.name => {
            let notice =
                format!("{directory} has what no outlet made, and it is left alone: {strays}");
            (Some(id), (!strays.is_empty()).then_some(notice))
        }
        RootMarker::By([name, ..]) if !adopts => {
            let own = &options.name;
            let why = format!("it belongs to {name:?}, and this outlet is {own:?}");
            return Err(refused(&why));
        }
        RootMarker::Wrongly(why) if !adopts => {
            return Err(refused(&format!("its marker {MARKER} {why}")));
        }
        RootMarker::No if !adopts && !found.strays.is_empty() => {
            return Err(refused(&format!("it has what no outlet made: {strays}")));
        }
        RootMarker::No if !adopts && !found.is_empty && !found.has_objects => {
            return Err(refused("it has folders, and no files of an outlet"));
        }
        RootMarker::No if found.is_empty => (None, None),
        RootMarker::No | RootMarker::By(_) | RootMarker::Wrongly(_) => {
            let left = match &*strays {
                "" => "nothing",
                strays => strays,
            };
            let notice = format!("{directory} is adopted; what no outlet made stays there: {left}");
            (None, Some(notice))
        }
    };
    let is_marked = id.is_some();
    let id = id.unwrap_or_else(|| unique_name(&unique_name("")));
    let written = write(root, &options.name, &id);
    // If the old marker stays, only its process is outdated.
    if let (Err(error), false) = (written, is_marked) {
        return Err(format!("its marker {MARKER} cannot be written: {error}"));
    }
    let claim = Claim {
        folder,
        id,
        _lock: lock,
    };
    Ok((claim, notice))
}

/// Fails unless a claimed directory still belongs to this outlet. Writes a missing marker again.
pub(super) fn check(root: &Claim, options: &OutletOptions) -> io::Result<Notice> {
    root.folder.check_private(options.owner)?;
    match read(&root.folder)? {
        RootMarker::By([_, id, _]) if id == root.id => Ok(None),
        RootMarker::No => {
            write(&root.folder, &options.name, &root.id)?;
            let directory = options.directory.display();
            Ok(Some(format!(
                "the marker {MARKER} of {directory} was gone, and is written again"
            )))
        }
        RootMarker::By(_) | RootMarker::Wrongly(_) | RootMarker::ByNewer => Err(io::Error::other(
            format!("its marker {MARKER} is another one now; remove that, or stop"),
        )),
    }
}

/// Adds to the refusal how to use the directory anyway.
fn refused(why: &str) -> String {
    format!(
        "{why}. Name a directory of the outlet's own, or adopt this one (OutletOptions::adopt; the \
         node agent's --output-adopt): what is there then stays"
    )
}

fn read(root: &Folder) -> io::Result<RootMarker> {
    let Some(file) = root.file(MARKER)? else {
        if root.names()?.iter().any(|name| name == MARKER) {
            return Ok(RootMarker::Wrongly("is no plain file"));
        }
        return Ok(RootMarker::No);
    };
    let mut bytes = Vec::new();
    file.take(MARKER_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

fn parse(text: &str) -> RootMarker {
    let mut lines = text.lines();
    let number = lines.next().and_then(|line| line.strip_prefix(FORMAT));
    match number.and_then(|number| number.parse::<u32>().ok()) {
        None | Some(0) => return RootMarker::Wrongly("is no outlet's"),
        Some(number) if number > NEWEST_FORMAT => return RootMarker::ByNewer,
        Some(_) => {}
    }
    let fields = ["name: ", "id: ", "process: "]
        .map(|field| Some(lines.next()?.strip_prefix(field)?.to_owned()));
    match fields {
        [Some(name), Some(id), Some(process)] if text.ends_with('\n') => {
            RootMarker::By([name, id, process])
        }
        _ => RootMarker::Wrongly("is cut off"),
    }
}

/// Writes a marker that is whole, even if this process is killed.
fn write(root: &Folder, name: &str, id: &str) -> io::Result<()> {
    // A killed process may have left one.
    for left in root.names()? {
        if is_new_marker(&left) && root.file(&left)?.is_some() {
            root.remove(&left)?;
        }
    }
    let process = this_process();
    let text = format!("{FORMAT}{NEWEST_FORMAT}\nname: {name}\nid: {id}\nprocess: {process}\n");
    let new = unique_name(NEW_MARKER);
    let mut file = root.new_file(&new, Access::of_owner(None))?;
    let written = file.write_all(text.as_bytes());
    if let Err(error) = written.and_then(|()| file.sync_all()) {
        drop(root.remove(&new));
        return Err(error);
    }
    root.rename(&new, MARKER)
}

/// Whether the name is of an unfinished marker.
fn is_new_marker(name: &str) -> bool {
    is_unique_name(name.as_bytes(), NEW_MARKER.as_bytes())
}

/// Walks through the directory.
fn look(root: &Folder) -> io::Result<Found> {
    let mut found = Found::default();
    let known = [MARKER, OF_THE_DISK, TOLD, NEW_TOLD];
    let mut names = root.names()?;
    names.retain(|name| !known.contains(&name.as_str()) && !is_new_marker(name));
    found.is_empty = names.is_empty();
    look_at(root, names, "", DEPTH, &mut found);
    Ok(found)
}

fn look_at(folder: &Folder, names: Vec<String>, path: &str, depth: u8, found: &mut Found) {
    for name in names {
        if found.strays.len() >= STRAYS_MAX {
            return;
        }
        let path = format!("{path}{name}");
        let mut look_into = || -> io::Result<bool> {
            let Some(child) = folder.child(&name)? else {
                return Ok(false);
            };
            if depth > 1 {
                let (names, path) = (child.names()?, format!("{path}/"));
                look_at(&child, names, &path, depth.saturating_sub(1), found);
            } else {
                found.has_objects |= object_folder::has_files(&child)?;
                let strays = object_folder::strays(&child)?;
                let strays = strays.iter().map(|stray| format!("{path}/{stray}"));
                found.strays.extend(strays.take(STRAYS_MAX));
            }
            Ok(check_name(&name).is_ok())
        };
        match look_into() {
            Ok(true) => {}
            Ok(false) => found.strays.push(path),
            Err(error) => found.strays.push(format!("{path} ({error})")),
        }
    }
}

/// Whether a folder has nothing but files of objects of one namespace.
pub(super) fn is_namespace(folder: &Folder) -> io::Result<bool> {
    has_only_objects(folder, DEPTH.saturating_sub(1))
}

/// The same for one kind.
pub(super) fn is_kind(folder: &Folder) -> io::Result<bool> {
    has_only_objects(folder, DEPTH.saturating_sub(2))
}

fn has_only_objects(folder: &Folder, depth: u8) -> io::Result<bool> {
    let mut found = Found::default();
    look_at(folder, folder.names()?, "", depth, &mut found);
    Ok(found.has_objects && found.strays.is_empty())
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;
