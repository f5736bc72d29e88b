//! A kubeconfig that is written anew while the server ends what stood in it before.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions, Request};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::object::{ObjectKey, Scope};
use serde_json::{Value, json};

use super::gateway::Gateway;
use super::support::*;
use crate::support::TempDirectory;

const NAMESPACE: &str = "rotation";
const RBAC: &str = "rbac.authorization.k8s.io";

fn soon() -> Deadline {
    Clock::system().after(PATIENCE)
}

/// Creates an object, which an earlier run may have left.
fn create(admin: &Client, path: &str, object: &Value) -> Value {
    let request = Request::new("POST", path).json(object).unwrap();
    match admin.send(&request, soon()) {
        Err(error) if error.status().is_some_and(|status| status.code() == 409) => Value::Null,
        created => created.unwrap().json().unwrap(),
    }
}

/// A token that is valid while the Secret of that name is there.
fn token(admin: &Client, secret: &str) -> String {
    let core = format!("/api/v1/namespaces/{NAMESPACE}");
    let account = json!({"metadata": {"name": "rotating"}});
    create(
        admin,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": NAMESPACE}}),
    );
    create(admin, &format!("{core}/serviceaccounts"), &account);
    create(
        admin,
        &format!("{core}/secrets"),
        &json!({"metadata": {"name": secret}}),
    );
    let bound = json!({"kind": "Secret", "apiVersion": "v1", "name": secret});
    let asked = json!({"spec": {"audiences": [], "boundObjectRef": bound}});
    let path = format!("{core}/serviceaccounts/rotating/token");
    let given = create(admin, &path, &asked);
    given["status"]["token"].as_str().unwrap().to_owned()
}

fn write(directory: &Path, user: &str) {
    let server = std::env::var("KUBECACHE_CLUSTER_SERVER").unwrap();
    write_for(directory, user, &server);
}

fn write_for(directory: &Path, user: &str, server: &str) {
    let authority = self::directory().join("certs/ca.crt");
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: '{server}', certificate-authority: '{}'}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
        authority.display()
    );
    // As tools do: the file is replaced in one step.
    fs::write(directory.join("new"), text).unwrap();
    fs::rename(directory.join("new"), directory.join("config")).unwrap();
}

fn client(directory: &Path) -> Client {
    let options = KubeconfigOptions::default().path(directory.join("config"));
    Client::new(
        &Config::from_kubeconfig(&options).unwrap(),
        ClientOptions::default(),
    )
    .unwrap()
}

/// As whom the server knows the client.
fn who(client: &Client) -> String {
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let request = Request::new("POST", path).json(&review).unwrap();
    let answer: Value = client.send(&request, soon()).unwrap().json().unwrap();
    let name = &answer["status"]["userInfo"]["username"];
    name.as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_client_goes_on_when_its_kubeconfig_is_rotated_and_the_old_token_is_revoked() {
    let _up = cluster();
    let admin = client_of("admin.yaml");
    let stage = TempDirectory::new("rotation-token");
    let name = format!("system:serviceaccount:{NAMESPACE}:rotating");
    write(&stage, &format!("token: {}", token(&admin, "first")));
    let client = client(&stage);
    assert_eq!(who(&client), name);
    write(&stage, &format!("token: {}", token(&admin, "second")));
    let revoked = format!("/api/v1/namespaces/{NAMESPACE}/secrets/first");
    admin
        .send(&Request::new("DELETE", revoked), soon())
        .unwrap();
    // The server forgets what it knows of a token within some ten seconds.
    let limit = soon();
    while client.credentials_status().unwrap().runs == 0 {
        assert!(
            !Clock::system().has_passed(limit),
            "the server still takes the old token"
        );
        assert_eq!(who(&client), name);
    }
    assert_eq!(who(&client), name);
    assert_eq!(client.credentials_status().unwrap().runs, 1);
}

/// Its watch is cut off again and again, so that it asks for another one.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn an_informer_follows_while_its_kubeconfig_is_rotated_and_the_old_token_is_revoked() {
    let _up = cluster();
    let admin = client_of("admin.yaml");
    let stage = TempDirectory::new("rotation-informer");
    let way = Gateway::start();
    let write = |token: &str| write_for(&stage, &format!("token: {token}"), &way.url());
    write(&token(&admin, "third"));
    let subject = json!({"kind": "ServiceAccount", "name": "rotating", "namespace": NAMESPACE});
    let role = json!({"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": RBAC});
    let binding = json!({"metadata": {"name": "rotating"}, "roleRef": role, "subjects": [subject]});
    let bindings = format!("/apis/{RBAC}/v1/namespaces/{NAMESPACE}/rolebindings");
    create(&admin, &bindings, &binding);
    let client = client(&stage);
    let source = watcher::<ConfigMap>(&client, Scope::namespace(NAMESPACE));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    informer.wait_until_synced(soon()).unwrap();

    write(&token(&admin, "fourth"));
    let core = format!("/api/v1/namespaces/{NAMESPACE}");
    let revoked = Request::new("DELETE", format!("{core}/secrets/third"));
    admin.send(&revoked, soon()).unwrap();
    let limit = soon();
    let reads = || client.credentials_status().unwrap().runs;
    for number in 0.. {
        let was_read = reads() > 0;
        way.close();
        way.open();
        let name = format!("seen-{number}");
        let object = json!({"metadata": {"name": name}});
        create(&admin, &format!("{core}/configmaps"), &object);
        let key = ObjectKey::new(NAMESPACE, name.as_str());
        let seen = informer.wait_until(&key, |object| object.is_some(), soon());
        seen.unwrap();
        if was_read {
            break;
        }
        let is_late = Clock::system().has_passed(limit);
        assert!(!is_late, "the server still takes the old token");
    }
    assert_eq!(reads(), 1);
    let all = Request::new("DELETE", format!("{core}/configmaps"));
    admin.send(&all, soon()).unwrap();
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_client_goes_on_when_its_kubeconfig_is_rotated_and_the_old_certificate_is_invalid() {
    let _up = cluster();
    let stage = TempDirectory::new("rotation-certificate");
    let inline = |certificate: &Path, key: &Path| {
        let [certificate, key] =
            [certificate, key].map(|path| STANDARD.encode(fs::read(path).unwrap()));
        format!("client-certificate-data: {certificate}, client-key-data: {key}")
    };
    let foreign = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/certs");
    let foreign = ["pem", "key"].map(|end| foreign.join(format!("client-one.{end}")));
    write(&stage, &inline(&foreign[0], &foreign[1]));
    let client = client(&stage);
    let certs = directory().join("certs");
    write(
        &stage,
        &inline(&certs.join("admin.crt"), &certs.join("admin.key")),
    );
    assert_eq!(who(&client), "cluster-admin");
    assert_eq!(client.credentials_status().unwrap().runs, 1);
}
