//! YAML documents as JSON values, for the manifests of test servers.

use serde_json::Value;

use super::scalar::ScalarValue;
use super::yaml::{Node, parse};

/// Reads every document of `source`. Errors name the line.
pub(crate) fn yaml_values(source: &str) -> Result<Vec<Value>, String> {
    let mut values = Vec::new();
    let mut document = String::new();
    for (at, line) in source.lines().enumerate() {
        let is_end = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '#']));
        if is_end {
            values.extend(value_of(&document)?);
            // So that errors have the line of the file.
            document = "\n".repeat(at.saturating_add(1));
        } else {
            document.push_str(line);
            document.push('\n');
        }
    }
    values.extend(value_of(&document)?);
    Ok(values)
}

fn value_of(document: &str) -> Result<Option<Value>, String> {
    let root = parse(document)?.root;
    Ok(root.map(|root| value(&root)))
}

fn value(node: &Node) -> Value {
    match node {
        Node::Scalar { text, value } => match value {
            ScalarValue::Null => Value::Null,
            ScalarValue::Bool(is) => Value::Bool(*is),
            ScalarValue::Number(Some(number)) => Value::Number(number.clone()),
            ScalarValue::Number(None) | ScalarValue::Text => {
                Value::String(text.as_str().to_owned())
            }
        },
        Node::Sequence(items) => items.iter().map(|item| value(item)).collect(),
        Node::Mapping(fields) => {
            let fields = fields.iter();
            fields
                .map(|(name, field)| (name.clone(), value(field)))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_document_is_a_value_and_an_error_has_the_line_of_the_file() {
        let text =
            "# two\n---\nkind: A\nlist: [1, yes, \"2\", ~]\n--- # next\n\n{\"kind\": \"B\"}\n---\n";
        let read = yaml_values(text).unwrap();
        assert_eq!(
            read,
            [
                json!({"kind": "A", "list": [1, true, "2", null]}),
                json!({"kind": "B"})
            ]
        );
        let error = yaml_values("a: 1\n---\nb: [\n").unwrap_err();
        assert!(
            error.contains("at line 3") || error.contains("at line 4"),
            "{error}"
        );
    }
}
