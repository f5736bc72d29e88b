//! Objects are dropped without a lock: the drop of a program's own type may read the store.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::sync::Mutex;

/// Bounds a failure: a drop that waits for its own thread's lock.
const LONG: Duration = Duration::from_secs(60);

thread_local! {
    /// The store that drops on this thread read.
    static STORE: RefCell<Option<Store<Touchy>>> = const { RefCell::new(None) };
}

/// A program's own type whose drop reads the store.
#[derive(Default)]
struct Touchy(ObjectMeta);

impl k8s_openapi::Resource for Touchy {
    const API_VERSION: &'static str = "example.com/v1";
    const GROUP: &'static str = "example.com";
    const KIND: &'static str = "Touchy";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "touchies";
    type Scope = k8s_openapi::ClusterResourceScope;
}

impl k8s_openapi::Metadata for Touchy {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.0
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0
    }
}

impl<'de> serde::Deserialize<'de> for Touchy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        ObjectMeta::deserialize(from).map(Self)
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        look();
    }
}

/// Reads the store, as code of the program may in a drop.
fn look() {
    STORE.with_borrow(|store| {
        if let Some(store) = store {
            store.len();
        }
    });
}

fn touchy(version: &str) -> Arc<StoredObject<Touchy>> {
    let mut object = Touchy::default();
    object.0.name = Some("a".to_owned());
    object.0.uid = Some("uid-a".to_owned());
    object.0.resource_version = Some(version.to_owned());
    Arc::new(StoredObject::new(object))
}

/// Runs on a thread whose drops read the store.
fn in_time(run: impl FnOnce(&Store<Touchy>, StoreWriter<Touchy>) + Send + 'static) {
    let (send, ended) = crossbeam_channel::bounded(1);
    let (store, writer) = Store::new(Indexers::new(), Clock::system());
    let body = move || {
        STORE.set(Some(store.clone()));
        run(&store, writer);
        STORE.set(None);
        let _late = send.send(()).is_err();
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread that hangs cannot be joined"
    )]
    drop(std::thread::spawn(body));
    ended
        .recv_timeout(LONG)
        .expect("nothing is dropped under the store's lock");
}

/// While an index is added, changed objects are read again, and their old states are dropped.
#[test]
fn what_a_new_index_has_looked_at_is_dropped_under_no_lock() {
    in_time(|store, mut writer| {
        writer.apply(ObjectEvent::added(touchy("1"))).unwrap();
        let (writer, done) = (Mutex::new(writer), AtomicBool::new(false));
        let beside = store.clone();
        let function = move |_: &Touchy| {
            if !done.swap(true, Ordering::SeqCst) {
                writer
                    .lock()
                    .apply(ObjectEvent::deleted(touchy("2")))
                    .unwrap();
                let other = Indexers::new().with("other", |_: &Touchy| Vec::new());
                beside.add_indexers(&other).unwrap();
            }
            Vec::new()
        };
        store
            .add_indexers(&Indexers::new().with("mine", function))
            .unwrap();
        assert!(store.is_empty());
    });
}
