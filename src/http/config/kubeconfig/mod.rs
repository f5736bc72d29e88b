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

use std::path::PathBuf;

use self::merge::Merged;
pub use self::options::KubeconfigOptions;
pub(super) use self::resolve::{apply, credentials};
pub(super) use self::section::Section;
#[cfg(feature = "testing")]
pub(crate) use self::values::yaml_values;
pub(crate) use self::yaml::{Node, yaml_document};
use super::config::Config;
use super::environment::Environment;
use crate::error::Error;

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
    let mut looked_at = Vec::new();
    for path in &paths {
        let found = if merged.add_file(path)? {
            "has no current-context"
        } else if is_named {
            let message = format!("kubeconfig {}: no such file", path.display());
            return Err(Error::config(message));
        } else {
            "no such file"
        };
        looked_at.push(format!("{} ({found})", path.display()));
    }
    if let Some(config) = resolve::resolve(&merged, options, environment)? {
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
