//! What comes of a list says which list it was, also where the watch said the same before (B18).

use super::*;

/// What comes of a list says which list it was, so that who holds the final content can judge by it (B18).
#[test]
fn b18_what_comes_of_a_list_says_which() {
    for mut rig in [Rig::compressed("b1"), Rig::in_order("b1")] {
        let mut staging = rig.writer.begin();
        let items = [
            Listed::Object(held("a1")),
            Listed::Undecodable(undecodable("c1")),
        ];
        for item in items {
            rig.writer.stage(&mut staging, ObjectEvent::added(item));
        }
        let list = Replacement {
            consistent: true,
            history_expired: true,
            ..at("7")
        };
        rig.writer.commit(staging, &list).unwrap();
        for _ in 0..3 {
            let popped = rig.queue.pop(Deadline::NEVER).unwrap();
            let of = match popped.newest() {
                Delta::Replaced { of, .. } => Some(of),
                Delta::Undecodable { of, .. } => of.as_ref(),
                Delta::Deleted(deletion) => deletion.of.as_ref(),
                Delta::Added(_)
                | Delta::Updated(_)
                | Delta::Sync(_)
                | Delta::ReplacedAll(_)
                | Delta::SyncAll
                | Delta::Bookmark(_) => None,
            };
            assert_eq!(**of.unwrap(), list, "{popped:?}");
        }
        rig.feed("~a2 -a3");
        let mut told = Vec::new();
        while !rig.handle.is_empty() {
            let popped = rig.queue.pop(Deadline::NEVER).unwrap();
            if let Delta::Deleted(deletion) = popped.newest() {
                told.push((deletion.of.is_none(), deletion.final_state_known));
            }
        }
        assert_eq!(told, [(true, true)], "the watch told of it, no list");
    }
}

/// A list at a version; one that is not certain may be refused as old news.
fn list(version: &str, certain: bool) -> Replacement {
    Replacement {
        consistent: certain,
        ..at(version)
    }
}

/// The one deletion that waits, after these lists without its object.
fn after(mut rig: Rig, before: &str, lists: &[Replacement], after: &str) -> String {
    rig.feed(before);
    for of in lists {
        let staging = rig.writer.begin();
        rig.writer.commit(staging, of).unwrap();
    }
    rig.feed(after);
    let popped = rig.queue.pop(Deadline::NEVER).unwrap();
    assert!(rig.handle.is_empty());
    let of = popped.newest().list();
    let of = of.map_or("-", |of| of.resource_version.as_str());
    format!("{} of {of}", shown(&popped))
}

/// RQ-3, DF-6: a list lends its `of` to a final deletion that waits, so that its word counts should the store refuse what
/// the watch told.
#[test]
fn b18_rq_3_df_6_a_list_lends_itself_to_a_final_deletion_that_waits() {
    for rig in [Rig::compressed, Rig::in_order] {
        let lists = [at("7")];
        assert_eq!(after(rig("a5"), "-a2", &[], ""), "Da2 of -");
        assert_eq!(after(rig("a5"), "-a2", &lists, ""), "Da2 of 7");
    }
    let lists = [at("7")];
    assert_eq!(
        after(Rig::compressed("a5"), "", &lists, "-a6"),
        "Da6 of 7",
        "also to one that comes later"
    );
}

/// The word of a list that may be refused does not take the place of one that counts.
#[test]
fn b18_rq_3_df_6_of_two_lists_the_one_that_counts_more_is_lent() {
    let (early, late) = (("7", "9"), ("9", "7"));
    let table = [
        (early, (false, false), "9"),
        (late, (false, false), "9"),
        (early, (true, false), "7"),
        (late, (false, true), "7"),
        (late, (true, true), "7"),
        (("odd", "9"), (false, false), "9"),
    ];
    for (versions, certain, expected) in table {
        let lists = [list(versions.0, certain.0), list(versions.1, certain.1)];
        for rig in [Rig::compressed, Rig::in_order] {
            let expected = format!("of {expected}");
            let told = after(rig("a5"), "-a2", &lists, "");
            assert_eq!(told, format!("Da2 {expected}"), "{lists:?}");
            let told = after(rig("a5"), "", &lists, "");
            assert_eq!(told, format!("Ta5 {expected}"), "{lists:?}");
        }
    }
}

/// B12: a deletion that does not decode keeps what the watch said of it, and gets the list's word, too.
#[test]
fn b18_b12_a_list_lends_itself_to_a_deletion_that_does_not_decode() {
    for mut rig in [Rig::compressed("a1"), Rig::in_order("a1")] {
        let event = ObjectEvent::deleted(undecodable("a3"));
        rig.writer.apply(event).unwrap();
        rig.feed("=");
        let popped = rig.queue.pop(Deadline::NEVER).unwrap();
        assert_eq!(shown(&popped), "Ta1");
        let Delta::Deleted(deletion) = popped.newest() else {
            panic!("{popped:?}")
        };
        assert!(deletion.undecodable.is_some() && deletion.of.is_some());
        drop(popped);
        assert!(rig.handle.is_empty());
    }
}
