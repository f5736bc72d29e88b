//! The endpoints for probes: what they answer while the server is there, silent and back, and how
//! they end.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use kubecache::clock::Clock;
use kubecache::testing::{Act, Answer, End, Fault, FixtureServer, Received, Recording, Speed};
use rustix::process::Signal;
use serde_json::json;

use super::AGENT;
use super::rows::{node_that_changes, object, open_watch, pod, secret};
use crate::support::example::Running;

pub(crate) const FLAG: &str = "--health-probe-bind-address";

/// An agent whose probes listen at a port of the system's choice.
fn start(server: &str, more: &[&str]) -> (Running, SocketAddr) {
    let mut arguments = vec!["-s", server, "--node-name", "n1", FLAG, "127.0.0.1:0"];
    arguments.extend(more);
    let mut agent = AGENT.start(&arguments);
    let address = told(&mut agent, &format!("{FLAG}: listening at "));
    (agent, address.parse().unwrap())
}

/// Waits for a line on stderr that begins so; gives the rest of it.
pub(crate) fn told(agent: &mut Running, beginning: &str) -> String {
    loop {
        let line = agent.next_told();
        let line = line.unwrap_or_else(|| panic!("it ended and did not tell: {beginning}"));
        if let Some(rest) = line.strip_prefix(beginning) {
            return rest.to_owned();
        }
    }
}

/// The code and the body of an answer.
pub(crate) fn get(address: SocketAddr, target: &str) -> (u16, String) {
    ask(
        address,
        &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"),
    )
}

fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split_whitespace().nth(1).unwrap();
    (code.parse().unwrap(), body.to_owned())
}

/// Asks until the answer is this one. A machine that holds the bookmarks up for the idle limit of
/// the agent makes its content stale for a moment, and files are written by a thread of their own.
pub(crate) fn wait_for_answer(address: SocketAddr, target: &str, (code, body): (u16, &str)) {
    let limit = soon();
    loop {
        let answer = get(address, target);
        if answer == (code, body.to_owned()) {
            return;
        }
        assert!(!Clock::system().has_passed(limit), "{answer:?}");
    }
}

/// A watch on which a bookmark comes each quarter of a second, for so long.
fn bookmarks(count: u32) -> Answer {
    let bookmark = json!({"type": "BOOKMARK", "object": {
        "kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "9"},
    }});
    let at = |number: u32| Duration::from_millis(250).saturating_mul(number);
    let events = (0..count).fold(open_watch(), |watch, number| {
        watch.event(at(number), &bookmark.to_string())
    });
    events.ending(End::Open, at(count))
}

/// A node with one pod and the Secret it names, and this watch of the pods.
fn with_tls(watch: Answer) -> Recording {
    let pods = node_that_changes(&[pod("web", &["tls"], &[], "Running")], watch);
    object(pods, "secrets", "tls", &[secret("tls", &[("a", "canary")])])
}

pub(crate) fn soon() -> kubecache::clock::Deadline {
    Clock::system().after(Duration::from_secs(5 * 60))
}

/// B11, B14: a server that falls silent turns the probes within the idle limit, and its return
/// turns them back.
#[test]
fn b14_a_server_that_falls_silent_fails_the_probes_until_it_is_back() {
    // One bookmark, so that silence has a meaning, and then nothing; nor is the next watch
    // answered.
    let silent = Fault::new(Act::Hang).on("/api/v1/pods").watches().from(2);
    let server = FixtureServer::replaying(node_that_changes(&[], bookmarks(1)))
        .fault(silent)
        .start()
        .unwrap();
    let (port, url) = (server.address().port(), server.url());
    let (mut agent, probes) = start(&url, &["--idle-limit", "2s"]);
    assert_eq!(get(probes, "/livez"), (200, "ok".to_owned()));

    let asked_anew = |requests: &[Received]| {
        let watches = requests.iter().filter(|request| request.is_watch());
        watches
            .filter(|request| request.path() == "/api/v1/pods")
            .count()
            > 1
    };
    assert!(server.wait_for_requests(soon(), asked_anew));
    for probe in ["healthz", "readyz"] {
        let (code, text) = get(probes, &format!("/{probe}"));
        assert_eq!(code, 500, "{text}");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "[+]ping ok");
        let failed = "[-]pods failed: the server last confirmed the content ";
        assert!(lines[1].starts_with(failed), "{text}");
        assert!(lines[1].ends_with(", the last one: Timeout"), "{text}");
        assert_eq!(&lines[2..4], ["[+]secrets ok", "[+]configmaps ok"]);
        assert_eq!(lines.last(), Some(&&*format!("{probe} check failed")));
    }
    assert_eq!(get(probes, "/livez").0, 200);
    assert_eq!(get(probes, "/healthz/secrets").0, 200);
    let (code, status) = get(probes, "/statusz");
    assert_eq!(code, 200);
    let has = |line: &str| status.lines().any(|one| one.starts_with(line));
    for line in [
        "node_agent statusz",
        "Started: ",
        "Up: 0 hr ",
        "Version: 0.",
    ] {
        assert!(has(line), "{status}");
    }
    let (_, flags) = get(probes, "/flagz");
    assert!(flags.contains("\nidle-limit=2s\n"), "{flags}");
    assert_eq!(get(probes, "/healthz?exclude=pods"), (200, "ok".to_owned()));

    drop(server);
    let back = node_that_changes(&[], bookmarks(1200));
    let server = FixtureServer::replaying(back)
        .speed(Speed::Times(1.0))
        .port(port)
        .start()
        .unwrap();
    told(&mut agent, "the pods of the node are followed again");
    wait_for_answer(probes, "/healthz", (200, "ok"));
    let listed = "[+]ping ok\n[+]pods ok\n[+]secrets ok\n[+]configmaps ok\n[+]synced ok\nreadyz \
        check passed\n";
    wait_for_answer(probes, "/readyz?verbose", (200, listed));
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    drop(server);
}

#[test]
fn the_agent_is_healthy_before_the_first_answer_and_ready_after_the_last() {
    let silent = Fault::new(Act::Hang).on("/api/v1/namespaces/shop/secrets");
    let server = FixtureServer::replaying(with_tls(open_watch()))
        .fault(silent)
        .start()
        .unwrap();
    let (mut agent, probes) = start(&server.url(), &[]);
    agent.wait_for("the row", |line| line.contains("Waiting"));
    for probe in ["/livez", "/healthz"] {
        assert_eq!(get(probes, probe), (200, "ok".to_owned()), "{probe}");
    }
    let (code, text) = get(probes, "/readyz");
    assert_eq!(code, 500);
    let waits =
        "[-]synced failed: not every object has had its first answer\nreadyz check failed\n";
    assert!(text.ends_with(waits), "{text}");
    assert_eq!(get(probes, "/readyz/pods"), (200, "ok".to_owned()));
    for (target, code) in [("/", 404), ("/metrics", 404), ("/readyz/nope", 404)] {
        assert_eq!(get(probes, target).0, code, "{target}");
    }
    assert_eq!(ask(probes, "DELETE /healthz HTTP/1.1\r\n\r\n").0, 405);
    assert_eq!(ask(probes, "SSH-2.0-OpenSSH_9.6\r\n").0, 400);
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[test]
fn clients_that_hang_hold_up_no_end_and_the_port_is_free_after_it() {
    let server = FixtureServer::replaying(with_tls(open_watch()))
        .start()
        .unwrap();
    let (mut agent, probes) = start(&server.url(), &[]);
    agent.wait_for("the row", |line| line.contains("Synced"));
    let mut clients = [(); 3].map(|()| TcpStream::connect(probes).unwrap());
    clients[1]
        .write_all(b"GET /healthz HTTP/1.1\r\nHo")
        .unwrap();
    assert_eq!(get(probes, "/healthz").0, 200);
    assert_eq!(agent.stop(Signal::TERM).code, 0);
    for client in &mut clients {
        assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0, "it is closed");
    }
    drop(TcpListener::bind(probes).unwrap());
}

#[test]
fn a_single_look_serves_its_probes_and_ends_all_the_same() {
    let server = FixtureServer::replaying(with_tls(open_watch()))
        .start()
        .unwrap();
    let url = server.url();
    let flags = [
        "-s",
        &url,
        "--node-name",
        "n1",
        "--once",
        FLAG,
        "127.0.0.1:0",
    ];
    let ended = AGENT.run(&flags);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let listening = format!("{FLAG}: listening at 127.0.0.1:");
    assert!(ended.stderr.starts_with(&listening), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn an_address_that_is_taken_ends_it_with_the_flag_and_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = AGENT.run(&["--demo", FLAG, &address]);
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
    let told = format!("error: {FLAG}: listening at {address}: Address already in use");
    assert!(ended.stderr.starts_with(&told), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[cfg(not(feature = "metrics"))]
#[test]
fn without_the_feature_the_metrics_flag_says_how_to_build_them() {
    let ended = AGENT.run(&["--demo", "--metrics-bind-address", ":0"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    let told = "error: --metrics-bind-address: this agent was built without metrics; build it \
        with `--features metrics`\n";
    assert!(ended.stderr.starts_with(told), "{}", ended.stderr);
}

/// The series of what runs, no object's name and no value, and both pages at one address.
#[cfg(feature = "metrics")]
#[test]
fn metrics_are_served_beside_the_probes_or_at_an_address_of_their_own() {
    const METRICS: &str = "--metrics-bind-address";
    let server = FixtureServer::replaying(with_tls(open_watch()))
        .start()
        .unwrap();
    let (mut agent, probes) = start(&server.url(), &[METRICS, "127.0.0.1:0"]);
    let address = told(&mut agent, &format!("{METRICS}: listening at "));
    let address: SocketAddr = address.parse().unwrap();
    agent.wait_for("the row", |line| line.contains("Synced"));
    let (code, text) = get(address, "/metrics");
    assert_eq!(code, 200);
    for series in [
        "reflector_lists_total{group=\"\",name=\"pods-of-node\",resource=\"pods\",version=\"v1\"} \
         1\n",
        "kubecache_object_cache_objects{kind=\"Secret\",strategy=\"Watch\"} 1\n",
        "kubecache_object_cache_objects{kind=\"ConfigMap\",strategy=\"Watch\"} 0\n",
        "kubecache_build_info{version=\"",
        "rest_client_exec_plugin_ttl_seconds{name=\"node-agent\"} +Inf\n",
        "kubecache_client_certificate_ttl_seconds{name=\"node-agent\"} +Inf\n",
    ] {
        assert!(text.contains(series), "{series}: {text}");
    }
    let host = server.url().replace("http://", "host=\"");
    for series in [
        "rest_client_requests_total{code=\"200\",",
        "rest_client_request_duration_seconds_count{",
        "rest_client_rate_limiter_duration_seconds_count{",
        "rest_client_response_size_bytes_count{",
    ] {
        assert!(
            text.contains(&format!("{series}{host}\",")),
            "{series}: {text}"
        );
    }
    for hidden in ["tls", "canary", "shop"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    assert_eq!(get(address, "/healthz").0, 404);
    assert_eq!(get(probes, "/metrics").0, 404);
    assert_eq!(agent.stop(Signal::TERM).code, 0);

    // The port was just given back.
    let one = address.to_string();
    let mut flags = vec!["-s", "", "--node-name", "n1", FLAG, &one, METRICS, &one];
    let server = FixtureServer::replaying(with_tls(open_watch()))
        .start()
        .unwrap();
    let url = server.url();
    flags[1] = &url;
    let mut agent = AGENT.start(&flags);
    agent.wait_for("the row", |line| line.contains("Synced"));
    assert_eq!(get(address, "/metrics").0, 200);
    assert_eq!(get(address, "/readyz"), (200, "ok".to_owned()));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// What the agent does to files, and what the process costs, without an exporter beside it.
#[cfg(all(feature = "metrics", feature = "snapshot", target_os = "linux"))]
#[test]
#[expect(clippy::too_many_lines, reason = "each assertion is a series")]
fn metrics_tell_of_files_hooks_the_snapshot_and_the_process() {
    use std::os::unix::fs::PermissionsExt as _;

    use kubecache::testing::{ApiServer, objects};

    const METRICS: &str = "--metrics-bind-address";
    let server = ApiServer::new().unwrap();
    let map = objects::config_map("shop", "flags", "", &[("tax", "7")]);
    server.apply(&map).unwrap();
    let directory = crate::support::TempDirectory::new("agent-metrics");
    let key = directory.join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (out, snapshot) = (directory.join("out"), directory.join("snapshot"));
    let url = server.url();
    let flags = [
        "--server",
        &url,
        "--configmap",
        "shop/flags",
        METRICS,
        "127.0.0.1:0",
    ];
    let files = [
        "--output-dir",
        out.to_str().unwrap(),
        "--exec-on-change",
        "true",
    ];
    let kept = [
        "--snapshot",
        snapshot.to_str().unwrap(),
        "--snapshot-key",
        key.to_str().unwrap(),
    ];
    let flags = [&flags[..], &files, &kept].concat();
    let mut agent = AGENT.start_in(&flags, &[("PATH", "/usr/bin:/bin")]);
    let address = told(&mut agent, &format!("{METRICS}: listening at "));
    let address = address.parse().unwrap();
    agent.wait_for("the row", |line| line.contains("Synced"));
    // The snapshot is written some seconds after a change.
    let limit = soon();
    let value = loop {
        let (_, text) = get(address, "/metrics");
        let values = text.lines().filter(|line| !line.starts_with('#'));
        let values = values.filter_map(|line| line.rsplit_once(' '));
        let values = values.map(|(name, value)| (name.to_owned(), value.parse::<f64>().unwrap()));
        let values: std::collections::BTreeMap<_, _> = values.collect();
        if values.contains_key("kubecache_agent_snapshot_bytes") {
            break move |name: &str| *values.get(name).unwrap_or_else(|| panic!("{name}: {text}"));
        }
        assert!(!Clock::system().has_passed(limit), "{text}");
    };
    assert_eq!(
        value("kubecache_agent_files_objects{state=\"written\"}").to_string(),
        "1"
    );
    assert_eq!(
        value("kubecache_agent_files_objects{state=\"failed\"}").to_string(),
        "0"
    );
    assert_eq!(value("kubecache_agent_snapshot_failed").to_string(), "0");
    assert_eq!(
        value("kubecache_agent_hook_runs_total{result=\"failure\"}").to_string(),
        "0"
    );
    assert!(value("kubecache_agent_hook_runs_total{result=\"success\"}") >= 1.0);
    assert!(value("kubecache_agent_snapshot_bytes") > 0.0);
    assert!(value("kubecache_agent_snapshot_age_seconds") >= 0.0);
    let started = value("process_start_time_seconds");
    let written = value("kubecache_agent_files_last_success_timestamp_seconds");
    // The start is known to a second, more or less.
    assert!(
        started > 1.7e9 && written > started - 2.0,
        "{started} {written}"
    );
    assert!(value("process_cpu_seconds_total") >= 0.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_open_fds") > 3.0);
    assert!(value("process_max_fds") >= value("process_open_fds"));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}
