//! The policy of a program for credential plugins.

use std::ffi::OsStr;
use std::path::Path;

use super::command::find;

/// Which credential plugins of a kubeconfig may run, as in client-go's `PluginPolicy`.
///
/// Pass it to
/// [`KubeconfigOptions::plugin_policy`](super::super::super::KubeconfigOptions::plugin_policy).
///
/// # Examples
///
/// ```
/// use kubecache::http::{KubeconfigOptions, PluginPolicy};
///
/// let allowed = PluginPolicy::Allowlist(vec!["aws".into(), "/usr/bin/kubelogin".into()]);
/// let options = KubeconfigOptions::default().plugin_policy(allowed);
/// # drop(options);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PluginPolicy {
    /// Any plugin may run. This is the default, as in client-go.
    #[default]
    AllowAll,
    /// No plugin may run. A kubeconfig whose user has one is refused.
    DenyAll,
    /// Only these commands may run: names, which are looked up in `PATH`, or absolute paths.
    ///
    /// A plugin may run if it is the same file as an entry's. An empty list is refused.
    Allowlist(Vec<String>),
}

impl PluginPolicy {
    /// # Errors
    ///
    /// Why the policy makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self::Allowlist(entries) = self else {
            return Ok(());
        };
        if entries.is_empty() {
            return Err("the allowlist is empty: use PluginPolicy::DenyAll".to_owned());
        }
        match entries.iter().find(|entry| !is_normal(entry)) {
            Some(entry) => Err(format!(
                "the entry {entry:?} of the allowlist is neither a name nor a normal path: write \
                 it without `.`, `..` and `//`"
            )),
            None => Ok(()),
        }
    }

    /// Whether `command`, which was found at `path`, may run.
    pub(super) fn allows(&self, command: &str, path: &Path, search_path: &OsStr) -> bool {
        match self {
            Self::AllowAll => true,
            Self::DenyAll => false,
            Self::Allowlist(entries) => entries.iter().any(|entry| {
                let is_named = entry == command || Path::new(entry) == path;
                is_named || find(entry, search_path).is_ok_and(|found| found == path)
            }),
        }
    }
}

fn is_normal(entry: &str) -> bool {
    let mut segments = entry.strip_prefix('/').unwrap_or(entry).split('/');
    segments.all(|segment| !matches!(segment, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowlist_that_cannot_be_meant_is_refused() {
        let list = |entries: &[&str]| {
            let entries = entries.iter().map(|entry| (*entry).to_owned());
            PluginPolicy::Allowlist(entries.collect()).check()
        };
        assert!(list(&["aws", "/usr/bin/aws", "tools/aws"]).is_ok());
        assert!(list(&[]).unwrap_err().contains("DenyAll"));
        for entry in ["", "/", "./aws", "/usr//aws", "/usr/../aws", "aws/"] {
            assert!(list(&["aws", entry]).is_err(), "{entry}");
        }
    }

    #[test]
    fn a_plugin_is_allowed_by_name_by_path_and_by_what_a_name_is_found_as() {
        let list = |entry: &str| PluginPolicy::Allowlist(vec![entry.to_owned()]);
        let search_path = OsStr::new("/bin:/usr/bin");
        let sh = find("sh", search_path).unwrap();
        let path = sh.to_str().unwrap();
        for (policy, command, expected) in [
            (PluginPolicy::AllowAll, "sh", true),
            (PluginPolicy::DenyAll, "sh", false),
            (list("sh"), "sh", true),
            (list(path), "sh", true),
            (list("sh"), path, true),
            (list("/elsewhere/sh"), "sh", false),
            (list("cat"), "sh", false),
        ] {
            assert_eq!(
                policy.allows(command, &sh, search_path),
                expected,
                "{policy:?} {command}"
            );
        }
    }
}
