//! The files of `examples/node_agent/deploy`: the server takes them, the agent needs the rights
//! that they give it and no others, and it says which one is missing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kubecache::clock::Clock;
use kubecache::worker::StopToken;
use serde_json::Value;

use super::agent_program::AGENT;
use super::plugins::Stage;
use super::support::*;
use crate::support::example::Ended;

/// Between two looks at what the server allows by now.
const TICK: Duration = Duration::from_millis(50);

fn manifest(name: &str) -> String {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/node_agent/deploy");
    fs::read_to_string(deploy.join(name)).unwrap()
}

/// A kubeconfig with the identity of the manifests: a token of their service account.
fn identity() -> Stage {
    let account = get::<ServiceAccount>(&client_of("admin.yaml"), "kubecache", "node-agent");
    let uid = account.unwrap().metadata.uid.clone().unwrap();
    let key = directory().join("certs/service-account.key");
    let settings = [
        ("LIFE", "3600".to_owned()),
        ("ACCOUNT", format!("kubecache node-agent {uid}")),
        ("KEY", key.display().to_string()),
    ];
    let server = std::env::var("KUBECACHE_CLUSTER_SERVER").unwrap();
    let cluster = format!("server: '{server}', certificate-authority: ../certs/ca.crt");
    Stage::new("deploy", &cluster, &settings)
}

fn agent(stage: &Stage) -> Ended {
    let kubeconfig = stage.0.join("config");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let arguments = [
        "--kubeconfig",
        kubeconfig,
        "--node-name",
        NODE,
        "--once",
        "--watches-max=1000",
        "-o",
        "json",
    ];
    // The plugin is a script: it looks for its tools.
    let path = std::env::var("PATH").unwrap();
    AGENT.run_in(&arguments, &[("PATH", &path)])
}

/// Name and state of each object that the pods name.
fn states(ended: &Ended) -> Vec<(String, String)> {
    let Ok(node) = serde_json::from_str::<Value>(&ended.stdout) else {
        return Vec::new();
    };
    let pods = node["pods"].as_array().unwrap();
    let objects = pods
        .iter()
        .flat_map(|pod| pod["objects"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    objects
        .map(|object| {
            (
                format!("{} {}", text(&object["kind"]), text(&object["name"])),
                text(&object["state"]),
            )
        })
        .collect()
}

/// Runs the agent until it ends so: the server learns of changed rights a moment later.
fn until(what: &str, stage: &Stage, is_it: impl Fn(&Ended) -> bool) {
    let clock = Clock::system();
    let limit = clock.after(PATIENCE);
    loop {
        let ended = agent(stage);
        if is_it(&ended) {
            return;
        }
        assert!(!clock.has_passed(limit), "{what}: {ended:#?}");
        StopToken::never().wait_until(&clock, clock.after(TICK));
    }
}

fn are_all_answered(ended: &Ended) -> bool {
    let states = states(ended);
    let answered = |state: &str| ["Synced", "NotFound"].contains(&state);
    ended.code == 0 && states.len() > 30 && states.iter().all(|(_, state)| answered(state))
}

/// Secrets of the namespace are refused, and other objects are answered.
fn are_secrets_forbidden(ended: &Ended) -> bool {
    let states = states(ended);
    ended.code == 0
        && !states.is_empty()
        && states
            .iter()
            .all(|(object, state)| object.starts_with("Secret ") == (state == "Forbidden"))
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn the_agent_runs_with_the_rights_of_its_manifests_and_says_which_one_is_missing() {
    let _up = cluster();
    for name in [
        "daemonset.yaml",
        "node-identity.yaml",
        "files.yaml",
        "roles.yaml",
    ] {
        apply(&manifest(name));
    }
    let stage = identity();
    until("all rights", &stage, are_all_answered);

    let roles = manifest("roles.yaml");
    let objects = "resources: [secrets, configmaps], verbs: [get, list, watch]";
    let pods = "resources: [pods], verbs: [list, watch]";
    assert!(roles.contains(objects) && roles.contains(pods));

    let watched = "resources: [secrets, configmaps], verbs: [list, watch]";
    apply(&roles.replace(objects, watched));
    let warned = "the agent may not get secrets";
    until("no right to get", &stage, |ended| {
        are_all_answered(ended) && ended.stderr.contains(warned)
    });

    apply(&roles.replace(
        objects,
        "resources: [configmaps], verbs: [get, list, watch]",
    ));
    until("no right to Secrets", &stage, are_secrets_forbidden);

    apply(&roles.replace(pods, "resources: [pods], verbs: [get]"));
    let told = "pods is forbidden: User \"system:serviceaccount:kubecache:node-agent\" cannot ";
    until("no right to the pods", &stage, |ended| {
        ended.code == 1 && ended.stderr.contains(told)
    });
    apply(&roles);
    until("all rights again", &stage, are_all_answered);

    let at = roles.rfind("apiVersion: rbac").unwrap();
    change("delete", &roles[at..]);
    apply(&manifest("roles-by-name.yaml"));
    let by_name = [
        "Secret storefront-session",
        "Secret storefront-tls",
        "ConfigMap storefront-settings",
    ];
    until("rights by name", &stage, |ended| {
        let states = states(ended);
        let allowed = |object: &str| by_name.contains(&object);
        ended.code == 0
            && !states.is_empty()
            && states
                .iter()
                .all(|(object, state)| allowed(object) == (state != "Forbidden"))
    });
}
