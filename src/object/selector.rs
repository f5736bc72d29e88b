//! Selects the objects of a request by namespace, field and label selectors. Renders them only.

use super::ObjectKey;
use crate::setters::setters;

/// The beginning of a selector by name.
const NAME: &str = "metadata.name=";

/// A field selector, such as `metadata.name=db` or `spec.nodeName=node-1`. Empty selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector(String);

impl FieldSelector {
    /// A selector in the API's own syntax, passed to the server as it is.
    pub fn new(selector: impl Into<String>) -> Self {
        Self(selector.into())
    }

    /// Selects the one object of that name.
    pub fn name(name: &str) -> Self {
        Self(format!("{NAME}{}", escape(name)))
    }

    /// Selects the pods bound to a node.
    pub fn node_name(node: &str) -> Self {
        Self(format!("spec.nodeName={}", escape(node)))
    }

    /// The selector's text; empty selects all.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The API's field selectors quote `\`, `,` and `=` in values with a backslash.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('=', "\\=")
}

/// A label selector in the API's own syntax, such as `app=shop,tier!=test`. Empty selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector(String);

impl LabelSelector {
    /// A selector in the API's own syntax, passed to the server as it is.
    pub fn new(selector: impl Into<String>) -> Self {
        Self(selector.into())
    }

    /// The selector's text; empty selects all.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The set of objects that a list or watch asks for: one namespace or all, narrowed by selectors.
///
/// # Examples
///
/// ```
/// use kubecache::object::{FieldSelector, Scope};
///
/// let pods_of_the_node = Scope::all().fields(FieldSelector::node_name("node-1"));
/// assert_eq!(pods_of_the_node.field_selector().as_str(), "spec.nodeName=node-1");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    namespace: Option<String>,
    fields: FieldSelector,
    labels: LabelSelector,
    /// Whether one object was meant, whose key has no namespace. That is no set of all namespaces.
    lacks_namespace: bool,
}

impl Scope {
    /// Selects every object of the kind: in all namespaces, or cluster-scoped.
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects the objects of one namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self {
            namespace: Some(namespace.into()),
            ..Self::default()
        }
    }

    /// Selects the object with that key, by a field selector on its name. The client refuses a
    /// key without a namespace, unless the kind has none.
    pub fn object(key: &ObjectKey) -> Self {
        let namespace = (!key.namespace().is_empty()).then(|| key.namespace().to_owned());
        Self {
            namespace,
            fields: FieldSelector::name(key.name()),
            labels: LabelSelector::default(),
            lacks_namespace: key.namespace().is_empty(),
        }
    }

    /// Returns the namespace; `None` for all namespaces.
    pub fn namespace_name(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the field selector.
    pub fn field_selector(&self) -> &FieldSelector {
        &self.fields
    }

    /// Returns the label selector.
    pub fn label_selector(&self) -> &LabelSelector {
        &self.labels
    }

    /// Whether the scope is one object by its name. A reflector never streams the list of such a
    /// scope.
    pub fn is_one_object(&self) -> bool {
        self.object_name().is_some()
    }

    /// The name of the one object, as the selector quotes it.
    pub(crate) fn object_name(&self) -> Option<&str> {
        let name = self.fields.0.strip_prefix(NAME)?;
        (!name.contains(',')).then_some(name)
    }

    /// Whether one object was meant, whose key has no namespace.
    pub(crate) fn lacks_namespace(&self) -> bool {
        self.lacks_namespace
    }
}

setters! { [] Scope;
    /// Narrows the set by a field selector.
    #[must_use]
    fields(selector: FieldSelector);

    /// Narrows the set by a label selector.
    #[must_use]
    labels(selector: LabelSelector);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_the_server() {
        assert_eq!(
            FieldSelector::name("a,b=c\\d").as_str(),
            "metadata.name=a\\,b\\=c\\\\d"
        );
    }
}
