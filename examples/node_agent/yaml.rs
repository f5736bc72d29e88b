//! JSON values as YAML in blocks. Strings are quoted as in JSON, which YAML reads the same.

use std::io::{self, Write};

use serde_json::Value;

/// Writes a document.
pub(crate) fn write(to: &mut impl Write, value: &Value) -> io::Result<()> {
    if is_empty(value) {
        return writeln!(to, "{value}");
    }
    block(to, value, 0, "")
}

/// Writes an object or list that is not empty. Its first line begins with `lead`.
fn block(to: &mut impl Write, value: &Value, depth: usize, lead: &str) -> io::Result<()> {
    let indent = "  ".repeat(depth);
    let mut lead = Some(lead);
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let begin = lead.take().unwrap_or(&indent);
                if is_empty(field) {
                    writeln!(to, "{begin}{name}: {field}")?;
                } else {
                    writeln!(to, "{begin}{name}:")?;
                    // A list stands as deep as its name.
                    let deeper = usize::from(field.is_object());
                    let depth = depth.saturating_add(deeper);
                    block(to, field, depth, &"  ".repeat(depth))?;
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let begin = format!("{}- ", lead.take().unwrap_or(&indent));
                if is_empty(item) {
                    writeln!(to, "{begin}{item}")?;
                } else {
                    block(to, item, depth.saturating_add(1), &begin)?;
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

/// Whether the value stands on one line.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
