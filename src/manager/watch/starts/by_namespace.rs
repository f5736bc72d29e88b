//! When a manager watches a whole namespace, and when it watches the objects of it by name again.

use super::launch::Keeper;
use crate::clock::later;
use crate::manager::options::WatchScope;
use crate::manager::report::NamespaceReport;
use crate::manager::watch::entry::{WatchAction, WatchEntry, WatchedObject};
use crate::manager::watch::run::Run;
use crate::manager::watch::sources::namespace::NamespaceWatch;
use crate::manager::watch::sources::namespace_table::{DRAIN_PAUSE, Surroundings, Tending, few};
use crate::manager::watch::state_machine::{RunId, WatchEffect, WatchInput};
use crate::manager::watch::writer::Writer;
use crate::object::Object;
use crate::sync::Arc;

/// How many objects of a namespace are watched by name at a time, once it is no longer watched as a
/// whole.
const DRAIN_MAX: usize = 16;

impl<K: Object> Keeper<K> {
    /// Starts a run that the entry has decided on: by name, unless the object is new and the first
    /// list of its namespace will bring it. A namespace's watch that there is, or that begins with
    /// this run, takes the object over.
    pub(crate) fn begin(&self, object: &WatchedObject<K>, id: RunId) {
        let WatchScope::Namespace { above } = self.context.registry.options.watch_scope else {
            return self.start(object, id, None, None);
        };
        let around = self.surroundings(object.key.namespace(), above);
        if let Some(watch) = &around.watch {
            // Another run may have taken over meanwhile.
            self.attach(watch, object, |entry| entry.is_current(id));
            if around.is_new {
                self.start_namespace(watch);
            }
            if id == RunId::FIRST && !watch.has_listed() && self.awaits(object, id) {
                return;
            }
        }
        let position = around.watch.and_then(|watch| watch.position());
        self.start(object, id, position, Some(around.by_name));
    }

    fn surroundings(&self, name: &str, above: usize) -> Surroundings<K> {
        let now = self.context.registry.clock().now();
        let make = || NamespaceWatch::new(name, few(above), self.context.clone());
        self.namespaces.enter(name, above, now, make)
    }

    /// Leaves the new object to the first list of its namespace. Whether it did: a reader may have
    /// come.
    fn awaits(&self, object: &WatchedObject<K>, id: RunId) -> bool {
        let awaits = self.context.registry.change(object, |entry| {
            let action = entry.act(WatchInput::Awaits(id));
            (action, entry.is_awaiting())
        });
        self.context.end_all(awaits.0.ending);
        // A reader that waits already has the object watched by name.
        object.state.notify_all();
        awaits.1
    }

    /// Makes the namespace's watch the successor of the object's run, if that is the expected one.
    fn attach(
        &self,
        watch: &Arc<NamespaceWatch<K>>,
        object: &WatchedObject<K>,
        is_expected: impl FnOnce(&WatchEntry<K>) -> bool,
    ) {
        let registry = &self.context.registry;
        let prepared = registry.change(object, |entry| {
            is_expected(entry).then(|| entry.prepare()).flatten()
        });
        let Some(id) = prepared else { return };
        let writer = Writer::new(self.context.clone(), Arc::clone(object), id, None);
        let Some(attachment) = watch.attach(writer) else {
            return;
        };
        let run = Run::Shared(Box::new(attachment));
        let now = registry.clock().now();
        let (late, action) = registry.change(object, |entry| {
            let late = entry.keep_successor(id, run);
            // The watch may have opened meanwhile.
            (late, entry.hand_over(now))
        });
        self.context.end_all(action.ending);
        self.context.end_all(late);
    }

    /// Attaches all watched objects of the namespace, and starts its reflector.
    fn start_namespace(&self, watch: &Arc<NamespaceWatch<K>>) {
        for object in self.context.registry.entries() {
            if object.key.namespace() == &*watch.namespace {
                self.attach(watch, &object, |_| true);
            }
        }
        let launched = self.launch_namespace(watch);
        let now = self.context.registry.clock().now();
        let late = self.namespaces.started(watch, launched, now);
        if let Some(run) = late {
            self.context.end_thread(run);
        }
        // It may have ended before it was known.
        self.context.tend_namespaces();
    }

    /// Looks at each namespace, and starts, drains or ends its watch. On the housekeeper's thread.
    pub(crate) fn tend_namespaces(&self) {
        let context = &self.context;
        let WatchScope::Namespace { above } = context.registry.options.watch_scope else {
            return;
        };
        if context.registry.stop.token().is_stopped() {
            return;
        }
        for name in self.namespaces.names() {
            match self
                .namespaces
                .tending(&name, above, context.registry.clock().now())
            {
                Some(Tending::Start) => {
                    let around = self.surroundings(&name, above);
                    if let Some(watch) = around.watch.filter(|_| around.is_new) {
                        self.start_namespace(&watch);
                    }
                }
                Some(Tending::Look(watch)) => {
                    watch.take_over();
                    self.look_for_refusal(&watch);
                }
                Some(Tending::Drain(watch)) => self.drain(&watch),
                Some(Tending::Wait(until)) => context.tend_at(until),
                Some(Tending::End(run)) => {
                    if let Some(run) = run {
                        context.end_thread(run);
                    }
                    self.retry_awaiting(&name);
                }
                None => {}
            }
        }
    }

    /// Watches the objects of a namespace's watch by name, a few at a time. Each is read from that
    /// watch until its own has opened.
    fn drain(&self, watch: &Arc<NamespaceWatch<K>>) {
        let mut room = DRAIN_MAX;
        for writer in watch.writers() {
            if room == 0 {
                let now = self.context.registry.clock().now();
                let next = later(now, DRAIN_PAUSE);
                return self.context.tend_at(next);
            }
            room = room.saturating_sub(usize::from(self.watch_by_name(&writer)));
        }
    }

    /// Watches an object of a namespace's watch by name. Returns whether that began.
    fn watch_by_name(&self, writer: &Writer<K>) -> bool {
        let (object, run) = (writer.object(), writer.run());
        let (successor, action) = self.context.registry.change(object, |entry| {
            if entry.is_current(run) {
                return (entry.prepare(), WatchAction::nothing());
            }
            // The object was not taken over yet.
            let ended = entry.act(WatchInput::Ended(run));
            let again = entry.is_awaiting().then(|| entry.act(WatchInput::Retry));
            (None, ended.and(again.unwrap_or_else(WatchAction::nothing)))
        });
        let started = action.effect;
        self.context.end_all(action.ending);
        if let WatchEffect::Start(run) = started {
            self.begin(object, run);
            return true;
        }
        let Some(id) = successor else { return false };
        let by_name = self.namespaces.by_name(object.key.namespace());
        let launched = self.launch_successor(object, id, Some(by_name));
        let launched = launched.or_else(|error| self.poll_instead(object, id, error));
        self.settle_successor(object, id, launched)
    }

    /// Where the server refuses the watch of the namespace time and again, it may let the objects
    /// be watched by name. One of them is the trial. Once its watch is open, the others follow;
    /// once that of the namespace is, it comes back.
    fn look_for_refusal(&self, watch: &Arc<NamespaceWatch<K>>) {
        let (trial, is_refused) = watch.trial();
        if let Some(object) = trial {
            let (is_by_name, successor) = {
                let entry = object.state.lock();
                (entry.is_watched_by_name(), entry.successor())
            };
            if is_by_name && is_refused {
                return watch.give_up();
            }
            if is_refused && successor.is_some() {
                return;
            }
            watch.set_trial(None);
            if is_by_name {
                self.attach(watch, &object, |_| true);
            } else if let Some(run) = successor {
                let ended = |entry: &mut WatchEntry<K>| entry.act(WatchInput::Ended(run));
                let action = self.context.registry.change(&object, ended);
                self.context.end_all(action.ending);
            }
        }
        if is_refused {
            let is_taken = |writer: &Arc<Writer<K>>| {
                let entry = writer.object().state.lock();
                entry.is_current(writer.run())
            };
            let taken = watch.writers().into_iter().filter(is_taken);
            let Some(first) = taken.min_by(|a, b| a.key().cmp(b.key())) else {
                // Each object has its watch by name.
                return watch.give_up();
            };
            // Known before it begins: its watch may open at once, and then it is looked at again.
            watch.set_trial(Some(Arc::clone(first.object())));
            if !self.watch_by_name(&first) {
                watch.set_trial(None);
            }
        }
    }

    /// Has the new objects of a namespace watched by name that its first list will not bring.
    fn retry_awaiting(&self, name: &str) {
        for object in self.context.registry.entries() {
            if object.key.namespace() != name {
                continue;
            }
            let action = self.context.registry.change(&object, |entry| {
                let is_awaiting = entry.is_awaiting();
                is_awaiting.then(|| entry.act(WatchInput::Retry))
            });
            if let Some(WatchEffect::Start(run)) = action.map(|action| action.effect) {
                self.begin(&object, run);
            }
        }
    }

    /// Starts no namespace's watch any more, and ends those that there are.
    pub(crate) fn close_namespaces(&self) {
        for run in self.namespaces.close() {
            self.context.end_thread(run);
        }
    }

    /// The namespaces that are watched as a whole, or would be if the server let them, sorted.
    pub(crate) fn namespace_reports(&self) -> Vec<NamespaceReport> {
        self.namespaces.reports(self.context.registry.clock().now())
    }
}
