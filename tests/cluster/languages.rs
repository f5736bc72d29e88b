//! The test in Go that the manual shows, against the example `serve`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::TempDirectory;
use crate::support::example::Example;

static SERVE: Example = Example::new("serve");

/// The page that shows the same test in three languages.
const PAGE: &str = include_str!("../../src/manual/other_languages.md");

#[test]
#[ignore = "needs client-go: tests/cluster/run"]
fn the_pages_test_in_go_passes() {
    let (_, block) = PAGE.split_once("```go\n").unwrap();
    let (program, _) = block.split_once("```").unwrap();
    let folder = TempDirectory::new("go");
    fs::write(folder.join("rotation_test.go"), program).unwrap();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/gotools");
    for name in ["go.mod", "go.sum"] {
        fs::copy(module.join(name), folder.join(name)).unwrap();
    }
    let ended = Command::new("go")
        .args(["test", "-mod=readonly", "-p", "2", "-count", "1", "./..."])
        .current_dir(&*folder)
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", ""),
            ("GOTOOLCHAIN", "local"),
            ("GOWORK", "off"),
        ])
        .env("SERVE", SERVE.program())
        .output()
        .unwrap();
    let told = [ended.stdout, ended.stderr].concat();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&told));
}
