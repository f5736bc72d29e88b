//! A caller that begins to wait for a running list makes it urgent.

use crossbeam_channel::{Receiver, Sender, bounded};

use super::*;
use crate::error::ErrorKind;
use crate::list_watch::{ListPage, ListRequest, Listed, ListerWatcher, WatchRequest, WatchStream};
use crate::worker::StopToken;

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
