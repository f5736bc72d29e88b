//! The namespaces of a manager in which an object is watched. Decides which of them are watched as
//! a whole; starts and ends nothing.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::namespace::NamespaceWatch;
use crate::clock::later;
use crate::error::{Error, ErrorKind, default_of};
use crate::manager::report::{NamespaceReport, NamespaceState};
use crate::manager::watch::run::ThreadRun;
use crate::object::Object;
use crate::sync::{Arc, Mutex, Rank};

/// How long after a refusal the namespace is requested again.
const REFUSED_PAUSE: Duration = Duration::from_secs(5 * 60);
/// How long after some of its objects the next ones get watches by name.
pub(crate) const DRAIN_PAUSE: Duration = Duration::from_secs(1);
/// How long after a shortage of threads or reflectors the namespace is tried again.
const SHORTAGE_PAUSE: Duration = Duration::from_secs(60);

/// The namespaces of one manager in which an object is watched, and when they are looked at.
pub(crate) struct Namespaces<K: Object>(Mutex<NamespaceTable<K>>);

struct NamespaceTable<K: Object> {
    by_name: HashMap<Box<str>, Namespace<K>>,
    is_closed: bool,
}

struct Namespace<K: Object> {
    /// Each watch by name has a clone.
    by_name: Arc<()>,
    watch: Option<Arc<NamespaceWatch<K>>>,
    run: Option<ThreadRun>,
    /// The watch ends once its objects are watched by name, for this reason.
    draining: Option<String>,
    /// When the next of its objects get watches by name.
    drains_at: Option<Instant>,
    /// Why the namespace is not watched as a whole, and until when.
    refused: Option<(Error, Instant)>,
}

default_of!([K: Object] NamespaceTable<K>: by_name, is_closed);

impl<K: Object> Default for Namespaces<K> {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::NAMESPACES, NamespaceTable::default()))
    }
}

default_of!([K: Object] Namespace<K>: by_name, watch, run, draining, drains_at, refused);

impl<K: Object> Namespace<K> {
    fn watches_by_name(&self) -> usize {
        Arc::strong_count(&self.by_name).saturating_sub(1)
    }

    /// The watch that takes further objects.
    fn open_watch(&self) -> Option<&Arc<NamespaceWatch<K>>> {
        self.watch.as_ref().filter(|_| self.draining.is_none())
    }

    fn is_refused(&self, now: Instant) -> bool {
        self.refused.as_ref().is_some_and(|(_, until)| now < *until)
    }

    fn refuse(&mut self, why: Error, now: Instant) {
        let is_short = [ErrorKind::TooManyReflectors, ErrorKind::Resources].contains(&why.kind());
        let pause = if is_short {
            SHORTAGE_PAUSE
        } else {
            REFUSED_PAUSE
        };
        self.refused = Some((why, later(now, pause)));
    }
}

/// The namespace of a run that begins.
pub(crate) struct EnteredNamespace<K: Object> {
    pub(crate) by_name: Arc<()>,
    pub(crate) watch: Option<Arc<NamespaceWatch<K>>>,
    /// The caller starts that watch.
    pub(crate) is_new: bool,
}

/// The next step of the keeper about one namespace.
pub(crate) enum NamespaceStep<K: Object> {
    Start,
    /// The watch is open, or is refused: its objects may be taken over, or watched by name again.
    Look(Arc<NamespaceWatch<K>>),
    Drain(Arc<NamespaceWatch<K>>),
    Wait(Instant),
    End(Option<ThreadRun>),
}

impl<K: Object> Namespaces<K> {
    /// Enters a run that begins in the namespace. If that makes more than `above` watches by name,
    /// `make` makes the watch of the namespace.
    pub(crate) fn enter(
        &self,
        name: &str,
        above: usize,
        now: Instant,
        make: impl FnOnce() -> Arc<NamespaceWatch<K>>,
    ) -> EnteredNamespace<K> {
        let mut table = self.0.lock();
        let is_closed = table.is_closed;
        let namespace = table.by_name.entry_ref(name).or_default();
        let is_new = namespace.watch.is_none()
            && namespace.watches_by_name() >= above
            && !namespace.is_refused(now)
            && !is_closed;
        if is_new {
            namespace.watch = Some(make());
            namespace.refused = None;
        }
        EnteredNamespace {
            by_name: Arc::clone(&namespace.by_name),
            watch: namespace.open_watch().map(Arc::clone),
            is_new,
        }
    }

    /// The counter of the watches by name in the namespace.
    pub(crate) fn by_name(&self, name: &str) -> Arc<()> {
        let mut table = self.0.lock();
        let namespace = table.by_name.entry_ref(name).or_default();
        Arc::clone(&namespace.by_name)
    }

    pub(crate) fn names(&self) -> Vec<Box<str>> {
        self.0.lock().by_name.keys().cloned().collect()
    }

    /// The namespace's watch, if it takes further objects.
    pub(crate) fn open_watch(&self, name: &str) -> Option<Arc<NamespaceWatch<K>>> {
        let table = self.0.lock();
        table.by_name.get(name)?.open_watch().map(Arc::clone)
    }

    /// Notes the start of the watch, or its failure. Returns the run if it is no longer wanted.
    pub(crate) fn started(
        &self,
        watch: &Arc<NamespaceWatch<K>>,
        launched: Result<ThreadRun, Error>,
        now: Instant,
    ) -> Option<ThreadRun> {
        let mut table = self.0.lock();
        let is_closed = table.is_closed;
        let namespace = table.by_name.entry_ref(&*watch.namespace).or_default();
        let present = namespace.watch.as_ref();
        let is_wanted = !is_closed && present.is_some_and(|one| Arc::ptr_eq(one, watch));
        match launched {
            Ok(run) if is_wanted => {
                namespace.run = Some(run);
                None
            }
            Ok(run) => Some(run),
            Err(error) => {
                namespace.refuse(error, now);
                None
            }
        }
    }

    /// Refuses further watches. Returns the runs of those that there are.
    pub(crate) fn close(&self) -> Vec<ThreadRun> {
        let mut table = self.0.lock();
        table.is_closed = true;
        let namespaces = table.by_name.values_mut();
        namespaces.filter_map(|one| one.run.take()).collect()
    }

    /// Decides on the next step about the namespace.
    pub(crate) fn next_step(
        &self,
        name: &str,
        above: usize,
        now: Instant,
    ) -> Option<NamespaceStep<K>> {
        let mut table = self.0.lock();
        let namespace = table.by_name.get_mut(name)?;
        let Some(watch) = namespace.watch.clone() else {
            if namespace.watches_by_name() > above && !namespace.is_refused(now) {
                return Some(NamespaceStep::Start);
            }
            if !namespace.is_refused(now) {
                namespace.refused = None;
                if namespace.watches_by_name() == 0 {
                    table.by_name.remove(name);
                }
            }
            return None;
        };
        let count = watch.object_count();
        if namespace.draining.is_none() {
            namespace.draining = match (&namespace.refused, watch.end_reason()) {
                // It was not started.
                (Some((why, _)), _) => Some(why.to_string()),
                (None, Some(why)) => {
                    let reason = why.to_string();
                    namespace.refuse(why, now);
                    Some(reason)
                }
                (None, None) if namespace.run.is_some() && count <= few(above) => {
                    Some(format!("only {count} of its objects are watched"))
                }
                (None, None) => None,
            };
        }
        if namespace.draining.is_none() {
            return Some(NamespaceStep::Look(watch));
        }
        watch.close();
        if count > 0 {
            if let Some(at) = namespace.drains_at.filter(|at| now < *at) {
                return Some(NamespaceStep::Wait(at));
            }
            namespace.drains_at = Some(later(now, DRAIN_PAUSE));
            return Some(NamespaceStep::Drain(watch));
        }
        (namespace.watch, namespace.draining, namespace.drains_at) = (None, None, None);
        Some(NamespaceStep::End(namespace.run.take()))
    }

    /// The namespaces that are watched as a whole, or would be if the server let them, sorted.
    pub(crate) fn reports(&self, now: Instant) -> Vec<NamespaceReport> {
        let table = self.0.lock();
        let reports = table.by_name.iter().filter_map(|(name, namespace)| {
            let watch = namespace.watch.as_ref();
            let status = watch.map(|watch| watch.status());
            let failure = || status.as_ref()?.failures.last().map(Error::to_string);
            let (state, reason) = match (watch, &namespace.draining) {
                (Some(_), Some(why)) => (NamespaceState::Draining, why.clone()),
                (Some(watch), None) if watch.has_opened() => {
                    (NamespaceState::Watching, failure().unwrap_or_default())
                }
                (Some(_), None) => (NamespaceState::Starting, failure().unwrap_or_default()),
                (None, _) => {
                    let (why, _) = namespace.refused.as_ref()?;
                    (NamespaceState::ByName, why.to_string())
                }
            };
            Some(NamespaceReport {
                namespace: name.to_string(),
                state,
                reason,
                objects: watch.map_or(0, |watch| watch.object_count()),
                watches_by_name: namespace.watches_by_name(),
                since_contact: status.and_then(|status| status.age(now)),
            })
        });
        let mut reports: Vec<_> = reports.collect();
        reports.sort_by(|a, b| a.namespace.cmp(&b.namespace));
        reports
    }
}

/// The number of objects with which a namespace is no longer watched as a whole. It is half the
/// number with which that begins, so that one object more or less does not start and end watches.
pub(crate) fn few(above: usize) -> usize {
    above.checked_div(2).unwrap_or(0)
}
