//! The managers against a real server in bulk: what the kubelet's own integration test asks of its
//! watch-based manager.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{LocalObjectReference, Pod, PodSpec};
use kubecache::clock::Clock;
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::worker::{Worker, live_workers};

use super::support::*;

const WORKERS: usize = 10;
/// In all fewer than upstream's 1,000: they fit under the ceiling that 1,024 descriptors allow.
const SECRETS_EACH: usize = 30;

fn name(worker: usize, number: usize) -> String {
    format!("bulk-{worker}-{number}")
}

fn pod(secret: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("bulk".into());
    pod.metadata.name = Some(format!("pod-{secret}"));
    pod.metadata.uid = Some(format!("uid-{secret}"));
    pod.spec = Some(PodSpec {
        image_pull_secrets: Some(vec![LocalObjectReference {
            name: secret.to_owned(),
        }]),
        ..PodSpec::default()
    });
    pod
}

fn apply_the_secrets() {
    let mut manifest = "{apiVersion: v1, kind: Namespace, metadata: {name: bulk}}\n".to_owned();
    for worker in 0..WORKERS {
        for number in 0..SECRETS_EACH {
            let name = name(worker, number);
            let metadata = format!("metadata: {{name: {name}, namespace: bulk}}");
            let secret =
                format!("apiVersion: v1, kind: Secret, {metadata}, stringData: {{key: {name}}}");
            manifest.push_str("---\n{");
            manifest.push_str(&secret);
            manifest.push_str("}\n");
        }
    }
    apply(&manifest);
}

/// `TestWatchBasedManager`: many Secrets from ten workers at once, each readable within ten
/// seconds; the end of the manager ends every watch.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn many_secrets_from_ten_workers_are_readable_within_ten_seconds() {
    let _alone = cluster_alone();
    apply_the_secrets();
    let manager = SecretManager::new(client_of("admin.yaml"), ManagerOptions::default()).unwrap();
    let started = Clock::system().now();
    let workers: Vec<Worker> = (0..WORKERS)
        .map(|worker| {
            let manager = manager.clone();
            Worker::spawn(format!("bulk-{worker}"), move |_| {
                for number in 0..SECRETS_EACH {
                    let name = name(worker, number);
                    manager.register_pod(&pod(&name));
                    let deadline = Clock::system().after(Duration::from_secs(10));
                    let secret = manager.get_by("bulk", &name, deadline).unwrap();
                    let data = secret.data.as_ref().unwrap();
                    assert_eq!(data["key"].0, name.as_bytes());
                }
            })
            .unwrap()
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    report(started, "read for the first time");
    let stopping = Clock::system().now();
    drop(manager);
    report(stopping, "let go");
    assert_eq!(live_workers(), 0, "no watch outlives the manager");
}

#[expect(clippy::print_stdout, reason = "figures for people")]
fn report(since: Instant, what: &str) {
    let took = Clock::system().now().duration_since(since);
    println!("{} Secrets {what} in {took:.1?}", WORKERS * SECRETS_EACH);
}
