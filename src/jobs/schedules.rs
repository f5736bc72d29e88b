//! Thread schedules of the pool, explored by a model checker, in which no idle thread times out.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use shuttle::{sync::mpsc, thread};

use super::{JobKind, ThreadPool};
use crate::sync::Arc;

impl ThreadPool {
    /// How many threads run a job. If the pool were dropped now, they would go on with it.
    pub(crate) fn busy(&self) -> usize {
        self.0.0.state.lock().busy
    }
}

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 2_000;

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
                                let (reply, answer) = mpsc::channel();
                                pool.run(Box::new(move |begun| {
                                    reply.send(begun.map(|()| number)).unwrap();
                                    None
                                }));
                                assert_eq!(answer.recv().unwrap().unwrap(), number);
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
