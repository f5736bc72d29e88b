//! An event that the server has sent, and may send again.

use k8s_openapi::api::core::v1::ConfigMap;

use crate::object::StoredObject;
use crate::sync::Arc;

/// An event that the server may repeat.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) version: u64,
    pub(super) object: Arc<StoredObject<ConfigMap>>,
    pub(super) is_deletion: bool,
}
