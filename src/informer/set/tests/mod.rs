//! Sets of informers over fake servers, one for each type, on one fake clock.
//!
//! The promises of a set, by number: IS-1 one informer per type and scope; IS-2 its options are
//! those of its first request; IS-3 a start starts those that were not started; IS-4 a stop is
//! raised everywhere before anything is waited for, and nothing begins after it; IS-5 a shutdown
//! has one deadline and names the late informers, a drop joins all; IS-6 a wait hurries all at once
//! and has one deadline; IS-7 an informer that cannot sync holds up no other and says why; IS-8
//! members can be read whatever their types; IS-9 options of the set are those of its informers,
//! unless they say otherwise.

mod readings;
mod requests;
mod starting;
mod stopping;
mod syncing;

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};

use crate::clock::Deadline;
use crate::informer::tests::apart;
use crate::informer::{
    HandlerOptions, Handlers, InformerSet, InformerSetOptions, Registration, SharedInformer,
};
use crate::list_watch::{Api, Getter, ListerWatcher};
use crate::object::{Object, Scope, Status};
use crate::reflector::ReflectorOptions;
use crate::sync::Arc;
use crate::testing::{FakeSource, RequestKind, SourceFault, objects};
use crate::tests::until::until;
use crate::{Error, ErrorKind};

/// One client for every type that the tests ask for.
#[derive(Clone)]
struct Cluster {
    config_maps: FakeSource<ConfigMap>,
    nodes: FakeSource<Node>,
    pods: FakeSource<Pod>,
    secrets: FakeSource<Secret>,
}

macro_rules! serve {
    ($kind:ty, $field:ident) => {
        impl Api<$kind> for Cluster {
            fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<$kind>> {
                Api::lister_watcher(&self.$field, scope)
            }

            fn getter(&self) -> Arc<dyn Getter<$kind>> {
                Api::getter(&self.$field)
            }
        }
    };
}

serve!(ConfigMap, config_maps);
serve!(Node, nodes);
serve!(Pod, pods);
serve!(Secret, secrets);

type Set = InformerSet<Cluster>;

type Stage = crate::informer::tests::Stage<Cluster>;

impl Stage {
    /// A server with one object of each type.
    fn new() -> Self {
        Self::of(|clock| {
            let cluster = Cluster {
                config_maps: FakeSource::with_clock(clock.clone()),
                nodes: FakeSource::with_clock(clock.clone()),
                pods: FakeSource::with_clock(clock.clone()),
                secrets: FakeSource::with_clock(clock.clone()),
            };
            let settings = objects::config_map("shop", "settings", "", &[]);
            cluster.config_maps.set(settings);
            cluster.nodes.set(objects::node("node-1", ""));
            let web = objects::pod("shop", "web", "node-1", &[], &[]);
            cluster.pods.set(web);
            cluster.secrets.set(objects::secret("shop", "db", "", &[]));
            cluster
        })
    }

    fn options(&self) -> InformerSetOptions {
        InformerSetOptions::default().reflector(self.reflector())
    }

    fn set(&self) -> Set {
        self.set_with(self.options())
    }

    fn set_with(&self, options: InformerSetOptions) -> Set {
        InformerSet::new(self.source.clone(), options)
    }

    /// A set whose informers of three types have synced and watch.
    fn running(&self) -> Set {
        let set = self.set();
        set.informer::<ConfigMap>().unwrap();
        set.informer::<Pod>().unwrap();
        set.informer::<Secret>().unwrap();
        set.start().unwrap();
        let synced = set.wait_until_synced(Deadline::NEVER);
        synced.into_result().unwrap();
        self.source.config_maps.wait_for_watches(1);
        self.source.pods.wait_for_watches(1);
        self.source.secrets.wait_for_watches(1);
        set
    }

    fn open_watches(&self) -> usize {
        let open = [
            self.source.config_maps.open_watches(),
            self.source.pods.open_watches(),
            self.source.secrets.open_watches(),
        ];
        open.iter().sum()
    }

    /// As [`pass_until`](Self::pass_until), but passes time only while `threads` threads wait in
    /// the clock, so that none of them is still at work.
    #[track_caller]
    fn pass_among(&self, threads: usize, holds: impl Fn() -> bool) {
        until(|| {
            let ahead = self.fake.wait_for_timers(threads);
            if holds() {
                return true;
            }
            self.fake.advance(ahead);
            false
        });
    }
}

fn down() -> Error {
    Error::new(ErrorKind::Unreachable, "connection refused")
}

fn forbidden() -> Error {
    Error::from_status(Status::new(403, "pods is forbidden"))
}

fn unknown() -> Error {
    Error::from_status(Status::new(
        404,
        "the server could not find the requested resource",
    ))
}

/// A handler whose first call reports its begin, and then waits for the test.
struct Gated {
    registration: Registration,
    begun: Receiver<()>,
    gate: Sender<()>,
}

impl Gated {
    fn add<K: Object>(informer: &SharedInformer<K>, name: &str) -> Self {
        let (tell, begun) = unbounded();
        let (gate, pass) = unbounded::<()>();
        let handler = Handlers::<K>::new().on_add(move |_, _| {
            let _ = tell.send(());
            let _ = pass.recv();
        });
        let options = HandlerOptions::default().name(name);
        Self {
            registration: informer.add_handler_with(handler, options).unwrap(),
            begun,
            gate,
        }
    }
}
