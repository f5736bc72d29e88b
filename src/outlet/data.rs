//! The data of an object by key, which is the content of its files.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::object::Object;

/// An object with data by key.
pub trait ObjectData: Object + Clone {
    /// The folder of its kind, such as `secrets`.
    const FOLDER: &'static str;

    /// Returns the bytes of each key.
    fn data(&self) -> BTreeMap<&str, &[u8]>;
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
