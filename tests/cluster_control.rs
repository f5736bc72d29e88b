//! `tests/cluster/control`, which starts and ends the servers of the cluster tests: with programs
//! that only wait.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What `control` calls. Small images of containers have these and no `ps`.
const TOOLS: [&str; 11] = [
    "bash", "cat", "dirname", "env", "grep", "mkdir", "nohup", "rm", "sleep", "tail", "tr",
];

/// A server that says when it is up, and then waits in the opening of a FIFO.
const SERVER: &str = "#!/usr/bin/env bash\n\
    here=$(dirname \"$0\"); echo up >\"$here/ups\"; read -r <\"$here/fifo\"\n";

/// What knows ports, writes kubeconfigs and waits for the server.
const STORY: &str = "#!/usr/bin/env bash\nif [[ $1 == ports ]]; then echo 1 2 3; fi\n";

/// A directory of a cluster, and of tools without `ps`. It goes with the test, and so do its
/// servers.
struct Cluster {
    directory: PathBuf,
    /// A line from each server that is up: before that its command line may be another's, or none.
    ups: BufReader<File>,
}

impl Cluster {
    fn new(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(directory.join("tools")).unwrap();
        let directory = fs::canonicalize(directory).unwrap();
        for fifo in ["fifo", "ups"] {
            let made = Command::new("mkfifo").arg(directory.join(fifo)).status();
            assert!(made.unwrap().success());
        }
        let ups = BufReader::new(open(&directory.join("ups")).unwrap());
        let cluster = Self { directory, ups };
        for tool in TOOLS {
            symlink(found(tool), cluster.path("tools").join(tool)).unwrap();
        }
        for (name, script) in [("server", SERVER), ("story", STORY)] {
            let path = cluster.path(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let [server, story] = ["server", "story"].map(|name| cluster.path(name));
        let (server, story) = (server.display(), story.display());
        let binaries = format!("ETCD='{server}' KUBE_APISERVER='{server}' STORY='{story}'\n");
        fs::write(cluster.path("binaries"), binaries).unwrap();
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn control(&self, command: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/control");
        let output = Command::new(script)
            .args([command.as_ref(), self.directory.as_os_str()])
            .env_clear()
            .env("PATH", self.path("tools"))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {told}");
        assert_eq!(told, "", "{command}");
    }

    /// Blocks until so many servers have come up.
    fn wait_for(&mut self, servers: usize) {
        for _ in 0..servers {
            self.ups.read_line(&mut String::new()).unwrap();
        }
    }

    fn pid(&self, server: &str) -> Option<u32> {
        let text = fs::read_to_string(self.path(&format!("{server}.pid"))).ok()?;
        Some(text.trim().parse().unwrap())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Whoever still waits in the opening goes on, to the end of an empty file.
        drop(open(&self.path("fifo")));
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Opens both ends of a FIFO, which waits for nobody.
fn open(fifo: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(fifo)
}

fn found(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(tool));
    places.find(|place| place.is_file()).unwrap()
}

/// Whether the process still runs. What is left of one that ended, until somebody asks how, has no
/// command line.
fn is_alive(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// A process of somebody else, which this test ends.
struct Bystander(Child);

impl Drop for Bystander {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// One test: a process that another test starts would inherit a script while it is written, and it
/// could not be run.
#[test]
fn without_ps_the_servers_are_started_found_and_ended_and_nobody_else() {
    let mut cluster = Cluster::new("control-without-ps");
    cluster.control("start");
    cluster.wait_for(2);
    let [etcd, first] = ["etcd", "apiserver"].map(|server| cluster.pid(server).unwrap());
    assert!(is_alive(etcd) && is_alive(first));

    cluster.control("restart-apiserver");
    cluster.wait_for(1);
    let second = cluster.pid("apiserver").unwrap();
    assert!(!is_alive(first) && is_alive(second) && is_alive(etcd));

    cluster.control("stop");
    assert!(!is_alive(second) && !is_alive(etcd));
    assert_eq!(
        (cluster.pid("etcd"), cluster.pid("apiserver")),
        (None, None)
    );

    // A pid that was given to somebody else.
    let waiting = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let mut bystander = Bystander(waiting);
    let pid = bystander.0.id();
    fs::write(cluster.path("apiserver.pid"), format!("{pid}\n")).unwrap();
    cluster.control("stop");
    assert_eq!(cluster.pid("apiserver"), None, "the number is forgotten");
    assert_eq!(bystander.0.try_wait().unwrap(), None, "it goes on");
}
