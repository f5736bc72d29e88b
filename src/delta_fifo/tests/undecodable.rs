//! Objects that exist but do not decode (B12), in every mode.

use super::*;

fn stage_bad(rig: &mut Rig, good: &str, bad: &str) {
    let mut staging = rig.writer.begin();
    rig.writer
        .stage(&mut staging, ObjectEvent::added(stored(good)));
    let bad = Listed::from(undecodable(bad));
    rig.writer.stage(&mut staging, ObjectEvent::added(bad));
    rig.writer.commit(staging, &at("100")).unwrap();
}

/// B12: an undecodable object counts as present in a list, so that no false deletion is queued.
#[test]
fn b12_a_listed_object_that_does_not_decode_is_not_deleted() {
    let table = [
        (Rig::compressed("a1 b1"), vec!["=a1", "Xb2"]),
        (Rig::in_order("a1 b1"), vec!["=a1", "Xb2"]),
        (Rig::atomic(false), vec!["[a1+Xb2]@100"]),
    ];
    for (mut rig, expected) in table {
        stage_bad(&mut rig, "a1", "b2");
        assert_eq!(rig.drain(), expected);
    }
}

/// B12: an event that does not decode is a change of its object, with the last good state in what
/// follows.
#[test]
fn b12_a_change_that_does_not_decode_keeps_the_order() {
    let table = [
        (Rig::compressed(""), vec!["+a1,Xa2,?a1"]),
        (Rig::in_order(""), vec!["+a1", "Xa2", "?a1"]),
    ];
    for (mut rig, expected) in table {
        rig.feed("+a1");
        rig.writer
            .apply(ObjectEvent::updated(undecodable("a2")))
            .unwrap();
        rig.feed("=");
        assert_eq!(rig.drain(), expected);
    }
}

/// B12: a deletion whose final state does not decode carries the last state that did, from the
/// queue or the consumer.
#[test]
fn b12_a_deletion_that_does_not_decode_carries_the_last_good_state() {
    for mut rig in [Rig::compressed("a1 b1"), Rig::in_order("a1 b1")] {
        rig.feed("~a2");
        for gone in ["a3", "b3"] {
            let event = ObjectEvent::deleted(undecodable(gone));
            rig.writer.apply(event).unwrap();
        }
        let mut deleted = Vec::new();
        while !rig.handle.is_empty() {
            let popped = rig.pop();
            apply(&rig.known, &popped);
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
        let mut rig = Rig::new(options.atomic_lists(), Arc::clone(&known));
        let event = ObjectEvent::deleted(undecodable("a3"));
        rig.writer.apply(event).unwrap();
        let popped = rig.pop();
        let last = popped.newest().object().map(|object| word(object));
        assert_eq!(last.as_deref(), expected);
    }
}

/// DF-5 holds for them too.
#[test]
fn b12_an_unknown_deletion_that_does_not_decode_is_left_out_when_compressed() {
    for (mut rig, expected) in [(Rig::compressed(""), 0), (Rig::in_order(""), 1)] {
        let event = ObjectEvent::deleted(undecodable("a3"));
        rig.writer.apply(event).unwrap();
        assert_eq!(rig.drain().len(), expected);
    }
}

/// B12, promise 6: a list deletes missing objects even if none of their states ever decoded,
/// however many wait.
#[test]
fn b12_many_objects_that_never_decoded_are_deleted_by_a_list_without_them() {
    const MANY: usize = 20_000;
    for mut rig in [Rig::compressed(""), Rig::in_order("")] {
        let mut staging = rig.writer.begin();
        for number in 0..MANY {
            let mut bad = undecodable("a1");
            bad.key = key(&format!("bad-{number}"));
            rig.writer.stage(&mut staging, ObjectEvent::added(bad));
        }
        rig.writer.commit(staging, &at("100")).unwrap();
        rig.feed("=");
        let mut deleted = 0;
        while !rig.handle.is_empty() {
            let popped = rig.pop();
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
        for mut rig in [Rig::compressed(known), Rig::in_order(known)] {
            rig.feed(before);
            let event = ObjectEvent::updated(undecodable("a6"));
            rig.writer.apply(event).unwrap();
            rig.feed("=");
            assert_eq!(rig.drain().join(","), expected, "{:?}", rig.writer);
        }
    }
}
