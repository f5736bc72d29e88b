//! Listers: LS-1 to LS-5.

use k8s_openapi::api::apps::v1::Deployment;

use super::*;
use crate::object::{LabelMatcher, LabelSelector};

fn in_namespace(namespace: &str, name: &str, labels: &[&str]) -> Arc<StoredObject<ConfigMap>> {
    let mut object = object(name, "1", labels);
    object.metadata.namespace =
        Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty());
    Arc::new(StoredObject::new(object))
}

fn filled(indexers: Indexers<ConfigMap>) -> Store<ConfigMap> {
    let (store, mut writer) = Store::new(indexers, Clock::system());
    for object in [
        in_namespace("shop", "a", &["web"]),
        in_namespace("shop", "b", &["db"]),
        in_namespace("bank", "a", &["web", "db"]),
        in_namespace("", "c", &[]),
    ] {
        add(&mut writer, object);
    }
    writer
        .apply(ObjectEvent::updated(undecodable("bad", "2")))
        .unwrap();
    store
}

fn labels(text: &str) -> LabelMatcher {
    LabelMatcher::parse(&LabelSelector::new(text)).unwrap()
}

fn found(objects: &[Arc<StoredObject<ConfigMap>>]) -> Vec<String> {
    let mut found: Vec<_> = objects
        .iter()
        .map(|object| object.key().to_string())
        .collect();
    found.sort();
    found
}

/// LS-1, `TestListAll`: a subset, all, none; undecodable objects are not listed.
#[test]
fn ls_1_a_list_by_labels() {
    let lister = filled(Indexers::new()).lister();
    assert_eq!(found(&lister.list(&labels("web"))), ["bank/a", "shop/a"]);
    assert_eq!(
        found(&lister.list(&labels(""))),
        ["bank/a", "c", "shop/a", "shop/b"]
    );
    assert!(lister.list(&labels("never")).is_empty());
    assert!(lister.list(&LabelMatcher::nothing()).is_empty());
}

/// LS-3: of one namespace, with the index and without; the empty namespace is all of them.
#[test]
fn ls_3_a_list_of_a_namespace() {
    for indexers in [Indexers::new().by_namespace(), Indexers::new()] {
        let lister = filled(indexers).lister();
        let shop = lister.namespace("shop");
        assert_eq!(found(&shop.list(&labels(""))), ["shop/a", "shop/b"]);
        assert_eq!(found(&shop.list(&labels("db"))), ["shop/b"]);
        assert!(shop.list(&LabelMatcher::nothing()).is_empty());
        assert!(lister.namespace("never").list(&labels("")).is_empty());
        assert_eq!(lister.namespace("").list(&labels("")).len(), 4);
    }
}

/// LS-4: a missing object is `NotFound` in the API's words, with the group if there is one.
#[test]
fn ls_4_an_object_that_is_not_there_is_not_found() {
    let shop = filled(Indexers::new()).lister().namespace("shop");
    assert_eq!(shop.get("a").unwrap().key().to_string(), "shop/a");
    let error = shop.get("never").unwrap_err();
    assert_eq!(error.to_string(), "configmap \"never\" not found");
    assert!(error.is_not_found());
    assert_eq!(shop.get("bad").unwrap_err().kind(), ErrorKind::Undecodable);

    let (store, _writer) = Store::<Deployment>::new(Indexers::new(), Clock::system());
    let error = store.lister().namespace("shop").get("web").unwrap_err();
    assert_eq!(error.to_string(), "deployment.apps \"web\" not found");
}

/// LS-5 is better here: the empty namespace finds cluster-scoped objects.
#[test]
fn ls_5_the_empty_namespace_finds_cluster_scoped_objects() {
    let lister = filled(Indexers::new()).lister();
    assert_eq!(lister.get("c").unwrap().key().to_string(), "c");
    assert_eq!(
        lister.namespace("").get("c").unwrap().key().to_string(),
        "c"
    );
    assert!(lister.get("a").unwrap_err().is_not_found());
}
