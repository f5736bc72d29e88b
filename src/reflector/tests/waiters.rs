//! Callers that wait: they make a running list urgent, and shorten a pause.

use crossbeam_channel::{Receiver, Sender, bounded};

use super::*;
use crate::error::ErrorKind;
use crate::list_watch::{ListPage, ListRequest, Listed, ListerWatcher, WatchRequest, WatchStream};
use crate::reflector::Waiters;
use crate::worker::{StopSource, StopToken, Wake};

/// A server whose lists are queued until they are urgent.
struct Queued {
    begun: Sender<bool>,
    expedited: (Sender<()>, Receiver<()>),
}

impl ListerWatcher<ConfigMap> for Queued {
    fn list(
        &self,
        request: &ListRequest,
        _: &StopToken,
        _: &mut dyn FnMut(Listed<ConfigMap>),
    ) -> Result<ListPage, Error> {
        self.begun.send(request.urgent).unwrap();
        self.expedited.1.recv().unwrap();
        Ok(ListPage {
            resource_version: ResourceVersion::from("5"),
            ..ListPage::default()
        })
    }

    fn expedite(&self) {
        self.expedited.0.send(()).unwrap();
    }

    fn watch(
        &self,
        _: &WatchRequest,
        _: &StopToken,
    ) -> Result<Box<dyn WatchStream<ConfigMap>>, Error> {
        Err(Error::new(ErrorKind::Unreachable, "no watches here"))
    }

    fn describe(&self) -> String {
        "config maps".to_owned()
    }
}

/// A2: the first sync of a registration is queued as background work; then a reader comes.
#[test]
fn a_reader_makes_the_first_list_urgent_that_is_under_way() {
    let stage = Stage::new();
    let (begun, lists) = bounded(9);
    let expedited = bounded(9);
    let source = Arc::new(Queued { begun, expedited });
    let options = stage.options.clone();
    let (store, reflector) = Store::spawn("t", source, Indexers::new(), options).unwrap();
    assert_eq!(lists.recv(), Ok(false));
    store.wait_until_synced(Deadline::NEVER).unwrap();
    drop(reflector);
}

/// B10: also one that begins to wait between the failure and the pause, once.
#[test]
fn b10_a_caller_that_waits_shortens_the_next_pause_and_no_other() {
    let (stop, waiters) = (StopSource::new(), Waiters::new());
    let _waiting = waiters.wait();
    for shortens in [true, false] {
        let clock = Clock::system();
        let deadline = Deadline::at(clock.now());
        let is_shortened = waiters.pause(&clock, deadline, &stop.token(), false);
        assert_eq!(is_shortened, shortens);
    }
}

/// A sink may panic in a list: the request is not left behind for a caller that waits later.
#[test]
fn a_request_that_unwinds_is_not_made_urgent_later() {
    struct Request;
    impl Wake for Request {
        fn wake(&self) {}
    }
    let (waiters, request) = (Waiters::new(), Arc::new(Request));
    let urgent: Arc<dyn Wake> = Arc::<Request>::clone(&request);
    let send = || waiters.expediting(urgent, || panic!("of the sink"));
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(send));
    unwound.unwrap_err();
    assert_eq!(Arc::strong_count(&request), 1);
}
