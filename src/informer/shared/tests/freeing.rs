//! The thread that frees old states: the one that decodes the next events, or the last holder at
//! once.

use std::time::Instant;

use super::custom::Touchy;
use super::*;
use crate::informer::handlers::reclaimer::Reclaimer;
use crate::informer::{Deleted, EventHandler};
use crate::list_watch::{
    Backlog, ListPage, ListRequest, Listed, ListerWatcher, Next, ObjectEvent, WatchRequest,
    WatchStream,
};
use crate::worker::StopToken;
use crossbeam_channel::{Sender, select};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// An object that reports its version and the thread on which it is dropped.
fn traced(metadata: ObjectMeta, dropped: Sender<String>) -> Arc<StoredObject<Touchy>> {
    let tell = move |metadata: &ObjectMeta| {
        let thread = std::thread::current();
        let kind = thread.name().and_then(|name| name.split('-').next());
        let version = metadata.resource_version.as_deref();
        let _gone = dropped.send(format!("{} {}", version.unwrap(), kind.unwrap()));
    };
    Arc::new(StoredObject::new(Touchy(metadata, Some(Arc::new(tell)))))
}

/// An empty list; then the watch brings four events at once, and a single one when the test says
/// so.
struct Bursts {
    dropped: Sender<String>,
    told: Receiver<String>,
    /// Tells the handler that its next event is queued already: it is woken only for the first.
    queued: Sender<()>,
    alone: Receiver<()>,
}

struct Burst {
    dropped: Sender<String>,
    told: Receiver<String>,
    queued: Sender<()>,
    alone: Receiver<()>,
    stop: StopToken,
    read: usize,
}

impl ListerWatcher<Touchy> for Bursts {
    fn list(
        &self,
        _request: &ListRequest,
        _stop: &StopToken,
        _each: &mut dyn FnMut(Listed<Touchy>),
    ) -> Result<ListPage, Error> {
        Ok(ListPage {
            resource_version: ResourceVersion::from("1"),
            ..ListPage::default()
        })
    }

    fn watch(
        &self,
        _request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<Touchy>>, Error> {
        Ok(Box::new(Burst {
            dropped: self.dropped.clone(),
            told: self.told.clone(),
            queued: self.queued.clone(),
            alone: self.alone.clone(),
            stop: stop.clone(),
            read: 0,
        }))
    }

    fn describe(&self) -> String {
        "traced".to_owned()
    }
}

impl WatchStream<Touchy> for Burst {
    fn next(&mut self, _deadline: Deadline) -> Result<Next<Touchy>, Error> {
        self.read = self.read.saturating_add(1);
        let name = match self.read {
            1 | 2 => "a",
            3 => {
                self.queued.send(()).unwrap();
                "b"
            }
            4 => {
                self.queued.send(()).unwrap();
                // Once the handler gets `b`, it is done with the first state of `a`.
                while self.told.recv().unwrap() != "b" {}
                "c"
            }
            _ => {
                select! {
                    recv(self.alone) -> said => said.unwrap(),
                    recv(self.stop.channel()) -> _ => return Err(Error::stopped("a watch")),
                }
                "a"
            }
        };
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            resource_version: Some(self.read.saturating_add(1).to_string()),
            ..ObjectMeta::default()
        };
        let object = traced(metadata, self.dropped.clone());
        Ok(Next::Event(ObjectEvent::updated(object).into()))
    }

    fn last_contact(&self) -> Instant {
        Clock::system().now()
    }

    fn backlog(&self) -> Backlog {
        if (1..4).contains(&self.read) {
            Backlog::Event
        } else {
            Backlog::Unknown
        }
    }
}

/// Holds its object until the reflector's thread is at the next event, so that it is the last
/// holder.
struct Slow {
    queued: Receiver<()>,
    told: Sender<String>,
}

impl EventHandler<Touchy> for Slow {
    fn on_add(&mut self, object: &Arc<StoredObject<Touchy>>, _is_in_initial_list: bool) {
        if object.resource_version().as_str() == "2" {
            self.queued.recv().unwrap();
        }
        let _gone = self.told.send(object.key().name().to_owned());
    }

    fn on_update(&mut self, _old: &Arc<StoredObject<Touchy>>, new: &Arc<StoredObject<Touchy>>) {
        if new.resource_version().as_str() == "3" {
            self.queued.recv().unwrap();
        }
    }

    fn on_delete(&mut self, _deleted: Deleted<Touchy>) {}
}

/// The reflector's thread frees replaced states while events come without a pause. After a single
/// event nothing waits.
#[test]
fn old_states_are_freed_on_the_reflectors_thread_only_while_it_is_at_work() {
    let (dropped, drops) = unbounded();
    let (tell, told) = unbounded();
    let (send, alone) = unbounded();
    let (next, queued) = unbounded();
    let source = Bursts {
        dropped,
        told,
        queued: next,
        alone,
    };
    let options = InformerOptions::default();
    let informer = SharedInformer::new(Arc::new(source), options);
    let slow = Slow { queued, told: tell };
    informer.add_handler(slow).unwrap();
    informer.start().unwrap();
    assert_eq!(drops.recv().unwrap(), "2 rf");
    send.send(()).unwrap();
    let alone = drops.recv().unwrap();
    assert!(["3 hd", "3 rf"].contains(&alone.as_str()), "{alone}");
    informer.shutdown(Deadline::NEVER).unwrap();
}

/// CT-1: a panic in the drop of a program's own type does not end the watch.
#[test]
fn ct_1_a_drop_that_panics_among_old_states_ends_nothing() {
    let (dropped, drops) = unbounded();
    let reclaimer = Reclaimer::new();
    reclaimer.reclaim();
    // Without a version its drop panics.
    reclaimer.release(traced(ObjectMeta::default(), dropped.clone()));
    let metadata = ObjectMeta {
        resource_version: Some("2".to_owned()),
        ..ObjectMeta::default()
    };
    reclaimer.release(traced(metadata, dropped));
    assert!(drops.is_empty(), "both wait");
    reclaimer.reclaim();
    assert!(drops.try_recv().unwrap().starts_with("2 "));
}
