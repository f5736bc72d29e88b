//! The error hook of a manager: which failures it learns of, and that its panic costs no reader an
//! answer.

use k8s_openapi::api::core::v1::Secret;

use super::stage::Stage;
use crate::error::{Error, ErrorKind};
use crate::manager::{ChangeDetection, ManagerOptions, Owner, SecretManager};
use crate::object::ObjectKey;
use crate::sync::{Arc, Mutex};
use crate::testing::{FakeSource, SourceFault, objects};
use crate::tests::until::until;

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

/// Seen: the housekeeper waited for the end of that thread, and joined no other any more. Each
/// watch that ended kept its room, until none had any.
#[test]
fn a_hook_that_hangs_costs_the_other_objects_nothing() {
    let (entered, is_in) = crossbeam_channel::bounded(1);
    let (go, gate) = crossbeam_channel::bounded::<()>(0);
    let source = FakeSource::<Secret>::new();
    source.plan(|request| {
        let is_its = request.scope.object_name() == Some("hangs");
        is_its.then(|| SourceFault::Fail(Error::new(ErrorKind::Unreachable, "no route")))
    });
    let options = ManagerOptions::default()
        .change_detection(ChangeDetection::Watch)
        .watches_max(2)
        .on_error(move |_failed| {
            let _seen = entered.send(());
            let _gone = gate.recv();
        });
    let manager = SecretManager::new(source.clone(), options).unwrap();
    let owner = Owner::new("Test", ObjectKey::new("", "owner"));
    let hangs = ObjectKey::new("shop", "hangs");
    manager.add_reference(&owner, &hangs);
    is_in.recv().unwrap();
    manager.remove_reference(&owner, &hangs);
    for nth in 0..4 {
        let name = format!("next-{nth}");
        source.set(objects::secret("shop", &name, "", &[]));
        let key = ObjectKey::new("shop", name.as_str());
        manager.add_reference(&owner, &key);
        // Until the watch before has ended, this one has no room.
        until(|| match manager.get("shop", &name) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TooManyReflectors, "{error}");
                false
            }
        });
        manager.remove_reference(&owner, &key);
    }
    drop(go);
    drop(manager);
}
