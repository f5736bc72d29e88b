//! YAML documents as JSON values, for the manifests of test servers.

use serde_json::Value;

use crate::yaml::{Reader, json};

/// Reads every document of `source`. Together they have the limits of one. Errors name the line.
pub(crate) fn yaml_values(source: &str) -> Result<Vec<Value>, String> {
    let mut reader = Reader::new(source);
    let mut values = Vec::new();
    while let Some(root) = reader.document()? {
        if !root.is_null() {
            values.push(json(&root));
        }
    }
    Ok(values)
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
        assert_eq!(
            yaml_values("&a a: 1\n---\nb: 2\n...\n---\n").unwrap().len(),
            2
        );
        let error = yaml_values("a: 1\n---\nb: [\n").unwrap_err();
        assert!(
            error.contains("at line 3") || error.contains("at line 4"),
            "{error}"
        );
    }

    /// The control port of a test server also reads them.
    #[test]
    fn many_documents_have_the_limits_of_one_and_the_work_of_their_size() {
        crate::wire::steps::grow_with_the_size("documents", |bytes| {
            let text = "---\na: 1\n".repeat(bytes / 9);
            assert_eq!(yaml_values(&text).unwrap().len(), bytes / 9);
        });
        let text = "x".repeat(10_000);
        let document = format!("---\na: &a {text}\nb: [{}]\n", ["*a"; 100].join(", "));
        assert!(yaml_values(&document).is_ok());
        let why = yaml_values(&document.repeat(10)).unwrap_err();
        assert!(
            why.starts_with("aliases and merge keys (<<) add more than "),
            "{why}"
        );
    }
}
