//! The command line: kubectl's flags for the connection, and the agent's own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubecache::Error;
use kubecache::http::KubeconfigOptions;
use kubecache::manager::{ChangeDetection, WatchScope};

use crate::agent_flags::PROGRAM;
use crate::bind::BindAddress;
use crate::credentials::CredentialOptions;
use crate::declaration::{Declaration, Entry};
use crate::files::FileOptions;
use crate::flags::Parser;
use crate::hook::HookOptions;
use crate::kubelet::KubeletOptions;
use crate::layout::Rules;
use crate::log_format::LogFormat;
use crate::teller::{self, Tells};
use crate::wanted::{Sources, Wanted};
use crate::watched_file::{Stamp, stamp};
use crate::{flags, metrics, references, snapshot, usage};

/// How long the objects may take with `--once`, and the first contact with the server without it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long a run of `--exec-on-change` may take.
const EXEC_TIMEOUT: Duration = Duration::from_secs(30);

/// Shorter than systemd waits for a service to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a kubelet syncs its pods, and so reads their objects.
const SYNC_FREQUENCY: Duration = Duration::from_secs(60);

/// Below this the agent would do nothing but read.
const SYNC_FREQUENCY_LEAST: Duration = Duration::from_secs(1);

/// Below this a kubelet has no news.
const KUBELET_INTERVAL_LEAST: Duration = Duration::from_secs(1);

/// Below this a healthy server would be asked anew all the time.
const IDLE_LIMIT_LEAST: Duration = Duration::from_secs(1);

/// So many objects of a namespace are watched by name, unless the flag has another number.
const WATCHED_BY_NAME_MAX: usize = 20;

/// The recorded story is over after a quarter of a minute.
const DEMO_SYNC_FREQUENCY: Duration = Duration::from_secs(2);

/// The story was recorded with a pause between its phases that nobody wants to sit through.
const DEMO_SPEED: f64 = 6.0;

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Box<Options>),
    /// A text instead.
    Print(String),
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Table,
    Wide,
    Name,
    Json,
    Yaml,
}

impl Output {
    const ALL: [(&'static str, Self); 5] = [
        ("table", Self::Table),
        ("wide", Self::Wide),
        ("name", Self::Name),
        ("json", Self::Json),
        ("yaml", Self::Yaml),
    ];

    /// Whether a person reads it, and no program.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    fn parse(word: &str) -> Result<Self, String> {
        let mut all = Self::ALL.iter();
        let found = all.find(|(name, _)| *name == word);
        found.map(|(_, output)| *output).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("--output {word:?}: write one of {names}")
        })
    }
}

/// The files of `--snapshot`.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFiles {
    pub(crate) snapshot: PathBuf,
    pub(crate) key: PathBuf,
}

/// The flags of a run.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) connection: KubeconfigOptions,
    /// `None`: the client's own limits.
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) node_name: Option<String>,
    pub(crate) kubelet: KubeletOptions,
    /// What is kept whatever pods name, and where that stands.
    pub(crate) wanted: Wanted,
    pub(crate) sources: Sources,
    /// How the configuration was before it was read.
    pub(crate) config_stamp: Option<Stamp>,
    pub(crate) checks_config: bool,
    /// `None`: the pods of all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) output: Output,
    pub(crate) no_headers: bool,
    /// The labels of pods; empty: all.
    pub(crate) selector: String,
    pub(crate) files: FileOptions,
    /// Whether the configuration names the directory, and no flag.
    is_directory_declared: bool,
    /// Whether the configuration names the node, and no flag.
    is_node_declared: bool,
    pub(crate) credentials: CredentialOptions,
    pub(crate) snapshot: Option<SnapshotFiles>,
    pub(crate) change_detection: ChangeDetection,
    pub(crate) watch_scope: WatchScope,
    /// `None`: the library's own limit, past which objects fail.
    pub(crate) watches_max: Option<usize>,
    /// `None`: a minute, or a demonstration's two seconds.
    sync_frequency: Option<Duration>,
    /// `None`: the library's own.
    pub(crate) idle_limit: Option<Duration>,
    pub(crate) health_probe_bind_address: Option<BindAddress>,
    pub(crate) metrics_bind_address: Option<BindAddress>,
    pub(crate) once: bool,
    /// Whether an absence or a refusal is a failure.
    pub(crate) fail_on_missing: bool,
    /// `None`: without end.
    pub(crate) timeout: Option<Duration>,
    /// `None`: without end.
    pub(crate) ready_timeout: Option<Duration>,
    pub(crate) demo: bool,
    pub(crate) demo_speed: f64,
    pub(crate) verbosity: u8,
    /// `None`: as standard error is.
    pub(crate) log_format: Option<LogFormat>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connection: KubeconfigOptions::default(),
            request_timeout: None,
            node_name: None,
            kubelet: KubeletOptions::default(),
            wanted: Wanted::default(),
            sources: Sources::default(),
            config_stamp: None,
            checks_config: false,
            namespace: None,
            output: Output::Table,
            no_headers: false,
            selector: String::new(),
            files: FileOptions {
                tells: Tells {
                    hook: HookOptions {
                        label: teller::FLAG,
                        limit: Some(EXEC_TIMEOUT),
                        ..HookOptions::default()
                    },
                    ..Tells::default()
                },
                ..FileOptions::default()
            },
            is_directory_declared: false,
            is_node_declared: false,
            credentials: CredentialOptions::default(),
            snapshot: None,
            change_detection: ChangeDetection::default(),
            watch_scope: WatchScope::default(),
            watches_max: None,
            sync_frequency: None,
            idle_limit: None,
            health_probe_bind_address: None,
            metrics_bind_address: None,
            once: false,
            fail_on_missing: false,
            timeout: Some(TIMEOUT),
            ready_timeout: Some(READY_TIMEOUT),
            demo: false,
            demo_speed: DEMO_SPEED,
            verbosity: 0,
            log_format: None,
        }
    }
}

impl Options {
    /// Refuses a configuration that does not fit the flags: files without a directory, credentials
    /// without a socket, and a socket without credentials.
    pub(crate) fn check(&self, wanted: &Wanted) -> Result<(), String> {
        let declaration = wanted.declaration.as_deref();
        let has_files =
            |entry: &Arc<Entry>| entry.rules != Rules::default() || !entry.tells.is_empty();
        let entries = declaration.map_or(&[][..], |declared| &declared.entries);
        let has_directory = if self.is_directory_declared {
            declaration.is_some_and(|declared| declared.directory.is_some())
        } else {
            self.files.directory.is_some()
        };
        if !has_directory && entries.iter().any(has_files) {
            let file = self.sources.config.as_deref().unwrap_or(Path::new(""));
            let file = file.display();
            return Err(format!(
                "{file}: directory: missing: name one there, or with --output-dir"
            ));
        }
        let has_units = declaration.is_some_and(|declared| !declared.credentials.units.is_empty());
        let why = match &self.credentials.socket {
            Some(_) if self.once => {
                "--credential-socket answers while the agent runs: leave --once out"
            }
            Some(_) if self.sources.config.is_none() => {
                "--credential-socket needs --config, which declares the credentials"
            }
            None if has_units && !self.once && !self.checks_config => {
                "the configuration declares credentials: give --credential-socket"
            }
            _ => return Ok(()),
        };
        Err(why.to_owned())
    }

    /// What another read of the configuration changed that the agent takes in only when it starts.
    /// What a flag says wins, so that another word of the configuration is no change.
    pub(crate) fn needs_restart(&self, wanted: &Wanted) -> Option<&'static str> {
        let [before, now] = [&self.wanted, wanted].map(|wanted| wanted.declaration.as_ref());
        let (before, now) = (before?, now?);
        if self.is_directory_declared && before.directory != now.directory {
            return Some("another directory (files in an earlier one stay until you remove them)");
        }
        let [before, now] = [before, now].map(|declared| declared.pods().map(|(_, node)| node));
        let is_named_by_flag = self.node_name.is_some() && !self.is_node_declared;
        let is_same = before.is_some() == now.is_some() && is_named_by_flag || before == now;
        (!is_same).then_some("other pods")
    }

    /// How often the objects are read where they are not watched.
    pub(crate) fn sync_frequency(&self) -> Duration {
        self.sync_frequency.unwrap_or(if self.demo {
            DEMO_SYNC_FREQUENCY
        } else {
            SYNC_FREQUENCY
        })
    }
}

/// Reads the arguments after the program's name; the error is one line that says what is wrong.
pub(crate) fn parse<I>(arguments: I) -> Result<Command, String>
where
    I: IntoIterator<Item: Into<OsString>>,
{
    let mut parser = Parser::new(&PROGRAM, arguments);
    let mut options = Options::default();
    let mut snapshot = [None, None];
    while let Some(name) = parser.next()? {
        if let Some(page) = usage::page(name, &mut parser)? {
            return Ok(Command::Print(page));
        }
        let known = snapshot_flag(name, &mut parser, &mut snapshot)?
            || kubelet_flag(name, &mut parser, &mut options.kubelet)?
            || own_flag(name, &mut parser, &mut options)?
            || flags::connection_flag(
                name,
                &mut parser,
                &mut options.connection,
                &mut options.request_timeout,
            )?;
        if !known {
            return Err(format!("--{name} is not read"));
        }
    }
    options.snapshot = match snapshot {
        [None, None] => None,
        [Some(snapshot), Some(key)] => Some(SnapshotFiles { snapshot, key }),
        _ => return Err("--snapshot and --snapshot-key need each other".to_owned()),
    };
    let chooses = options.namespace.is_some() || !options.selector.is_empty();
    let why = if options.checks_config && options.sources.config.is_none() {
        Some("--check-config needs --config")
    } else if options.fail_on_missing && !options.once {
        Some("--fail-on-missing needs --once")
    } else {
        options.kubelet.wrong(chooses, options.demo)
    };
    if let Some(why) = why {
        return Err(why.to_owned());
    }
    // First: what changes during the read is seen later.
    options.config_stamp = options.sources.config.as_deref().and_then(stamp);
    options.wanted = options.sources.read()?;
    if let Some(declaration) = options.wanted.declaration.clone() {
        declared(&declaration, &mut options);
    }
    options.check(&options.wanted)?;
    let files = &options.files;
    let tells = !files.tells.hook.command.is_empty() || files.tells.signal.is_some();
    let needs_directory = tells || files.owner.is_some() || files.adopts;
    if files.directory.is_none() && needs_directory {
        let why = "--output-owner, --output-adopt and the --…-on-change need --output-dir";
        return Err(why.to_owned());
    }
    if options.checks_config {
        let declaration = options.wanted.declaration.unwrap_or_default();
        let file = options.sources.config.unwrap_or_default();
        let (entries, units) = (
            declaration.entries.len(),
            declaration.credentials.units.len(),
        );
        let file = file.display();
        return Ok(Command::Print(format!(
            "{file}: nothing is wrong: {entries} entries, {units} units\n"
        )));
    }
    Ok(Command::Run(Box::new(options)))
}

/// Takes from the configuration what no flag says.
fn declared(declaration: &Declaration, options: &mut Options) {
    options.is_directory_declared = options.files.directory.is_none();
    if options.is_directory_declared {
        options.files.directory.clone_from(&declaration.directory);
    }
    if let (Some((_, Some(node))), None) = (declaration.pods(), &options.node_name) {
        options.is_node_declared = true;
        options.node_name = Some(node.to_owned());
    }
    options.credentials.declared = declaration.credentials.clone();
}

/// The two flags of snapshots, into their places.
fn snapshot_flag(
    name: &str,
    parser: &mut Parser,
    [file, key]: &mut [Option<PathBuf>; 2],
) -> Result<bool, String> {
    let place = match name {
        "snapshot" => file,
        "snapshot-key" => key,
        _ => return Ok(false),
    };
    *place = Some(flags::path(name, parser)?);
    snapshot::MISSING.map_or(Ok(true), |missing| Err(format!("--{name}: {missing}")))
}

/// The flags of the kubelet.
fn kubelet_flag(
    name: &str,
    parser: &mut Parser,
    kubelet: &mut KubeletOptions,
) -> Result<bool, String> {
    match name {
        "pods-from" => kubelet.pods_from(&flags::text(name, parser)?)?,
        "kubelet-url" => kubelet.url = Some(flags::text(name, parser)?),
        "kubelet-certificate-authority" => {
            kubelet.authority = Some(flags::path(name, parser)?);
        }
        "kubelet-interval" => {
            kubelet.interval = Some(at_least(KUBELET_INTERVAL_LEAST, name, parser)?);
        }
        "kubelet-token-file" => kubelet.token_file = Some(flags::path(name, parser)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn own_flag(name: &str, parser: &mut Parser, options: &mut Options) -> Result<bool, String> {
    match name {
        "node-name" => options.node_name = Some(flags::text(name, parser)?),
        "secret" | "configmap" => {
            let object = references::of_flag(name, &flags::text(name, parser)?)?;
            options.sources.named.insert(object);
        }
        "references" => {
            options.sources.files.push(flags::path(name, parser)?);
        }
        "config" => options.sources.config = Some(flags::path(name, parser)?),
        "check-config" => options.checks_config = flags::switch(name, parser)?,
        "namespace" => options.namespace = Some(flags::text(name, parser)?),
        "output" => options.output = Output::parse(&flags::text(name, parser)?)?,
        "selector" => options.selector = flags::text(name, parser)?,
        "output-dir" => options.files.directory = Some(flags::path(name, parser)?),
        "output-adopt" => options.files.adopts = flags::switch(name, parser)?,
        "output-owner" => options.files.owner = Some(owner(&flags::text(name, parser)?)?),
        "exec-on-change" => {
            let command = flags::text(name, parser)?;
            options.files.tells.hook.command =
                command.split_whitespace().map(str::to_owned).collect();
        }
        "exec-timeout" => options.files.tells.hook.limit = flags::limit(name, parser)?,
        "signal-on-change" => options.files.tells.signal = Some(flags::path(name, parser)?),
        "credential-socket" => options.credentials.socket = Some(flags::path(name, parser)?),
        "credential-timeout" => options.credentials.timeout = flags::limit(name, parser)?,
        "no-headers" => options.no_headers = flags::switch(name, parser)?,
        "change-detection" => {
            let word = flags::text(name, parser)?;
            let parsed = word.parse();
            options.change_detection = parsed.map_err(|error: Error| {
                let modes = ChangeDetection::ALL.map(|mode| mode.to_string());
                format!("{error}; write one of {}", modes.join(", "))
            })?;
        }
        "watch-scope" => options.watch_scope = watch_scope(&flags::text(name, parser)?)?,
        "watches-max" => options.watches_max = Some(watches_max(&flags::text(name, parser)?)?),
        "sync-frequency" => {
            options.sync_frequency = Some(at_least(SYNC_FREQUENCY_LEAST, name, parser)?);
        }
        "idle-limit" => options.idle_limit = Some(at_least(IDLE_LIMIT_LEAST, name, parser)?),
        "health-probe-bind-address" => {
            let value = flags::optional(name, parser)?.unwrap_or_default();
            options.health_probe_bind_address =
                BindAddress::parse("health-probe-bind-address", &value)?;
        }
        "metrics-bind-address" => {
            let value = flags::optional(name, parser)?.unwrap_or_default();
            options.metrics_bind_address = BindAddress::parse("metrics-bind-address", &value)?;
            if let (Some(_), Some(missing)) = (&options.metrics_bind_address, metrics::MISSING) {
                return Err(format!("--{name}: {missing}"));
            }
        }
        "once" => options.once = flags::switch(name, parser)?,
        "fail-on-missing" => options.fail_on_missing = flags::switch(name, parser)?,
        "timeout" => options.timeout = flags::limit(name, parser)?,
        "ready-timeout" => options.ready_timeout = flags::limit(name, parser)?,
        "demo" => options.demo = flags::switch(name, parser)?,
        "demo-speed" => options.demo_speed = flags::speed(name, parser)?,
        "log-format" => options.log_format = Some(flags::log_format(name, parser)?),
        "v" => options.verbosity = flags::verbosity(options.verbosity, parser)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn watch_scope(value: &str) -> Result<WatchScope, String> {
    let (word, number) = match value.split_once(':') {
        Some((word, number)) => (word, number.parse().ok()),
        None => (value, Some(WATCHED_BY_NAME_MAX)),
    };
    match (word, number) {
        ("name", Some(_)) if value == "name" => Ok(WatchScope::ByName),
        ("namespace", Some(above)) => Ok(WatchScope::Namespace { above }),
        _ => Err(format!(
            "--watch-scope {value:?}: write name, namespace or namespace:N"
        )),
    }
}

fn watches_max(value: &str) -> Result<usize, String> {
    let number = value.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("--watches-max {value:?}: write a number from 1 on"))
}

/// A user and a group, by their numbers.
fn owner(value: &str) -> Result<(u32, u32), String> {
    // To the system, the highest number means that the owner stays as it is.
    let id = |text: &str| text.parse().ok().filter(|number| *number < u32::MAX);
    let ids = value.split_once(':');
    let ids = ids.and_then(|(user, group)| Some((id(user)?, id(group)?)));
    ids.ok_or_else(|| format!("--output-owner {value:?}: write UID:GID, such as 1000:1000"))
}

/// A duration that is not below this.
fn at_least(least: Duration, name: &str, parser: &mut Parser) -> Result<Duration, String> {
    let given = flags::limit(name, parser)?.filter(|given| *given >= least);
    given.ok_or_else(|| format!("--{name}: write a second or more"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn run(line: &str) -> Options {
        match parse(line.split_whitespace()) {
            Ok(Command::Run(options)) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn flags_take_their_value_after_a_space_or_an_equals_sign() {
        for line in [
            "--node-name n -o json --timeout 1m30s -s https://x --kubeconfig /k --request-timeout \
             5s",
            "--node-name=n -ojson --timeout=1m30s -s=https://x --kubeconfig=/k \
             --request-timeout=5s",
        ] {
            let options = run(line);
            assert_eq!(options.node_name.as_deref(), Some("n"));
            assert_eq!(options.output, Output::Json);
            assert_eq!(options.timeout, Some(Duration::from_secs(90)));
            let connection = KubeconfigOptions::default().server("https://x").path("/k");
            assert_eq!(options.connection, connection);
            assert_eq!(options.request_timeout, Some(Duration::from_secs(5)));
        }
    }

    #[test]
    fn what_holds_without_flags() {
        let options = run("");
        assert!(!options.once && !options.demo && options.node_name.is_none());
        assert_eq!(options.output, Output::Table);
        assert_eq!(options.timeout, Some(Duration::from_secs(30)));
        assert_eq!(options.verbosity, 0);
        assert!(options.request_timeout.is_none());
        assert_eq!(options.change_detection, ChangeDetection::Watch);
        assert_eq!(options.sync_frequency(), Duration::from_secs(60));
    }

    /// SC-6: the kubelet's words, and its error for any other.
    #[test]
    fn sc_6_change_detection_is_named_in_the_kubelets_words() {
        for mode in ChangeDetection::ALL {
            let options = run(&format!("--change-detection {mode} --sync-frequency 1s"));
            assert_eq!(options.change_detection, mode);
            assert_eq!(options.sync_frequency(), Duration::from_secs(1));
        }
        assert_eq!(run("--demo").sync_frequency(), Duration::from_secs(2));
    }

    #[test]
    fn the_scope_of_watches_has_a_number_or_the_usual_one() {
        let rows = [
            ("", WatchScope::ByName),
            ("--watch-scope name", WatchScope::ByName),
            (
                "--watch-scope namespace",
                WatchScope::Namespace { above: 20 },
            ),
            (
                "--watch-scope=namespace:0",
                WatchScope::Namespace { above: 0 },
            ),
        ];
        for (line, scope) in rows {
            assert_eq!(run(line).watch_scope, scope, "{line}");
        }
        assert_eq!(run("--watches-max 10").watches_max, Some(10));
    }

    #[test]
    fn the_endpoints_are_off_until_an_address_is_given_and_0_switches_them_off_again() {
        for line in [
            "",
            "--health-probe-bind-address :1 --health-probe-bind-address 0",
            "--health-probe-bind-address= --metrics-bind-address 0 --metrics-bind-address=",
        ] {
            let options = run(line);
            assert_eq!(options.health_probe_bind_address, None, "{line}");
            assert_eq!(options.metrics_bind_address, None, "{line}");
        }
        let options = run("--health-probe-bind-address localhost:8081 --idle-limit 3m");
        let address = options.health_probe_bind_address.unwrap();
        assert_eq!(address.to_string(), "localhost:8081");
        assert_eq!(options.idle_limit, Some(Duration::from_secs(3 * 60)));
        let asked = parse(["--metrics-bind-address", ":8080"]);
        assert_eq!(asked.is_ok(), metrics::MISSING.is_none(), "{asked:?}");
    }

    #[test]
    fn switches_levels_and_limits() {
        assert_eq!(
            run("--once --insecure-skip-tls-verify").connection,
            KubeconfigOptions::default().insecure_skip_tls_verify(true)
        );
        assert!(!run("--once --once=false").once);
        assert_eq!(run("-v").verbosity, 1);
        assert_eq!(run("-vv").verbosity, 2);
        assert_eq!(run("--v=4").verbosity, 4);
        assert_eq!(run("--timeout 0").timeout, None);
        assert!(run("--demo --demo-speed 0").demo);
    }

    #[test]
    fn who_asks() {
        let options = run("--as jane --as-group a --as-group=b --as-uid 7 --disable-compression");
        let acting = KubeconfigOptions::default().impersonate_user("jane");
        let acting = acting.impersonate_group("a").impersonate_group("b");
        let acting = acting.impersonate_uid("7").disable_compression(true);
        assert_eq!(options.connection, acting);
        let options = run("--username u --password p");
        let pair = KubeconfigOptions::default().username("u").password("p");
        assert_eq!(options.connection, pair);
    }

    #[test]
    fn each_mistake_is_one_line_that_names_the_flag_and_no_secret() {
        let rows = [
            (
                "--nod-name x",
                "unknown flag --nod-name; did you mean --node-name?",
            ),
            ("--frob x", "unknown flag --frob"),
            ("--fail-on-missing", "--fail-on-missing needs --once"),
            ("-x", "unknown flag -x"),
            ("pods", "unexpected argument \"pods\""),
            ("--node-name", "--node-name needs a value"),
            ("--token=", "--token needs a value that is not empty"),
            (
                "-o xml",
                "--output \"xml\": write one of table, wide, name, json, yaml",
            ),
            (
                "--timeout soon",
                "--timeout: \"soon\" is no duration: write it as 10s, 1m30s or 0",
            ),
            (
                "--change-detection watch",
                "unknown configmap and secret manager mode: watch; write one of Watch, Cache, Get",
            ),
            (
                "--watch-scope namespace:many",
                "--watch-scope \"namespace:many\": write name, namespace or namespace:N",
            ),
            (
                "--watches-max 0",
                "--watches-max \"0\": write a number from 1 on",
            ),
            (
                "--watch-scope name:5",
                "--watch-scope \"name:5\": write name, namespace or namespace:N",
            ),
            (
                "--sync-frequency 0",
                "--sync-frequency: write a second or more",
            ),
            ("--idle-limit 500ms", "--idle-limit: write a second or more"),
            (
                "--health-probe-bind-address 8081",
                "--health-probe-bind-address \"8081\": write HOST:PORT, :PORT, or 0 for none",
            ),
            (
                "--output-owner 0:4294967295",
                "--output-owner \"0:4294967295\": write UID:GID, such as 1000:1000",
            ),
            ("--once=maybe", "--once=maybe: write true or false"),
            ("-v=x", "-v \"x\": write a level from 0 to 9"),
            (
                "--demo-speed -1",
                "--demo-speed \"-1\": write a number such as 1, 2.5 or 0",
            ),
        ];
        for (line, expected) in rows {
            let error = parse(line.split_whitespace()).unwrap_err();
            assert_eq!(error, expected, "{line}");
        }
    }

    #[test]
    fn the_flags_of_the_kubelet_need_it_and_leave_nothing_to_guess() {
        let rows = [
            (
                "--pods-from cri",
                "--pods-from \"cri\": write kubelet or apiserver",
            ),
            (
                "--kubelet-interval 0",
                "--kubelet-interval: write a second or more",
            ),
            (
                "--kubelet-url https://x",
                "the --kubelet-… flags need --pods-from kubelet",
            ),
            (
                "--pods-from kubelet --demo",
                "--demo shows recorded pods: leave --pods-from out",
            ),
            (
                "--pods-from kubelet -l a=b",
                "a kubelet lists all its pods: leave -n and -l out",
            ),
            (
                "--pods-from kubelet --kubelet-url http://x:10255 --kubelet-token-file /t",
                "the read-only port of a kubelet takes no token: leave --kubelet-token-file out",
            ),
            (
                "--pods-from kubelet --kubelet-url HTTP://x:10255 --kubelet-token-file /t",
                "the read-only port of a kubelet takes no token: leave --kubelet-token-file out",
            ),
            (
                "--pods-from kubelet --kubelet-url x:10250 --kubelet-token-file /t",
                "--kubelet-url needs https:// or http:// in front",
            ),
        ];
        for (line, expected) in rows {
            let error = parse(line.split_whitespace()).unwrap_err();
            assert_eq!(error, expected, "{line}");
        }
        let options =
            run("--pods-from kubelet --kubelet-interval 30s --kubelet-url http://n:10255");
        assert!(options.kubelet.is_asked);
        assert_eq!(options.kubelet.interval, Some(Duration::from_secs(30)));
        assert!(
            !run("--pods-from kubelet --pods-from apiserver")
                .kubelet
                .is_asked
        );
    }

    /// Each flag of the table is read, and no other. What takes a value takes the next word.
    #[test]
    fn the_table_has_the_flags_that_are_read() {
        for flag in PROGRAM.flags() {
            let alone = parse([format!("--{}", flag.name)]);
            let needs = alone
                .as_ref()
                .is_err_and(|why| why.ends_with("needs a value"));
            assert_eq!(needs, flag.takes_value(), "{}: {alone:?}", flag.name);
            let given = parse([format!("--{}={}", flag.name, "0")]);
            let not_read = given.is_err_and(|why| why.ends_with("is not read"));
            assert!(!not_read, "{}", flag.name);
        }
        let sources = [
            include_str!("args.rs"),
            include_str!("flags.rs"),
            include_str!("usage.rs"),
        ];
        let known: BTreeSet<_> = PROGRAM.flags().map(|flag| flag.name).collect();
        for line in sources.iter().flat_map(|source| source.lines()) {
            let Some((names, _)) = line.trim().split_once(" => ") else {
                continue;
            };
            let words = ["bash", "zsh", "fish"];
            for name in names
                .split(" | ")
                .filter(|name| !words.contains(&name.trim_matches('"')))
            {
                let name = name
                    .strip_prefix('"')
                    .and_then(|name| name.strip_suffix('"'));
                assert!(name.is_none_or(|name| known.contains(name)), "{line}");
            }
        }
    }
}
