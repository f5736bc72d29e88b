//! Discovery: the server's version, its groups, and the kinds of each, one by one or all at once.

use serde_json::{Value, json};

use super::resources::{ApiResource, KindRegistry};
use crate::sync::Arc;

/// The release that the server reports.
const RELEASE: &str = "v1.37.2";

pub(super) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "gitVersion": format!("{RELEASE}+kubecache.testing"),
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

/// `/api`.
pub(super) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub(super) fn groups(registry: &KindRegistry) -> Value {
    let groups: Vec<_> = registry
        .groups()
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| group_value(group, &versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(super) fn group(registry: &KindRegistry, name: &str) -> Option<Value> {
    let groups = registry.groups();
    let (_, versions) = groups.iter().find(|(group, _)| *group == name)?;
    let mut group = group_value(name, versions);
    if let Some(fields) = group.as_object_mut() {
        fields.insert("kind".to_owned(), Value::from("APIGroup"));
        fields.insert("apiVersion".to_owned(), Value::from("v1"));
    }
    Some(group)
}

fn group_value(group: &str, versions: &[&str]) -> Value {
    let told: Vec<_> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": told.first(), "versions": told})
}

/// The verbs of a kind, in the server's order.
fn verbs(resource: &ApiResource) -> Vec<&'static str> {
    let all = if resource.traits().is_built_in {
        [
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
    } else {
        [
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ]
    };
    let has = |verb: &&str| *verb != "deletecollection" || resource.deletes_collections();
    all.into_iter().filter(has).collect()
}

/// `/api/v1`, `/apis/GROUP/VERSION`.
pub(super) fn resources(registry: &KindRegistry, group: &str, version: &str) -> Option<Value> {
    let mut told = Vec::new();
    let mut api_version = None;
    for resource in registry.of_version(group, version) {
        api_version = Some(resource.api_version().to_owned());
        told.push(resource_value(resource));
        if resource.traits().has_status {
            told.push(json!({
                "name": format!("{}/status", resource.plural()),
                "singularName": "",
                "namespaced": resource.is_namespaced(),
                "kind": resource.kind(),
                "verbs": ["get", "patch", "update"],
            }));
        }
    }
    let api_version = api_version?;
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": told,
    }))
}

fn resource_value(resource: &ApiResource) -> Value {
    let mut told = json!({
        "name": resource.plural(),
        "singularName": resource.singular_name(),
        "namespaced": resource.is_namespaced(),
        "kind": resource.kind(),
        "verbs": verbs(resource),
    });
    if let Some(fields) = told.as_object_mut() {
        if !resource.short_names().is_empty() {
            fields.insert("shortNames".to_owned(), json!(resource.short_names()));
        }
        if !resource.categories().is_empty() {
            fields.insert("categories".to_owned(), json!(resource.categories()));
        }
    }
    told
}

/// `/api` or `/apis`, for clients that ask for all at once.
pub(super) fn aggregated(registry: &KindRegistry, is_core: bool, version: &str) -> Value {
    let groups = registry.groups();
    let groups = groups
        .iter()
        .filter(|(group, _)| group.is_empty() == is_core);
    let items: Vec<_> = groups
        .map(|(group, versions)| {
            let versions: Vec<_> = versions
                .iter()
                .map(|version| {
                    let of_version = registry.of_version(group, version);
                    let resources: Vec<_> = of_version.map(aggregated_resource).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if is_core {
                json!({})
            } else {
                json!({"name": group})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(resource: &Arc<ApiResource>) -> Value {
    // The server names no group for its own types: it is the group of the list.
    let (group, version) = if resource.traits().is_built_in {
        ("", "")
    } else {
        (resource.group(), resource.version())
    };
    let kind = json!({"group": group, "version": version, "kind": resource.kind()});
    let scope = if resource.is_namespaced() {
        "Namespaced"
    } else {
        "Cluster"
    };
    let mut told = json!({
        "resource": resource.plural(),
        "responseKind": kind,
        "scope": scope,
        "singularResource": resource.singular_name(),
        "verbs": verbs(resource),
    });
    if let Some(fields) = told.as_object_mut() {
        if !resource.short_names().is_empty() {
            fields.insert("shortNames".to_owned(), json!(resource.short_names()));
        }
        if !resource.categories().is_empty() {
            fields.insert("categories".to_owned(), json!(resource.categories()));
        }
        if resource.traits().has_status {
            let status = json!({
                "subresource": "status",
                "responseKind": kind,
                "verbs": ["get", "patch", "update"],
            });
            fields.insert("subresources".to_owned(), json!([status]));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;

    #[test]
    fn a_kind_is_in_all_forms_of_discovery() {
        let mut registry = KindRegistry::built_in();
        let racks = Resource::new("example.com", "v1", "racks", "Rack").cluster_scoped();
        registry.register(ApiResource::new(racks).short_name("rk").with_status());
        let list = resources(&registry, "example.com", "v1").unwrap();
        assert_eq!(list["groupVersion"], "example.com/v1");
        assert_eq!(list["resources"][0]["shortNames"], json!(["rk"]));
        assert_eq!(list["resources"][1]["name"], "racks/status");
        let groups = groups(&registry);
        let names: Vec<_> = groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"example.com") && !names.contains(&""));
        let all = aggregated(&registry, false, "v2");
        let items = all["items"].as_array().unwrap();
        let group = items
            .iter()
            .find(|item| item["metadata"]["name"] == "example.com")
            .unwrap();
        let rack = &group["versions"][0]["resources"][0];
        assert_eq!(
            (&rack["resource"], &rack["scope"]),
            (&json!("racks"), &json!("Cluster"))
        );
        assert!(resources(&registry, "example.com", "v2").is_none());
    }
}
