//! The mode in order in which a list is one delta: RQ-10, RQ-11.

use super::compressed::marking;
use super::*;
use crate::object::Object as _;

/// RQ-10, `TestRealFIFO_ReplaceAtomic`, `TestRealFIFO_ReplaceAtomicPop`: a list is one delta, and
/// ignores waiting entries.
#[test]
fn rq_10_a_list_is_one_delta() {
    let table: [(&str, &[&str]); 4] = [
        ("=", &["[]@100"]),
        ("=a1,b2", &["[a1+b2]@100"]),
        ("+a1 =b2", &["+a1", "[b2]@100"]),
        ("-a1 =a1 ~a2 =", &["-a1", "[a1]@100", "~a2", "[]@100"]),
    ];
    for (input, output) in table {
        assert_eq!(Stage::atomic(false).feed(input).drain(), output, "{input}");
    }
}

/// RQ-10: the one delta is the whole of the first list.
#[test]
fn rq_10_the_first_list_is_synced_once_it_is_processed() {
    let mut stage = Stage::atomic(false);
    stage.feed("= +a1");
    let handle = stage.handle.clone();
    let popped = stage.queue.pop(at_once(), |deltas, is_initial| {
        assert!(deltas.key().is_none() && is_initial);
        assert!(!handle.has_synced());
    });
    popped.unwrap();
    assert!(handle.has_synced());
    assert!(!stage.take().1);
}

/// RQ-10, `TestRealFIFO_ResyncAtomic`: a resync is one delta, and says nothing about the first
/// list.
#[test]
fn rq_10_a_resync_is_one_delta() {
    let mut stage = Stage::atomic(true);
    assert_eq!(stage.feed("! !").drain(), ["!", "!"]);
    assert!(!stage.handle.has_synced());
}

/// RQ-10, `TestRealFIFO_ReplaceAtomicPop`, `TestRealFIFO_ResyncAtomic`: lists, resyncs and
/// bookmarks keep their order among the changes, each is a pop, and none is merged.
#[test]
fn rq_10_lists_resyncs_and_bookmarks_keep_their_order() {
    let mut stage = Stage::atomic(true);
    stage.feed("=a1 ~a2 !");
    for version in ["7", "8"] {
        stage.writer.bookmark(&ResourceVersion::from(version));
    }
    stage.feed("~a9 =a9,b9 !");
    let expected = [
        "[a1]@100",
        "~a2",
        "!",
        "@7",
        "@8",
        "~a9",
        "[a9+b9]@100",
        "!",
    ];
    assert_eq!(stage.drain(), expected);
    assert!(stage.handle.has_synced());
}

/// RQ-10: bookmarks come if the options ask for them, and say nothing about the first list.
#[test]
fn rq_10_bookmarks_come_where_asked_for() {
    let table = [
        (Stage::atomic(true), vec!["@7"]),
        (Stage::atomic(false), vec![]),
        (Stage::in_order(""), vec![]),
        (Stage::compressed(""), vec![]),
        (bookmarked(false), vec!["@7"]),
        (bookmarked(true), vec!["@7"]),
    ];
    for (mut stage, expected) in table {
        stage.writer.bookmark(&ResourceVersion::from("7"));
        assert_eq!(stage.drain(), expected);
        assert!(!stage.handle.has_synced());
    }
}

/// A queue in which a list is not one delta, with bookmarks.
fn bookmarked(compressed: bool) -> Stage {
    let known = Arc::default();
    let options = if compressed {
        compressed_over(&known)
    } else {
        in_order_over(&known)
    };
    Stage::new(options.bookmarks(), known)
}

/// Better than RQ-10: a bookmark comes after everything that was queued before it in the other
/// modes too, and alone.
#[test]
fn rq_10_a_bookmark_overtakes_nothing() {
    let table = [
        (false, vec!["=a1", "=b1", "@7", "@8", "~a9", "@9"]),
        (true, vec!["=a1,~a9", "=b1", "@8", "@9"]),
    ];
    for (compressed, expected) in table {
        for batches in [false, true] {
            let mut stage = bookmarked(compressed);
            stage.feed("=a1,b1");
            for version in ["7", "8"] {
                stage.writer.bookmark(&ResourceVersion::from(version));
            }
            stage.feed("~a9");
            if compressed {
                stage.feed("~c9");
            }
            stage.writer.bookmark(&ResourceVersion::from("9"));
            if !batches {
                let popped = stage.drain();
                let popped = popped.into_iter().filter(|word| word != "~c9");
                assert_eq!(popped.collect::<Vec<_>>(), expected);
                assert!(stage.handle.has_synced());
                continue;
            }
            while !stage.handle.is_empty() {
                let all = std::num::NonZeroUsize::MAX;
                let popped = stage
                    .queue
                    .pop_batch(all, at_once(), |batch, _| batch)
                    .unwrap();
                let bookmarks = popped.iter().filter(|deltas| deltas.key().is_none());
                assert!(bookmarks.count() == 0 || popped.len() == 1, "{popped:?}");
            }
        }
    }
}

/// RQ-10: a list is transformed first; an error changes nothing.
#[test]
fn rq_10_a_list_is_transformed_first() {
    let options = marking(Options::default().atomic_lists());
    let mut stage = Stage::new(options, Arc::default());
    stage.feed("=a1");
    let popped = stage.pop();
    let Delta::ReplacedAll(all) = popped.newest() else {
        panic!("{popped:?}")
    };
    assert!(matches!(&all.items[0], Listed::Object(object) if object.uid() == "uid-a'"));
    drop(popped);

    let fails = Options::default()
        .atomic_lists()
        .transform(|_: Arc<StoredObject<ConfigMap>>| Err(Error::new(ErrorKind::Config, "no")));
    let mut stage = Stage::new(fails, Arc::default());
    assert_eq!(
        stage.write("=a1").unwrap_err().to_string(),
        "transforming: no"
    );
    assert!(stage.handle.is_empty() && !stage.handle.has_synced());
}
