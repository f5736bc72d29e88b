//! Whether something else ran beside a measurement.

use std::fs;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::{SysconfVar, sysconf};

use crate::program::Program;

/// How much of a core other work may take, for a measurement to count.
pub(crate) const NOISE_MAX: f64 = 0.1;

/// The CPU time, in seconds, of the machine and of what belongs to the comparison.
pub(crate) struct Beginning {
    at: Instant,
    machine: f64,
    own: f64,
}

impl Beginning {
    pub(crate) fn now(server: &Program) -> Self {
        Self {
            at: Instant::now(),
            machine: machine(),
            own: own(server),
        }
    }

    /// How much of a core other work has taken since. The measured program has ended by now.
    pub(crate) fn noise(&self, server: &Program) -> f64 {
        let others = (machine() - self.machine) - (own(server) - self.own);
        others.max(0.0) / self.at.elapsed().as_secs_f64()
    }
}

/// All that the processors have done, or that was taken from them.
fn machine() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = text.lines().next().unwrap_or_default().split_whitespace();
    let ticks: Vec<f64> = ticks.skip(1).filter_map(|tick| tick.parse().ok()).collect();
    // The fourth and fifth are of idle processors, and those from the ninth on counted already.
    let busy: f64 = [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|nth| ticks.get(*nth))
        .sum();
    let a_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    busy / a_second as f64
}

/// The server, this program, and the programs that have ended.
fn own(server: &Program) -> f64 {
    let of = |who| {
        let usage = getrusage(who).unwrap();
        let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        seconds(usage.user_time()) + seconds(usage.system_time())
    };
    server.cpu() + of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN)
}
