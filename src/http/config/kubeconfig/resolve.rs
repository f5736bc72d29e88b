//! Makes a configuration from merged kubeconfigs and options, by kubectl's rules of precedence.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::super::credentials::{Authorization, ClusterInfo, Credentials, ExecPlugin};
use super::super::config::{Config, ProxyChoice, TlsSettings};
use super::super::proxy_url::ProxyUrl;
use super::super::server_url::ServerUrl;
use super::inline_data::{path, pem};
use super::merge::{Merged, choices};
use super::options::KubeconfigOptions;
use super::{exec, impersonation};
use crate::clock::Clock;
use crate::error::Error;
use crate::http::certificates::pem::{ClientIdentity, Pem};
use crate::http::environment::Environment;
use crate::sync::{Arc, Mutex, Rank};
use crate::yaml::Section;

/// Finds the context, the user and the cluster that count, each with its name if there is one.
fn chosen<'a>(
    merged: &'a Merged,
    options: &'a KubeconfigOptions,
) -> Result<[Option<(&'a str, &'a Section)>; 3], Error> {
    let current = options.context.as_ref().or(merged.current_context.as_ref());
    let context = entry(&merged.contexts, "context", current, None)?;
    let user = entry(&merged.users, "user", options.user.as_ref(), context)?;
    let given = options.cluster.as_ref();
    let cluster = entry(&merged.clusters, "cluster", given, context);
    let cluster = match cluster {
        Err(_) if options.server.is_some() && options.cluster.is_none() => None,
        cluster => cluster?,
    };
    Ok([context, user, cluster])
}

/// Returns the files in which these stand.
pub(super) fn files(merged: &Merged, options: &KubeconfigOptions) -> Result<Vec<String>, Error> {
    let sections = chosen(merged, options)?.into_iter().flatten();
    Ok(sections.map(|(_, it)| it.file().to_string()).collect())
}

/// Makes the configuration; `None` if neither files nor options name a cluster.
pub(super) fn resolve(
    merged: &Merged,
    options: &KubeconfigOptions,
    environment: &Environment,
) -> Result<Option<Config>, Error> {
    let nothing = Section::default();
    let [context, user, cluster] = chosen(merged, options)?;
    let user = user.map_or(&nothing, |(_, user)| user);
    let cluster = cluster.map(|(_, cluster)| cluster);
    let source = match (context, cluster) {
        (Some((_, context)), None) if options.server.is_none() => {
            return Err(context.error("cluster", "missing: a context names its cluster"));
        }
        (Some((name, context)), _) => format!("context {name:?} in {}", context.file()),
        (None, Some(cluster)) => format!("kubeconfig {}", cluster.file()),
        (None, None) if options.server.is_none() => return Ok(None),
        (None, None) => String::new(),
    };
    let cluster = cluster.unwrap_or(&nothing);
    // Only the user's credentials are followed: the rest may be gone or broken by then.
    let mut tls = match tls(cluster, options, environment) {
        Err(_broken) if options.is_again => TlsSettings::default(),
        tls => tls?,
    };
    let mut config = Config::new(server(cluster, user, options, &tls)?, environment);
    if !source.is_empty() {
        config.source = source;
    }
    let namespace = match context {
        Some((_, context)) => context.text("namespace")?.map(str::to_owned),
        None => None,
    };
    if let Some(namespace) = namespace.or_else(|| environment.pod_namespace()) {
        config.namespace = namespace;
    }
    if !options.is_again {
        config.compression = !cluster.flag("disable-compression")?;
        if let Some(url) = cluster.text("proxy-url")? {
            let proxy = ProxyUrl::parse(url).map_err(|why| cluster.error("proxy-url", &why))?;
            config.proxy = ProxyChoice::Url(proxy);
        }
        apply(user, options, &mut config)?;
    }
    if config.server.https {
        tls.identity = identity(user, options, environment)?;
        if !options.is_again {
            tls.check()?;
        }
        config.tls = tls;
        config.credentials = credentials(user, options)?;
        if user.has("exec") {
            add_plugin(cluster, user, options, &mut config)?;
        }
    } else if !matches!(identity(user, options, environment), Ok(None))
        || !matches!(credentials(user, options), Ok(Credentials::None))
        || user.has("exec")
    {
        // client-go does not send them either, but logs nothing.
        let server = &config.server;
        log::warn!("{server} is not https: the user's credentials are not sent");
        config.credentials = Credentials::Withheld;
    }
    Ok(Some(config))
}

/// Adds the user's credential plugin. As with client-go, a token, a password or a certificate
/// replaces it.
fn add_plugin(
    cluster: &Section,
    user: &Section,
    options: &KubeconfigOptions,
    config: &mut Config,
) -> Result<(), Error> {
    let is_needed =
        matches!(config.credentials, Credentials::None) && config.tls.identity.is_none();
    if !is_needed {
        log::debug!(
            "{}: the plugin is not run, because there are a token, a password or a client \
             certificate",
            user.location("exec")
        );
        return Ok(());
    }
    let server = match &options.server {
        Some(server) => Some(server.as_str()),
        None => cluster.text("server")?,
    };
    let authorities = config.tls.authorities.as_ref().map(Pem::loaded);
    let cluster_info = ClusterInfo {
        server: server.unwrap_or_default().to_owned(),
        tls_server_name: config.tls.server_name.clone().map(|(name, _)| name),
        insecure_skip_verify: config.tls.insecure_skip_verify,
        authorities: Mutex::ranked(Rank::CREDENTIALS, authorities.transpose()?),
        proxy_url: cluster.text("proxy-url")?.map(str::to_owned),
        disable_compression: !config.compression,
        config: exec::extension(cluster)?,
    };
    let plugin = exec::exec_config(user, cluster_info)?;
    let environment = Arc::clone(&config.environment);
    let plugin = ExecPlugin::new(plugin, options.plugins.clone(), environment)?;
    config.credentials = Credentials::source(plugin.into_source());
    Ok(())
}

/// Finds the entry with the given name, else the one that the context names.
fn entry<'a>(
    entries: &'a BTreeMap<String, Section>,
    kind: &str,
    given: Option<&'a String>,
    context: Option<(&str, &'a Section)>,
) -> Result<Option<(&'a str, &'a Section)>, Error> {
    let (name, by) = match (given, context) {
        (Some(name), _) => (name.as_str(), String::new()),
        (None, Some((context, section))) => match section.text(kind)? {
            Some(name) => {
                let file = section.file();
                (name, format!(" (named by context {context:?} in {file})"))
            }
            None => return Ok(None),
        },
        (None, None) => return Ok(None),
    };
    match entries.get(name) {
        Some(section) => Ok(Some((name, section))),
        None => Err(Error::config(format!(
            "{kind} {name:?} does not exist{by}{}",
            choices(entries)
        ))),
    }
}

/// Applies the options that count for every configuration.
pub(crate) fn apply(
    user: &Section,
    options: &KubeconfigOptions,
    config: &mut Config,
) -> Result<(), Error> {
    config.headers = impersonation::headers(user, options)?;
    config.compression &= !options.disable_compression;
    if let Some(namespace) = &options.namespace {
        namespace.clone_into(&mut config.namespace);
    }
    Ok(())
}

/// Reads the trust in the server.
fn tls(
    cluster: &Section,
    options: &KubeconfigOptions,
    environment: &Environment,
) -> Result<TlsSettings, Error> {
    let name = cluster.text("tls-server-name")?;
    let mut tls = TlsSettings {
        authorities: pem(cluster, "certificate-authority")?,
        insecure_skip_verify: cluster.flag("insecure-skip-tls-verify")?,
        server_name: name.map(|name| {
            let field = cluster.location("tls-server-name");
            (name.to_owned(), format!("{field}: "))
        }),
        ..TlsSettings::default()
    };
    // Either option replaces both settings of the cluster, which would contradict it otherwise.
    if options.insecure_skip_tls_verify || options.certificate_authority.is_some() {
        tls.insecure_skip_verify = options.insecure_skip_tls_verify;
        let given = options.certificate_authority.as_ref();
        tls.authorities =
            given.map(|path| Pem::file(environment.at(path), "--certificate-authority"));
    }
    if options.server.is_some() || options.tls_server_name.is_some() {
        let name = options.tls_server_name.clone();
        tls.server_name = name.map(|name| (name, "--tls-server-name: ".to_owned()));
    }
    Ok(tls)
}

fn server(
    cluster: &Section,
    user: &Section,
    options: &KubeconfigOptions,
    tls: &TlsSettings,
) -> Result<ServerUrl, Error> {
    // They may be unreadable when the file is read again.
    let authorities = ["certificate-authority", "certificate-authority-data"];
    let has_authorities = authorities.map(|field| !matches!(cluster.text(field), Ok(None)));
    // client-go decides the scheme of a `host:port` like this.
    let https = has_authorities.contains(&true)
        || tls.authorities.is_some()
        || tls.insecure_skip_verify
        || options.client_certificate.is_some()
        || user.has("client-certificate")
        || user.has("client-certificate-data");
    if let Some(url) = &options.server {
        return ServerUrl::parse(url, https)
            .map_err(|why| Error::config(format!("--server: {why}")));
    }
    let Some(url) = cluster.text("server")? else {
        return Err(cluster.error("server", "missing: a cluster names its server"));
    };
    ServerUrl::parse(url, https).map_err(|why| cluster.error("server", &why))
}

/// Reads the client certificate and its key.
fn identity(
    user: &Section,
    options: &KubeconfigOptions,
    environment: &Environment,
) -> Result<Option<ClientIdentity>, Error> {
    let pem = |given: &Option<PathBuf>, field: &str| match given {
        Some(path) => Ok(Some(Pem::file(environment.at(path), format!("--{field}")))),
        None => pem(user, field),
    };
    // client-go looks at the key only where there is a certificate.
    let Some(certificate) = pem(&options.client_certificate, "client-certificate")? else {
        return Ok(None);
    };
    match pem(&options.client_key, "client-key")? {
        Some(key) => Ok(Some(ClientIdentity { certificate, key })),
        None => Err(Error::config(format!(
            "{}: a client certificate needs its key: set client-key or client-key-data (or give \
             --client-key)",
            certificate.origin()
        ))),
    }
}

/// Makes the credentials that the options name, else those of the user.
pub(crate) fn credentials(
    user: &Section,
    options: &KubeconfigOptions,
) -> Result<Credentials, Error> {
    let (token, username, password) = (&options.token, &options.username, &options.password);
    let is_pair = username.is_some() || password.is_some();
    if is_pair && token.is_some() {
        return Err(Error::config(
            "--token stands beside --username or --password: give the one or the other",
        ));
    }
    if is_pair {
        let username = username.as_deref().or(user.text("username")?);
        let password = password.as_deref().or(user.text("password")?);
        if username.is_none() {
            let why = "--password has no name beside it: add --username";
            return Err(Error::config(why));
        }
        let basic = Credentials::basic(username, password);
        return basic.map_err(|why| Error::config(format!("--username: {why}")));
    }
    if let Some(token) = token {
        return Credentials::token(token).map_err(|why| Error::config(format!("--token {why}")));
    }
    refuse_auth_provider(user)?;
    let (name, password) = (user.text("username")?, user.text("password")?);
    let token = user.text("token")?;
    if (name.is_some() || password.is_some()) && token.is_some() {
        return Err(user.error(
            "token",
            "stands beside username and password: remove the one or the other",
        ));
    }
    let token = token.map(Authorization::bearer).transpose();
    let token = token.map_err(|why| user.error("token", &why))?;
    if let Some(path) = path(user, "tokenFile")? {
        if name.is_some() {
            return Err(user.error(
                "tokenFile",
                "stands beside a username: remove the one or the other",
            ));
        }
        let credentials = Credentials::token_file(path, token, &Clock::system());
        return match credentials.authorization_at_start() {
            Ok(_) => Ok(credentials),
            Err(error) => Err(error.context(&user.location("tokenFile"))),
        };
    }
    // As in client-go, a password without a name is sent nowhere.
    if name.is_some() {
        return Credentials::basic(name, password).map_err(|why| user.error("username", &why));
    }
    Ok(token.map_or(Credentials::None, Credentials::fixed))
}

fn refuse_auth_provider(user: &Section) -> Result<(), Error> {
    if !user.has("auth-provider") {
        return Ok(());
    }
    let provider = user.child("auth-provider")?;
    let name = provider.text("name")?.unwrap_or_default();
    Err(user.error(
        "auth-provider",
        &format!(
            "the auth provider {name:?} is not supported: use a credential plugin (exec), a token \
             or a client certificate (or give --token)"
        ),
    ))
}
