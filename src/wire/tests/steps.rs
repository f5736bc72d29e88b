//! Counts the work of decoders, so that tests can tell how it grows with the input.

use std::cell::Cell;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Counts bytes or nodes that the calling thread looked at.
pub(crate) fn count(steps: usize) {
    COUNT.set(COUNT.get().saturating_add(steps));
}

/// The steps that `run` takes on the calling thread.
fn during(run: impl FnOnce()) -> usize {
    COUNT.set(0);
    run();
    COUNT.get()
}

/// Checks that twice the size takes at most about twice the steps. `run` decodes a text in which
/// one part has the given number of bytes.
#[expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]
pub(crate) fn grow_with_the_size(part: &str, mut run: impl FnMut(usize)) {
    // More than a decoder takes at once, so that it works alike on both sizes.
    const BYTES: usize = 20 * 1024;
    let [small, large] = [BYTES, BYTES * 2].map(|bytes| during(|| run(bytes)));
    assert!(
        small > BYTES / 2,
        "{part}: the work is not counted: {small}"
    );
    // Allows for steps that do not grow.
    let most = small * 2 + small / 10 + 100;
    assert!(large <= most, "{part}: {small} steps become {large}");
}
