//! The data of an object, by key: what a program reads of it, and what its files hold.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::{Object, StoredObject, resource_name};
use crate::error::{Error, ErrorKind};

/// An object with keys of data.
pub trait ObjectData: Object + Clone {
    /// The folder of its kind, such as `secrets`.
    const FOLDER: &'static str;

    /// Returns the bytes of each key.
    fn data(&self) -> BTreeMap<&str, &[u8]>;
}

impl<K: ObjectData> StoredObject<K> {
    /// Returns the bytes of a key.
    ///
    /// # Errors
    ///
    /// `NotFound`: the object has no such key. The error names the object and the keys that it has,
    /// and never a value.
    ///
    /// # Examples
    ///
    /// ```
    /// use kubecache::object::StoredObject;
    /// use kubecache::testing::objects;
    ///
    /// let secret = StoredObject::new(objects::secret("shop", "db", "7", &[("password", "1234")]));
    /// assert_eq!(secret.value("password")?, b"1234");
    /// assert_eq!(secret.text("password")?, "1234");
    /// let error = secret.value("user").unwrap_err().to_string();
    /// assert_eq!(error, "secret shop/db has no key \"user\"; it has \"password\"");
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn value(&self, key: &str) -> Result<&[u8], Error> {
        let data = self.data();
        data.get(key).copied().ok_or_else(|| {
            let keys: Vec<_> = data.keys().map(|key| format!("{key:?}")).collect();
            let keys = keys.join(", ");
            let has = if keys.is_empty() { "none" } else { &keys };
            let text = format!("{} has no key {key:?}; it has {has}", self.named());
            Error::new(ErrorKind::NotFound, text)
        })
    }

    /// Returns the text of a key.
    ///
    /// # Errors
    ///
    /// Those of [`value`](Self::value). `Undecodable`: the bytes are not UTF-8.
    pub fn text(&self, key: &str) -> Result<&str, Error> {
        std::str::from_utf8(self.value(key)?).map_err(|error| {
            let text = format!("{}: the key {key:?} is no text", self.named());
            Error::new(ErrorKind::Undecodable, text).with_source(error)
        })
    }

    fn named(&self) -> String {
        format!("{} {}", resource_name::<K>(), self.key())
    }
}

impl ObjectData for Secret {
    const FOLDER: &'static str = "secrets";

    fn data(&self) -> BTreeMap<&str, &[u8]> {
        bytes(self.data.as_ref()).collect()
    }
}

impl ObjectData for ConfigMap {
    const FOLDER: &'static str = "configmaps";

    fn data(&self) -> BTreeMap<&str, &[u8]> {
        let texts = self.data.iter().flatten();
        let texts = texts.map(|(key, text)| (key.as_str(), text.as_bytes()));
        texts.chain(bytes(self.binary_data.as_ref())).collect()
    }
}

fn bytes(data: Option<&BTreeMap<String, ByteString>>) -> impl Iterator<Item = (&str, &[u8])> {
    let data = data.into_iter().flatten();
    data.map(|(key, ByteString(bytes))| (key.as_str(), bytes.as_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_named_by_object_and_key_alone() {
        let mut secret = Secret::default();
        secret.metadata.namespace = Some("shop".to_owned());
        secret.metadata.name = Some("db".to_owned());
        let value = ByteString(vec![b'C', 0xff]);
        secret.data = Some([("password".to_owned(), value)].into_iter().collect());
        let secret = StoredObject::new(secret);
        let error = secret.text("password").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Undecodable);
        let text = "secret shop/db: the key \"password\" is no text";
        assert_eq!(error.to_string(), text);
        let error = secret.text("user").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let text = "secret shop/db has no key \"user\"; it has \"password\"";
        assert_eq!(error.to_string(), text);
    }
}
