//! Thread schedules of helper threads, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use super::super::call_context::{CallContext, NamedDeadline};
use super::HelperThreads;
use crate::jobs::JobKind;
use crate::worker::StopToken;

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 2_000;

/// So a drop of the client after its last answer leaves no thread behind.
#[test]
fn a_thread_whose_work_is_answered_is_not_taken_for_one_that_hangs() {
    shuttle::check_random(
        || {
            let helpers = HelperThreads::new("t", 1, std::time::Duration::MAX, JobKind::Hang);
            let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap();
            let answer = helpers.run("a", || Ok(1));
            assert_eq!(answer.result(&call).unwrap(), 1);
            assert_eq!(helpers.threads.busy(), 0);
        },
        SCHEDULES,
    );
}
