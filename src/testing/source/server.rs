//! The state of the fake server, and its answers: pages, versions of lists, gets, events of
//! watches.

use std::time::Duration;

use super::faults::{FaultPlan, SeenRequest, SourceFault};
use super::feed::Feed;
use super::model::{Model, expired, number, selects, too_large};
use crate::error::Error;
use crate::list_watch::{
    ListPage, ListRequest, Listed, Next, OBJECTS_MAX, VersionMatch, WatchRequest,
};
use crate::object::{Object, ObjectKey, ResourceVersion, Scope};

/// Everything under the fake's one mutex.
#[derive(Debug)]
pub(super) struct Server<K: Object> {
    pub(super) model: Model<K>,
    pub(super) requests: Vec<SeenRequest>,
    pub(super) plan: FaultPlan,
    pub(super) feeds: Vec<(u64, Feed<K>)>,
    next_feed: u64,
    pub(super) streams_lists: bool,
    /// The server has no watch cache: it pages lists at `0`.
    pub(super) pages_at_zero: bool,
    /// The version that lists and gets at `0` see when the cache lags.
    pub(super) cached: Option<u64>,
    pub(super) watch_list_failures: usize,
    /// The bookmark interval that a client remembers of a server (B11).
    pub(super) bookmark_interval: Option<Duration>,
    /// Whether a watch from a future version opens and stays silent, instead of a refusal.
    pub(super) silent_futures: bool,
    /// The maximum number of objects for its caches.
    pub(super) objects_max: usize,
}

impl<K: Object> Default for Server<K> {
    fn default() -> Self {
        Self {
            model: Model::new(),
            requests: Vec::new(),
            plan: FaultPlan::default(),
            feeds: Vec::new(),
            next_feed: 0,
            streams_lists: false,
            pages_at_zero: false,
            cached: None,
            watch_list_failures: 0,
            bookmark_interval: None,
            silent_futures: false,
            objects_max: OBJECTS_MAX,
        }
    }
}

impl<K: Object> Server<K> {
    /// One page: at the most recent version, from the cache at `0`, not older than a version, or
    /// (in pages) at exactly that version.
    pub(super) fn page(
        &self,
        request: &ListRequest,
        scope: &Scope,
    ) -> Result<(Vec<Listed<K>>, ListPage), Error> {
        let current = self.model.version();
        let (version, from) = match &request.continue_token {
            Some(token) => {
                let (version, from) = token.split_once(':').unwrap_or((token, ""));
                let version = version.parse().unwrap_or(current);
                let from = ObjectKey::parse(from);
                if version < self.model.compacted() {
                    return Err(expired(version, self.model.compacted()));
                }
                (version, from)
            }
            None => (self.read_version(request)?, None),
        };
        let all = self.model.at(version);
        let mut selected = all
            .into_iter()
            .filter(|(key, _)| selects(scope, key) && Some(key) >= from.as_ref())
            .peekable();
        let paged = request.limit > 0
            && (request.resource_version != ResourceVersion::any() || self.pages_at_zero);
        let limit = if paged {
            usize::try_from(request.limit).unwrap_or(usize::MAX)
        } else {
            usize::MAX
        };
        let items: Vec<_> = selected
            .by_ref()
            .take(limit)
            .map(|(_, item)| item)
            .collect();
        let page = ListPage {
            resource_version: ResourceVersion::from(version.to_string()),
            continue_token: selected.peek().map(|(key, _)| format!("{version}:{key}")),
            ..ListPage::default()
        };
        Ok((items, page))
    }

    fn read_version(&self, request: &ListRequest) -> Result<u64, Error> {
        let current = self.model.version();
        let asked = match number(&request.resource_version) {
            None => return Ok(current),
            Some(0) => return Ok(self.cached.unwrap_or(current).min(current)),
            Some(asked) => asked,
        };
        if asked > current {
            return Err(too_large(asked, current));
        }
        if request.limit == 0 || request.version_match == Some(VersionMatch::NotOlderThan) {
            return Ok(current);
        }
        if asked < self.model.compacted() {
            return Err(expired(asked, self.model.compacted()));
        }
        Ok(asked)
    }

    /// One object: at the most recent version, from the cache at `0`, or not older than a version.
    pub(super) fn one(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
    ) -> Result<Option<Listed<K>>, Error> {
        let current = self.model.version();
        let asked = number(version);
        if let Some(asked) = asked.filter(|asked| *asked > current) {
            return Err(too_large(asked, current));
        }
        let cached = self.cached.unwrap_or(current).min(current);
        let at = asked.map_or(current, |asked| cached.max(asked));
        if at == current {
            return Ok(self.model.present().get(key).cloned());
        }
        Ok(self.model.at(at).remove(key))
    }

    pub(super) fn feed(
        &self,
        request: &WatchRequest,
        fault: Option<&SourceFault>,
    ) -> Result<Feed<K>, Error> {
        let current = self.model.version();
        let asked = number(&request.resource_version).unwrap_or(0);
        if asked > current && !self.silent_futures {
            return Err(too_large(asked, current));
        }
        // A watch from no version or from `0` begins with the state like one that asks for that.
        let mut feed = if request.send_initial_events || asked == 0 {
            Feed::initial(&self.model, request.bookmarks)
        } else {
            Feed::after(&self.model, asked)
        };
        feed.meet(fault);
        Ok(feed)
    }

    /// Adds an open watch, and returns its number.
    pub(super) fn open(&mut self, feed: Feed<K>) -> u64 {
        let id = self.next_feed;
        self.next_feed = id.wrapping_add(1);
        self.feeds.push((id, feed));
        id
    }

    pub(super) fn close(&mut self, id: u64) {
        self.feeds.retain(|(feed, _)| *feed != id);
    }

    pub(super) fn trickles(&self, id: u64) -> bool {
        let mut feeds = self.feeds.iter();
        feeds.any(|(feed, state)| *feed == id && state.trickles())
    }

    /// Whether the watch brings nothing, not even its end.
    pub(super) fn is_silent(&self, id: u64) -> bool {
        let mut feeds = self.feeds.iter();
        feeds.any(|(feed, state)| *feed == id && state.is_silent())
    }

    /// The next event that a watch must deliver now, if any.
    pub(super) fn due(&mut self, id: u64, scope: &Scope) -> Option<Next<K>> {
        let (_, feed) = self.feeds.iter_mut().find(|(feed, _)| *feed == id)?;
        feed.due(&self.model, scope)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Secret;

    use crate::clock::{Clock, Deadline, FakeClock};
    use crate::error::Error;
    use crate::list_watch::{
        Getter as _, ListRequest, ListerWatcher as _, Next, WatchEvent, WatchRequest,
    };
    use crate::object::ObjectKey;
    use crate::testing::{FakeSource, RequestKind, SourceFault, objects};
    use crate::worker::StopSource;

    fn version(source: &FakeSource<Secret>, name: &str, at: &str) -> Result<String, Error> {
        let key = ObjectKey::new("ns", name);
        let found = source.get(
            &key,
            &at.into(),
            Deadline::NEVER,
            &StopSource::new().token(),
        );
        found.map(|object| object.metadata.resource_version.clone().unwrap())
    }

    #[test]
    fn a_get_is_answered_by_the_state_its_version_asks_for() {
        let source = FakeSource::<Secret>::new();
        let secret = || objects::secret("ns", "s", "", &[("key", "canary")]);
        let old = source.set(secret());
        let new = source.set(secret());
        let later = source.set(objects::secret("ns", "t", "", &[]));
        source.lag(Some(old));
        let rows = [
            ("", new),
            ("0", old),
            (&*old.to_string(), old),
            (&*new.to_string(), new),
            (&*later.to_string(), new),
        ];
        for (asked, expected) in rows {
            let found = version(&source, "s", asked).unwrap();
            assert_eq!(found, expected.to_string(), "at {asked:?}");
        }
        assert!(version(&source, "t", "0").unwrap_err().is_not_found());
        let future = version(&source, "s", &later.saturating_add(1).to_string()).unwrap_err();
        assert!(future.status().unwrap().is_too_large_resource_version());
        source.lag(None);
        assert_eq!(version(&source, "s", "0").unwrap(), new.to_string());
    }

    /// As text, `shop-dev/c` is less than `shop/b`.
    #[test]
    fn pages_lose_nothing_where_one_namespace_begins_as_another() {
        let source = FakeSource::<Secret>::new();
        for (namespace, name) in [("shop", "a"), ("shop", "b"), ("shop-dev", "c")] {
            source.set(objects::secret(namespace, name, "", &[]));
        }
        for limit in 1..=3 {
            let mut request = ListRequest {
                resource_version: "".into(),
                version_match: None,
                limit,
                continue_token: None,
                urgent: false,
            };
            let (mut keys, mut pages) = (Vec::new(), 0);
            loop {
                let stop = StopSource::new().token();
                let page = source.list(&request, &stop, &mut |item| {
                    keys.push(item.key().to_string());
                });
                pages += 1;
                request.continue_token = page.unwrap().continue_token;
                if request.continue_token.is_none() || pages > 3 {
                    break;
                }
            }
            assert_eq!(keys, ["shop/a", "shop/b", "shop-dev/c"], "limit {limit}");
        }
    }

    /// A watch of the present state begins with it, asked for or not (WL-4).
    #[test]
    fn the_end_of_the_initial_events_is_marked_for_whoever_takes_bookmarks() {
        let source = FakeSource::<Secret>::new();
        source.set(objects::secret("ns", "s", "", &[]));
        let present = source.version().to_string();
        for (version, sends, bookmarks, expected) in [
            ("0", true, true, true),
            ("", true, true, true),
            (&*present, true, true, true),
            ("0", false, true, true),
            ("", false, true, true),
            ("0", true, false, false),
            ("0", false, false, false),
        ] {
            let request = WatchRequest {
                resource_version: version.into(),
                timeout: Duration::from_secs(1),
                head_timeout: Duration::from_secs(1),
                bookmarks,
                send_initial_events: sends,
                urgent: false,
            };
            let mut watch = source.watch(&request, &StopSource::new().token()).unwrap();
            let mut next = || watch.next(Clock::system().after(Duration::ZERO)).unwrap();
            let told = format!("at {version:?}, sends {sends}, bookmarks {bookmarks}");
            assert!(
                matches!(next(), Next::Event(WatchEvent::Object(_))),
                "{told}"
            );
            let is_marked = matches!(
                next(),
                Next::Event(WatchEvent::Bookmark {
                    resource_version,
                    initial_events_end: true,
                }) if resource_version.as_str() == present
            );
            assert_eq!(is_marked, expected, "{told}");
        }
    }

    /// On a half-open connection the end of a watch does not come, either.
    #[test]
    fn a_watch_without_a_word_has_no_end() {
        for (fault, has_end) in [
            (None, true),
            (Some(SourceFault::Silent), false),
            (Some(SourceFault::Trickle), false),
        ] {
            let fake = FakeClock::new();
            let source = FakeSource::<Secret>::with_clock(Clock::from(fake.clone()));
            if let Some(fault) = fault.clone() {
                source.fail_next(RequestKind::Watch, fault);
            }
            let request = WatchRequest {
                resource_version: "1".into(),
                timeout: Duration::from_secs(1),
                head_timeout: Duration::from_secs(1),
                bookmarks: true,
                send_initial_events: false,
                urgent: false,
            };
            let mut watch = source.watch(&request, &StopSource::new().token()).unwrap();
            fake.advance(Duration::from_secs(2));
            let next = watch
                .next(Clock::from(fake.clone()).after(Duration::ZERO))
                .unwrap();
            assert_eq!(matches!(next, Next::Ended(None)), has_end, "{fault:?}");
        }
    }
}
