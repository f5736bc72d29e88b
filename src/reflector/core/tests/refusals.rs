//! R4: an hour of refusals. How often the reflector asks, with and without readers, and how soon
//! after a read.

use std::time::Duration;

use super::{Action, Input, Stage, duration, error, paged};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// How often the reflector asks in an hour in which each request ends in `answer`, while a caller
/// reads every `reads`.
fn tries(stage: &mut Stage, first: Action, answer: &str, reads: Option<Duration>) -> usize {
    let end = stage.now + HOUR;
    let (mut action, mut tries) = (first, 0);
    while stage.now < end {
        let input = match &action {
            Action::Pause { until, on_demand } => {
                let read = reads.map(|every| stage.now + every);
                let read = read.filter(|read| *on_demand && read < until);
                stage.now = read.unwrap_or(*until);
                read.map_or(Input::Paused, |_| Input::Demanded)
            }
            Action::Open(_) => {
                tries += 1;
                Input::Done(Err(error(answer)))
            }
            _ => {
                tries += 1;
                paged(Err(error(answer)), true)
            }
        };
        action = stage.step(input);
    }
    tries
}

/// A reflector that has listed nothing yet, and one whose watch ends with `answer`.
fn begun(synced: bool, answer: &str) -> (Stage, Action) {
    let mut stage = Stage::new("");
    let first = stage.step(Input::Start);
    if !synced {
        return (stage, first);
    }
    stage.tell("page 5\ncommitted\nopened\n+60s modified 6\napplied");
    let ended = stage.step(Input::Seen(super::Seen::Error(error(answer))));
    (stage, ended)
}

#[test]
fn r4_a_refusal_that_lasts_is_asked_for_rarely_whoever_reads() {
    println!("answer  content  readers      tries in an hour");
    for answer in ["403", "404", "500"] {
        for synced in [false, true] {
            for reads in [None, Some(Duration::from_secs(1))] {
                let (mut stage, first) = begun(synced, answer);
                let tries = tries(&mut stage, first, answer, reads);
                let content = if synced { "held" } else { "none" };
                let readers = reads.map_or("none", |_| "each second");
                println!("{answer}     {content}     {readers:11}  {tries}");
                let most = match (answer, reads) {
                    ("500", _) => continue,
                    (_, None) => 32,
                    (_, Some(_)) => 125,
                };
                assert!(tries <= most, "{answer} {content} {readers}: {tries}");
            }
        }
    }
}

/// B14: before the first sync a refusal is an answer to readers of one object, even between rare
/// tries. A collection without content is unhealthy.
#[test]
fn b14_a_refusal_keeps_what_was_never_held_from_being_overdue_until_the_next_try() {
    let (mut stage, first) = begun(false, "403");
    tries(&mut stage, first, "403", None);
    stage.tell("page-error 403 -> pause 150s");
    let status = stage.core.status();
    assert!(!status.is_overdue(stage.now + duration("149s")));
    assert!(status.is_overdue(stage.now + HOUR));
    assert!(status.health(stage.now).is_err());
}

/// B10: a read makes the reflector ask at once, unless it asked within the cap of the backoff.
#[test]
fn b10_a_read_has_a_server_that_refused_asked_at_once() {
    let (mut stage, first) = begun(true, "403");
    tries(&mut stage, first, "403", None);
    let pause = stage.play("page-error 403");
    assert_eq!(pause, "pause 150s on-demand");
    stage.now += duration("31s");
    let asked = stage.play("demanded");
    assert!(asked.starts_with("list"), "{asked}");
    let early = stage
        .tell("page-error 403 -> pause 150s")
        .play("+3s demanded");
    assert_eq!(early, "pause 27s");
}

/// The first answer ends the refusal, and the next failure waits as if nothing had been refused.
#[test]
fn r4_the_first_answer_takes_a_refusal_back() {
    let (mut stage, first) = begun(true, "404");
    tries(&mut stage, first, "404", None);
    stage.tell("page-error 404 -> pause 150s");
    assert!(stage.core.status().refusal.is_some());
    stage.tell("paused\npage 9 -> commit 9\ncommitted\nopened\nmodified 10\napplied");
    assert!(stage.core.status().refusal.is_none());
    stage.tell("error 500 -> pause 800ms");
}

/// A failure of another kind falls back to the waits that it would have had.
#[test]
fn r4_another_failure_ends_the_long_waits() {
    let (mut stage, first) = begun(false, "403");
    tries(&mut stage, first, "403", None);
    stage.tell("page-error 403 -> pause 150s\npaused\npage-error refused -> pause 30s");
}
