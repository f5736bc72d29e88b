//! The one build: weave, ask the compiler, drop the mutants that it refuses, until it builds.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::mutations::Place;
use crate::weave::{QUESTION, Woven, weave};

const FEATURES: &str = "testing,snapshot,metrics,endpoints";
/// What is not of the crate itself, and what would make the woven text an error.
const COPIED: &[&str] = &["Cargo.lock", "README.md", "CHANGELOG.md", "src", "fixtures"];

/// Names the program of the last build, and the numbers of its mutants.
const LAST: &str = "last_build";

pub struct File {
    pub path: String,
    pub source: String,
    pub places: Vec<Place>,
}

/// Copies what the library's unit tests read. Examples, benches and test programs stay behind, and
/// so do the lints.
pub fn copy(from: &Path, tree: &Path) -> io::Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    fs::create_dir_all(tree)?;
    for name in COPIED.iter().chain(&["examples", "tests", "benches"]) {
        let ok = Command::new("cp")
            .arg("-a")
            .arg(from.join(name))
            .arg(tree)
            .status()?
            .success();
        if !ok {
            return Err(io::Error::other(format!("{name} cannot be copied")));
        }
    }
    let manifest = fs::read_to_string(from.join("Cargo.toml"))?;
    let own = |line: &&str| !line.starts_with("kubecache = { path = \".\"");
    let lints = manifest.find("\n[lints.rust]").unwrap_or(manifest.len());
    let after = manifest.find("\n[profile.dev]").unwrap_or(manifest.len());
    let manifest = [&manifest[..lints], &manifest[after..]].concat();
    let lines: Vec<_> = manifest.lines().filter(own).collect();
    fs::write(
        tree.join("Cargo.toml"),
        lines.join("\n") + "\n[workspace]\n",
    )
}

/// Builds the tests with all of `alive` that compile, and returns the test program.
pub fn build(tree: &Path, files: &[File], alive: &mut BTreeSet<usize>) -> io::Result<PathBuf> {
    let library = fs::read_to_string(tree.join("src/lib.rs"))?;
    let library = format!("#![allow(warnings)]\n{library}{QUESTION}");
    fs::write(tree.join("src/lib.rs"), library)?;
    loop {
        let woven: Vec<_> = files
            .iter()
            .map(|file| weave(&file.source, &file.places, alive))
            .collect();
        for (file, woven) in files.iter().zip(&woven) {
            fs::write(tree.join(&file.path), &woven.text)?;
        }
        let messages = cargo(tree)?;
        let errors: Vec<_> = messages
            .iter()
            .filter(|message| is_error(message))
            .collect();
        let mut refused = BTreeSet::new();
        for error in &errors {
            let found = blamed(&error["message"], files, &woven);
            if found.is_empty()
                && !error["message"]["spans"]
                    .as_array()
                    .is_some_and(Vec::is_empty)
            {
                eprintln!("no mutant is to blame: {}", error["message"]["rendered"]);
            }
            refused.extend(found);
        }
        eprintln!(
            "{} mutants do not compile, of {}",
            refused.len(),
            alive.len()
        );
        if refused.is_empty() && errors.is_empty() {
            let program = messages
                .iter()
                .find_map(|message| message["executable"].as_str());
            let program = program.ok_or_else(|| io::Error::other("no test program"))?;
            let numbers: String = alive.iter().map(|id| format!("\n{id}")).collect();
            fs::write(tree.join(LAST), format!("{program}{numbers}"))?;
            return Ok(program.into());
        }
        if refused.is_empty() {
            return Err(io::Error::other("the woven source does not compile"));
        }
        alive.retain(|id| !refused.contains(id));
    }
}

/// The test program of the last build, and its mutants.
pub fn last(tree: &Path, alive: &mut BTreeSet<usize>) -> io::Result<PathBuf> {
    let text = fs::read_to_string(tree.join(LAST))?;
    let mut lines = text.lines();
    let program = lines.next().unwrap_or_default().into();
    let built: BTreeSet<usize> = lines.filter_map(|line| line.parse().ok()).collect();
    alive.retain(|id| built.contains(id));
    Ok(program)
}

fn cargo(tree: &Path) -> io::Result<Vec<Value>> {
    let output = Command::new("cargo")
        .args([
            "test",
            "--no-run",
            "--lib",
            "--message-format=json",
            "--features",
            FEATURES,
        ])
        .current_dir(tree)
        // Beside the copy, which is made anew: so the dependencies are built once.
        .env("CARGO_TARGET_DIR", tree.with_file_name("build"))
        .stderr(Stdio::inherit())
        .output()?;
    let lines = String::from_utf8_lossy(&output.stdout);
    Ok(lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

fn is_error(message: &Value) -> bool {
    message["reason"] == "compiler-message" && message["message"]["level"] == "error"
}

/// The mutants of the smallest region around each place that the error names.
fn blamed(message: &Value, files: &[File], woven: &[Woven]) -> Vec<usize> {
    let spans = message["spans"].as_array().map_or(&[][..], |spans| spans);
    let in_order = spans
        .iter()
        .filter(|span| span["is_primary"] == true)
        .chain(spans);
    for span in in_order {
        let start = span["byte_start"].as_u64().unwrap_or(0) as usize;
        let end = span["byte_end"].as_u64().unwrap_or(0) as usize;
        let file = files
            .iter()
            .position(|file| span["file_name"] == *file.path);
        let regions = file.map_or(&[][..], |index| &woven[index].regions);
        let around = regions
            .iter()
            .filter(|region| region.bytes.start <= start && end <= region.bytes.end);
        if let Some(region) = around.min_by_key(|region| region.bytes.len()) {
            return region.mutants.clone();
        }
    }
    Vec::new()
}
