//! Credential plugins against a real server: tokens that expire within seconds, a 401, and client
//! certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kubecache::ErrorKind;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config, CredentialsStatus, KubeconfigOptions};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::manager::{ManagerOptions, Owner, SecretManager};
use kubecache::object::{ObjectKey, Scope};
use kubecache::worker::StopToken;

use super::audit::{Asked, asked_by};
use super::gateway::Gateway;
use super::support::*;

/// How long a token lasts, for the client as for the server.
const LIFE: u32 = 6;

/// How long the test goes on: ten expiries.
const SPAN: Duration = Duration::from_secs(50);

/// Between two reads.
const TICK: Duration = Duration::from_millis(100);

/// Who the plugin's tokens are for.
const ACCOUNT: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: plugins}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: first, namespace: plugins}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: plugin-user, namespace: plugins}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: plugin-user}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: plugin-user, namespace: plugins}]
";

/// A kubeconfig with the tests' plugin, and what the plugin leaves.
struct Bed(PathBuf);

impl Bed {
    fn new(name: &str, server: &str, settings: &[(&str, String)]) -> Self {
        let directory = directory().join(format!("plugin-{name}"));
        fs::create_dir_all(&directory).unwrap();
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/plugin");
        let state = ("STATE", directory.display().to_string());
        let settings = settings
            .iter()
            .chain([&state])
            .map(|(name, value)| format!("{{name: KUBECACHE_PLUGIN_{name}, value: '{value}'}}"));
        let settings: Vec<_> = settings.collect();
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{server}', certificate-authority: \
             ../certs/ca.crt}}}}]\n\
             users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, \
             interactiveMode: Never, command: '{}', env: [{}]}}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            plugin.display(),
            settings.join(", ")
        );
        fs::write(directory.join("config"), text).unwrap();
        Self(directory)
    }

    fn client(&self, name: &str) -> Client {
        let options = KubeconfigOptions::default().path(self.0.join("config"));
        let config = Config::infer_with(&options).unwrap();
        let options = ClientOptions::default().user_agent(of_this_run(name));
        Client::new(&config, options).unwrap()
    }
}

/// A bed whose plugin gives tokens of the account, by way of the gateway.
fn of_tokens(gateway: &Gateway) -> Bed {
    apply(ACCOUNT);
    let admin = client_of("admin.yaml");
    let account = get::<ServiceAccount>(&admin, "plugins", "plugin-user").unwrap();
    let uid = account.metadata.uid.clone().unwrap();
    let key = directory().join("certs/service-account.key");
    let settings = [
        ("LIFE", LIFE.to_string()),
        ("ACCOUNT", format!("plugins plugin-user {uid}")),
        ("KEY", key.display().to_string()),
    ];
    Bed::new("tokens", &gateway.url(), &settings)
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn caches_outlive_ten_expiries_and_a_401_without_a_failed_read() {
    let _up = cluster();
    let gateway = Gateway::start();
    let bed = of_tokens(&gateway);
    let client = bed.client("plugin-user");
    let clock = Clock::system();

    let source = watcher::<ConfigMap>(&client, Scope::namespace("plugins"));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    informer.wait_until_synced(clock.after(PATIENCE)).unwrap();
    let objects = informer.store().len();
    assert!(objects >= 1);
    let secrets = SecretManager::new(client.clone(), ManagerOptions::default()).unwrap();
    let session = ObjectKey::new("shop", "storefront-session");
    let owner = Owner::new("Test", ObjectKey::new("shop", "plugins"));
    secrets.add_reference(&owner, &session);
    let deadline = clock.after(PATIENCE);
    secrets
        .get_by("shop", "storefront-session", deadline)
        .unwrap();

    let end = clock.after(SPAN);
    let mut reads = 0_u32;
    while !clock.has_passed(end) {
        StopToken::never().wait_until(&clock, clock.after(TICK));
        reads += 1;
        if reads.is_multiple_of(40) {
            // The watches are opened anew, with the token of that moment.
            gateway.close();
            gateway.open();
        }
        if reads == 150 {
            fs::write(bed.0.join("bad"), "").unwrap();
        }
        assert_eq!(informer.store().len(), objects);
        secrets.get("shop", "storefront-session").unwrap();
        get::<Secret>(&client, "shop", "storefront-session").unwrap();
    }
    let status = client.credentials_status().unwrap();
    println!(
        "{reads} reads of each cache, {} runs of the plugin",
        status.runs
    );
    check_runs(&bed, &status);

    // Changes still come.
    let late = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late, namespace: plugins}\n";
    apply(late);
    let came = clock.after(PATIENCE);
    while informer.store().len() == objects {
        assert!(!clock.has_passed(came), "the informer follows no more");
        StopToken::never().wait_until(&clock, clock.after(TICK));
    }
    change("delete", late);
    informer.shutdown(clock.after(PATIENCE)).unwrap();
    secrets.shutdown(clock.after(PATIENCE)).unwrap();
    check_first_token(&bed, &gateway);
    check_requests();
}

fn check_runs(bed: &Bed, status: &CredentialsStatus) {
    assert!(status.runs >= 9, "{status:?}");
    assert_eq!(status.failures, 0, "{status:?}");
    let runs = fs::read_to_string(bed.0.join("runs")).unwrap().len();
    assert_eq!(u64::try_from(runs).unwrap(), status.runs);
    assert!(!bed.0.join("bad").exists(), "the wrong token was given out");
}

/// The tokens do expire, and a fixed one is the end.
fn check_first_token(bed: &Bed, gateway: &Gateway) {
    let first = fs::read_to_string(bed.0.join("first")).unwrap();
    let authority = fs::read(directory().join("certs/ca.crt")).unwrap();
    let fixed = Config::for_server(&gateway.url()).unwrap();
    let fixed = fixed
        .with_authorities(authority)
        .with_token(&first)
        .unwrap();
    let fixed = Client::new(&fixed, ClientOptions::default()).unwrap();
    let expired = get::<Secret>(&fixed, "shop", "storefront-session").unwrap_err();
    assert_eq!(expired.kind(), ErrorKind::Unauthorized);
    assert!(
        expired.to_string().contains("the client cannot renew it"),
        "{expired}"
    );
}

/// No request went out without credentials, and only the wrong token was rejected.
fn check_requests() {
    let asked = asked_by("plugin-user");
    let rejected = asked.iter().filter(|asked| asked.code == 401).count();
    assert!(
        (1..=4).contains(&rejected),
        "{rejected} of {} rejected",
        asked.len()
    );
    // Without credentials the answer is 403, to system:anonymous. 422: the oldest server streams no
    // lists.
    let is_known = |asked: &&Asked| matches!(asked.code, 0 | 200 | 401 | 422);
    let others: Vec<_> = asked.iter().filter(|asked| !is_known(asked)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_plugins_client_certificate_reaches_the_server() {
    let _up = cluster();
    let server = std::env::var("KUBECACHE_CLUSTER_SERVER").unwrap();
    let certificate = |name: &str| {
        let path = directory().join("certs").join(name);
        [
            ("LIFE", "60".to_owned()),
            ("CERTIFICATE", path.display().to_string()),
        ]
    };
    let bed = Bed::new("certificate", &server, &certificate("admin"));
    get::<Secret>(&bed.client("plugin-admin"), "shop", "storefront-session").unwrap();
    let bed = Bed::new("stranger", &server, &certificate("nobody"));
    let refused = get::<Secret>(&bed.client("plugin-nobody"), "shop", "storefront-session");
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Forbidden);
    assert!(refused.to_string().contains("\"nobody\""), "{refused}");
}
