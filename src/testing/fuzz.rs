//! The targets of the fuzzer: each reads bytes as a decoder of the crate does, and compares the
//! outcome with another reading of the same bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::http::{Pem, expires, plugin_answer, proxy_answer, read_text, retry_after};
use crate::list_watch::{EventKind, Listed, ObjectEvent, WatchEvent};
use crate::object::{LabelMatcher, LabelSelector, Object, Status};
use crate::testing::Recording;
use crate::wire::{DecodeOptions, EventDecoder, ListDecoder, decode_object, decode_status};

/// A decoder with an oracle.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FuzzTarget {
    /// The name of the target.
    pub name: &'static str,
    /// Reads the bytes. Returns whether the decoder takes them.
    ///
    /// # Errors
    ///
    /// What the decoder does and must not do.
    pub run: fn(&[u8]) -> Result<bool, String>,
}

macro_rules! targets {
    ($($name:literal => $run:expr,)+) => {
        &[$(FuzzTarget { name: $name, run: $run }),+]
    };
}

/// All targets. Where a decoder and `serde_json` differ, it is on purpose:
///
/// - The decoders set one broken object aside, and go on with the others. A text that is no UTF-8,
///   a number that no type holds or a name that is missing breaks its object only.
/// - What a decoder passes over, such as managed fields, need only close its strings and brackets.
/// - Objects may leave their kind and version out, or leave them empty.
/// - A list has its items once. It must be of the kind that was asked for, and no `Status`.
/// - A watch ends with the first event that is none.
pub const FUZZ_TARGETS: &[FuzzTarget] = targets! {
    "list" => |body| either(body, list::<Secret>, list::<ConfigMap>),
    "watch" => |body| either(body, watch::<Secret>, watch::<ConfigMap>),
    "object" => |body| either(body, object::<Secret>, object::<ConfigMap>),
    "status" => status,
    "kubeconfig" => kubeconfig,
    "plugin" => plugin,
    "selector" => selector,
    "retry-after" => wait,
    "proxy" => proxy,
    "pem" => pem,
    "recording" => recording,
    "snapshot" => snapshot,
};

type FuzzRun = fn(&[u8]) -> Result<bool, String>;

/// Both types get half of the inputs.
fn either(body: &[u8], even: FuzzRun, odd: FuzzRun) -> Result<bool, String> {
    if body.len().is_multiple_of(2) {
        even(body)
    } else {
        odd(body)
    }
}

/// The sizes of the chunks in which a body comes: all at once, and small ones.
fn chunk_sizes(body: &[u8]) -> [usize; 2] {
    let sum = body.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    [body.len().max(1), usize::from(sum % 31).saturating_add(1)]
}

fn fill(space: &mut [u8], chunk: &[u8]) -> usize {
    let count = space.len().min(chunk.len());
    if let (Some(space), Some(bytes)) = (space.get_mut(..count), chunk.get(..count)) {
        space.copy_from_slice(bytes);
    }
    count
}

fn differ(what: &str, ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug) -> String {
    format!("{what}\n  ours: {ours:?}\ntheirs: {theirs:?}")
}

/// An object as a decoder gives it; `Err` with the name of one that it set aside.
type Read<K> = Result<K, String>;

fn of_listed<K: Object + Clone>(listed: Listed<K>) -> Read<K> {
    match listed {
        Listed::Object(object) => Ok((**object).clone()),
        Listed::Undecodable(aside) => Err(aside.key.to_string()),
    }
}

/// The object as `serde_json` reads it, trimmed as the caches do; `None` if it is none.
fn reference<K: Object>(json: &str) -> Option<K> {
    with_name(serde_json::from_str(json).ok()?)
}

/// The same where the last of two members counts, and the fields that caches trim hold anything.
fn lenient_reference<K: Object>(json: &str) -> Option<K> {
    let mut value: Value = serde_json::from_str(json).ok()?;
    let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.remove("managedFields");
        let annotations = metadata.get_mut("annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    with_name(serde_json::from_value(value).ok()?)
}

fn with_name<K: Object>(mut object: K) -> Option<K> {
    object.trim();
    (!object.name().is_empty()).then_some(object)
}

type RawMembers = BTreeMap<String, Box<RawValue>>;

/// Whether `serde_json` takes all of the text. The decoders only scan what they pass over.
fn is_comparable(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok()
}

fn text_of(fields: &RawMembers, name: &str) -> Option<String> {
    let Some(value) = fields.get(name) else {
        return Some(String::new());
    };
    let text: Option<String> = serde_json::from_str(value.get()).ok()?;
    Some(text.unwrap_or_default())
}

/// Whether kind and version, if they are there, are those of a list of `K`.
fn is_named_right<K: Object>(fields: &RawMembers) -> bool {
    let (version, kind) = K::resource().type_names();
    let kind_fits = |said: String| {
        said.is_empty() || said == "List" || said.strip_suffix("List") == Some(&kind)
    };
    text_of(fields, "kind").is_some_and(kind_fits)
        && text_of(fields, "apiVersion").is_some_and(|said| said.is_empty() || said == version)
}

fn read_list<K: Object + Clone>(body: &[u8], size: usize) -> (Vec<Read<K>>, Result<String, Error>) {
    let mut decoder = ListDecoder::<K>::new(&DecodeOptions::default());
    let mut items = Vec::new();
    for mut chunk in body.chunks(size) {
        while !chunk.is_empty() {
            let count = fill(decoder.space(), chunk);
            chunk = chunk.get(count..).unwrap_or_default();
            let read = decoder.filled(count, &mut |item| items.push(of_listed(item)));
            if let Err(error) = read {
                return (items, Err(error));
            }
        }
    }
    let end = decoder.finish();
    let text = |page: crate::list_watch::ListPage| {
        format!(
            "{} {}",
            page.resource_version,
            page.continue_token.unwrap_or_default()
        )
    };
    (items, end.map(text))
}

fn list<K: Object + Clone + PartialEq + std::fmt::Debug>(body: &[u8]) -> Result<bool, String> {
    let [whole, small] = chunk_sizes(body);
    let (items, end) = read_list::<K>(body, whole);
    let (split_items, split_end) = read_list::<K>(body, small);
    let said = |end: &Result<String, Error>| end.as_ref().map_err(Error::to_string).cloned();
    if items != split_items || said(&end) != said(&split_end) {
        return Err(differ(
            "in chunks",
            &(split_items, split_end),
            &(items, end),
        ));
    }
    if !is_comparable(body) {
        return Ok(end.is_ok());
    }
    let fields = serde_json::from_slice::<RawMembers>(body).ok();
    let Some(fields) = fields else {
        return match end {
            Ok(_) => Err(differ("no JSON object", &items, &())),
            Err(_) => Ok(false),
        };
    };
    let theirs: Option<Option<Vec<Box<RawValue>>>> = match fields.get("items") {
        Some(items) => serde_json::from_str(items.get()).ok(),
        None => Some(None),
    };
    let metadata: Option<Option<RawMembers>> = match fields.get("metadata") {
        Some(metadata) => serde_json::from_str(metadata.get()).ok(),
        None => Some(None),
    };
    let is_list = fields.contains_key("items")
        || text_of(&fields, "kind").is_some_and(|kind| kind.ends_with("List"));
    let (Ok(end), Some(theirs)) = (&end, &theirs) else {
        let (Err(error), Some(Some(theirs)), Some(metadata)) = (&end, &theirs, &metadata) else {
            return end.map_or(Ok(false), |_| Err(differ("no items", &items, &())));
        };
        let metadata = metadata.as_ref();
        let has_texts = ["resourceVersion", "continue"]
            .into_iter()
            .all(|name| metadata.is_none_or(|fields| text_of(fields, name).is_some()));
        let are_objects = theirs.iter().all(|item| item.get().starts_with('{'));
        let text = String::from_utf8_lossy(body);
        let is_twice = ["\"items\"", "\"ite\\u"]
            .iter()
            .flat_map(|key| text.matches(key))
            .count()
            > 1;
        if is_list && is_named_right::<K>(&fields) && has_texts && are_objects && !is_twice {
            return Err(differ("refused", error, theirs));
        }
        return Ok(false);
    };
    let metadata = metadata.flatten().unwrap_or_default();
    let text = |name| text_of(&metadata, name).unwrap_or_default();
    let version = format!("{} {}", text("resourceVersion"), text("continue"));
    if *end != version {
        return Err(differ("version", end, &version));
    }
    let theirs = theirs.as_deref().unwrap_or_default();
    if items.len() != theirs.len() {
        return Err(differ("items", &items, &theirs));
    }
    for (ours, json) in items.iter().zip(theirs) {
        same_object(ours.as_ref().ok(), json.get())?;
    }
    Ok(true)
}

/// Compares one object with the reading of `serde_json`.
fn same_object<K: Object + PartialEq + std::fmt::Debug>(
    ours: Option<&K>,
    json: &str,
) -> Result<(), String> {
    let theirs = reference::<K>(json);
    if ours == theirs.as_ref() || ours == lenient_reference(json).as_ref() {
        return Ok(());
    }
    // k8s-openapi refuses an empty kind; servers leave both empty in items.
    let fields = serde_json::from_str::<RawMembers>(json).unwrap_or_default();
    let is_empty = |name| text_of(&fields, name).is_some_and(|text| text.is_empty());
    let names_little = (fields.contains_key("kind") && is_empty("kind"))
        || (fields.contains_key("apiVersion") && is_empty("apiVersion"));
    // A time behind the end of the calendar is its end.
    if theirs.is_none() && (names_little || json.contains("9999-")) {
        return Ok(());
    }
    Err(differ(json, &ours, &theirs))
}

fn read_watch<K: Object + Clone>(body: &[u8], size: usize) -> Vec<Event<K>> {
    let mut decoder = EventDecoder::<K>::new(&DecodeOptions::default());
    let mut events = Vec::new();
    let mut take = |decoder: &mut EventDecoder<K>| {
        while let Ok(Some(event)) = decoder.next() {
            events.push(of_event(event));
        }
    };
    for mut chunk in body.chunks(size) {
        while !chunk.is_empty() {
            let count = fill(decoder.space(), chunk);
            chunk = chunk.get(count..).unwrap_or_default();
            decoder.filled(count);
            take(&mut decoder);
        }
    }
    decoder.end_of_body();
    take(&mut decoder);
    if decoder.finish().is_some() {
        events.push(Event::Cut);
    }
    events
}

#[derive(Debug, PartialEq)]
enum Event<K> {
    Change(EventKind, Read<K>),
    Bookmark(String, bool),
    Skipped,
    Error(u16),
    Cut,
}

fn of_event<K: Object + Clone>(event: WatchEvent<K>) -> Event<K> {
    match event {
        WatchEvent::Object(ObjectEvent { kind, object }) => Event::Change(kind, of_listed(object)),
        WatchEvent::Bookmark {
            resource_version,
            initial_events_end,
        } => Event::Bookmark(resource_version.to_string(), initial_events_end),
        WatchEvent::Error(error) => Event::Error(error.status().map_or(0, Status::code)),
        WatchEvent::Skipped { .. } | WatchEvent::Unselected { .. } => Event::Skipped,
    }
}

fn watch<K: Object + Clone + PartialEq + std::fmt::Debug>(body: &[u8]) -> Result<bool, String> {
    let [whole, small] = chunk_sizes(body);
    let events = read_watch::<K>(body, whole);
    let split = read_watch::<K>(body, small);
    if events != split {
        return Err(differ("in chunks", &split, &events));
    }
    let is_whole = !events
        .iter()
        .any(|event| matches!(event, Event::Error(_) | Event::Cut));
    if std::str::from_utf8(body).is_err() {
        return Ok(is_whole);
    }
    let mut theirs = serde_json::Deserializer::from_slice(body).into_iter::<RawMembers>();
    for ours in &events {
        let fields = match theirs.next() {
            Some(Ok(fields)) => fields,
            // The decoder reads the rest more leniently, or not at all.
            Some(Err(_)) => return Ok(false),
            None => return Err(differ("no event", ours, &events)),
        };
        if !fields
            .values()
            .all(|value| is_comparable(value.get().as_bytes()))
        {
            return Ok(false);
        }
        let kind = match text_of(&fields, "type").as_deref() {
            Some("ADDED") => Some(EventKind::Added),
            Some("MODIFIED") => Some(EventKind::Updated),
            Some("DELETED") => Some(EventKind::Deleted),
            _ => None,
        };
        let json = fields.get("object").map_or("null", |object| object.get());
        match ours {
            Event::Change(found, object) if kind == Some(*found) => {
                same_object(object.as_ref().ok(), json)?;
            }
            Event::Change(..) => return Err(differ("type", ours, &kind)),
            Event::Bookmark(version, _) => {
                let object: Value = serde_json::from_str(json).unwrap_or_default();
                let theirs = object
                    .pointer("/metadata/resourceVersion")
                    .and_then(Value::as_str);
                if theirs.unwrap_or_default() != version {
                    return Err(differ("bookmark", ours, &json));
                }
            }
            Event::Skipped | Event::Error(_) | Event::Cut => {
                if kind.is_some() && reference::<K>(json).is_some() {
                    return Err(differ("left out", ours, &json));
                }
                if !matches!(ours, Event::Skipped) {
                    return Ok(false);
                }
            }
        }
    }
    match theirs.next() {
        Some(Ok(more)) => Err(differ("an event is missing", &events, &more)),
        Some(Err(_)) | None => Ok(is_whole && !events.is_empty()),
    }
}

fn object<K: Object + Clone + PartialEq + std::fmt::Debug>(body: &[u8]) -> Result<bool, String> {
    let ours = decode_object::<K>(body, &DecodeOptions::default(), &mut 0);
    let ours = ours.map(|object| (**object).clone());
    if let (true, Ok(json)) = (is_comparable(body), std::str::from_utf8(body)) {
        same_object(ours.as_ref().ok(), json)?;
    }
    Ok(ours.is_ok())
}

fn status(body: &[u8]) -> Result<bool, String> {
    let ours = decode_status(body);
    let theirs = serde_json::from_slice::<meta::Status>(body).ok();
    if let (Some(ours), Some(theirs), true) = (&ours, theirs, is_comparable(body)) {
        let theirs = Status::from(theirs);
        let facts = |status: &Status| (status.code(), status.message().to_owned(), status.reason());
        if facts(ours) != facts(&theirs) {
            return Err(differ("status", ours, &theirs));
        }
    }
    Ok(ours.is_some())
}

fn kubeconfig(text: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Ok(false);
    };
    let read = read_text(text);
    let Ok(Some(config)) = &read else {
        return Ok(false);
    };
    let url = config.server_url();
    match crate::http::Config::for_server(&url) {
        Ok(again) if again.server_url() == url => Ok(true),
        again => Err(differ(
            "the server's URL",
            &url,
            &again.map(|config| config.server_url()),
        )),
    }
}

/// No error repeats an answer; a token is what the JSON says.
fn plugin(answer: &[u8]) -> Result<bool, String> {
    let read = plugin_answer(answer);
    let token = match &read {
        Ok(token) => token.as_ref(),
        Err(why) if why.contains("CANARY") => return Err(format!("repeats the answer: {why}")),
        Err(_) => return Ok(false),
    };
    // As in Go, a surrogate without its other half is no mistake.
    if let Ok(theirs) = serde_json::from_slice::<Value>(answer) {
        let theirs = theirs.pointer("/status/token").and_then(Value::as_str);
        // Of several tokens the last text counts, as in Go.
        let theirs = theirs.filter(|token| !token.is_empty());
        if theirs.is_some_and(|theirs| token.is_none_or(|token| token.as_str() != theirs)) {
            return Err(differ("token", &token, &theirs));
        }
    }
    Ok(true)
}

/// White space around a selector means nothing, and what matches does not depend on the order.
fn selector(text: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Ok(false);
    };
    let parse = |text: String| LabelMatcher::parse(&LabelSelector::new(text));
    let (plain, spaced) = (parse(text.to_owned()), parse(format!(" {text} ")));
    if plain.is_ok() != spaced.is_ok() {
        return Err(differ("white space", &plain, &spaced));
    }
    let Ok(plain) = plain else {
        return Ok(false);
    };
    let twice = parse(format!("{text},{text}"));
    for labels in ["", "a=b", "a=1", "a=", "b=c,a=b", "x/y=z"] {
        let pairs = labels
            .split_terminator(',')
            .filter_map(|pair| pair.split_once('='));
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let labels: BTreeMap<_, _> = pairs.collect();
        let matches = plain.matches(Some(&labels));
        let again = twice
            .as_ref()
            .is_ok_and(|twice| twice.matches(Some(&labels)));
        if matches != again && !text.trim().is_empty() {
            return Err(differ("said twice", &twice, &plain));
        }
    }
    Ok(true)
}

/// The first line is the wait, the second the date of the answer.
fn wait(text: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Ok(false);
    };
    let (value, date) = text.split_once('\n').unwrap_or((text, ""));
    let ours = retry_after(value, date);
    let number = value.trim();
    if number.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = number.parse().ok().filter(|seconds| *seconds > 0);
        let theirs = seconds.map(Duration::from_secs);
        if ours != theirs {
            return Err(differ("seconds", &ours, &theirs));
        }
    }
    Ok(ours.is_some())
}

/// An answer that comes in pieces is the same answer.
fn proxy(bytes: &[u8]) -> Result<bool, String> {
    let whole = proxy_answer(bytes.to_vec());
    let [_, size] = chunk_sizes(bytes);
    let mut came = Vec::new();
    let mut first = Ok(None);
    for chunk in bytes.chunks(size) {
        came.extend_from_slice(chunk);
        first = proxy_answer(came.clone());
        if !matches!(first, Ok(None)) {
            break;
        }
    }
    let code = |answer: &Result<Option<(u16, Vec<u8>)>, ()>| {
        answer
            .as_ref()
            .map(|answer| answer.as_ref().map(|(code, _)| *code))
            .ok()
    };
    if code(&first) != code(&whole) {
        return Err(differ("in pieces", &first, &whole));
    }
    let Ok(Some((code, rest))) = whole else {
        return Ok(false);
    };
    let line = bytes
        .split(|byte| *byte == b'\n')
        .find(|line| !line.trim_ascii().is_empty());
    let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    if !line.contains(&format!("{code:03}")) || !bytes.ends_with(&rest) {
        return Err(differ("code", &code, &line));
    }
    Ok(true)
}

fn pem(bytes: &[u8]) -> Result<bool, String> {
    let first = expires(&Pem::inline(bytes.to_vec(), "certificate"));
    let again = expires(&Pem::inline([bytes, b"\n"].concat(), "certificate"));
    if first != again && bytes.ends_with(b"-") {
        return Err(differ("with a newline", &again, &first));
    }
    Ok(first.is_some())
}

/// What was read is written so that it is read again.
fn recording(text: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Ok(false);
    };
    let Ok(read) = Recording::parse("fuzz", text) else {
        return Ok(false);
    };
    let written = read.to_text();
    match Recording::parse("fuzz", &written) {
        Ok(again) if again.to_text() == written => Ok(true),
        again => Err(differ(
            "written",
            &again.map(|again| again.to_text()),
            &written,
        )),
    }
}

/// A text begins with the time at which it was written. Without the feature, none is read.
fn snapshot(text: &[u8]) -> Result<bool, String> {
    #[cfg(feature = "snapshot")]
    let is_taken = crate::snapshot::kinds_in(text).is_some();
    #[cfg(not(feature = "snapshot"))]
    let is_taken = false;
    let first = text.split(|byte| *byte == b'\n').next();
    let head = serde_json::from_slice::<Value>(first.unwrap_or_default());
    if is_taken && !head.is_ok_and(|head| head.get("written").is_some()) {
        return Err(differ("taken without a head", &text, &first));
    }
    Ok(is_taken)
}
