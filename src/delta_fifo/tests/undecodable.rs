//! Objects that exist but do not decode (B12), in every mode.

use super::*;

fn stage_bad(stage: &mut Stage, good: &str, bad: &str) {
    let mut staging = stage.writer.begin();
    stage
        .writer
        .stage(&mut staging, ObjectEvent::added(stored(good)));
    let bad = Listed::from(undecodable(bad));
    stage.writer.stage(&mut staging, ObjectEvent::added(bad));
    stage.writer.commit(staging, &at("100")).unwrap();
}

/// B12: an undecodable object counts as present in a list, so that no false deletion is queued.
#[test]
fn b12_a_listed_object_that_does_not_decode_is_not_deleted() {
    let table = [
        (Stage::compressed("a1 b1"), vec!["=a1", "Xb2"]),
        (Stage::in_order("a1 b1"), vec!["=a1", "Xb2"]),
        (Stage::atomic(false), vec!["[a1+Xb2]@100"]),
    ];
    for (mut stage, expected) in table {
        stage_bad(&mut stage, "a1", "b2");
        assert_eq!(stage.drain(), expected);
    }
}

/// B12: an event that does not decode is a change of its object, with the last good state in what
/// follows.
#[test]
fn b12_a_change_that_does_not_decode_keeps_the_order() {
    let table = [
        (Stage::compressed(""), vec!["+a1,Xa2,?a1"]),
        (Stage::in_order(""), vec!["+a1", "Xa2", "?a1"]),
    ];
    for (mut stage, expected) in table {
        stage.feed("+a1");
        stage
            .writer
            .apply(ObjectEvent::updated(undecodable("a2")))
            .unwrap();
        stage.feed("=");
        assert_eq!(stage.drain(), expected);
    }
}

/// B12: a deletion whose final state does not decode carries the last state that did, from the
/// queue or the consumer.
#[test]
fn b12_a_deletion_that_does_not_decode_carries_the_last_good_state() {
    for mut stage in [Stage::compressed("a1 b1"), Stage::in_order("a1 b1")] {
        stage.feed("~a2");
        for gone in ["a3", "b3"] {
            let event = ObjectEvent::deleted(undecodable(gone));
            stage.writer.apply(event).unwrap();
        }
        let mut deleted = Vec::new();
        while !stage.handle.is_empty() {
            let popped = stage.pop();
            apply(&stage.known, &popped);
            if let Delta::Deleted(end) = popped.newest() {
                let seen = end.seen.as_ref().unwrap();
                let last = word(end.last_known.as_ref().unwrap());
                deleted.push(format!(
                    "{last} {} {}",
                    seen.resource_version(),
                    end.final_state_known()
                ));
            }
        }
        assert_eq!(deleted, ["a2 3 false", "b1 3 false"]);
    }
}

/// The same in a queue whose view decides nothing else.
#[test]
fn b12_rq_10_a_deletion_that_does_not_decode_carries_what_the_view_shows() {
    let known = view("a1");
    let table = [
        (compressed_over(&known), Some("a1")),
        (Options::default(), None),
    ];
    for (options, expected) in table {
        let mut stage = Stage::new(options.atomic_lists(), Arc::clone(&known));
        let event = ObjectEvent::deleted(undecodable("a3"));
        stage.writer.apply(event).unwrap();
        let popped = stage.pop();
        let last = popped.newest().object().map(|object| word(object));
        assert_eq!(last.as_deref(), expected);
    }
}

/// DF-5 holds for them too.
#[test]
fn b12_an_unknown_deletion_that_does_not_decode_is_left_out_when_compressed() {
    for (mut stage, expected) in [(Stage::compressed(""), 0), (Stage::in_order(""), 1)] {
        let event = ObjectEvent::deleted(undecodable("a3"));
        stage.writer.apply(event).unwrap();
        assert_eq!(stage.drain().len(), expected);
    }
}

/// B12, promise 6: a list deletes missing objects even if none of their states ever decoded,
/// however many wait.
#[test]
fn b12_many_objects_that_never_decoded_are_deleted_by_a_list_without_them() {
    const MANY: usize = 20_000;
    for mut stage in [Stage::compressed(""), Stage::in_order("")] {
        let mut staging = stage.writer.begin();
        for number in 0..MANY {
            let mut bad = undecodable("a1");
            bad.key = key(&format!("bad-{number}"));
            stage.writer.stage(&mut staging, ObjectEvent::added(bad));
        }
        stage.writer.commit(staging, &at("100")).unwrap();
        stage.feed("=");
        let mut deleted = 0;
        while !stage.handle.is_empty() {
            let popped = stage.pop();
            if let Delta::Deleted(end) = popped.newest() {
                assert!(end.last_known.is_none() && end.unlisted);
                deleted += 1;
            }
        }
        assert_eq!(deleted, MANY);
    }
}

/// B12, B18: a repeated old deletion, which the consumer will refuse, says nothing about the object
/// that a list lacks.
#[test]
fn b12_b18_a_deletion_by_a_list_does_not_carry_what_an_old_deletion_told() {
    let table = [
        ("", "+a5 -a2", "+a5,-a2,Xa6,?a5"),
        ("a5", "-a2", "-a2,Xa6,?a5"),
    ];
    for (known, before, expected) in table {
        for mut stage in [Stage::compressed(known), Stage::in_order(known)] {
            stage.feed(before);
            let event = ObjectEvent::updated(undecodable("a6"));
            stage.writer.apply(event).unwrap();
            stage.feed("=");
            assert_eq!(stage.drain().join(","), expected, "{:?}", stage.writer);
        }
    }
}
