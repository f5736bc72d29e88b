//! A stock controller of kube-rs, for the tests of the API server in memory: it writes what it
//! reconciles to its output, and marks each object with a merge patch.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Config, ResourceExt as _};

async fn reconcile(map: Arc<ConfigMap>, api: Arc<Api<ConfigMap>>) -> Result<Action, Infallible> {
    let data = map.data.as_ref();
    let value = data.and_then(|data| data.get("k")).cloned().unwrap_or_default();
    let mark = serde_json::json!({"metadata": {"annotations": {"example.com/seen": &value}}});
    let patched = api.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(&mark)).await;
    if let Err(error) = patched {
        println!("failed {}: {error}", map.name_any());
        return Ok(Action::requeue(Duration::from_millis(100)));
    }
    println!("reconciled {} {value}", map.name_any());
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("the URL of the server");
    let config = Config::new(url.parse().expect("a URL"));
    let client = Client::try_from(config).expect("a client");
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let policy = |_: Arc<ConfigMap>, _: &Infallible, _: Arc<Api<ConfigMap>>| {
        Action::requeue(Duration::from_secs(1))
    };
    Controller::new(api.clone(), watcher::Config::default())
        .run(reconcile, policy, Arc::new(api))
        .for_each(|done| async move {
            if let Err(error) = done {
                println!("error {error}");
            }
        })
        .await;
}
