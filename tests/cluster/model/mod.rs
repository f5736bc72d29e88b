//! The API server of the tests against a real one: the same requests to both, and the same answers,
//! but for what stands in the table of differences.

mod answers;
mod options;
mod restored;
mod rows;
mod rules;
mod servers;

use std::fmt::Write as _;

use kubecache::testing::{AccessRule, ApiServer};

use self::answers::{Memory, compared};
use self::options::OPTIONS;
use self::rows::{DIFFERENCES, ROWS, Row};
use self::rules::RULES;
use self::servers::ServerUnderTest;
use super::support::{cluster, cluster_alone, control, directory};

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
    let mut comparison = Comparison::new(&model);
    for row in ROWS.iter().chain(RULES).chain(OPTIONS) {
        let known = DIFFERENCES.iter().find(|(name, _)| *name == row.name);
        comparison.ask(row, known.map(|(_, reason)| *reason));
    }
    comparison.finish();
}

/// Both servers lose what came after a backup: what clients with newer and older versions see.
#[test]
#[ignore = "needs a cluster: tests/cluster/run"]
fn the_server_of_the_tests_is_restored_as_a_real_one() {
    let _alone = cluster_alone();
    let model = model();
    let mut comparison = Comparison::new(&model);
    let ask = |comparison: &mut Comparison, rows: &[Row]| {
        for row in rows {
            comparison.ask(row, None);
        }
    };
    // What a real server writes for itself after its start must not reach the lost versions.
    let many = |comparison: &mut Comparison| {
        for _ in 0..restored::ROUNDS {
            ask(comparison, restored::ROUND);
        }
    };
    ask(&mut comparison, restored::BEFORE);
    control("backup");
    let backup = model.version();
    many(&mut comparison);
    ask(&mut comparison, restored::LOST);
    control("restore");
    model.restore(backup).unwrap();
    ask(&mut comparison, restored::AFTER);
    many(&mut comparison);
    many(&mut comparison);
    ask(&mut comparison, restored::BEYOND);
    comparison.finish();
}

/// The same requests to both servers, and what of their answers differs.
struct Comparison {
    servers: [ServerUnderTest; 2],
    memories: [Memory; 2],
    wrong: String,
    same: usize,
    asked: usize,
}

impl Comparison {
    fn new(model: &ApiServer) -> Self {
        Self {
            servers: [ServerUnderTest::real(), ServerUnderTest::model(model)],
            memories: <[Memory; 2]>::default(),
            wrong: String::new(),
            same: 0,
            asked: 0,
        }
    }

    /// Asks both. A difference has its reason, and a reason its difference.
    fn ask(&mut self, row: &Row, known: Option<&str>) {
        let mut told = Vec::new();
        for (server, memory) in self.servers.iter().zip(&mut self.memories) {
            let answer = server.ask(row, memory);
            memory.keep(row.name, &answer);
            told.push(compared(row, &answer));
        }
        self.asked += 1;
        let (name, wrong) = (row.name, &mut self.wrong);
        match (told[0] == told[1], known) {
            (true, None) => self.same += 1,
            (false, Some(_)) => {}
            (true, Some(reason)) => {
                writeln!(wrong, "{name}: no difference any more: {reason}\n").unwrap();
            }
            (false, None) => {
                let [real, model] = [&told[0], &told[1]];
                writeln!(wrong, "{name}:\n  real  {real}\n  model {model}\n").unwrap();
            }
        }
    }

    fn finish(self) {
        println!("{} of {} answers are the same", self.same, self.asked);
        assert!(
            self.wrong.is_empty(),
            "answers that differ:\n{}",
            self.wrong
        );
    }
}
