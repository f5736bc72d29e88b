//! Kubeconfig files as kubectl reads them: found, merged, and resolved into one configuration.

mod exec;
mod impersonation;
mod inline_data;
mod merge;
mod options;
mod resolve;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use self::merge::Merged;
pub use self::options::KubeconfigOptions;
pub(super) use self::resolve::{apply, credentials};
use super::super::certificates::pem::ClientIdentity;
use super::super::credentials::{Credentials, Fetched};
use super::super::environment::Environment;
use super::config::Config;
use crate::clock::Clock;
use crate::error::Error;
use crate::sync::Arc;

/// Reads and resolves the files that options and environment name. The inner error names these
/// files, if none of them names a cluster.
///
/// Clients of the configuration read the files again once the server rejects the user's credentials
/// in them.
pub(super) fn load(
    options: &KubeconfigOptions,
    environment: &Environment,
) -> Result<Result<Config, String>, Error> {
    Ok(match read(options, environment)? {
        Ok((config, same)) => Ok(renewed(config, same)?),
        Err(missing) => Err(missing),
    })
}

/// Returns the user's credentials that the files themselves hold; `None` if there are none.
fn embedded(config: &Config) -> Result<Option<Fetched>, Error> {
    let authorization = match &config.credentials {
        Credentials::None => None,
        Credentials::Fixed(fixed) => fixed.authorization.clone(),
        Credentials::Renewed(_) | Credentials::Withheld => return Ok(None),
    };
    let identity = config.tls.identity.as_ref().map(ClientIdentity::loaded);
    let user = Fetched {
        authorization,
        identity: identity.transpose()?,
        renew_after: None,
        valid_for: None,
    };
    Ok((user.authorization.is_some() || user.identity.is_some()).then_some(user))
}

/// Makes clients of `config` read its files again. `same` chooses the same context in them.
fn renewed(mut config: Config, same: KubeconfigOptions) -> Result<Config, Error> {
    let is_given = same.token.is_some() || same.username.is_some() || same.password.is_some();
    // A pipe can be read once only.
    let has_files = !same.paths.is_empty() && same.paths.iter().all(|path| path.is_file());
    let Some(user) = embedded(&config)?.filter(|_| has_files && !is_given) else {
        return Ok(config);
    };
    let (server, environment) = (config.server.clone(), Arc::clone(&config.environment));
    let again = move || {
        let (config, _) = read(&same, &environment)?.map_err(Error::config)?;
        let refused = |why: &str| {
            let source = &config.source;
            let hint = "start the program again to follow that";
            Error::config(format!("{source} {why}: {hint}"))
        };
        if config.server != server {
            return Err(refused(&format!("names the server {} now", config.server)));
        }
        let none = "has no token, password or client certificate for its user any more";
        embedded(&config)?.ok_or_else(|| refused(none))
    };
    let (source, clock) = (&config.source, Clock::system());
    config.credentials = Credentials::kubeconfig(source, user, again, &clock);
    Ok(config)
}

/// Reads and resolves the files as [`load`] does. Also returns the options that repeat this.
fn read(
    options: &KubeconfigOptions,
    environment: &Environment,
) -> Result<Result<(Config, KubeconfigOptions), String>, Error> {
    let is_named = !options.paths.is_empty();
    let (paths, source) = if is_named {
        let paths = options.paths.iter().map(|path| environment.at(path));
        (paths.collect(), "")
    } else {
        usual_paths(environment)
    };
    let mut merged = Merged::default();
    let (mut looked_at, mut same) = (Vec::new(), options.clone());
    same.is_again = true;
    same.paths.clear();
    for path in &paths {
        let found = if merged.add_file(path)? {
            same.paths.push(path.clone());
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
        if !is_named {
            // The others may go: such a list may name files that are missing.
            let needed = resolve::files(&merged, options)?;
            same.paths
                .retain(|path| needed.contains(&path.display().to_string()));
        }
        same.context = same.context.or(merged.current_context);
        return Ok(Ok((config, same)));
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

/// Reads one text as a file would be, for the fuzzer.
#[cfg(feature = "testing")]
pub(crate) fn read_text(text: &str) -> Result<Option<Config>, Error> {
    let mut merged = Merged::default();
    merged.add_text(std::path::Path::new("/config"), text)?;
    let environment = Environment::default();
    resolve::resolve(&merged, &KubeconfigOptions::default(), &environment)
}

/// Returns the files that `KUBECONFIG` lists, else the default file, and the words before them in a
/// message.
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
