//! Finds the file of a plugin's command.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Finds the file of `command`: itself if it has a slash, else the first in `search_path`.
///
/// Relative directories of the search path are passed over: what a program runs must not depend on
/// its working directory. Blocks for looks at local files.
///
/// # Errors
///
/// Why there is none.
pub(super) fn find(command: &str, search_path: &OsStr) -> Result<PathBuf, &'static str> {
    if command.contains('/') {
        let path = PathBuf::from(command);
        return match std::fs::metadata(&path) {
            Err(_) => Err("there is no such file"),
            Ok(file) if file.is_file() && is_executable(&file) => Ok(path),
            Ok(_) => Err("the file is not executable"),
        };
    }
    std::env::split_paths(search_path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(command))
        .find(|path| {
            std::fs::metadata(path).is_ok_and(|file| file.is_file() && is_executable(&file))
        })
        .ok_or("there is no such command in PATH")
}

fn is_executable(file: &std::fs::Metadata) -> bool {
    file.permissions().mode() & 0o111 != 0
}

/// Returns the command of a plugin that stands in a kubeconfig: a relative path is relative to the
/// `directory` of that.
pub(crate) fn resolve(command: &str, directory: &Path) -> String {
    if !command.contains('/') {
        return command.to_owned();
    }
    let mut path = PathBuf::new();
    for component in directory.join(command).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                path.push(component);
            }
        }
    }
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn a_name_is_found_in_absolute_directories_only() {
        assert_eq!(
            find("sh", OsStr::new("bin::.")),
            Err("there is no such command in PATH")
        );
        assert!(find("sh", OsStr::new(".:/nonexistent:/bin")).is_ok());
        assert_eq!(
            find("/nonexistent/aws", OsStr::new("")),
            Err("there is no such file")
        );
        assert_eq!(find("/", OsStr::new("")), Err("the file is not executable"));
    }
}
