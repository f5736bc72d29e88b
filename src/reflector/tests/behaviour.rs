//! The driver's part of the behaviours: what is sent, what reaches the store, what a stop ends, what readers are told.

use super::*;
use crate::ErrorKind;
use crate::clock::Deadline;
use crate::list_watch::WatchEvent;
use crate::object::Held;
use crate::reflector::Phase;
use crate::testing::{RequestKind, SourceFault};
use crate::worker::Worker;

fn held(name: &str, uid: &str, resource_version: &str) -> Arc<Held<ConfigMap>> {
    let mut object = objects::config_map("shop", name, resource_version, &[("value", "sent")]);
    object.metadata.uid = Some(uid.to_owned());
    Arc::new(Held::new(object))
}

fn value(store: &Store<ConfigMap>, name: &str) -> Option<String> {
    let object = store.get("shop", name).unwrap()?;
    object.data.as_ref()?.get("value").cloned()
}

/// Waits until the store has taken in everything the server has.
fn catch_up(world: &World, store: &Store<ConfigMap>) {
    let target = version(world.source.version());
    store.wait_until_at_least(&target, Deadline::NEVER).unwrap();
}

/// TestReflectorListAndWatch: list, then events into the store; the watch starts at the list's version.
#[test]
fn a_list_and_then_a_watch_fill_the_store() {
    let world = World::new();
    let listed = world.set("a", "1");
    let (store, reflector) = world.synced();
    assert_eq!(
        world.requests(),
        ["list 0".to_owned(), format!("watch {listed}")]
    );
    world.set("b", "2");
    catch_up(&world, &store);
    assert_eq!(value(&store, "b").as_deref(), Some("2"));
    world.source.delete("shop", "a").unwrap();
    catch_up(&world, &store);
    assert_eq!(value(&store, "a"), None);
    assert_eq!(reflector.status().phase, Phase::Watching);
    assert_eq!(reflector.join(), Ok(()));
}
