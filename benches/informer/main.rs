//! The shared informer: events per second against the decoder alone, a slow index function, and
//! reads by index.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a program for people, which fails by panicking"
)]

#[path = "../bodies/mod.rs"]
mod bodies;
mod canned;
mod events;
mod history;
mod index;
mod served;
mod slow;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench");
    let part = arguments.next();
    let repeats = arguments.next().map(|number| number.parse().unwrap());
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    let mut fine = true;
    if wanted("events") {
        fine &= events::run(repeats);
    }
    if wanted("served") {
        events::run_served(repeats);
    }
    if wanted("slow") {
        slow::run();
    }
    if wanted("index") {
        fine &= index::run();
    }
    std::process::exit(i32::from(!fine));
}

/// How a figure stands to its budget.
pub(crate) fn verdict(fine: bool) -> &'static str {
    if fine { "PASS" } else { "OVER BUDGET" }
}
