//! The OpenAPI that kubectl requires before it writes: the kinds of each group, and
//! `fieldValidation` for patches. It does not describe fields.

use serde_json::{Map, Value, json};

use super::resources::{ApiResource, KindRegistry};

/// `/openapi/v3`: the locations of the groups' descriptions.
pub(super) fn index(registry: &KindRegistry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let path = match group {
                "" => format!("api/{version}"),
                group => format!("apis/{group}/{version}"),
            };
            let url = format!("/openapi/v3/{path}?hash=0");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/apis/GROUP/VERSION`; `None` if there is no such group.
pub(super) fn of_version(registry: &KindRegistry, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<_> = registry.of_version(group, version).collect();
    if resources.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in resources {
        let root = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let scope = if resource.is_namespaced() {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let path = format!("{root}{scope}/{}/{{name}}", resource.plural());
        paths.insert(path, json!({"patch": patch(resource)}));
        schemas.insert(schema_name(resource), schema(resource));
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.2"},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// `/openapi/v2`.
pub(super) fn v2(registry: &KindRegistry) -> Value {
    let mut definitions = Map::new();
    for resource in registry.all() {
        definitions.insert(schema_name(resource), schema(resource));
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.37.2"},
        "paths": {},
        "definitions": definitions,
    })
}

fn group_version_kind(resource: &ApiResource) -> Value {
    json!({
        "group": resource.group(), "version": resource.version(), "kind": resource.kind(),
    })
}

fn patch(resource: &ApiResource) -> Value {
    let parameter = |name: &str| {
        let schema = json!({"type": "string", "uniqueItems": true});
        json!({"name": name, "in": "query", "schema": schema})
    };
    let parameters = ["dryRun", "fieldManager", "fieldValidation"].map(parameter);
    json!({
        "operationId": format!("patch{}", resource.kind()),
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": group_version_kind(resource),
    })
}

fn schema_name(resource: &ApiResource) -> String {
    let group = match resource.group() {
        "" => "core",
        group => group,
    };
    format!("io.k8s.{group}.{}.{}", resource.version(), resource.kind())
}

fn schema(resource: &ApiResource) -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-group-version-kind": [group_version_kind(resource)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_of_the_index_is_described() {
        let registry = KindRegistry::built_in();
        let index = index(&registry);
        let paths = index["paths"].as_object().unwrap();
        assert!(paths.contains_key("api/v1") && paths.contains_key("apis/apps/v1"));
        let apps = of_version(&registry, "apps", "v1").unwrap();
        let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
        assert_eq!(
            apps["paths"][path]["patch"]["parameters"][2]["name"],
            "fieldValidation"
        );
        assert!(of_version(&registry, "apps", "v2").is_none());
    }
}
