//! The example `serve` as a test in another language meets it: its first line, its kubeconfig, its
//! control port, and how it ends.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use k8s_openapi::api::core::v1::{Pod, Secret};
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions};
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::object::Scope;
use kubecache::testing::objects;
use serde_json::{Value, json};

use crate::support::TempDirectory;
use crate::support::example::{Example, Killed};

static SERVE: Example = Example::new("serve");

const MANIFESTS: &str = "
apiVersion: v1
kind: Secret
metadata: {namespace: shop, name: db}
stringData: {password: made-up}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crons.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crons, singular: cron, kind: Cron}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: stable.example.com/v1
kind: Cron
metadata: {namespace: shop, name: nightly}
";

/// A run that is ready, and a test's way to its control port.
struct Serving {
    child: Killed,
    stdin: Option<ChildStdin>,
    ready: Value,
}

impl Serving {
    fn start(arguments: &[&str]) -> Self {
        let mut command = SERVE.plain_command(arguments);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let child = Killed(child);
        Self {
            ready: serde_json::from_str(&line).unwrap(),
            child,
            stdin,
        }
    }

    fn text(&self, field: &str) -> &str {
        self.ready[field].as_str().unwrap()
    }

    /// Asks the control port; its answer is JSON.
    fn control(&self, method: &str, path: &str, body: &str) -> Value {
        serde_json::from_str(&self.control_text(method, path, body)).unwrap()
    }

    fn control_text(&self, method: &str, path: &str, body: &str) -> String {
        let address = self.text("control").strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: control\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        if !head.contains("chunked") {
            return body.to_owned();
        }
        // One chunk of one line, after the line with its length.
        body.lines().nth(1).unwrap().to_owned()
    }

    fn client(&self) -> Client {
        let path = self.text("kubeconfig");
        let config = Config::from_kubeconfig(&KubeconfigOptions::default().path(path)).unwrap();
        Client::new(&config, ClientOptions::default()).unwrap()
    }
}

fn soon() -> Deadline {
    Clock::system().after(std::time::Duration::from_secs(5 * 60))
}

fn password(secret: &Secret) -> &[u8] {
    &secret.data.as_ref().unwrap()["password"].0
}

#[test]
fn a_test_in_any_language_rotates_a_secret_and_ends_the_server_through_the_control_port() {
    let folder = TempDirectory::new("serve");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    fs::write(path("state.yaml"), MANIFESTS).unwrap();
    let serving = Serving::start(&[
        "--load",
        &path("state.yaml"),
        "--tls",
        "--kubeconfig",
        &path("config"),
    ]);
    assert!(serving.text("url").starts_with("https://127.0.0.1:"));

    let client = serving.client();
    let secrets = SecretManager::new(client.clone(), ManagerOptions::default()).unwrap();
    let changes = secrets.subscribe();
    secrets.register_pod(&objects::pod("shop", "web-0", "node-1", &["db"], &[]));
    assert_eq!(
        password(&secrets.get_by("shop", "db", soon()).unwrap()),
        b"made-up"
    );
    assert_eq!(
        serving.control("GET", "/wait/watches/1", ""),
        json!({"count": 1})
    );
    let rotated = MANIFESTS.replace("made-up", "another");
    assert_eq!(
        serving.control("POST", "/objects", &rotated),
        json!({"written": 3})
    );
    while password(&secrets.get_by("shop", "db", soon()).unwrap()) != b"another" {
        changes.signal().recv().unwrap();
    }

    // The server is gone: reads go on, and the watch is back when it is.
    serving.control("POST", "/crash", "");
    assert_eq!(
        password(&secrets.get_by("shop", "db", soon()).unwrap()),
        b"another"
    );
    serving.control("POST", "/come-back", "");
    assert_eq!(
        serving.control("GET", "/wait/watches/1", ""),
        json!({"count": 1})
    );
    let version = serving.control("GET", "/version", "")["version"]
        .as_u64()
        .unwrap();
    serving.control("POST", "/compact", "");
    let refused = serving.control("POST", &format!("/restore/{}", version - 1), "");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("the history goes from"),
        "{refused}"
    );
}

#[test]
fn faults_come_from_a_file_and_through_the_control_port_which_tells_what_they_met() {
    let folder = TempDirectory::new("serve");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let faults = json!([{"act": "status", "code": 503, "resource": "pods", "times": 2}]);
    fs::write(path("faults.json"), faults.to_string()).unwrap();
    let serving = Serving::start(&[
        "--faults",
        &path("faults.json"),
        "--kubeconfig",
        &path("config"),
    ]);
    let client = serving.client();

    let listed = serving.control("GET", "/faults", "");
    assert_eq!(listed[0]["fault"], faults[0]);
    // After a 503 the client asks once more.
    let error = client.list::<Pod>(Scope::namespace("shop")).unwrap_err();
    assert_eq!((error.status().unwrap().code(), error.attempts()), (503, 2));
    client.list::<Pod>(Scope::namespace("shop")).unwrap();
    let added = r#"{"act": "status", "code": 403, "resource": "pods"}"#;
    let added = serving.control("POST", "/faults", added);
    let id = added["ids"][0].as_str().unwrap();
    let error = client.list::<Pod>(Scope::namespace("shop")).unwrap_err();
    assert_eq!(error.kind(), kubecache::ErrorKind::Forbidden);
    serving.control("DELETE", &format!("/faults/{id}"), "");
    client.list::<Pod>(Scope::namespace("shop")).unwrap();
    let requests = serving.control("GET", "/requests", "");
    let requests = requests.as_array().unwrap();
    let pods = requests
        .iter()
        .filter(|request| request["path"] == "/api/v1/namespaces/shop/pods");
    let answered: Vec<_> = pods
        .map(|request| request["answered"].as_str().unwrap())
        .collect();
    assert_eq!(answered, ["Fault", "Fault", "Served", "Fault", "Served"]);
    let count = requests.len();
    let wait = serving.control("GET", &format!("/wait/requests/{count}"), "");
    assert_eq!(wait, json!({ "count": count }));
}

#[test]
fn time_stands_still_until_the_control_port_lets_it_pass() {
    let folder = TempDirectory::new("serve");
    let kubeconfig = folder.join("config");
    let arguments = [
        "--stopped-clock",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    let serving = Serving::start(&arguments);
    let made_at = |name: &str| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": "shop", "name": name}});
        serving.control("POST", "/objects", &secret.to_string());
        let secrets = serving
            .client()
            .list::<Secret>(Scope::namespace("shop"))
            .unwrap();
        let secret = secrets
            .into_iter()
            .find(|secret| secret.metadata.name.as_deref() == Some(name));
        secret
            .unwrap()
            .metadata
            .creation_timestamp
            .clone()
            .unwrap()
            .0
    };
    let first = made_at("first");
    assert_eq!(made_at("second"), first);
    serving.control("POST", "/clock/3600", "");
    assert_eq!(made_at("third").as_second() - first.as_second(), 3600);
}

#[test]
fn tls_is_rotated_through_the_control_port_which_tells_the_new_kubeconfig() {
    let folder = TempDirectory::new("serve");
    let kubeconfig = folder.join("config");
    let serving = Serving::start(&["--tls", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    let list = || serving.client().list::<Secret>(Scope::namespace("shop"));
    list().unwrap();
    serving.control("POST", "/rotate-tls/another", "");
    let refused = list().unwrap_err();
    assert_eq!(refused.kind(), kubecache::ErrorKind::Tls, "{refused}");
    fs::write(&kubeconfig, serving.control_text("GET", "/kubeconfig", "")).unwrap();
    list().unwrap();
}

#[test]
fn it_ends_with_its_standard_input_if_it_is_told_to() {
    let mut serving = Serving::start(&["--until-stdin-ends"]);
    drop(serving.stdin.take());
    assert!(serving.child.0.wait().unwrap().success());
}

#[test]
fn a_recording_is_a_state_to_begin_with() {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/node-1.jsonl");
    let folder = TempDirectory::new("serve");
    let kubeconfig = folder.join("config");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let arguments = [
        "--load",
        recording.to_str().unwrap(),
        "--kubeconfig",
        kubeconfig,
    ];
    let serving = Serving::start(&arguments);
    let pods = serving.client().list::<Pod>(Scope::all());
    assert!(pods.unwrap().len() > 5);
}

/// The page that shows the same test in three languages.
const PAGE: &str = include_str!("../src/manual/other_languages.md");

#[test]
fn the_pages_test_in_python_passes() {
    let (_, block) = PAGE.split_once("```python\n").unwrap();
    let (program, _) = block.split_once("```").unwrap();
    let folder = TempDirectory::new("python");
    let path = folder.join("rotation.py");
    fs::write(&path, program).unwrap();
    let mut command = Command::new("python3");
    command.arg(&path).env("SERVE", SERVE.program());
    match command.output() {
        Ok(ended) => {
            let told = String::from_utf8_lossy(&ended.stderr);
            assert!(
                ended.status.success() && told.contains("Ran 1 test"),
                "{told}"
            );
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("not tried: python3 is not installed here");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn each_mistake_names_what_is_wrong_with_which_file_and_ends_the_program() {
    let folder = TempDirectory::new("serve");
    let path = |name: &str, text: &str| {
        let path = folder.join(name).to_str().unwrap().to_owned();
        fs::write(&path, text).unwrap();
        path
    };
    let unknown = path(
        "unknown.yaml",
        "apiVersion: v1\nkind: Nonsense\nmetadata: {name: what}\n",
    );
    let broken = path("broken.yaml", "apiVersion: v1\n---\na: [\n");
    let faults = path("faults.json", "[{\"act\": \"status\", \"code\": \"403\"}]");
    let rows: [(Vec<&str>, Vec<&str>); 8] = [
        (
            vec!["--load", &unknown],
            vec![
                "unknown.yaml",
                "Nonsense \"what\"",
                "does not have the kind",
            ],
        ),
        (vec!["--load", &broken], vec!["broken.yaml", "line 3"]),
        (
            vec!["--load", "/nowhere.yaml"],
            vec!["/nowhere.yaml", "No such file"],
        ),
        (
            vec!["--faults", &faults],
            vec!["faults.json", "fault 0", "`code`"],
        ),
        (vec!["--token", "t"], vec!["TOKEN=USER"]),
        (vec!["--port", "70000"], vec!["70000", "65535"]),
        (
            vec!["--kubeconfig", "/nowhere/config"],
            vec!["/nowhere/config"],
        ),
        (vec!["--nonsense"], vec!["--nonsense", "--help"]),
    ];
    for (arguments, words) in rows {
        let ended = SERVE.plain_command(&arguments).output().unwrap();
        assert!(!ended.status.success(), "{arguments:?}");
        let told = String::from_utf8(ended.stderr).unwrap();
        assert!(
            words.iter().all(|word| told.contains(word)),
            "{arguments:?}: {told}"
        );
    }
}
