//! A mapping: reads its fields by type, with errors that name file, line and field.

use std::path::{Display, Path, PathBuf};

use super::document::{Lines, Node, parse_with_lines};
use super::scalar::ScalarValue;
use crate::error::Error;
use crate::sync::Arc;

/// A mapping with its location, such as `/file: line 7: entries[0].items`. The default is empty.
///
/// A null field counts as missing. Scalars without quotes mean what they do in YAML 1.1 and Go:
/// `yes` is a truth value.
///
/// # Examples
///
/// ```
/// use kubecache::yaml::Section;
///
/// let root = Section::parse("/etc/app.yaml", "entries:\n- secret: shop/db\n  mode: 0640\n")?;
/// let entry = &root.children("entries")?[0];
/// assert_eq!(entry.text("secret")?, Some("shop/db"));
/// assert_eq!(entry.scalar("mode")?, Some("0640"));
/// let error = entry.only(&["secret"]).unwrap_err();
/// assert_eq!(error.to_string(), "/etc/app.yaml: line 3: entries[0].mode: no such field");
/// # Ok::<_, kubecache::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Section {
    node: Arc<Node>,
    file: Arc<PathBuf>,
    /// Empty if the file is not a declaration.
    lines: Arc<Lines>,
    /// The path from the document's root; empty at the root.
    path: String,
}

impl Section {
    /// Parses the first document of a text. `file` names it in errors; this reads no file.
    ///
    /// # Errors
    ///
    /// `Config`: it is not YAML, a mapping has a key twice, aliases add more than 8 MiB, or the
    /// document is not a mapping. The error repeats keys, and at most one character of a value.
    pub fn parse(file: impl Into<PathBuf>, text: &str) -> Result<Self, Error> {
        let file = file.into();
        let wrong = |why: &str| Error::config(format!("{}: {why}", file.display()));
        let (document, lines) = parse_with_lines(text).map_err(|why| wrong(&why))?;
        if let Some(twice) = document.warnings.first() {
            return Err(wrong(twice));
        }
        let node = document.root.unwrap_or_default();
        if !matches!(*node, Node::Mapping(_)) {
            return Err(wrong(&format!("must be a mapping, not {}", node.kind())));
        }
        let lines = Arc::new(lines);
        let root = Self::root(node, &file);
        Ok(Self { lines, ..root })
    }

    /// The root of a file's document.
    pub(crate) fn root(node: Arc<Node>, file: &Path) -> Self {
        Self {
            node,
            file: Arc::new(file.to_owned()),
            lines: Arc::default(),
            path: String::new(),
        }
    }

    /// Fails if there are other fields than these. The error names the first.
    ///
    /// # Errors
    ///
    /// `Config`.
    pub fn only(&self, known: &[&str]) -> Result<(), Error> {
        match self.fields().find(|field| !known.contains(field)) {
            Some(unknown) => Err(self.error(unknown, "no such field")),
            None => Ok(()),
        }
    }

    /// Returns the text or number of a field as the file spells it; `None` if it is missing or
    /// empty.
    ///
    /// # Errors
    ///
    /// `Config`: it is a truth value, a list or a mapping.
    pub fn scalar(&self, field: &str) -> Result<Option<&str>, Error> {
        if let Some(Node::Scalar { text, value }) = self.node(field)
            && matches!(value, ScalarValue::Number(_))
        {
            return Ok(Some(text.as_str()));
        }
        self.text(field)
    }

    /// The file, for messages.
    pub(crate) fn file(&self) -> Display<'_> {
        self.file.display()
    }

    /// The directory of the file.
    pub(crate) fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// Returns the node of a field; `None` if it is missing or null.
    pub(crate) fn node(&self, field: &str) -> Option<&Node> {
        self.node.get(field).map(|node| &**node)
    }

    /// The location of a field, for messages.
    pub(crate) fn location(&self, field: &str) -> String {
        let path = self.path_to(field);
        // A missing field has the line of its mapping.
        let line = self.lines.get(&path).or_else(|| self.lines.get(&self.path));
        let line = line.map(|line| format!("line {line}: "));
        format!("{}: {}{path}", self.file(), line.unwrap_or_default())
    }

    fn path_to(&self, field: &str) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{field}", self.path)
    }

    /// Makes the error of a field, of kind `Config`: its location, then `why`.
    pub fn error(&self, field: &str, why: &str) -> Error {
        Error::config(format!("{}: {why}", self.location(field)))
    }

    /// Returns the text of a field; `None` if it is missing or empty.
    ///
    /// # Errors
    ///
    /// `Config`: it is something else.
    pub fn text(&self, field: &str) -> Result<Option<&str>, Error> {
        match self.node.get(field) {
            None => Ok(None),
            Some(node) => match node.text() {
                Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
                None => Err(self.error(field, &format!("must be text, not {}", node.kind()))),
            },
        }
    }

    /// Returns the truth value of a field; false if it is missing.
    ///
    /// # Errors
    ///
    /// `Config`: it is something else.
    pub fn flag(&self, field: &str) -> Result<bool, Error> {
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
    ///
    /// # Errors
    ///
    /// `Config`: it is something else.
    pub fn texts(&self, field: &str) -> Result<Vec<&str>, Error> {
        let texts = match self.node.get(field).map(|node| &**node) {
            None => Some(Vec::new()),
            Some(Node::Sequence(items)) => items.iter().map(|item| item.text()).collect(),
            Some(_) => None,
        };
        texts.ok_or_else(|| self.error(field, "must be a list of texts"))
    }

    /// Returns the mapping in a field; an empty one if it is missing.
    ///
    /// # Errors
    ///
    /// `Config`: it is something else.
    pub fn child(&self, field: &str) -> Result<Self, Error> {
        let node = self.node.get(field).map(Arc::clone).unwrap_or_default();
        self.mapping(node, self.path_to(field))
    }

    /// Returns the list of mappings in a field; empty if it is missing.
    ///
    /// # Errors
    ///
    /// `Config`: it is something else.
    pub fn children(&self, field: &str) -> Result<Vec<Self>, Error> {
        let items = match self.node.get(field).map(|node| &**node) {
            None => return Ok(Vec::new()),
            Some(Node::Sequence(items)) => items,
            Some(other) => {
                return Err(self.error(field, &format!("must be a list, not {}", other.kind())));
            }
        };
        let path = self.path_to(field);
        let child = |(index, node)| self.mapping(Arc::clone(node), format!("{path}[{index}]"));
        items.iter().enumerate().map(child).collect()
    }

    fn mapping(&self, node: Arc<Node>, path: String) -> Result<Self, Error> {
        if matches!(*node, Node::Mapping(_)) {
            return Ok(Self {
                node,
                ..self.clone().named(path)
            });
        }
        let why = format!("must be a mapping, not {}", node.kind());
        Err(self.clone().named(String::new()).error(&path, &why))
    }

    /// Returns the same section with another path in messages.
    pub(crate) fn named(self, path: String) -> Self {
        Self { path, ..self }
    }

    /// Whether a field is there and not null.
    pub fn has(&self, field: &str) -> bool {
        self.node.get(field).is_some()
    }

    /// Returns the names of all fields.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let entries = match &*self.node {
            Node::Mapping(entries) => entries.as_slice(),
            Node::Scalar { .. } | Node::Sequence(_) => &[],
        };
        entries.iter().map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen: `items: {y: file}` of a key `y` wrote no file, and nothing said why.
    #[test]
    fn a_key_that_is_no_text_is_refused_with_its_line() {
        for (key, kind) in [
            ("y", "a truth value"),
            ("no", "a truth value"),
            ("1.10", "a number"),
        ] {
            let text = format!("items:\n  a: b\n  {key}: file\n");
            let error = Section::parse("app.yaml", &text).unwrap_err().to_string();
            let why = format!("the key \"{key}\" is {kind}: put it in quotes at line 3");
            assert!(error.contains(&why), "{error}");
            Section::parse("app.yaml", &text.replace(key, &format!("'{key}'"))).unwrap();
        }
    }

    #[test]
    fn a_field_of_a_text_is_read_and_a_wrong_one_is_named_by_its_line_and_path() {
        let root = Section::parse("app.yaml", "a: 1\nb:\n- c: x\n  d: y\n").unwrap();
        let entry = &root.children("b").unwrap()[0];
        assert_eq!(entry.text("c").unwrap(), Some("x"));
        let error = entry.only(&["c"]).unwrap_err();
        let text = "app.yaml: line 4: b[0].d: no such field";
        assert_eq!(error.to_string(), text);
    }
}
