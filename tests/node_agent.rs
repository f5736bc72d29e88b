//! The example `node_agent` as a user meets it: what it prints, how it ends, what it says of bad
//! input.
#![cfg(feature = "testing")]

#[path = "node_agent/bad_input.rs"]
mod bad_input;
#[cfg(target_os = "linux")]
#[path = "node_agent/config.rs"]
mod config;
#[cfg(target_os = "linux")]
#[path = "node_agent/credentials.rs"]
mod credentials;
#[path = "node_agent/demo.rs"]
mod demo;
#[path = "node_agent/files.rs"]
mod files;
#[path = "node_agent/hang_ups.rs"]
mod hang_ups;
#[cfg(target_os = "linux")]
#[path = "node_agent/hangs.rs"]
mod hangs;
#[cfg(target_os = "linux")]
#[path = "node_agent/hooks.rs"]
mod hooks;
#[path = "node_agent/logs.rs"]
mod logs;
#[cfg(feature = "metrics")]
#[path = "node_agent/manifests.rs"]
mod manifests;
#[path = "node_agent/probes.rs"]
mod probes;
#[path = "node_agent/references.rs"]
mod references;
#[cfg(feature = "ring")]
#[path = "node_agent/rotation.rs"]
mod rotation;
#[path = "node_agent/rows.rs"]
mod rows;
#[cfg(target_os = "linux")]
#[path = "node_agent/signals.rs"]
mod signals;
#[cfg(target_os = "linux")]
#[path = "node_agent/slow_readers.rs"]
mod slow_readers;
#[cfg(feature = "snapshot")]
#[path = "node_agent/snapshot.rs"]
mod snapshot;
#[path = "node_agent/strategies.rs"]
mod strategies;
#[cfg(target_os = "linux")]
#[path = "node_agent/systemd.rs"]
mod systemd;
#[cfg(feature = "snapshot")]
#[path = "node_agent/upgrade.rs"]
mod upgrade;
#[path = "node_agent/usage.rs"]
mod usage;

use crate::support::example::Example;

pub(crate) static AGENT: Example = Example::new("node_agent");
