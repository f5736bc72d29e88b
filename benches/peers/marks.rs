//! How a program of one side and the comparison talk: a line out when something has been reached,
//! a line in when the next thing is to begin.

#![allow(
    dead_code,
    reason = "each program that includes this file uses a part of it"
)]

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// Says that something has been reached.
pub(crate) fn tell(mark: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{mark}").unwrap();
    out.flush().unwrap();
}

/// Waits for the next order; empty once the comparison has gone.
pub(crate) fn order() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Looks again later: what is waited for happens in another process, or must not be disturbed.
pub(crate) fn pause(time: Duration) {
    let begun = Instant::now();
    while let Some(left) = time.checked_sub(begun.elapsed()) {
        std::thread::park_timeout(left);
    }
}

/// How often a program that is to follow events looks for the last one; `None` if it is to follow
/// none. Looking must cost little beside events that come seldom.
pub(crate) fn look_interval(order: &str) -> Option<Duration> {
    match order.split(' ').next() {
        Some("events") => Some(Duration::from_millis(1)),
        Some("paced") => Some(Duration::from_millis(100)),
        _ => None,
    }
}

/// What a program of one side is asked to do, from its command line.
pub(crate) struct Task {
    /// `collection`, `watches`, `store` or `waiters`.
    pub(crate) scenario: String,
    /// Which way of several to do it.
    pub(crate) way: String,
    /// `configmaps`, `pods` or `secrets`.
    pub(crate) resource: String,
    pub(crate) url: String,
    /// The file of the authority's certificate.
    pub(crate) authority: String,
    /// How many objects there are.
    pub(crate) count: usize,
}

impl Task {
    pub(crate) fn from_arguments() -> Self {
        let mut arguments = std::env::args().skip(1);
        let mut next = || {
            arguments
                .next()
                .expect("scenario way resource url authority count")
        };
        Self {
            scenario: next(),
            way: next(),
            resource: next(),
            url: next(),
            authority: next(),
            count: next().parse().unwrap(),
        }
    }
}
