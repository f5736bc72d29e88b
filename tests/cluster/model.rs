//! The API server of the tests against a real one: the same requests to both, and the same answers,
//! but for what stands in the table of differences.

#[path = "model/answers.rs"]
mod answers;
#[path = "model/rows.rs"]
mod rows;
#[path = "model/rules.rs"]
mod rules;
#[path = "model/servers.rs"]
mod servers;

use std::fmt::Write as _;

use kubecache::testing::{AccessRule, ApiServer};

use self::answers::{Memory, compared};
use self::rows::{DIFFERENCES, ROWS};
use self::rules::RULES;
use self::servers::ServerUnderTest;
use super::support::{cluster, directory};

/// A server in memory with the users of the real one.
fn model() -> ApiServer {
    let token = |user: &str| {
        let path = directory().join(format!("certs/{user}.token"));
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    };
    ApiServer::builder()
        .token(&token("admin"), "admin", &["system:masters"])
        .token(&token("nobody"), "nobody", &[])
        .rule(AccessRule::for_user("somebody"))
        .start()
        .unwrap()
}

#[test]
#[ignore = "needs a cluster: tests/cluster/run"]
fn the_server_of_the_tests_answers_as_a_real_one() {
    let _up = cluster();
    let model = model();
    let servers = [ServerUnderTest::real(), ServerUnderTest::model(&model)];
    let mut memories = [Memory::default(), Memory::default()];
    let mut wrong = String::new();
    let mut same = 0_usize;
    let rows: Vec<_> = ROWS.iter().chain(RULES).collect();
    for row in &rows {
        let mut told = Vec::new();
        for (server, memory) in servers.iter().zip(&mut memories) {
            let answer = server.ask(row, memory);
            memory.keep(row.name, &answer);
            told.push(compared(row, &answer));
        }
        let known = DIFFERENCES.iter().find(|(name, _)| *name == row.name);
        match (told[0] == told[1], known) {
            (true, None) => same += 1,
            (false, Some(_)) => {}
            (true, Some((_, reason))) => {
                writeln!(wrong, "{}: no difference any more: {reason}\n", row.name).unwrap();
            }
            (false, None) => {
                let [real, model] = [&told[0], &told[1]];
                writeln!(wrong, "{}:\n  real  {real}\n  model {model}\n", row.name).unwrap();
            }
        }
    }
    println!("{same} of {} answers are the same", rows.len());
    assert!(wrong.is_empty(), "answers that differ:\n{wrong}");
}
