//! The text around the items of a list: where each item stands, and what the list says of itself.

use serde_json::Value;

use super::buffer::Buffer;
use super::message::ListPage;
use super::scan::{Cutting, Misplaced, Scan, Shape, is_space, spells};
use super::whole::{decode_status, is_table};
use crate::error::{Error, ErrorKind};
use crate::object::{Object, ResourceVersion};

/// What a list says of itself besides its items: version and continue token are less than 1 KiB in practice.
const HEAD_BYTES_MAX: usize = 256 * 1024;

/// The token goes back in the URL of the next page, where it may need three bytes for one.
const CONTINUE_BYTES_MAX: usize = 16 * 1024;

/// Members of a list, or of the status that comes in its place, that are kept.
const KEPT: [&str; 8] = [
    "kind",
    "apiVersion",
    "metadata",
    "status",
    "message",
    "reason",
    "details",
    "code",
];

/// What the next byte of the body can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Body,
    FirstKey,
    NextKey,
    Colon,
    Value,
    AfterValue,
    FirstItem,
    NextItem,
    AfterItem,
    End,
    /// In a value that is not yet whole.
    Inside(Part),
}

/// What a value is to the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Key,
    Value,
    Item,
}

/// The member whose value comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Items,
    Kept,
    PassedOver,
}

/// What a step came to.
pub(super) enum Step {
    /// So many pending bytes are one item; they are to be taken before the next step.
    Item(usize),
    /// All that came is used up.
    NeedsBytes,
}

/// Follows one body through any number of refills.
pub(super) struct ListScan {
    place: Place,
    member: Member,
    scan: Scan,
    cutting: Cutting,
    item_bytes_max: usize,
    /// Bytes used up since the last item.
    passed: usize,
    /// Bytes used up before `passed` began.
    offset: usize,
    items: usize,
    has_items: bool,
    /// The kept members, as the inside of a JSON object.
    head: Vec<u8>,
}

impl ListScan {
    pub(super) fn new(cutting: Cutting, item_bytes_max: usize) -> Self {
        Self {
            place: Place::Body,
            member: Member::PassedOver,
            scan: Scan::default(),
            cutting,
            item_bytes_max,
            passed: 0,
            offset: 0,
            items: 0,
            has_items: false,
            head: Vec::new(),
        }
    }

    /// Items seen so far.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// What was seen of the item that the last step found.
    pub(super) fn shape(&self) -> &Shape {
        self.scan.shape()
    }

    pub(super) fn held(&self) -> usize {
        self.head.capacity().saturating_add(self.scan.held())
    }

    /// Goes on to the next item. `kind` is what the items are meant to be, for messages.
    pub(super) fn step(&mut self, buffer: &mut Buffer, kind: &str) -> Result<Step, Error> {
        loop {
            let whole = if let Place::Inside(part) = self.place {
                self.value(part, buffer, kind)?
            } else {
                self.between(buffer)?
            };
            match whole {
                Some(step) => return Ok(step),
                None if self.passed > self.item_bytes_max => {
                    return Err(too_large(
                        self.item_bytes_max,
                        "what stands between two items of the list",
                    ));
                }
                None => {}
            }
        }
    }

    /// One byte of structure; `None` goes on.
    fn between(&mut self, buffer: &mut Buffer) -> Result<Option<Step>, Error> {
        let pending = buffer.pending();
        let Some(blank) = pending.iter().position(|byte| !is_space(*byte)) else {
            let all = pending.len();
            self.pass(buffer, all);
            return if self.passed > self.item_bytes_max {
                Ok(None)
            } else {
                Ok(Some(Step::NeedsBytes))
            };
        };
        let byte = pending.get(blank).copied().unwrap_or_default();
        self.pass(buffer, blank);
        let next = match (self.place, byte) {
            (Place::Body, b'{') => Place::FirstKey,
            (Place::FirstKey | Place::AfterValue, b'}') => Place::End,
            (Place::AfterValue, b',') => Place::NextKey,
            (Place::Colon, b':') => Place::Value,
            (Place::FirstItem | Place::AfterItem, b']') => Place::AfterValue,
            (Place::AfterItem, b',') => Place::NextItem,
            (Place::Value, b'[') if self.member == Member::Items => Place::FirstItem,
            // These begin a value and stay for the scanner to see.
            (Place::FirstKey | Place::NextKey, b'"') => return Ok(self.begin(Part::Key)),
            (Place::FirstItem | Place::NextItem, b'{') => return Ok(self.begin(Part::Item)),
            (Place::Value, _) => return Ok(self.begin(Part::Value)),
            _ => return Err(self.misplaced(byte)),
        };
        self.place = next;
        self.pass(buffer, 1);
        Ok(None)
    }

    fn begin(&mut self, part: Part) -> Option<Step> {
        self.place = Place::Inside(part);
        if part == Part::Item {
            self.scan.begin_object(self.cutting);
        } else {
            self.scan.begin();
        }
        None
    }

    /// More of a value; `None` goes on.
    fn value(
        &mut self,
        part: Part,
        buffer: &mut Buffer,
        kind: &str,
    ) -> Result<Option<Step>, Error> {
        let pending = buffer.pending();
        let end = match self.scan.advance(pending) {
            Ok(end) => end,
            Err(Misplaced { byte, .. }) => return Err(self.misplaced(byte)),
        };
        let length = end.unwrap_or(pending.len());
        let passed_over = part == Part::Value && self.member == Member::PassedOver;
        if part == Part::Item && length > self.item_bytes_max {
            return Err(too_large(self.item_bytes_max, "an item of the list"));
        }
        if part != Part::Item && !passed_over && length > HEAD_BYTES_MAX {
            return Err(head_too_large());
        }
        let Some(length) = end else {
            if passed_over {
                self.scan.forget(length);
                self.pass(buffer, length);
            }
            return Ok((self.passed <= self.item_bytes_max).then_some(Step::NeedsBytes));
        };
        let value = pending.get(..length).unwrap_or_default();
        self.place = match part {
            Part::Item => {
                self.items = self.items.saturating_add(1);
                let before = self.offset.saturating_add(self.passed);
                self.offset = before.saturating_add(length);
                self.passed = 0;
                self.place = Place::AfterItem;
                return Ok(Some(Step::Item(length)));
            }
            Part::Key => {
                self.name(value)?;
                Place::Colon
            }
            Part::Value => {
                self.keep(value, kind)?;
                Place::AfterValue
            }
        };
        self.pass(buffer, length);
        Ok(None)
    }

    /// A key of the list has come.
    fn name(&mut self, key: &[u8]) -> Result<(), Error> {
        if spells(key, "items") {
            if self.has_items {
                return Err(protocol("the list has its items twice"));
            }
            self.has_items = true;
            self.member = Member::Items;
        } else if KEPT.iter().any(|kept| spells(key, kept)) {
            self.member = Member::Kept;
            if !self.head.is_empty() {
                self.head.push(b',');
            }
            self.head.extend_from_slice(key);
            self.head.push(b':');
        } else {
            self.member = Member::PassedOver;
        }
        Ok(())
    }

    /// A value that is not an array of items has come.
    fn keep(&mut self, value: &[u8], kind: &str) -> Result<(), Error> {
        match self.member {
            Member::PassedOver => Ok(()),
            Member::Items if value == b"null" => Ok(()),
            Member::Items => Err(protocol(
                "returned object must be a list: its items are no array",
            )),
            Member::Kept => {
                self.head.extend_from_slice(value);
                if self.head.len() > HEAD_BYTES_MAX {
                    return Err(head_too_large());
                }
                // Before its rows have come.
                refuse_table(&self.head()?, kind)
            }
        }
    }

    /// The list's members besides its items. To be called at the end of the body.
    pub(super) fn finish<K: Object>(self) -> Result<ListPage, Error> {
        if self.place == Place::Body {
            return Err(protocol("the list is empty: there is no body"));
        }
        if self.place != Place::End {
            let (items, bytes) = (self.items, self.offset.saturating_add(self.passed));
            return Err(protocol(&format!(
                "the list was cut off: unexpected EOF after {items} items, near byte {bytes}"
            )));
        }
        let head = self.head()?;
        let said = word(&head, "kind");
        if said == "Status"
            && let Some(status) = decode_status(head.to_string().as_bytes())
        {
            return Err(Error::from_status(status));
        }
        refuse_table(&head, K::KIND)?;
        if !self.has_items && !said.ends_with("List") {
            let said = if said.is_empty() { "unknown" } else { said };
            let said = super::reason::clip(said).escape_debug();
            return Err(protocol(&format!(
                "returned object must be a list: it is of kind {said} and has no items"
            )));
        }
        refuse_foreign::<K>(&head)?;
        page(&head)
    }

    fn head(&self) -> Result<Value, Error> {
        let mut json = Vec::with_capacity(self.head.len().saturating_add(2));
        json.push(b'{');
        json.extend_from_slice(&self.head);
        json.push(b'}');
        serde_json::from_slice(&json).map_err(|error| {
            let why = super::reason::without_values(&error);
            protocol(&format!("the list is not JSON: {why}"))
        })
    }

    fn pass(&mut self, buffer: &mut Buffer, count: usize) {
        buffer.take(count);
        self.passed = self.passed.saturating_add(count);
    }

    fn misplaced(&self, byte: u8) -> Error {
        let at = self.offset.saturating_add(self.passed);
        let found = char::from(byte).escape_debug();
        let what = if self.place == Place::Body {
            "the answer is not a JSON object"
        } else if self.place == Place::End {
            "the list goes on behind its end"
        } else if matches!(self.place, Place::FirstItem | Place::NextItem) {
            "an item of the list is not an object"
        } else {
            "the list is not JSON"
        };
        protocol(&format!("{what}: unexpected '{found}' at byte {at}"))
    }
}

fn protocol(message: &str) -> Error {
    Error::new(ErrorKind::Protocol, message)
}

fn word<'a>(head: &'a Value, name: &str) -> &'a str {
    head.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn page(head: &Value) -> Result<ListPage, Error> {
    let metadata = head.get("metadata").unwrap_or(&Value::Null);
    let text = |name: &str| match metadata.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(_) => Err(protocol(&format!(
            "unable to understand list result: metadata.{name} is no string"
        ))),
    };
    let continue_token = Some(text("continue")?).filter(|token| !token.is_empty());
    if continue_token.is_some_and(|token| token.len() > CONTINUE_BYTES_MAX) {
        return Err(protocol(&format!(
            "the list's continue token is longer than {CONTINUE_BYTES_MAX} bytes"
        )));
    }
    Ok(ListPage {
        resource_version: ResourceVersion::from(text("resourceVersion")?),
        continue_token: continue_token.map(str::to_owned),
    })
}

/// RF-16.
fn refuse_table(head: &Value, kind: &str) -> Result<(), Error> {
    let (version, said) = (word(head, "apiVersion"), word(head, "kind"));
    if is_table(&format!("{version} {said}")) {
        return Err(protocol(&format!(
            "unsupported list gvk: {version}, Kind={said}, type: {kind}"
        )));
    }
    Ok(())
}

/// RF-25: as an object, a list that says what it is must be what was asked for.
fn refuse_foreign<K: Object>(head: &Value) -> Result<(), Error> {
    let (version, said) = (word(head, "apiVersion"), word(head, "kind"));
    let ours = format!("{}List", K::KIND);
    // A group with a dot may be of custom resources, which choose the kind of their lists
    // (`listKind`).
    let is_kind =
        said == ours || said == "List" || K::GROUP.contains('.') && said.ends_with("List");
    let is_version = version.is_empty() || version == K::API_VERSION;
    if (said.is_empty() || is_kind) && is_version {
        return Ok(());
    }
    let found = format!(
        "{} {}",
        super::reason::clip(version),
        super::reason::clip(said)
    );
    let found = found.escape_debug().to_string();
    Err(protocol(&format!(
        "the answer is {}, not {} {ours}",
        found.trim(),
        K::API_VERSION
    )))
}

fn too_large(limit: usize, what: &str) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "{what} is larger than {limit} bytes; DecodeOptions::item_bytes_max raises the limit"
        ),
    )
}

fn head_too_large() -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!("what the list says of itself is larger than {HEAD_BYTES_MAX} bytes"),
    )
}
