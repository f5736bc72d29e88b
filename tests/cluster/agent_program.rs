//! The example `node_agent` against the real server: the node's own rows, and what wrong identities
//! and trust are told.

use super::audit::asked_as;
use super::support::{NODE, cluster, cluster_alone, directory};
use crate::support::example::{Ended, Example};

pub(crate) static AGENT: Example = Example::new("node_agent");

fn agent(kubeconfig: &str, more: &[&str]) -> Ended {
    let path = directory().join("kubeconfig").join(kubeconfig);
    let path = path.to_str().unwrap();
    let arguments = ["--kubeconfig", path, "--node-name", NODE, "--once"];
    AGENT.run(&[&arguments[..], more].concat())
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn the_node_sees_what_its_pods_name_by_certificate_by_files_and_by_token() {
    let _up = cluster();
    for kubeconfig in ["node.yaml", "node-files.yaml", "node-token.yaml"] {
        assert_sees_the_node(&agent(kubeconfig, &["-o", "json"]));
    }
}

fn assert_sees_the_node(ended: &Ended) {
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    let node: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let pods = node["pods"].as_array().unwrap();
    let objects = pods
        .iter()
        .flat_map(|pod| pod["objects"].as_array().unwrap());
    let states: Vec<_> = objects
        .map(|object| object["state"].as_str().unwrap())
        .collect();
    assert!(states.len() > 30, "{states:?}");
    assert!(
        states
            .iter()
            .all(|state| ["Synced", "NotFound"].contains(state)),
        "{states:?}"
    );
}

/// SC-2, OS-7, OS-18: the same rows without a list or watch of them; with `Cache` the node's own
/// object is followed.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn sc_2_os_18_the_node_sees_the_same_where_it_fetches() {
    let _alone = cluster_alone();
    let user_agent = concat!("node_agent/", env!("CARGO_PKG_VERSION"));
    for strategy in ["Cache", "Get"] {
        let before = asked_as(user_agent).len();
        let flags = ["-o", "json", "--change-detection", strategy];
        assert_sees_the_node(&agent("node.yaml", &flags));
        let asked = asked_as(user_agent).split_off(before);
        let (objects, others): (Vec<_>, Vec<_>) = asked
            .into_iter()
            .partition(|asked| ["secrets", "configmaps"].contains(&asked.resource.as_str()));
        assert!(objects.len() > 30, "{objects:?}");
        for asked in objects {
            assert!(
                ["get", "get 0"].contains(&asked.in_short().as_str()),
                "{asked:?}"
            );
            assert!([200, 404].contains(&asked.code), "{asked:?}");
        }
        let nodes = others.iter().filter(|asked| asked.resource == "nodes");
        let nodes: Vec<_> = nodes
            .map(|asked| (asked.verb.as_str(), asked.code))
            .collect();
        if strategy == "Cache" {
            assert_eq!(nodes.first(), Some(&("list", 200)), "{others:?}");
        } else {
            assert_eq!(nodes, [], "{others:?}");
        }
    }
}

/// Each ends with 1 and says what to look at.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn wrong_identities_and_wrong_trust_are_told_apart() {
    let _up = cluster();
    let unauthorized = "Error from server (Unauthorized): Unauthorized\n";
    let wrong_name = ["--tls-server-name", "wrong.example"];
    let rows: [(&str, &[&str], &str); 5] = [
        ("expired.yaml", &[], unauthorized),
        ("wrong-token.yaml", &[], unauthorized),
        (
            "nobody.yaml",
            &[],
            "Error from server (Forbidden): pods is forbidden: User \"nobody\" cannot list \
             resource \"pods\"",
        ),
        (
            "wrong-ca.yaml",
            &[],
            "certificate-authority has to hold the certificate of \"CN=",
        ),
        (
            "node.yaml",
            &wrong_name,
            " is not for \"wrong.example\", only for localhost",
        ),
    ];
    for (kubeconfig, more, told) in rows {
        let ended = agent(kubeconfig, more);
        assert_eq!(ended.code, 1, "{kubeconfig}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(told),
            "{kubeconfig}: {}",
            ended.stderr
        );
    }
}

/// The node authorizer lets a node follow its own pods alone.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn another_nodes_pods_are_refused() {
    let _up = cluster();
    let ended = agent("node.yaml", &["--node-name", "node-2"]);
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .stderr
            .contains("Error from server (Forbidden): pods is forbidden"),
        "{}",
        ended.stderr
    );
}
