//! The error hook of a manager: which failures it learns of, and that its panic costs no reader an
//! answer.

use super::stage::Stage;
use crate::error::ErrorKind;
use crate::manager::ChangeDetection;
use crate::sync::{Arc, Mutex};

/// The calls of a hook: the request, the kind of failure, the attempts.
type Told = Arc<Mutex<Vec<(String, ErrorKind, u32)>>>;

/// A manager of a Secret `s` that is not on the server, whose failures are noted.
fn stage(mode: ChangeDetection) -> (Stage, Told) {
    let told = Told::default();
    let note = Arc::clone(&told);
    let stage = Stage::of(mode)
        .options(|options| {
            options.on_error(move |failed| {
                let what = failed.what.clone();
                note.lock()
                    .push((what, failed.error.kind(), failed.attempts));
                assert!(failed.attempts < 3, "a bad hook");
            })
        })
        .start();
    stage.add("s", "r");
    (stage, told)
}

#[test]
fn the_hook_is_told_of_each_failed_get_and_its_panic_costs_no_answer() {
    let (stage, told) = stage(ChangeDetection::Cache);
    stage.fail_all();
    for attempts in 1..=4 {
        let failed = stage.get("s").unwrap_err();
        assert!(failed.to_string().contains("unable"), "{failed}");
        let error = (String::from("secret ns/s"), failed.kind(), attempts);
        assert_eq!(told.lock().last(), Some(&error));
        // While it backs off nothing is asked (B17), so nothing fails.
        stage.get("s").unwrap_err();
        assert_eq!(told.lock().len(), usize::try_from(attempts).unwrap());
        stage.expire();
    }
    stage.source.heal();
    assert!(stage.get("s").unwrap_err().is_not_found(), "an answer");
    stage.set("s");
    stage.get("s").unwrap();
    assert_eq!(told.lock().len(), 4);
}

/// With `Get` each reader has its own error.
#[test]
fn the_hook_is_not_told_what_each_reader_is() {
    let (stage, told) = stage(ChangeDetection::Get);
    stage.fail_next(super::stage::refused());
    stage.get("s").unwrap_err();
    assert_eq!(*told.lock(), []);
}
