//! `--pods-from kubelet`: the pods of a node while the API server is away.

use kubecache::testing::{
    Act, Answer, ApiServer, Exchange, Fault, FixtureServer, Recording, objects,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::AGENT;
use super::rows::pod;
use crate::support::example::IsLine;

fn kubelet(lists: &[Vec<Value>]) -> FixtureServer {
    let mut recording = Recording::new();
    for pods in lists {
        let list = json!({
            "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods,
        });
        recording.push(Exchange::get("/pods", Answer::text(200, list.to_string())));
    }
    FixtureServer::replaying(recording)
        .endless()
        .start()
        .unwrap()
}

fn row(words: &'static [&str]) -> IsLine {
    Box::new(move |line| line.split_whitespace().skip(1).eq(words.iter().copied()))
}

#[test]
fn a_pod_that_comes_while_the_api_server_is_away_has_its_secret_from_memory() {
    let server = ApiServer::new().unwrap();
    let db = objects::secret("shop", "db", "", &[("password", "made-up")]);
    server.apply(&db).unwrap();
    let (first, second) = (
        pod("web-1", &["db"], &[], "Running"),
        pod("web-2", &["db"], &[], "Pending"),
    );
    let kubelet = kubelet(&[vec![first.clone()], vec![first, second]]);
    let (url, kubelet_url) = (server.url(), kubelet.url());
    // Until the server has crashed, the kubelet has no other answer.
    let busy = Act::Status {
        code: 503,
        reason: String::new(),
        retry_after: None,
    };
    let busy = kubelet.add_fault(Fault::new(busy).from(2));
    let flags = [
        "--server",
        &url,
        "--node-name",
        "n1",
        "--pods-from",
        "kubelet",
    ];
    let more = ["--kubelet-url", &kubelet_url, "--kubelet-interval", "1s"];
    let mut agent = AGENT.start(&[&flags[..], &more].concat());
    agent.wait_for_all("a row", vec![row(&["shop/web-1", "secret/db", "Synced"])]);
    let asked = server.requests();
    assert!(
        asked.iter().all(|request| !request.path().contains("pods")),
        "{asked:?}"
    );
    server.crash();
    kubelet.remove_fault(busy);
    agent.wait_for_all("a row", vec![row(&["shop/web-2", "secret/db", "Synced"])]);
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let asked = kubelet.requests();
    assert!(
        asked
            .iter()
            .all(|request| request.header("authorization").is_none()),
        "{asked:?}"
    );
}

#[test]
fn a_kubelet_that_refuses_and_flags_that_are_wrong_end_the_agent() {
    let refusing = Recording::new().with(Exchange::get("/pods", Answer::text(401, "Unauthorized")));
    let refusing = FixtureServer::replaying(refusing).start().unwrap();
    let url = refusing.url();
    let flags = [
        "--server",
        "http://127.0.0.1:1",
        "--node-name",
        "n1",
        "--once",
    ];
    let more = ["--pods-from", "kubelet", "--kubelet-url", &url];
    let ended = AGENT.run(&[&flags[..], &more].concat());
    assert_eq!(ended.code, 1);
    let told = format!(
        "error: the kubelet gave no pods: failed to list pods of the kubelet at {}: answered 401",
        refusing.address()
    );
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
    let ended = AGENT.run(&["--pods-from", "kubelet", "--secret", "shop/db"]);
    assert_eq!(ended.code, 2);
    assert!(
        ended.stderr.contains("give --node-name"),
        "{}",
        ended.stderr
    );
    let absent = ["--kubelet-certificate-authority", "/nowhere"];
    let ended = AGENT.run(&[&flags[..], &more, &absent].concat());
    assert_eq!(ended.code, 1);
    let told = "--kubelet-certificate-authority /nowhere: no such file";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
}
