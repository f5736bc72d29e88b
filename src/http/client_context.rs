//! The state that a client shares with all lister-watchers and getters it makes.

use std::time::Duration;

use super::agent::{Agent, Endpoint};
use super::calls::admission::Urgency;
use super::calls::byte_budget::ByteBudget;
use super::calls::call_context::{CallContext, NamedDeadline};
use super::calls::errors;
use super::calls::limiter::Limiter;
use super::calls::request_threads::RequestThreads;
use super::client_options::ClientOptions;
use super::credentials::Runner;
use crate::clock::Deadline;
use crate::error::Error;
use crate::list_watch::RequestProgress;
use crate::object::Resource;
use crate::retry::is_retry;
use crate::sync::{Arc, Mutex, Rank};
use crate::worker::StopToken;

/// The state with the threads. The threads' jobs must not hold it: its drop joins the threads.
pub(crate) struct ClientInner {
    /// Its drop comes first: it ends the run of a plugin that a job waits for.
    pub(crate) _lease: Option<Arc<Runner>>,
    pub(crate) context: Arc<ClientContext>,
    /// The connections of all gets and of the client's own lists.
    pub(crate) pool: Arc<Agent>,
    pub(crate) threads: RequestThreads,
}

/// The state that jobs may hold.
pub(crate) struct ClientContext {
    pub(crate) endpoint: Endpoint,
    pub(crate) options: ClientOptions,
    /// Host and port of the server, for messages.
    pub(crate) server: Arc<str>,
    pub(crate) gzip: bool,
    pub(crate) limiter: Limiter,
    /// Counts the bytes that unfinished answers hold.
    pub(crate) budget: Arc<ByteBudget>,
    /// The kinds whose streamed lists made no progress (B8).
    pub(crate) without_watch_list: ResourceSet,
    /// The kinds on whose watches bookmarks came, and the longest time between two (B11).
    pub(crate) bookmark_intervals: ResourceSet<Duration>,
}

impl ClientInner {
    /// Begins a request on the caller's thread. Blocks until it has a permit of the rate limit and
    /// a slot. Returns the call, and the same with its slot and its phases.
    ///
    /// # Errors
    ///
    /// The stop, the deadline, or `Resources`.
    pub(crate) fn begin(
        &self,
        method: &str,
        urgency: &Urgency,
        stop: &StopToken,
        deadline: Deadline,
    ) -> Result<[CallContext; 2], Error> {
        let context = &self.context;
        context.permit(method, stop, deadline, urgency)?;
        let progress = RequestProgress::new(Arc::clone(&context.server));
        let slots = &self.threads.slots;
        let slot = slots.enter(urgency, &progress, stop, deadline);
        let call = context.call(stop, NamedDeadline::caller(deadline))?;
        let waiting = call.clone().with_progress(progress);
        let slot = slot.map_err(|interrupt| errors::failed("", waiting.explain(interrupt)))?;
        let working = waiting.with_slot(slot);
        Ok([call, working])
    }
}

impl ClientContext {
    /// Takes a permit of the rate limit. Blocks as [`Limiter::acquire`] does.
    ///
    /// # Errors
    ///
    /// As [`Limiter::acquire`], and `Timeout` if the deadline had passed before.
    pub(crate) fn permit(
        &self,
        method: &str,
        stop: &StopToken,
        deadline: Deadline,
        urgency: &Urgency,
    ) -> Result<(), Error> {
        errors::unsent_after(deadline, &self.options.clock, is_retry())?;
        let acquire = || self.limiter.acquire(stop, deadline, urgency);
        self.endpoint.metrics.limited(method, acquire)
    }

    /// Makes a call whose answer is counted in the client's byte budget.
    ///
    /// # Errors
    ///
    /// `Resources`, if the system has no free descriptor.
    pub(crate) fn call(
        &self,
        stop: &StopToken,
        until: NamedDeadline,
    ) -> Result<CallContext, Error> {
        let mut call = CallContext::new(stop, until)?.counted_in(&self.budget);
        call.is_retry = is_retry();
        Ok(call)
    }
}

/// Facts learnt about a server, by resource. The larger value stays.
pub(crate) struct ResourceSet<T = ()>(Mutex<Vec<(Resource, T)>>);

impl<T> Default for ResourceSet<T> {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::RESOURCE_SET, Vec::new()))
    }
}

impl<T: Copy + Ord> ResourceSet<T> {
    pub(crate) fn get(&self, resource: &Resource) -> Option<T> {
        let resources = self.0.lock();
        let known = resources.iter().find(|(known, _)| known == resource);
        known.map(|(_, value)| *value)
    }

    pub(crate) fn insert(&self, resource: &Resource, value: T) {
        let mut resources = self.0.lock();
        match resources.iter_mut().find(|(known, _)| known == resource) {
            Some((_, known)) => *known = value.max(*known),
            None => resources.push((resource.clone(), value)),
        }
    }
}
