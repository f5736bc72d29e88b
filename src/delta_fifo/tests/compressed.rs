//! The compressed mode: DF-1 to DF-11, DF-16, DF-19, and the tables of upstream's tests of it.

use super::*;

/// DF-4, `TestDeltaFIFO_addUpdate`: the changes of one object wait together.
#[test]
fn df_4_the_changes_of_one_object_are_one_pop() {
    let mut stage = Stage::compressed("");
    stage.feed("+a10 ~a12 -a15");
    assert_eq!(stage.handle.len(), 1);
    assert_eq!(stage.drain(), ["+a10,~a12,-a15"]);
}

/// DF-4, `TestDeltaFIFO_detectLineJumpers`: an object keeps its place, however often it changes,
/// and goes to the end once it was taken.
#[test]
fn df_4_an_object_keeps_its_place() {
    let mut stage = Stage::compressed("");
    stage.feed("+a10 +b1 +c11 +c13 +d30");
    assert_eq!(shown(&stage.pop()), "+a10");
    stage.feed("+a14");
    assert_eq!(stage.drain(), ["+b1", "+c11,+c13", "+d30", "+a14"]);
}

/// DF-1, `TestDeltaFIFO_basic`: with any pops in between, each object's changes come in order and
/// none is lost.
#[test]
fn df_1_the_order_of_two_interleaved_series_is_kept() {
    let mut stage = Stage::compressed("");
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for number in 1..=300 {
        stage.feed(&format!("~a{number} ~b{number}"));
        if number % 7 == 0 {
            for deltas in stage.drain() {
                let series = if deltas.starts_with("~a") {
                    &mut of_a
                } else {
                    &mut of_b
                };
                series.extend(deltas.split(',').map(|delta| delta[2..].to_owned()));
            }
        }
    }
    let expected: Vec<_> = (1..=294).map(|number| number.to_string()).collect();
    assert_eq!((&of_a, &of_b), (&expected, &expected));
}

/// DF-5, `TestDeltaFIFO_enqueueingNoLister`: without a view, only queued objects can be deleted.
#[test]
fn df_5_without_a_view_an_unknown_deletion_is_left_out() {
    let mut stage = Stage::alone();
    stage.feed("+a10 ~b15 +c17 -c18 -d20");
    assert_eq!(stage.drain(), ["+a10", "~b15", "+c17,-c18"]);
}

/// DF-5, `TestDeltaFIFO_enqueueingWithLister`: a deletion of an object that the consumer knows is
/// queued, and any other is not.
#[test]
fn df_5_with_a_view_a_known_deletion_is_queued() {
    let mut stage = Stage::compressed("a5 b6 c7");
    stage.feed("+a10 ~b15 -c20 -d20");
    assert_eq!(stage.drain(), ["+a10", "~b15", "-c20"]);
}

/// DF-5: a view that fails does not lose a deletion.
#[test]
fn df_5_a_view_that_fails_lets_the_deletion_through() {
    let mut stage = Stage::compressed("");
    stage.known.broken.lock().insert(key("a"));
    stage.feed("-a3");
    assert_eq!(stage.drain(), ["-a3"]);
}

/// DF-5, DF-14: a deletion that is left out counts as input all the same.
#[test]
fn df_5_an_ignored_deletion_counts_as_populated() {
    let mut stage = Stage::compressed("");
    stage.feed("-a3");
    assert!(stage.handle.is_empty() && stage.handle.has_synced());
}

/// `TestDeltaFIFO_DeleteExistingNonPropagated`: an object that was added and deleted before a pop
/// comes with both changes.
#[test]
fn df_5_added_and_deleted_are_both_kept() {
    let mut stage = Stage::compressed("");
    stage.feed("+a5 -a6");
    assert_eq!(stage.drain(), ["+a5,-a6"]);
}

/// DF-6: two deletions in a row are one; the final state wins over a list's implication, otherwise
/// the newer wins.
#[test]
fn df_6_two_deletions_in_a_row_are_one() {
    let table = [
        (
            "+a1 -a2 -a3",
            "+a1,-a3",
            "the newer of two final states: the older may be old news, which the store refuses \
             (B18)",
        ),
        (
            "+a1 -a2 =",
            "+a1,-a2",
            "the final state, not what the list implies",
        ),
        ("+a1 = -a3", "+a1,-a3", "the final state, which came later"),
        ("+a1 = =", "+a1,?a1", "the newer of two implied ones"),
        ("+a1 +a1", "+a1,+a1", "nothing else is merged"),
    ];
    for (input, output, why) in table {
        assert_eq!(Stage::compressed("").feed(input).drain(), [output], "{why}");
    }
}

/// DF-6: two deletions with anything between them, and two of anything else, stay apart.
#[test]
fn df_6_nothing_else_is_merged() {
    let table = [
        ("~a1 ~a1", "~a1,~a1"),
        ("=a1 =a1", "=a1,=a1"),
        ("-a2 +a3 -a4", "-a2,+a3,-a4"),
        ("-a2 =a3 -a4", "-a2,=a3,-a4"),
        ("= +a3 =", "?a1,+a3,?a3"),
    ];
    for (input, output) in table {
        assert_eq!(
            Stage::compressed("a1").feed(input).drain(),
            [output],
            "{input}"
        );
    }
}

/// DF-6, B18: of two deletions from the watch, the later one in the server's history counts for
/// both.
#[test]
fn df_6_a_repeated_deletion_does_not_take_the_place_of_a_later_one() {
    assert_eq!(Stage::compressed("a1").feed("-a5 -a2").drain(), ["-a5"]);
    let mut stage = Stage::compressed("a1");
    stage.feed("-a2");
    let later = ObjectEvent::deleted(undecodable("a3"));
    stage.writer.apply(later).unwrap();
    let popped = stage.pop();
    assert_eq!(
        shown(&popped),
        "?a2",
        "the last state that decodes, of a deletion that does not"
    );
    let Delta::Deleted(deletion) = popped.newest() else {
        panic!("{popped:?}")
    };
    let seen = deletion.seen.as_ref().unwrap();
    assert_eq!(seen.resource_version().as_str(), "3");
}

/// DF-9: each object that a list lacks is deleted once. The order is not promised; here waiting
/// entries keep their places.
#[test]
fn df_9_each_missing_object_is_deleted_once() {
    let mut stage = Stage::compressed("a1 b1 c1 d1 e1");
    stage.feed("~d2 +z1 ~b2 =c1");
    let mut popped = stage.drain();
    assert_eq!(popped[..3], ["~d2,?d2", "+z1,?z1", "~b2,?b2"]);
    popped[3..].sort();
    assert_eq!(popped[3..], ["=c1", "?a1", "?e1"]);
}

/// DF-8, `TestDeltaFIFO_ReplaceMakesDeletions`: deletions with the last state, from five starting
/// points.
#[test]
fn df_8_a_list_deletes_what_it_goes_without() {
    let table: [(&str, &[&str]); 4] = [
        ("-c10 =a5", &["-c10", "=a5", "?b6"]),
        ("+c10 =a5", &["+c10,?c10", "=a5", "?b6"]),
        ("-b6 +b100 =a5", &["-b6,+b100,?b100", "=a5", "?c7"]),
        ("=b100,a5 =a5", &["=b100,?b100", "=a5,=a5", "?c7"]),
    ];
    for (input, output) in table {
        assert_eq!(
            Stage::compressed("a5 b6 c7").feed(input).drain(),
            output,
            "{input}"
        );
    }
    assert_eq!(
        Stage::alone().feed("+c10 =a5").drain(),
        ["+c10,?c10", "=a5"],
        "no view"
    );
}

/// DF-8, `TestDeltaFIFO_ReplaceDeltaType`: a listed object is `Replaced`, known or not.
#[test]
fn df_8_a_listed_object_is_replaced() {
    for known in ["", "a1"] {
        assert_eq!(Stage::compressed(known).feed("=a1").drain(), ["=a1"]);
    }
}

/// DF-8, `TestDeltaFIFO_replaceWithDeleteDeltaIn`: an object that was deleted and is listed again
/// comes.
#[test]
fn df_8_a_list_brings_back_what_was_deleted() {
    assert_eq!(Stage::compressed("a1").feed("-a2 =a3").drain(), ["-a2,=a3"]);
}

/// DF-8, `TestDeltaFIFO_addReplace`: the newest state of a list stands last.
#[test]
fn df_8_the_newest_state_stands_last() {
    let mut stage = Stage::compressed("");
    stage.feed("+a10 =a15");
    let popped = stage.pop();
    assert_eq!(shown(&popped), "+a10,=a15");
    assert!(matches!(popped.iter().next(), Some(Delta::Added(_))));
    assert!(matches!(popped.newest(), Delta::Replaced(_)));
    assert_eq!(popped.iter().count(), 2);
}

/// DF-8: the object of a deletion is missing where the lookup fails.
#[test]
fn df_8_a_failed_lookup_leaves_the_last_state_out() {
    let mut stage = Stage::compressed("");
    stage.known.broken.lock().insert(key("a"));
    stage.feed("=");
    let popped = stage.pop();
    let Delta::Deleted(deleted) = popped.newest() else {
        panic!("{popped:?}")
    };
    assert_eq!(deleted.key, key("a"));
    assert!(deleted.last_known.is_none() && !deleted.final_state_known());
    assert!(deleted.unlisted);
}

/// DF-11, `TestDeltaFIFOW_ReplaceMakesDeletionsForObjectsOnlyInQueue`: lists over objects that only
/// the queue knows.
#[test]
fn df_11_lists_over_objects_that_only_wait() {
    let table = [
        ("+a1 =", "+a1,?a1"),
        ("+a1 -a1 =", "+a1,-a1"),
        ("+a1 =a1 =a1 =", "+a1,=a1,=a1,?a1"),
        ("+a1 = =", "+a1,?a1"),
        ("+a1 -a1 +a2 =", "+a1,-a1,+a2,?a2"),
    ];
    for (input, output) in table {
        assert_eq!(Stage::alone().feed(input).drain(), [output], "{input}");
    }
}

/// DF-10 is better here: a list is all or nothing.
#[test]
fn df_10_a_list_that_fails_changes_nothing() {
    let known = view("z1");
    let options = compressed_over(&known).transform(|object: Arc<StoredObject<ConfigMap>>| {
        if object.metadata.name.as_deref() == Some("b") {
            return Err(Error::new(ErrorKind::Config, "no"));
        }
        Ok(object)
    });
    let mut stage = Stage::new(options, known);
    let error = stage.write("=a1,b2,c3").unwrap_err();
    assert_eq!(error.to_string(), "transforming: no");
    assert!(stage.handle.is_empty() && !stage.handle.has_synced());
}

/// Of duplicate keys in one list the last wins, at the place of the first (ST-5). Items that were
/// removed again are not queued.
#[test]
fn st_5_each_key_of_a_list_is_queued_once() {
    for mut stage in [Stage::compressed(""), Stage::in_order("")] {
        let mut staging = stage.writer.begin();
        for word in ["a1", "b1", "a2", "c1", "d1"] {
            stage
                .writer
                .stage(&mut staging, ObjectEvent::added(stored(word)));
        }
        for word in ["c2", "d2", "nobody2"] {
            stage
                .writer
                .stage(&mut staging, ObjectEvent::deleted(stored(word)));
        }
        stage
            .writer
            .stage(&mut staging, ObjectEvent::added(stored("c2")));
        stage.writer.commit(staging, &at("9")).unwrap();
        assert_eq!(stage.drain(), ["=a2", "=b1", "=c2"]);
    }
}

/// A list that is dropped before it commits leaves no trace.
#[test]
fn a_list_that_is_dropped_changes_nothing() {
    for mut stage in [
        Stage::compressed("z1"),
        Stage::in_order("z1"),
        Stage::atomic(true),
    ] {
        let mut staging = stage.writer.begin();
        stage
            .writer
            .stage(&mut staging, ObjectEvent::added(stored("a1")));
        drop(staging);
        assert!(stage.handle.is_empty() && !stage.handle.has_synced());
    }
}

/// DF-16, `TestDeltaFIFO_Resync`, `...ResyncNonExisting`, `...UpdateResyncRace`: known objects with
/// nothing waiting.
#[test]
fn df_16_a_resync_brings_up_what_nothing_waits_for() {
    for (known, input, output) in RESYNCS {
        assert_eq!(
            Stage::compressed(known).feed(input).drain(),
            output,
            "{input}"
        );
    }
    assert!(
        Stage::alone().feed("!").drain().is_empty(),
        "without a view there is nothing to sync"
    );
}

/// DF-16: an object that cannot be looked up is left out of a resync.
#[test]
fn df_16_a_failed_lookup_is_skipped() {
    let mut stage = Stage::compressed("b1");
    stage.known.broken.lock().insert(key("a"));
    assert_eq!(stage.feed("!").drain(), ["!b1"]);
}

/// DF-7, `TestDeltaFIFO_transformer`: each object is transformed once, and a deletion by a list
/// carries the result.
#[test]
fn df_7_each_object_is_transformed_once() {
    let known = view("z1");
    let mut stage = Stage::new(marking(compressed_over(&known)), known);
    stage.feed("+a1 ~a2 -a3 +b1 =c1 !");
    let table = ["a1' a2' a3'", "b1' b1'", "c1'", "z1"];
    for expected in table {
        let popped = stage.pop();
        assert_eq!(marks(&popped), expected);
    }
    assert!(stage.handle.is_empty());
}

/// DF-7: a change that a transform refuses is not queued, but counts as populated. A transform that
/// renames is refused.
#[test]
fn df_7_a_transform_that_fails_queues_nothing() {
    let renames = Options::default().transform(|object| {
        Ok(StoredObject::edited(object, |object: &mut ConfigMap| {
            object.metadata.name = Some("other".to_owned());
        }))
    });
    let mut stage = Stage::new(renames, Arc::default());
    let error = stage.write("+a1").unwrap_err();
    assert_eq!(error.to_string(), "transforming: a became other");
    assert!(stage.handle.is_empty() && stage.handle.has_synced());
}

/// Appends a mark to the uid at each transform.
pub(super) fn marking(options: Options) -> Options {
    options.transform(|object| {
        Ok(StoredObject::edited(object, |object: &mut ConfigMap| {
            object.metadata.uid.as_mut().unwrap().push('\'');
        }))
    })
}

pub(super) fn marks(deltas: &Deltas<ConfigMap>) -> String {
    let objects = deltas.iter().filter_map(Delta::object);
    let marked = objects.map(|object| {
        let uid = object.metadata.uid.as_deref().unwrap();
        word(object) + uid.trim_start_matches(|c| c != '\'')
    });
    marked.collect::<Vec<_>>().join(" ")
}

/// DF-3, `TestDeltaFIFO_KeyOf`: the key of each kind of delta; `Deltas` without a delta cannot be
/// made (DF-19).
#[test]
fn df_3_deltas_and_tombstones_know_their_key() {
    let table = [
        (Stage::compressed("b1"), vec!["a", "c", "b"]),
        // `TestRealFIFO_KeyOf`.
        (Stage::in_order("b1"), vec!["a", "a", "b", "c"]),
    ];
    for (mut stage, keys) in table {
        stage.feed("+a1 =c1");
        for expected in keys {
            let popped = stage.pop();
            assert_eq!(popped.key(), Some(&key(expected)));
            let mut deltas = popped.iter();
            assert!(deltas.all(|delta| delta.key() == Some(key(expected))));
        }
        assert!(stage.handle.is_empty());
    }
    assert_eq!(Delta::<ConfigMap>::SyncAll.key(), None);
}

/// DF-2: `Debug` prints only an object's key and version.
#[test]
fn df_2_debug_prints_no_content() {
    let mut object = ConfigMap::default();
    object.metadata.name = Some("a".to_owned());
    object.data = Some([("k".to_owned(), "canary".to_owned())].into());
    let mut stage = Stage::compressed("b1");
    replace(&mut stage.writer, vec![Arc::new(StoredObject::new(object))]).unwrap();
    let popped = stage.pop();
    assert_eq!(format!("{popped:?}"), "[Replaced(Object(ConfigMap a @))]");
    drop(popped);
    let popped = stage.pop();
    let text = format!("{popped:?} {:?} {:?}", stage.writer, stage.handle);
    assert!(
        text.contains("Deletion { key: b, last_known: Some(ConfigMap b @1)"),
        "{text}"
    );
    assert!(!text.contains("canary"));
}
