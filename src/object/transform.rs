//! A function of the program that changes each object before a cache holds it.

use super::{Object, StoredObject};
use crate::error::{Error, ErrorKind, clone_of};
use crate::guard::guard_call;
use crate::sync::Arc;

/// Changes objects, except their namespace and name.
pub(crate) struct Transform<K: Object>(
    #[expect(clippy::type_complexity, reason = "named by the type it is in")]
    Arc<dyn Fn(Arc<StoredObject<K>>) -> Result<Arc<StoredObject<K>>, Error> + Send + Sync>,
);

impl<K: Object> Transform<K> {
    pub(crate) fn new(
        transform: impl Fn(Arc<StoredObject<K>>) -> Result<Arc<StoredObject<K>>, Error>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(transform))
    }

    /// # Errors
    ///
    /// The function's own error, `Panicked` if it panics, `Config` if it changes the object's key.
    pub(crate) fn apply(
        &self,
        object: Arc<StoredObject<K>>,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let key = object.key();
        let transformed = guard_call(format_args!("the transform of {key}"), || (self.0)(object));
        let object = transformed.map_err(|error| error.context("transforming"))?;
        if object.key() == key {
            return Ok(object);
        }
        let text = format!("transforming: {key} became {}", object.key());
        Err(Error::new(ErrorKind::Config, text))
    }
}

clone_of!([K: Object] Transform<K>: 0);
