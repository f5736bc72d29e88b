//! Against a real kube-apiserver and etcd: what the server accepts and answers, and the main job as
//! a node's identity.
//!
//! These tests need a cluster, so a plain `cargo test` ignores them: `tests/cluster/run` starts one
//! and runs them.

#[path = "cluster/agent.rs"]
mod agent;
#[path = "cluster/agent_program.rs"]
mod agent_program;
#[path = "cluster/audit.rs"]
mod audit;
#[path = "cluster/churn.rs"]
mod churn;
#[cfg(feature = "ring")]
#[path = "cluster/clientcmd.rs"]
mod clientcmd;
#[cfg(feature = "gzip")]
#[path = "cluster/compression.rs"]
mod compression;
#[path = "cluster/deploy.rs"]
mod deploy;
#[path = "cluster/files.rs"]
mod files;
#[cfg(feature = "testing")]
#[cfg(feature = "ring")]
#[path = "cluster/foreign.rs"]
mod foreign;
#[path = "cluster/gateway.rs"]
mod gateway;
#[path = "cluster/informer_set.rs"]
mod informer_set;
#[path = "cluster/informers.rs"]
mod informers;
#[path = "cluster/languages.rs"]
mod languages;
#[path = "cluster/managers.rs"]
mod managers;
#[cfg(feature = "ring")]
#[path = "cluster/metadata.rs"]
mod metadata;
#[cfg(feature = "testing")]
#[cfg(feature = "ring")]
#[path = "cluster/model.rs"]
mod model;
#[path = "cluster/namespaces.rs"]
mod namespaces;
#[path = "cluster/plugins.rs"]
mod plugins;
#[path = "cluster/protocol.rs"]
mod protocol;
#[path = "cluster/proxies.rs"]
mod proxies;
#[cfg(feature = "testing")]
#[path = "cluster/recorder.rs"]
mod recorder;
#[path = "cluster/representations.rs"]
mod representations;
#[path = "cluster/rotation.rs"]
mod rotation;
#[path = "cluster/site.rs"]
mod site;
#[cfg(feature = "snapshot")]
#[path = "cluster/snapshot.rs"]
mod snapshot;
#[path = "cluster/stores.rs"]
mod stores;
#[path = "cluster/strategies.rs"]
mod strategies;
#[path = "cluster/support.rs"]
mod support;
#[path = "cluster/watch_budget.rs"]
mod watch_budget;
#[path = "cluster/writes.rs"]
mod writes;
