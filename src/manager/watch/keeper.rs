//! The housekeeper's thread of a manager that watches. It joins ended runs, stops the watches of
//! idle objects, starts the watches that had no room, and shares the room out where it is short.

use std::time::Duration;

use super::run::{PendingWork, ThreadRun};
use super::starts::launch::Keeper;
use super::state_machine::{WatchEffect, WatchInput};
use crate::clock::Deadline;
use crate::guard::guard;
use crate::manager::entry::object_entry::EntryState as _;
use crate::manager::kinds::cache_name;
use crate::object::Object;
use crate::sync::{Arc, Monitor};
use crate::worker::{StopToken, Wake};

/// How often the housekeeper sweeps (OC-18); the first time is at once.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The body of the housekeeper's thread. After a panic the manager's health fails and the work goes
/// on, since the manager's drop waits until the housekeeper has joined the ended runs.
pub(crate) fn maintain<K: Object>(keeper: &Arc<Keeper<K>>, stop: &StopToken) {
    let context = &keeper.context;
    while let Err(error) = guard(
        format_args!("the housekeeper of {}", cache_name::<K>()),
        || maintain_until_stopped(keeper, stop),
    ) {
        context.panicked(error);
        context.pause_after_panic(stop);
    }
}

/// After its stop it joins what is left, which includes a run that is just ending itself, and ends.
fn maintain_until_stopped<K: Object>(keeper: &Arc<Keeper<K>>, stop: &StopToken) {
    let context = &keeper.context;
    let clock = context.registry.clock().clone();
    let wake: Arc<dyn Wake> = Arc::<Monitor<PendingWork>>::clone(&context.work);
    let _registration = stop.register(&wake);
    let mut sweep_at = clock.after(Duration::ZERO);
    loop {
        let (ended, recovered, namespaces) = wait_for_work(keeper, sweep_at, stop);
        let made_room = !ended.is_empty();
        for run in ended {
            context.join(run);
        }
        if stop.is_stopped() {
            let mut work = context.work.lock();
            if work.alive == 0 {
                work.is_closed = true;
                return;
            }
            continue;
        }
        // The end of a manager makes room for nothing.
        if made_room && !context.registry.stop.token().is_stopped() {
            use_capacity(keeper);
        }
        if recovered {
            // Each shortens its backoff to the first step, once per failure (B10).
            for object in context.registry.entries() {
                object.waiters.expedite();
                object.state.lock().expedite_shared();
            }
        }
        let sweeps = clock.has_passed(sweep_at);
        if namespaces || sweeps {
            keeper.tend_namespaces();
            keeper.confirm_absences();
        }
        if sweeps {
            sweep(keeper);
            let mended = context.work.lock().failure.take();
            drop(mended);
            sweep_at = clock.after(SWEEP_INTERVAL);
        }
    }
}

/// Waits for ended runs, a recovered server, the next sweep or the stop. After the stop there are
/// no sweeps any more: only ends, and the last of them.
fn wait_for_work<K: Object>(
    keeper: &Arc<Keeper<K>>,
    sweep_at: Deadline,
    stop: &StopToken,
) -> (Vec<ThreadRun>, bool, bool) {
    let context = &keeper.context;
    let clock = context.registry.clock();
    let mut work = context.work.lock();
    while work.ended.is_empty() && !work.recovered {
        let stopped = stop.is_stopped();
        let tend_at = work.namespaces.map_or(Deadline::NEVER, Deadline::at);
        let next = sweep_at.earlier(tend_at);
        let due = if stopped {
            work.alive == 0
        } else {
            clock.has_passed(next)
        };
        if due {
            break;
        }
        let until = if stopped { Deadline::NEVER } else { next };
        work = clock.wait_until(&context.work, work, until);
    }
    let recovered = std::mem::take(&mut work.recovered);
    let now = clock.now();
    let namespaces = work.namespaces.take_if(|at| *at <= now).is_some();
    (std::mem::take(&mut work.ended), recovered, namespaces)
}

/// Starts the watches that had no room, until one finds none again. Another failure of one watch
/// does not keep the next from starting. Polled objects come last.
fn use_capacity<K: Object>(keeper: &Arc<Keeper<K>>) {
    let registry = &keeper.context.registry;
    for object in registry.entries() {
        let action = registry.change(&object, |entry| entry.act(WatchInput::Room));
        keeper.perform(&object, action);
        if object.state.lock().found_no_room() {
            return;
        }
    }
    keeper.promote();
}

fn sweep<K: Object>(keeper: &Arc<Keeper<K>>) {
    let registry = &keeper.context.registry;
    let (now, instant) = (registry.clock().coarse(), registry.clock().now());
    for object in registry.entries() {
        let action = registry.change(&object, |entry| {
            entry.note_read(registry.read_cache.mark(&object.key));
            entry.count_reads();
            // An unfilled entry goes on trying for as long as it is referenced (OC-20).
            let input = if entry.is_idle(now, registry.options.idle_max) {
                WatchInput::Idle
            } else {
                WatchInput::Retry
            };
            entry.try_again(input, instant)
        });
        let changed = action.effect == WatchEffect::End;
        keeper.perform(&object, action);
        if changed {
            registry.changes.notify(&object.key);
        }
    }
    // The limits of the process may have been raised.
    keeper.promote();
    keeper.rebalance();
}
