//! A source that panics when a test says so, like a program's own wrong code.

use std::fmt;
use std::time::{Duration, Instant};

use crate::clock::Deadline;
use crate::error::Error;
use crate::list_watch::{
    Api, Backlog, Getter, ListPage, ListRequest, Listed, ListerWatcher, Next, WatchRequest,
    WatchStream,
};
use crate::object::{Object, ObjectKey, ResourceVersion, Scope, StoredObject};
use crate::sync::{Arc, Mutex};
use crate::testing::FakeSource;
use crate::worker::StopToken;

/// The methods that may panic, and how often each still does. A method may also run code of a test.
#[derive(Clone, Default)]
pub(crate) struct Faulty {
    panics: Arc<Mutex<Vec<(&'static str, usize)>>>,
    acts: Arc<Mutex<Vec<Act>>>,
}

/// Code of a test, the method that runs it, and how the name of the thread begins.
type Act = (
    &'static str,
    &'static str,
    Box<dyn FnOnce() + Send + 'static>,
);

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.panics.lock().fmt(f)
    }
}

impl Faulty {
    /// Makes the next `times` calls of `method` panic.
    pub(crate) fn panic_in(&self, method: &'static str, times: usize) {
        self.panics.lock().push((method, times));
    }

    /// Makes the next call of `method`, on a thread whose name begins with `thread`, run `act`.
    #[cfg(not(shuttle))]
    pub(crate) fn act_in(
        &self,
        method: &'static str,
        thread: &'static str,
        act: impl FnOnce() + Send + 'static,
    ) {
        self.acts.lock().push((method, thread, Box::new(act)));
    }

    /// How many panics are still to come.
    pub(crate) fn left(&self) -> usize {
        self.panics.lock().iter().map(|(_, times)| times).sum()
    }

    pub(crate) fn call(&self, method: &str) {
        let panics = {
            let mut faults = self.panics.lock();
            let fault = faults
                .iter_mut()
                .find(|(name, times)| *name == method && *times > 0);
            fault.map(|(_, times)| *times = times.saturating_sub(1))
        };
        assert!(panics.is_none(), "a bad source");
        let act = {
            let thread = std::thread::current();
            let thread = thread.name().unwrap_or_default();
            let mut acts = self.acts.lock();
            let is_meant = |act: &Act| act.0 == method && thread.starts_with(act.1);
            acts.iter().position(is_meant).map(|at| acts.remove(at))
        };
        if let Some((.., act)) = act {
            act();
        }
    }
}

/// A fake server behind code that panics.
pub(crate) struct Bad<K: Object> {
    pub(crate) server: FakeSource<K>,
    source: Arc<dyn ListerWatcher<K>>,
    pub(crate) faulty: Faulty,
}

impl<K: Object> Bad<K> {
    pub(crate) fn new(server: FakeSource<K>) -> Self {
        Self {
            source: Arc::new(server.clone()),
            server,
            faulty: Faulty::default(),
        }
    }
}

impl<K: Object> Clone for Bad<K> {
    fn clone(&self) -> Self {
        Self {
            server: self.server.clone(),
            source: Arc::clone(&self.source),
            faulty: self.faulty.clone(),
        }
    }
}

impl<K: Object> fmt::Debug for Bad<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bad").finish_non_exhaustive()
    }
}

impl<K: Object> ListerWatcher<K> for Bad<K> {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        self.faulty.call("list");
        self.source.list(request, stop, each)
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error> {
        self.faulty.call("watch");
        Ok(Box::new(BadStream {
            stream: self.source.watch(request, stop)?,
            faulty: self.faulty.clone(),
        }))
    }

    fn supports_watch_list(&self) -> bool {
        self.faulty.call("supports_watch_list");
        self.source.supports_watch_list()
    }

    fn watch_list_failed(&self) {
        self.faulty.call("watch_list_failed");
        self.source.watch_list_failed();
    }

    fn expedite(&self) {
        self.faulty.call("expedite");
        self.source.expedite();
    }

    fn bookmark_interval(&self) -> Option<Duration> {
        self.faulty.call("bookmark_interval");
        self.source.bookmark_interval()
    }

    fn bookmark_came(&self, interval: Duration) {
        self.faulty.call("bookmark_came");
        self.source.bookmark_came(interval);
    }

    fn lists_one_object(&self) -> bool {
        self.faulty.call("lists_one_object");
        self.source.lists_one_object()
    }

    fn disconnect(&self) {
        self.faulty.call("disconnect");
        self.source.disconnect();
    }

    fn objects_max(&self) -> usize {
        self.faulty.call("objects_max");
        self.source.objects_max()
    }

    fn describe(&self) -> String {
        self.faulty.call("describe");
        self.source.describe()
    }
}

struct BadStream<K: Object> {
    stream: Box<dyn WatchStream<K>>,
    faulty: Faulty,
}

impl<K: Object> WatchStream<K> for BadStream<K> {
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        self.faulty.call("next");
        self.stream.next(deadline)
    }

    fn last_contact(&self) -> Instant {
        self.faulty.call("last_contact");
        self.stream.last_contact()
    }

    fn backlog(&self) -> Backlog {
        self.faulty.call("backlog");
        self.stream.backlog()
    }
}

impl<K: Object> Drop for BadStream<K> {
    fn drop(&mut self) {
        self.faulty.call("drop of the stream");
    }
}

impl<K: Object> Getter<K> for Bad<K> {
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        self.faulty.call("get");
        self.server.get(key, version, deadline, stop)
    }
}

impl<K: Object> Api<K> for Bad<K> {
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<K>> {
        self.faulty.call("lister_watcher");
        self.faulty.call(scope.field_selector().as_str());
        let source = self.server.lister_watcher(scope);
        Arc::new(Self {
            source,
            ..self.clone()
        })
    }

    fn getter(&self) -> Arc<dyn Getter<K>> {
        self.faulty.call("getter");
        Arc::new(self.clone())
    }
}
