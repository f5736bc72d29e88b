//! Scans a JSON text for the byte ranges of its values, so that they can be replaced in place and
//! texts copied verbatim.

use std::ops::Range;

/// The maximum depth of nesting, because the scan recurses. No API object is deeper.
const DEPTH_MAX: usize = 128;

/// A value and its byte range.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JsonNode {
    Object(Vec<JsonMember>),
    Array(Vec<JsonNode>),
    /// The range inside the quotes.
    String(Range<usize>),
    /// A number, `true`, `false` or `null`.
    Literal(Range<usize>),
}

/// One member of an object, with the escapes of its key decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JsonMember {
    pub(super) key: String,
    pub(super) value: JsonNode,
    /// The whole value, with its quotes or braces.
    pub(super) span: Range<usize>,
}

/// A scanned text.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) root: JsonNode,
    /// Whether the text ended before its value did. Open containers then end with the text.
    pub(super) cut: bool,
}

/// Why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadJson {
    pub(super) at: usize,
}

impl JsonNode {
    pub(super) fn members(&self) -> &[JsonMember] {
        match self {
            Self::Object(members) => members,
            Self::Array(_) | Self::String(_) | Self::Literal(_) => &[],
        }
    }

    pub(super) fn member(&self, key: &str) -> Option<&JsonMember> {
        self.members().iter().find(|member| member.key == key)
    }
}

/// Scans one value and the white space around it. Scans a text that ends too early as far as it
/// goes.
pub(super) fn scan(text: &[u8]) -> Result<Scanned, BadJson> {
    let mut scanner = Scanner {
        text,
        at: 0,
        cut: false,
    };
    let root = scanner.value(0)?;
    scanner.space();
    if scanner.at < text.len() {
        return Err(scanner.error());
    }
    Ok(Scanned {
        root,
        cut: scanner.cut,
    })
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    cut: bool,
}

impl Scanner<'_> {
    fn error(&self) -> BadJson {
        BadJson { at: self.at }
    }

    /// The next byte; `None` at the end of the text, which then counts as cut.
    fn peek(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied();
        self.cut |= byte.is_none();
        byte
    }

    fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.step();
        }
    }

    fn value(&mut self, depth: usize) -> Result<JsonNode, BadJson> {
        self.space();
        if depth > DEPTH_MAX {
            return Err(self.error());
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(JsonNode::String),
            Some(b'-' | b'0'..=b'9' | b'a'..=b'z') => Ok(JsonNode::Literal(self.literal())),
            Some(_) => Err(self.error()),
            None => Ok(JsonNode::Literal(self.at..self.at)),
        }
    }

    fn object(&mut self, depth: usize) -> Result<JsonNode, BadJson> {
        let mut members = Vec::new();
        self.step();
        self.space();
        if self.peek() == Some(b'}') {
            self.step();
            return Ok(JsonNode::Object(members));
        }
        loop {
            self.space();
            match self.peek() {
                Some(b'"') => {}
                Some(_) => return Err(self.error()),
                None => return Ok(JsonNode::Object(members)),
            }
            let key = self.string()?;
            self.space();
            match self.peek() {
                Some(b':') => self.step(),
                Some(_) => return Err(self.error()),
                None => return Ok(JsonNode::Object(members)),
            }
            self.space();
            let start = self.at;
            let value = self.value(depth.saturating_add(1))?;
            members.push(JsonMember {
                key: self.unescape(key)?,
                value,
                span: start..self.at,
            });
            if self.ends_with(b'}')? {
                return Ok(JsonNode::Object(members));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<JsonNode, BadJson> {
        let mut items = Vec::new();
        self.step();
        self.space();
        if self.peek() == Some(b']') {
            self.step();
            return Ok(JsonNode::Array(items));
        }
        loop {
            if self.peek().is_none() {
                return Ok(JsonNode::Array(items));
            }
            items.push(self.value(depth.saturating_add(1))?);
            if self.ends_with(b']')? {
                return Ok(JsonNode::Array(items));
            }
        }
    }

    /// Steps over a comma or the end of the container, or to the end of a cut text.
    fn ends_with(&mut self, end: u8) -> Result<bool, BadJson> {
        self.space();
        match self.peek() {
            Some(b',') => {
                self.step();
                Ok(false)
            }
            Some(byte) if byte == end => {
                self.step();
                Ok(true)
            }
            Some(_) => Err(self.error()),
            None => Ok(true),
        }
    }

    fn string(&mut self) -> Result<Range<usize>, BadJson> {
        self.step();
        let start = self.at;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    let inside = start..self.at;
                    self.step();
                    return Ok(inside);
                }
                b'\\' => {
                    self.step();
                    if self.peek().is_some() {
                        self.step();
                    }
                }
                0..=0x1f => return Err(self.error()),
                _ => self.step(),
            }
        }
        Ok(start..self.at)
    }

    fn literal(&mut self) -> Range<usize> {
        let start = self.at;
        while let Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') =
            self.text.get(self.at)
        {
            self.step();
        }
        start..self.at
    }

    fn unescape(&self, inside: Range<usize>) -> Result<String, BadJson> {
        let at = inside.start;
        let raw = self.text.get(inside).unwrap_or_default();
        let plain = std::str::from_utf8(raw).map_err(|_not_utf8| BadJson { at })?;
        if plain.contains('\\') {
            return serde_json::from_str(&format!("\"{plain}\""))
                .map_err(|_bad_escape| BadJson { at });
        }
        Ok(plain.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of<'a>(text: &'a str, path: &[&str]) -> &'a str {
        let scanned = scan(text.as_bytes()).unwrap();
        let mut node = &scanned.root;
        let mut span = 0..0;
        for key in path {
            let member = node.member(key).unwrap();
            (node, span) = (&member.value, member.span.clone());
        }
        &text[span]
    }

    #[test]
    fn a_value_is_found_on_its_very_bytes() {
        let text = r#" {"a": [1, {"b":"x\"y"}], "d\u0061ta" : {"k": "v" } , "n":-1.5e3} "#;
        assert_eq!(text_of(text, &["data"]), r#"{"k": "v" }"#);
        assert_eq!(text_of(text, &["data", "k"]), r#""v""#);
        assert_eq!(text_of(text, &["a"]), r#"[1, {"b":"x\"y"}]"#);
        assert_eq!(text_of(text, &["n"]), "-1.5e3");
    }

    #[test]
    fn a_text_that_is_cut_anywhere_is_scanned_as_far_as_it_goes() {
        let text = br#"{"kind":"Secret","data":{"a":"QQ==","b":["c",{"d":1}]},"e":null}"#;
        assert!(!scan(text).unwrap().cut);
        for end in 0..text.len() {
            assert!(scan(&text[..end]).unwrap().cut, "cut at {end}");
        }
    }

    #[test]
    fn what_is_not_json_is_refused_where_it_goes_wrong() {
        for (text, at) in [
            ("{\"a\" 1}", 5),
            ("[1 2]", 3),
            ("{} {}", 3),
            ("\"a\nb\"", 2),
            ("<html>", 0),
        ] {
            assert_eq!(scan(text.as_bytes()).unwrap_err(), BadJson { at }, "{text}");
        }
        let deep = "[".repeat(4_000);
        assert!(scan(deep.as_bytes()).is_err());
    }
}
