//! The decoders over a corpus of odd bodies: each comes to exactly what stands beside it, however
//! it is cut.
//!
//! `fixtures/corpus/list` and `…/watch` hold bodies; `NAME.outcome` says what `NAME` comes to, read
//! as Secrets. `…/fuzz/TARGET` holds inputs on which a decoder once differed from another
//! reader, or nearly did.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use kubecache::Error;
use kubecache::http::DecodeOptions;
use kubecache::list_watch::{Listed, ObjectEvent, WatchEvent};
use kubecache::testing::{EventDecoder, FUZZ_TARGETS, ListDecoder};

/// How the bytes of a body are handed in.
const CHUNKS: [usize; 4] = [usize::MAX, 1, 2, 13];

/// The fewest bodies each half of the corpus is known to have: a test over an empty folder would
/// say nothing.
const BODIES_MIN: usize = 20;

#[test]
fn lists_come_to_their_outcomes() {
    check("list", &|body, size| {
        let mut outcome = String::new();
        let end = list(body, size, &mut |item| {
            match item {
                Listed::Object(object) => writeln!(outcome, "{object:?}"),
                Listed::Undecodable(aside) => {
                    writeln!(
                        outcome,
                        "aside {:?}: {:?}",
                        aside.key.to_string(),
                        aside.error
                    )
                }
            }
            .unwrap();
        });
        match end {
            Ok(version) => writeln!(outcome, "end @{version}").unwrap(),
            Err(error) => writeln!(outcome, "{error:?}").unwrap(),
        }
        outcome
    });
}

#[test]
fn watches_come_to_their_outcomes() {
    check("watch", &|body, size| {
        let mut decoder = EventDecoder::<Secret>::new(&DecodeOptions::default());
        let mut outcome = String::new();
        for mut chunk in body.chunks(size) {
            while !chunk.is_empty() {
                let count = put(decoder.space(), chunk);
                chunk = &chunk[count..];
                decoder.filled(count);
                while let Some(event) = decoder.next().unwrap() {
                    match event {
                        WatchEvent::Object(ObjectEvent {
                            object: Listed::Undecodable(aside),
                            ..
                        }) => {
                            writeln!(
                                outcome,
                                "aside {:?}: {:?}",
                                aside.key.to_string(),
                                aside.error
                            )
                        }
                        event @ (WatchEvent::Object(_)
                        | WatchEvent::Bookmark { .. }
                        | WatchEvent::Unselected { .. }
                        | WatchEvent::Error(_)
                        | WatchEvent::Skipped { .. }
                        | _) => writeln!(outcome, "{event:?}"),
                    }
                    .unwrap();
                }
            }
        }
        if let Some(error) = decoder.finish() {
            writeln!(outcome, "{error:?}").unwrap();
        }
        outcome
    });
}

/// The fuzzer begins with these inputs, too.
#[test]
fn inputs_that_once_mattered_keep_the_promises_of_their_targets() {
    for target in FUZZ_TARGETS {
        let found = bodies(&format!("fuzz/{}", target.name));
        assert!(!found.is_empty(), "{} has no inputs", target.name);
        let more = match target.name {
            "list" | "watch" => bodies(target.name),
            _ => Vec::new(),
        };
        for path in found.into_iter().chain(more) {
            let input = fs::read(&path).unwrap();
            let kept = (target.run)(&input);
            assert!(kept.is_ok(), "{}: {}", path.display(), kept.unwrap_err());
        }
    }
}

fn list(body: &[u8], size: usize, each: &mut dyn FnMut(Listed<Secret>)) -> Result<String, Error> {
    let mut decoder = ListDecoder::<Secret>::new(&DecodeOptions::default());
    for mut chunk in body.chunks(size) {
        while !chunk.is_empty() {
            let count = put(decoder.space(), chunk);
            chunk = &chunk[count..];
            decoder.filled(count, each)?;
        }
    }
    Ok(decoder.finish()?.resource_version.to_string())
}

fn put(space: &mut [u8], chunk: &[u8]) -> usize {
    let count = space.len().min(chunk.len());
    space[..count].copy_from_slice(&chunk[..count]);
    count
}

fn check(folder: &str, outcome_of: &dyn Fn(&[u8], usize) -> String) {
    let bodies = bodies(folder);
    assert!(
        bodies.len() >= BODIES_MIN,
        "{} bodies in {folder}",
        bodies.len()
    );
    let mut differences = String::new();
    for path in bodies {
        let body = fs::read(&path).unwrap();
        let expected = fs::read_to_string(path.with_extension("outcome")).unwrap_or_default();
        let name = path.file_name().unwrap().to_string_lossy();
        for size in CHUNKS {
            let outcome = outcome_of(&body, size);
            assert!(!outcome.contains("hunter2"), "{name}: {outcome}");
            if outcome != expected {
                let size = size.min(body.len());
                write!(differences, "--- {name} in chunks of {size}\n{outcome}").unwrap();
                break;
            }
        }
    }
    assert!(differences.is_empty(), "not as recorded:\n{differences}");
}

fn bodies(folder: &str) -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/corpus");
    let entries = fs::read_dir(corpus.join(folder)).unwrap();
    let mut bodies: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none())
        .collect();
    bodies.sort();
    bodies
}
