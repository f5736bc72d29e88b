//! YAML as a program's declaration of its own: mappings whose fields are read by type, with errors
//! that name file, line and field.
//!
//! Kubeconfigs are read by it too. Memory is bounded by the text: what aliases add has a limit.

mod document;
mod scalar;
mod section;
#[cfg(feature = "testing")]
mod values;

#[cfg(feature = "testing")]
use document::parse_all;
pub(crate) use document::{Node, decode, json, parse, yaml_document};
pub use section::Section;
#[cfg(feature = "testing")]
pub(crate) use values::yaml_values;
