//! A container: what a child process does until it exits.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use kubecache::clock::{Clock, Deadline};
use kubecache::worker::{WaitEnd, Worker};

/// One run of a container: how long it lasts and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// `None`: until it is killed.
    pub(crate) lasts: Option<Duration>,
    pub(crate) exit_code: u8,
}

impl Run {
    pub(crate) const UNTIL_KILLED: Self = Self {
        lasts: None,
        exit_code: 0,
    };

    pub(crate) const fn exits(after: Duration, exit_code: u8) -> Self {
        Self {
            lasts: Some(after),
            exit_code,
        }
    }

    /// The run as an argument, such as `600:1`.
    pub(crate) fn argument(self) -> String {
        match self.lasts {
            Some(lasts) => format!("{}:{}", lasts.as_millis(), self.exit_code),
            None => format!("-:{}", self.exit_code),
        }
    }

    pub(crate) fn from_argument(argument: &str) -> Result<Self, &'static str> {
        let wrong = "is no run such as 600:1";
        let (lasts, exit_code) = argument.split_once(':').ok_or(wrong)?;
        let lasts = match lasts {
            "-" => None,
            millis => Some(millis.parse().map_err(|_not_a_number| wrong)?),
        };
        Ok(Self {
            lasts: lasts.map(Duration::from_millis),
            exit_code: exit_code.parse().map_err(|_not_a_number| wrong)?,
        })
    }
}

/// Lives as long as the run lasts, and at most as long as the program that started it: that one
/// holds the other end of stdin, which closes however it ends.
pub(crate) fn live(run: Run) -> ExitCode {
    let clock = Clock::system();
    let end = run
        .lasts
        .map_or(Deadline::NEVER, |lasts| clock.after(lasts));
    let life = Worker::spawn("life", move |stop| {
        if stop.wait_until(&clock, end) == WaitEnd::DeadlinePassed {
            std::process::exit(run.exit_code.into());
        }
    });
    // Nothing is sent: what ends this read is the end of the parent.
    drop(io::copy(&mut io::stdin(), &mut io::sink()));
    drop(life);
    ExitCode::FAILURE
}
