//! What a delta does: it changes the informer's store, and the store's change is what the handlers are told.

use crate::informer::handlers::Processor;
use crate::informer::spent::Spent;
use crate::informer::{Deleted, Deletion, Delta, Deltas, Notification, QueueOrder, ReplacedAll};
use crate::list_watch::{Listed, ObjectEvent};
use crate::object::{Object, ResourceVersion};
use crate::reflector::Replacement;
use crate::store::{Change, Store, StoreWriter};
use crate::sync::Arc;

/// Applies deltas to the store and tells the handlers; on the informer's queue thread only.
pub(super) struct Applying<K: Object> {
    store: Store<K>,
    writer: StoreWriter<K>,
    processor: Arc<Processor<K>>,
    spent: Arc<Spent<K>>,
    order: QueueOrder,
    verdicts: Verdicts,
    /// Compressed, the latest version of an event that was applied: the content's, once nothing waits.
    position: ResourceVersion,
    /// The content may be further than the store says.
    unsettled: bool,
}

/// What a delta says of the content's version, when events may overtake each other.
enum Tells {
    Event(ResourceVersion),
    /// The list's own bookmark says where the content is then; what waited of the object before it is void.
    List,
    Nothing,
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
            spent: processor.spent(),
            processor,
            order,
            verdicts: Verdicts::default(),
            position: ResourceVersion::default(),
            unsettled: false,
        }
    }

    /// Applies what was popped, and tells the handlers: the store is never behind what they are told (SI-20).
    pub(super) fn apply(&mut self, deltas: Deltas<K>, is_in_initial_list: bool) {
        let mut came_to = None;
        for delta in deltas {
            if self.order == QueueOrder::Compressed {
                match tells(&delta) {
                    Tells::Event(version) => came_to = Some(version),
                    Tells::List => came_to = None,
                    Tells::Nothing => {}
                }
            }
            self.apply_one(delta, is_in_initial_list);
        }
        if let Some(version) = came_to {
            self.come_to(&version);
        }
    }

    /// Lets those handlers join who were added since (SI-11).
    pub(super) fn admit(&self) {
        self.processor.admit(|| self.writer.last_good_of_all());
    }

    /// Where nothing waits any more, the content is as new as the newest that was applied.
    pub(super) fn look_at(&mut self, waits: impl FnOnce() -> bool) {
        if self.unsettled && !waits() {
            self.writer.come_to(&self.position);
            self.unsettled = false;
        }
    }

    /// Whether the first list is in the store, to its end.
    pub(super) fn has_synced(&self) -> bool {
        self.store.has_synced()
    }

    fn apply_one(&mut self, delta: Delta<K>, is_in_initial_list: bool) {
        let change = match delta {
            Delta::Added(object) => self.event(ObjectEvent::added(object)),
            Delta::Updated(object) => self.event(ObjectEvent::modified(object)),
            Delta::Undecodable { why, of: None } => self.event(ObjectEvent::modified(*why)),
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
            // It follows a list, to whose end all is applied, or comes from the server later than one.
            Delta::Bookmark(version) => {
                if self.writer.settle(&version) {
                    self.forget_position();
                }
                None
            }
        };
        self.tell(change, is_in_initial_list);
    }

    fn event(&mut self, event: ObjectEvent<K>) -> Option<Change<K>> {
        // Compressed, a change may overtake an earlier one of another object.
        let advances = self.order != QueueOrder::Compressed;
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
        if admitted && of.resource_version.is_older_than(&self.position) {
            self.forget_position();
        }
        admitted
    }

    /// The server went back in time: what was applied before says nothing of the content's version.
    fn forget_position(&mut self) {
        self.position = ResourceVersion::default();
        self.unsettled = false;
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
            (Some(why), _) => self.event(ObjectEvent::deleted(*why)),
            (None, Some(object)) if final_state_known => {
                self.event(ObjectEvent::deleted(Arc::clone(object)))
            }
            (None, _) => None,
        };
        let is_final = final_state_known && seen.is_some();
        // Compressed, what follows here may be newer than the list, and comes before its other objects: it is judged now.
        let is_due = seen.is_none() || self.order == QueueOrder::Compressed;
        let counts = of.filter(|of| is_due && self.admits(of));
        // What the watch told may be old news (B18); a list without the object counts all the same.
        let change = seen.or_else(|| self.writer.remove_unlisted(&key, &*counts?));
        // Who was never told of an object is not told of its end.
        let Some(Change::Gone(held)) = change else {
            return;
        };
        let deleted = match last_known {
            // The server's final state may be that of another object of the name, which nobody was
            // told of.
            Some(object) if is_final && object.uid() == held.uid() => {
                self.spent.leave(held);
                Deleted::seen(object)
            }
            Some(_) | None => Deleted::missed(held),
        };
        self.distribute(Notification::Deleted(deleted));
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

    fn distribute(&self, notification: Notification<K>) {
        self.processor.distribute(&notification);
        self.spent.leave_all(notification);
    }

    fn tell_all_again(&self) {
        for object in self.store.list() {
            let again = Notification::Updated {
                old: Arc::clone(&object),
                new: object,
            };
            self.distribute(again);
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
        self.distribute(notification);
    }
}

fn tells<K: Object>(delta: &Delta<K>) -> Tells {
    match delta {
        Delta::Added(object) | Delta::Updated(object) => Tells::Event(object.resource_version()),
        Delta::Undecodable { why, of: None } => Tells::Event(why.resource_version.clone()),
        Delta::Deleted(deletion) if deletion.of.is_none() => {
            let undecodable = deletion.undecodable.as_ref();
            let undecodable = undecodable.map(|why| why.resource_version.clone());
            let last = deletion.last_known.as_ref();
            undecodable
                .or_else(|| last.map(|object| object.resource_version()))
                .map_or(Tells::Nothing, Tells::Event)
        }
        Delta::Replaced { .. }
        | Delta::Undecodable { of: Some(_), .. }
        | Delta::Deleted(_)
        | Delta::ReplacedAll(_) => Tells::List,
        Delta::Sync(_) | Delta::SyncAll | Delta::Bookmark(_) => Tells::Nothing,
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
