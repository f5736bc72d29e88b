//! The client's list-watch port: lists and watches of a scope on one connection, gets and one-shot
//! lists on pooled connections.

use std::hash::RandomState;
use std::marker::PhantomData;
use std::time::Duration;

use super::agent::{Agent, HttpRequest, ResponseReader};
use super::calls::admission::Urgency;
use super::calls::call_context::{CallContext, NamedDeadline};
use super::calls::channel::ItemSender;
use super::calls::errors;
use super::calls::interrupt::{Interrupt, Limit};
use super::calls::request_threads::RunningRequest;
use super::calls::slots::Slot;
use super::client_context::{ClientContext, ClientInner};
use super::client_options::ClientOptions;
use super::requests;
use super::watch_stream::{OpenWatch, WatchBody};
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::guard::guard_call;
use crate::list_watch::{
    Getter, ListPage, ListRequest, Listed, ListerWatcher, RequestPhase, RequestProgress, Selection,
    WatchRequest, WatchStream,
};
use crate::object::{Object, ObjectKey, Resource, ResourceVersion, Scope, StoredObject};
use crate::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
use crate::wire::{Buffer, DecodeOptions, EventDecoder, ListDecoder, decode_object};
use crate::worker::StopToken;

/// The room for the first read of a single object.
const OBJECT_BYTES: usize = 8 * 1024;

/// The room for each read of a large object.
const OBJECT_READ_BYTES_MAX: usize = 64 * 1024;

/// Lists and watches one scope.
pub(crate) struct HttpListerWatcher<K> {
    client: Arc<ClientInner>,
    resource: Resource,
    scope: Scope,
    /// Selects the objects to decode; `None` selects all.
    selection: Option<Arc<dyn Selection>>,
    /// Whether each list is read with quorum.
    consistent: bool,
    /// The path of each list in place of the scope's, and what makes the versions of its items.
    of_path: Option<(&'static str, RandomState)>,
    agent: Arc<Agent>,
    /// The phase of the current request.
    progress: RequestProgress,
    /// The urgency of the current list.
    urgency: Urgency,
    /// The bytes of the current list's pages so far.
    list_bytes: Arc<AtomicUsize>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> HttpListerWatcher<K> {
    pub(crate) fn new(client: &Arc<ClientInner>, resource: Resource, scope: Scope) -> Self {
        Self {
            client: Arc::clone(client),
            resource,
            scope,
            selection: None,
            consistent: false,
            of_path: None,
            agent: Arc::new(Agent::new(&client.context.endpoint.dialer, 1)),
            progress: RequestProgress::new(Arc::clone(&client.context.server)),
            urgency: Urgency::new(false),
            list_bytes: Arc::new(AtomicUsize::new(0)),
            kind: PhantomData,
        }
    }

    /// Lists and watches only the objects that `selection` selects.
    pub(crate) fn selecting(mut self, selection: Arc<dyn Selection>) -> Self {
        self.selection = Some(selection);
        self
    }

    /// Lists once, on the client's pool of connections.
    pub(crate) fn pooled(mut self) -> Self {
        self.agent = Arc::clone(&self.client.pool);
        self
    }

    /// Lists with quorum, so that no list is older than its request.
    pub(crate) fn consistent(mut self) -> Self {
        self.consistent = true;
        self
    }

    /// Lists what `path` answers, whole and without parameters. Each item gets a version made of
    /// its text, in place of its own.
    pub(crate) fn at_path(mut self, path: &'static str) -> Self {
        self.of_path = Some((path, RandomState::new()));
        self
    }

    /// Runs `job` on a thread of its own, as soon as the request has a slot.
    fn run<T, J>(&self, urgency: &Urgency, stop: &StopToken, job: J) -> RunningRequest<T>
    where
        T: Send + 'static,
        J: FnOnce(Arc<Slot>, &ItemSender<Result<T, Error>>) -> Result<T, Error> + Send + 'static,
    {
        let port = format!("the decoder of {}", self.describe());
        let waiting = (urgency, &self.progress);
        self.client.threads.run(waiting, stop, port, job)
    }

    fn failed(&self, interrupt: Interrupt) -> Error {
        errors::failed(&self.describe(), interrupt)
    }
}

/// Reads the available bytes of a body. Blocks until the first byte, at most until `until`.
pub(super) fn read_some(
    answer: &mut ResponseReader,
    space: &mut [u8],
    until: NamedDeadline,
) -> Result<usize, Error> {
    // A body without pauses never reaches the deadline of a wait.
    let read = if Clock::system().has_passed(until.deadline) {
        Err(Interrupt::Limit(until.limit))
    } else {
        answer.read(space, until)
    };
    read.map_err(|interrupt| answer.cut_off(interrupt))
}

/// Reads a body whole, or until it has more than `bytes_max`.
pub(super) fn read_body(
    answer: &mut ResponseReader,
    options: &ClientOptions,
    bytes_max: usize,
) -> Result<Buffer, Error> {
    let mut buffer = Buffer::new(OBJECT_BYTES, OBJECT_READ_BYTES_MAX);
    let end = answer.call.until.within(options.body_timeout, Limit::Body);
    while buffer.pending().len() <= bytes_max {
        let granted = buffer.reserve(&mut |growth| answer.call.grow(growth));
        granted.map_err(|error| answer.failed(error))?;
        answer.call.settle(buffer.held());
        let until = end.within(options.body_idle_timeout, Limit::Idle);
        let count = read_some(answer, buffer.space(), until)?;
        if count == 0 {
            break;
        }
        buffer.filled(count);
    }
    Ok(buffer)
}

/// One list, on a thread of its own.
struct ListJob<K: Object> {
    context: Arc<ClientContext>,
    agent: Arc<Agent>,
    is_pooled: bool,
    path: String,
    one_object: bool,
    selection: Option<Arc<dyn Selection>>,
    texts: Option<RandomState>,
    urgency: Urgency,
    list_bytes: Arc<AtomicUsize>,
    call: CallContext,
    kind: PhantomData<fn() -> K>,
}

/// A message of a list to its caller: items, and the end with the length of the body in bytes. The
/// last items come with the end, so that a small list wakes its caller once.
type ListAnswer<K> = (Vec<Listed<K>>, Option<(ListPage, usize)>);

impl<K: Object> ListJob<K> {
    fn run(
        self,
        slot: Arc<Slot>,
        caller: &ItemSender<Result<ListAnswer<K>, Error>>,
    ) -> Result<ListAnswer<K>, Error> {
        let call = self.call.with_slot(slot);
        let options = &self.context.options;
        let context = &self.context;
        let permit = || context.permit("GET", call.stop(), call.whole.deadline, &self.urgency);
        let request = HttpRequest {
            payload: None,
            path: &self.path,
            gzip: self.context.gzip,
            first_byte: if self.one_object {
                options.object_list_first_byte_timeout
            } else {
                options.list_first_byte_timeout
            },
            second_try: (self.one_object || self.is_pooled).then_some(&permit),
            // A pooled connection may have been idle for long.
            sooner_if_kept: self.is_pooled,
            of_collection: true,
            accept: requests::accept::<K>(true, options.decode.trim),
        };
        let mut answer = self.agent.get(&self.context.endpoint, &request, &call)?;
        let mut decoder = if self.one_object {
            ListDecoder::<K>::for_one_object(&options.decode)
        } else {
            ListDecoder::<K>::new(&options.decode)
        }
        .selecting(self.selection)
        .versioned_by(self.texts);
        decoder.bytes = self.list_bytes.load(Ordering::Relaxed);
        let end = call.until.within(options.body_timeout, Limit::Body);
        let mut items = Vec::new();
        loop {
            let until = end.within(options.body_idle_timeout, Limit::Idle);
            decoder
                .reserve(&mut |growth| answer.call.grow(growth))
                .map_err(|error| answer.failed(error))?;
            answer.call.settle(decoder.held_bytes());
            let count = read_some(&mut answer, decoder.space(), until)?;
            if count == 0 {
                break;
            }
            let read = std::mem::take(&mut items);
            if !read.is_empty() {
                let sent = caller.send(Ok((read, None)), Some(&answer.call));
                sent.map_err(|interrupt| answer.cut_off(interrupt))?;
            }
            if answer.call.stop().is_stopped() {
                return Err(Error::stopped(&answer.what));
            }
            decoder
                .filled(count, &mut |item| items.push(item))
                .map_err(|error| answer.failed(error))?;
            answer.decoded(&mut decoder.skipped_bytes);
        }
        self.list_bytes.store(decoder.bytes, Ordering::Relaxed);
        let page = decoder.finish().map_err(|error| answer.failed(error))?;
        Ok((items, Some((page, answer.body_bytes))))
    }
}

impl<K: Object> HttpListerWatcher<K> {
    /// Lists as [`ListerWatcher::list`] does, until `deadline` at most.
    pub(crate) fn list_by(
        &self,
        request: &ListRequest,
        deadline: Deadline,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        let mut asked = request.clone();
        if self.consistent && asked.resource_version.is_unset() {
            asked.resource_version = ResourceVersion::most_recent();
        }
        let path = match &self.of_path {
            Some((path, _)) => (*path).to_owned(),
            None => requests::list(&self.resource, &self.scope, &asked)?,
        };
        let metrics = &self.client.context.endpoint.metrics;
        if request.urgent {
            self.urgency.set(true);
        }
        if request.continue_token.is_none() {
            self.list_bytes.store(0, Ordering::Relaxed);
        }
        let what = self.client.context.endpoint.named("GET", &path);
        let listed = metrics.ended("GET", || self.list_path(path, deadline, stop, each));
        listed.map_err(|error| error.of_request(&what))
    }

    /// Also returns the length of the body in bytes.
    fn list_path(
        &self,
        path: String,
        deadline: Deadline,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<(ListPage, usize), Error> {
        self.progress.enter(RequestPhase::Limited);
        let context = &self.client.context;
        context.permit("GET", stop, deadline, &self.urgency)?;
        let call = context.call(stop, NamedDeadline::caller(deadline))?;
        let call = call.with_progress(self.progress.clone());
        let job = ListJob::<K> {
            context: Arc::clone(context),
            agent: Arc::clone(&self.agent),
            is_pooled: Arc::ptr_eq(&self.agent, &self.client.pool),
            path,
            urgency: self.urgency.clone(),
            list_bytes: Arc::clone(&self.list_bytes),
            one_object: self.scope.is_one_object(),
            selection: self.selection.clone(),
            texts: self.of_path.as_ref().map(|(_, texts)| texts.clone()),
            call: call.clone(),
            kind: PhantomData,
        };
        let parts = self.run(&self.urgency, stop, move |slot, caller| {
            job.run(slot, caller)
        });
        loop {
            let part = parts.receive_one(&call);
            let part = part.map_err(|interrupt| self.failed(call.explain(interrupt)));
            let (items, end) = part??;
            items.into_iter().for_each(&mut *each);
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    pub(super) fn open_watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<OpenWatch<K>, Error> {
        let path = requests::watch(&self.resource, &self.scope, request)?;
        let call = self.client.context.call(stop, NamedDeadline::NEVER)?;
        let (context, agent) = (Arc::clone(&self.client.context), Arc::clone(&self.agent));
        let (asking, urgent) = (call.clone(), request.urgent);
        let initial_events = request.send_initial_events;
        let one_object = self.scope.is_one_object();
        let options = &self.client.context.options;
        let first_byte = if initial_events {
            // A streamed list sends its objects at once. A late head means that the server does not
            // support it (B8).
            options.watch_first_byte_timeout.min(request.head_timeout)
        } else {
            request.head_timeout
        };
        let (progress, selection) = (self.progress.clone(), self.selection.clone());
        let opening = move |slot, _caller: &_| {
            let request = HttpRequest {
                payload: None,
                path: &path,
                // A server compresses a streamed list, and no other watch.
                gzip: initial_events && context.gzip,
                first_byte,
                // The limiter does not count requests that open watches (RS-1).
                second_try: Some(&|| Ok(())),
                sooner_if_kept: false,
                of_collection: true,
                accept: requests::accept::<K>(false, context.options.decode.trim),
            };
            let telling = asking.clone().with_slot(slot).with_progress(progress);
            let mut answer = agent.get(&context.endpoint, &request, &telling)?;
            // Events are read without a slot, because those reads never block.
            answer.call = asking;
            let decode = &context.options.decode;
            let decoder = if initial_events {
                EventDecoder::with_initial_events(decode)
            } else if one_object {
                EventDecoder::for_one_object(decode)
            } else {
                EventDecoder::new(decode)
            };
            Ok(WatchBody::boxed(decoder.selecting(selection), answer))
        };
        let opened = self.run(&Urgency::new(urgent), stop, opening);
        let opened: Result<_, Error> = opened
            .receive_one(&call)
            .map_err(|interrupt| self.failed(interrupt))?;
        let decoded_by = one_object.then(|| Arc::clone(&self.client));
        Ok(OpenWatch::new(decoded_by, opened?))
    }
}

impl<K: Object> ListerWatcher<K> for HttpListerWatcher<K> {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        let listed = self.list_by(request, Deadline::NEVER, stop, each);
        self.progress.enter(RequestPhase::Idle);
        self.urgency.set(false);
        listed
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error> {
        let opened = self.open_watch(request, stop);
        self.progress.enter(RequestPhase::Idle);
        let watch: Box<dyn WatchStream<K>> = Box::new(opened?);
        Ok(watch)
    }

    fn expedite(&self) {
        self.client.context.limiter.expedite(&self.urgency);
        self.client.threads.slots.expedite(&self.urgency);
    }

    fn supports_watch_list(&self) -> bool {
        let context = &self.client.context;
        context.options.watch_list
            && !self.scope.is_one_object()
            && context.without_watch_list.get(&self.resource).is_none()
    }

    fn watch_list_failed(&self) {
        let kinds = &self.client.context.without_watch_list;
        kinds.insert(&self.resource, ());
    }

    fn bookmark_interval(&self) -> Option<Duration> {
        self.client.context.bookmark_intervals.get(&self.resource)
    }

    fn bookmark_came(&self, interval: Duration) {
        let intervals = &self.client.context.bookmark_intervals;
        intervals.insert(&self.resource, interval);
    }

    fn lists_one_object(&self) -> bool {
        self.scope.is_one_object()
    }

    fn progress(&self) -> Option<RequestProgress> {
        Some(self.progress.clone())
    }

    fn disconnect(&self) {
        self.agent.disconnect();
    }

    fn objects_max(&self) -> usize {
        self.client.context.options.decode.list_items_max
    }

    fn check(&self) -> Result<(), Error> {
        requests::list(&self.resource, &self.scope, &ListRequest::default()).map(drop)
    }

    fn describe(&self) -> String {
        requests::describe(&self.resource, &self.scope)
    }
}

/// Gets single objects over the client's pool.
pub(crate) struct ObjectGetter<K> {
    client: Arc<ClientInner>,
    resource: Resource,
    decode: DecodeOptions,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> ObjectGetter<K> {
    /// With `is_for_cache`, objects have the fields that the client's lists have. Otherwise a type
    /// that can be written back keeps all fields (B19).
    pub(crate) fn new(client: &Arc<ClientInner>, resource: Resource, is_for_cache: bool) -> Self {
        let decode = &client.context.options.decode;
        let decode = if is_for_cache {
            decode.clone()
        } else {
            decode.for_program::<K>()
        };
        Self {
            client: Arc::clone(client),
            resource,
            decode,
            kind: PhantomData,
        }
    }

    /// Also returns the length of the body in bytes.
    fn decode(
        &self,
        key: &ObjectKey,
        mut answer: ResponseReader,
    ) -> Result<(Arc<StoredObject<K>>, usize), Error> {
        let options = &self.client.context.options;
        // The decoder refuses a body with one byte more than the maximum.
        let buffer = read_body(&mut answer, options, self.decode.item_bytes_max)?;
        let mut skipped_bytes = 0;
        let decode = || decode_object(buffer.pending(), &self.decode, &mut skipped_bytes);
        let object = guard_call(errors::DECODER, decode);
        answer.decoded(&mut skipped_bytes);
        let object: Arc<StoredObject<K>> = object.map_err(|error| answer.failed(error))?;
        // An error is better than one object's content under the name of another.
        let is_other_namespace = ![key.namespace(), ""].contains(&object.namespace());
        if object.name() != key.name() || is_other_namespace {
            let other = errors::printable(&object.key().to_string());
            let text = format!("the answer is another object, {other}");
            return Err(answer.failed(Error::new(ErrorKind::Protocol, text)));
        }
        Ok((object, answer.body_bytes))
    }
}

impl<K: Object> Getter<K> for ObjectGetter<K> {
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        self.get_as(&Urgency::new(true), (key, version), deadline, stop)
    }

    fn get_in_background(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        self.get_as(&Urgency::new(false), (key, version), deadline, stop)
    }
}

impl<K: Object> ObjectGetter<K> {
    fn get_as(
        &self,
        urgency: &Urgency,
        (key, version): (&ObjectKey, &ResourceVersion),
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let path = requests::get(&self.resource, key, version)?;
        let metrics = &self.client.context.endpoint.metrics;
        let got = metrics.ended("GET", || {
            self.get_path(urgency, (key, &path, version), deadline, stop)
        });
        got.map_err(|error| error.of_request(&self.client.context.endpoint.named("GET", &path)))
    }

    /// Also returns the length of the body in bytes.
    fn get_path(
        &self,
        urgency: &Urgency,
        (key, path, version): (&ObjectKey, &str, &ResourceVersion),
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<(Arc<StoredObject<K>>, usize), Error> {
        let ClientInner { context, pool, .. } = &*self.client;
        let permit = || context.permit("GET", stop, deadline, urgency);
        let [_, call] = self.client.begin("GET", urgency, stop, deadline)?;
        let request = HttpRequest {
            payload: None,
            path,
            gzip: false,
            first_byte: context.options.get_first_byte_timeout,
            second_try: Some(&permit),
            // A server that has not yet reached the version may hold the response back for seconds.
            sooner_if_kept: version.is_unset(),
            of_collection: false,
            accept: requests::accept::<K>(false, self.decode.trim),
        };
        self.decode(key, pool.get(&context.endpoint, &request, &call)?)
    }
}
