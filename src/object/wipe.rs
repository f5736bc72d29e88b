//! Removes the fields that a cache leaves out, and overwrites secrets before their memory is freed.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use zeroize::{Zeroize as _, Zeroizing};

/// The annotation in which kubectl keeps a copy of the whole object, including a Secret's values.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The least space of bytes that grow.
const BYTES_MIN: usize = 1024;

/// Removes the fields that only writers need from an object that the decoder did not trim (B19).
pub(crate) fn trim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    overwrite_copy(metadata);
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

/// Overwrites kubectl's copy of the whole object.
pub(crate) fn overwrite_copy(metadata: &mut ObjectMeta) {
    let annotations = metadata.annotations.as_mut();
    if let Some(copy) = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED)) {
        copy.zeroize();
    }
}

/// Overwrites the values of a Secret.
pub(super) fn overwrite(secret: &mut Secret) {
    for (_, value) in secret.data.iter_mut().flatten() {
        value.0.zeroize();
    }
    for (_, text) in secret.string_data.iter_mut().flatten() {
        text.zeroize();
    }
}

/// Appends to bytes that may be secret. A vector that grows by itself leaves a copy behind in freed
/// memory.
pub(crate) fn append(bytes: &mut Zeroizing<Vec<u8>>, piece: &[u8]) {
    let needed = bytes.len().saturating_add(piece.len());
    if needed > bytes.capacity() {
        let room = needed.max(bytes.capacity().saturating_mul(2));
        let mut larger = Zeroizing::new(Vec::with_capacity(room.max(BYTES_MIN)));
        larger.extend_from_slice(bytes);
        *bytes = larger;
    }
    bytes.extend_from_slice(piece);
}

/// Makes text of bytes that may be secret, and overwrites them if they are none.
pub(crate) fn text(mut bytes: Zeroizing<Vec<u8>>) -> Option<String> {
    let text = String::from_utf8(std::mem::take(&mut *bytes));
    text.map_err(|error| drop(Zeroizing::new(error.into_bytes())))
        .ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn overwriting_empties_every_value() {
        let mut secret = Secret {
            data: Some([("a".to_owned(), ByteString(b"canary".to_vec()))].into()),
            string_data: Some([("b".to_owned(), "canary".to_owned())].into()),
            ..Secret::default()
        };
        let applied = (LAST_APPLIED.to_owned(), "canary".to_owned());
        let other = ("a".to_owned(), "b".to_owned());
        secret.metadata.annotations = Some([applied, other].into());
        crate::object::Object::wipe(&mut secret);
        assert!(secret.data.unwrap()["a"].0.is_empty());
        assert!(secret.string_data.unwrap()["b"].is_empty());
        let annotations = secret.metadata.annotations.unwrap();
        assert!(annotations[LAST_APPLIED].is_empty());
        assert_eq!(annotations["a"], "b");
    }
}
