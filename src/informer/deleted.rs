//! A typed delete: the last known object, and whether that was the object's final state.

use crate::error::{clone_of, debug_of};
use crate::object::{Object, ObjectKey, StoredObject};
use crate::sync::Arc;

/// The delete of an object: its last known state, and whether that was the final one.
///
/// A handler gets every delete as this type, and the object is always there. client-go has an
/// untyped value here, which may be a tombstone (`DeletedFinalStateUnknown`).
#[doc(alias("DeletedFinalStateUnknown", "DeletedObject"))]
#[expect(clippy::exhaustive_structs, reason = "this is what a delete tells")]
pub struct Deleted<K: Object> {
    /// The newest state of the object that the informer received.
    pub last_known: Arc<StoredObject<K>>,
    /// Whether `last_known` is the state in which the object was deleted, as the watch reported it.
    ///
    /// `false` when the watch did not report the delete: the object was missing from a later list,
    /// or another object had its name. The object may have changed before its end. Objects of the
    /// same name may have come and gone since.
    pub final_state_known: bool,
}

impl<K: Object> Deleted<K> {
    /// Makes a delete that the watch reported, with the object's final state.
    pub fn seen(last_known: Arc<StoredObject<K>>) -> Self {
        Self {
            last_known,
            final_state_known: true,
        }
    }

    /// Makes a delete that no watch reported: the object is gone, and this is its last known state.
    pub fn missed(last_known: Arc<StoredObject<K>>) -> Self {
        Self {
            last_known,
            final_state_known: false,
        }
    }

    /// Returns namespace and name of the object. Nothing is parsed, so it cannot fail.
    pub fn key(&self) -> ObjectKey {
        self.last_known.key()
    }
}

clone_of!([K: Object] Deleted<K>: last_known, final_state_known);

debug_of!([K: Object] Deleted<K>, |it|
    last_known: it.last_known, final_state_known: it.final_state_known);

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn last_known() -> Arc<StoredObject<Secret>> {
        let metadata = ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some("db".to_owned()),
            resource_version: Some("7".to_owned()),
            ..ObjectMeta::default()
        };
        Arc::new(StoredObject::new(Secret {
            metadata,
            string_data: Some([("password".to_owned(), "canary".to_owned())].into()),
            ..Secret::default()
        }))
    }

    #[test]
    fn key_6_a_delete_has_the_key_of_its_object_seen_or_missed() {
        for deleted in [Deleted::seen(last_known()), Deleted::missed(last_known())] {
            assert_eq!(deleted.key(), ObjectKey::new("shop", "db"));
        }
    }

    /// `TestDeletionHandlingObjectToName`, `TestDeletedObjectGetObjectName`,
    /// `TestDeletedObjectGetKey`: there a tombstone's key is text, and splitting it at its slashes
    /// may fail.
    #[test]
    fn key_7_key_8_the_key_of_a_delete_is_the_objects_own_whatever_stands_in_it() {
        let rows = [
            (Some("shop"), Some("db"), "shop/db"),
            (None, Some("node-1"), "node-1"),
            (Some("shop"), Some("a/b/c"), "shop/a/b/c"),
            (None, Some("/"), "/"),
            (Some("shop"), None, "shop/"),
            (None, None, ""),
        ];
        for (namespace, name, text) in rows {
            let metadata = ObjectMeta {
                namespace: namespace.map(str::to_owned),
                name: name.map(str::to_owned),
                ..ObjectMeta::default()
            };
            let object = Arc::new(StoredObject::new(Secret {
                metadata,
                ..Secret::default()
            }));
            for deleted in [Deleted::seen(Arc::clone(&object)), Deleted::missed(object)] {
                let expected =
                    ObjectKey::new(namespace.unwrap_or_default(), name.unwrap_or_default());
                assert_eq!(deleted.key(), expected);
                assert_eq!(deleted.key().to_string(), text);
            }
        }
    }

    #[test]
    fn b13_a_delete_says_whether_it_was_seen_and_prints_no_value() {
        let text = format!("{:?}", Deleted::missed(last_known()));
        assert_eq!(
            text,
            "Deleted { last_known: Secret shop/db @7, final_state_known: false }"
        );
        assert!(Deleted::seen(last_known()).final_state_known);
    }
}
