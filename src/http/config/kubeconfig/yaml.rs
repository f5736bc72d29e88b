//! Parses YAML into a tree of shared nodes, in which an alias costs a pointer.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, StrInput};
use zeroize::Zeroizing;

use crate::sync::Arc;

/// A node of a document. The text of a scalar is kept as written; its reader interprets it.
#[derive(Debug)]
pub(crate) enum Node {
    Scalar {
        text: Zeroizing<String>,
        /// Whether it has no quotes. Only then it can be null or a truth value.
        plain: bool,
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
    pub(super) fn get(&self, key: &str) -> Option<&Arc<Self>> {
        let Self::Mapping(entries) = self else {
            return None;
        };
        entries
            .iter()
            .find(|(name, value)| name == key && !value.is_null())
            .map(|(_, value)| value)
    }

    /// Whether it is one of YAML's spellings of null.
    pub(super) fn is_null(&self) -> bool {
        match self {
            Self::Scalar { text, plain } => {
                *plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            Self::Sequence(_) | Self::Mapping(_) => false,
        }
    }

    /// Returns the text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar { text, .. } => Some(text.as_str()),
            Self::Sequence(_) | Self::Mapping(_) => None,
        }
    }

    /// Names the kind of node, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Scalar { .. } => "a single value",
            Self::Sequence(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }
}

/// Makes nodes of the parser's events.
struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// The line of the last event.
    line: usize,
    anchors: HashMap<usize, Arc<Node>>,
}

/// Parses the one document of `text`; `None` if it is empty.
///
/// The parser bounds the nesting (255). The text's length bounds the memory, because an alias
/// shares its target. The error names the line and repeats no more than one character of the text.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all other events begin nodes"
)]
pub(super) fn parse(text: &str) -> Result<Option<Arc<Node>>, String> {
    let options = granit_parser::options! { emit_comments: false };
    let mut reader = Reader {
        events: Parser::new_from_str_with_options(text, options),
        line: 0,
        anchors: HashMap::new(),
    };
    let (mut has_begun, mut root) = (false, None);
    loop {
        match reader.next()? {
            Event::DocumentStart(..) if has_begun => {
                return Err(reader.refused("a second document starts"));
            }
            Event::DocumentStart(..) => has_begun = true,
            Event::StreamStart | Event::DocumentEnd => {}
            Event::StreamEnd => return Ok(root.filter(|root: &Arc<Node>| !root.is_null())),
            event => root = Some(reader.node(event)?),
        }
    }
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        let Some(next) = self.events.next() else {
            return Ok(Event::StreamEnd);
        };
        let (event, span) = next.map_err(|error| {
            let at = error.marker();
            format!(
                "not YAML: {} at line {} column {}",
                error.info(),
                at.line(),
                at.col().saturating_add(1)
            )
        })?;
        self.line = span.start.line();
        Ok(event)
    }

    fn refused(&self, why: &str) -> String {
        format!("{why} at line {}", self.line)
    }

    /// Reads the node that begins with `event`.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events are no nodes")]
    fn node(&mut self, event: Event<'a>) -> Result<Arc<Node>, String> {
        let (anchor, node) = match event {
            Event::Alias(id) => {
                let node = self.anchors.get(&id).map(Arc::clone);
                return node.ok_or_else(|| self.refused("an alias refers to what contains it"));
            }
            Event::Scalar(text, style, anchor, _tag) => {
                let text = Zeroizing::new(text.into_owned());
                let plain = style == ScalarStyle::Plain;
                (anchor, Node::Scalar { text, plain })
            }
            Event::SequenceStart(_, anchor, _tag) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => break (anchor, Node::Sequence(items)),
                        item => items.push(self.node(item)?),
                    }
                }
            }
            Event::MappingStart(_, anchor, _tag) => {
                let mut entries = Vec::new();
                loop {
                    match self.next()? {
                        Event::MappingEnd => break (anchor, Node::Mapping(entries)),
                        key => {
                            let key = self.node(key)?;
                            let key = new_key(&key, &entries).map_err(|why| self.refused(&why))?;
                            let value = self.next()?;
                            entries.push((key, self.node(value)?));
                        }
                    }
                }
            }
            _ => return Err(self.refused("something other than a value stands")),
        };
        let node = Arc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, Arc::clone(&node));
        }
        Ok(node)
    }
}

fn new_key(node: &Node, entries: &[(String, Arc<Node>)]) -> Result<String, String> {
    let Node::Scalar { text, plain } = node else {
        return Err(format!("a key is {}", node.kind()));
    };
    if *plain && text.as_str() == "<<" {
        return Err("a merge key (<<) is not supported: write the fields out".to_owned());
    }
    if entries.iter().any(|(name, _)| *name == **text) {
        return Err(format!("the key {:?} stands twice", text.as_str()));
    }
    Ok(text.as_str().to_owned())
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
        parse(text).map(|root| root.map_or_else(|| "nothing".to_owned(), |root| draw(&root)))
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
            ("\u{feff}a: b\n", "{a=b}"),
        ];
        for (text, expected) in rows {
            assert_eq!(drawn(text), Ok(expected.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn what_is_refused() {
        let rows = [
            ("a: 1\na: 2\n", "the key \"a\" stands twice at line 2"),
            ("? [x]\n: 1\n", "a key is a list at line 1"),
            (
                "a: &x\n  b: *x\n",
                "an alias refers to what contains it at line 2",
            ),
            ("a: 1\n---\nb: 1\n", "a second document starts at line 2"),
            (
                "a: &x {b: 1}\nc:\n  <<: *x\n",
                "a merge key (<<) is not supported: write the fields out at line 3",
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

    /// Ten levels of ten aliases each would be ten thousand million nodes, written out.
    #[test]
    fn aliases_of_aliases_cost_a_pointer_each() {
        let mut text = "a0: &a0 [x]\n".to_owned();
        for level in 1..=10 {
            let below = format!("*a{}", level - 1);
            let items = vec![below; 10].join(", ");
            text.extend([
                "a",
                &level.to_string(),
                ": &a",
                &level.to_string(),
                " [",
                &items,
                "]\n",
            ]);
        }
        let root = parse(&text).unwrap().unwrap();
        let Some(Node::Sequence(items)) = root.get("a10").map(|node| &**node) else {
            panic!("a list")
        };
        assert_eq!(items.len(), 10);
        assert!(items.iter().all(|item| Arc::ptr_eq(item, &items[0])));
    }

    #[test]
    fn depth_is_bounded() {
        let why = drawn(&"[".repeat(100_000)).unwrap_err();
        assert!(why.starts_with("not YAML: "), "{why}");
    }
}
