//! What the consumer has in its hands while the queue goes on: no lock is held, and no deletion is lost.

use super::*;

/// Pops what waits, and does `meanwhile` before the view shows it and it counts as processed.
fn during(rig: &mut Rig, meanwhile: &str) {
    let (deltas, processing) = rig.queue.pop(at_once()).unwrap().into_parts();
    for word in meanwhile.split_whitespace() {
        match word.split_at(1) {
            ("=", "") => replace(&mut rig.writer, vec![]).unwrap(),
            ("=", rest) => replace(&mut rig.writer, vec![held(rest)]).unwrap(),
            ("!", _) => rig.writer.resync().unwrap(),
            ("-", rest) => rig.writer.apply(SinkEvent::Deleted(held(rest))).unwrap(),
            ("~", rest) => rig.writer.apply(SinkEvent::Modified(held(rest))).unwrap(),
            (other, _) => panic!("no such input: {other}"),
        }
    }
    apply(&rig.known, &deltas);
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
            &[],
            "a resync would take it back to the state before",
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

/// B12: what waits says nothing that decodes; the state in hand is newer than the one that the view still shows.
#[test]
fn b12_a_deletion_carries_the_state_in_hand_where_what_waits_does_not_decode() {
    for mut rig in [Rig::compressed("a1"), Rig::in_order("a1")] {
        rig.feed("~a2");
        let (_deltas, processing) = rig.queue.pop(at_once()).unwrap().into_parts();
        rig.writer
            .apply(SinkEvent::Undecodable(undecodable("a3")))
            .unwrap();
        replace(&mut rig.writer, vec![]).unwrap();
        drop(processing);
        let popped = rig.drain().join(",");
        assert_eq!(popped, "Xa3,Ta2", "{:?}", rig.writer);
    }
}

/// DF-5: a deletion of an object whose deletion is in hand has no meaning in a compressed queue.
#[test]
fn df_5_a_second_deletion_while_the_first_is_in_hand_is_left_out() {
    let mut rig = Rig::compressed("a1");
    rig.feed("-a2");
    during(&mut rig, "-a3");
    assert!(rig.handle.is_empty());
}

/// An unchanged object of a list keeps its allocation, whether the consumer holds it, has it in hand, or it waits.
#[test]
fn unchanged_objects_of_a_list_keep_their_allocation() {
    for mut rig in [Rig::compressed("a1 b1 c1"), Rig::in_order("a1 b1 c1")] {
        let stored = Arc::clone(&rig.known.objects.lock()[&key("a")]);
        let (waits, in_hand) = (held("b2"), held("c2"));
        rig.writer
            .apply(SinkEvent::Modified(Arc::clone(&in_hand)))
            .unwrap();
        rig.writer
            .apply(SinkEvent::Modified(Arc::clone(&waits)))
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
            .apply(SinkEvent::Added(Arc::clone(&object)))
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
        .apply(SinkEvent::Added(Arc::clone(&waits)))
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
