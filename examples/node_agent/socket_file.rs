//! A Unix socket that listens at a path: private from its first moment, and removed with its owner
//! unless the path is another's by then.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::geteuid;

/// Clients that wait to be taken.
const BACKLOG: i32 = 128;

/// Others than the owner can write.
const FOR_OTHERS: u32 = 0o022;
/// In such a folder a file is safe from all but its owner.
const STICKY: u32 = 0o1000;

/// The file of a socket.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens at the path, with mode 0600. Replaces a socket that an earlier process of this user
    /// left there. The error says why it fails, without the path.
    pub(crate) fn listen(path: &Path) -> Result<(UnixListener, Self), String> {
        let address = SocketAddrUnix::new(path).map_err(told)?;
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = fs::metadata(folder.unwrap_or(Path::new("."))).map_err(told)?;
        let is_open = folder.mode() & FOR_OTHERS != 0 && folder.mode() & STICKY == 0;
        if is_open || ![0, geteuid().as_raw()].contains(&folder.uid()) {
            return Err("others can replace what is in its folder; choose another one".to_owned());
        }
        remove_left_over(path, &address)?;
        let socket = socket().map_err(told)?;
        // The file gets the mode that the socket has.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(told)?;
        bind(&socket, &address).map_err(told)?;
        let file = Self {
            identity: identity(path).map_err(told)?,
            path: path.to_owned(),
        };
        listen(&socket, BACKLOG).map_err(told)?;
        Ok((socket.into(), file))
    }

    /// Whether clients that connect to the path still find this socket.
    pub(crate) fn is_in_place(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_in_place()
            && let Err(error) = fs::remove_file(&self.path)
        {
            let path = self.path.display();
            log::warn!("the socket {path} could not be removed: {error}");
        }
    }
}

fn told(error: impl Into<io::Error>) -> String {
    error.into().to_string()
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let about = fs::symlink_metadata(path)?;
    Ok((about.dev(), about.ino()))
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes the socket of a process that was killed, and refuses anything else.
fn remove_left_over(path: &Path, address: &SocketAddrUnix) -> Result<(), String> {
    let about = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        about => about.map_err(told)?,
    };
    let refused = |why: &dyn Display| Err(format!("{why}; remove it, or choose another path"));
    if !about.file_type().is_socket() {
        return refused(&"what is there is no socket");
    }
    if about.uid() != geteuid().as_raw() {
        return refused(&format_args!("it is a socket of user {}", about.uid()));
    }
    match connect(socket().map_err(told)?, address) {
        Err(Errno::CONNREFUSED) => {}
        Ok(()) | Err(Errno::AGAIN) => return Err("another process listens at it".to_owned()),
        Err(error) => return refused(&error),
    }
    if identity(path).map_err(told)? != (about.dev(), about.ino()) {
        return Err("another process replaced it just now".to_owned());
    }
    log::info!(
        "the socket {} was left over: it is replaced",
        path.display()
    );
    fs::remove_file(path).map_err(told)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;
    use crate::temp_directory::TempDirectory;

    fn refusal(path: &Path) -> String {
        SocketFile::listen(path).unwrap_err()
    }

    #[test]
    fn it_is_private_whatever_the_mask_and_goes_with_its_owner() {
        let directory = TempDirectory::new("socket");
        let path = directory.join("s");
        let (listener, file) = SocketFile::listen(&path).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o7777 & !0o600, 0, "{mode:o}");
        drop(UnixStream::connect(&path).unwrap());
        assert!(file.is_in_place());
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_was_left_over_is_replaced_and_one_in_use_is_not() {
        let directory = TempDirectory::new("socket");
        let path = directory.join("s");
        // One that listened would be in use while a child that another test just forked has it.
        bind(socket().unwrap(), &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let (listener, file) = SocketFile::listen(&path).unwrap();
        assert_eq!(refusal(&path), "another process listens at it");
        // Its successor's file stays.
        fs::remove_file(&path).unwrap();
        assert!(!file.is_in_place());
        let successor = SocketFile::listen(&path).unwrap();
        assert!(!file.is_in_place());
        drop((listener, file));
        assert!(successor.1.is_in_place());
    }

    #[test]
    fn anything_else_at_the_path_is_refused_and_stays() {
        let directory = TempDirectory::new("socket");
        let path = directory.join("s");
        let no_socket = "what is there is no socket; remove it, or choose another path";
        fs::write(&path, "mine").unwrap();
        assert_eq!(refusal(&path), no_socket);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert_eq!(refusal(&path), no_socket);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(refusal(&path), no_socket);
        fs::remove_dir(&path).unwrap();
        // Of another type, and in use.
        let _datagrams = UnixDatagram::bind(&path).unwrap();
        assert!(refusal(&path).contains("remove it"), "{}", refusal(&path));
        assert!(path.exists());
        assert!(refusal(&directory.join("none/s")).contains("No such file"));
        assert!(refusal(Path::new(&"s".repeat(200))).contains("too long"));
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&*directory, open).unwrap();
        assert!(refusal(&directory.join("t")).starts_with("others can replace"));
    }
}
