//! Builds an example as cargo does, and finds the program where cargo says it is.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The program of an example, built with these features if it is not there or older than its sources.
pub(crate) fn built(example: &str, features: &[&str]) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo tells a test about its package would make build scripts run again, here and after.
    let told = [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_CRATE_",
        "CARGO_BIN_",
    ];
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if told.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    let output = cargo
        .args(["build", "--quiet", "--example", example])
        .args(["--features", &features.join(",")])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", target())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "the example does not build");
    let messages = String::from_utf8(output.stdout).unwrap();
    let messages = messages
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut programs = messages
        .filter(|message| message.pointer("/target/name").and_then(Value::as_str) == Some(example))
        .filter_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)));
    programs.next().expect("cargo names the program")
}

/// The directory this test was built into: `…/debug/deps/node_agent-…`, or the same below a platform's name.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directory = test.ancestors().nth(3).unwrap();
    let platform = std::env::var_os("CARGO_BUILD_TARGET");
    match (directory.parent(), platform) {
        (Some(parent), Some(platform)) if directory.ends_with(&platform) => parent.to_owned(),
        _ => directory.to_owned(),
    }
}
