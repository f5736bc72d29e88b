//! The form of an answer: whole objects, metadata alone or a table, as the `Accept` header asks.

use std::borrow::Cow;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::refusal::Refusal;
use super::resources::ApiResource;
use super::storage::StoredVersion;
use super::tables::{self, TableObject, metadata_of};
use crate::sync::Arc;
use crate::testing::recording::Target;

/// How a server treats the parameter `drop=metadata.managedFields` in an `Accept` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropParameter {
    /// It leaves the managed fields out, as Kubernetes 1.38 does with the gate
    /// `ManagedFieldsOptOut`.
    #[default]
    Honored,
    /// It ignores the parameter, as kube-apiservers before 1.38 do.
    Ignored,
    /// It does not accept a media type with the parameter, and takes the next one.
    Refused,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnswerForm {
    shape: AnswerShape,
    drops_managed_fields: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerShape {
    Objects,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `PartialObjectMetadataList`.
    MetadataList,
    Table(TableObject),
}

/// The context of a table of one object.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableContext {
    /// The time of day, for ages.
    pub(super) now: SystemTime,
    /// Whether it names its columns; in a watch, only the first table does.
    pub(super) with_columns: bool,
}

/// A media type of an `Accept` header with its parameters.
struct MediaRange<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let parameters = parts.filter_map(|part| part.split_once('='));
        Self {
            name,
            parameters: parameters.collect(),
        }
    }

    fn parameter(&self, name: &str) -> &'a str {
        let found = self.parameters.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    fn is_json(&self) -> bool {
        matches!(self.name, "application/json" | "application/*" | "*/*" | "")
    }
}

/// The first media type of the header that `choose` takes.
fn first<T>(accept: &str, choose: impl Fn(&MediaRange<'_>) -> Option<T>) -> Option<T> {
    accept
        .split(',')
        .map(|text| MediaRange::parse(text.trim()))
        .find_map(|range| choose(&range))
}

/// Whether the header takes plain JSON.
pub(super) fn takes_json(accept: &str) -> bool {
    first(accept, |range| {
        (range.is_json() && range.parameter("as").is_empty()).then_some(())
    })
    .is_some()
}

/// Which version of aggregated discovery the header prefers to plain discovery.
pub(super) fn aggregated_version(accept: &str) -> Option<String> {
    first(accept, |range| {
        if !range.is_json() {
            return None;
        }
        match (
            range.parameter("g"),
            range.parameter("v"),
            range.parameter("as"),
        ) {
            ("apidiscovery.k8s.io", version @ ("v2" | "v2beta1"), "APIGroupDiscoveryList") => {
                Some(Some(version.to_owned()))
            }
            (_, _, "") => Some(None),
            _ => None,
        }
    })
    .flatten()
}

impl AnswerForm {
    /// The first form of the `Accept` header that the server has.
    pub(super) fn of(accept: &str, target: &Target, drop: DropParameter) -> Result<Self, Refusal> {
        let include = match target.value("includeObject") {
            Some("None") => TableObject::None,
            Some("Object") => TableObject::Whole,
            _ => TableObject::Metadata,
        };
        let form = first(accept, |range| {
            if !range.is_json() {
                return None;
            }
            let drops_managed_fields = match (drop, range.parameter("drop")) {
                (DropParameter::Ignored, _) | (_, "") => false,
                (DropParameter::Honored, "metadata.managedFields") => true,
                // 1.38 does not accept other fields either.
                (DropParameter::Honored | DropParameter::Refused, _) => return None,
            };
            let known = range.parameter("g") == "meta.k8s.io"
                && matches!(range.parameter("v"), "v1" | "v1beta1");
            let shape = match range.parameter("as") {
                "" => AnswerShape::Objects,
                "Table" if known => AnswerShape::Table(include),
                "PartialObjectMetadata" if known => AnswerShape::Metadata,
                "PartialObjectMetadataList" if known => AnswerShape::MetadataList,
                _ => return None,
            };
            Some(Self {
                shape,
                drops_managed_fields,
            })
        });
        form.ok_or_else(Refusal::not_acceptable)
    }

    /// Refuses the form of a list for one object.
    pub(super) fn check_object(self, resource: &ApiResource) -> Result<(), Refusal> {
        if !self.is_of_lists() {
            return Ok(());
        }
        Err(Refusal::other_form(&format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list \
             ({})",
            go_type(resource, "")
        )))
    }

    /// Refuses the form of one object for a list.
    pub(super) fn check_list(self, resource: &ApiResource) -> Result<(), Refusal> {
        if self.shape != AnswerShape::Metadata {
            return Ok(());
        }
        Err(Refusal::other_form(&format!(
            "you requested PartialObjectMetadata, but the requested object is a list ({})",
            go_type(resource, "List")
        )))
    }

    /// Whether no single object has the form.
    pub(super) fn is_of_lists(self) -> bool {
        self.shape == AnswerShape::MetadataList
    }

    /// The form of an object in the answer.
    fn told(self, object: &StoredVersion) -> Cow<'_, StoredVersion> {
        let lean = self
            .drops_managed_fields
            .then(|| object.without_managed_fields());
        lean.flatten().map_or(Cow::Borrowed(object), Cow::Owned)
    }

    /// One object.
    pub(super) fn write_object(
        self,
        resource: &ApiResource,
        object: &StoredVersion,
        table: TableContext,
        text: &mut Vec<u8>,
    ) {
        let object = &*self.told(object);
        match self.shape {
            AnswerShape::Objects => object.write_as(resource, text),
            AnswerShape::Metadata | AnswerShape::MetadataList => {
                text.extend_from_slice(metadata_of(object).to_string().as_bytes());
            }
            AnswerShape::Table(include) => {
                let rows = [object];
                let mut made = tables::table(resource, rows.into_iter(), include, table.now);
                set(
                    &mut made,
                    "metadata",
                    json!({"resourceVersion": object.version.to_string()}),
                );
                if !table.with_columns {
                    set(&mut made, "columnDefinitions", Value::Null);
                }
                text.extend_from_slice(made.to_string().as_bytes());
            }
        }
    }

    /// A list with its metadata.
    pub(super) fn write_list(
        self,
        resource: &ApiResource,
        metadata: &Value,
        objects: &[Arc<StoredVersion>],
        now: SystemTime,
    ) -> Vec<u8> {
        let mut text = Vec::new();
        let objects: Vec<_> = objects.iter().map(|object| self.told(object)).collect();
        match self.shape {
            AnswerShape::Objects => {
                text.extend_from_slice(
                    format!(
                        r#"{{"kind":{},"apiVersion":{},"metadata":{metadata},"items":["#,
                        Value::from(resource.list_kind()),
                        Value::from(resource.api_version())
                    )
                    .as_bytes(),
                );
                for (index, object) in objects.iter().enumerate() {
                    if index > 0 {
                        text.push(b',');
                    }
                    object.write_item(resource, &mut text);
                }
                text.extend_from_slice(b"]}");
            }
            AnswerShape::Metadata | AnswerShape::MetadataList => {
                let items: Vec<_> = objects.iter().map(|object| metadata_of(object)).collect();
                // In this form, the server's empty list has no items field.
                let items = (!items.is_empty()).then_some(items);
                let list = json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                    "items": items,
                });
                text.extend_from_slice(list.to_string().as_bytes());
            }
            AnswerShape::Table(include) => {
                let rows = objects.iter().map(|object| &**object);
                let mut table = tables::table(resource, rows, include, now);
                set(&mut table, "metadata", metadata.clone());
                text.extend_from_slice(table.to_string().as_bytes());
            }
        }
        text
    }

    /// The object of a bookmark.
    pub(super) fn bookmark(self, resource: &ApiResource, metadata: &Value) -> Value {
        let (kind, api_version) = match self.shape {
            AnswerShape::Objects => (resource.kind(), resource.api_version()),
            AnswerShape::Metadata | AnswerShape::MetadataList => {
                ("PartialObjectMetadata", "meta.k8s.io/v1")
            }
            AnswerShape::Table(_) => {
                let (rows, now) = (std::iter::empty(), SystemTime::UNIX_EPOCH);
                let mut table = tables::table(resource, rows, TableObject::None, now);
                set(&mut table, "metadata", metadata.clone());
                set(&mut table, "columnDefinitions", Value::Null);
                return table;
            }
        };
        json!({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    }
}

/// The type that the server's words name.
fn go_type(resource: &ApiResource, suffix: &str) -> String {
    if !resource.traits().is_built_in {
        return format!("*unstructured.Unstructured{suffix}");
    }
    let group = resource.group().split('.').next().unwrap_or_default();
    let package = if group.is_empty() { "core" } else { group };
    format!("*{package}.{}{suffix}", resource.kind())
}

fn set(value: &mut Value, field: &str, to: Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(field.to_owned(), to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(accept: &str) -> Result<AnswerShape, u16> {
        shape_and_drop(accept, DropParameter::default()).map(|(shape, _)| shape)
    }

    fn shape_and_drop(accept: &str, drop: DropParameter) -> Result<(AnswerShape, bool), u16> {
        let form = AnswerForm::of(accept, &Target::parse("/x"), drop);
        let form = form.map_err(|refusal| refusal.code)?;
        Ok((form.shape, form.drops_managed_fields))
    }

    #[test]
    fn managed_fields_are_dropped_where_the_server_honors_that() {
        use DropParameter::{Honored, Ignored, Refused};
        let (drop, other) = ("application/json;drop=metadata.managedFields", "drop=spec");
        let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let both = format!("{metadata};drop=metadata.managedFields,{metadata}");
        let two = format!("application/json;{other},application/json");
        let rows = [
            (drop, Honored, Ok((AnswerShape::Objects, true))),
            (drop, Ignored, Ok((AnswerShape::Objects, false))),
            (drop, Refused, Err(406)),
            (&both, Honored, Ok((AnswerShape::Metadata, true))),
            (&both, Refused, Ok((AnswerShape::Metadata, false))),
            (&two, Honored, Ok((AnswerShape::Objects, false))),
        ];
        for (accept, drop, expected) in rows {
            assert_eq!(shape_and_drop(accept, drop), expected, "{accept} {drop:?}");
        }
        assert_eq!(form(&format!("application/json;{other}")), Err(406));
    }

    #[test]
    fn the_first_form_that_the_server_has_is_given() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let protobuf = "application/vnd.kubernetes.protobuf";
        assert_eq!(form(""), Ok(AnswerShape::Objects));
        assert_eq!(form("*/*"), Ok(AnswerShape::Objects));
        assert_eq!(
            form(&format!("{protobuf},application/json")),
            Ok(AnswerShape::Objects)
        );
        assert_eq!(form(protobuf), Err(406));
        let with_table = form(&format!("{table},application/json"));
        assert_eq!(with_table, Ok(AnswerShape::Table(TableObject::Metadata)));
        assert_eq!(
            form(&format!("{protobuf};{metadata},{metadata}")),
            Ok(AnswerShape::MetadataList)
        );
        assert_eq!(
            form("application/json;as=Table;v=v9;g=meta.k8s.io"),
            Err(406)
        );
    }

    #[test]
    fn aggregated_discovery_is_given_to_those_who_prefer_it() {
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let both = format!("{aggregated},application/json");
        assert_eq!(aggregated_version(&both).as_deref(), Some("v2"));
        assert_eq!(aggregated_version("application/json"), None);
        assert!(takes_json(&both) && !takes_json(aggregated));
    }
}
