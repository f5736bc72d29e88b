//! Finds the file of a plugin's command.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

/// The remedy if there is no such command.
pub(super) const INSTALL: &str = "install it";

/// Why a command cannot be run, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) why: String,
    pub(super) remedy: &'static str,
}

/// Finds the file of `command`: itself if it has a slash, else the first in `search_path`.
///
/// Skips relative directories of the search path: the choice of the command must not depend on the
/// working directory. Blocks for checks of local files.
///
/// # Errors
///
/// Why no command can run, and what to do.
pub(super) fn find(command: &str, search_path: &OsStr) -> Result<PathBuf, Unfit> {
    if command.contains('/') {
        return look(PathBuf::from(command));
    }
    let mut passed = String::new();
    for directory in std::env::split_paths(search_path) {
        match look(directory.join(command)) {
            _ if !directory.is_absolute() => {}
            Ok(path) => return Ok(path),
            Err(unfit) if unfit.remedy != INSTALL && passed.is_empty() => {
                passed = format!(" ({})", unfit.why);
            }
            Err(_) => {}
        }
    }
    Err(Unfit {
        why: format!("there is no such command in PATH{passed}"),
        remedy: INSTALL,
    })
}

/// Returns `path` if it is a program.
fn look(path: PathBuf) -> Result<PathBuf, Unfit> {
    let shown = path.display();
    let (why, remedy) = match std::fs::metadata(&path) {
        Ok(file) if file.is_file() && is_executable(&path, &file) => return Ok(path),
        Ok(file) if file.is_dir() => (format!("{shown} is a directory"), "name a program in it"),
        Ok(_) => (
            format!("{shown} is not executable"),
            "allow its execution (chmod +x)",
        ),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            ("there is no such file".to_owned(), INSTALL)
        }
        Err(error) => (
            format!("{shown} cannot be looked at: {error}"),
            "let the user of this program search the directories above it",
        ),
    };
    Err(Unfit { why, remedy })
}

/// Whether the user of this program may execute the file, as Go asks.
fn is_executable(path: &Path, file: &std::fs::Metadata) -> bool {
    match accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) {
        Err(Errno::NOSYS | Errno::PERM) => file.permissions().mode() & 0o111 != 0,
        may => may.is_ok(),
    }
}

/// Returns the command of a kubeconfig's plugin. A relative path starts from `directory`, which is
/// that of the kubeconfig.
pub(crate) fn resolve(command: &str, directory: &Path) -> String {
    if !command.contains('/') {
        return command.to_owned();
    }
    let mut path = PathBuf::new();
    for component in directory.join(command).components() {
        if component == Component::ParentDir && (path.file_name().is_some() || path.has_root()) {
            path.pop();
        } else if component != Component::CurDir {
            path.push(component);
        }
    }
    // A name without a slash would be looked up in PATH.
    let path = Path::new(if path.has_root() { "" } else { "." }).join(path);
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::temp_directory::TempDirectory;

    #[test]
    fn a_command_with_a_slash_is_relative_to_the_kubeconfig() {
        let directory = Path::new("/home/u/.kube");
        for (command, expected) in [
            ("aws", "aws"),
            ("./aws", "/home/u/.kube/aws"),
            ("../bin/aws", "/home/u/bin/aws"),
            ("tools/aws", "/home/u/.kube/tools/aws"),
            ("/usr/bin/aws", "/usr/bin/aws"),
        ] {
            assert_eq!(resolve(command, directory), expected);
        }
        // Without a working directory, a kubeconfig's own path is relative.
        for (command, directory, expected) in [
            ("./aws", "", "./aws"),
            ("../aws", "", "./../aws"),
            ("../../bin/aws", "cfg", "./../bin/aws"),
            ("/../bin/aws", "cfg", "/bin/aws"),
        ] {
            assert_eq!(resolve(command, Path::new(directory)), expected);
        }
    }

    #[test]
    fn a_name_is_found_in_absolute_directories_only() {
        let why = find("sh", OsStr::new("bin::.")).unwrap_err().why;
        assert_eq!(why, "there is no such command in PATH");
        assert!(find("sh", OsStr::new(".:/nonexistent:/bin")).is_ok());
    }

    #[test]
    fn what_is_no_program_is_told_by_what_it_is() {
        let directory = TempDirectory::new("command");
        std::fs::write(directory.join("text"), "").unwrap();
        std::fs::create_dir(directory.join("folder")).unwrap();
        let told = |command: &str, search_path: &Path| {
            let found = find(command, search_path.as_os_str());
            let Unfit { why, remedy } = found.unwrap_err();
            format!("{why}: {remedy}").replace(directory.to_str().unwrap(), "DIR")
        };
        let at = |name: &str| told(directory.join(name).to_str().unwrap(), Path::new(""));
        assert_eq!(at("none"), "there is no such file: install it");
        assert_eq!(at("text/none"), "there is no such file: install it");
        assert_eq!(
            at("folder"),
            "DIR/folder is a directory: name a program in it"
        );
        assert_eq!(
            at("text"),
            "DIR/text is not executable: allow its execution (chmod +x)"
        );
        let long = at(&"n".repeat(300));
        assert!(long.contains(" cannot be looked at: "), "{long}");
        for (name, expected) in [
            ("none", ""),
            ("folder", " (DIR/folder is a directory)"),
            ("text", " (DIR/text is not executable)"),
        ] {
            let expected = format!("there is no such command in PATH{expected}: install it");
            assert_eq!(told(name, &directory), expected);
        }
    }
}
