//! Kubeconfig files as kubectl reads them: found, merged, and resolved into one configuration.

mod exec;
mod impersonation;
mod merge;
mod options;
mod resolve;
mod scalar;
mod section;
#[cfg(test)]
mod tests;
#[cfg(feature = "testing")]
mod values;
mod yaml;

use std::mem;
use std::path::PathBuf;

use self::merge::Merged;
pub use self::options::KubeconfigOptions;
pub(super) use self::resolve::{apply, credentials};
pub(super) use self::section::Section;
#[cfg(feature = "testing")]
pub(crate) use self::values::yaml_values;
pub(crate) use self::yaml::{Node, yaml_document};
use super::super::credentials::{Credentials, KubeconfigUser};
use super::config::Config;
use super::environment::Environment;
use super::local_file::{read_bounded, read_regular};
use super::pem::ClientIdentity;
use crate::error::Error;
use crate::sync::Arc;

/// Reads and resolves the files that options and environment name. The inner error names these
/// files, if none of them names a cluster.
pub(super) fn load(
    options: &KubeconfigOptions,
    environment: &Environment,
) -> Result<Result<Config, String>, Error> {
    let is_named = !options.paths.is_empty();
    let (paths, source) = if is_named {
        let paths = options.paths.iter().map(|path| environment.at(path));
        (paths.collect(), "")
    } else {
        usual_paths(environment)
    };
    let mut merged = Merged::default();
    let (mut files, mut looked_at) = (Vec::new(), Vec::new());
    for path in &paths {
        let is_there = merged.add_file(path, read_bounded)?;
        files.push((path.clone(), is_there));
        let found = if is_there {
            "has no current-context"
        } else if is_named {
            let message = format!("kubeconfig {}: no such file", path.display());
            return Err(Error::config(message));
        } else {
            "no such file"
        };
        looked_at.push(format!("{} ({found})", path.display()));
    }
    if let Some((mut config, same)) = resolve::resolve(&merged, options, environment)? {
        if may_be_read_again(&files, options) {
            read_again_later(&mut config, files, same)?;
        }
        return Ok(Ok(config));
    }
    if is_named {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let (paths, choices) = (paths.join(", "), merge::choices(&merged.contexts));
        return Err(Error::config(format!(
            "kubeconfig {paths}: has no current-context: choose a context{choices}"
        )));
    }
    Ok(Err(format!("{source}{}", looked_at.join(", "))))
}

/// Whether the files can be read more than once, and say as whom the client asks.
fn may_be_read_again(files: &[(PathBuf, bool)], options: &KubeconfigOptions) -> bool {
    let KubeconfigOptions {
        token,
        username,
        password,
        ..
    } = options;
    let is_plain = |path: &PathBuf| {
        // A descriptor of the process is another file tomorrow.
        let is_descriptor = ["/proc", "/dev/fd", "/dev/stdin"]
            .iter()
            .any(|at| path.starts_with(at));
        !is_descriptor && path.is_file()
    };
    let mut there = files.iter().filter(|(_, is_there)| *is_there);
    let has_files = there.clone().next().is_some();
    let is_given = token.is_some() || username.is_some() || password.is_some();
    has_files && !is_given && there.all(|(path, _)| is_plain(path))
}

/// Lets the clients of `config` read the files again after the server has rejected its credentials.
/// `same` chooses what was chosen in them. `files` are all files, and whether each was there.
fn read_again_later(
    config: &mut Config,
    files: Vec<(PathBuf, bool)>,
    same: KubeconfigOptions,
) -> Result<(), Error> {
    if !config.server.https {
        return Ok(());
    }
    let (environment, server) = (Arc::clone(&config.environment), config.server.clone());
    let read_again = move || {
        let mut merged = Merged::default();
        for (path, was_there) in &files {
            if !merged.add_file(path, read_regular)? && *was_there {
                let message = format!("kubeconfig {}: no such file", path.display());
                return Err(Error::config(message));
            }
        }
        let resolved = resolve::resolve(&merged, &same, &environment)?;
        let (config, _) = resolved.ok_or_else(|| Error::config("no cluster is named"))?;
        if config.server != server {
            return Err(Error::config(format!(
                "{} names the server {} now: start the program again to follow it",
                config.source, config.server
            )));
        }
        Ok(KubeconfigUser {
            credentials: config.credentials,
            identity: config.tls.identity,
        })
    };
    let identity = config.tls.identity.as_ref().map(ClientIdentity::loaded);
    let user = KubeconfigUser {
        credentials: mem::replace(&mut config.credentials, Credentials::None),
        identity: identity.transpose()?,
    };
    config.credentials = Credentials::kubeconfig(&config.source, user, Box::new(read_again));
    Ok(())
}

/// Returns the files that `KUBECONFIG` lists, else the default file, and a message's words before
/// them.
fn usual_paths(environment: &Environment) -> (Vec<PathBuf>, &'static str) {
    if let Some(list) = environment.var("KUBECONFIG") {
        let mut paths = Vec::new();
        for path in std::env::split_paths(list) {
            let absolute = environment.at(&path);
            if !path.as_os_str().is_empty() && !paths.contains(&absolute) {
                paths.push(absolute);
            }
        }
        return (paths, "KUBECONFIG: ");
    }
    match environment.var("HOME") {
        Some(home) => (
            vec![environment.at(home).join(".kube/config")],
            "KUBECONFIG (not set); ",
        ),
        None => (
            Vec::new(),
            "KUBECONFIG (not set); ~/.kube/config (HOME is not set)",
        ),
    }
}
