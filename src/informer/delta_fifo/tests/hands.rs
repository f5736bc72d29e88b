//! What the consumer has in its hands while the queue goes on: no lock is held, and no deletion is lost.

use super::*;

/// Pops what waits, and does `meanwhile` before the view shows it and it counts as processed.
fn during(rig: &mut Rig, meanwhile: &str) {
    let view = Arc::clone(&rig.known);
    during_it(rig, meanwhile, |deltas| apply(&view, deltas));
}

/// The same, of a consumer that refuses what it took.
fn during_refused(rig: &mut Rig, meanwhile: &str) {
    during_it(rig, meanwhile, |_| {});
}

fn during_it(rig: &mut Rig, meanwhile: &str, process: impl FnOnce(&Deltas<ConfigMap>)) {
    let (deltas, processing) = rig.queue.pop(at_once()).unwrap().into_parts();
    for word in meanwhile.split_whitespace() {
        write(&mut rig.writer, word).unwrap();
    }
    process(&deltas);
    drop(processing);
}

/// DF-12 is better here, and RQ-12: what is being processed is neither waiting nor known, and still counts.
#[test]
fn rq_12_what_is_in_hand_counts_as_known() {
    let table: [(&str, &str, &str, &[&str], &str); 8] = [
        (
            "",
            "+a1",
            "=",
            &["Ta1"],
            "a list goes without an object that is being added",
        ),
        ("", "+a1", "=a1", &["Ra1"], "a list has it"),
        (
            "a1",
            "-a2",
            "=",
            &[],
            "it is being deleted: nothing is left to delete",
        ),
        (
            "a1",
            "~a2",
            "=",
            &["Ta2"],
            "the deletion carries the state in hand, not the older one",
        ),
        (
            "a1",
            "~a2",
            "!",
            &["Sa2"],
            "a resync brings up the state in hand, not the one before",
        ),
        (
            "",
            "+a1",
            "-a2",
            &["Da2"],
            "a deletion of what is being added",
        ),
        ("a1", "-a2", "!", &[], "a resync would bring it back"),
        (
            "a1",
            "~a2",
            "~a3 =",
            &["Ua3 Ta3"],
            "what waits again comes before what is in hand",
        ),
    ];
    for (known, before, meanwhile, expected, why) in table {
        for mut rig in [Rig::compressed(known), Rig::in_order(known)] {
            rig.feed(before);
            during(&mut rig, meanwhile);
            let popped = rig.drain().join(",").replace(',', " ");
            assert_eq!(popped, expected.join(" "), "{why}: {:?}", rig.writer);
        }
    }
}

/// DF-16, RQ-9: the originals' resync waits for the processing to end. Here nothing waits, and the object is delivered
/// once more as it then is, unless something newer of it waits.
#[test]
fn df_16_rq_9_a_resync_reaches_what_is_in_hand() {
    let table: [(&str, &str, &str, &str); 9] = [
        ("", "+a1", "!", "Sa1"),
        ("a1", "~a2", "! !", "Sa2"),
        ("a1", "~a2", "! ~a3", "Ua3"),
        ("a1", "~a2", "~a3 !", "Ua3"),
        ("a1", "~a2", "! =", "Ta2"),
        ("a1", "~a2", "! =a2", "Ra2"),
        ("a1", "-a2", "!", ""),
        ("a1 b1", "~a2", "!", "Sb1 Sa2"),
        ("a1 b1", "~a2", "! =", "Sb1 Tb1 Ta2"),
    ];
    for (known, before, meanwhile, expected) in table {
        for mut rig in [Rig::compressed(known), Rig::in_order(known)] {
            rig.feed(before);
            during(&mut rig, meanwhile);
            let mut popped = words(&mut rig);
            let mut expected: Vec<_> = expected.split_whitespace().collect();
            // What a list ends comes in no order that is promised (DF-9).
            popped.sort();
            expected.sort_unstable();
            assert_eq!(popped, expected, "{meanwhile}: {:?}", rig.writer);
        }
    }
}

/// RQ-9: every object of a batch.
#[test]
fn rq_9_a_resync_reaches_all_that_is_in_hand() {
    for mut rig in [Rig::compressed("a1"), Rig::in_order("a1")] {
        rig.feed("~a2 +b1 -c1");
        let all = std::num::NonZeroUsize::MAX;
        let (taken, processing) = rig.queue.pop_batch(all, at_once()).unwrap().into_parts();
        rig.writer.resync().unwrap();
        assert!(rig.handle.is_empty(), "before the processing has ended");
        for deltas in &taken {
            apply(&rig.known, deltas);
        }
        drop(processing);
        let mut popped = words(&mut rig);
        popped.sort();
        assert_eq!(popped, ["Sa2", "Sb1"]);
        assert!(rig.queue.pop(at_once()).is_err(), "once");
    }
}

/// DF-16: what cannot be looked up after the processing is left out.
#[test]
fn df_16_a_failed_lookup_after_the_processing_is_skipped() {
    for mut rig in [Rig::compressed("a1"), Rig::in_order("a1")] {
        rig.writer
            .apply(ObjectEvent::modified(undecodable("a2")))
            .unwrap();
        during(&mut rig, "!");
        assert!(rig.handle.is_empty());
    }
}

/// A processing that panics leaves open what was applied: nothing is asked, and the queue goes on.
#[test]
fn rq_9_a_processing_that_panics_is_owed_nothing() {
    let mut rig = Rig::in_order("a1");
    rig.feed("~a2");
    let (queue, writer) = (&mut rig.queue, &mut rig.writer);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _popped = queue.pop(at_once()).unwrap();
        writer.resync().unwrap();
        panic!("of the consumer");
    }));
    assert!(panicked.is_err());
    assert!(rig.handle.is_empty());
    assert_eq!(rig.feed("!").drain(), ["Sa1"]);
}

/// RQ-3, DF-8, B18: a deletion in hand that the consumer refuses as old news leaves the object there; a list without it
/// that came meanwhile deletes it.
#[test]
fn b18_rq_3_a_list_ends_an_object_whose_deletion_in_hand_is_refused() {
    let table = [
        ("=", "Ta5"),
        ("= =", "Ta5"),
        ("! =", "Ta5"),
        ("= !", "Ta5"),
        ("=a5", "Ra5"),
        ("= =a5", "Ra5"),
        ("= ~a7", "Ua7"),
        ("!", "Sa5"),
    ];
    for (meanwhile, expected) in table {
        for mut rig in [Rig::compressed("a5"), Rig::in_order("a5")] {
            rig.feed("-a2");
            during_refused(&mut rig, meanwhile);
            assert_eq!(words(&mut rig), [expected], "{meanwhile}: {:?}", rig.writer);
        }
    }
}

/// The same when the refused deletion is told once more before the processing has ended.
#[test]
fn b18_rq_3_a_list_lends_its_word_to_a_deletion_that_came_after_it() {
    let mut rig = Rig::in_order("a5");
    rig.feed("-a2");
    during_refused(&mut rig, "= -a2");
    let popped = rig.queue.pop(at_once()).unwrap();
    assert_eq!(shown(&popped), "Da2");
    assert_eq!(popped.newest().list(), Some(&Arc::new(at("100"))));
    assert!(rig.handle.is_empty());
}

/// All deltas that wait, one word each.
fn words(rig: &mut Rig) -> Vec<String> {
    let popped = rig.drain().into_iter();
    popped
        .flat_map(|deltas| deltas.split(',').map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// B12: what waits says nothing that decodes; the state in hand is newer than the one that the view still shows.
#[test]
fn b12_a_deletion_carries_the_state_in_hand_where_what_waits_does_not_decode() {
    for mut rig in [Rig::compressed("a1"), Rig::in_order("a1")] {
        rig.feed("~a2");
        let (_deltas, processing) = rig.queue.pop(at_once()).unwrap().into_parts();
        rig.writer
            .apply(ObjectEvent::modified(undecodable("a3")))
            .unwrap();
        replace(&mut rig.writer, vec![]).unwrap();
        drop(processing);
        let popped = rig.drain().join(",");
        assert_eq!(popped, "Xa3,Ta2", "{:?}", rig.writer);
    }
}

/// DF-5, B18: the deletion in hand may be refused as old news, so the next one is not left out.
#[test]
fn df_5_a_second_deletion_while_the_first_is_in_hand_is_queued() {
    for mut rig in [Rig::compressed("a3"), Rig::in_order("a3")] {
        rig.feed("-a2");
        during_refused(&mut rig, "-a4");
        assert_eq!(rig.drain(), ["Da4"]);
    }
    for mut rig in [Rig::compressed("a3"), Rig::in_order("a3")] {
        rig.feed("-a2");
        let why = ObjectEvent::deleted(undecodable("a4"));
        let (_refused, processing) = rig.queue.pop(at_once()).unwrap().into_parts();
        rig.writer.apply(why).unwrap();
        drop(processing);
        assert_eq!(rig.drain(), ["Ta3"], "with the last state that decodes");
    }
}

/// An unchanged object of a list keeps its allocation, whether the consumer holds it, has it in hand, or it waits.
#[test]
fn unchanged_objects_of_a_list_keep_their_allocation() {
    for mut rig in [Rig::compressed("a1 b1 c1"), Rig::in_order("a1 b1 c1")] {
        let stored = Arc::clone(&rig.known.objects.lock()[&key("a")]);
        let (waits, in_hand) = (held("b2"), held("c2"));
        rig.writer
            .apply(ObjectEvent::modified(Arc::clone(&in_hand)))
            .unwrap();
        rig.writer
            .apply(ObjectEvent::modified(Arc::clone(&waits)))
            .unwrap();
        let (_deltas, processing) = rig.queue.pop(at_once()).unwrap().into_parts();
        replace(
            &mut rig.writer,
            vec![held("a1"), held("b2"), held("c2"), held("d1")],
        )
        .unwrap();
        drop(processing);
        let mut shared = Vec::new();
        while !rig.handle.is_empty() {
            let popped = rig.queue.pop(at_once()).unwrap();
            for delta in popped.iter() {
                if let Delta::Replaced { object, .. } = delta {
                    let same = |other| Arc::ptr_eq(object, other);
                    shared.push(same(&stored) || same(&waits) || same(&in_hand));
                }
            }
        }
        shared.sort_unstable();
        assert_eq!(shared, [false, true, true, true]);
    }
}

/// Another uid, or no version, is another state.
#[test]
fn what_may_have_changed_is_taken_from_the_list() {
    let mut rig = Rig::compressed("a1 b");
    let mut again = ConfigMap::clone(&held("a1"));
    again.metadata.uid = Some("another".to_owned());
    let listed = [Arc::new(Held::new(again)), held("b")];
    replace(&mut rig.writer, listed.to_vec()).unwrap();
    for object in listed {
        let popped = rig.queue.pop(at_once()).unwrap();
        assert!(Arc::ptr_eq(popped.newest().object().unwrap(), &object));
    }
}

/// RQ-16: a burst that was taken leaves no memory behind, and nothing that was taken is held.
#[test]
fn rq_16_what_was_taken_is_not_held() {
    for mut rig in [Rig::compressed(""), Rig::in_order("")] {
        let object = held("a1");
        rig.writer
            .apply(ObjectEvent::added(Arc::clone(&object)))
            .unwrap();
        drop(rig.queue.pop(at_once()).unwrap());
        assert_eq!(Arc::strong_count(&object), 1);
    }
}

/// RQ-10: a list that is one delta keeps the allocation of unchanged objects too, where it knows whom to ask.
#[test]
fn rq_10_a_list_that_is_one_delta_keeps_allocations_too() {
    let known = view("a1 b1");
    let asked: Arc<dyn KnownObjects<ConfigMap>> = Arc::<View>::clone(&known);
    let mode = QueueMode::InOrderAtomic {
        known: Some(asked),
        bookmarks: false,
    };
    let mut rig = Rig::new(mode, Arc::clone(&known), DeltaFifoOptions::default());
    let waits = held("c2");
    rig.writer
        .apply(ObjectEvent::added(Arc::clone(&waits)))
        .unwrap();
    rig.feed("=a1,b2,c2 =");
    assert_eq!(shown(&rig.queue.pop(at_once()).unwrap()), "Ac2");
    let popped = rig.queue.pop(at_once()).unwrap();
    let Delta::ReplacedAll(all) = popped.newest() else {
        panic!("{popped:?}")
    };
    let listed = all.items.iter().map(|item| match item {
        Listed::Object(object) => object,
        Listed::Undecodable(why) => panic!("{why:?}"),
    });
    let objects = known.objects.lock();
    let held = [&objects[&key("a")], &objects[&key("b")], &waits];
    let same: Vec<_> = listed.zip(held).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(same, [true, false, true]);
    drop(objects);
    drop(popped);
    assert_eq!(rig.drain(), ["[]@100"], "the view decides nothing");
}
