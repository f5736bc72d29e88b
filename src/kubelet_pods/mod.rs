//! The pods of a node from its kubelet: a source that polls the kubelet, for reflectors and
//! informers.
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kubecache::http::{Client, ClientOptions, Config};
//! use kubecache::informer::{InformerOptions, SharedInformer};
//! use kubecache::kubelet_pods::KubeletPodsOptions;
//! # use kubecache::testing::{Answer, Exchange, FixtureServer, Recording};
//! # let pods = r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [
//! #     {"metadata": {"namespace": "shop", "name": "web-0", "uid": "1"}}]}"#;
//! # let kubelet = Recording::new().with(Exchange::get("/pods", Answer::text(200, pods)));
//! # let kubelet = FixtureServer::replaying(kubelet).endless().start()?;
//! # let url = kubelet.url();
//!
//! // let url = "https://node-1:10250";
//! let config = Config::for_server(&url)?; // and the CA, and a token that may read nodes/pods
//! let client = Client::new(&config, ClientOptions::default())?;
//! let source = client.kubelet_pods::<Pod>(KubeletPodsOptions::default());
//! let pods = SharedInformer::new(source, InformerOptions::default());
//! pods.start()?;
//! pods.wait_until_synced(Duration::from_secs(60))?;
//! assert!(pods.store().get("shop", "web-0")?.is_some());
//! # }
//! # Ok::<(), kubecache::Error>(())
//! ```
//!
//! The manual's page on [pods from the kubelet](crate::manual::kubelet_pods) has the URL, the
//! rights, and what such pods lack.

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::mem;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::clock::{Clock, Deadline, later};
use crate::error::{Error, ErrorKind};
use crate::http::Client;
use crate::list_watch::{
    Backlog, EventKind, ListPage, ListRequest, Listed, ListerWatcher, Next, ObjectEvent,
    RequestProgress, Undecodable, WatchEvent, WatchRequest, WatchStream,
};
use crate::object::{Object, ObjectKey, ResourceVersion};
use crate::policy::Chance;
use crate::setters::setters;
use crate::sync::{Arc, Mutex, Rank};
use crate::worker::{StopToken, WaitEnd};

/// Where a kubelet lists its pods.
const PATH: &str = "/pods";

/// A kubelet answers from memory. Its own loop works on a pod once in a second at most.
const INTERVAL: Duration = Duration::from_secs(10);
const INTERVAL_LEAST: Duration = Duration::from_secs(1);
/// Three intervals are shorter than the longest silence that a reflector allows.
const INTERVAL_MOST: Duration = Duration::from_secs(2 * 60);
/// Programs that start together do not poll together for long.
const JITTER: f64 = 0.2;

/// The options of a source that polls a kubelet.
#[derive(Clone, Debug)]
#[must_use]
pub struct KubeletPodsOptions {
    interval: Duration,
}

impl Default for KubeletPodsOptions {
    fn default() -> Self {
        Self { interval: INTERVAL }
    }
}

setters! { [] KubeletPodsOptions;
    /// Sets the time from an answer to the next poll. Up to a fifth is added by chance. At least 1
    /// s, at most 2 minutes. Default: 10 s.
    interval(interval: Duration) = interval.clamp(INTERVAL_LEAST, INTERVAL_MOST);
}

impl Client {
    /// Makes a source of the pods that the kubelet at this client's URL lists, with a connection of
    /// its own.
    ///
    /// The client's configuration is that of the kubelet: `https://NODE:10250`, its authority, and
    /// a token or a certificate. Its limits and rate apply to each poll. `http://NODE:10255` is the
    /// read-only port; whatever credentials the configuration has would go there in plain text. `K`
    /// is a pod, or a type that has some of its fields.
    ///
    /// A list of the source is one poll. Its watch polls at the interval and reports the
    /// differences: first the pods that are gone, then the others. A failed poll is an error of the
    /// list or the watch, and never an empty list. Then the reflector decides when it polls again.
    ///
    /// The pods have [versions of this program](ResourceVersion::is_local), made of their content.
    /// A kubelet's list has no version. Its static pods have none, and the others keep the one with
    /// which the kubelet first saw them. Of several pods with one name, the source reports the
    /// youngest. Use each source for one reflector.
    ///
    /// Sends no request. [`ListerWatcher::check`] fails with
    /// [`Config`](crate::ErrorKind::Config) if `K` is another kind.
    ///
    /// # Examples
    ///
    /// As in the [module's docs](crate::kubelet_pods).
    pub fn kubelet_pods<K: Object>(
        &self,
        options: KubeletPodsOptions,
    ) -> Arc<dyn ListerWatcher<K>> {
        let context = &self.inner.context;
        let polls = PodPolls {
            number: 0,
            known: HashMap::new(),
            due: None,
            chance: Chance::new(RandomState::new().build_hasher().finish()),
        };
        Arc::new(KubeletSource(Arc::new(Kubelet {
            pods: self.lister_of_path(PATH),
            what: format!("pods of the kubelet at {}", context.server),
            clock: context.options.clock.clone(),
            options,
            polls: Mutex::ranked(Rank::KUBELET_PODS, polls),
        })))
    }
}

/// The kubelet, and what its last answer had.
struct Kubelet<K: Object> {
    pods: Arc<dyn ListerWatcher<K>>,
    /// Names the pods in messages.
    what: String,
    clock: Clock,
    options: KubeletPodsOptions,
    polls: Mutex<PodPolls>,
}

struct PodPolls {
    /// The number of the last answer.
    number: u64,
    /// The identities of its pods.
    known: HashMap<ObjectKey, Identity>,
    /// When the next poll is due. `None` after a failed one: before anything else.
    due: Option<Instant>,
    chance: Chance,
}

/// A pod's UID and version.
type Identity = (Box<str>, Box<str>);

impl<K: Object> Kubelet<K> {
    /// Polls once. Returns the pods, each name once.
    fn poll(&self, urgent: bool, stop: &StopToken) -> Result<Vec<Listed<K>>, Error> {
        let request = ListRequest {
            urgent,
            ..ListRequest::default()
        };
        self.polls.lock().due = None;
        let mut pods = Vec::new();
        self.pods.list(&request, stop, &mut |pod| pods.push(pod))?;
        Ok(youngest(pods, &self.what))
    }

    /// Notes an answer. Returns its differences from the one before, and its version.
    fn note(&self, pods: &[Listed<K>]) -> (VecDeque<WatchEvent<K>>, ResourceVersion) {
        let now = self.clock.now();
        let mut polls = self.polls.lock();
        let wait = polls.chance.stretch(self.options.interval, JITTER);
        polls.due = Some(later(now, wait));
        polls.number = polls.number.saturating_add(1);
        let (number, version) = (polls.number, polls.version());
        let mut before = mem::take(&mut polls.known);
        let (mut gone, mut news) = (Vec::new(), Vec::new());
        for pod in pods {
            let (key, (uid, version)) = (pod.key(), pod.identity());
            let identity = (uid.into(), version.into());
            let kind = match before.remove(&key) {
                Some(held) if held == identity => None,
                Some(held) if held.0 != identity.0 => {
                    gone.push((key.clone(), held));
                    Some(EventKind::Added)
                }
                Some(_) => Some(EventKind::Updated),
                None => Some(EventKind::Added),
            };
            news.extend(kind.map(|kind| ObjectEvent {
                kind,
                object: pod.clone(),
            }));
            polls.known.insert(key, identity);
        }
        drop(polls);
        gone.extend(before);
        let gone = gone.into_iter();
        let gone = gone.map(|(key, held)| self.end(key, held, number));
        (gone.chain(news).map(WatchEvent::from).collect(), version)
    }

    /// The end of a pod that an answer lacks. Its last state is not known.
    fn end(&self, key: ObjectKey, (uid, _): Identity, number: u64) -> ObjectEvent<K> {
        let text = format!("{key} is not among the {} any more", self.what);
        ObjectEvent::deleted(Undecodable {
            key,
            uid: uid.into(),
            // The pod may come back as it was, when the kubelet restarts. It is no position from
            // which a watch could go on.
            resource_version: ResourceVersion::local("gone", number),
            error: Error::new(ErrorKind::NotFound, text),
        })
    }
}

impl PodPolls {
    fn version(&self) -> ResourceVersion {
        ResourceVersion::local("poll", self.number)
    }
}

/// Leaves the youngest pod of each name, because the kubelet lists its pods by UID and in no order.
fn youngest<K: Object>(pods: Vec<Listed<K>>, what: &str) -> Vec<Listed<K>> {
    let mut places = HashMap::new();
    let mut found = Vec::<Listed<K>>::new();
    for pod in pods {
        let place = *places.entry(pod.key()).or_insert(found.len());
        let Some(other) = found.get_mut(place) else {
            found.push(pod);
            continue;
        };
        log::debug!("{what}: two pods have the name {}", pod.key());
        if age(other) < age(&pod) {
            *other = pod;
        }
    }
    found
}

/// What orders pods by their age. A static pod has no time of creation.
fn age<K: Object>(pod: &Listed<K>) -> (Option<impl Ord>, &str) {
    let created = pod.decoded().and_then(|pod| pod.creation_timestamp());
    (created.map(|created| created.0), pod.uid())
}

/// What [`Client::kubelet_pods`] returns.
struct KubeletSource<K: Object>(Arc<Kubelet<K>>);

impl<K: Object> ListerWatcher<K> for KubeletSource<K> {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        let pods = self.0.poll(request.urgent, stop)?;
        let (_, resource_version) = self.0.note(&pods);
        pods.into_iter().for_each(each);
        Ok(ListPage {
            resource_version,
            ..ListPage::default()
        })
    }

    /// Opens at once, unless the last poll failed: then it polls.
    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error> {
        let kubelet = &self.0;
        let polls = kubelet.polls.lock();
        let (is_next, due) = (polls.version() == request.resource_version, polls.due);
        drop(polls);
        if !is_next {
            return Err(asked_again(&request.resource_version));
        }
        let now = kubelet.clock.now();
        let mut stream = KubeletStream {
            kubelet: Arc::clone(kubelet),
            version: request.resource_version.clone(),
            ends: later(now, request.timeout),
            events: VecDeque::new(),
            last_contact: now,
            stop: stop.clone(),
        };
        if due.is_none() {
            stream.poll(request.urgent)?;
        }
        Ok(Box::new(stream))
    }

    fn expedite(&self) {
        self.0.pods.expedite();
    }

    fn bookmark_interval(&self) -> Option<Duration> {
        Some(self.0.options.interval)
    }

    fn progress(&self) -> Option<RequestProgress> {
        self.0.pods.progress()
    }

    fn disconnect(&self) {
        self.0.pods.disconnect();
    }

    fn objects_max(&self) -> usize {
        self.0.pods.objects_max()
    }

    fn check(&self) -> Result<(), Error> {
        let resource = K::resource();
        if matches!(resource.plural(), "" | "pods") {
            return Ok(());
        }
        let text = format!("a kubelet lists pods, not {resource}");
        Err(Error::new(ErrorKind::Config, text))
    }

    fn describe(&self) -> String {
        self.0.what.clone()
    }
}

fn asked_again(since: &ResourceVersion) -> Error {
    let text = format!("the kubelet was asked for its pods again since {since}");
    Error::new(ErrorKind::Expired, text)
}

/// The watch of a kubelet: polls, and their differences.
struct KubeletStream<K: Object> {
    kubelet: Arc<Kubelet<K>>,
    /// That of the last answer that it has reported, or will.
    version: ResourceVersion,
    ends: Instant,
    /// What is left to report of the last answer.
    events: VecDeque<WatchEvent<K>>,
    last_contact: Instant,
    stop: StopToken,
}

impl<K: Object> KubeletStream<K> {
    fn poll(&mut self, urgent: bool) -> Result<(), Error> {
        // Another user of the source has taken the differences.
        if self.kubelet.polls.lock().version() != self.version {
            return Err(asked_again(&self.version));
        }
        let pods = self.kubelet.poll(urgent, &self.stop)?;
        let (events, version) = self.kubelet.note(&pods);
        self.version = version.clone();
        self.last_contact = self.kubelet.clock.now();
        self.events = events;
        // An answer without a difference confirms the content, too.
        self.events.push_back(WatchEvent::Bookmark {
            resource_version: version,
            initial_events_end: false,
        });
        Ok(())
    }
}

impl<K: Object> WatchStream<K> for KubeletStream<K> {
    /// A poll that has begun goes on after `deadline`, up to the client's limits.
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Next::Event(event));
            }
            let (clock, now) = (&self.kubelet.clock, self.kubelet.clock.now());
            let due = self.kubelet.polls.lock().due.unwrap_or(now);
            if now >= self.ends {
                return Ok(Next::Ended(None));
            }
            if now < due {
                let until = Deadline::at(due.min(self.ends)).earlier(deadline);
                if self.stop.wait_until(clock, until) == WaitEnd::Stopped {
                    return Err(Error::stopped(&self.kubelet.what));
                }
                if clock.has_passed(deadline) {
                    return Ok(Next::DeadlinePassed);
                }
            } else if let Err(error) = self.poll(false) {
                return if self.stop.is_stopped() {
                    Err(error)
                } else {
                    Ok(Next::Event(WatchEvent::Error(error)))
                };
            }
        }
    }

    fn last_contact(&self) -> Instant {
        self.last_contact
    }

    fn backlog(&self) -> Backlog {
        if self.events.is_empty() {
            Backlog::Unknown
        } else {
            Backlog::Event
        }
    }
}
