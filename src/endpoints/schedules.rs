//! Thread schedules of the calls of checks, explored by a model checker: the server's wait for a
//! call that another thread runs.

use std::time::Duration;

use shuttle::thread;

use super::named_call::NamedCall;
use super::options::EndpointsOptions;
use super::page::WebPage;
use super::probe::Probe;
use super::table::Table;
use crate::clock::Clock;
use crate::sync::{
    Arc, Monitor,
    atomic::{AtomicUsize, Ordering},
};
use crate::worker::{Wake, WakeUp, WorkerGroup};

/// Longer than a model takes.
const LIMIT: Duration = Duration::from_secs(3600);

const SCHEDULES: usize = 3_000;

/// The descriptor that the server polls.
struct Rung(Monitor<bool>);

impl Wake for Rung {
    fn wake(&self) {
        *self.0.lock() = true;
        self.0.notify_all();
    }
}

impl Rung {
    /// Blocks until it rings, and clears it.
    fn wait(&self) {
        let mut rung = self.0.lock();
        while !*rung {
            rung = self.0.wait(rung);
        }
        *rung = false;
    }
}

/// Two requests for one check, of which the second may come while it runs: the server learns of
/// each end, and never has two calls at once.
#[test]
fn the_end_of_a_call_is_never_missed() {
    shuttle::check_random(
        || {
            let (now, threads) = (Clock::system().now(), WorkerGroup::default());
            let rung = Arc::new(Rung(Monitor::new(false)));
            let bell: Arc<dyn Wake> = Arc::<Rung>::clone(&rung);
            let running = Arc::new(AtomicUsize::new(0));
            let calls = Arc::clone(&running);
            let check = NamedCall::new("check", "model", LIMIT, move || {
                assert_eq!(calls.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                thread::yield_now();
                calls.fetch_sub(1, Ordering::SeqCst);
                Ok(WebPage::text("ok"))
            });
            let mut waiting = vec![check.run(&threads, &bell, now)];
            thread::yield_now();
            waiting.push(check.run(&threads, &bell, now));
            while !waiting.is_empty() {
                rung.wait();
                waiting.retain(|run| run.outcome(now).is_none());
            }
            drop(threads);
            assert_eq!(running.load(Ordering::SeqCst), 0);
        },
        SCHEDULES,
    );
}

/// The program's part of a check, which is not to be dropped by this thread.
struct Kept(crate::sync::ThreadId);

impl Drop for Kept {
    fn drop(&mut self) {
        assert_ne!(thread::current().id(), self.0, "dropped by the server");
    }
}

/// A check is removed while a request asks for it.
#[test]
fn a_check_is_never_dropped_by_the_server() {
    shuttle::check_random(
        || {
            let table = Table::new(WakeUp::new().unwrap(), EndpointsOptions::default());
            let (table, kept) = (Arc::new(table), Kept(thread::current().id()));
            let check = NamedCall::new("check", "model", LIMIT, move || {
                let _own = &kept;
                Ok(WebPage::text("ok"))
            });
            table.add(Some(Probe::Live), check).unwrap();
            let removing = Arc::clone(&table);
            let remover = thread::spawn(move || assert!(removing.remove_check("model")));
            drop(table.ask("/livez", Clock::system().now()));
            remover.join().unwrap();
        },
        SCHEDULES,
    );
}
