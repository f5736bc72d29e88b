//! Stock clients of others against the API server of the tests: kubectl and a client-go informer,
//! built from Go modules, and a kube-rs controller.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

use kubecache::clock::{Clock, Deadline};
use kubecache::testing::{ApiServer, Fault, objects};

use super::support::{PATIENCE, cluster, directory};

fn soon() -> Deadline {
    Clock::system().after(PATIENCE)
}

/// A server with TLS and a token, as kubectl usually meets one.
fn server() -> ApiServer {
    let file = |name: &str| std::fs::read(directory().join("certs").join(name)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = [file("server.crt"), file("ca.crt")].concat();
    ApiServer::builder()
        .tls_with_clients(&chain, &file("server.key"), &file("ca.crt"), provider)
        .unwrap()
        .token("made-up", "tester", &["system:masters"])
        .start()
        .unwrap()
}

fn program(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(name).expect("run tests/cluster/run"))
}

/// A program that runs; killed at the end of the test.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads on until a line begins so.
    fn reads(&mut self, start: &str) {
        let mut others = Vec::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if line.starts_with(start) {
                return;
            }
            others.push(line);
        }
        panic!("no line begins with {start:?}: {others:#?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _has_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// kubectl with a home of its own.
struct Kubectl {
    home: PathBuf,
}

impl Kubectl {
    fn new(server: &ApiServer, name: &str) -> Self {
        let home = directory().join(name);
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("config"), server.kubeconfig()).unwrap();
        Self { home }
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(program("KUBECACHE_CLUSTER_KUBECTL"));
        command
            .env_clear()
            .env("HOME", &self.home)
            .env("KUBECONFIG", self.home.join("config"))
            .args(arguments.split(' '));
        command
    }

    /// Runs it to its end, which has to be a success, and returns what it writes.
    fn run(&self, arguments: &str, input: &str) -> String {
        let (succeeded, text) = self.tries(arguments, input);
        assert!(succeeded, "kubectl {arguments}: {text}");
        text
    }

    fn tries(&self, arguments: &str, input: &str) -> (bool, String) {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

const MANIFEST: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {k: "1"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "web:1", ports: [{containerPort: 80}], env: [{name: A, value: "1"}]}
      - {name: side, image: "side:1"}
---
apiVersion: v1
kind: Pod
metadata: {name: one, namespace: default}
spec:
  containers: [{name: c, image: "c:1"}]
---
apiVersion: v1
kind: Secret
metadata: {name: db, namespace: default}
stringData: {password: made-up}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80}]}
"#;

#[test]
#[ignore = "needs kubectl: tests/cluster/run"]
fn kubectl_lists_describes_applies_and_deletes() {
    let _shared = cluster();
    let server = server();
    let kubectl = Kubectl::new(&server, "kubectl-writes");
    let resources = kubectl.run("api-resources", "");
    for line in ["configmaps ", "deployments ", "customresourcedefinitions "] {
        assert!(resources.contains(line), "{resources}");
    }
    let version = kubectl.run("get --raw /version", "");
    assert!(version.contains("gitVersion"), "{version}");

    let apply = "apply --server-side=false -f -";
    let made = kubectl.run(apply, MANIFEST);
    assert_eq!(made.matches(" created").count(), 5, "{made}");
    let changed = MANIFEST
        .replace("web:1", "web:2")
        .replace("replicas: 2", "replicas: 3");
    let changed = changed.replace("{k: \"1\"}", "{k: \"2\"}");
    let changed = kubectl.run(apply, &changed);
    for line in [
        "configmap/settings configured",
        "web configured",
        "pod/one unchanged",
    ] {
        assert!(changed.contains(line), "{changed}");
    }
    let images = "get deploy web -o jsonpath={.spec.template.spec.containers[*].image}";
    assert_eq!(
        kubectl.run(images, ""),
        "web:2 side:1",
        "a list merges by name"
    );
    let (succeeded, refused) = kubectl.tries("apply --server-side -f -", MANIFEST);
    assert!(
        !succeeded && refused.contains("server-side apply"),
        "{refused}"
    );

    let table = kubectl.run("get pods,deployments,secrets", "");
    for part in ["pod/one", "0/1", "Pending", "0/3", "Opaque"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let labelled = kubectl.run(
        "get pods -A -l app=web --field-selector status.phase=Pending",
        "",
    );
    assert!(labelled.contains("No resources found"), "{labelled}");
    for object in [
        "pod/one",
        "deployment/web",
        "secret/db",
        "cm/settings",
        "svc/web",
        "ns/default",
    ] {
        let described = kubectl.run(&format!("describe {object}"), "");
        assert!(described.starts_with("Name:"), "{described}");
    }
    let (succeeded, absent) = kubectl.tries("get pod absent", "");
    assert!(
        !succeeded && absent.contains("(NotFound): pods \"absent\" not found"),
        "{absent}"
    );

    kubectl.run("label cm settings tier=x", "");
    let deleted = kubectl.run("delete -f -", MANIFEST);
    assert_eq!(deleted.matches(" deleted").count(), 5, "{deleted}");
    assert!(
        server
            .get::<ConfigMap>("default", "settings")
            .unwrap()
            .is_none()
    );
}

/// What the manual says of each command of kubectl.
#[test]
#[ignore = "needs kubectl: tests/cluster/run"]
fn the_commands_of_kubectl_do_what_the_manual_says() {
    let _shared = cluster();
    let server = server();
    let kubectl = Kubectl::new(&server, "kubectl-commands");
    let item = |kind: &str| {
        let metadata = r#"{"name": "l", "namespace": "default"}"#;
        format!(r#"{{"apiVersion": "v1", "kind": "{kind}", "metadata": {metadata}}}"#)
    };
    let items = [item("ConfigMap"), item("Secret"), item("Pod")].join(",");
    let list = format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{items}]}}"#);
    let made = kubectl.run("apply --server-side=false -f -", &list);
    assert_eq!(made.matches(" created").count(), 3, "{made}");
    let again = kubectl.run("apply --server-side=false -f -", &list);
    assert_eq!(again.matches(" unchanged").count(), 3, "{again}");
    kubectl.run("delete -f -", &list);
    kubectl.run("create -f -", &list);

    let map = "create configmap made --from-literal=k=v";
    let (succeeded, refused) = kubectl.tries(map, "");
    assert!(!succeeded && refused.contains("protobuf"), "{refused}");
    let map = kubectl.run(&format!("{map} --dry-run=client -o yaml"), "");
    kubectl.run("apply --server-side=false -f -", &map);
    kubectl.run("replace -f -", &map);
    let web = "create deployment web --image=web:1 --dry-run=client -o yaml";
    let web = kubectl.run(web, "");
    kubectl.run("apply --server-side=false -f -", &web);
    let node = "{apiVersion: v1, kind: Node, metadata: {name: node-1}}";
    kubectl.run("apply --server-side=false -f -", node);
    for works in [
        "run one --image=x:1",
        "patch cm made -p {\"data\":{\"k\":\"w\"}}",
        "annotate cm made a=b",
        "set image deploy web web=web:2",
        "rollout restart deploy web",
        "expose deploy web --port=80",
        "cordon node-1",
        "uncordon node-1",
        "taint node node-1 a=b:NoSchedule",
        "drain node-1",
        "explain cm",
        "events",
        "wait --for=jsonpath={.data.k}=w cm/made --timeout=60s",
        "get --raw /api/v1/namespaces",
        "api-versions",
        "cluster-info",
    ] {
        kubectl.run(works, "");
    }
    for absent in [
        "scale deploy web --replicas=2",
        "autoscale deploy web --max=3",
        "logs one",
        "exec one -- ls",
        "auth can-i get pods",
        "create token default",
    ] {
        let (succeeded, text) = kubectl.tries(absent, "");
        assert!(!succeeded, "kubectl {absent}: {text}");
    }
}

#[test]
#[ignore = "needs kubectl: tests/cluster/run"]
fn kubectl_watches_and_knows_kinds_of_definitions() {
    let _shared = cluster();
    let server = server();
    let kubectl = Kubectl::new(&server, "kubectl-watches");
    let map = |name: &str| objects::config_map("default", name, "", &[("k", "1")]);
    server.apply(&map("first")).unwrap();
    let mut watch = Running::start(&mut kubectl.command("get cm -w --output-watch-events"));
    watch.reads("ADDED      first");
    assert!(server.wait_for_watches(soon(), |open| open == 1));
    server.apply(&map("second")).unwrap();
    watch.reads("ADDED      second");
    server.delete::<ConfigMap>("default", "first").unwrap();
    watch.reads("DELETED    first");
    drop(watch);

    let definition = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: racks.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: racks, singular: rack, kind: Rack, shortNames: [rk]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
";
    kubectl.run("apply --server-side=false -f -", definition);
    kubectl.run(
        "wait --for=condition=Established crd/racks.example.com --timeout=60s",
        "",
    );
    let rack = "{apiVersion: example.com/v1, kind: Rack, metadata: {name: r}, spec: {size: 4}}";
    kubectl.run("apply --server-side=false -f -", rack);
    kubectl.run("apply --server-side=false -f -", &rack.replace('4', "7"));
    let table = kubectl.run("get rk", "");
    let mut words = table.split_whitespace();
    assert!(words.by_ref().take(3).eq(["NAME", "SIZE", "r"]), "{table}");
    assert_eq!(words.next(), Some("7"), "{table}");
    kubectl.run("delete rack r", "");
}

#[test]
#[ignore = "needs client-go: tests/cluster/run"]
fn a_client_go_informer_goes_through_a_410_and_a_cut() {
    let _shared = cluster();
    let server = server();
    let path = directory().join("informer.yaml");
    std::fs::write(&path, server.kubeconfig()).unwrap();
    let map = |name: &str, value: &str| {
        let map = objects::config_map("default", name, "", &[("k", value)]);
        server.apply(&map).unwrap();
    };
    map("a", "1");
    let mut command = Command::new(program("KUBECACHE_CLUSTER_INFORMER"));
    command.arg(&path).arg("default").stderr(Stdio::null());
    let mut informer = Running::start(&mut command);
    informer.reads("add default/a 1");
    informer.reads("synced");
    assert!(server.wait_for_watches(soon(), |open| open == 1));
    map("a", "2");
    informer.reads("update default/a 2");

    // Its version expires while nobody tells it what happens: it lists again, and misses nothing.
    server.expire_watches();
    map("b", "1");
    server.delete::<ConfigMap>("default", "a").unwrap();
    server.compact();
    informer.reads("add default/b 1");
    assert!(server.wait_for_watches(soon(), |open| open == 1));

    // A connection that breaks off costs no event.
    server.cut_watches();
    map("c", "1");
    informer.reads("add default/c 1");
}

/// The program of kube-rs. Without optimization and debug information it takes half the time.
fn controller() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("target/peers");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "-j", "2"])
        .args(["-p", "peer-kube-rs", "--bin", "controller", "--target-dir"])
        .arg(&target)
        .current_dir(root.join("benches/peers"))
        .env_remove("RUSTFLAGS")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .status();
    assert!(
        built.unwrap().success(),
        "the kube-rs controller does not build"
    );
    target.join("debug/controller")
}

#[test]
#[ignore = "needs the crate kube: tests/cluster/run"]
fn a_kube_rs_controller_reconciles_through_a_410_a_cut_and_a_refusal() {
    // First: others, which may want the cluster for themselves, need not wait for a compiler.
    let mut command = Command::new(controller());
    let _shared = cluster();
    let server = ApiServer::new().unwrap();
    let write = |name: &str, value: &str| {
        let map = objects::config_map("default", name, "", &[("k", value)]);
        server.apply(&map).unwrap();
    };
    write("a", "1");
    let mut controller = Running::start(command.arg(server.url()));
    controller.reads("reconciled a 1");
    assert!(server.wait_for_watches(soon(), |open| open == 1));
    write("a", "2");
    controller.reads("reconciled a 2");
    let a = server.get::<ConfigMap>("default", "a").unwrap().unwrap();
    assert_eq!(a.metadata.annotations.unwrap()["example.com/seen"], "2");

    // Its version expires while nobody tells it what happens.
    server.expire_watches();
    write("b", "1");
    server.compact();
    controller.reads("reconciled b 1");
    assert!(server.wait_for_watches(soon(), |open| open == 1));

    // A connection that breaks off costs no event, nor does a server that refuses for a while.
    server.cut_watches();
    write("c", "1");
    controller.reads("reconciled c 1");
    let busy = r#"{"act": "status", "code": 503, "watch": true, "times": 2}"#;
    server.add_fault(Fault::from_json(busy).unwrap());
    assert!(server.wait_for_watches(soon(), |open| open == 1));
    server.cut_watches();
    write("d", "1");
    controller.reads("reconciled d 1");
}
