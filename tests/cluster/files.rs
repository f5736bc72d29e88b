//! The agent's process with `--output-dir` beside the story: its files equal the server's objects
//! after each phase.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::clock::Clock;
use kubecache::object::{ObjectData, Scope};
use kubecache::worker::StopToken;
use rustix::process::Signal;

use super::agent_program::AGENT;
use super::support::{NODE, PATIENCE, apply, change, client_of, cluster, directory};
use crate::support::TempDirectory;
use crate::support::example::Running;

/// The files of each object, by the path of its folder.
type Folders = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// The agent, and where it writes.
pub(crate) struct FilesOfAgent {
    agent: Running,
    output: TempDirectory,
}

impl FilesOfAgent {
    pub(crate) fn start() -> Self {
        let output = TempDirectory::new("story");
        let kubeconfig = directory().join("kubeconfig/node.yaml");
        let kubeconfig = kubeconfig.to_str().unwrap();
        let flags = ["--kubeconfig", kubeconfig, "--node-name", NODE];
        let files = ["--output-dir", output.to_str().unwrap()];
        Self {
            agent: AGENT.start(&[&flags[..], &files].concat()),
            output,
        }
    }

    /// Waits until these folders are there and those are not, and until all files equal the
    /// server's objects.
    pub(crate) fn wait_for(&self, phase: &str, there: &[&str], gone: &[&str]) {
        let clock = Clock::system();
        let limit = clock.after(PATIENCE);
        loop {
            let secrets = written(&self.output, Secret::FOLDER);
            let maps = written(&self.output, ConfigMap::FOLDER);
            let is_there =
                |folder: &&str| secrets.contains_key(*folder) || maps.contains_key(*folder);
            if secrets.len() + maps.len() > 20
                && there.iter().all(is_there)
                && !gone.iter().any(is_there)
                && secrets == at_the_server::<Secret>(&secrets)
                && maps == at_the_server::<ConfigMap>(&maps)
            {
                return;
            }
            let folders: Vec<_> = secrets.keys().chain(maps.keys()).collect();
            assert!(!clock.has_passed(limit), "phase {phase}: {folders:?}");
            StopToken::never().wait_until(&clock, clock.after(Duration::from_millis(50)));
        }
    }

    pub(crate) fn stop(self) {
        assert_eq!(self.agent.stop(Signal::TERM).code, 0);
    }
}

/// A machine without pods: the objects that the command line names become files, and no other.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn references_without_pods_become_the_servers_objects_as_files() {
    let _cluster = cluster();
    let objects = "\
apiVersion: v1
kind: Secret
metadata: {namespace: default, name: referenced}
stringData: {password: made-up}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: default, name: referenced}
data: {colour: blue}
";
    apply(objects);
    let output = TempDirectory::new("references");
    let kubeconfig = directory().join("kubeconfig/admin.yaml");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let references = [
        "--secret",
        "default/referenced",
        "--configmap",
        "default/referenced",
        "--configmap",
        "default/absent",
    ];
    let flags = ["--kubeconfig", kubeconfig, "--once", "--output-dir"];
    let flags = [&flags[..], &[output.to_str().unwrap()], &references].concat();
    let ended = AGENT.run(&flags);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let (secrets, maps) = (written(&output, "secrets"), written(&output, "configmaps"));
    assert_eq!((secrets.len(), maps.len()), (1, 1), "{}", ended.stdout);
    assert_eq!(secrets, at_the_server::<Secret>(&secrets));
    assert_eq!(maps, at_the_server::<ConfigMap>(&maps));
    change("delete", objects);
}

/// A configuration: an object with files of its own, and those of a namespace that have a label.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_configuration_names_files_follows_labels_and_removes_what_is_deleted() {
    let _cluster = cluster();
    let labelled = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{namespace: default, name: {name}, \
             labels: {{declared: 'yes'}}}}, data: {{colour: {name}}}}}"
        )
    };
    let secret = "\
apiVersion: v1
kind: Secret
metadata: {namespace: default, name: declared}
stringData: {USER: shop, PASSWORD: made \"up\"}
";
    apply(secret);
    apply(&labelled("labelled-a"));
    let directory_of = TempDirectory::new("declared");
    let (out, config) = (directory_of.join("out"), directory_of.join("config.yaml"));
    let text = format!(
        "directory: {}\nentries:\n- secret: default/declared\n  combine: [{{file: db.env, \
         format: env}}]\n  mode: 0640\n- configMaps: {{namespace: default, labels: \
         declared=yes}}\n  items: {{colour: paint}}\n  deleted: remove\n",
        out.display()
    );
    fs::write(&config, text).unwrap();
    let kubeconfig = directory().join("kubeconfig/admin.yaml");
    let [kubeconfig, config] = [kubeconfig, config].map(|path| path.display().to_string());
    let agent = AGENT.start(&["--kubeconfig", &kubeconfig, "--config", &config]);
    let is = |file: &str, text: &str| {
        let read = fs::read_to_string(out.join("default").join(file)).ok();
        read.as_deref() == Some(text)
    };
    let wait_for = |what: &str, holds: &dyn Fn() -> bool| {
        let clock = Clock::system();
        let limit = clock.after(PATIENCE);
        while !holds() {
            assert!(!clock.has_passed(limit), "{what}");
            StopToken::never().wait_until(&clock, clock.after(Duration::from_millis(50)));
        }
    };
    let variables = "PASSWORD=\"made \\\"up\\\"\"\nUSER=\"shop\"\n";
    wait_for("the variables", &|| {
        is("secrets/declared/db.env", variables)
    });
    wait_for("the label", &|| {
        is("configmaps/labelled-a/paint", "labelled-a")
    });
    apply(&labelled("labelled-b"));
    wait_for("the next one", &|| {
        is("configmaps/labelled-b/paint", "labelled-b")
    });
    change("delete", &labelled("labelled-a"));
    wait_for("the deletion", &|| {
        !out.join("default/configmaps/labelled-a").exists()
    });
    assert_eq!(agent.stop(Signal::TERM).code, 0);
    change("delete", &labelled("labelled-b"));
    change("delete", secret);
}

/// What a reader of the directory sees, folder by folder.
fn written(directory: &Path, kind: &str) -> Folders {
    let entries = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten();
        let paths = entries.map_while(Result::ok).map(|entry| entry.path());
        paths.collect::<Vec<_>>()
    };
    let mut folders = Folders::new();
    for namespace in entries(directory) {
        for object in entries(&namespace.join(kind)) {
            let files = entries(&object.join("..data")).into_iter();
            let files = files.filter_map(|file| {
                let name = file.file_name()?.to_str()?.to_owned();
                Some((name, fs::read(&file).ok()?))
            });
            let folder = object.strip_prefix(directory).unwrap();
            folders.insert(folder.to_str().unwrap().to_owned(), files.collect());
        }
    }
    folders
}

/// What the server has of these objects.
fn at_the_server<K: ObjectData>(written: &Folders) -> Folders {
    let all = client_of("admin.yaml").list::<K>(Scope::all()).unwrap();
    let of_server = all.iter().map(|object| {
        let key = object.key();
        let folder = format!("{}/{}/{}", key.namespace(), K::FOLDER, key.name());
        let data = object.data().into_iter();
        let data = data.map(|(key, bytes)| (key.to_owned(), bytes.to_vec()));
        (folder, data.collect())
    });
    of_server
        .filter(|(folder, _)| written.contains_key(folder))
        .collect()
}
