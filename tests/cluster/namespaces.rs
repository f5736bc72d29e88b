//! Watches of whole namespaces against a real server: how many there are by its audit log, what a
//! role that knows only names costs, and that a withdrawn permission costs no read.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::manager::{
    ManagerOptions, NamespaceReport, NamespaceState, Owner, SecretManager, WatchScope,
};
use kubecache::object::ObjectKey;
use kubecache::worker::Worker;

use super::audit::asked_by;
use super::support::*;

const NAMESPACE: &str = "scoped";
const REFERENCED: usize = 12;

fn name(number: usize) -> String {
    format!("scoped-{number}")
}

fn write(name: &str, value: &str) {
    apply(&format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: {NAMESPACE}}}, \
         stringData: {{key: canary-{value}}}}}"
    ));
}

/// The role that `nobody` has in the namespace: of these Secrets, or of all.
fn grant(role: &str, names: Option<&[String]>) {
    let only = names.map_or_else(String::new, |names| {
        format!(", resourceNames: [{}]", names.join(", "))
    });
    apply(&format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, \
         metadata: {{name: {role}, namespace: {NAMESPACE}}}, \
         rules: [{{apiGroups: [\"\"], resources: [secrets], verbs: [get, list, watch]{only}}}]}}"
    ));
    apply(&binding(role));
}

fn binding(role: &str) -> String {
    format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, \
         metadata: {{name: {role}, namespace: {NAMESPACE}}}, \
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {role}}}, \
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody}}]}}"
    )
}

fn manager(user_agent: &str) -> SecretManager {
    let options = ManagerOptions::default()
        .watch_scope(WatchScope::Namespace { above: 4 })
        .get_timeout(PATIENCE);
    let client = client_named("nobody.yaml", user_agent);
    SecretManager::new(client, options).unwrap()
}

fn reference(manager: &SecretManager, name: &str) {
    let owner = Owner::new("Test", ObjectKey::new(NAMESPACE, "reader"));
    manager.add_reference(&owner, &ObjectKey::new(NAMESPACE, name));
}

fn value(manager: &SecretManager, name: &str) -> String {
    let secret = manager.get(NAMESPACE, name).unwrap();
    let secret: &Secret = &secret;
    String::from_utf8(secret.data.as_ref().unwrap()["key"].0.clone()).unwrap()
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::system();
    let deadline = clock.after(PATIENCE);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(!clock.has_passed(deadline), "{what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// The report once the namespace is in that state, without watches by name beyond `most`.
fn report(manager: &SecretManager, state: NamespaceState, most: usize) -> NamespaceReport {
    until(&format!("{state:?}"), || {
        let reports = manager.namespace_reports().into_iter();
        let mut reports = reports.filter(|report| report.state == state);
        reports.find(|report| report.watches_by_name <= most)
    })
}

fn create_the_secrets() {
    let mut manifest =
        format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}");
    for number in 0..REFERENCED * 2 {
        let name = name(number);
        write!(
            manifest,
            "\n---\n{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: \
             {NAMESPACE}}}, stringData: {{key: canary-first}}}}"
        )
        .unwrap();
    }
    apply(&manifest);
}

/// A manager that references the Secrets, and has read each once.
fn reading(user_agent: &str, names: &[String]) -> SecretManager {
    let manager = manager(user_agent);
    for name in names {
        reference(&manager, name);
    }
    for name in names {
        assert_eq!(value(&manager, name), "canary-first");
    }
    manager
}

/// All as without the option, and the report says why.
fn by_name_where_the_role_knows_only_names(names: &[String]) {
    let manager = reading("scope-by-name", names);
    let refused = report(&manager, NamespaceState::ByName, REFERENCED);
    assert!(refused.reason.contains("forbidden"), "{refused:?}");
    manager.health().unwrap();
    drop(manager);
    let asked = asked_by("scope-by-name");
    let of_namespace = || asked.iter().filter(|asked| asked.name.is_empty());
    assert!(of_namespace().count() > 0, "it asks by trying");
    assert!(of_namespace().all(|asked| asked.code == 403), "{asked:?}");
}

/// One watch has all, and one that was not referenced before is there at once.
fn one_watch_where_the_role_has_all(names: &[String], late: &str) -> SecretManager {
    let manager = reading("scope-namespace", names);
    let watching = report(&manager, NamespaceState::Watching, 0);
    assert_eq!(watching.objects, REFERENCED, "{watching:?}");
    write(&names[0], "second");
    until("the change comes", || {
        (value(&manager, &names[0]) == "canary-second").then_some(())
    });
    write(late, "fresh");
    reference(&manager, late);
    assert_eq!(value(&manager, late), "canary-fresh");
    report(&manager, NamespaceState::Watching, 0);
    write(late, "changed");
    until("the change of the late one comes", || {
        (value(&manager, late) == "canary-changed").then_some(())
    });
    let asked = asked_by("scope-namespace").into_iter();
    let watches = asked.filter(|asked| asked.verb == "watch" && asked.name.is_empty());
    assert_eq!(watches.count(), 1);
    manager
}

/// The permission goes while a reader reads. An open watch keeps what it was opened with, so the
/// server restarts.
fn a_withdrawn_permission_costs_no_read(manager: &SecretManager, names: &[String]) {
    change("delete", &binding("all"));
    let ends = Arc::new(AtomicBool::new(false));
    let (reader, reads, until_end) = (manager.clone(), names.to_vec(), Arc::clone(&ends));
    let reading = Worker::spawn("scope-reader", move |_| {
        while !until_end.load(Ordering::Relaxed) {
            for name in &reads {
                value(&reader, name);
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
    restart_the_server();
    let refused = report(manager, NamespaceState::ByName, REFERENCED + 1);
    assert!(refused.reason.contains("forbidden"), "{refused:?}");
    write(&names[1], "by-name");
    until("the change comes by name", || {
        (value(manager, &names[1]) == "canary-by-name").then_some(())
    });
    ends.store(true, Ordering::Relaxed);
    reading.unwrap().join().unwrap();
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_namespace_has_one_watch_while_the_role_lets_it() {
    let _alone = cluster_alone();
    create_the_secrets();
    let names: Vec<String> = (0..REFERENCED).map(name).collect();
    let late = name(REFERENCED);
    let known: Vec<String> = names.iter().chain([&late]).cloned().collect();
    grant("by-name", Some(&known));
    by_name_where_the_role_knows_only_names(&names);
    grant("all", None);
    let manager = one_watch_where_the_role_has_all(&names, &late);
    a_withdrawn_permission_costs_no_read(&manager, &names);
    change("delete", &binding("by-name"));
}
