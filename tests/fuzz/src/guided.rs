//! Throws inputs at one decoder, which libFuzzer chooses by the code that they reach.
//!
//! ```sh
//! cargo install cargo-fuzz
//! mkdir -p target/guided/list
//! KUBECACHE_FUZZ_TARGET=list cargo fuzz run --fuzz-dir tests/fuzz --target-dir target/guided \
//!     --sanitizer none --features guided guided target/guided/list fixtures/corpus/fuzz/list \
//!     -- -max_total_time=60
//! ```
//!
//! It needs a compiler for C++, and no nightly. The folder named first keeps each input that
//! reached new code. Half of the changes to an input are libFuzzer's, half are of the grammar.

#![no_main]

#[expect(dead_code, reason = "no round is told that could be played again")]
mod dice;
mod grammar;

use std::sync::LazyLock;

use kubecache::testing::{FUZZ_TARGETS, FuzzTarget};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

use dice::Dice;
use grammar::Grammar;

static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("KUBECACHE_FUZZ_TARGET").unwrap_or_default();
    let target = FUZZ_TARGETS.iter().find(|target| target.name == name);
    target.unwrap_or_else(|| panic!("KUBECACHE_FUZZ_TARGET names no target: {name:?}"))
});

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(Grammar::new);

fuzz_target!(|input: &[u8]| {
    if let Err(why) = (TARGET.run)(input) {
        panic!("{why}");
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut dice = Dice::seeded(u64::from(seed));
    if dice.below(2) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let grown = GRAMMAR.grow(TARGET.name, &mut dice);
    let mut input = if dice.below(8) == 0 {
        grown.clone()
    } else {
        data[..size].to_vec()
    };
    grammar::mutate(&mut input, &grown, &mut dice);
    input.truncate(max_size);
    data[..input.len()].copy_from_slice(&input);
    input.len()
});
