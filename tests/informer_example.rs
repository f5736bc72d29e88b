//! The example `informer` as a newcomer meets it: what its handlers and indices tell of the
//! recorded story, and how it ends.
#![cfg(feature = "testing")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::time::Duration;

use kubecache::clock::Clock;
use kubecache::testing::{Act, ApiServer, Fault, FixtureServer, Recording};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::example::{Ended, Example, IsLine, Killed};

static INFORMER: Example = Example::new("informer");

/// What was printed, table by table, cell by cell.
fn tables(printed: &str) -> Vec<Vec<Vec<&str>>> {
    let tables = printed.split("\n\n");
    tables
        .map(|table| {
            table
                .lines()
                .map(|line| line.split_whitespace().collect())
                .collect()
        })
        .inspect(|table: &Vec<Vec<&str>>| assert!(table.len() > 1, "{printed}"))
        .collect()
}

/// The notifications of a handler about a pod: the word, the status, the version.
fn told<'a>(printed: &'a str, handler: &str, pod: &str) -> Vec<[&'a str; 3]> {
    let lines = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let lines = lines.filter(|cells| cells.len() == 9 && cells[0] == handler && cells[3] == pod);
    lines.map(|cells| [cells[1], cells[6], cells[7]]).collect()
}

/// Rows of an index table: index, value, pods, running.
fn index<'a>(tables: &'a [Vec<Vec<&'a str>>], name: &str, which: usize) -> Vec<&'a [&'a str]> {
    let mut found = tables.iter().filter(|table| table[0][0] == "INDEX");
    let rows = found.nth(which).expect("there is such a table").iter();
    rows.filter(|row| row[0] == name)
        .map(|row| &row[1..])
        .collect()
}

/// Follows the story to its last change, the end of the old checkout pod, and stops it then.
fn story(arguments: &[&str]) -> Ended {
    let mut run = INFORMER.start(arguments);
    // Once by each handler; which comes first is the system's doing.
    let ends = ["pods", "running"].map(|handler| -> IsLine {
        Box::new(move |line| {
            let cells: Vec<_> = line.split_whitespace().collect();
            line.contains("checkout-5f7b8c9d66-9h4vz") && cells[..2] == [handler, "Deleted"]
        })
    });
    run.wait_for_all("the end of the old pod", ends.into());
    run.stop(Signal::INT)
}

#[test]
fn the_handlers_are_told_the_recorded_story_in_order() {
    let ended = story(&["--wide", "--demo-speed", "60"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let of = |pod| told(&ended.stdout, "pods", pod);
    // The list after the story's 410 tells of nothing that has not changed.
    assert_eq!(of("cart-0"), [["Initial", "Running", "261"]]);
    assert_eq!(
        of("search-796d5c8b7d-hn5gs"),
        [
            ["Initial", "ContainerCreating", "298"],
            ["Updated", "Running", "312"]
        ]
    );
    assert_eq!(
        of("promo-banner-75b9c6d4f8-lm3kd"),
        [
            ["Added", "Pending", "306"],
            ["Updated", "Pending", "307"],
            ["Updated", "Running", "308"]
        ]
    );
    assert_eq!(
        of("catalog-reindex-29384710-kq8wd"),
        [
            ["Initial", "Running", "273"],
            ["Updated", "Terminating", "314"],
            ["Deleted", "Terminating", "315"]
        ]
    );
}

/// CT-10: who begins to match is added, who ceases to match is deleted in the last state that
/// matched.
#[test]
fn ct_10_the_filter_lets_only_pods_through_that_run() {
    let ended = story(&["--wide", "--demo-speed", "60"]);
    let of = |pod| told(&ended.stdout, "running", pod);
    assert_eq!(of("search-796d5c8b7d-hn5gs"), [["Added", "Running", "312"]]);
    let ended_pod = [["Deleted", "Running", "273"]];
    assert_eq!(of("catalog-reindex-29384710-kq8wd"), ended_pod);
    let new_pod = [["Added", "Running", "329"]];
    assert_eq!(of("checkout-5f7b8c9d66-c6p2n"), new_pod);
}

/// The indices end with what the server has, and the handlers are done.
#[test]
fn the_story_ends_with_the_servers_content() {
    let ended = story(&["--wide", "--demo-speed", "60"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let tables = tables(&ended.stdout);
    let nodes = index(&tables, "node", 1);
    assert_eq!(nodes, [["node-1", "10", "10"], ["node-2", "1", "1"]]);
    let apps = index(&tables, "app", 1);
    assert_eq!(apps.len(), 10, "{apps:?}");
    assert!(apps.contains(&&["checkout", "1", "1"][..]), "{apps:?}");
    assert!(apps.contains(&&["storefront", "2", "2"][..]), "{apps:?}");
    let handlers = tables.last().unwrap();
    for (row, name) in handlers[1..].iter().zip(["pods", "running"]) {
        assert_eq!(row[..2], [name, "true"]);
        assert_eq!(row[3..], ["0", "<none>", "0", "0"]);
    }
    // Each call of the closures is a line.
    let lines = ended
        .stdout
        .lines()
        .filter(|line| line.starts_with("pods  "));
    let rows = lines.count() - 2;
    assert_eq!(handlers[1][2], rows.to_string());
}

#[test]
fn once_ends_with_the_first_list_and_any_label_can_be_indexed() {
    let ended = INFORMER.run(&["--wide", "--once", "--index-label", "pod-template-hash"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let tables = tables(&ended.stdout);
    let [notifications, indices, handlers] = &tables[..] else {
        panic!("{}", ended.stdout);
    };
    assert_eq!(notifications[0][5], "POD-TEMPLATE-HASH");
    assert_eq!(notifications.len() - 1, 11);
    let all_initial = notifications[1..]
        .iter()
        .all(|row| row[..2] == ["pods", "Initial"]);
    assert!(all_initial, "{}", ended.stdout);
    assert_eq!(indices[0], ["INDEX", "VALUE", "PODS", "RUNNING"]);
    let hashes = index(&tables, "pod-template-hash", 0);
    assert!(hashes.contains(&&["7d9c5b6f4", "2", "2"][..]), "{hashes:?}");
    // Read by a lister: a pod without the label is under no value.
    assert_eq!(hashes.last().unwrap(), &["<none>", "3", "3"]);
    assert_eq!(handlers[1][..3], ["pods", "true", "11"]);
    assert_eq!(handlers[2][..3], ["running", "true", "11"]);
    let told = "Demo: no cluster is asked; recordings of one are at http://127.0.0.1:";
    assert!(ended.stderr.starts_with(told), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn its_tables_fit_80_columns() {
    let ended = INFORMER.run(&["--once"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let widest = ended.stdout.lines().map(|line| line.chars().count()).max();
    assert!(
        widest.is_some_and(|widest| widest <= 80),
        "{}",
        ended.stdout
    );
    let headers: Vec<_> = ended
        .stdout
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(headers, ["HANDLER", "NOTIFICATION", "NAME", "STATUS"]);
}

/// SI-21: the resync period is each handler's own.
#[test]
fn si_21_a_resync_repeats_each_pod_to_the_handler_that_asked_for_it() {
    let mut run = INFORMER.start(&["--wide", "--resync", "1s", "--demo-speed", "1"]);
    for _ in 0..2 {
        run.wait_for("a resync", |line| {
            line.contains("Repeated") && line.contains("storefront-7d9c5b6f4-x2kqp")
        });
    }
    let ended = run.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{ended:?}");
    let cart = told(&ended.stdout, "pods", "cart-0");
    assert!(cart.len() >= 3, "{cart:?}");
    assert_eq!(cart[1..3], [["Repeated", "Running", "261"]; 2]);
    assert_eq!(told(&ended.stdout, "running", "cart-0"), [[""; 3]; 0]);
}

#[test]
fn a_refusal_is_told_in_the_servers_words() {
    let refused = Act::Status {
        code: 403,
        reason: "Forbidden".to_owned(),
        retry_after: None,
    };
    let forbidden = Fault::new(refused).on("/api/v1/namespaces/default/pods");
    let server = FixtureServer::replaying(Recording::new())
        .fault(forbidden)
        .start()
        .unwrap();
    let ended = INFORMER.run(&["--server", &server.url()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    assert!(
        last.starts_with("Error from server (Forbidden): "),
        "{last}"
    );
}

#[test]
fn a_server_that_cannot_be_reached_is_told_with_its_cause() {
    let server = ApiServer::new().unwrap();
    server.crash();
    let mut informer = INFORMER.start(&["--server", &server.url()]);
    loop {
        let line = informer.next_told().expect("it goes on trying");
        if line.contains("Connection refused") {
            break;
        }
    }
    let ended = informer.stop(Signal::TERM);
    assert_eq!(ended.stdout, "", "{ended:?}");
}

#[test]
fn a_first_list_that_does_not_come_ends_with_the_timeout() {
    let server = ApiServer::builder().fault(Fault::new(Act::Silent));
    let server = server.start().unwrap();
    let ended = INFORMER.run(&["--server", &server.url(), "--timeout", "300ms"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{ended:?}");
    let expected =
        "error: failed to sync SharedInformer Pod cache: timed out waiting for the condition\n";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

/// It waits for the first list of a server that does not answer.
#[test]
fn a_signal_ends_the_wait_for_the_first_list() {
    let soon = Clock::system().after(Duration::from_secs(5 * 60));
    for (once, code, complaint) in [
        (&[][..], 0, ""),
        (
            &["--once"][..],
            1,
            "error: interrupted before the pods were known\n",
        ),
    ] {
        let server = ApiServer::builder().fault(Fault::new(Act::Hang));
        let server = server.start().unwrap();
        let mut informer = Killed(
            INFORMER
                .command(&["--server", &server.url()])
                .args(once)
                .spawn()
                .unwrap(),
        );
        // It listens for signals since before.
        assert!(server.wait_for_requests(soon, |requests| !requests.is_empty()));
        kill_process(Pid::from_child(&informer.0), Signal::TERM).unwrap();
        let mut told = String::new();
        informer
            .0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        assert_eq!(informer.0.wait().unwrap().code(), Some(code), "{told}");
        assert_eq!(told, complaint);
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_without_a_word() {
    let mut informer = INFORMER.command(&["--demo-speed", "60"]);
    let mut informer = Killed(informer.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let mut stdout = BufReader::new(informer.0.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("HANDLER"), "{line}");
    drop(stdout);
    let mut told = String::new();
    informer
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert_eq!(informer.0.wait().unwrap().code(), Some(1), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn wrong_usage_is_told_with_exit_code_2_and_help_needs_nothing() {
    let ended = INFORMER.run(&["--resync", "10ms"]);
    let expected =
        "error: --resync: write 0, or a second or more\nSee 'informer --help' for usage.\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (2, expected));
    let help = INFORMER.run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    assert!(help.stdout.contains("\nExit codes:\n"));
    let version = INFORMER.run(&["--version"]);
    assert_eq!(
        version.stdout,
        format!("informer {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn without_a_cluster_it_names_what_it_looked_for_and_mentions_the_recordings() {
    let ended = INFORMER.run_in(&["--demo=false"], &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{ended:?}");
    let hint = "To see the informer at work without a cluster, run it with --demo.\n";
    assert!(ended.stderr.ends_with(hint), "{}", ended.stderr);
}
