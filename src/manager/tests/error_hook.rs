//! The error hook of a manager: which failures it is told of, and that its panic costs nobody an
//! answer.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;

use super::fake::secret;
use crate::clock::{Deadline, FakeClock};
use crate::error::{Error, ErrorKind};
use crate::manager::{ChangeDetection, ManagerOptions, Owner, SecretManager};
use crate::object::{ObjectKey, Status};
use crate::sync::{Arc, Mutex};
use crate::testing::{FakeSource, RequestKind};

/// What a hook was told of: what was asked for, the kind of failure, the attempts.
type Told = Arc<Mutex<Vec<(String, ErrorKind, u32)>>>;

/// A manager of a Secret `s` that is not on the server, whose failures are noted.
fn manager(mode: ChangeDetection) -> (FakeSource<Secret>, FakeClock, SecretManager, Told) {
    let clock = FakeClock::new();
    let server = FakeSource::with_clock(clock.clone().into());
    let told = Told::default();
    let note = Arc::clone(&told);
    let options = ManagerOptions::default().change_detection(mode);
    let options = options.clock(clock.clone().into()).on_error(move |failed| {
        let what = failed.what.clone();
        note.lock()
            .push((what, failed.error.kind(), failed.attempts));
        assert!(failed.attempts < 3, "a bad hook");
    });
    let manager = SecretManager::new(server.clone(), options).unwrap();
    let owner = Owner::new("Route", ObjectKey::new("ns", "r"));
    manager.add_reference(&owner, &ObjectKey::new("ns", "s"));
    (server, clock, manager, told)
}

fn failure() -> Error {
    Error::from_status(Status::new(503, "away"))
}

#[test]
fn the_hook_is_told_of_each_failed_get_and_its_panic_costs_no_answer() {
    let (server, clock, manager, told) = manager(ChangeDetection::Cache);
    let get = || manager.get_by("ns", "s", Deadline::NEVER);
    server.fail_all(RequestKind::Get, failure());
    for attempts in 1..=4 {
        let failed = get().unwrap_err();
        assert!(failed.to_string().contains("away"), "{failed}");
        let error = (String::from("secret ns/s"), failed.kind(), attempts);
        assert_eq!(told.lock().last(), Some(&error));
        // While it backs off nothing is asked (B17), so nothing fails.
        get().unwrap_err();
        assert_eq!(told.lock().len(), usize::try_from(attempts).unwrap());
        clock.advance(Duration::from_mins(1));
    }
    server.heal();
    assert!(get().unwrap_err().is_not_found(), "an answer");
    server.set(secret("s", ""));
    get().unwrap();
    assert_eq!(told.lock().len(), 4);
}

/// With `Get` each reader has its own error.
#[test]
fn the_hook_is_not_told_what_each_reader_is() {
    let (server, _clock, manager, told) = manager(ChangeDetection::Get);
    server.fail_all(RequestKind::Get, failure());
    manager.get_by("ns", "s", Deadline::NEVER).unwrap_err();
    assert_eq!(*told.lock(), []);
}
