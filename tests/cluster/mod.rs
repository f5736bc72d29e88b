//! Against a real kube-apiserver and etcd: what the server accepts and answers, and the main job as
//! a node's identity.
//!
//! These tests need a cluster, so a plain `cargo test` ignores them: `tests/cluster/run` starts one
//! and runs them.

mod agent;
mod agent_program;
mod audit;
mod churn;
#[cfg(feature = "ring")]
mod clientcmd;
#[cfg(feature = "gzip")]
mod compression;
mod deploy;
mod fence;
mod files;
#[cfg(feature = "testing")]
#[cfg(feature = "ring")]
mod foreign;
mod gateway;
mod informer_set;
mod informers;
mod languages;
mod managers;
#[cfg(feature = "ring")]
mod metadata;
#[cfg(feature = "testing")]
#[cfg(feature = "ring")]
mod model;
mod namespaces;
mod plugins;
mod protocol;
mod proxies;
#[cfg(feature = "testing")]
mod recorder;
mod representations;
mod rotation;
mod site;
#[cfg(feature = "snapshot")]
mod snapshot;
#[cfg(feature = "snapshot")]
mod soak;
mod stores;
mod strategies;
mod support;
mod watch_budget;
mod writes;
