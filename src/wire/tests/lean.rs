//! A user's own lean type: it has three fields, no `Debug`, and does not check `kind` itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Metadata, Resource};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::*;

struct LeanNode {
    metadata: ObjectMeta,
    taints: Vec<String>,
}

impl Resource for LeanNode {
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "Node";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "nodes";
    type Scope = ClusterResourceScope;
}

impl Metadata for LeanNode {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<'de> Deserialize<'de> for LeanNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = LeanNode;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a node")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LeanNode, A::Error> {
                let (mut metadata, mut taints) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match &*key {
                        "metadata" => metadata = Some(map.next_value()?),
                        "taints" => taints = Some(map.next_value()?),
                        _ => drop(map.next_value::<serde::de::IgnoredAny>()?),
                    }
                }
                Ok(LeanNode {
                    metadata: metadata.unwrap_or_default(),
                    taints: taints.ok_or_else(|| A::Error::missing_field("taints"))?,
                })
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[test]
fn it_is_decoded_trimmed_and_told_apart_from_other_kinds() {
    let body = r#"{"items":[
        {"metadata":{"name":"a","managedFields":[{"manager":"m"}]},"taints":["x"],
         "spec":{"more":[1]}},
        {"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"},"taints":[]},
        {"metadata":{"name":"c"}},
        {"taints":["CANARY",7],"metadata":{"name":"d"}},
        {"metadata":{"name":"e"},"taints":[]}]}"#;
    let mut decoder = ListDecoder::<LeanNode>::new(&DecodeOptions::default());
    let mut items = Vec::new();
    feed(&mut decoder, body.as_bytes(), &mut |item| {
        items.push(match item {
            Listed::Object(node) => {
                assert!(node.metadata.managed_fields.is_none());
                format!("{:?} {:?}", *node, node.taints)
            }
            aside @ Listed::Undecodable(_) => describe(aside),
        });
    })
    .unwrap();
    decoder.finish().unwrap();
    assert_eq!(
        items,
        [
            "Node a @ [\"x\"]",
            "aside b: Node b does not decode: it is v1 Pod, not v1 Node",
            "aside c: Node c does not decode: missing field `taints`",
            "aside d: Node d does not decode: taints[1]: invalid type: integer, expected a string",
            "Node e @ []",
        ]
    );
    let event = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"b"},"taints":[]}}"#;
    assert_eq!(
        watch_of::<LeanNode>([format!("{event}\n")], &DecodeOptions::default()),
        ["skipped @: Unexpected watch event object gvk: Pod"]
    );
}
