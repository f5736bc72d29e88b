//! Waits: the waiters that a time answers, their answers, and the other ends of a wait.

use super::*;
use crate::pod_status::table::{AnswerSlot, PodAnswer, PodTable};
use crate::worker::StopSource;

const SECOND: Duration = Duration::from_secs(1);

fn entry(name: &str, time: Timestamp) -> PodReading<PodStatus> {
    PodReading::new(Some(status("uid-1", name)), None, Some(time))
}

fn wait(stage: &Stage, uid: &str, min_time: Timestamp) -> PodWaiter {
    PodWaiter {
        uid: Arc::from(uid),
        min_time,
        since: stage.fake.now(),
        deadline: Deadline::NEVER,
    }
}

/// `TestRegisterNotification`: a waiter gets an answer when the time is not before the one that it
/// asked for.
#[test]
fn pc_8_who_waits_is_told_at_the_very_time() {
    let stage = Stage::new();
    stage.set("uid-1", "old", stage.at(0));
    let asking = stage.ask("uid-1", stage.at(1));
    stage.set("uid-1", "new", stage.at(1));
    assert_eq!(name(&asking.answer()), "new");
    let asking = stage.ask("uid-1", stage.at(1));
    stage.cache.update_time(stage.at(2));
    assert_eq!(name(&asking.answer()), "new");
    stage.assert_nobody_is_left();
}

#[test]
fn pc_8_who_waits_is_not_told_before_the_time() {
    let stage = Stage::new();
    let asking = stage.ask("uid-1", stage.at(1));
    stage.set("uid-1", "early", stage.at(0));
    stage.cache.update_time(stage.at(0));
    stage.cache.set_observed_time("uid-1", stage.at(0));
    assert_eq!(stage.waiting(), [("uid-1".to_owned(), stage.at(1))]);
    stage.cache.update_time(stage.at(1));
    assert_eq!(
        name(&asking.answer()),
        "early",
        "whatever the entry's own time"
    );
}

#[test]
fn pc_8_without_an_entry_who_waits_is_told_the_default() {
    let stage = Stage::new();
    let asking = stage.ask("uid-1", stage.at(1));
    stage.cache.update_time(stage.at(1));
    let reading = asking.answer();
    assert!(!reading.is_stored());
    assert_eq!(reading.status().unwrap().id, "uid-1");
}

/// The answer is the entry at that moment, even if it changes or goes before the waiter runs.
#[test]
fn pc_8_the_answer_is_the_entry_of_the_moment() {
    let stage = Stage::new();
    let mut table = PodTable::new(false);
    let slot = table.subscribe(wait(&stage, "uid-1", stage.at(1)));
    assert!(slot.lock().is_none());
    table.set("uid-1", entry("told", stage.at(1)));
    table.set("uid-1", entry("later", stage.at(2)));
    table.delete("uid-1");
    let Some(PodAnswer::Known(told)) = slot.lock().take() else {
        panic!("nobody answered");
    };
    assert_eq!(told.status.unwrap().name, "told");
    assert_eq!(table.waiters(), (0, 0));
}

/// The same set and the same question: a caller that asks before the set gets an answer, one that
/// asks afterwards waits.
#[test]
fn pc_9_the_order_of_asking_and_setting_decides_at_equal_times() {
    let stage = Stage::new();
    let first = stage.ask("uid-1", stage.at(0));
    stage.set("uid-1", "web", stage.at(0));
    assert_eq!(name(&first.answer()), "web");
    assert!(!stage.answers("uid-1", stage.at(0)));
}

/// The plain call: neither passing time nor other pods end it, only the next answer or the close.
#[test]
fn pc_10_a_wait_without_a_deadline_ends_by_an_answer_or_the_close_alone() {
    let stage = Stage::new();
    let (tell, told) = crossbeam_channel::unbounded();
    let (cache, min_time) = (stage.cache.clone(), stage.at(1));
    let worker = Worker::spawn("t-plain", move |_| {
        for _ in 0..2 {
            tell.send(cache.get_newer_than("uid-1", min_time)).unwrap();
        }
    });
    stage.fake.wait_for_parked(1);
    stage.fake.advance(Duration::from_secs(1_000_000));
    stage.set("uid-2", "other", stage.at(9));
    assert_eq!(stage.waiting(), [("uid-1".to_owned(), stage.at(1))]);
    stage.set("uid-1", "web", stage.at(1));
    assert_eq!(name(&told.recv_timeout(LOST).unwrap().unwrap()), "web");
    stage.cache.close();
    assert!(told.recv_timeout(LOST).unwrap().unwrap_err().is_stopped());
    worker.unwrap().join().unwrap();
    stage.assert_nobody_is_left();
}

#[test]
fn pc_11_each_is_told_once_and_later_ones_stay() {
    let stage = Stage::new();
    let soon = stage.ask("uid-1", stage.at(1));
    let late = stage.ask("uid-1", stage.at(3));
    stage.set("uid-1", "first", stage.at(1));
    assert_eq!(name(&soon.answer()), "first");
    stage.set("uid-1", "second", stage.at(2));
    assert_eq!(stage.waiting(), [("uid-1".to_owned(), stage.at(3))]);
    stage.set("uid-1", "third", stage.at(4));
    assert_eq!(name(&late.answer()), "third");
    stage.set("uid-1", "fourth", stage.at(5));
    assert!(soon.told.try_recv().is_err(), "nothing comes a second time");
    stage.assert_nobody_is_left();
}

#[test]
fn pc_4_a_delete_wakes_nobody_and_keeps_who_waits() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    let asking = stage.ask("uid-1", stage.at(1));
    stage.cache.delete("uid-1");
    assert_eq!(stage.waiting(), [("uid-1".to_owned(), stage.at(1))]);
    stage.cache.update_time(stage.at(1));
    assert!(!asking.answer().is_stored());
    stage.assert_nobody_is_left();
}

#[test]
fn pc_5_the_global_time_answers_the_waiters_of_all_pods() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    let asking = [("uid-1", 1), ("uid-2", 2), ("uid-3", 9)]
        .map(|(uid, seconds)| stage.ask(uid, stage.at(seconds)));
    stage.cache.update_time(stage.at(2));
    assert_eq!(name(&asking[0].answer()), "web");
    assert!(!asking[1].answer().is_stored());
    assert_eq!(stage.waiting(), [("uid-3".to_owned(), stage.at(9))]);
    stage.cache.update_time(stage.at(1));
    assert_eq!(stage.waiting().len(), 1, "backwards tells nobody new");
    stage.cache.close();
    assert!(asking[2].error().is_stopped());
}

#[test]
fn pc_3_a_set_may_tell_an_error_without_a_status() {
    let stage = Stage::new();
    let asking = stage.ask("uid-1", Timestamp::ZERO);
    assert!(
        stage
            .cache
            .set("uid-1", None, Some(failure("no answer")), stage.at(0))
    );
    let reading = asking.answer();
    assert!(reading.status().is_none());
    assert_eq!(reading.error().unwrap().to_string(), "no answer");
}

#[test]
fn pc_13_a_refused_status_tells_nobody() {
    let stage = Stage::evented();
    stage.set("uid-1", "newer", stage.at(5));
    let asking = stage.ask("uid-1", stage.at(5));
    let older = Some(status("uid-1", "older"));
    assert!(!stage.cache.set("uid-1", older, None, stage.at(4)));
    assert_eq!(stage.waiting().len(), 1);
    stage.set("uid-1", "equal", stage.at(5));
    assert_eq!(name(&asking.answer()), "equal");
}

#[test]
fn pc_14_an_observed_time_tells_who_waits_for_that_pod() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    let asking = [
        stage.ask("uid-1", stage.at(3)),
        stage.ask("uid-2", stage.at(3)),
    ];
    stage.cache.set_observed_time("uid-1", stage.at(3));
    let reading = asking[0].answer();
    assert_eq!(name(&reading), "web");
    assert_eq!(reading.observed_time(), Some(stage.at(3)));
    assert_eq!(stage.waiting(), [("uid-2".to_owned(), stage.at(3))]);
    stage.cache.set_observed_time("uid-2", stage.at(3));
    assert!(!asking[1].answer().is_stored());
}

/// A set wakes those of its own pod whose condition it meets; the global time, those of any pod.
#[test]
fn b15_only_those_who_are_answered_are_woken() {
    let stage = Stage::new();
    let mut table = PodTable::new(false);
    let soon = table.subscribe(wait(&stage, "uid-1", stage.at(1)));
    let late = table.subscribe(wait(&stage, "uid-1", stage.at(9)));
    let other = table.subscribe(wait(&stage, "uid-2", stage.at(5)));
    let is_of = |woken: &[AnswerSlot<PodStatus>], slots: &[&AnswerSlot<PodStatus>]| {
        woken.len() == slots.len() && woken.iter().zip(slots).all(|(a, b)| Arc::ptr_eq(a, b))
    };
    let woken = table.set("uid-1", entry("early", stage.at(0))).2;
    assert!(is_of(&woken, &[]));
    let woken = table.set("uid-3", entry("other", stage.at(9))).2;
    assert!(is_of(&woken, &[]));
    let woken = table.set("uid-1", entry("web", stage.at(1))).2;
    assert!(is_of(&woken, &[&soon]));
    let woken = table.set("uid-1", entry("web", stage.at(1))).2;
    assert!(is_of(&woken, &[]), "who has an answer is not woken again");
    assert!(is_of(&table.update_time(stage.at(5)), &[&other]));
    assert!(is_of(&table.close(), &[&late]));
}

#[test]
fn b15_a_deadline_ends_the_wait_precisely() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(-8));
    let deadline = stage.clock.after(5 * SECOND);
    let asking = stage.ask_until("uid-1", stage.at(-3), deadline);
    stage.fake.wait_for_timer(5 * SECOND);
    stage.fake.advance(5 * SECOND - Duration::from_nanos(1));
    assert_eq!(stage.waiting().len(), 1, "not a nanosecond early");
    stage.fake.wait_for_timer(Duration::from_nanos(1));
    stage.fake.advance(Duration::from_nanos(1));
    let error = asking.error();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "pod \"uid-1\": timed out after 5.0s waiting for a status newer than 8.0s ago: its status \
         was set 13.0s ago, 5.0s too early; \
         the global time was never set"
    );
    stage.assert_nobody_is_left();
}

#[test]
fn b15_the_deadlines_error_says_what_is_known() {
    let stage = Stage::new();
    let text = |uid: &str, min_time| {
        let now = stage.clock.after(Duration::ZERO);
        let error = stage.cache.get_newer_than_by(uid, min_time, now);
        error.unwrap_err().to_string()
    };
    let never = text("uid-1", Timestamp::ZERO);
    assert!(never.contains("newer than the zero time: no status is stored; the global time was"));
    let before = Timestamp::from(stage.clock.now() - Duration::from_millis(5_001));
    stage
        .cache
        .set("uid-2", None, Some(failure("no answer")), before);
    let barely = text("uid-2", stage.at(-5));
    let known = "newer than 5.0s ago: an error was set 5.0s ago, 1.0ms too early; ";
    assert!(barely.contains(known), "{barely}");
    let exactly = text("uid-2", before);
    assert!(
        exactly.contains("an error was set 5.0s ago, at that very time; "),
        "{exactly}"
    );
    stage.cache.update_time(stage.at(-4));
    let text_of_global = text("uid-1", stage.at(2));
    assert!(
        text_of_global.ends_with("the global time is 4.0s ago, 6.0s too early"),
        "{text_of_global}"
    );
    assert!(text_of_global.contains("newer than 2.0s ahead"));
    assert!(
        stage
            .cache
            .set("uid-1", None, Some(failure("no answer")), stage.at(-7))
    );
    stage.cache.set_observed_time("uid-1", stage.at(-6));
    let text_of_error = text("uid-1", stage.at(0));
    let known = "an error was set 7.0s ago, 7.0s too early, observed 6.0s ago; the global time is \
        4.0s ago, 4.0s too early";
    assert!(text_of_error.ends_with(known), "{text_of_error}");
}

#[test]
fn b15_an_answer_that_is_there_beats_a_deadline_that_has_passed() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(1));
    let passed = stage.clock.after(Duration::ZERO);
    stage.fake.advance(SECOND);
    let answer = stage.cache.get_newer_than_by("uid-1", stage.at(0), passed);
    assert_eq!(name(&answer.unwrap()), "web");
}

/// The waiter finds both: an answer in its slot and a deadline that has passed.
#[test]
fn b15_an_answer_that_came_beats_a_deadline_that_passed_meanwhile() {
    let stage = Stage::new();
    let deadline = stage.clock.after(SECOND);
    let asking = stage.ask_until("uid-1", stage.at(1), deadline);
    // Nobody notifies it: the clock wakes the waiter.
    let (_, _, answered) = stage
        .cache
        .table
        .lock()
        .set("uid-1", entry("web", stage.at(1)));
    assert_eq!(answered.len(), 1);
    stage.fake.advance(SECOND);
    assert_eq!(name(&asking.answer()), "web");
    stage.assert_nobody_is_left();
}

/// As above, with the worker's stop or the close of the cache instead of the deadline.
#[test]
fn b15_an_answer_that_came_beats_a_stop_and_a_close_of_meanwhile() {
    let ends: [fn(&Stage, &Asking); 2] =
        [|_, asking| asking.stop(), |stage, _| stage.cache.close()];
    for end in ends {
        let stage = Stage::new();
        let asking = stage.ask("uid-1", stage.at(1));
        let mut table = stage.cache.table.lock();
        let (_, _, answered) = table.set("uid-1", entry("web", stage.at(1)));
        drop(table);
        end(&stage, &asking);
        for slot in &answered {
            slot.notify_all();
        }
        assert_eq!(name(&asking.answer()), "web");
        stage.assert_nobody_is_left();
    }
}

#[test]
fn b15_each_waiter_of_a_pod_has_its_own_deadline() {
    let stage = Stage::new();
    let first = stage.ask_until("uid-1", stage.at(1), stage.clock.after(SECOND));
    let second = stage.ask_until("uid-1", stage.at(1), stage.clock.after(3 * SECOND));
    let endless = stage.ask("uid-1", stage.at(1));
    stage.fake.advance(SECOND);
    assert_eq!(first.error().kind(), ErrorKind::Timeout);
    assert_eq!(stage.waiting().len(), 2);
    stage.fake.wait_for_timer(2 * SECOND);
    stage.fake.advance(2 * SECOND);
    assert_eq!(second.error().kind(), ErrorKind::Timeout);
    stage.set("uid-1", "web", stage.at(1));
    assert_eq!(name(&endless.answer()), "web");
    stage.assert_nobody_is_left();
}

#[test]
fn b15_a_close_ends_all_waits_now_and_later() {
    let stage = Stage::new();
    stage.set("uid-1", "web", stage.at(0));
    let asking = [
        stage.ask("uid-1", stage.at(1)),
        stage.ask("uid-2", Timestamp::ZERO),
        stage.ask_until("uid-1", stage.at(1), stage.clock.after(SECOND)),
    ];
    assert!(!stage.cache.is_closed());
    stage.cache.close();
    for asking in &asking {
        assert_eq!(asking.error().kind(), ErrorKind::Stopped);
    }
    stage.assert_nobody_is_left();
    let error = stage
        .cache
        .get_newer_than("uid-1", stage.at(1))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "pod \"uid-1\": waiting for a newer status: the cache is closed"
    );
    stage.assert_nobody_is_left();
    assert!(stage.cache.is_closed());
}

#[test]
fn b15_a_closed_cache_still_answers_what_needs_no_wait() {
    let stage = Stage::new();
    stage.cache.close();
    stage.set("uid-1", "web", stage.at(1));
    assert_eq!(name(&stage.cache.get("uid-1")), "web");
    assert!(stage.cache.get_newer_than("uid-1", stage.at(0)).is_ok());
    stage.cache.update_time(stage.at(2));
    assert!(stage.cache.get_newer_than("uid-2", stage.at(1)).is_ok());
}

/// R14: the waiters, their pods and times, and since when they wait.
#[test]
fn b15_who_waits_can_be_listed() {
    let stage = Stage::new();
    assert!(stage.cache.waiting().is_empty());
    let (first, deadline) = (stage.fake.now(), stage.clock.after(9 * SECOND));
    let web = stage.ask_until("uid-1", stage.at(1), deadline);
    stage.fake.advance(2 * SECOND);
    let same = stage.ask("uid-1", stage.at(2));
    let listed = stage.cache.waiting();
    let expected = [
        (stage.at(1), first, deadline),
        (stage.at(2), stage.fake.now(), Deadline::NEVER),
    ];
    assert_eq!(listed.len(), expected.len());
    for (waiting, (min_time, since, deadline)) in listed.iter().zip(expected) {
        assert_eq!(&*waiting.uid, "uid-1");
        assert_eq!((waiting.min_time, waiting.since), (min_time, since));
        assert_eq!(waiting.deadline, deadline);
    }
    stage.cache.update_time(stage.at(2));
    assert!(
        stage.cache.waiting().is_empty(),
        "who has an answer waits no more"
    );
    drop((web.answer(), same.answer()));
}

#[test]
fn b15_many_waiters_of_one_pod_and_of_many_all_come_home() {
    const EACH: usize = 64;
    let stage = Stage::new();
    let of_one: Vec<_> = (0..EACH).map(|_| stage.ask("uid-0", stage.at(1))).collect();
    let of_many: Vec<_> = (1..=EACH)
        .map(|pod| stage.ask(&format!("uid-{pod}"), stage.at(1)))
        .collect();
    assert_eq!(stage.cache.table.lock().waiters(), (EACH + 1, 2 * EACH));
    stage.set("uid-0", "web", stage.at(1));
    for asking in &of_one {
        assert_eq!(name(&asking.answer()), "web");
    }
    assert_eq!(stage.waiting().len(), EACH);
    stage.cache.update_time(stage.at(1));
    for asking in &of_many {
        assert!(!asking.answer().is_stored());
    }
    stage.assert_nobody_is_left();
}

#[test]
fn b15_a_stop_ends_the_wait_of_one_worker_and_no_other() {
    let stage = Stage::new();
    let stopped = stage.ask("uid-1", stage.at(1));
    let same_pod = stage.ask("uid-1", stage.at(1));
    stopped.stop();
    let error = stopped.error();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(
        error.to_string(),
        "pod \"uid-1\": waiting for a newer status: stopped"
    );
    assert_eq!(stage.waiting().len(), 1);
    stage.set("uid-1", "web", stage.at(1));
    assert_eq!(name(&same_pod.answer()), "web");
    stage.assert_nobody_is_left();
}

#[test]
fn b15_a_stop_that_was_raised_before_ends_the_wait_but_loses_to_an_answer() {
    let stage = Stage::new();
    let source = StopSource::new();
    source.stop();
    let get = |min_time| {
        let stop = source.token();
        stage
            .cache
            .get_newer_than_or_stop("uid-1", min_time, Deadline::NEVER, &stop)
    };
    assert!(get(stage.at(0)).unwrap_err().is_stopped());
    stage.set("uid-1", "web", stage.at(1));
    assert_eq!(name(&get(stage.at(0)).unwrap()), "web");
    stage.assert_nobody_is_left();
}

/// A pod worker that is dropped is joined, whatever its pod does (promise 4 of the crate).
#[test]
fn b15_a_worker_that_waits_can_be_dropped() {
    let stage = Stage::new();
    drop(stage.ask("uid-1", Timestamp::ZERO));
    stage.assert_nobody_is_left();
}
