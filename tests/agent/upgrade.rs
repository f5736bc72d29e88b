//! What the version before left, under the agent of now: its outlet, its snapshot and its flags.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::AGENT;
use crate::support::TempDirectory;
use crate::support::example::Ended;

/// Runs the agent of now where that of commit 4f4140f ran, while its server is away.
fn run(directory: &Path, more: &[&str]) -> Ended {
    let [out, snapshot, key] = ["out", "snapshot", "key"].map(|name| directory.join(name));
    let [out, snapshot, key] = [&out, &snapshot, &key].map(|path| path.to_str().unwrap());
    let flags = ["--server", "http://127.0.0.1:1", "--secret", "shop/db"];
    let files = ["--output-dir", out, "--snapshot", snapshot];
    let once = ["--snapshot-key", key, "--once", "--timeout", "1s"];
    AGENT.run(&[&flags[..], &files, &once, more].concat())
}

fn read(directory: &Path, file: &str) -> String {
    fs::read_to_string(directory.join("out/shop").join(file)).unwrap()
}

#[test]
fn the_outlet_and_the_snapshot_of_the_version_before_are_taken_over() {
    let directory = TempDirectory::new("agent-upgrade");
    let left = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/upgrade");
    for name in ["out", "snapshot"] {
        let mut copy = Command::new("cp");
        let copied = copy
            .arg("-a")
            .arg(left.join(name))
            .arg(&*directory)
            .status();
        assert!(copied.unwrap().success());
    }
    // A checkout does not keep the modes.
    let mut modes = Command::new("chmod");
    let private = modes
        .args(["-R", "u=rwX,go="])
        .arg(directory.join("out"))
        .status();
    assert!(private.unwrap().success());
    let key = directory.join("key");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let now = |kind: &str| fs::read_link(directory.join("out/shop").join(kind).join("..data"));
    let before = now("secrets/db").unwrap();

    let ended = run(&directory, &["--configmap", "shop/flags"]);
    assert_eq!(ended.code, 1, "no answer of the server: {}", ended.stderr);
    assert_eq!(
        ended.stdout.matches("Restored").count(),
        2,
        "{}",
        ended.stdout
    );
    assert_eq!(
        ended.stderr.matches("is adopted").count(),
        1,
        "{}",
        ended.stderr
    );
    assert_eq!(read(&directory, "secrets/db/password"), "made-up");
    assert_eq!(read(&directory, "configmaps/flags/tax"), "7");
    assert_eq!(
        now("secrets/db").unwrap(),
        before,
        "the same content is not written again"
    );

    // What is referenced no more goes, though the version before wrote it.
    let ended = run(&directory, &[]);
    assert_eq!(
        ended.stdout.matches("Restored").count(),
        1,
        "{}",
        ended.stdout
    );
    assert!(!ended.stderr.contains("is adopted"), "{}", ended.stderr);
    assert_eq!(read(&directory, "secrets/db/password"), "made-up");
    assert!(now("configmaps/flags").is_err());
}

#[test]
fn the_flags_of_the_version_before_are_read() {
    let directory = TempDirectory::new("agent-flags");
    let references = directory.join("references");
    fs::write(&references, "secret shop/db\n").unwrap();
    let references = format!("--references={}", references.display());
    let line = "--node-name=n --secret=a/b --configmap=a/b --output-dir=/d --output-owner=1:1 \
                --exec-on-change=x --signal-on-change=/p --snapshot=/s --snapshot-key=/k -l=a -n=a \
                -o=wide --no-headers --change-detection=Cache --watch-scope=namespace:20 \
                --watches-max=9 --sync-frequency=1m --once --timeout=30s --idle-limit=130s \
                --health-probe-bind-address=:8081 --demo-speed=6 --kubeconfig=/c --context=c \
                --cluster=c --user=u -s=https://s --token=t --username=u --password=p --as=u \
                --as-uid=u --as-group=g --certificate-authority=/c --client-certificate=/c \
                --client-key=/k --tls-server-name=s --insecure-skip-tls-verify \
                --disable-compression --request-timeout=1m -v=1 --demo --version";
    let flags = std::iter::once(references.as_str());
    let flags: Vec<_> = flags.chain(line.split_whitespace()).collect();
    let ended = AGENT.run(&flags);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}
