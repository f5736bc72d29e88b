//! The JSON of one object, kept as text, and where in it stands what caches look at.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::Decoder;
use super::members::{find, members_of};
use super::scan::spells;
use super::wiped::Wiped;
use crate::object::wipe::LAST_APPLIED;

/// The text of one object. It is overwritten when it is dropped.
#[derive(Default)]
pub(super) struct ObjectText {
    json: Wiped,
    namespace: Part,
    name: Part,
    uid: Part,
    version: Part,
    /// The whole map, braces included; empty without labels.
    labels: Part,
}

/// A part of the text. An object is far smaller than 4 GiB.
#[derive(Clone, Copy, Default)]
struct Part {
    start: u32,
    end: u32,
}

impl ObjectText {
    /// Copies `json`, which is JSON. Fails with the reason if it is no object with plain names.
    pub(super) fn new(json: &[u8]) -> Result<Self, String> {
        if !json.starts_with(b"{") {
            return Err("expected an object".to_owned());
        }
        let mut text = Self {
            json: Wiped::beginning_with(json, json.len()),
            ..Self::default()
        };
        let json: &[u8] = &text.json;
        let Some(metadata) = find(json, "metadata") else {
            return Ok(text);
        };
        for (key, value) in members_of(metadata).map_while(Result::ok) {
            let part = match () {
                () if spells(key, "namespace") => &mut text.namespace,
                () if spells(key, "name") => &mut text.name,
                () if spells(key, "uid") => &mut text.uid,
                () if spells(key, "resourceVersion") => &mut text.version,
                () if spells(key, "labels") && value.starts_with(b"{") => {
                    text.labels = Part::of(value, json);
                    continue;
                }
                () => continue,
            };
            *part = match value {
                b"null" => Part::default(),
                [b'"', plain @ .., b'"'] if !plain.contains(&b'\\') => Part::of(plain, json),
                _ => {
                    let key = String::from_utf8_lossy(key);
                    let key = key.trim_matches('"');
                    let expected = "expected a string without escapes";
                    return Err(format!("metadata.{key}: {expected}"));
                }
            };
        }
        Ok(text)
    }

    pub(super) fn clone(&self) -> Self {
        Self {
            json: Wiped::beginning_with(&self.json, self.json.len()),
            ..*self
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.json
    }

    pub(super) fn namespace(&self) -> &str {
        self.text(self.namespace)
    }

    pub(super) fn name(&self) -> &str {
        self.text(self.name)
    }

    pub(super) fn uid(&self) -> &str {
        self.text(self.uid)
    }

    pub(super) fn version(&self) -> &str {
        self.text(self.version)
    }

    /// Whether it has what only writers need.
    pub(super) fn is_untrimmed(&self) -> bool {
        let metadata = find(&self.json, "metadata").unwrap_or_default();
        let annotations = find(metadata, "annotations").unwrap_or_default();
        find(metadata, "managedFields").is_some() || find(annotations, LAST_APPLIED).is_some()
    }

    /// The value of a label. Values of labels have no character that JSON would escape.
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        let value = find(self.part(self.labels), name)?;
        let plain = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        std::str::from_utf8(plain).ok()
    }

    /// The value at a JSON pointer, such as `/spec/nodeName`; `None` if there is none, or null.
    /// Fails with the reason if that is no pointer, or the value is no `T`.
    pub(super) fn field<'a, T: Deserialize<'a>>(
        &'a self,
        pointer: &str,
    ) -> Result<Option<T>, String> {
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err("a JSON pointer is empty or begins with \"/\"".to_owned());
        }
        let mut value = Some(&*self.json);
        for step in pointer.split('/').skip(1) {
            let name = step.replace("~1", "/").replace("~0", "~");
            value = match value {
                Some(map @ [b'{', ..]) => find(map, &name),
                Some(list @ [b'[', ..]) => nth(list, &name),
                _ => None,
            };
        }
        value.map_or(Ok(None), |value| Decoder::new(value).decode())
    }

    fn part(&self, part: Part) -> &[u8] {
        let long = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        let range = long(part.start)..long(part.end);
        self.json.get(range).unwrap_or_default()
    }

    fn text(&self, part: Part) -> &str {
        std::str::from_utf8(self.part(part)).unwrap_or_default()
    }
}

impl Part {
    /// Where `part` stands, which is a part of `whole`.
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
        let end = start.saturating_add(part.len());
        let short = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: short(start),
            end: short(end),
        }
    }
}

/// The item of a list with that number.
fn nth<'a>(list: &'a [u8], number: &str) -> Option<&'a [u8]> {
    let is_plain = number == "0" || number.starts_with(|digit: char| matches!(digit, '1'..='9'));
    if !is_plain {
        return None;
    }
    let items: Vec<&RawValue> = serde_json::from_slice(list).ok()?;
    let item = items.get(number.parse::<usize>().ok()?)?;
    Some(item.get().as_bytes())
}
