//! The form of each error: its request, the phase, the cause and what to do, each of them once.

use std::thread;

use crossbeam_channel::unbounded;
use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Deadline;
use kubecache::http::Request;
use kubecache::object::{ObjectKey, Scope};
use kubecache::{Error, ErrorKind};

use super::stage::{Row, Stage, secret};
use super::{in_tls, table};

/// So many faults are walked at a time: most of them wait for a limit.
const WALKERS: usize = 8;

/// The path of all requests.
const PATH: &str = "/api/v1/namespaces/shop/secrets";

/// What a program may do about some of the faults.
const REMEDIES: &[(&str, &str)] = &[
    ("certificate", "renew it"),
    ("certificate_not_yet_valid", "set the clock"),
    ("certificate_wrong_host", "set tls-server-name"),
    (
        "certificate_unknown_authority",
        "certificate-authority has to",
    ),
    (
        "client_certificate",
        "set client-certificate and client-key",
    ),
    ("unauthorized", "configure one that is valid"),
    ("html", "is this a Kubernetes API server?"),
    ("redirect", "use the address of the API server"),
    ("unfinished", "raises the limit"),
    ("unfinished_line", "raises the limit"),
    ("cut_in_the_head", "does it speak TLS on this port"),
];

/// How a time limit names what it ended.
const PHASES: &[&str] = &[
    "connecting to",
    "waiting for the head",
    "the TLS handshake with",
    "in the middle of a body",
    "the body did not end",
];

/// The errors of each read and those that the informer's hook is told of, each with the names that
/// its request may have.
fn errors_of(stage: &Stage, row: &Row) -> Vec<(Vec<String>, Error)> {
    let url = stage.server.url();
    stage.meet(row.fault);
    let got = vec![format!("GET {url}{PATH}/db")];
    let what = "secrets in namespace \"shop\"";
    let listed = vec![format!("GET {url}{PATH}"), format!("list {what}")];
    let request = Request::get(format!("{PATH}/db")).query("pretty", "false");
    let key = ObjectKey::new("shop", "db");
    let reads = [
        (got.clone(), stage.client.get::<Secret>(&key).map(drop)),
        (
            listed,
            stage
                .client
                .list::<Secret>(Scope::namespace("shop"))
                .map(drop),
        ),
        (
            got.clone(),
            stage.client.send(&request, Deadline::NEVER).map(drop),
        ),
        (got, stage.try_read_of(&stage.getting).map(drop)),
    ];
    let mut errors: Vec<_> = reads
        .into_iter()
        .filter_map(|(names, read)| read.err().map(|error| (names, error)))
        .collect();
    // A server met the fault anew by a crash, of which the hook was told.
    stage.forget_told();
    stage.server.cut_watches();
    stage.server.apply(&secret("db", "two")).unwrap();
    if let Some(kind) = row.told {
        let told = stage.cut_until_told(kind);
        let names = ["list", "stream", "watch", "probe"];
        let names = names.iter().map(|name| format!("failed to {name} {what}"));
        let mut names: Vec<_> = names.collect();
        names.extend([format!("the watch of {what} ended"), what.to_owned()]);
        errors.extend(told.into_iter().map(|told| (names.clone(), told)));
    }
    errors
}

/// What is wrong with the form of an error.
fn flaws(
    name: &str,
    told: Option<ErrorKind>,
    names: &[String],
    error: &Error,
) -> Vec<&'static str> {
    let text = error.to_string();
    let mut flaws = Vec::new();
    let rest = names
        .iter()
        .find_map(|name| text.strip_prefix(&format!("{name}: ")));
    match rest {
        None => flaws.push("it does not begin with its request"),
        Some(rest) if rest.contains(PATH) || rest.contains("secrets in namespace") => {
            flaws.push("its request is named twice");
        }
        Some(rest) if rest.len() < 8 => flaws.push("it has no cause"),
        Some(_) => {}
    }
    if ["limit=", "resourceVersion=", "watch=", "pretty="]
        .iter()
        .any(|parameter| text.contains(parameter))
    {
        flaws.push("it shows a query");
    }
    let parts: Vec<_> = text.split(": ").collect();
    if (1..parts.len()).any(|index| parts[..index].contains(&parts[index])) {
        flaws.push("it says a part twice");
    }
    if error.kind() == ErrorKind::Timeout && !PHASES.iter().any(|phase| text.contains(phase)) {
        flaws.push("it does not say what took so long");
    }
    // An error of another kind may be that of the crash, which can also cut a new watch short.
    let of_crash = text.contains("very short watch");
    let of_fault = !of_crash && told.is_none_or(|kind| kind == error.kind());
    let remedy = REMEDIES.iter().find(|(of, _)| of_fault && *of == name);
    if remedy.is_some_and(|(_, remedy)| text.matches(remedy).count() != 1) {
        flaws.push("it does not say once what to do");
    }
    flaws
}

#[test]
fn each_error_of_each_fault_tells_its_request_phase_cause_and_remedy_once() {
    let plain: fn(bool) -> Stage = Stage::new;
    let tls: fn(bool) -> Stage = in_tls::stage;
    let rows = table::ROWS.iter().map(|row| (plain, row));
    let in_tls = in_tls::ROWS.iter().map(|row| (tls, row));
    let (give, given) = unbounded();
    for row in rows.chain(in_tls) {
        give.send(row).unwrap();
    }
    drop(give);
    let (tell, flawed) = unbounded();
    thread::scope(|scope| {
        for _ in 0..WALKERS {
            let (given, tell) = (given.clone(), tell.clone());
            scope.spawn(move || {
                for (stage, (name, row)) in given {
                    for (names, error) in errors_of(&stage(row.hangs), row) {
                        println!("{name}: {error}");
                        let flaws = flaws(name, row.told, &names, &error);
                        if !flaws.is_empty() {
                            tell.send(format!("{name}: {flaws:?}: {error}")).unwrap();
                        }
                    }
                }
            });
        }
    });
    let flawed: Vec<_> = flawed.try_iter().collect();
    assert!(flawed.is_empty(), "{}", flawed.join("\n"));
}
