//! Merged kubeconfigs and options into one configuration: kubectl's rules of what overrides what.

use super::KubeconfigOptions;
use super::impersonation;
use super::merge::{Entries, Merged};
use super::section::Section;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::http::config::{Config, Identity, TlsSettings};
use crate::http::credentials::Credentials;
use crate::http::environment::Environment;
use crate::http::pem::{self, Pem};
use crate::http::server::Server;

/// The chosen parts; a part nobody names is `None`.
struct Chosen<'a> {
    context: Option<(&'a str, &'a Section)>,
    cluster: Option<&'a Section>,
    user: Option<&'a Section>,
}

/// Resolves; `None` when neither files nor options name a cluster.
pub(super) fn resolve(
    merged: &Merged,
    options: &KubeconfigOptions,
    environment: &Environment,
) -> Result<Option<Config>, Error> {
    let chosen = choose(merged, options)?;
    let Some((server, mut tls)) = server(&chosen, options)? else {
        return Ok(None);
    };
    let source = match (&chosen.context, chosen.cluster) {
        (Some((name, context)), _) => format!("context {name:?} in {}", context.file().display()),
        (None, Some(cluster)) => format!("kubeconfig {}", cluster.file().display()),
        (None, None) => format!("server {server}"),
    };
    let mut config = Config::new(server);
    config.source = source;
    if let Some((_, context)) = chosen.context
        && let Some(namespace) = context.text("namespace")?
    {
        namespace.clone_into(&mut config.namespace);
    }
    if let Some(namespace) = &options.namespace {
        namespace.clone_into(&mut config.namespace);
    }
    if let Some(cluster) = chosen.cluster {
        config.compression = !cluster.flag("disable-compression")?;
    }
    config.compression &= !options.disable_compression;
    config.headers = impersonation::headers(chosen.user, options)?;
    if config.server.https {
        tls.identity = identity(chosen.user, options)?;
        if tls.authorities.is_none() && !tls.insecure_skip_verify {
            tls.authorities = pem::system_authorities(environment);
        }
        config.tls = tls;
        config.credentials = credentials(chosen.user, options)?;
    } else {
        warn_of_plain_http(&chosen, options, &config.server);
    }
    Ok(Some(config))
}

fn choose<'a>(merged: &'a Merged, options: &'a KubeconfigOptions) -> Result<Chosen<'a>, Error> {
    let context = options
        .context
        .as_deref()
        .or(merged.current_context.as_deref());
    let context = match context {
        None => None,
        Some(name) => Some((name, find(&merged.contexts, "context", name, "")?)),
    };
    let of_context = |field: &str| match context {
        None => Ok(None),
        Some((_, section)) => section.text(field),
    };
    let by_context = context.map_or_else(String::new, |(name, section)| {
        format!(
            " (named by context {name:?} in {})",
            section.file().display()
        )
    });
    let cluster = match (&options.cluster, of_context("cluster")?) {
        (Some(name), _) => Some(find(&merged.clusters, "cluster", name, "")?),
        (None, Some(name)) if options.server.is_none() => {
            Some(find(&merged.clusters, "cluster", name, &by_context)?)
        }
        (None, name) => name.and_then(|name| merged.clusters.get(name)),
    };
    let user = match (&options.user, of_context("user")?) {
        (Some(name), _) => Some(find(&merged.users, "user", name, "")?),
        (None, Some(name)) => Some(find(&merged.users, "user", name, &by_context)?),
        (None, None) => None,
    };
    if let (Some((_, section)), None, None) = (context, cluster, &options.server) {
        return Err(section.error("cluster", "missing: a context names its cluster"));
    }
    Ok(Chosen {
        context,
        cluster,
        user,
    })
}

fn find<'a>(entries: &'a Entries, kind: &str, name: &str, by: &str) -> Result<&'a Section, Error> {
    entries.get(name).ok_or_else(|| {
        Error::new(
            ErrorKind::Config,
            format!("{kind} {name:?} does not exist{by}{}", entries.choices()),
        )
    })
}

/// The server and how it is trusted.
fn server(
    chosen: &Chosen<'_>,
    options: &KubeconfigOptions,
) -> Result<Option<(Server, TlsSettings)>, Error> {
    let mut tls = TlsSettings::default();
    if let Some(cluster) = chosen.cluster {
        if cluster.has("proxy-url") {
            return Err(cluster.error(
                "proxy-url",
                "a proxy is not supported yet: remove the field if the server can be reached without it",
            ));
        }
        tls.authorities = cluster.pem("certificate-authority")?;
        tls.insecure_skip_verify = cluster.flag("insecure-skip-tls-verify")?;
        tls.server_name = cluster.text("tls-server-name")?.map(str::to_owned);
    }
    // Either option puts both of the cluster's settings aside: without this they would contradict each other.
    if options.insecure_skip_tls_verify || options.certificate_authority.is_some() {
        tls.insecure_skip_verify = options.insecure_skip_tls_verify;
        tls.authorities = options
            .certificate_authority
            .as_ref()
            .map(|path| Pem::file(path, "--certificate-authority"));
    }
    if options.server.is_some() || options.tls_server_name.is_some() {
        tls.server_name.clone_from(&options.tls_server_name);
    }
    tls.check()
        .map_err(|why| Error::new(ErrorKind::Config, why))?;
    if let Some(authorities) = &tls.authorities {
        authorities.read()?;
    }
    let https_by_default = tls.is_set()
        || options.client_certificate.is_some()
        || chosen.user.is_some_and(|user| {
            user.has("client-certificate") || user.has("client-certificate-data")
        });
    let server = match (&options.server, chosen.cluster) {
        (Some(url), _) => Server::parse(url, https_by_default)
            .map_err(|why| Error::new(ErrorKind::Config, format!("--server: {why}")))?,
        (None, None) => return Ok(None),
        (None, Some(cluster)) => match cluster.text("server")? {
            None => return Err(cluster.error("server", "missing: a cluster names its server")),
            Some(url) => {
                Server::parse(url, https_by_default).map_err(|why| cluster.error("server", &why))?
            }
        },
    };
    Ok(Some((server, tls)))
}

/// The client certificate and its key, both readable.
fn identity(
    user: Option<&Section>,
    options: &KubeconfigOptions,
) -> Result<Option<Identity>, Error> {
    let of_user = |field: &str| user.map_or(Ok(None), |user| user.pem(field));
    let certificate = match &options.client_certificate {
        Some(path) => Some(Pem::file(path, "--client-certificate")),
        None => of_user("client-certificate")?,
    };
    let key = match &options.client_key {
        Some(path) => Some(Pem::file(path, "--client-key")),
        None => of_user("client-key")?,
    };
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            certificate.read()?;
            key.read()?;
            Ok(Some(Identity { certificate, key }))
        }
        (Some(certificate), None) => Err(Error::new(
            ErrorKind::Config,
            format!(
                "{}: a client certificate needs its key: set client-key or client-key-data (or give --client-key)",
                certificate.origin()
            ),
        )),
        // client-go looks at the key only where there is a certificate.
        (None, _) => Ok(None),
    }
}

/// The token, or the name and the password, that stand in the options; the other half of a pair comes from the user.
pub(super) fn credentials_given(
    user: Option<&Section>,
    options: &KubeconfigOptions,
) -> Result<Option<Credentials>, Error> {
    let wrong = |why: &str| Error::new(ErrorKind::Config, why);
    let KubeconfigOptions {
        token,
        username,
        password,
        ..
    } = options;
    let pair = username.is_some() || password.is_some();
    let Some(token) = token else {
        if !pair {
            return Ok(None);
        }
        let of_user = |field: &str| user.map_or(Ok(None), |user| user.text(field));
        let (of_user_name, of_user_password) = (of_user("username")?, of_user("password")?);
        let username = username.as_deref().or(of_user_name).unwrap_or_default();
        let password = password.as_deref().or(of_user_password).unwrap_or_default();
        let basic = Credentials::basic(username, password);
        return basic
            .map(Some)
            .map_err(|why| wrong(&format!("--username: {why}")));
    };
    if pair {
        return Err(wrong(
            "--token stands beside --username or --password: give the one or the other",
        ));
    }
    let token = Credentials::token(token);
    token
        .map(Some)
        .map_err(|why| wrong(&format!("--token {why}")))
}

/// The `Authorization` header's source.
fn credentials(user: Option<&Section>, options: &KubeconfigOptions) -> Result<Credentials, Error> {
    if let Some(given) = credentials_given(user, options)? {
        return Ok(given);
    }
    let Some(user) = user else {
        return Ok(Credentials::none());
    };
    refuse_plugins(user)?;
    let (name, password) = (user.text("username")?, user.text("password")?);
    let (token, file) = (user.text("token")?, user.path("tokenFile")?);
    let has_password = name.is_some() || password.is_some();
    if has_password && token.is_some() {
        return Err(user.error(
            "token",
            "stands beside username and password: remove the one or the other",
        ));
    }
    if let Some(path) = file {
        let mut credentials = Credentials::token_file(path, &Clock::system());
        if let Some(token) = token {
            credentials = credentials
                .or_token(token)
                .map_err(|why| user.error("token", &why))?;
        }
        credentials
            .authorization_at_start()
            .map_err(|error| error.context(&user.place("tokenFile")))?;
        return Ok(credentials);
    }
    if let Some(token) = token {
        return Credentials::token(token).map_err(|why| user.error("token", &why));
    }
    if has_password {
        return Credentials::basic(name.unwrap_or_default(), password.unwrap_or_default())
            .map_err(|why| user.error("username", &why));
    }
    Ok(Credentials::none())
}

fn refuse_plugins(user: &Section) -> Result<(), Error> {
    if user.has("exec") {
        let exec = user.child("exec")?;
        let command = exec.text("command")?.unwrap_or_default();
        return Err(user.error(
            "exec",
            &format!(
                "the credential plugin {command:?} is not run, plugins are not supported yet: \
                 use a token or a client certificate, such as those of a service account (or give --token)"
            ),
        ));
    }
    if user.has("auth-provider") {
        let provider = user.child("auth-provider")?;
        let name = provider.text("name")?.unwrap_or_default();
        return Err(user.error(
            "auth-provider",
            &format!(
                "the auth provider {name:?} is not supported: \
                 use a token or a client certificate (or give --token)"
            ),
        ));
    }
    Ok(())
}

/// As client-go, a kubeconfig's credentials are not sent where anybody can read them; client-go does not say so.
fn warn_of_plain_http(chosen: &Chosen<'_>, options: &KubeconfigOptions, server: &Server) {
    const FIELDS: [&str; 8] = [
        "token",
        "tokenFile",
        "username",
        "password",
        "client-certificate",
        "client-certificate-data",
        "exec",
        "auth-provider",
    ];
    let of_user = chosen
        .user
        .is_some_and(|user| FIELDS.iter().any(|field| user.has(field)));
    let of_options = options.token.is_some()
        || options.username.is_some()
        || options.password.is_some()
        || options.client_certificate.is_some();
    if of_user || of_options {
        log::warn!("{server} is not https: the user's credentials are not sent");
    }
}
