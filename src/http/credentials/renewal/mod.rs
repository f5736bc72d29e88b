//! Credentials that are fetched again before they expire and after a 401, once for all requests.

#[cfg(all(test, shuttle))]
mod schedules;

use std::cell::Cell;
use std::sync::Weak;
use std::time::{Duration, Instant};

use log::Level;

use super::super::calls::call_context::CallContext;
use super::super::calls::channel::ItemReceiver;
use super::super::calls::helper_threads::HelperThreads;
use super::super::calls::interrupt::{Interrupt, Limit};
use super::super::certificates::client_certificate;
use super::super::certificates::pem::Pem;
use super::source::{CheckIdentity, Credential, CredentialSource, FetchReason, Fetched};
use super::status::{CredentialsStatus, PluginRun};
use crate::clock::{Clock, WallInstant, later};
use crate::error::{Error, ErrorKind};
use crate::guard::guard_call;
use crate::hooks::Hook;
use crate::list_watch::RequestPhase;
use crate::policy::{Backoff, Chance};
use crate::sync::{Arc, Mutex, Rank};
use crate::worker::StopSource;

/// The credentials of one source. All clients of a configuration share them.
pub(crate) struct Renewal {
    shared: Arc<Renewed>,
    /// The thread that asks the source, while a client uses it.
    runner: Mutex<Weak<Runner>>,
}

/// The part that the thread may keep.
struct Renewed {
    source: CredentialSource,
    clock: Clock,
    state: Mutex<RenewalState>,
}

/// The client that asks a source.
pub(crate) struct Asker {
    pub(crate) runner: Weak<Runner>,
    /// Gets the plugin's runs that this client starts.
    pub(crate) metrics: Option<Hook<PluginRun>>,
    /// Checks a certificate, for a client that can show one.
    pub(crate) check: Option<Arc<CheckIdentity>>,
}

/// The thread that asks a source. Its drop ends an interruptible run, and joins the thread.
pub(crate) struct Runner {
    threads: HelperThreads<Arc<Credential>>,
    stop: StopSource,
}

#[derive(Default)]
struct RenewalState {
    /// `None` before the first run, and after a rejection unless the policy keeps it.
    current: Option<Arc<Credential>>,
    /// When to ask the source again.
    due: Option<WallInstant>,
    /// When `current` may no longer be used.
    expires: Option<WallInstant>,
    failure: Option<Failure>,
    /// Whether the last failure was logged, so that the recovery is, too.
    logged: bool,
    /// The count of the runs when the server rejected `current`: the next run should return others.
    rejected_at: Option<u64>,
    /// Before this time another rejection does not ask the source.
    rejections_from: Option<Instant>,
    /// How often the source has answered or failed.
    runs: u64,
    failures: u64,
    last_took: Option<Duration>,
    /// The last client certificate of the source, used or rejected.
    certificate: Option<Pem>,
}

/// The failures since the source last returned credentials.
struct Failure {
    last: Error,
    pauses: Backoff,
    retry_at: Instant,
}

/// The next step of a request.
enum RenewalStep {
    Use(Arc<Credential>),
    /// Ask the source; meanwhile there may be credentials that can be used.
    Fetch(Option<Arc<Credential>>),
    /// The source failed a moment ago.
    Fail(Error),
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl RenewalState {
    fn usable(&self, now: WallInstant) -> Option<Arc<Credential>> {
        let is_valid = self.expires.is_none_or(|expires| !expires.has_come(now));
        self.current.clone().filter(|_| is_valid)
    }

    /// Whether no run has ended since the server rejected the credentials of the last one.
    fn is_rejected(&self) -> bool {
        self.rejected_at == Some(self.runs)
    }

    /// The last failure, while its pause lasts.
    fn fresh_failure(&self, now: Instant) -> Option<Error> {
        let failure = self.failure.as_ref()?;
        let left = failure.retry_at.saturating_duration_since(now);
        let hint = format!("the next try is in {left:.0?}");
        (!left.is_zero()).then(|| failure.last.clone().with_hint(&hint))
    }

    fn next(&self, now: WallInstant) -> RenewalStep {
        let Some(usable) = self.usable(now) else {
            return self
                .fresh_failure(now.instant)
                .map_or(RenewalStep::Fetch(None), RenewalStep::Fail);
        };
        if self.is_rejected() || self.due.is_some_and(|due| due.has_come(now)) {
            RenewalStep::Fetch(Some(usable))
        } else {
            RenewalStep::Use(usable)
        }
    }
}

impl Renewal {
    /// Credentials of `source`. `initial` is used until the source first returns some: at the next
    /// request, or after a rejection if the policy keeps rejected credentials.
    pub(crate) fn new(
        source: CredentialSource,
        initial: Option<Credential>,
        clock: &Clock,
    ) -> Self {
        let state = RenewalState {
            due: (initial.is_some() && !source.row.keeps_rejected).then(|| clock.wall_instant()),
            current: initial.map(Arc::new),
            ..RenewalState::default()
        };
        Self {
            shared: Arc::new(Renewed {
                source,
                clock: clock.clone(),
                state: Mutex::ranked(Rank::CREDENTIALS, state),
            }),
            runner: Mutex::ranked(Rank::CREDENTIALS, Weak::new()),
        }
    }

    pub(crate) fn source(&self) -> &CredentialSource {
        &self.shared.source
    }

    /// Returns the runner that asks the source. It lives while one of the returned values does.
    pub(crate) fn runner(&self) -> Arc<Runner> {
        let mut runner = self.runner.lock();
        if let Some(living) = runner.upgrade() {
            return living;
        }
        let source = self.source();
        let made = Arc::new(Runner {
            threads: HelperThreads::new(source.thread, 1, Duration::MAX, source.jobs),
            stop: StopSource::new(),
        });
        *runner = Arc::downgrade(&made);
        made
    }

    /// Returns the credentials that a request sends.
    ///
    /// Blocks by `call` while the source works, for as long as its policy says.
    ///
    /// # Errors
    ///
    /// The source's error if there are no credentials that can be used. `Timeout` if the source is
    /// silent. `Stopped`.
    pub(crate) fn current(
        &self,
        asker: &Asker,
        call: &CallContext,
    ) -> Result<Arc<Credential>, Error> {
        let shared = &self.shared;
        let row = self.source().row;
        let (usable, runs) = {
            let now = shared.clock.wall_instant();
            let mut state = shared.state.lock();
            match state.next(now) {
                RenewalStep::Use(current) => return Ok(current),
                RenewalStep::Fail(error) => return Err(error),
                RenewalStep::Fetch(usable) => {
                    // The run happens without the lock, and other requests go on meanwhile.
                    if usable.is_some() {
                        state.due = Some(now.later(row.retry_with));
                    }
                    (usable, state.runs)
                }
            }
        };
        let Some(run) = self.start(asker, runs) else {
            return usable.ok_or_else(|| Error::stopped(&self.source().name));
        };
        let wait = match usable {
            Some(usable) if row.wait_with.is_zero() => return Ok(usable),
            Some(_) => row.wait_with,
            None => row.wait_without.min(self.source().run_max),
        };
        call.enter_phase(RequestPhase::Credentials);
        let awaited = run.result(&call.within(wait, Limit::Credentials));
        self.awaited(awaited, usable)
    }

    /// Starts a run of the source, or joins the one that is under way. `None`: the client is gone.
    fn start(
        &self,
        asker: &Asker,
        runs: u64,
    ) -> Option<ItemReceiver<Result<Arc<Credential>, Error>>> {
        let runner = asker.runner.upgrade()?;
        let (shared, stop) = (Arc::clone(&self.shared), runner.stop.token());
        let (metrics, check) = (asker.metrics.clone(), asker.check.clone());
        let work = move || {
            // Another run may have ended since the request looked.
            if let Some(outcome) = shared.outcome_since(runs) {
                return outcome;
            }
            let was_rejected = shared.state.lock().is_rejected();
            let plugin_end = Cell::new(None);
            let reason = FetchReason {
                stop: &stop,
                was_rejected,
                plugin_end: &plugin_end,
            };
            let begun = shared.clock.now();
            let name = &shared.source.name;
            let fetched = guard_call(name, || {
                let fetched = (shared.source.fetch)(&reason)?;
                match (&check, &fetched.identity) {
                    (Some(check), Some(identity)) => check(identity).map(|()| fetched),
                    (_, _) => Ok(fetched),
                }
            });
            let now = shared.clock.wall_instant();
            let took = now.instant.saturating_duration_since(begun);
            let new = fetched.as_ref().ok();
            let replaced = new.and_then(|new| shared.replace_certificate(new));
            if let (Some(metrics), Some((exit_code, end))) = (metrics, plugin_end.get()) {
                let run = PluginRun {
                    exit_code,
                    end,
                    took,
                    valid_for: new.and_then(|new| new.valid_for),
                    replaced_certificate_age: replaced.as_ref().and_then(client_certificate::age),
                };
                metrics.tell("the metrics of a client", &run);
            }
            match fetched {
                Ok(fetched) => Ok(shared.succeeded(fetched, now, took)),
                Err(error) => Err(shared.failed(error, now, took)),
            }
        };
        // Named by its number, so that no request joins a run whose result was rejected meanwhile.
        let run = format!("{}, run {runs}", self.source().name);
        Some(runner.threads.run(&run, work))
    }

    fn awaited(
        &self,
        awaited: Result<Arc<Credential>, Interrupt>,
        usable: Option<Arc<Credential>>,
    ) -> Result<Arc<Credential>, Error> {
        let name = &self.source().name;
        let (error, hangs) = match awaited {
            Ok(credential) => return Ok(credential),
            Err(Interrupt::Stopped) => return Err(Error::stopped(name)),
            // The run has logged it.
            Err(Interrupt::Failed(error)) => return usable.ok_or(error),
            Err(interrupt) => {
                let hint = self.source().hang_hint;
                let message = format!("{name}: {interrupt}: {hint}");
                // The caller's own deadline says nothing of the run.
                let hangs = matches!(interrupt, Interrupt::Limit(Limit::Credentials(_)));
                (Error::new(ErrorKind::Timeout, message), hangs)
            }
        };
        let usable = usable.ok_or_else(|| error.clone())?;
        if hangs {
            // No other request waits for it.
            self.shared.state.lock().rejected_at = None;
            self.shared.log_failure(&error);
        }
        Ok(usable)
    }

    /// Notes that the server answered 401 to a request with `rejected`, or refused its certificate.
    ///
    /// Returns whether to send the request once more: there are other credentials, or the client
    /// asks the source for some.
    pub(crate) fn rejected(&self, rejected: &Credential) -> bool {
        let now = self.shared.clock.now();
        let row = self.source().row;
        let mut state = self.shared.state.lock();
        let is_other = |current: &Arc<Credential>| current.number != rejected.number;
        // Without any, or if these are rejected, a run is under way or the next request starts it.
        if state.current.as_ref().is_none_or(is_other) || state.is_rejected() {
            return true;
        }
        if state.rejections_from.is_some_and(|from| now < from) {
            return false;
        }
        state.rejections_from = Some(later(now, row.between_rejections));
        state.rejected_at = Some(state.runs);
        if !row.keeps_rejected {
            state.current = None;
        }
        true
    }

    pub(crate) fn status(&self) -> CredentialsStatus {
        let now = self.shared.clock.wall_instant();
        let state = self.shared.state.lock();
        let expires = state.expires.filter(|_| state.current.is_some());
        CredentialsStatus {
            source: self.source().name.clone(),
            runs: state.runs,
            failures: state.failures,
            last_run_took: state.last_took,
            expires_in: expires.map(|expires| expires.left(now)),
            last_error: state.failure.as_ref().map(|failure| failure.last.clone()),
        }
    }
}

impl Renewed {
    fn outcome_since(&self, runs: u64) -> Option<Result<Arc<Credential>, Error>> {
        let now = self.clock.wall_instant();
        let state = self.state.lock();
        if state.runs == runs {
            return None;
        }
        let failed = || state.fresh_failure(now.instant).map(Err);
        state.usable(now).map(Ok).or_else(failed)
    }

    /// Notes the source's certificate. Returns the one before it, if it differs.
    fn replace_certificate(&self, fetched: &Fetched) -> Option<Pem> {
        let identity = fetched.identity.as_ref();
        let given = identity.map(|identity| identity.certificate.clone());
        let bytes = given.as_ref().map(|pem| Arc::clone(&pem.bytes));
        let before = std::mem::replace(&mut self.state.lock().certificate, given);
        before.filter(|before| bytes.is_none_or(|bytes| bytes != before.bytes))
    }

    fn succeeded(&self, fetched: Fetched, now: WallInstant, took: Duration) -> Arc<Credential> {
        let (credential, recovered, before) = {
            let mut state = self.state.lock();
            state.runs = state.runs.saturating_add(1);
            state.last_took = Some(took);
            state.failure = None;
            state.due = fetched.renew_after.map(|after| now.later(after));
            state.expires = fetched.valid_for.map(|valid| now.later(valid));
            let credential = Arc::new(Credential {
                authorization: fetched.authorization,
                identity: fetched.identity,
                number: state.runs,
            });
            let before = state.current.replace(Arc::clone(&credential));
            (credential, std::mem::take(&mut state.logged), before)
        };
        drop(before);
        if recovered {
            log::info!("{} gives credentials again", self.source.name);
        }
        credential
    }

    fn failed(&self, error: Error, now: WallInstant, took: Duration) -> Error {
        if error.is_stopped() {
            return error;
        }
        let is_usable = {
            let mut state = self.state.lock();
            state.runs = state.runs.saturating_add(1);
            state.failures = state.failures.saturating_add(1);
            state.last_took = Some(took);
            let before = state.failure.take().map(|failure| failure.pauses);
            let mut pauses = before.unwrap_or_else(|| Backoff::of_renewals(self.source.row));
            state.failure = Some(Failure {
                last: error.clone(),
                retry_at: later(now.instant, pauses.next(&mut Chance::new(0))),
                pauses,
            });
            state.usable(now).is_some()
        };
        // Otherwise the requests return it.
        if is_usable {
            self.log_failure(&error);
        }
        error
    }

    /// Logs the first failure of a series as a warning.
    fn log_failure(&self, error: &Error) {
        let before = std::mem::replace(&mut self.state.lock().logged, true);
        let level = if before { Level::Debug } else { Level::Warn };
        log::log!(level, "{error}; the last credentials stay in use");
    }
}
