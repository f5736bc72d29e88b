//! The writing end of one run: what the reflector brings goes into the slot while the run is the present one.

use std::convert::Infallible;

use crossbeam_channel::Sender;

use super::item::{Input, RunId};
use super::slot::{Action, Item, Slot};
use super::works::Works;
use crate::error::Error;
use crate::list_watch::{EventKind, Listed, ObjectEvent};
use crate::manager::content::{News, Written};
use crate::object::{Object, ObjectKey, ResourceVersion};
use crate::reflector::{ReflectorStatus, Replacement, Sink};
use crate::sync::Arc;

/// The sink of one run. Once the run has ended, nothing it brings is taken (OC-28).
#[derive(Debug)]
pub(crate) struct Writer<K: Object> {
    works: Arc<Works<K>>,
    item: Item<K>,
    run: RunId,
    /// Dropped with the writer: the next run waits for that (OC-23).
    _ended: Sender<Infallible>,
}

impl<K: Object> Writer<K> {
    pub(crate) fn new(
        works: Arc<Works<K>>,
        item: Item<K>,
        run: RunId,
        ended: Sender<Infallible>,
    ) -> Self {
        Self {
            works,
            item,
            run,
            _ended: ended,
        }
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        &self.item.about.key
    }

    /// Writes under the lock; tells and acts after it.
    fn write(
        &self,
        change: impl FnOnce(&mut Slot<K>) -> Result<Written<K>, Error>,
    ) -> Result<(), Error> {
        let changed = self.works.change(&self.item, |slot| {
            let written = change(slot)?;
            // Whoever waits reads it next.
            let ending = if self.item.about.demand.is_waited_for() {
                slot.given()
            } else {
                Action::nothing()
            };
            Ok((written, ending))
        });
        let (written, ending) = changed?;
        // Also without news: somebody may wait for the watch to come this far.
        self.item.slot.notify_all();
        if written.news == News::Changed {
            self.works.changes.tell(self.key());
        }
        self.works.perform(&self.item, ending);
        Ok(())
    }

    /// A server that ignores the field selector sends other objects too.
    fn is_ours(&self, key: &ObjectKey) -> bool {
        key == self.key()
    }
}

impl<K: Object> Sink<K> for Writer<K> {
    /// The slot's revision when the list was begun, and the object.
    type Staging = (u64, Option<Listed<K>>);

    fn begin(&mut self) -> Self::Staging {
        (self.item.slot.lock().content().revision(), None)
    }

    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<K>) {
        if self.is_ours(&event.object.key()) {
            staging.1 = (event.kind != EventKind::Deleted).then_some(event.object);
        }
    }

    fn commit(&mut self, staging: Self::Staging, of: &Replacement) -> Result<(), Error> {
        let now = self.works.clock().now();
        let (begun, mut item) = staging;
        self.write(|slot| slot.replace(self.run, (begun, &mut item), of, now))
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        let now = self.works.clock().now();
        let run = self.run;
        let ObjectEvent { kind, object } = event;
        if !self.is_ours(&object.key()) {
            return Ok(());
        }
        if kind == EventKind::Deleted {
            let version = object.resource_version();
            return self.write(|slot| slot.remove(run, object.uid(), &version, now));
        }
        let mut state = Some(object);
        self.write(|slot| slot.change(run, &mut state, now))
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        let now = self.works.clock().now();
        self.works
            .change(&self.item, |slot| slot.confirm(self.run, version, now));
        // Somebody may wait for the watch to come this far.
        self.item.slot.notify_all();
    }

    fn report(&mut self, status: &ReflectorStatus) {
        let (news, recovered) = self
            .works
            .change(&self.item, |slot| slot.report(self.run, status));
        if recovered {
            self.works.server_recovered();
        }
        if news == News::Changed {
            self.item.slot.notify_all();
            self.works.changes.tell(self.key());
        }
    }
}

impl<K: Object> Drop for Writer<K> {
    fn drop(&mut self) {
        let action = self
            .works
            .change(&self.item, |slot| slot.act(Input::Ended(self.run)));
        self.item.slot.notify_all();
        self.works.perform(&self.item, action);
    }
}
