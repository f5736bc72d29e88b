//! Parses YAML into a tree of shared nodes, in which an alias costs a pointer.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::Value;
use zeroize::Zeroizing;

use super::scalar::ScalarValue;
use crate::object::wipe;
use crate::sync::Arc;

/// The maximum number of bytes that aliases and merge keys (`<<`) may add to a text. An alias of a
/// list of aliases costs a few bytes of text but, written out, any amount of memory. Go's parser
/// has such a limit too.
const ADDED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The size that a node counts for, besides its text.
const NODE_BYTES: usize = 64;

/// The maximum depth of nesting, with aliases written out. The parser has the same limit without
/// them.
const DEPTH_MAX: usize = 255;

/// The maximum length of a path that has a line.
const PATH_BYTES_MAX: usize = 256;

/// The maximum number of warnings for a document.
const WARNINGS_MAX: usize = 10;

/// A node of a document.
#[derive(Debug)]
pub(crate) enum Node {
    Scalar {
        /// As written.
        text: Zeroizing<String>,
        /// The value of the text to Go's parser.
        value: ScalarValue,
    },
    Sequence(Vec<Arc<Node>>),
    Mapping(Vec<(String, Arc<Node>)>),
}

impl Default for Node {
    fn default() -> Self {
        Self::Mapping(Vec::new())
    }
}

impl Node {
    /// Returns the value of a key; `None` also for a null.
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Self>> {
        let Self::Mapping(entries) = self else {
            return None;
        };
        #[cfg(test)]
        crate::wire::steps::count(entries.len());
        let is_it = |(name, value): &&(String, Arc<Self>)| name == key && !value.is_null();
        entries.iter().find(is_it).map(|(_, value)| value)
    }

    /// Whether it is one of YAML's spellings of null.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Scalar { value, .. } if *value == ScalarValue::Null)
    }

    /// Returns the text of a scalar that is text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar { text, value } if *value == ScalarValue::Text => Some(text),
            Self::Scalar { .. } | Self::Sequence(_) | Self::Mapping(_) => None,
        }
    }

    /// Names the kind of node, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Scalar { value, .. } => match value {
                ScalarValue::Bool(_) => "a truth value: put it in quotes",
                ScalarValue::Number(_) => "a number: put it in quotes",
                ScalarValue::Null | ScalarValue::Text => "a single value",
            },
            Self::Sequence(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }
}

/// A document, with warnings about its oddities.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// `None` if it is empty.
    pub(crate) root: Option<Arc<Node>>,
    pub(crate) warnings: Vec<String>,
}

/// The line of each field and item, by its path (`users[0].name`).
pub(super) type Lines = HashMap<String, usize>;

/// Makes nodes of the parser's events.
pub(crate) struct Reader<'a> {
    source: &'a str,
    events: Parser<'a, StrInput<'a>>,
    /// The position of the last event.
    place: Span,
    anchors: HashMap<usize, (Arc<Node>, Extent)>,
    /// Bytes that aliases and merge keys have added.
    added: usize,
    warnings: Vec<String>,
    /// The path of the present node.
    path: String,
    /// `None`: errors of fields name no line.
    lines: Option<Lines>,
}

/// The size of a node with its aliases written out.
#[derive(Clone, Copy, Default)]
struct Extent {
    bytes: usize,
    depth: usize,
}

impl Extent {
    fn hold(&mut self, inner: Self) {
        self.bytes = self.bytes.saturating_add(inner.bytes);
        self.depth = self.depth.max(inner.depth.saturating_add(1));
    }
}

/// Parses the first document of `source`. Ignores the rest, like Go.
///
/// The length of the text and the limits of [`Reader`] bound the memory, even of a caller that
/// writes the aliases out. Errors and warnings name the line. They repeat keys, and at most one
/// character of a value.
pub(crate) fn parse(source: &str) -> Result<Document, String> {
    let mut reader = Reader::new(source);
    let root = reader.document()?.filter(|root| !root.is_null());
    let warnings = reader.warnings;
    Ok(Document { root, warnings })
}

/// As [`parse`], with the line of each field.
pub(super) fn parse_with_lines(source: &str) -> Result<(Document, Lines), String> {
    let mut reader = Reader::new(source);
    reader.lines = Some(Lines::new());
    let root = reader.document()?.filter(|root| !root.is_null());
    let (warnings, lines) = (reader.warnings, reader.lines.unwrap_or_default());
    Ok((Document { root, warnings }, lines))
}

/// Parses the first document of `bytes`, which may be secret but are not a kubeconfig; `None` if it
/// is empty. Errors repeat no more than one character.
pub(crate) fn yaml_document(bytes: Zeroizing<Vec<u8>>) -> Result<Option<Arc<Node>>, String> {
    Ok(parse(&decode(bytes)?)?.root)
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a str) -> Self {
        #[cfg(test)]
        crate::wire::steps::count(source.len());
        let options = granit_parser::options! { emit_comments: false };
        Self {
            source,
            events: Parser::new_from_str_with_options(source, options),
            place: Span::default(),
            anchors: HashMap::new(),
            added: 0,
            warnings: Vec::new(),
            path: String::new(),
            lines: None,
        }
    }

    /// Reads the next document, or an empty one as null; `None` at the end of the text.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events begin nodes")]
    pub(crate) fn document(&mut self) -> Result<Option<Arc<Node>>, String> {
        let mut root = None;
        loop {
            match self.next()? {
                Event::StreamStart => {}
                Event::DocumentStart(..) => self.anchors.clear(),
                Event::DocumentEnd | Event::StreamEnd => return Ok(root),
                event => root = Some(self.node(event)?.0),
            }
        }
    }

    fn next(&mut self) -> Result<Event<'a>, String> {
        let Some(next) = self.events.next() else {
            return Ok(Event::StreamEnd);
        };
        let (event, span) = next.map_err(|error| {
            let (what, at) = (error.info(), error.marker());
            let (line, column) = (at.line(), at.col().saturating_add(1));
            format!("not YAML: {what} at line {line} column {column}")
        })?;
        self.place = span;
        Ok(event)
    }

    fn refused(&self, why: &str) -> String {
        format!("{why} at line {}", self.place.start.line())
    }

    /// Counts what an alias or a merge key adds.
    fn add(&mut self, extent: Extent) -> Result<(), String> {
        self.added = self.added.saturating_add(extent.bytes);
        if self.added > ADDED_BYTES_MAX {
            let why = format!("aliases and merge keys (<<) add more than {ADDED_BYTES_MAX} bytes");
            return Err(self.refused(&why));
        }
        Ok(())
    }

    /// Reads the node that begins with `event`.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events are no nodes")]
    fn node(&mut self, event: Event<'a>) -> Result<(Arc<Node>, Extent), String> {
        let mut extent = Extent::default();
        let (anchor, node) = match event {
            Event::Alias(id) => {
                let Some((node, extent)) = self.anchors.get(&id).cloned() else {
                    return Err(self.refused("an alias refers to what contains it"));
                };
                self.add(extent)?;
                return Ok((node, extent));
            }
            Event::Scalar(text, style, anchor, tag) => {
                #[cfg(test)]
                crate::wire::steps::count(text.len());
                let value = scalar_value(&text, style, tag.as_deref());
                let mut text = Zeroizing::new(text.into_owned());
                if is_binary(tag.as_deref()) {
                    text = of_base64(&text).map_err(|why| self.refused(why))?;
                }
                extent.bytes = text.len();
                (anchor, Node::Scalar { text, value })
            }
            Event::SequenceStart(_, anchor, _tag) => (anchor, self.sequence(&mut extent)?),
            Event::MappingStart(_, anchor, _tag) => (anchor, self.mapping(&mut extent)?),
            _ => return Err(self.refused("something other than a value stands")),
        };
        extent.bytes = extent.bytes.saturating_add(NODE_BYTES);
        if extent.depth > DEPTH_MAX {
            let why = format!("nested deeper than {DEPTH_MAX} levels, with aliases written out");
            return Err(self.refused(&why));
        }
        let node = Arc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, (Arc::clone(&node), extent));
        }
        Ok((node, extent))
    }

    /// Reads the node, one step further along the path.
    fn node_at(&mut self, step: &str, event: Event<'a>) -> Result<(Arc<Node>, Extent), String> {
        let Some(lines) = &mut self.lines else {
            return self.node(event);
        };
        let before = self.path.len();
        self.path.push_str(step);
        if self.path.len() <= PATH_BYTES_MAX {
            lines.insert(self.path.clone(), self.place.start.line());
        }
        let node = self.node(event);
        self.path.truncate(before);
        node
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other events begin items")]
    fn sequence(&mut self, extent: &mut Extent) -> Result<Node, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Node::Sequence(items)),
                item => {
                    if self.follows_tab_after_dash() {
                        return Err(self.refused("not YAML: a tab stands after the dash of a list"));
                    }
                    let (item, inner) = self.node_at(&format!("[{}]", items.len()), item)?;
                    extent.hold(inner);
                    items.push(item);
                }
            }
        }
    }

    /// Whether a dash and a tab come before the last event. Go's parser accepts only spaces there.
    fn follows_tab_after_dash(&self) -> bool {
        let end = self.place.start.byte_offset().unwrap_or_default();
        let before = self.source.get(..end).unwrap_or_default();
        let trimmed = before.trim_end_matches([' ', '\t']);
        let gap = before.get(trimmed.len()..).unwrap_or_default();
        trimmed.ends_with('-') && gap.contains('\t')
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other events begin keys")]
    fn mapping(&mut self, extent: &mut Extent) -> Result<Node, String> {
        let mut fields = Fields::default();
        loop {
            let (key, inner) = match self.next()? {
                Event::MappingEnd => return Ok(Node::Mapping(fields.entries)),
                Event::Scalar(text, style, ..) if style == ScalarStyle::Plain && text == "<<" => {
                    let value = self.next()?;
                    let (merged, inner) = self.node(value)?;
                    extent.hold(inner);
                    self.add(inner)?;
                    self.merge(&merged, &mut fields)?;
                    continue;
                }
                key => self.node(key)?,
            };
            extent.hold(inner);
            let Node::Scalar { text, value } = &*key else {
                return Err(self.refused(&format!("a key is {}", key.kind())));
            };
            if *value == ScalarValue::Null {
                return Err(self.refused("a key is null"));
            }
            // Go reads `y` as true, and `1.10` as 1.1. Who declares files means what stands there.
            if self.lines.is_some() && *value != ScalarValue::Text {
                return Err(self.refused(&format!("the key {:?} is {}", &**text, key.kind())));
            }
            let name = key_name(text, value);
            let line = self.place.start.line();
            let step = format!("{}{name}", if self.path.is_empty() { "" } else { "." });
            let value = self.next()?;
            let (value, inner) = self.node_at(&step, value)?;
            extent.hold(inner);
            if fields.is_explicit(&name) && self.warnings.len() < WARNINGS_MAX {
                self.warnings.push(format!(
                    "the key {name:?} at line {line} stands twice in its mapping: the last counts"
                ));
            }
            fields.set(name, value, true);
        }
    }

    /// Adds the fields of a merge key, from one mapping or several; the first one with a field
    /// counts. As in Go, they replace fields before the key, and give way to fields after it.
    fn merge(&mut self, merged: &Arc<Node>, fields: &mut Fields) -> Result<(), String> {
        let mappings = match &**merged {
            Node::Sequence(items) => items.as_slice(),
            Node::Mapping(_) | Node::Scalar { .. } => std::slice::from_ref(merged),
        };
        for mapping in mappings.iter().rev() {
            let Node::Mapping(entries) = &**mapping else {
                return Err(self.refused("a merge key (<<) needs a mapping or a list of mappings"));
            };
            for (name, value) in entries {
                fields.set(name.clone(), Arc::clone(value), false);
            }
        }
        Ok(())
    }
}

/// Whether the tag is `!!binary`, from YAML 1.1.
fn is_binary(tag: Option<&Tag>) -> bool {
    let name = tag.and_then(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:"));
    name.as_deref() == Some("binary")
}

/// Decodes a scalar with the tag `!!binary`. The error does not repeat its text.
fn of_base64(text: &str) -> Result<Zeroizing<String>, &'static str> {
    let mut compact = Zeroizing::new(String::with_capacity(text.len()));
    compact.extend(text.chars().filter(|letter| !letter.is_ascii_whitespace()));
    let mut bytes = Zeroizing::new(vec![0; compact.len()]);
    let length = STANDARD.decode_slice(compact.as_bytes(), &mut bytes);
    bytes.truncate(length.map_err(|_quotes_a_byte| "a !!binary is not base64")?);
    decode(bytes).map_err(|_not_text| "a !!binary holds bytes that are not text")
}

fn scalar_value(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> ScalarValue {
    match tag.filter(|tag| tag.is_yaml_core_schema()).map(Tag::suffix) {
        Some("bool" | "int" | "float" | "null") => ScalarValue::plain(text),
        None if style == ScalarStyle::Plain && !is_binary(tag) => ScalarValue::plain(text),
        _ => ScalarValue::Text,
    }
}

/// The name of a field as Go derives it from a key: for a truth value or a number without quotes,
/// the canonical spelling.
fn key_name(text: &str, value: &ScalarValue) -> String {
    match value {
        ScalarValue::Bool(value) => value.to_string(),
        ScalarValue::Number(Some(number)) => {
            let number = number.to_string();
            number.strip_suffix(".0").unwrap_or(&number).to_owned()
        }
        ScalarValue::Number(None) | ScalarValue::Null | ScalarValue::Text => text.to_owned(),
    }
}

/// The fields of a mapping while it is read.
#[derive(Default)]
struct Fields {
    entries: Vec<(String, Arc<Node>)>,
    /// The place of each name in `entries`, and whether the mapping itself has the field.
    places: HashMap<String, (usize, bool)>,
}

impl Fields {
    fn is_explicit(&self, name: &str) -> bool {
        self.places.get(name).is_some_and(|(_, explicit)| *explicit)
    }

    /// Sets a field. The last value of a name counts.
    fn set(&mut self, name: String, value: Arc<Node>, explicit: bool) {
        let last = self.entries.len();
        let place = self.places.entry(name.clone()).or_insert((last, explicit));
        place.1 |= explicit;
        match self.entries.get_mut(place.0) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((name, value)),
        }
    }
}

/// Decodes a file's bytes into text: UTF-8, or UTF-16 with its byte order mark.
///
/// # Errors
///
/// The bytes are neither.
pub(crate) fn decode(bytes: Zeroizing<Vec<u8>>) -> Result<Zeroizing<String>, String> {
    let wrong = "holds bytes that are not text";
    let unit: fn([u8; 2]) -> u16 = match bytes.as_slice() {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return Ok(Zeroizing::new(wipe::text(bytes).ok_or(wrong)?)),
    };
    let (units, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(wrong.to_owned());
    }
    // Two bytes of UTF-16 become at most three bytes of UTF-8.
    let room = bytes.len().saturating_add(units.len());
    let mut text = Zeroizing::new(String::with_capacity(room));
    for character in char::decode_utf16(units.iter().skip(1).map(|pair| unit(*pair))) {
        text.push(character.map_err(|_half| wrong)?);
    }
    Ok(text)
}

/// Returns a node as JSON. Reads scalars without quotes as YAML 1.1 does.
pub(crate) fn json(node: &Node) -> Value {
    match node {
        Node::Scalar { text, value } => match value {
            ScalarValue::Null | ScalarValue::Number(None) => Value::Null,
            ScalarValue::Bool(value) => Value::Bool(*value),
            ScalarValue::Number(Some(number)) => Value::Number(number.clone()),
            ScalarValue::Text => Value::from(text.as_str()),
        },
        Node::Sequence(items) => items.iter().map(|item| json(item)).collect(),
        Node::Mapping(entries) => {
            let json_of = |(name, value): &(String, Arc<Node>)| (name.clone(), json(value));
            entries.iter().map(json_of).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws a tree in one line, for tables.
    fn draw(node: &Node) -> String {
        match node {
            Node::Scalar { .. } if node.is_null() => "null".to_owned(),
            Node::Scalar { text, .. } => text.to_string(),
            Node::Sequence(items) => {
                let items: Vec<_> = items.iter().map(|item| draw(item)).collect();
                format!("[{}]", items.join(" "))
            }
            Node::Mapping(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(key, value)| format!("{key}={}", draw(value)))
                    .collect();
                format!("{{{}}}", entries.join(" "))
            }
        }
    }

    fn drawn(text: &str) -> Result<String, String> {
        let document = parse(text)?;
        Ok(document
            .root
            .map_or_else(|| "nothing".to_owned(), |root| draw(&root)))
    }

    #[test]
    fn the_syntax_of_kubeconfigs() {
        let rows = [
            ("", "nothing"),
            ("# only a comment\n", "nothing"),
            ("---\n", "nothing"),
            ("a: 1\nb: [x, 'y']\n", "{a=1 b=[x y]}"),
            (
                "{\"a\": {\"b\": null}, \"c\": \"null\"}",
                "{a={b=null} c=null}",
            ),
            ("a:\n- b: 1\n  c: 2\n- d: ~\n", "{a=[{b=1 c=2} {d=null}]}"),
            ("a: |\n  one\n  two\n", "{a=one\ntwo\n}"),
            ("a: >-\n  one\n  two\n", "{a=one two}"),
            ("a: &x {b: 1}\nc: *x\n", "{a={b=1} c={b=1}}"),
            ("a: !!str 5\n", "{a=5}"),
            ("a: !!binary dG9r\n", "{a=tok}"),
            (
                "a: !!binary |\n  dG\n  9r\nb: [!!binary \"dG9r\"]\n",
                "{a=tok b=[tok]}",
            ),
            ("!!binary bg==: 1\nn: 2\n", "{n=1 false=2}"),
            ("yes: 1\n'yes': 2\n", "{true=1 yes=2}"),
            (
                "0x1F: a\n-07: b\n1e3: c\n1.50: d\n",
                "{31=a -7=b 1000=c 1.5=d}",
            ),
            ("\u{feff}a: b\n", "{a=b}"),
            ("a: 1\n---\nb: [\n", "{a=1}"),
            ("a: 1\n---\n", "{a=1}"),
            ("---\n---\na: 1\n", "nothing"),
            ("- a\n-  b\n", "[a b]"),
            ("a: |\n  -\tb\n", "{a=-\tb\n}"),
            ("[-1,\t-2]\n", "[-1 -2]"),
        ];
        for (text, expected) in rows {
            assert_eq!(drawn(text), Ok(expected.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn what_is_refused() {
        let rows = [
            ("? ~\n: 1\n", "a key is null at line 1"),
            ("a: !!binary x\n", "a !!binary is not base64 at line 1"),
            (
                "\na: !!binary /w==\n",
                "a !!binary holds bytes that are not text at line 2",
            ),
            ("? [x]\n: 1\n", "a key is a list at line 1"),
            (
                "a: &x\n  b: *x\n",
                "an alias refers to what contains it at line 2",
            ),
            (
                "a: 1\nc:\n  <<: x\n",
                "a merge key (<<) needs a mapping or a list of mappings at line 3",
            ),
            (
                "a: &x [{b: 1}]\nc:\n  <<: [*x]\n",
                "a merge key (<<) needs a mapping or a list of mappings at line 3",
            ),
            (
                "-\ta: 1\n",
                "not YAML: a tab stands after the dash of a list at line 1",
            ),
            (
                "a:\n- x\n- \ty\n",
                "not YAML: a tab stands after the dash of a list at line 3",
            ),
        ];
        for (text, why) in rows {
            assert_eq!(drawn(text), Err(why.to_owned()), "{text:?}");
        }
        for text in ["a: [1, 2", "a: b: c", "a: *nowhere", "a: \"x"] {
            let why = drawn(text).unwrap_err();
            assert!(why.starts_with("not YAML: "), "{why}");
            assert!(why.contains(" at line 1 column "), "{why}");
        }
    }

    #[test]
    fn of_keys_that_stand_twice_the_last_counts() {
        let document = parse("a: 1\nb: {c: 2, 'c': {d: 3}}\na: ~\n").unwrap();
        assert_eq!(draw(&document.root.unwrap()), "{a=null b={c={d=3}}}");
        assert_eq!(
            document.warnings,
            [
                "the key \"c\" at line 2 stands twice in its mapping: the last counts",
                "the key \"a\" at line 3 stands twice in its mapping: the last counts",
            ]
        );
        let document = parse(&"a: 1\n".repeat(100)).unwrap();
        assert_eq!(document.warnings.len(), WARNINGS_MAX);
    }

    #[test]
    fn merge_keys_add_the_fields_of_other_mappings() {
        let rows = [
            ("{<<: {a: 1}, b: 2}", "{a=1 b=2}"),
            ("{<<: {a: 1}, a: 2}", "{a=2}"),
            ("{a: 2, <<: {a: 1}}", "{a=1}"),
            ("{<<: [{a: 1}, {a: 2, b: 3}]}", "{a=1 b=3}"),
            ("{<<: [], a: 1}", "{a=1}"),
            ("{<<: {<<: {a: 1}, b: 2}}", "{a=1 b=2}"),
            ("{<<: {a: 1}, <<: {b: 2}}", "{a=1 b=2}"),
            ("{'<<': {a: 1}}", "{<<={a=1}}"),
            ("{a: &x {b: 1}, c: {<<: *x}}", "{a={b=1} c={b=1}}"),
        ];
        for (text, expected) in rows {
            let document = parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            let drawn = draw(&document.root.unwrap());
            assert_eq!(drawn, expected, "{text}");
            assert!(document.warnings.is_empty(), "{:?}", document.warnings);
        }
    }

    /// Each of a thousand mappings has the thousand fields of the first.
    #[test]
    fn merge_keys_add_a_limited_number_of_fields() {
        let fields: Vec<_> = (0..1_000).map(|field| format!("k{field}: 1")).collect();
        let text = format!("a: &x {{{}}}\n", fields.join(", "));
        let merges: Vec<_> = (0..1_000)
            .map(|key| format!("m{key}: {{<<: *x}}\n"))
            .collect();
        let why = parse(&format!("{text}{}", merges.concat())).unwrap_err();
        assert_eq!(
            why,
            "aliases and merge keys (<<) add more than 8388608 bytes at line 33"
        );
    }

    #[test]
    fn files_in_utf_16_are_read_by_their_mark() {
        let text = "token: \u{1f511} é\n";
        let marked: Vec<_> = [0xfeff_u16]
            .into_iter()
            .chain(text.encode_utf16())
            .collect();
        let little = marked
            .iter()
            .flat_map(|unit| unit.to_le_bytes())
            .collect::<Vec<_>>();
        let big = marked
            .iter()
            .flat_map(|unit| unit.to_be_bytes())
            .collect::<Vec<_>>();
        for bytes in [little.clone(), big, text.as_bytes().to_vec()] {
            assert_eq!(decode(Zeroizing::new(bytes)).unwrap().as_str(), text);
        }
        let (odd, half) = (little[..5].to_vec(), vec![0xff, 0xfe, 0x3d, 0xd8]);
        for bytes in [odd, half, vec![0xff, 0x00]] {
            let why = decode(Zeroizing::new(bytes)).unwrap_err();
            assert_eq!(why, "holds bytes that are not text");
        }
    }

    /// Writes a level of a document, with its name and the aliases in it.
    type WriteLevel<'a> = &'a dyn Fn(&str, &str) -> String;

    /// Ten levels of ten aliases each would be ten billion nodes, written out.
    #[test]
    fn aliases_add_a_limited_amount() {
        let lists = |level: &str, below: &str| format!("{level}: &{level} [{below}]\n");
        let maps = |level: &str, below: &str| {
            let fields = below.split(", ").enumerate();
            let fields: Vec<_> = fields.map(|(nth, of)| format!("k{nth}: {of}")).collect();
            format!("{level}: &{level} {{{}}}\n", fields.join(", "))
        };
        let merges = |level: &str, below: &str| format!("{level}: &{level} {{<<: [{below}]}}\n");
        let rows: [(_, WriteLevel<'_>); 3] =
            [("[x]", &lists), ("{x: 1}", &maps), ("{x: 1}", &merges)];
        for (base, write) in rows {
            let mut text = format!("a0: &a0 {base}\n");
            for level in 1..=10_usize {
                let below = vec![format!("*a{}", level.saturating_sub(1)); 10].join(", ");
                text.push_str(&write(&format!("a{level}"), &below));
            }
            let why = parse(&text).unwrap_err();
            let expected = "aliases and merge keys (<<) add more than 8388608 bytes at line ";
            assert!(why.starts_with(expected), "{why}");
        }
        // A long text counts with its length.
        let long = format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(100_000),
            ["*a"; 100].join(", ")
        );
        assert!(parse(&long).is_err());
        let some = format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(10_000),
            ["*a"; 100].join(", ")
        );
        assert!(parse(&some).is_ok());
    }

    /// Also a chain of aliases, which recursion writes out.
    #[test]
    fn depth_is_bounded_with_aliases_written_out() {
        let chain = |levels: usize| -> String {
            let links = (1..levels).map(|at| format!("- &a{at} [*a{}]\n", at.saturating_sub(1)));
            ["- &a0 []\n".to_owned()].into_iter().chain(links).collect()
        };
        assert!(parse(&chain(200)).is_ok());
        let why = parse(&chain(400)).unwrap_err();
        assert!(why.starts_with("nested deeper than 255 levels, "), "{why}");
    }

    #[test]
    fn depth_is_bounded() {
        let why = drawn(&"[".repeat(100_000)).unwrap_err();
        assert!(why.starts_with("not YAML: "), "{why}");
    }
}
