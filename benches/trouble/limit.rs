//! How long a read waits behind 900 registrations that the client's rate limit spreads over 16
//! seconds.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::list_watch::Getter;
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::object::{ObjectKey, ResourceVersion};
use kubecache::testing::objects;
use kubecache::worker::StopToken;

use super::{client, now, server};

const REGISTRATIONS: usize = 900;
const BUDGET: Duration = Duration::from_secs(1);

pub(crate) fn run() -> bool {
    let url = server::start(|_, request, socket| {
        server::answer(request, socket);
        true
    });
    let client = client(&url);
    let getter: std::sync::Arc<dyn Getter<Secret>> = client.getter();
    let options = ManagerOptions::default().idle_max(Duration::from_secs(60 * 60));
    let manager = SecretManager::new(client, options).unwrap();
    for number in 0..REGISTRATIONS {
        let name = format!("s-{number}");
        manager.register_pod(&objects::pod("shop", &name, "node-1", &[&name], &[]));
    }
    let begun = now();
    let read = getter.get(
        &ObjectKey::new("shop", "read"),
        &ResourceVersion::most_recent(),
        Clock::system().after(Duration::from_secs(60)),
        &StopToken::never(),
    );
    read.unwrap();
    let took = begun.elapsed();
    println!("  a get behind {REGISTRATIONS} registrations: {took:.2?} (budget {BUDGET:?})");
    took <= BUDGET
}
