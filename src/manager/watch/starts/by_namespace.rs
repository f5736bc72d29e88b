//! Decides when a namespace is watched as a whole, and when its objects are watched by name again.

use super::Starts;
use crate::clock::later;
use crate::manager::options::WatchScope;
use crate::manager::report::NamespaceReport;
use crate::manager::watch::entry::{WatchAction, WatchEntry, WatchedObject};
use crate::manager::watch::run::Run;
use crate::manager::watch::sources::namespace::NamespaceWatch;
use crate::manager::watch::sources::namespace_table::{
    DRAIN_PAUSE, EnteredNamespace, NamespaceStep, few,
};
use crate::manager::watch::state_machine::{RunId, WatchEffect, WatchInput};
use crate::manager::watch::writer::Writer;
use crate::object::Object;
use crate::sync::Arc;

/// How many objects of a namespace are watched by name at a time, once it is no longer watched as a
/// whole.
const DRAIN_MAX: usize = 16;

impl<K: Object> Starts<K> {
    /// Starts a run by name, unless the object is new and the first list of its namespace will
    /// bring it. A namespace's watch that there is, or that begins with this run, takes the object
    /// over.
    pub(super) fn begin_in_namespace(&self, object: &WatchedObject<K>, id: RunId, above: usize) {
        let entered = self.enter(object.key.namespace(), above);
        if let Some(watch) = &entered.watch {
            // Another run may have taken over meanwhile.
            self.attach(watch, object, |entry| entry.is_current(id));
            if entered.is_new {
                self.start_namespace(watch);
            }
            if id == RunId::FIRST && !watch.has_listed() && self.await_list(object, id) {
                return;
            }
        }
        let position = entered.watch.and_then(|watch| watch.position());
        self.start(object, id, position, Some(entered.by_name));
    }

    fn enter(&self, name: &str, above: usize) -> EnteredNamespace<K> {
        let now = self.context.registry.clock().now();
        let make = || NamespaceWatch::new(name, few(above), self.context.clone());
        self.namespaces.enter(name, above, now, make)
    }

    /// Leaves the new object to the first list of its namespace. Returns false if a reader has
    /// come, who needs the watch by name.
    fn await_list(&self, object: &WatchedObject<K>, id: RunId) -> bool {
        let mut is_awaiting = false;
        self.context.act(object, |entry| {
            let action = entry.act(WatchInput::Awaits(id));
            is_awaiting = entry.is_awaiting();
            action
        });
        // A reader that waits already starts the watch by name.
        object.state.notify_all();
        is_awaiting
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
        self.context.end_all(action.ending.into_iter().chain(late));
    }

    /// Attaches the object if it was about to change from one run to another when its namespace's
    /// watch began. Called in each sweep.
    pub(crate) fn attach_left_out(&self, object: &WatchedObject<K>) {
        if !object.state.lock().is_left_out() {
            return;
        }
        let watch = self.namespaces.open_watch(object.key.namespace());
        // A trial is watched by name on purpose.
        if let Some(watch) = watch.filter(|watch| watch.trial().0.is_none()) {
            self.attach(&watch, object, WatchEntry::is_left_out);
        }
    }

    /// Attaches all watched objects of the namespace, and starts its reflector.
    fn start_namespace(&self, watch: &Arc<NamespaceWatch<K>>) {
        for object in self.objects_in(&watch.namespace) {
            self.attach(watch, &object, |_| true);
        }
        let launched = self.launch_namespace(watch);
        let now = self.context.registry.clock().now();
        let late = self.namespaces.started(watch, launched, now);
        self.context.end_all(late.map(Run::ByName));
        // It may have ended before it was known.
        self.context.tend_namespaces();
    }

    fn objects_in(&self, namespace: &str) -> impl Iterator<Item = WatchedObject<K>> {
        let all = self.context.registry.entries().into_iter();
        all.filter(move |object| object.key.namespace() == namespace)
    }

    /// Starts, drains or ends the watch of each namespace as its state requires. Called on the
    /// keeper's thread.
    pub(crate) fn tend_namespaces(&self) {
        let (context, registry) = (&self.context, &self.context.registry);
        let WatchScope::Namespace { above } = registry.options.watch_scope else {
            return;
        };
        if registry.stop.token().is_stopped() {
            return;
        }
        for name in self.namespaces.names() {
            let now = registry.clock().now();
            match self.namespaces.next_step(&name, above, now) {
                Some(NamespaceStep::Start) => {
                    let entered = self.enter(&name, above);
                    if let Some(watch) = entered.watch.filter(|_| entered.is_new) {
                        self.start_namespace(&watch);
                    }
                }
                Some(NamespaceStep::Look(watch)) => {
                    watch.take_over();
                    self.look_for_refusal(&watch);
                }
                Some(NamespaceStep::Drain(watch)) => self.drain(&watch),
                Some(NamespaceStep::Wait(until)) => context.tend_at(until),
                Some(NamespaceStep::End(run)) => {
                    context.end_all(run.map(Run::ByName));
                    self.retry_awaiting(&name);
                }
                None => {}
            }
        }
    }

    /// Starts watches by name for the objects of a namespace's watch, a few at a time. Each object
    /// is read from that watch until its own has opened.
    fn drain(&self, watch: &Arc<NamespaceWatch<K>>) {
        let mut room = DRAIN_MAX;
        for writer in watch.writers() {
            if room == 0 {
                let now = self.context.registry.clock().now();
                return self.context.tend_at(later(now, DRAIN_PAUSE));
            }
            room = room.saturating_sub(usize::from(self.watch_by_name(&writer)));
        }
    }

    /// Starts a watch by name for an object of a namespace's watch. Returns whether it began.
    fn watch_by_name(&self, writer: &Writer<K>) -> bool {
        let (object, run) = (&writer.object, writer.run);
        let mut successor = None;
        let effect = self.context.act(object, |entry| {
            if entry.is_current(run) {
                successor = entry.prepare();
                return WatchAction::nothing();
            }
            // The object was not taken over yet.
            let ended = entry.act(WatchInput::Ended(run));
            let again = entry.is_awaiting().then(|| entry.act(WatchInput::Retry));
            ended.and(again.unwrap_or_else(WatchAction::nothing))
        });
        if let WatchEffect::Start(run) = effect {
            self.begin(object, run);
            return true;
        }
        let Some(id) = successor else { return false };
        let launched = self.launch_successor(object, id);
        let launched = launched.or_else(|error| self.poll_instead(object, id, error));
        self.settle_successor(object, id, launched)
    }

    /// Tries whether objects may be watched by name where the server refuses the watch of the
    /// namespace time and again. One object is the trial. Once its watch is open, the others
    /// follow. If the watch of the namespace opens first, the object comes back.
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
                self.context
                    .act(&object, |entry| entry.act(WatchInput::Ended(run)));
            }
        }
        if is_refused {
            let is_taken = |writer: &Arc<Writer<K>>| {
                let entry = writer.object.state.lock();
                entry.is_current(writer.run)
            };
            let taken = watch.writers().into_iter().filter(is_taken);
            let Some(first) = taken.min_by(|a, b| a.object.key.cmp(&b.object.key)) else {
                // Each object has its watch by name.
                return watch.give_up();
            };
            // Set before the watch begins: that may open at once, and then the trial is looked at.
            watch.set_trial(Some(Arc::clone(&first.object)));
            if !self.watch_by_name(&first) {
                watch.set_trial(None);
            }
        }
    }

    /// Starts watches by name for the new objects of a namespace that its first list will not
    /// bring.
    fn retry_awaiting(&self, name: &str) {
        for object in self.objects_in(name) {
            let effect = self.context.act(&object, |entry| {
                let again = entry.is_awaiting().then(|| entry.act(WatchInput::Retry));
                again.unwrap_or_else(WatchAction::nothing)
            });
            if let WatchEffect::Start(run) = effect {
                self.begin(&object, run);
            }
        }
    }

    /// Starts no namespace's watch from now on, and ends those that there are.
    pub(crate) fn close_namespaces(&self) {
        let runs = self.namespaces.close().into_iter();
        self.context.end_all(runs.map(Run::ByName));
    }

    /// The namespaces that are watched as a whole, or would be if the server let them, sorted.
    pub(crate) fn namespace_reports(&self) -> Vec<NamespaceReport> {
        self.namespaces.reports(self.context.registry.clock().now())
    }
}
