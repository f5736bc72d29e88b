//! The one thread a manager always has: joins ended runs, stops what nobody reads, tries again what had no room.

use std::time::Duration;

use super::item::{Effect, Input};
use super::slot::Item;
use super::store::Shared;
use super::works::{Chores, Run};
use crate::clock::Deadline;
use crate::guard::guard;
use crate::manager::kinds::cache_name;
use crate::object::Object;
use crate::sync::{Arc, Monitor};
use crate::worker::{StopToken, Wake};

/// How often the housekeeper goes round (OC-18); the first round is at once.
const ROUND: Duration = Duration::from_mins(1);

/// How long after a panic the rounds begin anew.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The body of the housekeeper's thread. A panic in a round is told in the manager's health and the
/// rounds go on: somebody
/// has to join what ends, and the manager's drop waits for that.
pub(crate) fn keep_house<K: Object>(shared: &Shared<K>, stop: &StopToken) {
    let port = format_args!("the housekeeper of {}", cache_name::<K>());
    while let Err(error) = guard(port, || keep_until_stopped(shared, stop)) {
        log::error!("{error}; it goes on in {AFTER_PANIC:?}");
        *shared.housekeeping.lock() = Some(error);
        let pause = shared.works.clock().after(AFTER_PANIC);
        stop.wait_until(shared.works.clock(), pause);
    }
}

/// After its stop it joins what is left, which includes a run that is just ending itself, and ends.
fn keep_until_stopped<K: Object>(shared: &Shared<K>, stop: &StopToken) {
    let clock = shared.works.clock().clone();
    let wake: Arc<dyn Wake> = Arc::<Monitor<Chores>>::clone(&shared.works.chores);
    let _registration = stop.register(&wake);
    let mut round_at = clock.after(Duration::ZERO);
    loop {
        let (ended, recovered) = wait_for_chores(shared, round_at, stop);
        let made_room = !ended.is_empty();
        for run in ended {
            run.join();
        }
        if stop.is_stopped() {
            if shared.works.chores.lock().alive == 0 {
                return;
            }
            continue;
        }
        if made_room {
            fill_room(shared);
        }
        if recovered {
            // Each shortens its backoff to the first step, once per failure (B10).
            for item in shared.items() {
                item.about.demand.expedite();
            }
        }
        if clock.has_passed(round_at) {
            go_round(shared);
            let mended = shared.housekeeping.lock().take();
            drop(mended);
            round_at = clock.after(ROUND);
        }
    }
}

fn wait_for_chores<K: Object>(
    shared: &Shared<K>,
    round_at: Deadline,
    stop: &StopToken,
) -> (Vec<Run>, bool) {
    let works = &shared.works;
    let mut chores = works.chores.lock();
    while chores.ended.is_empty() && !chores.recovered {
        let stopped = stop.is_stopped();
        // After the stop there are no rounds any more: only ends, and the last of them.
        let due = if stopped {
            chores.alive == 0
        } else {
            works.clock().has_passed(round_at)
        };
        if due {
            break;
        }
        let until = if stopped { Deadline::NEVER } else { round_at };
        chores = works.clock().wait_until(&works.chores, chores, until);
    }
    let recovered = std::mem::take(&mut chores.recovered);
    (std::mem::take(&mut chores.ended), recovered)
}

/// Starts items that had no room, until one finds none again. One that fails otherwise keeps no
/// other waiting.
fn fill_room<K: Object>(shared: &Shared<K>) {
    for item in shared.items() {
        let action = shared.works.change(&item, |slot| slot.act(Input::Room));
        shared.works.perform(&item, action);
        if item.slot.lock().found_no_room() {
            return;
        }
    }
}

fn go_round<K: Object>(shared: &Shared<K>) {
    let clock = shared.works.clock();
    let (now, instant) = (clock.coarse(), clock.now());
    let idle_max = shared.works.idle_max();
    for item in shared.items() {
        let action = shared.works.change(&item, |slot| {
            slot.note_read(shared.works.answers.mark(&item.about.key, &item.about));
            let idle = slot.is_filled() && slot.is_idle(now, idle_max);
            // An unfilled item goes on trying for as long as it is referenced (OC-20).
            let input = if idle { Input::Idle } else { Input::Retry };
            slot.try_again(input, instant)
        });
        let changed = action.effect == Effect::End;
        shared.works.perform(&item, action);
        if changed {
            tell(shared, &item);
        }
    }
}

fn tell<K: Object>(shared: &Shared<K>, item: &Item<K>) {
    shared.works.changes.tell(&item.about.key);
}
