//! Flags that several examples have: kubectl's for the connection, and the readers of flags of
//! their own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use kubecache::http::{ClientOptions, KubeconfigOptions};
use lexopt::Arg::{Long, Short, Value};

use crate::duration;
use crate::log_format::LogFormat;

/// A flag, as the parser, the help, the completions and the manual page know it.
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) short: Option<char>,
    /// Empty: a switch. In brackets: it may be left out.
    pub(crate) value: &'static str,
    /// What holds without the flag, where that is not plain.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
}

/// Flags that belong together.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) flags: &'static [Flag],
}

/// A program with its flags: its own, and those below.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Its first sentence is the summary.
    pub(crate) about: &'static str,
    pub(crate) groups: &'static [Group],
    /// Titles and texts behind the flags.
    pub(crate) notes: &'static [(&'static str, &'static str)],
}

/// A flag that takes a value, if that is not empty.
pub(crate) const fn flag(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        short: None,
        value,
        default: "",
        help,
    }
}

impl Flag {
    pub(crate) const fn short(self, letter: char) -> Self {
        Self {
            short: Some(letter),
            ..self
        }
    }

    pub(crate) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// Whether its value has to be there.
    pub(crate) fn takes_value(&self) -> bool {
        !self.value.is_empty() && !self.value.starts_with('[')
    }
}

/// The flags of every program.
const COMMON: [Group; 2] = [
    Group {
        title: "The connection, as with kubectl",
        flags: &[
            flag("kubeconfig", "FILE", "the kubeconfig").default("$KUBECONFIG or ~/.kube/config"),
            flag("context", "NAME", "the context of the kubeconfig"),
            flag("cluster", "NAME", "the cluster of the kubeconfig"),
            flag("user", "NAME", "the user of the kubeconfig"),
            flag("server", "URL", "the address of the API server").short('s'),
            flag("token", "TOKEN", "the bearer token"),
            flag("username", "NAME", "the user of basic authentication"),
            flag(
                "password",
                "PASSWORD",
                "the password of basic authentication",
            ),
            flag("as", "NAME", "the user to act as"),
            flag("as-uid", "UID", "the UID to act as"),
            flag(
                "as-group",
                "GROUP",
                "a group to act as; again for each group",
            ),
            flag(
                "certificate-authority",
                "FILE",
                "the authorities that sign for the server",
            ),
            flag("client-certificate", "FILE", "the client's certificate"),
            flag("client-key", "FILE", "the key of the client's certificate"),
            flag(
                "tls-server-name",
                "NAME",
                "the name in the server's certificate",
            ),
            flag(
                "insecure-skip-tls-verify",
                "",
                "take any certificate of the server",
            ),
            flag(
                "disable-compression",
                "",
                "ask for answers that are not compressed",
            ),
            flag(
                "request-timeout",
                "DURATION",
                "how long the server may take to begin an answer",
            )
            .default("0: the client's limits"),
        ],
    },
    Group {
        title: "The program",
        flags: &[
            flag(
                "v",
                "[=LEVEL]",
                "log to stderr: 1 (or -v alone) what happens, 2 each request, 4 everything",
            )
            .short('v'),
            flag(
                "log-format",
                "text|json|journal",
                "how lines on stderr are written: text with the time of each record, an object of \
                 JSON per line, or with priorities for the journal",
            )
            .default("journal where stderr is the journal, else text"),
            flag(
                "completion",
                "bash|zsh|fish",
                "print the completion for this shell, and exit",
            ),
            flag("man", "", "print the manual page, and exit"),
            flag("help", "", "print this, and exit").short('h'),
            flag("version", "", "print the version, and exit").short('V'),
        ],
    },
];

impl Program {
    pub(crate) fn groups(&self) -> impl Iterator<Item = &'static Group> {
        self.groups.iter().chain(&COMMON)
    }

    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.groups().flat_map(|group| group.flags)
    }

    /// The flag of that name, or that there is none, and which one is nearly it.
    fn flag(&self, name: &str) -> Result<&'static Flag, String> {
        let near = |flag: &Flag| (distance(flag.name, name), flag.name);
        self.flags().find(|flag| flag.name == name).ok_or_else(|| {
            let near = self.flags().map(near).min();
            let near = near.filter(|(distance, flag)| *distance <= 2 && *distance < flag.len());
            let near = near.map(|(_, flag)| format!("; did you mean --{flag}?"));
            format!("unknown flag --{name}{}", near.unwrap_or_default())
        })
    }
}

/// How many letters have to be added, removed or replaced.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut before = at;
        let mut left = at.saturating_add(1);
        for (cell, against) in row
            .iter_mut()
            .zip([None].into_iter().chain(other.bytes().map(Some)))
        {
            let Some(against) = against else {
                *cell = left;
                continue;
            };
            let replaced = before.saturating_add(usize::from(letter != against));
            before = *cell;
            left = replaced
                .min(left.saturating_add(1))
                .min(cell.saturating_add(1));
            *cell = left;
        }
    }
    row.pop().unwrap_or_default()
}

/// A command line that is read, flag by flag.
pub(crate) struct Parser {
    line: lexopt::Parser,
    pub(crate) program: &'static Program,
    /// What came with the flag of last.
    value: Option<OsString>,
}

impl Parser {
    pub(crate) fn new<I>(program: &'static Program, arguments: I) -> Self
    where
        I: IntoIterator<Item: Into<OsString>>,
    {
        Self {
            line: lexopt::Parser::from_args(arguments),
            program,
            value: None,
        }
    }

    /// The name of the next flag, `None` at the end of the line.
    pub(crate) fn next(&mut self) -> Result<Option<&'static str>, String> {
        let flag = match self.line.next().map_err(|error| error.to_string())? {
            None => return Ok(None),
            Some(Value(value)) => {
                return Err(format!("unexpected argument {:?}", value.to_string_lossy()));
            }
            Some(Short(letter)) => {
                let found = self.program.flags().find(|flag| flag.short == Some(letter));
                found.ok_or_else(|| format!("unknown flag -{letter}"))?
            }
            Some(Long(name)) => self.program.flag(name)?,
        };
        self.value = if flag.takes_value() {
            let value = self.line.value();
            Some(value.map_err(|_missing| format!("--{} needs a value", flag.name))?)
        } else {
            self.line.optional_value()
        };
        Ok(Some(flag.name))
    }
}

/// A flag of the connection, if `name` is one.
pub(crate) fn connection_flag(
    name: &str,
    parser: &mut Parser,
    connection: &mut KubeconfigOptions,
    request_timeout: &mut Option<Duration>,
) -> Result<bool, String> {
    let before = std::mem::take(connection);
    *connection = match name {
        "kubeconfig" => before.path(path(name, parser)?),
        "context" => before.context(text(name, parser)?),
        "cluster" => before.cluster(text(name, parser)?),
        "user" => before.user(text(name, parser)?),
        "server" => before.server(text(name, parser)?),
        "token" => before.token(text(name, parser)?),
        "username" => before.username(text(name, parser)?),
        "password" => before.password(text(name, parser)?),
        "as" => before.impersonate_user(text(name, parser)?),
        "as-uid" => before.impersonate_uid(text(name, parser)?),
        "as-group" => before.impersonate_group(text(name, parser)?),
        "disable-compression" => before.disable_compression(switch(name, parser)?),
        "certificate-authority" => before.certificate_authority(path(name, parser)?),
        "client-certificate" => before.client_certificate(path(name, parser)?),
        "client-key" => before.client_key(path(name, parser)?),
        "tls-server-name" => before.tls_server_name(text(name, parser)?),
        "insecure-skip-tls-verify" => before.insecure_skip_tls_verify(switch(name, parser)?),
        "request-timeout" => {
            *request_timeout = limit(name, parser)?;
            before
        }
        _ => {
            *connection = before;
            return Ok(false);
        }
    };
    Ok(true)
}

fn value(name: &str, parser: &mut Parser) -> Result<OsString, String> {
    let value = parser.value.take().filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("--{name} needs a value that is not empty"))
}

pub(crate) fn text(name: &str, parser: &mut Parser) -> Result<String, String> {
    // The value may be a token: it is not repeated.
    value(name, parser)?
        .into_string()
        .map_err(|_not_text| format!("--{name}: the value is not text"))
}

pub(crate) fn path(name: &str, parser: &mut Parser) -> Result<PathBuf, String> {
    value(name, parser).map(PathBuf::from)
}

/// A flag that is on when it is named, or says `=true` or `=false`.
pub(crate) fn switch(name: &str, parser: &mut Parser) -> Result<bool, String> {
    match optional(name, parser)?.as_deref() {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(format!("--{name}={other}: write true or false")),
    }
}

/// A value that may be left out, or empty.
pub(crate) fn optional(name: &str, parser: &mut Parser) -> Result<Option<String>, String> {
    let value = parser.value.take().map(OsString::into_string);
    value
        .transpose()
        .map_err(|_not_text| format!("--{name}: the value is not text"))
}

/// A duration in which zero means no limit.
pub(crate) fn limit(name: &str, parser: &mut Parser) -> Result<Option<Duration>, String> {
    let duration =
        duration::parse(&text(name, parser)?).map_err(|why| format!("--{name}: {why}"))?;
    Ok(Some(duration).filter(|duration| !duration.is_zero()))
}

/// `-v`, `-vv`, `-v=2`, after so many `-v` before it.
pub(crate) fn verbosity(so_far: u8, parser: &mut Parser) -> Result<u8, String> {
    Ok(match optional("v", parser)?.as_deref() {
        None => so_far.saturating_add(1),
        // `-vv`: what follows the first letter is its value to the parser.
        Some(more) if !more.is_empty() && more.bytes().all(|byte| byte == b'v') => {
            u8::try_from(more.len())
                .unwrap_or(u8::MAX)
                .saturating_add(1)
        }
        Some(value) => value
            .parse()
            .map_err(|_not_a_number| format!("-v {value:?}: write a level from 0 to 9"))?,
    })
}

pub(crate) fn log_format(name: &str, parser: &mut Parser) -> Result<LogFormat, String> {
    let word = text(name, parser)?;
    LogFormat::parse(&word)
        .ok_or_else(|| format!("--{name} {word:?}: write one of text, json, journal"))
}

/// How many times as fast as recorded a demonstration runs.
pub(crate) fn speed(name: &str, parser: &mut Parser) -> Result<f64, String> {
    let value = text(name, parser)?;
    let speed = value.parse().ok();
    speed
        .filter(|speed: &f64| speed.is_finite() && *speed >= 0.0)
        .ok_or_else(|| format!("--{name} {value:?}: write a number such as 1, 2.5 or 0"))
}

/// The client of a program that calls itself `user_agent`.
pub(crate) fn client_options(user_agent: &str, request_timeout: Option<Duration>) -> ClientOptions {
    let client = ClientOptions::default().user_agent(user_agent);
    match request_timeout {
        Some(limit) => client
            .list_first_byte_timeout(limit)
            .object_list_first_byte_timeout(limit)
            .watch_first_byte_timeout(limit)
            .get_first_byte_timeout(limit)
            .connect_timeout(limit),
        None => client,
    }
}
