//! An outlet on a disk that is full, read-only, or gone: what the caller sees, that old files stay
//! whole, and that it is right again once there is room. A directory that was taken away needs
//! another outlet.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubecache::ErrorKind;
use kubecache::object::ObjectKey;
use kubecache::outlet::{Outlet, OutletOptions};

use super::support::TempDirectory;

/// The directory of the disk; only the process that may mount has it.
const VARIABLE: &str = "KUBECACHE_FULL_DISK";

fn map(text: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some("settings".to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(
            ["a", "b"]
                .map(|key| (key.to_owned(), text.to_owned()))
                .into(),
        ),
        ..ConfigMap::default()
    }
}

fn in_own_mounts(program: &Path, arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new("unshare");
    let command_line = command.arg("-rm").arg(program).args(arguments);
    command_line.env(VARIABLE, directory);
    command
}

fn ran(program: &str, arguments: &[&str], directory: &Path) {
    let mut command = Command::new(program);
    let status = command.args(arguments).arg(directory).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

fn assert_holds(directory: &Path, text: &str) {
    for key in ["a", "b"] {
        let file = directory.join("shop/configmaps/settings").join(key);
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
}

fn assert_refused(outlet: &Outlet, object: &ConfigMap, why: &str) {
    let failed = outlet.publish(object).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Resources, "{failed}");
    let text = failed.to_string();
    assert!(
        text.contains("shop/configmaps/settings") && text.contains(why),
        "{text}"
    );
}

/// Starts itself where it may mount; says why it did not, if it may nowhere.
#[test]
fn an_outlet_keeps_old_files_whole_on_a_disk_that_is_full_read_only_or_gone() {
    if let Some(directory) = env::var_os(VARIABLE) {
        return on_a_small_disk(Path::new(&directory));
    }
    let directory = TempDirectory::new("full-disk");
    let mount = ["-t", "tmpfs", "none"];
    let may = in_own_mounts(Path::new("mount"), &mount, &directory)
        .arg(&*directory)
        .output();
    match may {
        Ok(done) if done.status.success() => {}
        Ok(done) => {
            let why = String::from_utf8_lossy(&done.stderr);
            println!("skipped: no tmpfs of one's own: {}", why.trim());
            return;
        }
        Err(why) => {
            println!("skipped: unshare(1) does not run: {why}");
            return;
        }
    }
    let name =
        "full_disk::an_outlet_keeps_old_files_whole_on_a_disk_that_is_full_read_only_or_gone";
    let this = env::current_exe().unwrap();
    let arguments = ["--exact", name, "--nocapture"];
    let ended = in_own_mounts(&this, &arguments, &directory)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    let wrong = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && told.contains("1 passed"),
        "{told}\n{wrong}"
    );
}

fn on_a_small_disk(directory: &Path) {
    let mount = ["-t", "tmpfs", "-o", "size=64k,mode=700", "none"];
    ran("mount", &mount, directory);
    let outlet = Outlet::open(OutletOptions::new(directory)).unwrap();
    assert!(outlet.publish(&map("old")).unwrap());

    let large = map(&"x".repeat(60_000));
    for _ in 0..3 {
        assert_refused(&outlet, &large, "No space left on device");
        assert_holds(directory, "old");
    }
    ran("mount", &["-o", "remount,size=1m"], directory);
    assert!(outlet.publish(&large).unwrap());
    assert_holds(directory, &"x".repeat(60_000));

    ran("mount", &["-o", "remount,ro"], directory);
    assert_refused(&outlet, &map("new"), "Read-only file system");
    assert_holds(directory, &"x".repeat(60_000));
    ran("mount", &["-o", "remount,rw"], directory);
    assert!(outlet.publish(&map("new")).unwrap());
    assert_holds(directory, "new");

    // What is under the disk that was taken away may keep Secrets for ever: only another outlet
    // writes there.
    ran("umount", &["-l"], directory);
    assert_refused(&outlet, &map("new"), "another directory is there now");
    let withdrawn = outlet.withdraw::<ConfigMap>(&ObjectKey::new("shop", "settings"));
    assert_eq!(withdrawn.unwrap_err().kind(), ErrorKind::Resources);
    assert!(!directory.join("shop").exists());
    let other = Outlet::open(OutletOptions::new(directory)).unwrap();
    assert!(other.publish(&map("new")).unwrap());
    assert_holds(directory, "new");
    fs::remove_dir_all(directory).unwrap();
    assert_refused(&other, &map("newer"), "No such file or directory");
}
