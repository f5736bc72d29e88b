//! The command line, and the hidden one by which the program starts itself as a container.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::Arg::{Long, Short, Value};
use lexopt::ValueExt as _;

use crate::container::Run;

/// The kubelet's second is long to look at; a tenth shows the same.
const PERIOD: Duration = Duration::from_millis(100);

pub(crate) const HELP: &str = "\
pod_status shows the pod-status cache at work. Its pods are child processes of
its own: a relist loop asks once per period what they do and keeps the cache,
and one worker per pod waits on the cache for news, as the kubelet's pod workers
do. A worker that has started a container asks for a relist of its pod, and so
sees it run at once. One container fails and is started again, one completes,
one pod is removed; then everything is removed and the program ends. SIGINT and
SIGTERM end it early and leave no process behind.

Usage: pod_status [flags]

      --period MILLISECONDS    the pause between two relists (default 100; the
                               kubelet's is 1000)
  -h, --help                   print this, and exit

Each line is what a worker saw, with the time since the start:

  a container is started, runs, exited with its code, is started again; a pod
  completed, or is gone.

Exit codes:
  0 the end of the story, or a clean stop by a signal
  1 a failure
  2 wrong usage
";

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Options),
    /// Be a container.
    Container(Run),
    Help,
}

/// The flags of a run.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) period: Duration,
}

/// Reads the arguments after the program's name; the error is one line that says what is wrong.
pub(crate) fn parse<I>(arguments: I) -> Result<Command, String>
where
    I: IntoIterator<Item: Into<OsString>>,
{
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut options = Options { period: PERIOD };
    let told = |error: lexopt::Error| error.to_string();
    while let Some(argument) = parser.next().map_err(told)? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Long("period") => {
                let millis = parser
                    .value()
                    .and_then(|value| value.parse())
                    .map_err(told)?;
                options.period = Duration::from_millis(millis);
            }
            Long("be-a-container") => {
                let run = parser
                    .value()
                    .and_then(|value| value.parse_with(Run::from_argument))
                    .map_err(told)?;
                return Ok(Command::Container(run));
            }
            Value(value) => {
                return Err(format!("unexpected argument {:?}", value.to_string_lossy()));
            }
            Short(_) | Long(_) => return Err(argument.unexpected().to_string()),
        }
    }
    Ok(Command::Run(options))
}
