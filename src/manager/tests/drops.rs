//! Objects of a program's own whose drop runs code of the program: no lock is held then.

use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_derive::Deserialize;

use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::Error;
use crate::list_watch::Getter;
use crate::manager::kinds::KindTraits;
use crate::manager::options::ManagerOptions;
use crate::manager::references::{Owner, ReferenceChange};
use crate::manager::registry::Registry;
use crate::manager::strategy::Strategy as _;
use crate::manager::ttl::store::TtlStore;
use crate::object::{ObjectKey, ResourceVersion, StoredObject};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{self, Arc};
use crate::worker::StopToken;

/// Its drop reads the manager.
#[derive(Clone, Deserialize)]
struct Tag {
    metadata: ObjectMeta,
    #[serde(skip)]
    server: Option<Arc<Server>>,
}

#[derive(Default)]
struct Server {
    store: OnceLock<TtlStore<Tag>>,
    asked: AtomicUsize,
    dropped: AtomicUsize,
    /// A reference is added while each request is under way.
    adds: bool,
}

impl k8s_openapi::Resource for Tag {
    const API_VERSION: &'static str = "example.com/v1";
    const GROUP: &'static str = "example.com";
    const KIND: &'static str = "Tag";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "tags";
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl Metadata for Tag {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        let Some(server) = &self.server else { return };
        let held: Vec<_> = sync::held().collect();
        assert!(held.is_empty(), "dropped under the lock of {held:?}");
        if let Some(store) = server.store.get() {
            assert!(store.get_cached("ns", "other").unwrap().is_none());
        }
        server.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

struct Source(Arc<Server>);

impl Getter<Tag> for Source {
    fn get(
        &self,
        key: &ObjectKey,
        _: &ResourceVersion,
        _: Deadline,
        _: &StopToken,
    ) -> Result<Arc<StoredObject<Tag>>, Error> {
        let number = self.0.asked.fetch_add(1, Ordering::SeqCst);
        let metadata = ObjectMeta {
            namespace: Some(key.namespace().to_owned()),
            name: Some(key.name().to_owned()),
            resource_version: Some(number.saturating_add(1).to_string()),
            ..ObjectMeta::default()
        };
        if self.0.adds {
            change(&self.0, ReferenceChange::Add(key.clone()));
        }
        let server = Some(Arc::clone(&self.0));
        Ok(Arc::new(StoredObject::new(Tag { metadata, server })))
    }
}

fn change(server: &Server, change: ReferenceChange) {
    let owner = Owner::new("Pod", ObjectKey::new("ns", "p"));
    let store = server.store.get().unwrap();
    store.change_references(&owner, change);
}

/// `adds`: the answer of each request is shared and not stored.
#[test]
fn a_drop_that_reads_the_manager_meets_no_lock() {
    for adds in [false, true] {
        let server = Arc::new(Server {
            adds,
            ..Server::default()
        });
        let fake = FakeClock::new();
        let options = ManagerOptions::default().clock(Clock::from(fake.clone()));
        let options = options.ttl(Duration::from_secs(60));
        let source = Arc::new(Source(Arc::clone(&server)));
        let registry = Registry::new(KindTraits::default(), source, options);
        assert!(server.store.set(TtlStore::new(registry)).is_ok());
        for name in ["s", "other"] {
            change(&server, ReferenceChange::Add(ObjectKey::new("ns", name)));
        }
        let get = || {
            let store = server.store.get().unwrap();
            drop(store.get("ns", "s", &|| Deadline::NEVER).unwrap());
        };
        let dropped = || server.dropped.load(Ordering::SeqCst);
        get();
        // A new reference drops it.
        change(&server, ReferenceChange::Add(ObjectKey::new("ns", "s")));
        assert_eq!(dropped(), 1);
        get();
        fake.advance(Duration::from_secs(60));
        // The next one takes its place.
        get();
        assert_eq!(dropped(), 2);
        let all = ["other"].map(|name| ObjectKey::new("ns", name)).into();
        change(&server, ReferenceChange::Set(all));
        assert_eq!(dropped(), 3);
        assert_eq!(server.asked.load(Ordering::SeqCst), 3);
    }
}
