//! Bad input: each kind gives one clear error, exit code 1 or 2, and no panic.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use kubecache::worker::Worker;

use super::AGENT;
use crate::support::TempDirectory;
use crate::support::example::Ended;

#[test]
fn wrong_usage_ends_with_2_one_line_and_a_hint() {
    let hint = "See 'node_agent --help' for usage.\n";
    for (arguments, told) in [
        (&["--nod-name", "x"][..], "error: unknown flag --nod-name\n"),
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
            "error: unknown configmap and secret manager mode: Poll\n",
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
    assert!(help.stdout.contains("Exit codes: "));
    let version = AGENT.run(&["--version"]);
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

/// What a plugin says of its failure is on the agent's standard error; what it writes is nowhere.
#[test]
fn a_credential_plugin_that_fails_is_named_beside_its_own_words() {
    let directory = TempDirectory::new("agent-plugin");
    let kubeconfig = directory.join("config");
    let text = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', \
                insecure-skip-tls-verify: true}}]\n\
                users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, \
                interactiveMode: Never, command: sh, \
                args: [-c, 'echo no login >&2; echo canary; exit 3']}}}]\n\
                contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
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
        "{path}: users[name=u].user.exec: the credential plugin \"sh\" failed with exit code 3: "
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

/// Whatever the server sends: the agent ends by itself with 1 and says what it met.
fn against(answer: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + 'static) -> Ended {
    against_within("3s", answer)
}

/// The same, by a limit that the answer has to come in, if what is told is to be of it.
fn against_within(
    limit: &str,
    answer: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + 'static,
) -> Ended {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let address = listener.local_addr().unwrap();
    let server = Worker::spawn("t-bad-server", move |stop| {
        for stream in listener.incoming() {
            if stop.is_stopped() {
                return;
            }
            let mut stream = stream.unwrap();
            let mut request = [0_u8; 4096];
            if stream.read(&mut request).is_ok() {
                // The client hangs up on what it does not take: that is the end of this answer.
                drop(answer(&mut stream));
            }
        }
    })
    .unwrap();
    let ended = AGENT.run(&[
        "--server",
        &url,
        "--node-name",
        "n1",
        "--once",
        "--timeout",
        limit,
    ]);
    server.stop();
    // One more connection, so that it sees the stop.
    drop(TcpStream::connect(address));
    server.join().unwrap();
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("error: "), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ended
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";

#[test]
fn a_server_that_is_not_there_or_hangs_up() {
    let url = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let ended = AGENT.run(&[
        "-s",
        &url,
        "--node-name",
        "n1",
        "--once",
        "--timeout",
        "20s",
    ]);
    assert_eq!(ended.code, 1);
    assert!(
        ended.stderr.contains("Connection refused"),
        "{}",
        ended.stderr
    );
    drop(against(|_stream| Ok(())));
}

#[test]
fn a_server_that_is_no_kubernetes() {
    let ended = against_within("5m", |stream| {
        stream.write_all(
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\nconnection: close\r\n\r\nnope\n",
        )
    });
    assert!(
        ended.stderr.contains("is this a Kubernetes API server"),
        "{}",
        ended.stderr
    );
    drop(against(|stream| {
        stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n")
    }));
}

#[test]
fn a_body_that_is_cut_or_not_json() {
    drop(against(|stream| {
        stream.write_all(HEAD)?;
        stream.write_all(b"content-length: 1000\r\n\r\n{\"kind\":\"PodList\",\"items\":[{")
    }));
    drop(against(|stream| {
        stream.write_all(HEAD)?;
        stream.write_all(b"\r\n<html>nothing for you here</html>\n")
    }));
}

#[test]
fn a_gigabyte_of_spaces_and_a_line_without_end() {
    for byte in [b' ', b'a'] {
        let ended = against(move |stream| {
            stream.write_all(HEAD)?;
            stream.write_all(b"\r\n{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"x\":\"")?;
            let piece = vec![byte; 64 * 1024];
            (0..16 * 1024).try_for_each(|_| stream.write_all(&piece))
        });
        assert!(
            ended.stderr.len() < 4096,
            "the error does not repeat the body"
        );
    }
}
