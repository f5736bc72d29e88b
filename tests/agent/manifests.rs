//! The files of `examples/node_agent/deploy` against each other and against the agent: it runs with
//! the flags of each `DaemonSet`, and answers where kubelets and Prometheus ask.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubecache::object::{ObjectKey, Resource};
use kubecache::testing::ApiServer;
use rustix::process::Signal;
use serde_json::Value;

use super::AGENT;
use super::probes::{FLAG, get, told};
use crate::support::example::Running;
use crate::support::{TempDirectory, until_some};

const METRICS: &str = "--metrics-bind-address";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Of `daemonset.yaml`, `files.yaml` and `node-identity.yaml`.
const DAEMON_SETS: [&str; 3] = ["node-agent", "node-agent-files", "node-agent-by-node"];

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/node_agent/deploy")
}

fn monitors() -> Resource {
    Resource::new("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")
}

/// A server that has the objects of all manifests.
fn server() -> ApiServer {
    let of_rbac =
        |plural: &'static str, kind: &'static str| Resource::new(RBAC, "v1", plural, kind);
    let server = ApiServer::builder()
        .resource(of_rbac("clusterroles", "ClusterRole").cluster_scoped())
        .resource(of_rbac("clusterrolebindings", "ClusterRoleBinding").cluster_scoped())
        .resource(of_rbac("roles", "Role"))
        .resource(of_rbac("rolebindings", "RoleBinding"))
        .resource(monitors());
    let server = server.start().unwrap();
    let mut loaded = 0;
    for entry in fs::read_dir(deploy()).unwrap() {
        let path = entry.unwrap().path();
        let is_yaml = path.extension().is_some_and(|end| end == "yaml");
        if is_yaml && !path.ends_with("config.yaml") {
            loaded += server.load(&fs::read_to_string(&path).unwrap()).unwrap();
        }
    }
    assert!(loaded > 12, "{loaded}");
    server
}

/// The one container of a set.
fn container(set: &DaemonSet) -> &Container {
    let template = &set.spec.template;
    &template.spec.as_ref().unwrap().containers[0]
}

/// The values of the flags, by their names.
fn flag<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let mut flags = container.args.iter().flatten();
    flags.find_map(|flag| flag.strip_prefix(name)?.strip_prefix('='))
}

/// The port that an address of a flag has.
fn port_of(address: &str) -> i32 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// The number of a port of the container.
fn number(container: &Container, port: &IntOrString) -> i32 {
    let name = match port {
        IntOrString::Int(number) => return *number,
        IntOrString::String(name) => name,
    };
    named(container, name).unwrap_or_else(|| panic!("no port is called {name}"))
}

fn named(container: &Container, name: &str) -> Option<i32> {
    let mut ports = container.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some(name));
    port.map(|port| port.container_port)
}

/// Runs the agent with the container's flags, but for what another machine has elsewhere.
fn start(container: &Container, server: &ApiServer, directory: &TempDirectory) -> Running {
    let kubeconfig = directory.join("kubelet.conf");
    fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let files = directory.join("files");
    let flags = container.args.iter().flatten().map(|flag| {
        let (name, value) = flag.split_once('=').unwrap();
        let value = match name {
            FLAG | METRICS => "127.0.0.1:0",
            "--kubeconfig" => kubeconfig.to_str().unwrap(),
            "--output-dir" => files.to_str().unwrap(),
            _ => value,
        };
        format!("{name}={value}")
    });
    let flags: Vec<_> = flags.collect();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let mut command = AGENT.plain_command(&flags);
    let variables = container.env.iter().flatten();
    command.envs(variables.map(|variable| (&variable.name, "n1")));
    if flag(container, "--kubeconfig").is_none() {
        // In place of a service account.
        command.env("KUBECONFIG", &kubeconfig);
    }
    Running::new(command)
}

/// Asks for a page until it is there.
#[track_caller]
fn wait_for(address: SocketAddr, path: &str) -> String {
    until_some(|| {
        let (code, body) = get(address, path);
        assert!([200, 500].contains(&code), "{path}: {code} {body}");
        (code == 200).then_some(body)
    })
}

#[test]
fn the_agent_of_each_daemon_set_answers_where_kubelets_and_prometheus_ask() {
    let server = server();
    let key = ObjectKey::new("kubecache", "node-agent");
    let monitor = server.get_value(&monitors(), &key).unwrap().unwrap();
    let selected = &monitor["spec"]["selector"]["matchLabels"];
    let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array().unwrap();
    let mut scraped = 0;
    for name in DAEMON_SETS {
        let set = server.get::<DaemonSet>("kubecache", name).unwrap().unwrap();
        let spec = &set.spec;
        let labels = spec.template.metadata.as_ref().unwrap().labels.clone();
        assert_eq!(labels, spec.selector.match_labels, "{name}");
        assert_eq!(&serde_json::to_value(labels).unwrap(), selected, "{name}");

        let container = container(&set);
        // An agent that waits for a server without end costs no restart.
        assert_eq!(flag(container, "--timeout"), Some("0"), "{name}");
        let directory = TempDirectory::new("agent-manifests");
        let mut agent = start(container, &server, &directory);
        let listening = |flag| format!("{flag}: listening at ");
        let address = told(&mut agent, &listening(FLAG)).parse().unwrap();
        let port = port_of(flag(container, FLAG).unwrap());
        let probes = [
            &container.startup_probe,
            &container.liveness_probe,
            &container.readiness_probe,
        ];
        let mut paths = Vec::new();
        for probe in probes.into_iter().flatten() {
            let Probe { http_get, .. } = probe;
            let asked = http_get.as_ref().unwrap();
            assert_eq!(number(container, &asked.port), port, "{name}");
            let path = asked.path.as_deref().unwrap();
            wait_for(address, path);
            paths.push(path);
        }
        assert!(paths.ends_with(&["/livez", "/readyz"]), "{name}: {paths:?}");

        let metrics = flag(container, METRICS);
        for Endpoint { port, path } in endpoints.iter().map(Endpoint::of) {
            // Prometheus passes over a pod that has no port of the name.
            let found = named(container, port);
            assert_eq!(found, metrics.map(port_of), "{name}");
            if found.is_some() {
                let address = told(&mut agent, &listening(METRICS)).parse().unwrap();
                let page = wait_for(address, path);
                assert!(page.contains("\nkubecache_build_info{"), "{page}");
                scraped += 1;
            }
        }
        let ended = agent.stop(Signal::TERM);
        assert_eq!(ended.code, 0, "{name}: {}", ended.stderr);
    }
    assert_eq!(scraped, 2);
}

/// Where Prometheus is to ask.
struct Endpoint<'a> {
    port: &'a str,
    path: &'a str,
}

impl<'a> Endpoint<'a> {
    fn of(endpoint: &'a Value) -> Self {
        Self {
            port: endpoint["port"].as_str().unwrap(),
            path: endpoint["path"].as_str().unwrap(),
        }
    }
}

#[test]
fn the_shipped_configuration_is_right() {
    let config = deploy().join("config.yaml");
    let ended = AGENT.run(&["--config", config.to_str().unwrap(), "--check-config"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
