//! The checks and pages of endpoints, and the answers that requests wait for.

use std::time::Instant;

use super::named_call::{CallRun, NamedCall};
use super::options::EndpointsOptions;
use super::page::WebPage;
use super::probe::{Probe, ProbePath};
use crate::clock::later;
use crate::error::Error;
use crate::guard::guard_logged;
use crate::sync::{Arc, Mutex, Rank, atomic::AtomicBool};
use crate::worker::{Wake, WakeUp, Worker, WorkerGroup};

/// The check that passes because there is an answer.
const PING: &str = "ping";

/// A check with the probe that asks for it, or a page.
type ProbedCall = (Option<Probe>, Arc<NamedCall>);

/// All that endpoints serve: checks by the probe that asks for them, and pages, which have none.
pub(super) struct Table {
    calls: Mutex<Vec<ProbedCall>>,
    /// The threads of the calls.
    pub(super) threads: WorkerGroup,
    /// Wakes the server: at its start, its stop and the end of each call.
    pub(super) bell: Arc<WakeUp>,
    pub(super) is_served: AtomicBool,
    pub(super) options: EndpointsOptions,
}

impl Table {
    pub(super) fn new(bell: Arc<WakeUp>, options: EndpointsOptions) -> Self {
        Self {
            calls: Mutex::ranked(Rank::ENDPOINTS, Vec::new()),
            threads: WorkerGroup::default(),
            bell,
            is_served: AtomicBool::new(false),
            options,
        }
    }

    pub(super) fn add(&self, probe: Option<Probe>, call: Arc<NamedCall>) -> Result<(), Error> {
        let name = &*call.name;
        let is_in_place = match probe {
            Some(_) => !name.is_empty() && !name.contains('/'),
            None => name.starts_with('/'),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if !is_in_place || !name.chars().all(is_plain) {
            let rule = "use ASCII letters, digits, `-`, `_` and `.`, and begin a path with `/`";
            return Err(Error::config(format!("{}: {rule}", call.port)));
        }
        let mut calls = self.calls.lock();
        let is_own = name == PING || ProbePath::of(name).is_some();
        if is_own || calls.iter().any(|(_, known)| known.name == name) {
            return Err(Error::config(format!("{} is there already", call.port)));
        }
        calls.push((probe, call));
        Ok(())
    }

    pub(super) fn remove_check(&self, name: &str) -> bool {
        let is_it = |(of, it): &mut ProbedCall| of.is_some() && it.name == name;
        let removed: Vec<_> = self.calls.lock().extract_if(.., is_it).collect();
        // Its drop may be code of the program.
        !removed.is_empty()
    }

    /// Starts the calls that answer a request for `target`, a path with or without a query.
    pub(super) fn ask(&self, target: &str, now: Instant) -> Pending {
        let calls = self.calls.lock().clone();
        let pending = self.answer(&calls, target, now);
        let calls = calls.into_iter();
        let removed: Vec<_> = calls.filter_map(|(_, it)| Arc::into_inner(it)).collect();
        // Removed meanwhile: its drop is code of the program, which may hang.
        if let Some(NamedCall { port, .. }) = removed.first() {
            let port = format!("the drop of {port}");
            let dropping = || Worker::spawn("ep-removed", move |_stop| drop(removed)).ok();
            if let Some(thread) = guard_logged(port, dropping) {
                self.threads.add(thread);
            }
        }
        pending
    }

    fn answer(&self, calls: &[ProbedCall], target: &str, now: Instant) -> Pending {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let probe = ProbePath::of(path).filter(|_| !self.options.without_probes);
        let is_asked = |of: Option<Probe>, name: &str| match (&probe, of) {
            (Some(probe), Some(of)) => of <= probe.probe && ["", name].contains(&probe.check),
            (probe, of) => probe.is_none() && of.is_none() && name == path,
        };
        let calls = calls.iter().filter(|(of, call)| is_asked(*of, &call.name));
        let calls: Vec<_> = calls.map(|(_, call)| call).collect();
        let bell: Arc<dyn Wake> = Arc::<WakeUp>::clone(&self.bell);
        let run = |call: &&Arc<NamedCall>| call.run(&self.threads, &bell, now);
        let limits = calls.iter().map(|call| call.limit);
        let until = later(now, limits.max().unwrap_or_default());
        let not_found = || Pending::known(WebPage::text("404 page not found\n").code(404), now);
        let Some(probe) = probe else {
            return calls.first().map(run).map_or_else(not_found, |run| {
                let failed = |why| WebPage::text(format!("{why}\n")).code(500);
                let page = Box::new(move |now| Some(run.outcome(now)?.unwrap_or_else(failed)));
                Pending { until, page }
            });
        };
        let parameters = || query.split('&');
        let is_excluded = |name| parameters().any(|one| one.strip_prefix("exclude=") == Some(name));
        let has_ping = ["", PING].contains(&probe.check);
        let ping = has_ping.then(|| (PING.to_owned(), None));
        let others = calls.iter().map(|check| match &*check.name {
            name if is_excluded(name) => (format!("{name} excluded:"), None),
            name => (name.to_owned(), Some(run(check))),
        });
        let lines: Vec<_> = ping.into_iter().chain(others).collect();
        if lines.is_empty() {
            return not_found();
        }
        let is_verbose = parameters().any(|one| one == "verbose" || one.starts_with("verbose="));
        let probe = probe.name.to_owned();
        let page = Box::new(move |now| check_page(&probe, &lines, is_verbose, now));
        Pending { until, page }
    }
}

/// The answer of a probe in the form of Kubernetes components: `ok`, or a line for each check if
/// one failed or the request is verbose. `None` while a check runs and is not late.
fn check_page(
    probe: &str,
    lines: &[(String, Option<Arc<CallRun>>)],
    is_verbose: bool,
    now: Instant,
) -> Option<WebPage> {
    let (mut text, mut failed) = (String::new(), false);
    for (name, run) in lines {
        let why = match run {
            Some(run) => run.outcome(now)?.err(),
            None => None,
        };
        failed |= why.is_some();
        let line = match why {
            Some(why) => format!("[-]{name} failed: {why}\n"),
            None => format!("[+]{name} ok\n"),
        };
        text.push_str(&line);
    }
    Some(match (failed, is_verbose) {
        (true, _) => WebPage::text(format!("{text}{probe} check failed\n")).code(500),
        (false, true) => WebPage::text(format!("{text}{probe} check passed\n")),
        (false, false) => WebPage::text("ok"),
    })
}

/// An answer that may wait for calls of the program.
pub(super) struct Pending {
    /// When it comes at the latest.
    pub(super) until: Instant,
    /// The page, once each call has ended or is late.
    pub(super) page: Box<dyn Fn(Instant) -> Option<WebPage> + Send>,
}

impl Pending {
    pub(super) fn known(page: WebPage, now: Instant) -> Self {
        let page = Box::new(move |_now| Some(page.clone()));
        Self { until: now, page }
    }
}
