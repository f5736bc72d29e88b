//! kubecache's side, and the floors: what nobody can do without.

mod collection;
mod floor;
#[path = "../../../readers/load.rs"]
mod load;
#[path = "../../marks.rs"]
mod marks;
#[path = "../../medians.rs"]
mod medians;
mod readers;
#[path = "../../../reads/mod.rs"]
mod reads;
mod waiters;
mod watches;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kubecache::Compact;
use kubecache::http::{Client, ClientOptions, Config};

use marks::Task;

fn main() {
    let task = Task::from_arguments();
    let resource = task.resource.as_str();
    match (task.scenario.as_str(), task.way.as_str(), resource) {
        ("collection", "typed" | "raw", "configmaps") => floor::collection::<ConfigMap>(&task),
        ("collection", "typed" | "raw", "pods") => floor::collection::<Pod>(&task),
        ("collection", "compact", "configmaps") => collection::run::<Compact<ConfigMap>>(&task),
        ("collection", "compact", "pods") => collection::run::<Compact<Pod>>(&task),
        ("collection", _, "configmaps") => collection::run::<ConfigMap>(&task),
        ("collection", _, "pods") => collection::run::<Pod>(&task),
        ("watches", "threads", _) => floor::watches(&task),
        ("watches", _, _) => watches::run(&task),
        ("store", "mutex", _) => floor::reads(&task),
        ("store", _, _) => watches::store(&task),
        ("waiters", way, _) => waiters::run(way),
        ("readers", _, _) => readers::run(&task),
        (other, ..) => panic!("unknown scenario {other}"),
    }
}

/// A client whose rate limit is out of the way, as it is for the others.
fn client(task: &Task) -> Client {
    let config = Config::for_server(&task.url).unwrap();
    let authority = std::fs::read(&task.authority).unwrap();
    let rate = 100_000.try_into().unwrap();
    let options = ClientOptions::default().rate(rate).burst(rate);
    Client::new(&config.with_authorities(authority), options).unwrap()
}
