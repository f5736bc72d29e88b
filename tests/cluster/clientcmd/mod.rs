//! The differential test of kubeconfigs: client-go and this client read the same generated files
//! and ask the same server, which notes what each of them sends.

mod cases;
mod witness;
mod yaml_cases;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions};
use kubecache::object::{ObjectKey, ResourceVersion};
use kubecache::worker::StopToken;

use self::cases::{Case, Places, cases};
use self::witness::{Seen, Witness};
use crate::support::TempDirectory;

/// Fewer would mean that a generator was lost.
const CASES_MIN: usize = 150;

/// Far more than a request to a local server takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where this client does otherwise on purpose, and why. The manual says the same.
const DIFFERENCES: &[(&str, &str)] = &[
    ("context-name-04", "an entry without a name"),
    ("context-name-05", "an entry without a name"),
    ("context-no-name", "an entry without a name"),
    ("context-null-entry", "an entry without a name"),
    (
        "context-null-users",
        "a context that names a user no file has",
    ),
    (
        "context-unknown-user",
        "a context that names a user no file has",
    ),
    ("credentials-colon", "a user name with a colon"),
    ("document-directive-1.2", "YAML 1.2 by its directive"),
    ("identity-both", "a field inline and as a file"),
    ("impersonate-spaces", "a name with blanks at an end"),
    ("impersonate-umlaut", "impersonation beyond ASCII"),
    ("proxy-http-plain", "a tunnel to a server without TLS"),
    ("proxy-socks5h", "socks5h"),
    ("server-fragment", "a fragment in the URL"),
    ("server-no-scheme", "a server without a scheme"),
    ("server-no-scheme-name", "a server without a scheme"),
    ("server-space", "a space in the URL"),
    ("server-user", "user and password in the URL"),
    ("shape-preferences-wrong", "fields that are not needed"),
    ("shape-two-lines", "a token with a space"),
    ("token-38", "a token with a space"),
    ("token-39", "a token beyond ASCII"),
    ("token-40", "a token with a space"),
    ("token-41", "a token with a space"),
    ("trust-both", "a field inline and as a file"),
    ("trust-spaces", "spaces in base64"),
    ("user-name-04", "an entry without a name"),
    ("user-name-05", "an entry without a name"),
];

/// client-go, as a program that is told of one file at a time.
struct ClientGo {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl ClientGo {
    fn start() -> Self {
        let program = std::env::var("KUBECACHE_CLUSTER_CLIENTCMD").expect("run tests/cluster/run");
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env_clear()
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn ask(&mut self, file: &Path) -> String {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{}", file.display()).unwrap();
        input.flush().unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(
            line.ends_with('\n'),
            "client-go ended at {}",
            file.display()
        );
        line.trim_end().to_owned()
    }
}

impl Drop for ClientGo {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Asks with this client.
fn ask(file: &Path) -> String {
    let asked = || {
        let config = Config::from_kubeconfig(&KubeconfigOptions::default().path(file))?;
        let client = Client::new(&config, ClientOptions::default())?;
        let getter = client.getter::<Secret>();
        let (key, newest) = (ObjectKey::new("shop", "db"), ResourceVersion::most_recent());
        let deadline = Clock::system().after(PATIENCE);
        getter
            .get(&key, &newest, deadline, &StopToken::never())
            .map(drop)
    };
    match asked() {
        Ok(()) => "answered".to_owned(),
        Err(error) => format!("error: {error}"),
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/certs")
        .join(name)
}

fn write(directory: &Path, case: &Case) -> PathBuf {
    let directory = directory.join(&case.name);
    fs::create_dir_all(&directory).unwrap();
    for (name, bytes) in case.files() {
        fs::write(directory.join(name), bytes).unwrap();
    }
    directory.join("config")
}

#[test]
#[ignore = "needs client-go: tests/cluster/run"]
fn kubeconfigs_send_what_client_go_sends() {
    let witness = Witness::start();
    let places = Places {
        port: witness.port(),
        proxy: witness.proxy_port(),
        certificates: fixture(""),
    };
    let cases = cases(&places);
    assert!(cases.len() >= CASES_MIN, "{}", cases.len());
    let directory = TempDirectory::new("clientcmd");
    let mut client_go = ClientGo::start();
    let mut differing = BTreeMap::new();
    let mut refused = 0_usize;
    for case in &cases {
        let file = write(&directory, case);
        let theirs = (client_go.ask(&file), witness.take());
        let ours = (ask(&file), witness.take());
        refused += usize::from(ours.1.is_empty());
        if ours.1 != theirs.1 {
            differing.insert(
                case.name.clone(),
                format!("\n  theirs {theirs:?}\n  ours   {ours:?}"),
            );
        }
    }
    drop(client_go);
    println!(
        "{} kubeconfigs: {} agree, {} differ; {refused} send nothing here",
        cases.len(),
        cases.len() - differing.len(),
        differing.len()
    );
    let known: BTreeMap<_, _> = DIFFERENCES.iter().copied().collect();
    let mut wrong: Vec<_> = differing
        .iter()
        .filter(|(name, _)| !known.contains_key(name.as_str()))
        .map(|(name, what)| format!("{name}: {what}"))
        .collect();
    let gone = known.keys().filter(|name| !differing.contains_key(**name));
    wrong.extend(gone.map(|name| format!("{name}: no longer differs")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// No two cases may overwrite each other.
#[test]
fn each_case_has_a_name_of_its_own() {
    let places = Places {
        port: 1,
        proxy: 2,
        certificates: fixture(""),
    };
    let cases = cases(&places);
    let names: std::collections::BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= CASES_MIN, "{}", cases.len());
}

impl PartialEq for Seen {
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}
