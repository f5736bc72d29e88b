//! The configuration of a pod: the service's address out of the environment, the files of its service account.

use std::path::PathBuf;

use super::config::Config;
use super::credentials::Credentials;
use super::environment::Environment;
use super::kubeconfig::KubeconfigOptions;
use super::pem::{Pem, read_bounded};
use super::server::Server;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};

/// A namespace's name has at most 63 bytes; the file may end in a line break.
const NAMESPACE_BYTES_MAX: u64 = 1024;

/// What makes a process one that runs in a pod.
#[derive(Debug)]
pub(super) struct ServiceAccount {
    host: String,
    port: String,
    directory: PathBuf,
}

/// Looks for variables and token; the text says what is missing.
pub(super) fn find(environment: &Environment) -> Result<ServiceAccount, String> {
    let var = |name: &str| {
        environment
            .text(name)
            .ok_or_else(|| format!("{name} (not set, so this is no pod)"))
    };
    let host = var("KUBERNETES_SERVICE_HOST")?;
    let port = var("KUBERNETES_SERVICE_PORT")?;
    let directory = environment.service_account().to_owned();
    let token = directory.join("token");
    if !token.is_file() {
        return Err(format!("{} (no such file)", token.display()));
    }
    Ok(ServiceAccount {
        host,
        port,
        directory,
    })
}

impl ServiceAccount {
    /// The configuration, with those of kubectl's options that client-go applies in a pod.
    pub(super) fn config(
        &self,
        options: &KubeconfigOptions,
        environment: &Environment,
    ) -> Result<Config, Error> {
        let mut config = Config::new(self.server(options)?);
        config.source = format!("service account in {}", self.directory.display());
        config.credentials = match &options.token {
            Some(token) => Credentials::token(token)
                .map_err(|why| Error::new(ErrorKind::Config, format!("--token {why}")))?,
            None => Credentials::token_file(self.directory.join("token"), &Clock::system()),
        };
        config.tls.authorities = Some(match &options.certificate_authority {
            Some(path) => Pem::file(path, "--certificate-authority"),
            None => Pem::file(self.directory.join("ca.crt"), "service account"),
        });
        // Fails now rather than at the first handshake, as a kubeconfig that names a missing file does.
        if let Some(authorities) = &config.tls.authorities {
            authorities.read()?;
        }
        config.namespace = self.namespace(options, environment)?;
        Ok(config)
    }

    fn server(&self, options: &KubeconfigOptions) -> Result<Server, Error> {
        if let Some(url) = &options.server {
            return Server::parse(url, true)
                .map_err(|why| Error::new(ErrorKind::Config, format!("--server: {why}")));
        }
        let host = if self.host.contains(':') && !self.host.starts_with('[') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        Server::parse(&format!("https://{host}:{}", self.port), true).map_err(|why| {
            Error::new(
                ErrorKind::Config,
                format!(
                    "KUBERNETES_SERVICE_HOST {:?} and KUBERNETES_SERVICE_PORT {:?} make no server: {why}",
                    self.host, self.port
                ),
            )
        })
    }

    fn namespace(
        &self,
        options: &KubeconfigOptions,
        environment: &Environment,
    ) -> Result<String, Error> {
        if let Some(namespace) = &options.namespace {
            return Ok(namespace.clone());
        }
        if let Some(namespace) = environment.text("POD_NAMESPACE") {
            return Ok(namespace);
        }
        let path = self.directory.join("namespace");
        if !path.is_file() {
            return Ok("default".to_owned());
        }
        let told = |why: &str| Error::new(ErrorKind::Config, format!("{}: {why}", path.display()));
        let bytes = read_bounded(&path, NAMESPACE_BYTES_MAX).map_err(|why| told(&why))?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_position| told("holds bytes that are not text"))?
            .trim();
        Ok(if text.is_empty() { "default" } else { text }.to_owned())
    }
}
