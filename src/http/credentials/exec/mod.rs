//! Exec credential plugins: commands of a kubeconfig that write credentials to standard output.

mod child;
mod command;
mod exec_credential;
mod last_words;
mod policy;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use zeroize::Zeroizing;

use self::child::{ChildFailure, END_WAIT, Ended, OUTPUT_BYTES_MAX};
pub(crate) use self::command::resolve as resolve_command;
#[cfg(feature = "testing")]
pub(crate) use self::exec_credential::plugin_answer;
pub(crate) use self::exec_credential::{ClusterInfo, ExecVersion};
use self::last_words::LastWords;
pub use self::policy::PluginPolicy;
use super::super::calls::call_context::{CallContext, NamedDeadline};
use super::super::calls::interrupt::{Interrupt, Limit};
use super::super::certificates::pem::{ClientIdentity, Pem};
use super::super::environment::Environment;
use super::authorization::Authorization;
use super::lifetime::renew_after;
use super::source::{CredentialSource, FetchReason, Fetched};
use super::status::PluginEnd;
use crate::error::{Error, ErrorKind, visible};
use crate::jobs::JobKind;
use crate::policy::PLUGIN;
use crate::sync::Arc;
use crate::sync::atomic::AtomicI32;

/// The variable that tells a plugin its task.
const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";

/// Enough for a plugin that asks a slow service of the cloud twice.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Enough for a person who types a code on another device.
const INTERACTIVE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Whether a plugin reads the program's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InteractiveMode {
    Never,
    IfAvailable,
    Always,
}

/// A plugin as the kubeconfig describes it.
pub(crate) struct ExecConfig {
    /// The place of the description, for messages: file and field.
    pub(crate) location: String,
    pub(crate) version: ExecVersion,
    /// A name, or an absolute path.
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, Zeroizing<String>)>,
    pub(crate) install_hint: Option<String>,
    pub(crate) interactive_mode: InteractiveMode,
    /// The cluster, if the plugin asks for it.
    pub(crate) cluster: Option<ClusterInfo>,
}

/// The program's options for plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginOptions {
    pub(crate) policy: PluginPolicy,
    pub(crate) timeout: Option<Duration>,
    /// Whether the program needs standard input for itself.
    pub(crate) no_stdin: bool,
}

/// A plugin that can be run.
pub(crate) struct ExecPlugin {
    name: String,
    config: ExecConfig,
    options: PluginOptions,
    /// The source of the search path and of the plugin's variables.
    environment: Arc<Environment>,
    /// The number of its killed process that the system keeps; 0 without one.
    left: AtomicI32,
}

impl ExecPlugin {
    /// Checks whether the plugin may run. Does not run it. Blocks for checks of local files.
    ///
    /// # Errors
    ///
    /// `Config`, if the options forbid the plugin. A missing plugin is an error of its run, because
    /// it may be installed later.
    pub(crate) fn new(
        config: ExecConfig,
        options: PluginOptions,
        environment: Arc<Environment>,
    ) -> Result<Self, Error> {
        let (location, command) = (&config.location, &config.command);
        let name = format!("{location}: the credential plugin {command:?}");
        let plugin = Self {
            name,
            config,
            options,
            environment,
            left: AtomicI32::default(),
        };
        let policy = &plugin.options.policy;
        let checked = policy.check();
        checked.map_err(|why| Error::config(format!("plugin_policy: {why}")))?;
        if *policy == PluginPolicy::DenyAll {
            return Err(plugin.forbidden("the program forbids plugins"));
        }
        if command::find(&plugin.config.command, plugin.search_path()).is_ok() {
            plugin.find()?;
        }
        Ok(plugin)
    }

    fn forbidden(&self, why: &str) -> Error {
        let hint = "allow it by KubeconfigOptions::plugin_policy, or give a token";
        Error::config(format!("{} may not run: {why}: {hint}", self.name))
    }

    fn failed(&self, why: &str) -> Error {
        Error::new(ErrorKind::Credentials, format!("{} {why}", self.name))
    }

    fn search_path(&self) -> &OsStr {
        self.environment.var("PATH").unwrap_or_default()
    }

    /// Finds the file that may run.
    fn find(&self) -> Result<PathBuf, Error> {
        let command = &self.config.command;
        let path = command::find(command, self.search_path()).map_err(|unfit| {
            let error = self.failed(&format!("cannot be run: {}: {}", unfit.why, unfit.remedy));
            let hint = self.config.install_hint.as_ref();
            match hint.filter(|_| unfit.remedy == command::INSTALL) {
                Some(hint) => error.with_hint(&visible(hint)),
                None => error,
            }
        })?;
        let policy = &self.options.policy;
        if policy.allows(command, &path, self.search_path()) {
            return Ok(path);
        }
        let shown = path.display();
        Err(self.forbidden(&format!("{shown} is not on the program's allowlist")))
    }

    /// Whether the plugin gets the program's standard input.
    fn is_interactive(&self) -> Result<bool, Error> {
        let is_terminal = || std::io::stdin().is_terminal();
        match self.config.interactive_mode {
            InteractiveMode::Never => Ok(false),
            InteractiveMode::IfAvailable => Ok(!self.options.no_stdin && is_terminal()),
            InteractiveMode::Always if self.options.no_stdin => Err(self.failed(
                "cannot be run: it needs standard input, which the program keeps for itself",
            )),
            InteractiveMode::Always if !is_terminal() => Err(self.failed(
                "cannot be run: it needs standard input, which is no terminal: run the program in \
                 a terminal, or give other credentials",
            )),
            InteractiveMode::Always => Ok(true),
        }
    }

    fn timeout(&self, is_interactive: bool) -> Duration {
        let usual = if is_interactive {
            INTERACTIVE_TIMEOUT
        } else {
            TIMEOUT
        };
        self.options.timeout.unwrap_or(usual)
    }

    /// Runs the plugin to its end. The policy decides after all other checks, as in client-go.
    fn run(&self, reason: &FetchReason<'_>, words: &mut LastWords) -> Result<Ended, Error> {
        let is_interactive = self.is_interactive()?;
        let path = self.find().inspect_err(|error| {
            let command = self.config.command.as_str();
            let policy = &self.options.policy;
            let is_allowed = error.kind() == ErrorKind::Credentials
                && policy.allows(command, Path::new(command), self.search_path());
            let end = if is_allowed {
                PluginEnd::NotFound
            } else {
                PluginEnd::Denied
            };
            reason.plugin_end.set(Some((1, end)));
        })?;
        let config = &self.config;
        let info =
            exec_credential::exec_info(config.version, is_interactive, config.cluster.as_ref());
        reason.plugin_end.set(Some((1, PluginEnd::Broken)));
        let (stdin, stderr) = if is_interactive {
            (Stdio::inherit(), Stdio::inherit())
        } else {
            (Stdio::null(), Stdio::piped())
        };
        let own = config.env.iter();
        let own = own.map(|(name, value)| (name, value.as_str()));
        let mut command = Command::new(path);
        command
            .arg0(&config.command)
            .args(&config.args)
            .env_clear()
            .envs(self.environment.variables())
            .envs(own)
            .env(EXEC_INFO, info)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(stderr);
        let directory = self.environment.directory();
        if let Some(directory) = directory.map_err(|why| self.failed(&why))? {
            command.current_dir(directory);
        }
        let until = NamedDeadline::NEVER.within(self.timeout(is_interactive), Limit::Credentials);
        let call = CallContext::new(reason.stop, until)?;
        let ended = child::run(&mut command, !is_interactive, &call, words, &self.left);
        words.drain();
        let ended = ended.map_err(|failure| self.broken(failure))?;
        reason.plugin_end.set(Some(match ended.status.code() {
            Some(0) => (0, PluginEnd::Success),
            // client-go's number for a process that a signal ended.
            code => (code.unwrap_or(-1), PluginEnd::ExitCode),
        }));
        Ok(ended)
    }

    fn broken(&self, failure: ChildFailure) -> Error {
        match failure {
            ChildFailure::Left(pid) => self.failed(&format!(
                "is not run again: its process {pid} was killed and has not ended: does its file \
                 system hang?"
            )),
            ChildFailure::Start(error) => self.failed(&format!(
                "cannot be started: {error}: is it a program for this machine, and the \
                 interpreter that its first line names installed?"
            )),
            ChildFailure::Interrupted(Interrupt::Stopped) => Error::stopped(&self.name),
            ChildFailure::Interrupted(interrupt @ Interrupt::Limit(_)) => {
                let message = format!(
                    "{} {interrupt} and was killed: does it wait for somebody? Run it by hand, or \
                     raise KubeconfigOptions::plugin_timeout",
                    self.name
                );
                Error::new(ErrorKind::Timeout, message)
            }
            ChildFailure::Interrupted(interrupt) => {
                self.failed(&format!("was killed: the wait for it failed: {interrupt}"))
            }
            ChildFailure::TooLarge => self.failed(&format!(
                "wrote more than {OUTPUT_BYTES_MAX} bytes to standard output and was killed: it \
                 must write one ExecCredential"
            )),
            ChildFailure::Lost(error) => self.failed(&format!(
                "ended, and the system does not say how: {error}: does the program ignore SIGCHLD?"
            )),
        }
    }

    /// Makes credentials from the answer of a plugin.
    fn fetched(&self, ended: &Ended) -> Result<Fetched, Error> {
        if !ended.status.success() {
            let end = match (ended.status.code(), ended.status.signal()) {
                (Some(code), _) => format!("failed with exit code {code}"),
                (None, Some(signal)) => format!("was ended by signal {signal}"),
                (None, None) => "failed".to_owned(),
            };
            return Err(self.failed(&format!("{end}: run it by hand to see more")));
        }
        let status = exec_credential::decode(ended.output.pending(), self.config.version);
        let status = status.map_err(|why| self.failed(&why))?;
        let authorization = status.token.map(|token| Authorization::bearer(&token));
        let authorization = authorization.transpose();
        let authorization =
            authorization.map_err(|why| self.failed(&format!("answered a token that {why}")))?;
        let pem = |text: Zeroizing<String>, field: &str| {
            let field = format!("{}: its answer's status.{field}", self.name);
            Pem::inline(text.as_bytes().to_vec(), field)
        };
        let identity = status.identity.map(|(certificate, key)| ClientIdentity {
            certificate: pem(certificate, "clientCertificateData"),
            key: pem(key, "clientKeyData"),
        });
        Ok(Fetched {
            authorization: authorization.map(Arc::new),
            identity,
            renew_after: status.valid_for.map(renew_after),
            valid_for: status.valid_for,
        })
    }

    /// Adds the end of the plugin's standard error to an error.
    fn tell(error: Error, words: &LastWords, answer: &[u8]) -> Error {
        let shown = words.shown(exec_credential::token(answer));
        match shown.filter(|_| !error.is_stopped()) {
            Some(shown) => error.with_hint(&format!("the end of its standard error: {shown}")),
            None => error,
        }
    }

    /// Runs the plugin.
    fn fetch(&self, reason: &FetchReason<'_>) -> Result<Fetched, Error> {
        let mut words = LastWords::passed_on();
        let ended = self.run(reason, &mut words);
        let ended = ended.map_err(|error| Self::tell(error, &words, &[]))?;
        let fetched = self.fetched(&ended);
        fetched.map_err(|error| Self::tell(error, &words, ended.output.pending()))
    }

    pub(crate) fn into_source(self) -> CredentialSource {
        let timeout = self.timeout(self.is_interactive().unwrap_or_default());
        CredentialSource {
            name: self.name.clone(),
            thread: "plugin",
            jobs: JobKind::EndsWithin(END_WAIT),
            row: &PLUGIN,
            run_max: timeout.saturating_add(END_WAIT),
            hang_hint: "the plugin still runs: does it wait for somebody, or does its file system \
                        hang?",
            fetch: Box::new(move |reason| self.fetch(reason)),
        }
    }
}
