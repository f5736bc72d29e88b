//! Against a real kube-apiserver and etcd: what the server accepts and answers, and the main job as a node's identity.
//!
//! These tests need a cluster, so a plain `cargo test` ignores them: `tests/cluster/run` starts one and runs them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

#[path = "cluster/agent.rs"]
mod agent;
#[path = "cluster/agent_program.rs"]
mod agent_program;
#[path = "cluster/audit.rs"]
mod audit;
#[path = "cluster/churn.rs"]
mod churn;
#[path = "cluster/gateway.rs"]
mod gateway;
#[path = "cluster/informer_set.rs"]
mod informer_set;
#[path = "cluster/informers.rs"]
mod informers;
#[path = "cluster/managers.rs"]
mod managers;
#[path = "node_agent/program.rs"]
#[expect(dead_code, reason = "runs that go on are followed by other tests")]
mod program;
#[path = "cluster/protocol.rs"]
mod protocol;
#[cfg(feature = "testing")]
#[path = "cluster/recorder.rs"]
mod recorder;
#[path = "cluster/stores.rs"]
mod stores;
#[path = "cluster/strategies.rs"]
mod strategies;
#[path = "cluster/support.rs"]
mod support;

/// What [`program`] runs.
const EXAMPLE: &str = "node_agent";
