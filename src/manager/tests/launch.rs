//! The requests of a run, and when it begins: OC-6 and OC-23, with a server that only takes notes.

use std::convert::Infallible;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use k8s_openapi::api::core::v1::Secret;

use super::fake::pod;
use crate::clock::Deadline;
use crate::error::Error;
use crate::list_watch::{
    Api, Getter, ListPage, ListRequest, Listed, ListerWatcher, WatchRequest, WatchStream,
};
use crate::manager::{ManagerOptions, SecretManager};
use crate::object::{ObjectKey, ResourceVersion, Scope, StoredObject};
use crate::reflector::{Phase, Reflector, ReflectorOptions};
use crate::store::{Indexers, Store};
use crate::sync::Arc;
use crate::worker::StopToken;

/// Notes what it is asked; lists nothing, and holds watches back until they are stopped.
#[derive(Clone)]
struct Notes {
    notes: Sender<Note>,
    scope: Scope,
}

enum Note {
    List(Scope, ListRequest),
    Watch(WatchRequest),
}

fn notes() -> (Notes, Receiver<Note>) {
    let (notes, taken) = unbounded();
    let scope = Scope::all();
    (Notes { notes, scope }, taken)
}

impl Api<Secret> for Notes {
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<Secret>> {
        let notes = self.notes.clone();
        Arc::new(Self { notes, scope })
    }

    fn getter(&self) -> Arc<dyn Getter<Secret>> {
        Arc::new(self.clone())
    }
}

impl Getter<Secret> for Notes {
    fn get(
        &self,
        key: &ObjectKey,
        _: &ResourceVersion,
        _: Deadline,
        _: &StopToken,
    ) -> Result<Arc<StoredObject<Secret>>, Error> {
        Err(Error::not_found("secret", key.name()))
    }
}

impl ListerWatcher<Secret> for Notes {
    fn list(
        &self,
        request: &ListRequest,
        _: &StopToken,
        _: &mut dyn FnMut(Listed<Secret>),
    ) -> Result<ListPage, Error> {
        let note = Note::List(self.scope.clone(), request.clone());
        self.notes.send(note).unwrap();
        Ok(ListPage {
            resource_version: "7".into(),
            ..ListPage::default()
        })
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<Secret>>, Error> {
        self.notes.send(Note::Watch(request.clone())).unwrap();
        stop.wait();
        Err(Error::stopped("the watch"))
    }

    fn supports_watch_list(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "secrets".to_owned()
    }
}

/// OC-6, OC-24 (B8): one small list and one watch of 30 to 60 minutes, of one name in one
/// namespace, without streaming.
#[test]
fn a_run_asks_for_one_object() {
    let (api, taken) = notes();
    let manager = SecretManager::new(api, ManagerOptions::default()).unwrap();
    manager.register_pod(&pod("p", &["s"]));
    let Note::List(scope, list) = taken.recv().unwrap() else {
        panic!("a list comes first");
    };
    assert_eq!(scope.namespace_name(), Some("ns"));
    assert_eq!(scope.field_selector().as_str(), "metadata.name=s");
    assert_eq!(list.resource_version, ResourceVersion::any());
    let Note::Watch(watch) = taken.recv().unwrap() else {
        panic!("then a watch");
    };
    assert_eq!(watch.resource_version.as_str(), "7");
    let (least, most) = (Duration::from_secs(30 * 60), Duration::from_secs(60 * 60));
    assert!(
        watch.timeout >= least && watch.timeout < most,
        "{:?}",
        watch.timeout
    );
    assert!(watch.bookmarks && !watch.send_initial_events);
    let error = manager.get("ns", "s").unwrap_err();
    assert!(error.is_not_found());
}

/// A reflector of Secrets that begins when the channel closes.
fn reflector_after(ended: Receiver<Infallible>, api: Notes) -> Reflector {
    let options = ReflectorOptions {
        watch_list: false,
        start_after: vec![ended],
        ..ReflectorOptions::default()
    };
    let (_store, reflector) =
        Store::spawn("secrets", Arc::new(api), Indexers::new(), options).unwrap();
    reflector
}

/// OC-23: the first request waits for the end of the run before, or for its own stop.
#[test]
fn a_run_begins_when_the_one_before_has_let_go() {
    let (api, taken) = notes();
    let (ending, ended) = bounded(0);
    let reflector = reflector_after(ended, api);
    assert!(taken.try_recv().is_err(), "nobody has let go yet");
    assert_eq!(reflector.status().phase, Phase::Starting);
    drop(ending);
    assert!(matches!(taken.recv().unwrap(), Note::List(..)));
    reflector.join().unwrap();
}

/// OC-23, B16: a run that is stopped while it waits for the one before asks for nothing.
#[test]
fn a_run_that_waits_can_be_stopped() {
    let (api, taken) = notes();
    let (_ending, ended) = bounded(0);
    reflector_after(ended, api).join().unwrap();
    assert!(taken.try_recv().is_err());
}
