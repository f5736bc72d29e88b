//! Waits for all informers at once (WT-1 to WT-4, IS-6, IS-7).

use super::*;
use crate::informer::{SyncOutcome, SyncResult};
use crate::tests::until::until;

/// The behaviour of an informer in the table.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Syncs,
    /// It syncs only after the test let it.
    Hangs,
    Stops,
}

fn ask<K: Object>(set: &Set, source: &FakeSource<K>, does: Does)
where
    Cluster: Api<K>,
{
    if does == Does::Hangs {
        source.fail_next(RequestKind::List, SourceFault::Hang);
    }
    let informer = set.informer::<K>().unwrap();
    if does == Does::Stops {
        informer.stop();
    }
}

fn names<'a, I: Iterator<Item = &'a SyncOutcome>>(outcomes: I) -> Vec<String> {
    outcomes.map(|outcome| outcome.name.clone()).collect()
}

fn synced(result: &SyncResult) -> Vec<String> {
    let outcomes = result.outcomes.iter();
    names(outcomes.filter(|outcome| outcome.error.is_none()))
}

fn error_of(result: &SyncResult, name: &str) -> Error {
    result.get(name).unwrap().error.clone().unwrap()
}

/// `TestWaitFor`, with informers: the behaviour of each, and its outcome.
#[test]
fn wt_2_a_wait_says_of_each_informer_whether_it_has_synced() {
    use Does::{Hangs, Stops, Syncs};
    let table: [(&str, &[Does]); 7] = [
        ("empty", &[]),
        ("none", &[Hangs, Hangs, Hangs]),
        ("some time out", &[Syncs, Hangs]),
        ("some time out, the first", &[Hangs, Syncs]),
        ("some are stopped", &[Stops, Syncs]),
        ("more", &[Hangs, Syncs, Stops, Syncs]),
        ("all", &[Syncs, Syncs, Syncs, Syncs]),
    ];
    for (case, all) in table {
        let stage = Stage::new();
        let set = Arc::new(stage.set());
        for (nth, does) in all.iter().enumerate() {
            match nth {
                0 => ask(&set, &stage.source.config_maps, *does),
                1 => ask(&set, &stage.source.pods, *does),
                2 => ask(&set, &stage.source.secrets, *does),
                _ => ask(&set, &stage.source.nodes, *does),
            }
        }
        set.start().unwrap();
        for (member, does) in set.members().iter().zip(all) {
            until(|| *does != Syncs || member.has_synced());
        }
        let deadline = stage.clock.after(Duration::from_secs(5));
        let waiting = Arc::clone(&set);
        let (_worker, waited) = apart(move || waiting.wait_until_synced(deadline));
        if all.contains(&Hangs) {
            stage.fake.wait_for_timer(Duration::from_secs(5));
            assert!(waited.is_empty(), "{case}");
            stage.fake.advance(Duration::from_secs(5));
        }
        let result = waited.recv().unwrap();
        let ends: Vec<_> = result
            .outcomes
            .iter()
            .map(|o| o.error.as_ref().map(Error::kind))
            .collect();
        let expected: Vec<_> = all
            .iter()
            .map(|does| match does {
                Syncs => None,
                Hangs => Some(ErrorKind::NotSynced),
                Stops => Some(ErrorKind::Stopped),
            })
            .collect();
        assert_eq!(ends, expected, "{case}");
        let expected = all.iter().all(|does| *does == Syncs);
        assert_eq!(result.all_synced(), expected, "{case}");
        assert_eq!(result.into_result().is_ok(), expected, "{case}");
        assert_eq!(set.has_synced(), expected, "{case}");
    }
}

#[test]
fn wt_1_a_wait_for_nothing_is_over_at_once() {
    let stage = Stage::new();
    let set = stage.set();
    let result = set.wait_until_synced(Deadline::NEVER);
    assert!(result.all_synced() && result.outcomes.is_empty());
    result.into_result().unwrap();
    assert!(set.has_synced());
}

/// WT-1: the first look comes before the deadline.
#[test]
fn wt_1_success_beats_a_deadline_that_has_passed() {
    let stage = Stage::new();
    let set = stage.running();
    assert!(set.wait_until_synced(stage.now()).all_synced());
}

fn result(ends: Vec<(&str, Result<(), Error>)>) -> SyncResult {
    let outcomes = ends.into_iter();
    let outcomes = outcomes.map(|(name, end)| SyncOutcome::new(name, false, end));
    SyncResult {
        outcomes: outcomes.collect(),
    }
}

/// `TestSyncResult`.
#[test]
fn wt_3_the_error_names_who_has_not_synced_in_order_and_then_why() {
    let timed_out = |why: &str| {
        let text = format!("failed to sync x cache: timed out waiting for the condition\n{why}");
        Error::new(ErrorKind::NotSynced, text)
    };
    let table = [
        (
            "no cause",
            vec![("pods", Ok(())), ("secrets", Ok(()))],
            None,
        ),
        (
            "one",
            vec![("secrets", Ok(())), ("pods", Err(timed_out("1 attempt")))],
            Some((
                ErrorKind::NotSynced,
                "failed to sync all caches: pods: timed out waiting for the condition\n\
                 pods: 1 attempt",
            )),
        ),
        (
            "many",
            vec![
                ("secrets", Err(timed_out("2 attempts"))),
                ("configmaps", Ok(())),
                ("pods", Err(forbidden())),
                ("nodes", Err(timed_out("3 attempts"))),
            ],
            Some((
                ErrorKind::NotSynced,
                "failed to sync all caches: nodes, pods, secrets: \
                 timed out waiting for the condition, refused by the server\n\
                 nodes: 3 attempts\n\
                 pods: pods is forbidden\n\
                 secrets: 2 attempts",
            )),
        ),
        (
            "all of one kind",
            vec![("b", Err(forbidden())), ("a", Err(forbidden()))],
            Some((
                ErrorKind::Forbidden,
                "failed to sync all caches: a, b: refused by the server\n\
                 a: pods is forbidden\n\
                 b: pods is forbidden",
            )),
        ),
    ];
    for (case, ends, expected) in table {
        let error = result(ends).into_result().err();
        let told = error.map(|error| (error.kind(), error.to_string()));
        let expected = expected.map(|(kind, text)| (kind, text.to_owned()));
        assert_eq!(told, expected, "{case}");
    }
}

/// B2, R28: the last failure, the attempts and since when, of each informer by itself.
#[test]
fn wt_3_the_result_has_the_cause_of_each_informer() {
    let stage = Stage::new();
    stage.source.pods.fail_all(RequestKind::List, down());
    let set = stage.set();
    set.informer::<Pod>().unwrap();
    set.informer::<Secret>().unwrap();
    let began = stage.clock.now();
    set.start().unwrap();
    stage.fake.wait_for_timer(Duration::from_millis(800));
    let secrets = set.informer::<Secret>().unwrap();
    secrets.wait_until_synced(Deadline::NEVER).unwrap();
    let result = set.wait_until_synced(stage.now());
    assert_eq!(synced(&result), ["secrets"]);
    assert_eq!(names(result.unsynced()), ["pods"]);
    let error = error_of(&result, "pods");
    assert!(error.attempts() >= 1);
    assert_eq!(error.since(), Some(began));
    assert_eq!(error.last_error().unwrap().kind(), ErrorKind::Unreachable);
    let text = result.into_result().unwrap_err().to_string();
    let head = "failed to sync all caches: pods: timed out waiting for the condition\npods: ";
    assert!(text.starts_with(head), "{text}");
    // The wait itself shortens the backoff (B3), before or after its result is taken.
    let cause = "failed to list pods: connection refused\nnow backing off for ";
    assert!(text.contains(cause), "{text}");
}

/// `TestNameForHandler`: names are those of the type, and of the handler at its informer.
#[test]
fn wt_4_informers_and_handlers_are_called_by_type_and_name() {
    let stage = Stage::new();
    let set = stage.set();
    let pods = set.informer::<Pod>().unwrap();
    set.informer_in::<Pod>(&Scope::namespace("shop")).unwrap();
    let of_shop = set.get::<Pod>(&Scope::namespace("shop")).unwrap();
    let audit = || HandlerOptions::default().name("audit");
    let added = [
        pods.add_handler_with(Handlers::new(), audit()).unwrap(),
        pods.add_handler(Handlers::new()).unwrap(),
        of_shop.add_handler_with(Handlers::new(), audit()).unwrap(),
    ];
    set.start().unwrap();
    let informers = set.wait_until_synced(Deadline::NEVER);
    assert_eq!(names(informers.outcomes.iter()), ["pods", "pods (shop)"]);
    let handlers = set.wait_until_handlers_synced(Deadline::NEVER);
    let synced = synced(&handlers);
    assert_eq!(synced, added.each_ref().map(Registration::sync_name));
    assert_eq!(synced[0], "SharedInformer Pod + event handler audit");
    let unnamed = format!(
        "SharedInformer Pod + event handler Handlers ({})",
        added[1].name()
    );
    assert_eq!(synced[1], unnamed);
    assert_eq!(
        synced[2],
        "SharedInformer Pod (pods (shop)) + event handler audit"
    );
}

/// B3: a wait for several informers expedites all of them from the beginning, also
/// the ones behind one that never comes.
#[test]
fn is_6_all_first_lists_hurry_while_the_first_of_them_is_waited_for() {
    let stage = Stage::new();
    let sources = &stage.source;
    sources
        .config_maps
        .fail_next(RequestKind::List, SourceFault::Hang);
    for _ in 0..2 {
        let fails = SourceFault::Fail(down());
        sources.secrets.fail_next(RequestKind::List, fails);
    }
    let set = Arc::new(stage.set());
    set.informer::<ConfigMap>().unwrap();
    let secrets = set.informer::<Secret>().unwrap();
    set.start().unwrap();
    stage.fake.wait_for_timer(Duration::from_millis(800));
    let before = stage.clock.now();
    let waiting = Arc::clone(&set);
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    // No other informer has a timer: no time passes before this one hurries.
    until(|| stage.fake.wait_for_timers(1) < Duration::from_millis(800));
    stage.pass_among(1, || sources.secrets.requests().len() >= 3);
    let passed = stage.clock.now().saturating_duration_since(before);
    secrets.wait_until_synced(Deadline::NEVER).unwrap();
    // A watch, the request that hangs, and the waiter: all three are parked.
    stage.fake.wait_for_parked(3);
    let is_still_waiting = waited.is_empty();
    // Checks that fail below this line wait for no thread.
    sources.config_maps.heal();
    assert!(waited.recv().unwrap().all_synced());
    assert!(is_still_waiting, "the first one hung");
    assert!(passed < Duration::from_millis(800), "{passed:?}");
}

/// R4, R28: a refusal and an unknown resource are answers, and their informers keep trying.
#[test]
fn is_7_informers_that_the_server_refuses_or_does_not_know_hold_up_no_other() {
    let stage = Stage::new();
    let sources = &stage.source;
    sources.pods.fail_all(RequestKind::List, forbidden());
    sources.secrets.fail_all(RequestKind::List, unknown());
    let set = Arc::new(stage.set());
    let pods = set.informer::<Pod>().unwrap();
    let secrets = set.informer::<Secret>().unwrap();
    let config_maps = set.informer::<ConfigMap>().unwrap();
    set.start().unwrap();
    config_maps.wait_until_synced(Deadline::NEVER).unwrap();
    assert_eq!(config_maps.store().len(), 1, "it is there while others try");
    let began = stage.clock.now();
    let waiting = Arc::clone(&set);
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    // Three threads stand in the clock when none is at work: two back off, one reads its watch.
    let refused = || pods.status().refusal.is_some() && secrets.status().refusal.is_some();
    stage.pass_among(3, refused);
    let took = stage.clock.now().saturating_duration_since(began);
    assert!(took <= Duration::from_secs(4), "after the grace: {took:?}");
    let result = waited.recv().unwrap();
    assert_eq!(synced(&result), ["configmaps"]);
    let kind = |name| error_of(&result, name).kind();
    assert_eq!(kind("pods"), ErrorKind::Forbidden);
    assert_eq!(kind("secrets"), ErrorKind::NotFound);
    let denied = set.members()[0].status().refusal.unwrap();
    let refusal = "failed to list pods: pods is forbidden";
    assert_eq!(denied.to_string(), refusal);
    assert!(set.members()[1].status().refusal.is_some());
    let error = result.into_result().unwrap_err();
    let text = error.to_string();
    // A page of probes has the kind in place of the servers' words.
    let words = error.last_error().unwrap().to_string();
    assert!(
        words.starts_with("pods: ") && text.ends_with(&words),
        "{words}"
    );
    assert_eq!(
        text,
        "failed to sync all caches: pods, secrets: refused by the server\n\
         pods: failed to list pods: pods is forbidden\n\
         secrets: failed to list secrets: the server could not find the requested resource"
    );
    sources.pods.heal();
    sources.secrets.heal();
    stage.pass_until(|| pods.has_synced() && secrets.has_synced());
    assert!(set.wait_until_synced(stage.now()).all_synced());
    // The store has the list before the status says so.
    stage.pass_until(|| set.members()[1].status().refusal.is_none());
}

/// WT-2: the final look.
#[test]
fn wt_2_who_was_refused_and_synced_while_another_one_was_waited_for_has_synced() {
    let stage = Stage::new();
    let sources = &stage.source;
    sources.pods.fail_all(RequestKind::List, forbidden());
    sources
        .secrets
        .fail_next(RequestKind::List, SourceFault::Hang);
    let set = Arc::new(stage.set());
    let pods = set.informer::<Pod>().unwrap();
    set.informer::<Secret>().unwrap();
    set.start().unwrap();
    stage.pass_until(|| pods.status().refusal.is_some());
    let waiting = Arc::clone(&set);
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    // It waits in the clock, along with the request that hangs and the one that backs off: it is
    // past the first.
    stage.fake.wait_for_parked(3);
    sources.pods.heal();
    stage.pass_until(|| pods.has_synced());
    assert!(waited.is_empty());
    sources.secrets.heal();
    assert!(waited.recv().unwrap().all_synced());
}

#[test]
fn wt_1_a_stop_of_the_set_ends_the_wait() {
    let stage = Stage::new();
    let sources = &stage.source;
    sources.pods.fail_next(RequestKind::List, SourceFault::Hang);
    sources
        .secrets
        .fail_next(RequestKind::List, SourceFault::Hang);
    let set = Arc::new(stage.set());
    set.informer::<Pod>().unwrap();
    set.informer::<Secret>().unwrap();
    set.start().unwrap();
    sources.pods.wait_for_requests(1);
    let waiting = Arc::clone(&set);
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    set.stop();
    let error = waited.recv().unwrap().into_result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    let text = error.to_string();
    let head = "failed to sync all caches: pods, secrets: stopped\n";
    assert!(text.starts_with(head), "{text}");
}

/// Go's trap: a wait before the start says there that nothing is missing.
#[test]
fn is_7_an_informer_that_was_not_started_is_not_waited_for_and_says_so() {
    let stage = Stage::new();
    let set = stage.set();
    set.informer::<Pod>().unwrap();
    let error = set
        .wait_until_synced(Deadline::NEVER)
        .into_result()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "failed to sync all caches: pods: not started\npods: informer pods was not started"
    );
}

/// SI-16: every handler of every informer; those of an informer that cannot sync have its reason.
#[test]
fn si_16_a_wait_for_handlers_waits_for_those_whose_informers_sync() {
    let stage = Stage::new();
    stage.source.pods.fail_all(RequestKind::List, forbidden());
    let set = Arc::new(stage.set());
    let pods = set.informer::<Pod>().unwrap();
    let secrets = set.informer::<Secret>().unwrap();
    pods.add_handler_with(Handlers::new(), HandlerOptions::default().name("never"))
        .unwrap();
    let slow = Gated::add(&secrets, "slow");
    set.start().unwrap();
    stage.pass_until(|| pods.status().refusal.is_some());
    slow.begun.recv().unwrap();
    let waiting = Arc::clone(&set);
    let late = set.wait_until_handlers_synced(stage.now());
    assert_eq!(synced(&late), Vec::<String>::new());
    let (_worker, waited) = apart(move || waiting.wait_until_handlers_synced(Deadline::NEVER));
    slow.gate.send(()).unwrap();
    let result = waited.recv().unwrap();
    assert_eq!(
        synced(&result),
        ["SharedInformer Secret + event handler slow"]
    );
    let error = error_of(&result, "SharedInformer Pod + event handler never");
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

/// WT-2: the final look, at handlers. The reason of each stands behind its name once.
#[test]
fn wt_2_a_handler_that_synced_while_another_one_was_waited_for_has_synced() {
    let stage = Stage::new();
    stage.source.pods.fail_all(RequestKind::List, forbidden());
    let set = Arc::new(stage.set());
    let pods = set.informer::<Pod>().unwrap();
    let late = pods.add_handler(Handlers::new()).unwrap();
    let secrets = set.informer::<Secret>().unwrap();
    let slow = Gated::add(&secrets, "slow");
    set.start().unwrap();
    stage.pass_until(|| pods.status().refusal.is_some());
    slow.begun.recv().unwrap();
    let waiting = Arc::clone(&set);
    let (_worker, waited) = apart(move || waiting.wait_until_handlers_synced(Deadline::NEVER));
    // It waits in the clock, along with a backoff, a watch, and the quick handler.
    stage.fake.wait_for_parked(4);
    stage.source.pods.heal();
    stage.pass_until(|| late.has_synced());
    assert!(waited.is_empty());
    secrets.stop();
    drop(slow.gate);
    let result = waited.recv().unwrap();
    assert_eq!(synced(&result), [late.sync_name()]);
    let text = result.into_result().unwrap_err().to_string();
    assert_eq!(
        text,
        "failed to sync all caches: SharedInformer Secret + event handler slow: stopped\n\
         SharedInformer Secret + event handler slow: \
         waiting for the SharedInformer Secret cache: stopped"
    );
}
