//! Bad input: each kind gives one clear error, exit code 1 or 2, and no panic.

use kubecache::testing::{Answer, ApiServer, Exchange, Fault, FixtureServer, Recording};

use super::AGENT;
use crate::support::TempDirectory;
use crate::support::example::Ended;

#[test]
fn wrong_usage_ends_with_2_one_line_and_a_hint() {
    let hint = "See 'node_agent --help' for usage.\n";
    for (arguments, told) in [
        (
            &["--nod-name", "x"][..],
            "error: unknown flag --nod-name; did you mean --node-name?\n",
        ),
        (
            &["--timeout", "1m", "--node-name"],
            "error: --node-name needs a value\n",
        ),
        (
            &["-o", "xml", "--node-name", "x"],
            "error: --output \"xml\": write one of table, wide, name, json, yaml\n",
        ),
        (
            &["--demo", "-n", "shop"],
            "error: --demo shows all recorded pods: leave --namespace and --selector out\n",
        ),
        (
            &["--demo", "--node-name", "other"],
            "error: --demo shows the recorded node node-1, not other\n",
        ),
        (
            &["--change-detection", "Poll", "--node-name", "x"],
            "error: unknown configmap and secret manager mode: Poll; \
             write one of Watch, Cache, Get\n",
        ),
        (
            &["--sync-frequency", "10ms", "--node-name", "x"],
            "error: --sync-frequency: write a second or more\n",
        ),
        (
            &["--once"],
            "error: which node? give --node-name, or set NODE_NAME\n",
        ),
    ] {
        let ended = AGENT.run(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}");
        assert_eq!(ended.stderr, format!("{told}{hint}"));
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn help_and_version_are_answers() {
    let help = AGENT.run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    assert!(help.stdout.contains("\nExit codes:\n"));
    let version = AGENT.run(&["--version"]);
    assert_eq!(AGENT.run(&["-V"]).stdout, version.stdout);
    assert_eq!(
        version.stdout,
        format!("node_agent {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn without_a_cluster_it_names_what_it_looked_for_and_mentions_the_demo() {
    let ended = AGENT.run_in(&["--once"], &[("NODE_NAME", "n1")]);
    assert_eq!(ended.code, 1);
    assert_eq!(
        ended.stderr,
        "error: no cluster is configured; looked for: KUBECONFIG (not set); \
         /nonexistent/.kube/config (no such file); KUBERNETES_SERVICE_HOST (not set, so this is \
         no pod)\n\
         To see the agent at work without a cluster, run it with --demo.\n"
    );
}

#[test]
fn a_kubeconfig_that_is_missing_broken_or_lacks_the_context() {
    let directory = env!("CARGO_MANIFEST_DIR");
    let first = format!("{directory}/fixtures/kubeconfig/first.yaml");
    let not_yaml = format!("{directory}/fixtures/certs/server.pem");
    for (arguments, told) in [
        (
            vec!["--kubeconfig", "/nonexistent/config"],
            "error: kubeconfig /nonexistent/config: no such file\n".to_owned(),
        ),
        (
            vec!["--kubeconfig", &not_yaml],
            format!("error: kubeconfig {not_yaml}: "),
        ),
        (
            vec!["--kubeconfig", &first, "--context", "depot"],
            "error: context \"depot\" does not exist; there are: shop\n".to_owned(),
        ),
    ] {
        let ended = AGENT.run(&[&arguments[..], &["--node-name", "n1", "--once"]].concat());
        assert_eq!(ended.code, 1);
        assert!(ended.stderr.starts_with(&told), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1);
    }
}

/// A kubeconfig whose credential plugin is a shell with this script.
pub(super) fn with_plugin(script: &str) -> String {
    format!(
        "clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', \
         insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, \
         interactiveMode: Never, command: sh, args: [-c, '{script}']}}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
    )
}

/// What a plugin says of its failure is on the agent's standard error, and in the error; what it
/// answers is nowhere.
#[test]
fn a_credential_plugin_that_fails_is_named_beside_its_own_words() {
    let directory = TempDirectory::new("agent-plugin");
    let kubeconfig = directory.join("config");
    let text = with_plugin("echo no login >&2; echo canary; exit 3");
    std::fs::write(&kubeconfig, text).unwrap();
    let path = kubeconfig.to_str().unwrap();
    let arguments = [
        "--kubeconfig",
        path,
        "--node-name",
        "n1",
        "--once",
        "--timeout",
        "2s",
    ];
    let ended = AGENT.run_in(&arguments, &[("PATH", "/usr/bin:/bin")]);
    assert_eq!(ended.code, 1);
    let expected = format!(
        "{path}: users[name=u].user.exec: the credential plugin \"sh\" failed with exit code 3: \
         run it by hand to see more: the end of its standard error: no login"
    );
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    assert!(
        ended.stderr.lines().any(|line| line == "no login"),
        "{}",
        ended.stderr
    );
    let shown = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!shown.contains("canary"), "{shown}");
}

/// Whatever the server does: the agent ends by itself with 1 and says what it met.
fn against(limit: &str, faults: &str) -> Ended {
    let server = ApiServer::new().unwrap();
    for fault in Fault::list_from_json(faults).unwrap() {
        server.add_fault(fault);
    }
    ended_with(&server.url(), limit)
}

fn ended_with(url: &str, limit: &str) -> Ended {
    let arguments = ["--node-name", "n1", "--once", "--timeout", limit];
    let ended = AGENT.run(&[&["--server", url][..], &arguments].concat());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("error: "), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ended
}

#[test]
fn a_server_that_is_not_there_or_hangs_up() {
    let server = ApiServer::new().unwrap();
    server.crash();
    let told = ended_with(&server.url(), "20s").stderr;
    assert!(told.contains("Connection refused"), "{told}");
    drop(against(
        "3s",
        r#"{"act": "cut", "part": "head", "after": 0}"#,
    ));
}

#[test]
fn a_server_that_is_no_kubernetes() {
    let pods = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1";
    let web = Recording::new().with(Exchange::get(pods, Answer::text(404, "nope\n")));
    let server = FixtureServer::replaying(web).start().unwrap();
    let told = ended_with(&server.url(), "5m").stderr;
    assert!(told.contains("is this a Kubernetes API server"), "{told}");
    let no_http = r#"{"act": "flip-bit", "part": "head", "at": 0}"#;
    for fault in [r#"{"act": "html"}"#, no_http] {
        drop(against("3s", fault));
    }
}

#[test]
fn a_body_that_is_cut_or_not_json() {
    for fault in [
        r#"{"act": "cut", "part": "body", "after": 20}"#,
        r#"{"act": "flip-bit", "part": "body", "at": 0}"#,
    ] {
        drop(against("3s", fault));
    }
}

#[test]
fn a_gigabyte_of_an_item_a_line_or_a_body_without_end() {
    for part in ["item", "line", "body"] {
        let fault = format!(r#"{{"act": "unfinished", "part": "{part}", "mebibytes": 1024}}"#);
        let told = against("3s", &fault).stderr;
        assert!(told.len() < 4096, "the error does not repeat the body");
    }
}
