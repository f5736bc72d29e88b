//! Thread schedules of the pool, explored by a model checker, in which no idle thread times out.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use shuttle::thread;

use super::super::call_context::{CallContext, NamedDeadline};
use super::{JobKind, ThreadPool};
use crate::sync::Arc;
use crate::worker::StopToken;

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 2_000;

fn call() -> CallContext {
    CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap()
}

/// Whether its threads are idle, busy or on their way to either: each job gets one.
#[test]
fn no_job_is_left_while_threads_wait() {
    for jobs in [JobKind::Wait, JobKind::Compute] {
        shuttle::check_random(
            move || {
                let pool = Arc::new(ThreadPool::new("t", 2, jobs));
                let callers: Vec<_> = (0..2)
                    .map(|caller| {
                        let pool = Arc::clone(&pool);
                        thread::spawn(move || {
                            for number in [caller, 10 + caller] {
                                let answer = pool.run("job", move |_| Ok(number));
                                assert_eq!(answer.result(&call()).unwrap(), number);
                            }
                        })
                    })
                    .collect();
                for caller in callers {
                    caller.join().unwrap();
                }
            },
            SCHEDULES,
        );
    }
}
