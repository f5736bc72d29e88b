//! Scans the text around the items of a list: the span of each item, and the list's other members.

use super::buffer::Buffer;
use super::item::{decode_status, expected_words, is_table, may_be, text, well_formed};
use super::members::{MemberPart, MemberPlace, Members, find};
use super::message::ListPage;
use super::options::{ITEM_LIMIT, too_large};
use super::reason::{clip, protocol};
use super::scan::{NotJson, spells};
use crate::error::{Error, ErrorKind};
use crate::object::{Object, ResourceVersion};

/// The maximum size of a list's members besides its items. In practice they need less than 1 KiB.
const HEAD_BYTES_MAX: usize = 256 * 1024;

/// The maximum size of a continue token. In the URL of the next page a byte may need three.
const CONTINUE_BYTES_MAX: usize = 16 * 1024;

/// The members that are kept of a list, or of the status that comes in its place.
const KEPT: &str = "kind apiVersion metadata status message reason details code";

/// The member whose value comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ListMember {
    Items,
    Kept(&'static str),
    #[default]
    PassedOver,
}

/// The part that the scan has reached. The pending bytes begin there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListPart {
    /// An item begins here. Unless the caller passes it, the scan looks for its end.
    ItemStart,
    /// The first pending bytes, of this number, are one item. The caller takes them before the next
    /// step.
    Item(usize),
}

/// Follows one body through any number of refills.
#[derive(Default)]
pub(super) struct ListScan {
    members: Members,
    /// The member whose value comes.
    member: ListMember,
    item_bytes_max: usize,
    /// Bytes used up since the last item.
    passed: usize,
    /// Bytes used up before `passed` began.
    offset: usize,
    items: usize,
    has_items: bool,
    /// The kept members, as the inside of a JSON object.
    head: Vec<u8>,
    api_version: String,
    kind: String,
}

impl ListScan {
    pub(super) fn new(item_bytes_max: usize) -> Self {
        Self {
            item_bytes_max,
            ..Self::default()
        }
    }

    /// Items seen so far.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    pub(super) fn held(&self) -> usize {
        self.head.capacity()
    }

    /// Goes on to the next item. `None` asks for bytes. `kind` names the expected items in
    /// messages.
    pub(super) fn step(
        &mut self,
        buffer: &mut Buffer,
        kind: &str,
    ) -> Result<Option<ListPart>, Error> {
        loop {
            let pending = buffer.pending();
            let part = self.members.next(pending);
            let part = part.map_err(|NotJson(byte)| self.misplaced(byte))?;
            let Some((part, span)) = part else {
                self.partial(buffer)?;
                return Ok(None);
            };
            let bytes = span.of(pending);
            self.limit(part, bytes.len())?;
            match part {
                MemberPart::ItemStart => {
                    self.pass(buffer, span.start)?;
                    return Ok(Some(ListPart::ItemStart));
                }
                MemberPart::Item => {
                    let length = bytes.len();
                    self.pass(buffer, span.start)?;
                    self.count_item(length);
                    return Ok(Some(ListPart::Item(length)));
                }
                MemberPart::Key => self.name(bytes)?,
                MemberPart::Value => self.keep(bytes, kind)?,
                MemberPart::End => {}
            }
            self.pass(buffer, span.end)?;
        }
    }

    /// Passes the item that begins here, `length` bytes long. The caller takes them before the next
    /// step.
    pub(super) fn pass_item(&mut self, length: usize) {
        self.members.pass_item(length);
        self.count_item(length);
    }

    fn count_item(&mut self, length: usize) {
        self.items = self.items.saturating_add(1);
        let before = self.offset.saturating_add(self.passed);
        self.offset = before.saturating_add(length);
        self.passed = 0;
        self.members.forget(length);
    }

    /// Consumes the bytes of an incomplete part that need not stay.
    fn partial(&mut self, buffer: &mut Buffer) -> Result<(), Error> {
        let pending = buffer.pending().len();
        let at = self.members.at().min(pending);
        let mut used = at;
        if let MemberPlace::Inside(part) = self.members.place() {
            self.limit(part, pending.saturating_sub(at))?;
            if part == MemberPart::Value && self.is_passed_over() {
                used = pending;
            }
        }
        self.pass(buffer, used)
    }

    fn is_passed_over(&self) -> bool {
        self.member == ListMember::PassedOver
    }

    /// Refuses a part that is longer than allowed.
    fn limit(&self, part: MemberPart, length: usize) -> Result<(), Error> {
        let is_passed_over = part == MemberPart::Value && self.is_passed_over();
        if part == MemberPart::Item && length > self.item_bytes_max {
            let what = "an item of the list";
            return Err(too_large(what, self.item_bytes_max, ITEM_LIMIT));
        }
        if part != MemberPart::Item && !is_passed_over && length > HEAD_BYTES_MAX {
            return Err(head_too_large());
        }
        Ok(())
    }

    /// Takes a key of the list.
    fn name(&mut self, key: &[u8]) -> Result<(), Error> {
        if spells(key, "items") {
            if self.has_items {
                return Err(protocol("the list has its items twice"));
            }
            self.has_items = true;
            self.member = ListMember::Items;
            self.members.expect_items();
        } else if let Some(kept) = KEPT.split(' ').find(|kept| spells(key, kept)) {
            self.member = ListMember::Kept(kept);
            if !self.head.is_empty() {
                self.head.push(b',');
            }
            self.head.extend_from_slice(key);
            self.head.push(b':');
        } else {
            self.member = ListMember::PassedOver;
        }
        Ok(())
    }

    /// Takes a value that is not an array of items.
    fn keep(&mut self, value: &[u8], kind: &str) -> Result<(), Error> {
        match self.member {
            ListMember::PassedOver => Ok(()),
            ListMember::Items if value == b"null" => Ok(()),
            ListMember::Items => Err(protocol(
                "returned object must be a list: its items are no array",
            )),
            ListMember::Kept(name) => {
                self.head.extend_from_slice(value);
                if self.head.len() > HEAD_BYTES_MAX {
                    return Err(head_too_large());
                }
                match name {
                    "kind" => self.kind = text(Some(value)),
                    "apiVersion" => self.api_version = text(Some(value)),
                    _ => return Ok(()),
                }
                // RF-16: refuse a server-side `Table`, before its rows have come.
                let (api_version, said) = (&self.api_version, &self.kind);
                if is_table(&format!("{api_version} {said}")) {
                    return Err(protocol(&format!(
                        "unsupported list gvk: {api_version}, Kind={said}, type: {kind}"
                    )));
                }
                Ok(())
            }
        }
    }

    /// Returns the list's members besides its items. The caller calls it at the end of the body.
    pub(super) fn finish<K: Object>(self) -> Result<ListPage, Error> {
        let place = self.members.place();
        if place == MemberPlace::Start {
            return Err(protocol("the list is empty: there is no body"));
        }
        if place != MemberPlace::End {
            let (items, bytes) = (self.items, self.offset.saturating_add(self.passed));
            return Err(protocol(&format!(
                "the list was cut off: unexpected EOF after {items} items, near byte {bytes}"
            )));
        }
        let head = [b"{", &*self.head, b"}"].concat();
        well_formed(&head).map_err(|why| protocol(&format!("the list is not JSON: {why}")))?;
        if self.kind == "Status"
            && let Some(status) = decode_status(&head)
        {
            return Err(Error::from_status(status));
        }
        if !self.has_items && !self.kind.ends_with("List") {
            let said = match &*self.kind {
                "" => "unknown",
                kind => clip(kind),
            };
            let said = said.escape_debug();
            return Err(protocol(&format!(
                "returned object must be a list: it is of kind {said} and has no items"
            )));
        }
        refuse_foreign::<K>(&self.api_version, &self.kind)?;
        page(&head)
    }

    fn pass(&mut self, buffer: &mut Buffer, count: usize) -> Result<(), Error> {
        buffer.take(count);
        self.members.forget(count);
        self.passed = self.passed.saturating_add(count);
        if self.passed > self.item_bytes_max {
            let what = "what stands between two items of the list";
            return Err(too_large(what, self.item_bytes_max, ITEM_LIMIT));
        }
        Ok(())
    }

    fn misplaced(&self, byte: Option<u8>) -> Error {
        let used = self.offset.saturating_add(self.passed);
        let at = used.saturating_add(self.members.at());
        let found = char::from(byte.unwrap_or_default()).escape_debug();
        let what = match self.members.place() {
            MemberPlace::Start => "the answer is not a JSON object",
            MemberPlace::End => "the list goes on behind its end",
            MemberPlace::FirstItem | MemberPlace::NextItem => {
                "an item of the list is not an object"
            }
            MemberPlace::FirstKey
            | MemberPlace::NextKey
            | MemberPlace::Colon
            | MemberPlace::Value
            | MemberPlace::AfterValue
            | MemberPlace::AfterItem
            | MemberPlace::Inside(_) => "the list is not JSON",
        };
        protocol(&format!("{what}: unexpected '{found}' at byte {at}"))
    }
}

fn page(head: &[u8]) -> Result<ListPage, Error> {
    let metadata = find(head, "metadata").unwrap_or_default();
    let text = |name: &str| match find(metadata, name) {
        value @ (None | Some(b"null" | [b'"', ..])) => Ok(text(value)),
        Some(_) => Err(protocol(&format!(
            "unable to understand list result: metadata.{name} is no string"
        ))),
    };
    let continue_token = Some(text("continue")?).filter(|token| !token.is_empty());
    let is_too_long = |token: &String| token.len() > CONTINUE_BYTES_MAX;
    if continue_token.as_ref().is_some_and(is_too_long) {
        return Err(protocol(&format!(
            "the list's continue token is longer than {CONTINUE_BYTES_MAX} bytes"
        )));
    }
    Ok(ListPage {
        resource_version: ResourceVersion::from(text("resourceVersion")?),
        continue_token,
        ..ListPage::default()
    })
}

/// RF-25: like an object, a list that names its version and kind must be what was asked for.
fn refuse_foreign<K: Object>(version: &str, said: &str) -> Result<(), Error> {
    // A group with a dot may hold custom resources, which choose the kind of their lists
    // (`listKind`).
    let has_dot = K::resource().group().contains('.') && !version.starts_with("meta.k8s.io/");
    let is_ours = may_be::<K>(|(api_version, kind)| {
        let is_kind = said.strip_suffix("List") == Some(kind)
            || said == "List"
            || has_dot && !version.is_empty();
        (said.is_empty() || is_kind) && (version.is_empty() || version == api_version)
    });
    if is_ours {
        return Ok(());
    }
    let ours = expected_words::<K>("List");
    let found = format!("{} {}", clip(version), clip(said));
    let found = found.escape_debug().to_string();
    let found = found.trim();
    Err(protocol(&format!("the answer is {found}, not {ours}")))
}

fn head_too_large() -> Error {
    let text = format!("what the list says of itself is larger than {HEAD_BYTES_MAX} bytes");
    Error::new(ErrorKind::TooLarge, text)
}
