//! `--config`: entries as files, who is told of each, a file that changes while the agent runs, and
//! one that is wrong.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::testing::{Act, ApiServer, Fault, FaultId, objects};
use rustix::process::{Signal, geteuid};

use super::AGENT;
use super::probes::{FLAG, get, told, wait_for_answer};
use crate::support::example::Running;
use crate::support::{TempDirectory, until};

/// A server, and a directory with a configuration and the files that it declares.
struct Machine {
    server: ApiServer,
    directory: TempDirectory,
}

impl Machine {
    fn new(entries: &str) -> Self {
        let machine = Self {
            server: ApiServer::new().unwrap(),
            directory: TempDirectory::new("agent-config"),
        };
        machine.declare(entries);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn declare(&self, entries: &str) {
        let out = self.path("out");
        self.write(&format!(
            "directory: {}\nentries:\n{entries}",
            out.display()
        ));
    }

    /// Replaces the configuration in one step: the agent must not read half of it.
    fn write(&self, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path("config.yaml")).unwrap();
    }

    fn set(&self, name: &str, data: &[(&str, &str)]) {
        let map = objects::config_map("shop", name, "", data);
        self.server.apply(&map).unwrap();
    }

    fn flags(&self, more: &[&str]) -> Vec<String> {
        let (url, config) = (self.server.url(), self.path("config.yaml"));
        let flags = ["--server", &url, "--config", config.to_str().unwrap()];
        flags
            .iter()
            .chain(more)
            .map(|flag| (*flag).to_owned())
            .collect()
    }

    /// Longer than a test waits: without another time-out, an answer that it misses is a failure.
    fn once(&self, more: &[&str]) -> (i32, String) {
        let timeout: &[&str] = if more.is_empty() {
            &["--timeout", "1h"]
        } else {
            more
        };
        let (status, told) = self.start(&[&["--once"], timeout].concat()).wait();
        (status.code().expect("it ends by itself"), told)
    }

    /// No list of Secrets has an answer, until the fault goes.
    fn refuse_secrets(&self) -> FaultId {
        let unavailable = Act::Status {
            code: 503,
            reason: "ServiceUnavailable".to_owned(),
            retry_after: None,
        };
        let lists = Fault::new(unavailable).on("/api/v1/namespaces/shop/secrets");
        self.server.add_fault(lists)
    }

    fn start(&self, more: &[&str]) -> Running {
        let flags = self.flags(more);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        AGENT.start(&flags)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path("out/shop/configmaps").join(name)
    }
}

/// Waits until a file has this text.
#[track_caller]
fn has(path: &Path, text: &str) {
    until(|| fs::read_to_string(path).ok().as_deref() == Some(text));
}

#[track_caller]
fn is_gone(path: &Path) {
    until(|| !path.exists());
}

#[test]
fn an_entry_names_files_their_mode_and_owner_and_combines_keys() {
    let machine = Machine::new(
        "- configMap: shop/a\n  items: {one: first.txt}\n  mode: 0640\n  \
         combine:\n  - {file: bundle, keys: [two, one]}\n  - {file: a.env, format: env}\n",
    );
    machine.set("a", &[("one", "1"), ("two", "it's 2")]);
    let (code, told) = machine.once(&[]);
    assert_eq!(code, 0, "{told}");
    let read = |name: &str| fs::read_to_string(machine.file(name)).unwrap();
    assert_eq!(read("a/first.txt"), "1");
    assert_eq!(read("a/bundle"), "it's 2\n1\n");
    assert_eq!(read("a/a.env"), "one=\"1\"\ntwo=\"it's 2\"\n");
    assert!(!machine.file("a/one").exists());
    let mode = fs::metadata(machine.file("a/bundle")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o640);

    if geteuid().is_root() {
        machine.declare("- configMap: shop/a\n  owner: root\n  group: 4321\n  mode: '0440'\n");
        assert_eq!(machine.once(&[]).0, 0);
        let facts = fs::metadata(machine.file("a/one")).unwrap();
        assert_eq!(
            (facts.uid(), facts.gid(), facts.mode() & 0o7777),
            (0, 4321, 0o440)
        );
        assert!(!machine.file("a/first.txt").exists(), "another layout");
    }
}

#[test]
fn with_once_each_entry_counts_and_says_what_is_missing() {
    let rows = [
        (
            "- configMap: shop/none\n  missing: fail\n",
            "the server has no such object",
        ),
        (
            "- {name: db, configMap: shop/a, items: {none: f}, missing: fail}\n",
            "entry \"db\": the key \"none\" is missing",
        ),
        (
            "- {configMap: shop/a, combine: [{file: e, keys: [b-c], format: env}]}\n",
            "the key \"b-c\" is no name of a variable",
        ),
    ];
    // Seen: answers that came early were not noticed before the time-out. It depends on which of
    // two threads is first.
    for (entry, words) in rows.repeat(8) {
        let machine = Machine::new(entry);
        machine.set("a", &[("one", "1"), ("b-c", "2")]);
        let (code, told) = machine.once(&[]);
        assert!(code == 1 && told.contains(words), "{entry}: {code} {told}");
    }
    let machine = Machine::new("- configMap: shop/none\n- configMap: shop/a\n");
    machine.set("a", &[("one", "1")]);
    assert_eq!(machine.once(&[]).0, 0);
    assert!(machine.file("a/one").exists());
}

#[test]
fn once_names_the_entry_whose_objects_the_server_does_not_tell() {
    let machine = Machine::new("- {name: web, configMaps: {namespace: shop, labels: app=web}}\n");
    let refuse = Act::Status {
        code: 403,
        reason: "Forbidden".to_owned(),
        retry_after: None,
    };
    let refuse = Fault::new(refuse).on("/api/v1/namespaces/shop/configmaps");
    machine.server.add_fault(refuse);
    let (code, told) = machine.once(&["--timeout", "1s"]);
    let words = "error: the objects are not known of entry \"web\" (";
    assert!(code == 1 && told.contains(words), "{code} {told}");
    assert!(told.contains("Forbidden"), "{told}");
}

#[test]
fn a_selection_is_kept_as_its_labels_say() {
    let machine =
        Machine::new("- configMaps: {namespace: shop, labels: app=web}\n  items: {one: renamed}\n");
    let labelled = |name: &str, label: &str| {
        let mut map = objects::config_map("shop", name, "", &[("one", name)]);
        map.metadata.labels = Some([("app".to_owned(), label.to_owned())].into());
        machine.server.apply(&map).unwrap();
    };
    labelled("a", "web");
    labelled("b", "other");
    let (code, told) = machine.once(&[]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(fs::read_to_string(machine.file("a/renamed")).unwrap(), "a");
    assert!(!machine.file("b").exists());

    let agent = machine.start(&[]);
    labelled("b", "web");
    has(&machine.file("b/renamed"), "b");
    labelled("a", "other");
    is_gone(&machine.file("a"));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[test]
fn what_the_server_deletes_stays_or_goes_as_the_entry_says() {
    let machine =
        Machine::new("- configMap: shop/stays\n- configMap: shop/goes\n  deleted: remove\n");
    machine.set("stays", &[("a", "1")]);
    machine.set("goes", &[("a", "1")]);
    let agent = machine.start(&[]);
    has(&machine.file("stays/a"), "1");
    has(&machine.file("goes/a"), "1");
    for name in ["stays", "goes"] {
        machine.server.delete::<ConfigMap>("shop", name).unwrap();
    }
    is_gone(&machine.file("goes"));
    assert!(machine.file("stays/a").exists());
    machine.set("goes", &[("a", "2")]);
    has(&machine.file("goes/a"), "2");
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: what a selection had found went with its object although the entry said `keep`.
#[test]
fn what_a_selection_found_stays_after_its_deletion_if_the_entry_says_so() {
    let of = |label| format!("- configMaps: {{namespace: shop, labels: app={label}}}\n");
    let machine = Machine::new(&format!("{}  deleted: keep\n{}", of("web"), of("job")));
    let labelled = |name: &str, label: &str, value: &str| {
        let mut map = objects::config_map("shop", name, "", &[("a", value)]);
        map.metadata.labels = Some([("app".to_owned(), label.to_owned())].into());
        machine.server.apply(&map).unwrap();
    };
    let all = [("stays", "web"), ("other", "web"), ("goes", "job")];
    for (name, label) in all {
        labelled(name, label, "1");
    }
    let agent = machine.start(&[]);
    for (name, _) in all {
        has(&machine.file(&format!("{name}/a")), "1");
    }
    let delete = |name| machine.server.delete::<ConfigMap>("shop", name).unwrap();
    delete("stays");
    delete("goes");
    is_gone(&machine.file("goes"));
    // Its labels change, and not the object's end: nobody selects it.
    labelled("other", "none", "1");
    is_gone(&machine.file("other"));
    assert!(machine.file("stays/a").exists());
    labelled("stays", "web", "2");
    has(&machine.file("stays/a"), "2");
    // Comes again with other labels.
    delete("stays");
    labelled("stays", "none", "3");
    is_gone(&machine.file("stays"));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: the files went until the server had listed what the new labels select.
#[test]
fn other_labels_take_nothing_away_before_the_server_tells_what_they_select() {
    let of = |labels| format!("- secrets: {{namespace: shop, labels: \"{labels}\"}}\n");
    let machine = Machine::new(&of("app=web"));
    for (name, tier) in [("stays", "x"), ("goes", "y")] {
        let mut secret = objects::secret("shop", name, "", &[("a", "1")]);
        let labels = [("app", "web"), ("tier", tier)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        secret.metadata.labels = Some(labels.into());
        machine.server.apply(&secret).unwrap();
    }
    let [stays, goes] = ["stays", "goes"].map(|name| machine.path("out/shop/secrets").join(name));
    let agent = machine.start(&[]);
    for folder in [&stays, &goes] {
        has(&folder.join("a"), "1");
    }
    let refused = machine.refuse_secrets();
    machine.set("new", &[("a", "1")]);
    machine.declare(&format!("{}- configMap: shop/new\n", of("app=web,tier=x")));
    agent.signal(Signal::HUP);
    // Written later than what would be taken away.
    has(&machine.file("new/a"), "1");
    assert!(stays.join("a").exists() && goes.join("a").exists());
    machine.server.remove_fault(refused);
    is_gone(&goes);
    assert!(stays.join("a").exists());
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: the selection before was not followed any more.
#[test]
fn a_selection_that_cannot_be_followed_changes_nothing() {
    let of = |namespace| format!("- configMaps: {{namespace: {namespace}, labels: app=web}}\n");
    let machine = Machine::new(&of("shop"));
    let set = |name: &str| {
        let mut map = objects::config_map("shop", name, "", &[("a", "1")]);
        map.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        machine.server.apply(&map).unwrap();
    };
    set("one");
    let mut agent = machine.start(&[]);
    has(&machine.file("one/a"), "1");
    machine.declare(&of("shop/"));
    agent.signal(Signal::HUP);
    until(|| agent.has_told("what was read before stays"));
    set("two");
    has(&machine.file("two/a"), "1");
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: an object that had lost its entry kept that one's files until the next reload.
#[test]
fn files_are_as_the_present_entry_says_once_all_labels_are_known() {
    let machine = Machine::new("- configMap: shop/web\n  items: {a: named}\n");
    machine.set("web", &[("a", "1")]);
    // What no entry names has all its keys as they are called.
    let agent = machine.start(&["--configmap", "shop/web"]);
    has(&machine.file("web/named"), "1");
    let refused = machine.refuse_secrets();
    machine.set("new", &[("a", "1")]);
    let selection = "- secrets: {namespace: shop, labels: app=web}\n";
    // Without a signal, the agent reads it once.
    machine.declare(&format!("{selection}- configMap: shop/new\n"));
    has(&machine.file("new/a"), "1");
    assert_eq!(fs::read_to_string(machine.file("web/named")).unwrap(), "1");
    machine.server.remove_fault(refused);
    has(&machine.file("web/a"), "1");
    is_gone(&machine.file("web/named"));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: a directory without the one that the agent needs was taken, and the next start failed.
#[test]
fn a_changed_file_is_refused_where_a_start_would_refuse_it() {
    let machine = Machine::new("- configMap: shop/a\n");
    machine.set("a", &[("one", "1")]);
    let out = machine.path("out");
    let flags = ["--output-dir", out.to_str().unwrap(), "-v"];
    let mut agent = machine.start(&flags);
    has(&machine.file("a/one"), "1");
    let text =
        "entries: [{configMap: shop/a}]\ncredentials: {a.service: {b: {secret: shop/a, key: c}}}\n";
    machine.write(text);
    agent.signal(Signal::HUP);
    let why = told(&mut agent, "warning: SIGHUP: ");
    let expected = "the configuration declares credentials: give --credential-socket; what was \
                    read before stays";
    assert_eq!(why, expected);
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: it warned although the flag wins, and nobody said that the old files stay.
#[test]
fn another_directory_is_told_with_what_stays_unless_a_flag_names_one() {
    let machine = Machine::new("- configMap: shop/a\n");
    machine.set("a", &[("one", "1")]);
    let declare = |directory: &str, entry: &str| {
        let directory = machine.path(directory);
        let directory = directory.display();
        machine.write(&format!("directory: {directory}\nentries: [{entry}]\n"));
    };
    let entry = "{configMap: shop/a}";
    declare("out", entry);
    let mut agent = machine.start(&[]);
    has(&machine.file("a/one"), "1");
    declare("other", entry);
    agent.signal(Signal::HUP);
    let why = told(&mut agent, "warning: the configuration has ");
    let expected = "another directory (files in an earlier one stay until you remove them); it \
                    takes a restart to follow that";
    assert_eq!(why, expected);
    machine.write("entries: [{configMap: shop/a, mode: \"0600\"}]\n");
    agent.signal(Signal::HUP);
    let why = told(&mut agent, "warning: SIGHUP: ");
    assert!(why.contains("directory: missing"), "{why}");
    assert_eq!(agent.stop(Signal::TERM).code, 0);

    let named = machine.path("named");
    let flags = ["--output-dir", named.to_str().unwrap(), "-v"];
    // The flag wins also where it says the same.
    declare("named", entry);
    let mut agent = machine.start(&flags);
    has(&named.join("shop/configmaps/a/one"), "1");
    declare("another", entry);
    agent.signal(Signal::HUP);
    while !agent
        .next_told()
        .unwrap()
        .contains(": 1 objects are referenced")
    {}
    declare("another", "{configMap: shop/a, mode: 9}");
    agent.signal(Signal::HUP);
    let why = told(&mut agent, "warning: ");
    assert!(why.contains("entries[0].mode"), "{why}");
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// A file that somebody edits is followed without a signal, and at a SIGHUP at once.
#[test]
fn a_changed_file_is_followed_and_a_wrong_one_changes_nothing() {
    let machine = Machine::new("- configMap: shop/a\n");
    machine.set("a", &[("one", "1")]);
    machine.set("b", &[("one", "2")]);
    let mut agent = machine.start(&["-v"]);
    has(&machine.file("a/one"), "1");

    machine.declare("- configMap: shop/a\n  mode: 9\n");
    agent.signal(Signal::HUP);
    let why = told(&mut agent, "warning: SIGHUP: ");
    assert!(
        why.contains("line 4: entries[0].mode: write a mode"),
        "{why}"
    );
    assert!(why.ends_with("what was read before stays"), "{why}");
    assert!(machine.file("a/one").exists());

    machine.declare("- configMap: shop/a\n  items: {one: other}\n- configMap: shop/b\n");
    has(&machine.file("a/other"), "1");
    has(&machine.file("b/one"), "2");
    is_gone(&machine.file("a/one"));

    machine.declare("- configMap: shop/b\n");
    agent.signal(Signal::HUP);
    is_gone(&machine.file("a"));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: what follows labels of ConfigMaps counted as Secrets.
#[cfg(feature = "metrics")]
#[test]
fn the_selections_of_a_kind_count_as_that_kind() {
    const METRICS: &str = "--metrics-bind-address";
    let machine = Machine::new("- configMaps: {namespace: shop, labels: \"app=web\"}\n");
    let mut agent = machine.start(&[METRICS, "127.0.0.1:0"]);
    let address = told(&mut agent, &format!("{METRICS}: listening at "));
    let address = address.parse().unwrap();
    let of = |kind: &str, lists: &str| {
        let labels = format!("name=\"selections\",resource=\"{kind}\",version=\"v1\"");
        format!("reflector_lists_total{{group=\"\",{labels}}} {lists}\n")
    };
    let page = || get(address, "/metrics").1;
    until(|| page().contains(&of("configmaps", "1")));
    assert!(!page().contains(&of("secrets", "1")));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// A program for each entry: it is told of that entry's objects alone, once for changes that come
/// close together.
#[test]
fn each_entry_has_its_own_hook() {
    let directory = TempDirectory::new("agent-config-hooks");
    let script = |name: &str| {
        let path = directory.join(name);
        let log = directory.join(format!("{name}.log"));
        let text = format!(
            "#!/bin/sh\necho \"$KUBECACHE_CHANGED;\" >> {}\n",
            log.display()
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (path.display().to_string(), log)
    };
    let ((for_a, log_a), (for_b, log_b)) = (script("a"), script("b"));
    let machine = Machine::new(&format!(
        "- configMap: shop/a\n  exec: [{for_a}]\n- configMap: shop/b\n  exec: [{for_b}]\n  \
         debounce: 100ms\n- configMap: shop/c\n"
    ));
    for name in ["a", "b", "c"] {
        machine.set(name, &[("one", "1")]);
    }
    let agent = machine.start(&[]);
    has(&log_a, "configmap shop/a;\n");
    has(&log_b, "configmap shop/b;\n");
    machine.set("b", &[("one", "2")]);
    has(&log_b, "configmap shop/b;\nconfigmap shop/b;\n");
    has(&log_a, "configmap shop/a;\n");

    // The other one is told no more once the file says so.
    machine.declare(&format!(
        "- configMap: shop/a\n  items: {{one: new}}\n- configMap: shop/b\n  exec: [{for_b}]\n"
    ));
    agent.signal(Signal::HUP);
    has(&machine.file("a/new"), "1");
    machine.set("a", &[("one", "2")]);
    has(&machine.file("a/new"), "2");
    machine.set("b", &[("one", "3")]);
    has(&machine.file("b/one"), "3");
    until(|| fs::read_to_string(&log_b).unwrap().lines().count() >= 3);
    assert_eq!(fs::read_to_string(&log_a).unwrap(), "configmap shop/a;\n");
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[test]
fn health_is_red_until_a_failing_entry_is_well() {
    let machine = Machine::new("- configMap: shop/a\n  items: {one: f}\n  missing: fail\n");
    machine.set("a", &[("other", "1")]);
    let mut agent = machine.start(&[FLAG, "127.0.0.1:0"]);
    let probes = told(&mut agent, &format!("{FLAG}: listening at "));
    let probes = probes.parse().unwrap();
    until(|| get(probes, "/healthz/files").0 == 500);
    machine.set("a", &[("one", "1")]);
    has(&machine.file("a/f"), "1");
    wait_for_answer(probes, "/healthz/files", (200, "ok"));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[test]
fn a_file_is_checked_without_a_server() {
    let machine = Machine::new("- configMap: shop/a\n- pods: {}\n");
    let config = machine.path("config.yaml").display().to_string();
    let ended = AGENT.run(&["--config", &config, "--check-config"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(
        ended.stdout,
        format!("{config}: nothing is wrong: 2 entries, 0 units\n")
    );
    machine.declare("- configMap: shop/a\n  owner: [1]\n");
    let ended = AGENT.run(&["--config", &config, "--check-config"]);
    assert_eq!(ended.code, 2);
    let begin = format!("error: {config}: line 4: entries[0].owner: must be text");
    assert!(ended.stderr.starts_with(&begin), "{}", ended.stderr);
    let ended = AGENT.run(&["--check-config"]);
    assert!(ended.stderr.contains("--check-config needs --config"));
}
