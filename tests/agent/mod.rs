//! The example `node_agent` as a user meets it: what it prints, how it ends, what it says of bad
//! input.
#![cfg(feature = "testing")]

mod bad_input;
#[cfg(target_os = "linux")]
mod config;
#[cfg(target_os = "linux")]
mod credentials;
mod demo;
mod files;
mod hang_ups;
#[cfg(target_os = "linux")]
mod hangs;
#[cfg(target_os = "linux")]
mod hooks;
mod kubelet;
mod logs;
#[cfg(feature = "metrics")]
mod manifests;
mod probes;
mod references;
#[cfg(feature = "ring")]
mod rotation;
mod rows;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod slow_readers;
#[cfg(feature = "snapshot")]
mod snapshot;
mod strategies;
#[cfg(target_os = "linux")]
mod systemd;
#[cfg(feature = "snapshot")]
mod upgrade;
mod usage;

use crate::support::example::Example;

pub(crate) static AGENT: Example = Example::new("node_agent");
