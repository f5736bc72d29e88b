//! The server's refusals: a `Status`, with the words on which clients match.

use std::fmt;

use serde_json::{Map, Value, json};

use super::resources::ApiResource;

/// A refusal: the HTTP status and the `Status` object of its body.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    /// The token with which a list goes on nevertheless.
    token: Option<String>,
    /// Whether it is plain text.
    pub(super) is_page: bool,
}

/// One complaint about a field of an object.
#[derive(Clone, Debug)]
pub(super) struct FieldComplaint {
    pub(super) field: String,
    pub(super) reason: &'static str,
    /// The message, with its type at the beginning, such as `Required value: `.
    pub(super) message: String,
}

impl FieldComplaint {
    pub(super) fn required(field: &str, message: &str) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueRequired",
            message: format!("Required value: {message}"),
        }
    }

    pub(super) fn forbidden(field: &str, message: &str) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {message}"),
        }
    }

    /// The value is as JSON has it.
    pub(super) fn invalid(field: &str, value: &impl fmt::Display, message: &str) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {message}"),
        }
    }

    /// A value that is none of those `known`.
    pub(super) fn unsupported(field: &str, value: &Value, known: &str) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {known}"),
        }
    }

    pub(super) fn too_long(field: &str, max: usize) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {max} bytes"),
        }
    }
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            token: None,
            is_page: false,
        }
    }

    fn about(mut self, resource: &ApiResource, name: &str) -> Self {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".to_owned(), Value::from(name));
        }
        if !resource.group().is_empty() {
            details.insert("group".to_owned(), Value::from(resource.group()));
        }
        details.insert("kind".to_owned(), Value::from(resource.plural()));
        self.details = Some(Value::Object(details));
        self
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn forbidden(resource: &ApiResource, name: &str, why: &str) -> Self {
        let named = quoted_behind(resource, name);
        let message = format!("{named} is forbidden: {why}");
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    pub(super) fn not_found(resource: &ApiResource, name: &str) -> Self {
        let message = format!("{resource} {name:?} not found");
        Self::new(404, "NotFound", message).about(resource, name)
    }

    /// No resource has that path.
    pub(super) fn no_such_path() -> Self {
        let mut refusal = Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        refusal.details = Some(json!({}));
        refusal
    }

    /// The server has nothing at that path, and answers with a page of text.
    pub(super) fn no_page() -> Self {
        let mut refusal = Self::new(404, "", "404 page not found");
        refusal.is_page = true;
        refusal
    }

    pub(super) fn method_not_allowed() -> Self {
        let mut refusal = Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        refusal.details = Some(json!({}));
        refusal
    }

    pub(super) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        let mut refusal = Self::new(406, "NotAcceptable", message);
        refusal.details = Some(json!({}));
        refusal
    }

    /// An answer that has no such form.
    pub(super) fn other_form(message: &str) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    /// The name is taken, perhaps by an object that is being deleted.
    pub(super) fn already_exists(resource: &ApiResource, name: &str, is_going: bool) -> Self {
        let deleted = if is_going {
            "object is being deleted: "
        } else {
            ""
        };
        let message = format!("{deleted}{resource} {name:?} already exists");
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    pub(super) fn conflict(resource: &ApiResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// The object has another version by now.
    pub(super) fn modified_meanwhile(resource: &ApiResource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
            and try again";
        Self::conflict(resource, name, why)
    }

    /// The history does not reach back so far.
    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A page whose version was compacted. The token goes on with the present state.
    pub(super) fn page_expired(token: String) -> Self {
        let mut refusal = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You \
             can start a new list without the continue parameter, or use the continue token in \
             this response to retrieve the remainder of the results. Continuing with the provided \
             token results in an inconsistent list - objects that were created, modified, or \
             deleted between the time the first chunk was returned and now may show up in the \
             list.",
        );
        refusal.token = Some(token);
        refusal
    }

    pub(super) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// A type of patch that the server does not have.
    pub(super) fn unsupported_patch(message: impl Into<String>) -> Self {
        let mut refusal = Self::unsupported_media_type(message);
        refusal.details = Some(json!({}));
        refusal
    }

    /// Fields that the server does not accept.
    pub(super) fn invalid(
        resource: &ApiResource,
        name: &str,
        complaints: &[FieldComplaint],
    ) -> Self {
        Self::invalid_of_kind(resource, resource.kind(), name, complaints)
    }

    /// An update without its required version. The server names the kind by its plural.
    pub(super) fn without_version(resource: &ApiResource, name: &str) -> Self {
        let complaint = FieldComplaint {
            field: "metadata.resourceVersion".to_owned(),
            reason: "FieldValueInvalid",
            message: "Invalid value: 0: must be specified for an update".to_owned(),
        };
        Self::invalid_of_kind(resource, resource.plural(), name, &[complaint])
    }

    fn invalid_of_kind(
        resource: &ApiResource,
        kind: &str,
        name: &str,
        complaints: &[FieldComplaint],
    ) -> Self {
        let told: Vec<_> = complaints
            .iter()
            .map(|complaint| format!("{}: {}", complaint.field, complaint.message))
            .collect();
        let told = match told.as_slice() {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let group_kind = match resource.group() {
            "" => kind.to_owned(),
            group => format!("{kind}.{group}"),
        };
        let message = format!("{group_kind} {name:?} is invalid: {told}");
        let causes: Vec<_> = complaints
            .iter()
            .map(|complaint| {
                json!({
                    "reason": complaint.reason,
                    "message": complaint.message,
                    "field": complaint.field,
                })
            })
            .collect();
        let mut refusal = Self::new(422, "Invalid", message).about(resource, name);
        if let Some(Value::Object(details)) = &mut refusal.details {
            details.insert("kind".to_owned(), Value::from(kind));
            details.insert("causes".to_owned(), Value::from(causes));
        }
        refusal
    }

    /// A JSON patch that does not fit the object.
    pub(super) fn patch_does_not_apply() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut refusal = Self::new(422, "Invalid", message);
        refusal.details = Some(json!({}));
        refusal
    }

    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// A delete of another object, or of another version of it.
    pub(super) fn unmet_precondition(resource: &ApiResource, name: &str, why: &str) -> Self {
        let group_kind = match resource.group() {
            "" => resource.kind().to_owned(),
            group => format!("{}.{group}", resource.kind()),
        };
        let message = format!("Operation cannot be fulfilled on {group_kind} {name:?}: {why}");
        let mut refusal = Self::new(409, "Conflict", message).about(resource, name);
        if let Some(Value::Object(details)) = &mut refusal.details {
            details.insert("kind".to_owned(), Value::from(resource.kind()));
        }
        refusal
    }

    /// Options of a request that are unknown, or do not go together.
    pub(super) fn invalid_options(kind: &'static str, complaints: &[FieldComplaint]) -> Self {
        Self::invalid(&ApiResource::options(kind), "", complaints)
    }

    /// A failure for which the real server has no better words either.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// A create in a namespace that is being deleted.
    pub(super) fn terminating(resource: &ApiResource, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let mut refusal = Self::forbidden(resource, name, &why);
        let cause = json!({
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        });
        if let Some(Value::Object(details)) = &mut refusal.details {
            details.insert("causes".to_owned(), json!([cause]));
        }
        refusal
    }

    /// A version that the server has not reached.
    pub(super) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = json!({
            "reason": "ResourceVersionTooLarge",
            "message": "Too large resource version",
        });
        let mut refusal = Self::new(504, "Timeout", message);
        refusal.details = Some(json!({"causes": [cause], "retryAfterSeconds": 1}));
        refusal
    }

    /// The number of seconds after which a client may try again.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    /// The `Status` object.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if let Some(fields) = status.as_object_mut() {
            if !self.reason.is_empty() {
                fields.insert("reason".to_owned(), Value::from(self.reason));
            }
            if let Some(details) = &self.details {
                fields.insert("details".to_owned(), details.clone());
            }
        }
        if let (Some(metadata), Some(token)) = (status.get_mut("metadata"), &self.token) {
            *metadata = json!({ "continue": token });
        }
        status
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

/// `secrets`, or `secrets "db"`.
fn quoted_behind(resource: &ApiResource, name: &str) -> String {
    match name {
        "" => resource.to_string(),
        name => format!("{resource} {name:?}"),
    }
}
