//! A mapping in a kubeconfig: reads its fields by type, with errors that name file and field.

use std::path::{Display, Path, PathBuf};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::super::pem::Pem;
use super::scalar::ScalarValue;
use super::yaml::Node;
use crate::error::Error;
use crate::sync::Arc;

/// Decodes as Go does, but padding may be missing, as in a text that was cut by hand.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A mapping with its location (`/file: users[name=admin].user`). The default is an empty mapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    node: Arc<Node>,
    file: Arc<PathBuf>,
    /// The path from the document's root; empty at the root.
    path: String,
}

impl Section {
    /// The root of a file's document.
    pub(super) fn root(node: Arc<Node>, file: &Path) -> Self {
        Self {
            node,
            file: Arc::new(file.to_owned()),
            path: String::new(),
        }
    }

    /// The file, for messages.
    pub(super) fn file(&self) -> Display<'_> {
        self.file.display()
    }

    /// The directory of the file.
    pub(super) fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// Returns the node of a field; `None` if it is missing or null.
    pub(super) fn node(&self, field: &str) -> Option<&Node> {
        self.node.get(field).map(|node| &**node)
    }

    /// The location of a field, for messages.
    pub(super) fn location(&self, field: &str) -> String {
        format!("{}: {}", self.file(), self.path_to(field))
    }

    fn path_to(&self, field: &str) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{field}", self.path)
    }

    /// Makes the error of a field.
    pub(super) fn error(&self, field: &str, why: &str) -> Error {
        Error::config(format!("{}: {why}", self.location(field)))
    }

    /// Returns the text of a field; `None` if it is missing, null or empty.
    pub(super) fn text(&self, field: &str) -> Result<Option<&str>, Error> {
        match self.node.get(field) {
            None => Ok(None),
            Some(node) => match node.text() {
                Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
                None => Err(self.error(field, &format!("must be text, not {}", node.kind()))),
            },
        }
    }

    /// Returns the truth value of a field; false if it is missing.
    pub(super) fn flag(&self, field: &str) -> Result<bool, Error> {
        match self.node.get(field).map(|node| &**node) {
            None => Ok(false),
            Some(Node::Scalar {
                value: ScalarValue::Bool(value),
                ..
            }) => Ok(*value),
            Some(_) => Err(self.error(field, "must be true or false, without quotes")),
        }
    }

    /// Returns the list of texts in a field; empty if it is missing.
    pub(super) fn texts(&self, field: &str) -> Result<Vec<&str>, Error> {
        let texts = match self.node.get(field).map(|node| &**node) {
            None => Some(Vec::new()),
            Some(Node::Sequence(items)) => items.iter().map(|item| item.text()).collect(),
            Some(_) => None,
        };
        texts.ok_or_else(|| self.error(field, "must be a list of texts"))
    }

    /// Returns the mapping in a field; an empty one if it is missing.
    pub(super) fn child(&self, field: &str) -> Result<Self, Error> {
        let node = self.node.get(field).map(Arc::clone).unwrap_or_default();
        self.mapping(node, self.path_to(field))
    }

    /// Returns the list of mappings in a field; empty if it is missing.
    pub(super) fn children(&self, field: &str) -> Result<Vec<Self>, Error> {
        let items = match self.node.get(field).map(|node| &**node) {
            None => return Ok(Vec::new()),
            Some(Node::Sequence(items)) => items,
            Some(other) => {
                return Err(self.error(field, &format!("must be a list, not {}", other.kind())));
            }
        };
        let path = self.path_to(field);
        let children = items.iter().enumerate();
        children
            .map(|(index, node)| self.mapping(Arc::clone(node), format!("{path}[{index}]")))
            .collect()
    }

    fn mapping(&self, node: Arc<Node>, path: String) -> Result<Self, Error> {
        let file = Arc::clone(&self.file);
        let section = Self { node, file, path };
        match &*section.node {
            Node::Mapping(_) => Ok(section),
            Node::Scalar { .. } | Node::Sequence(_) => {
                let (file, kind) = (section.file.display(), section.node.kind());
                let path = &section.path;
                Err(Error::config(format!(
                    "{file}: {path}: must be a mapping, not {kind}"
                )))
            }
        }
    }

    /// Returns the same section with another path in messages.
    pub(super) fn named(self, path: String) -> Self {
        Self { path, ..self }
    }

    /// Whether a field is there and not null.
    pub(super) fn has(&self, field: &str) -> bool {
        self.node.get(field).is_some()
    }

    /// Returns the names of all fields.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let entries = match &*self.node {
            Node::Mapping(entries) => entries.as_slice(),
            Node::Scalar { .. } | Node::Sequence(_) => &[],
        };
        entries.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the path in a field, relative to the directory of the kubeconfig.
    pub(super) fn path(&self, field: &str) -> Result<Option<PathBuf>, Error> {
        let path = self.text(field)?;
        Ok(path.map(|path| self.directory().join(path)))
    }

    /// Returns the PEM in `<field>-data`, else in the file that `<field>` names, as the API says.
    pub(super) fn pem(&self, field: &str) -> Result<Option<Pem>, Error> {
        let data_field = format!("{field}-data");
        if let Some(text) = self.text(&data_field)? {
            let bytes = self.decode(&data_field, text)?;
            return Ok(Some(Pem::inline(bytes, self.location(&data_field))));
        }
        Ok(self
            .path(field)?
            .map(|path| Pem::file(path, self.location(field))))
    }

    fn decode(&self, field: &str, text: &str) -> Result<Vec<u8>, Error> {
        let mut compact = Zeroizing::new(String::with_capacity(text.len()));
        compact.extend(text.chars().filter(|letter| !letter.is_ascii_whitespace()));
        // The error of the decoder quotes a byte, which may be one of a key.
        BASE64.decode(compact.as_bytes()).map_err(|_quotes_a_byte| {
            self.error(
                field,
                "not base64: it must be the whole PEM file in base64 (base64 -w0 <file>)",
            )
        })
    }
}
