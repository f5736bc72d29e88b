//! What a delta does: it changes the informer's store, and the store's change is what the handlers are told.

use crate::informer::handlers::Processor;
use crate::informer::{Deleted, Deletion, Delta, Deltas, Notification, QueueOrder, ReplacedAll};
use crate::list_watch::Listed;
use crate::object::{Object, ResourceVersion};
use crate::reflector::{Replacement, Sink as _, SinkEvent};
use crate::store::{Change, Store, StoreWriter};
use crate::sync::Arc;

/// Applies deltas to the store and tells the handlers; on the informer's queue thread only.
pub(super) struct Applying<K: Object> {
    store: Store<K>,
    writer: StoreWriter<K>,
    processor: Arc<Processor<K>>,
    order: QueueOrder,
    verdicts: Verdicts,
    /// Where the content is once nothing waits any more.
    position: ResourceVersion,
    /// The content may be further than the store says.
    unsettled: bool,
}

/// Lists whose items still come one by one, and whether they may change the content (B18).
#[derive(Default)]
struct Verdicts(Vec<(Arc<Replacement>, bool)>);

impl<K: Object> Applying<K> {
    pub(super) fn new(
        store: Store<K>,
        writer: StoreWriter<K>,
        processor: Arc<Processor<K>>,
        order: QueueOrder,
    ) -> Self {
        Self {
            store,
            writer,
            processor,
            order,
            verdicts: Verdicts::default(),
            position: ResourceVersion::default(),
            unsettled: true,
        }
    }

    /// Applies what was popped, and tells the handlers: the store is never behind what they are told (SI-20).
    pub(super) fn apply(&mut self, deltas: Deltas<K>, is_in_initial_list: bool) {
        for delta in deltas {
            self.apply_one(delta, is_in_initial_list);
        }
    }

    /// Lets those handlers join who were added since (SI-11).
    pub(super) fn admit(&self) {
        self.processor.admit(|| self.writer.last_good_of_all());
    }

    /// The first list is in the store, whatever else waits (SI-6).
    pub(super) fn complete(&self) {
        self.writer.complete();
    }

    /// Nothing that was queued so far waits any more: the content is as new as what was applied.
    pub(super) fn settle(&mut self) {
        if self.unsettled {
            self.writer.settle(&self.position);
            self.unsettled = false;
        }
    }

    /// Whether the store follows by itself: a list is one change there, and events come in their order.
    pub(super) fn settles_itself(&self) -> bool {
        self.order == QueueOrder::InOrderAtomic || !self.unsettled
    }

    fn apply_one(&mut self, delta: Delta<K>, is_in_initial_list: bool) {
        let change = match delta {
            Delta::Added(object) => self.event(SinkEvent::Added(object)),
            Delta::Updated(object) => self.event(SinkEvent::Modified(object)),
            Delta::Undecodable { why, of: None } => self.event(SinkEvent::Undecodable(*why)),
            Delta::Replaced { object, of } => self.listed(Listed::Object(object), &of),
            Delta::Undecodable { why, of: Some(of) } => self.listed(Listed::Undecodable(*why), &of),
            Delta::Deleted(deletion) => return self.delete(*deletion),
            Delta::ReplacedAll(all) => return self.replace(*all, is_in_initial_list),
            Delta::Sync(object) => {
                let key = object.key();
                // What changed since is told by its own delta.
                let held = self.store.get(key.namespace(), key.name()).ok().flatten();
                held.map(|held| Change::Changed {
                    old: Arc::clone(&held),
                    new: held,
                })
            }
            Delta::SyncAll => return self.tell_all_again(),
            Delta::Bookmark(version) => {
                self.writer.bookmark(&version);
                None
            }
        };
        self.tell(change, is_in_initial_list);
    }

    fn event(&mut self, event: SinkEvent<K>) -> Option<Change<K>> {
        // Compressed, a change may overtake an earlier one of another object.
        let advances = self.order != QueueOrder::Compressed;
        if !advances {
            let version = match &event {
                SinkEvent::Added(object)
                | SinkEvent::Modified(object)
                | SinkEvent::Deleted(object) => object.resource_version(),
                SinkEvent::Undecodable(why) | SinkEvent::DeletedUndecodable(why) => {
                    why.resource_version.clone()
                }
            };
            self.come_to(&version);
        }
        self.writer.apply_and_tell(event, advances)
    }

    fn listed(&mut self, item: Listed<K>, of: &Arc<Replacement>) -> Option<Change<K>> {
        if self.admits(of) {
            self.writer.put_listed(item)
        } else {
            None
        }
    }

    fn admits(&mut self, of: &Arc<Replacement>) -> bool {
        if let Some(admitted) = self.verdicts.of(of) {
            return admitted;
        }
        let admitted = self.writer.admits(of);
        self.verdicts.remember(of, admitted);
        if admitted {
            self.come_to(&of.resource_version);
        }
        admitted
    }

    fn come_to(&mut self, version: &ResourceVersion) {
        if self.position.is_unset() || self.position.is_older_than(version) {
            self.position = version.clone();
        }
        self.unsettled = true;
    }

    fn delete(&mut self, deletion: Deletion<K>) {
        let Deletion {
            key,
            last_known,
            final_state_known,
            undecodable,
            of,
        } = deletion;
        let seen = match (undecodable, &last_known) {
            (Some(why), _) => self.event(SinkEvent::DeletedUndecodable(*why)),
            (None, Some(object)) if final_state_known => {
                self.event(SinkEvent::Deleted(Arc::clone(object)))
            }
            (None, _) => None,
        };
        let is_final = final_state_known && seen.is_some();
        // What the watch told may be old news (B18); a list without the object counts all the same.
        let change = seen.or_else(|| match of {
            Some(of) if self.admits(&of) => self.writer.remove_unlisted(&key, &of),
            Some(_) | None => None,
        });
        // Who was never told of an object is not told of its end.
        let Some(Change::Gone(held)) = change else {
            return;
        };
        let deleted = match last_known {
            Some(object) if is_final => Deleted::seen(object),
            Some(_) | None => Deleted::missed(held),
        };
        self.processor.distribute(&Notification::Deleted(deleted));
    }

    fn replace(&mut self, all: ReplacedAll<K>, is_in_initial_list: bool) {
        match self.writer.replace_and_tell(all.items, &all.of) {
            Ok(changes) => {
                for change in changes {
                    self.tell(Some(change), is_in_initial_list);
                }
            }
            // The watch goes on from that older list, and brings everything up to here once more.
            Err(error) => log::debug!("{} list refused: {error}", K::KIND),
        }
    }

    fn tell_all_again(&self) {
        for object in self.store.list() {
            let again = Notification::Updated {
                old: Arc::clone(&object),
                new: object,
            };
            self.processor.distribute(&again);
        }
    }

    /// The store decides what is new, not the type of the delta (CT-4).
    fn tell(&self, change: Option<Change<K>>, is_in_initial_list: bool) {
        let notification = match change {
            Some(Change::Appeared(object)) => Notification::Added {
                object,
                is_in_initial_list,
            },
            Some(Change::Changed { old, new }) => Notification::Updated { old, new },
            Some(Change::Gone(last)) => Notification::Deleted(Deleted::missed(last)),
            None => return,
        };
        self.processor.distribute(&notification);
    }
}

impl Verdicts {
    fn of(&self, list: &Arc<Replacement>) -> Option<bool> {
        let mut known = self.0.iter();
        let (_, admitted) = known.find(|(of, _)| Arc::ptr_eq(of, list))?;
        Some(*admitted)
    }

    fn remember(&mut self, list: &Arc<Replacement>, admitted: bool) {
        // A list of which nothing waits any more is not asked for again.
        self.0.retain(|(of, _)| Arc::strong_count(of) > 1);
        self.0.push((Arc::clone(list), admitted));
    }
}
