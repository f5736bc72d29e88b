//! A list counts, whatever the watch reported before about an object's end (B18).

use super::*;
use crate::object::Object as _;

/// The deltas that wait for `a`, after a list without it.
fn unlisted(mut stage: Stage, words: &str) -> String {
    stage.feed(words);
    let mut told = Vec::new();
    while !stage.handle.is_empty() {
        let popped = stage.pop();
        for delta in popped.iter() {
            let Delta::Deleted(deletion) = delta else {
                continue;
            };
            let last = deletion.last_known.as_ref();
            let last = last.map_or_else(|| "?".to_owned(), |last| word(last));
            let by = if deletion.unlisted {
                "unlisted"
            } else {
                "seen"
            };
            told.push(format!("{last} {by}"));
        }
    }
    told.join(", ")
}

/// B18, RQ-3, DF-6: the watch's deletion may be old news, which the consumer refuses. The list
/// marks it, so that it counts.
#[test]
fn b18_rq_3_df_6_a_list_marks_the_deletion_that_waits() {
    for stage in [Stage::compressed, Stage::in_order] {
        let table = [
            ("-a2", "a2 seen"),
            ("-a2 =", "a2 unlisted"),
            ("-a2 = =", "a2 unlisted"),
            ("-a2 =a5", "a2 seen"),
            ("=", "a5 unlisted"),
            ("~a6 =", "a6 unlisted"),
        ];
        for (words, expected) in table {
            assert_eq!(unlisted(stage("a5"), words), expected, "{words}");
        }
    }
    let told = unlisted(Stage::compressed("a5"), "= -a6");
    assert_eq!(told, "a6 unlisted", "the mark outlasts what it stood on");
    let told = unlisted(Stage::in_order("a5"), "= -a6");
    assert_eq!(told, "a5 unlisted, a6 seen");
}

/// B18, RQ-3: the deletion that was processed before the list came is not marked any more. The
/// consumer refused it, so its view still shows the object, and the list ends that.
#[test]
fn b18_rq_3_a_list_ends_what_a_refused_deletion_left() {
    for mut stage in [Stage::compressed("a5"), Stage::in_order("a5")] {
        stage.feed("-a2");
        assert_eq!(shown(&stage.pop()), "-a2");
        assert_eq!(stage.feed("=").drain(), ["?a5"]);
    }
}

/// B4, B18: a list that is older than an earlier write would end newer objects: the queue refuses
/// it, so that the reflector asks for the most recent, which counts whatever its version.
#[test]
fn b4_b18_a_list_that_is_too_old_is_refused() {
    for mut stage in [
        Stage::compressed(""),
        Stage::in_order(""),
        Stage::atomic(false),
    ] {
        stage.feed("+a5");
        let stale = stage.writer.begin();
        let error = stage.writer.commit(stale, &at("3")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale);
        let text = "the list at version 3 is older than version 5";
        assert_eq!(error.to_string(), text);
        assert_eq!(stage.handle.len(), 1);
        let consistent = Replacement {
            consistent: true,
            ..at("3")
        };
        for of in [consistent, at("3"), at("4")] {
            let staging = stage.writer.begin();
            stage.writer.commit(staging, &of).unwrap();
        }
    }
}

/// B12: a deletion that does not decode keeps the watch's report, and gets the list's mark, too.
#[test]
fn b18_b12_a_list_marks_a_deletion_that_does_not_decode() {
    for mut stage in [Stage::compressed("a1"), Stage::in_order("a1")] {
        let event = ObjectEvent::deleted(undecodable("a3"));
        stage.writer.apply(event).unwrap();
        stage.feed("=");
        let popped = stage.pop();
        assert_eq!(shown(&popped), "?a1");
        let Delta::Deleted(deletion) = popped.newest() else {
            panic!("{popped:?}")
        };
        assert!(deletion.seen.is_some() && deletion.unlisted);
        assert!(stage.handle.is_empty());
    }
}

/// B12: the state before the end, wherever the end stands among the changes that waited together.
#[test]
fn b12_each_deletion_that_does_not_decode_gets_the_state_before_it() {
    let mut stage = Stage::compressed("a1");
    let ends = ["a2", "a4"].map(|word| ObjectEvent::deleted(undecodable(word)));
    let [first, second] = ends;
    stage.writer.apply(first).unwrap();
    stage.feed("+a3");
    stage.writer.apply(second).unwrap();
    assert_eq!(stage.drain(), ["?a1,+a3,?a3"]);
}

/// An unchanged object of a list keeps its allocation if the view knows it.
#[test]
fn rq_10_unchanged_objects_of_a_list_keep_their_allocation() {
    let known = view("a1 b1");
    let modes = [
        compressed_over(&known),
        in_order_over(&known),
        compressed_over(&known).atomic_lists(),
    ];
    for options in modes {
        let mut stage = Stage::new(options, Arc::clone(&known));
        stage.feed("=a1,b2,c1");
        let mut shared = Vec::new();
        while !stage.handle.is_empty() {
            let mut listed = Vec::new();
            for delta in stage.pop() {
                if let Delta::ReplacedAll(all) = delta {
                    listed.extend(all.items);
                } else if let Delta::Replaced(item) = delta {
                    listed.push(item);
                }
            }
            let objects = known.objects.lock();
            for object in listed.iter().filter_map(Listed::decoded) {
                let known = objects.get(&object.key());
                shared.push(known.is_some_and(|known| Arc::ptr_eq(known, object)));
            }
        }
        assert_eq!(shared, [true, false, false]);
    }
}

/// Another uid, or no version, is another state.
#[test]
fn what_may_have_changed_is_taken_from_the_list() {
    let mut stage = Stage::compressed("a1 b");
    let mut again = ConfigMap::clone(&stored("a1"));
    again.metadata.uid = Some("another".to_owned());
    let listed = [Arc::new(StoredObject::new(again)), stored("b")];
    replace(&mut stage.writer, listed.to_vec()).unwrap();
    for object in listed {
        let popped = stage.pop();
        assert!(Arc::ptr_eq(popped.newest().object().unwrap(), &object));
    }
}

/// RQ-16: the queue holds no taken entry.
#[test]
fn rq_16_what_was_taken_is_not_held() {
    for mut stage in [Stage::compressed(""), Stage::in_order("")] {
        let object = stored("a1");
        stage
            .writer
            .apply(ObjectEvent::added(Arc::clone(&object)))
            .unwrap();
        drop(stage.pop());
        assert_eq!(Arc::strong_count(&object), 1);
    }
}

/// If the view panics, the list fails and leaves the queue as it was; the next list passes.
#[test]
fn a_view_that_panics_fails_the_list_alone() {
    struct Bad(Arc<View>, Mutex<bool>);
    impl KnownObjects<ConfigMap> for Bad {
        fn keys(&self) -> Vec<ObjectKey> {
            assert!(!*self.1.lock(), "made up");
            self.0.keys()
        }

        fn get(&self, key: &ObjectKey) -> Result<Option<Arc<StoredObject<ConfigMap>>>, Error> {
            assert!(!*self.1.lock(), "made up");
            self.0.get(key)
        }
    }
    let known = view("a1");
    let bad = Arc::new(Bad(Arc::clone(&known), Mutex::new(true)));
    let options = Options::default().known(Arc::<Bad>::clone(&bad));
    let mut stage = Stage::new(options, known);
    let text = "the known objects of a ConfigMap queue panicked: made up";
    for word in ["=b1", "!"] {
        let error = stage.write(word).unwrap_err();
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (ErrorKind::Panicked, text)
        );
    }
    assert!(stage.handle.is_empty() && !stage.handle.has_synced());
    assert_eq!(stage.feed("-c2").drain(), ["-c2"], "it may be known (DF-5)");
    *bad.1.lock() = false;
    assert_eq!(stage.feed("=b1").drain(), ["=b1", "?a1"]);
}
