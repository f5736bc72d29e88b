//! Flags that several examples have: kubectl's for the connection, and the readers of flags of
//! their own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use kubecache::http::{ClientOptions, KubeconfigOptions};
use lexopt::Arg::{Long, Short, Value};
use lexopt::ValueExt as _;

use crate::duration;

/// What the help says of the flags below, and of the three that every example has.
pub(crate) const HELP: &str = "\
The connection, as with kubectl:
      --kubeconfig FILE             instead of $KUBECONFIG and ~/.kube/config
      --context, --cluster, --user NAME
  -s, --server URL
      --token TOKEN
      --username NAME, --password PASSWORD
      --as NAME, --as-uid UID, --as-group GROUP (again for each group)
      --certificate-authority FILE
      --client-certificate FILE
      --client-key FILE
      --tls-server-name NAME
      --insecure-skip-tls-verify
      --disable-compression
      --request-timeout DURATION    how long the server may take to begin an answer (default 0: the
                                    client's limits)

  -v, --v LEVEL                     log to stderr: 1 (or -v alone) what happens, 2 each request,
                                    4 everything
  -h, --help
  -V, --version

";

/// The short flags of every program.
const SHORT: [(char, &str); 4] = [('h', "help"), ('s', "server"), ('v', "v"), ('V', "version")];

/// Says that there is no such flag, and which one of the help is nearly it.
pub(crate) fn unknown(name: &str, help: &str) -> String {
    let words = help.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    let flags = words.filter_map(|word| word.strip_prefix("--").filter(|flag| !flag.is_empty()));
    let near = flags
        .map(|flag| (distance(flag, name), flag))
        .min()
        .filter(|(distance, flag)| *distance <= 2 && *distance < flag.len());
    let near = near.map(|(_, flag)| format!("; did you mean --{flag}?"));
    format!("unknown flag --{name}{}", near.unwrap_or_default())
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

/// The name of the next flag, `None` at the end of the line; `own` are the short ones that only one
/// program has.
pub(crate) fn next(
    parser: &mut lexopt::Parser,
    own: &[(char, &str)],
) -> Result<Option<String>, String> {
    Ok(Some(match parser.next().map_err(|error| told(&error))? {
        None => return Ok(None),
        Some(Value(value)) => {
            return Err(format!("unexpected argument {:?}", value.to_string_lossy()));
        }
        Some(Short(letter)) => match SHORT.iter().chain(own).find(|(short, _)| *short == letter) {
            Some((_, long)) => (*long).to_owned(),
            None => return Err(format!("unknown flag -{letter}")),
        },
        Some(Long(name)) => name.to_owned(),
    }))
}

/// A flag of the connection, if `name` is one.
pub(crate) fn connection_flag(
    name: &str,
    parser: &mut lexopt::Parser,
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

fn value(name: &str, parser: &mut lexopt::Parser) -> Result<OsString, String> {
    let value = parser
        .value()
        .map_err(|_missing| format!("--{name} needs a value"))?;
    if value.is_empty() {
        return Err(format!("--{name} needs a value that is not empty"));
    }
    Ok(value)
}

pub(crate) fn text(name: &str, parser: &mut lexopt::Parser) -> Result<String, String> {
    // The value may be a token: it is not repeated.
    value(name, parser)?
        .string()
        .map_err(|_not_text| format!("--{name}: the value is not text"))
}

pub(crate) fn path(name: &str, parser: &mut lexopt::Parser) -> Result<PathBuf, String> {
    value(name, parser).map(PathBuf::from)
}

/// A flag that is on when it is named, or says `=true` or `=false`.
pub(crate) fn switch(name: &str, parser: &mut lexopt::Parser) -> Result<bool, String> {
    match optional(name, parser)?.as_deref() {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(format!("--{name}={other}: write true or false")),
    }
}

fn optional(name: &str, parser: &mut lexopt::Parser) -> Result<Option<String>, String> {
    parser
        .optional_value()
        .map(|value| {
            value
                .string()
                .map_err(|_not_text| format!("--{name}: the value is not text"))
        })
        .transpose()
}

/// A duration in which zero means no limit.
pub(crate) fn limit(name: &str, parser: &mut lexopt::Parser) -> Result<Option<Duration>, String> {
    let duration =
        duration::parse(&text(name, parser)?).map_err(|why| format!("--{name}: {why}"))?;
    Ok(Some(duration).filter(|duration| !duration.is_zero()))
}

/// `-v`, `-vv`, `-v=2`, after so many `-v` before it.
pub(crate) fn verbosity(so_far: u8, parser: &mut lexopt::Parser) -> Result<u8, String> {
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

/// How many times as fast as recorded a demonstration runs.
pub(crate) fn speed(name: &str, parser: &mut lexopt::Parser) -> Result<f64, String> {
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

fn told(error: &lexopt::Error) -> String {
    match error {
        // The parser's own text repeats the value, which may be a token.
        lexopt::Error::UnexpectedValue { option, .. } => format!("{option} takes no value"),
        lexopt::Error::MissingValue { .. }
        | lexopt::Error::UnexpectedOption(_)
        | lexopt::Error::UnexpectedArgument(_)
        | lexopt::Error::ParsingFailed { .. }
        | lexopt::Error::NonUnicodeValue(_)
        | lexopt::Error::Custom(_) => error.to_string(),
    }
}
