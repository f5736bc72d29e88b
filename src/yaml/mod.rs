//! YAML for a program's own declarations: reads the fields of mappings by type, with errors that
//! name file, line and field.
//!
//! The crate reads kubeconfigs with it too. The text bounds the memory, because aliases have a
//! limit.

mod document;
mod scalar;
mod section;

#[cfg(feature = "testing")]
pub(crate) use document::Reader;
pub(crate) use document::{Node, decode, json, parse, yaml_document};
pub use section::Section;
