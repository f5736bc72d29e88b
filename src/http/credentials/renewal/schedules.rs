//! Thread schedules of credentials that are fetched for many requests at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shuttle::thread;

use super::super::authorization::Authorization;
use super::*;
use crate::clock::FakeClock;
use crate::http::calls::call_context::NamedDeadline;
use crate::jobs::JobKind;
use crate::policy::{KUBECONFIG, RenewalRow};
use crate::worker::StopToken;

/// Schedules tried per model.
const SCHEDULES: usize = 2_000;

/// Points at which the order of the threads changes, in models of rare races.
const SWITCHES: usize = 3;

const ROW: RenewalRow = RenewalRow {
    wait_with: Duration::ZERO,
    wait_without: Duration::MAX,
    retry_with: Duration::from_secs(5),
    pauses: (Duration::from_secs(1), Duration::from_secs(30)),
    between_rejections: Duration::ZERO,
    keeps_rejected: false,
};

/// Returns credentials at once, or waits for the stop.
fn source(hangs: bool) -> CredentialSource {
    CredentialSource {
        name: "the source".to_owned(),
        thread: "t-source",
        jobs: JobKind::Wait,
        row: &ROW,
        run_max: Duration::MAX,
        hang_hint: "",
        fetch: Box::new(move |reason| {
            if hangs {
                reason.stop.wait();
                return Err(Error::stopped("the source"));
            }
            Ok(Fetched {
                authorization: Authorization::bearer("t").ok().map(Arc::new),
                identity: None,
                renew_after: None,
                valid_for: None,
            })
        }),
    }
}

fn renewal(hangs: bool) -> (Arc<Renewal>, Arc<Runner>) {
    let clock = Clock::from(FakeClock::new());
    let renewal = Arc::new(Renewal::new(source(hangs), None, &clock));
    let runner = renewal.runner();
    (renewal, runner)
}

fn asker(runner: &Arc<Runner>) -> Asker {
    Asker {
        runner: Arc::downgrade(runner),
        metrics: None,
        check: None,
    }
}

fn current(renewal: &Renewal, asker: &Asker) -> Result<Arc<Credential>, Error> {
    let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap();
    renewal.current(asker, &call)
}

#[test]
fn all_who_wait_share_one_run() {
    shuttle::check_random(
        || {
            let (renewal, runner) = renewal(false);
            let askers = [0, 1, 2].map(|_| {
                let (renewal, asker) = (Arc::clone(&renewal), asker(&runner));
                thread::spawn(move || current(&renewal, &asker).unwrap().number)
            });
            for asker in askers {
                assert_eq!(asker.join().unwrap(), 1);
            }
            assert_eq!(renewal.status().runs, 1);
        },
        SCHEDULES,
    );
}

#[test]
fn what_was_rejected_is_not_shown_again() {
    shuttle::check_pct(
        || {
            let (renewal, runner) = renewal(false);
            let askers = [0, 1].map(|_| {
                let (renewal, asker) = (Arc::clone(&renewal), asker(&runner));
                thread::spawn(move || {
                    let first = current(&renewal, &asker).unwrap();
                    assert!(renewal.rejected(&first));
                    let second = current(&renewal, &asker).unwrap();
                    assert!(second.number > first.number);
                })
            });
            for asker in askers {
                asker.join().unwrap();
            }
            assert!(renewal.status().runs <= 3);
        },
        SCHEDULES,
        SWITCHES,
    );
}

#[test]
fn the_end_of_the_last_client_ends_a_run_and_who_waits_for_it() {
    shuttle::check_random(
        || {
            let (renewal, runner) = renewal(true);
            let asker = asker(&runner);
            let asker = thread::spawn(move || current(&renewal, &asker).map(drop));
            drop(runner);
            assert!(asker.join().unwrap().unwrap_err().is_stopped());
        },
        SCHEDULES,
    );
}

/// A token that is the number of the read. The second read fails.
fn kubeconfig(clock: &Clock) -> (Arc<Renewal>, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let token = |number: usize| {
        Authorization::bearer(&format!("read-{number}"))
            .ok()
            .map(Arc::new)
    };
    let read = move || match counted.fetch_add(1, Ordering::SeqCst) {
        1 => Err(Error::config("half-written")),
        before => Ok(Fetched {
            authorization: token(before.saturating_add(1)),
            identity: None,
            renew_after: None,
            valid_for: None,
        }),
    };
    let source = CredentialSource {
        name: "the file".to_owned(),
        thread: "t-kubeconfig",
        jobs: JobKind::Hang,
        row: &KUBECONFIG,
        run_max: Duration::MAX,
        hang_hint: "",
        fetch: Box::new(move |_| read()),
    };
    let first = Credential {
        authorization: token(0),
        identity: None,
        number: 0,
    };
    (Arc::new(Renewal::new(source, Some(first), clock)), reads)
}

/// Requests are rejected one after the other and at once. No rejection leaves a client without a
/// token, and two at once do not read twice. The last good content stays while the file is worse.
#[test]
fn a_kubeconfig_is_read_once_for_all_who_were_rejected() {
    shuttle::check_pct(
        || {
            let fake = FakeClock::new();
            let (renewal, reads) = kubeconfig(&Clock::from(fake.clone()));
            let runner = renewal.runner();
            for expected in ["Bearer read-1", "Bearer read-1", "Bearer read-3"] {
                let askers = [0, 1].map(|_| {
                    let (renewal, asker) = (Arc::clone(&renewal), asker(&runner));
                    thread::spawn(move || {
                        let first = current(&renewal, &asker).unwrap();
                        renewal.rejected(&first);
                        drop(renewal.status());
                        let shown = current(&renewal, &asker).unwrap();
                        shown.authorization.as_ref().unwrap().as_str().to_owned()
                    })
                });
                for asker in askers {
                    assert_eq!(asker.join().unwrap(), expected);
                }
                fake.advance(Duration::from_secs(10));
            }
            assert_eq!(reads.load(Ordering::SeqCst), 3);
        },
        SCHEDULES,
        SWITCHES,
    );
}
