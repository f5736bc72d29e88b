//! The only guard around code of the program: it turns a panic into an error of that call.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, ErrorKind};
use crate::sync;
use crate::worker::{panic_literal, panic_text};

#[cfg(feature = "testing")]
use std::cell::RefCell;

/// The payload of a panic that a simulated program makes on purpose.
#[cfg(feature = "testing")]
pub(crate) struct PlannedPanic;

#[cfg(feature = "testing")]
thread_local! {
    static CAUGHT: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// The first panic, except those that were [planned](PlannedPanic), that a guard on this thread
/// has caught since the last call.
#[cfg(feature = "testing")]
pub(crate) fn take_caught() -> Option<Error> {
    CAUGHT.take()
}

/// Calls code of the program, which `port` names in the error, such as `the getter of secret
/// "shop"/"db"`.
///
/// No lock may be held: the code may use the crate, wait, or never return.
///
/// The error repeats the panic's text only if that is a literal: formatted text may contain parts
/// of an object.
///
/// # Errors
///
/// `Panicked`, naming the port.
///
/// # Panics
///
/// In debug builds: if the thread holds a lock of the crate.
pub(crate) fn guard<T>(port: impl Display, call: impl FnOnce() -> T) -> Result<T, Error> {
    guard_with_words(port, call).map_err(|(error, _)| error)
}

/// As [`guard`], but also returns the panic's own words, even formatted ones: for callers that ask
/// for them, never for logs.
///
/// # Errors
///
/// `Panicked`, naming the port, and the words.
pub(crate) fn guard_with_words<T>(
    port: impl Display,
    call: impl FnOnce() -> T,
) -> Result<T, (Error, String)> {
    if cfg!(debug_assertions) && !std::thread::panicking() {
        let held: Vec<_> = sync::held().collect();
        assert!(
            held.is_empty(),
            "{port} is called under the lock of {held:?}"
        );
    }
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let said = panic_literal(payload.as_ref());
        let words = panic_text(payload.as_ref());
        let error = Error::new(ErrorKind::Panicked, format!("{port} panicked{said}"));
        #[cfg(feature = "testing")]
        if !payload.is::<PlannedPanic>() {
            CAUGHT.with_borrow_mut(|caught| caught.get_or_insert_with(|| error.clone()).kind());
        }
        // The payload belongs to the program, too: its drop may panic again.
        drop(catch_unwind(AssertUnwindSafe(|| drop(payload))));
        (error, words)
    })
}

/// Calls code of the program amid other code of it. The caller lets a panic go on later.
///
/// # Errors
///
/// The panic's payload.
pub(crate) fn held_back<T>(call: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(call))
}

/// Returns the call's result, or the default after a panic, which it only logs.
pub(crate) fn guard_logged<T: Default>(port: impl Display, call: impl FnOnce() -> T) -> T {
    guard(port, call).unwrap_or_else(|error| {
        log::error!("{error}; nothing else ends by that");
        T::default()
    })
}

/// As [`guard`], for code with its own errors.
///
/// # Errors
///
/// The code's own error, or `Panicked`.
pub(crate) fn guard_call<T>(
    port: impl Display,
    call: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    guard(port, call)?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics again when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }

    #[test]
    fn a_panic_is_an_error_that_names_the_port_and_repeats_literals_only() {
        let error = guard("the filter", || panic!("out of order")).map(|(): ()| ());
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert_eq!(error.to_string(), "the filter panicked: out of order");

        let secret = "hunter2";
        let error = guard_call("the transform", || -> Result<(), Error> {
            panic!("at {secret}")
        });
        assert_eq!(error.unwrap_err().to_string(), "the transform panicked");
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_stays_inside() {
        let error = guard("the handler", || std::panic::panic_any(Bomb)).map(|(): ()| ());
        assert_eq!(error.unwrap_err().to_string(), "the handler panicked");
    }

    #[test]
    #[cfg(all(debug_assertions, not(shuttle)))]
    #[should_panic(expected = "the filter is called under the lock of [\"the pod-status cache\"]")]
    fn no_code_of_a_program_is_called_under_a_lock() {
        let lock = sync::Mutex::ranked(sync::Rank::POD_STATUS, ());
        let _held = lock.lock();
        drop(guard("the filter", || ()));
    }

    #[test]
    fn what_does_not_panic_passes_through() {
        assert_eq!(guard("the filter", || 7).unwrap(), 7);
        let refused = || Err::<(), _>(Error::new(ErrorKind::Config, "no"));
        assert_eq!(
            guard_call("the filter", refused).unwrap_err().kind(),
            ErrorKind::Config
        );
    }
}
