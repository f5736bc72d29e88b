//! One mapping of a kubeconfig with the place it stands at: typed reads of its fields, errors that name the field.

use std::path::{Display, Path, PathBuf};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::super::pem::Pem;
use super::yaml::Node;
use crate::error::Error;
use crate::sync::Arc;

/// As Go decodes it, but padding may be missing: what was cut by hand is still what was meant.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A mapping, where it stands (`/file: users[name=admin].user`) and against what its relative paths
/// are resolved. The default is a mapping of nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    node: Arc<Node>,
    file: Arc<PathBuf>,
    /// The way to it from the document's root; empty at the root.
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

    /// The file it stands in, for messages.
    pub(super) fn file(&self) -> Display<'_> {
        self.file.display()
    }

    /// The place of a field, for messages.
    pub(super) fn place(&self, field: &str) -> String {
        format!("{}: {}", self.file(), self.way(field))
    }

    fn way(&self, field: &str) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{field}", self.path)
    }

    /// What is wrong with a field.
    pub(super) fn error(&self, field: &str, why: &str) -> Error {
        Error::config(format!("{}: {why}", self.place(field)))
    }

    /// A field's text; `None` when it is missing, null or empty, which mean the same in a kubeconfig.
    pub(super) fn text(&self, field: &str) -> Result<Option<&str>, Error> {
        match self.node.get(field).map(|node| &**node) {
            None => Ok(None),
            Some(Node::Scalar { text, .. }) => {
                Ok(Some(text.as_str()).filter(|text| !text.is_empty()))
            }
            Some(other) => Err(self.error(field, &format!("must be text, not {}", other.kind()))),
        }
    }

    /// A truth value; false when it is missing.
    pub(super) fn flag(&self, field: &str) -> Result<bool, Error> {
        match self.node.get(field).map(|node| &**node) {
            None => Ok(false),
            Some(Node::Scalar { text, plain: true }) => match text.as_str() {
                "true" | "True" | "TRUE" => Ok(true),
                "false" | "False" | "FALSE" => Ok(false),
                _ => Err(self.error(field, "must be true or false")),
            },
            Some(_) => Err(self.error(field, "must be true or false, without quotes")),
        }
    }

    /// A list of texts; empty when it is missing.
    pub(super) fn texts(&self, field: &str) -> Result<Vec<&str>, Error> {
        let texts = match self.node.get(field).map(|node| &**node) {
            None => Some(Vec::new()),
            Some(Node::Sequence(items)) => items.iter().map(|item| item.text()).collect(),
            Some(_) => None,
        };
        texts.ok_or_else(|| self.error(field, "must be a list of texts"))
    }

    /// A mapping underneath; an empty one when it is missing.
    pub(super) fn child(&self, field: &str) -> Result<Self, Error> {
        let node = self.node.get(field).map(Arc::clone).unwrap_or_default();
        self.mapping(node, self.way(field))
    }

    /// The mappings of a list underneath; none when it is missing.
    pub(super) fn children(&self, field: &str) -> Result<Vec<Self>, Error> {
        let items = match self.node.get(field).map(|node| &**node) {
            None => return Ok(Vec::new()),
            Some(Node::Sequence(items)) => items,
            Some(other) => {
                return Err(self.error(field, &format!("must be a list, not {}", other.kind())));
            }
        };
        let children = items.iter().enumerate();
        children
            .map(|(index, node)| self.mapping(Arc::clone(node), format!("{field}[{index}]")))
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

    /// The same section under a way that says more.
    pub(super) fn named(self, path: String) -> Self {
        Self { path, ..self }
    }

    /// Whether a field is there and not null.
    pub(super) fn has(&self, field: &str) -> bool {
        self.node.get(field).is_some()
    }

    /// The names of the fields that are there.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let entries = match &*self.node {
            Node::Mapping(entries) => entries.as_slice(),
            Node::Scalar { .. } | Node::Sequence(_) => &[],
        };
        entries.iter().map(|(name, _)| name.as_str())
    }

    /// A path, resolved against the directory of the file it stands in.
    pub(super) fn path(&self, field: &str) -> Result<Option<PathBuf>, Error> {
        let directory = self.file.parent().unwrap_or(Path::new(""));
        Ok(self.text(field)?.map(|path| directory.join(path)))
    }

    /// PEM text out of `<field>-data`, else out of the file that `<field>` names: the data wins, as the API says.
    pub(super) fn pem(&self, field: &str) -> Result<Option<Pem>, Error> {
        let data_field = format!("{field}-data");
        if let Some(text) = self.text(&data_field)? {
            let bytes = self.decode(&data_field, text)?;
            return Ok(Some(Pem::inline(bytes, self.place(&data_field))));
        }
        Ok(self
            .path(field)?
            .map(|path| Pem::file(path, self.place(field))))
    }

    fn decode(&self, field: &str, text: &str) -> Result<Vec<u8>, Error> {
        let mut compact = Zeroizing::new(String::with_capacity(text.len()));
        compact.extend(text.chars().filter(|letter| !letter.is_ascii_whitespace()));
        // The decoder's own error quotes a byte of what may be a key.
        BASE64.decode(compact.as_bytes()).map_err(|_quotes_a_byte| {
            self.error(
                field,
                "not base64: it must be the whole PEM file in base64 (base64 -w0 <file>)",
            )
        })
    }
}
