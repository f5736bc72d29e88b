//! The text of a snapshot: lines of JSON. First the time, then for each kind its owners and its
//! objects. A line with the time of its confirmation precedes each object.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::manager::Owner;
use crate::object::ObjectKey;
use crate::sync::Arc;

/// A snapshot's content of one kind. Clones share the objects.
#[derive(Clone, Default)]
pub(super) struct KindPart {
    pub(super) owners: BTreeMap<Owner, Vec<ObjectKey>>,
    pub(super) objects: BTreeMap<ObjectKey, Arc<Kept>>,
}

/// An object as its JSON.
pub(super) struct Kept {
    /// When the server confirmed it.
    pub(super) contact: SystemTime,
    /// How long before the write of its file that was.
    pub(super) age: Duration,
    pub(super) json: Zeroizing<Vec<u8>>,
}

/// Parts by kind, such as `v1/secrets`.
pub(super) type Parts = BTreeMap<String, KindPart>;

/// The first line.
pub(super) fn write_head(to: &mut dyn Write, written: SystemTime) -> io::Result<()> {
    line(to, &json!({ "written": millis(written) }))
}

/// The lines of a kind before its objects.
pub(super) fn write_owners(
    to: &mut dyn Write,
    kind: &str,
    owners: &BTreeMap<Owner, Vec<ObjectKey>>,
) -> io::Result<()> {
    line(to, &json!({ "kind": kind }))?;
    for (owner, keys) in owners {
        let keys: Vec<_> = keys.iter().map(pair).collect();
        let of = json!({
            "owner": [owner.kind(), owner.key().namespace(), owner.key().name(), owner.uid()],
            "keys": keys,
        });
        line(to, &of)?;
    }
    Ok(())
}

/// Writes the line before an object. The object's own line must follow, with its end of line.
pub(super) fn write_object(
    to: &mut dyn Write,
    key: &ObjectKey,
    contact: SystemTime,
) -> io::Result<()> {
    let of = json!({ "object": pair(key), "contact": millis(contact) });
    line(to, &of)
}

/// The lines of objects as they were loaded.
pub(super) fn write_loaded(
    to: &mut dyn Write,
    objects: &BTreeMap<ObjectKey, Arc<Kept>>,
) -> io::Result<()> {
    for (key, object) in objects {
        write_object(to, key, object.contact)?;
        to.write_all(&object.json)?;
        to.write_all(b"\n")?;
    }
    Ok(())
}

fn pair(key: &ObjectKey) -> [&str; 2] {
    [key.namespace(), key.name()]
}

fn line(to: &mut dyn Write, value: &Value) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn time(millis: &Value) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis.as_u64()?))
}

/// Reads a text. Fails with the number of the first invalid line.
pub(super) fn read(text: &[u8]) -> Result<(SystemTime, Parts), usize> {
    let mut lines = text.split(|byte| *byte == b'\n').enumerate();
    let mut parts = Parts::new();
    let mut written = None;
    let mut part: Option<&mut KindPart> = None;
    while let Some((at, line)) = lines.next().filter(|(_, line)| !line.is_empty()) {
        let number = at.saturating_add(1);
        let read = || -> Option<Line> { Line::of(&serde_json::from_slice(line).ok()?) };
        match (read().ok_or(number)?, &mut part) {
            (Line::Written(time), None) if at == 0 => written = Some(time),
            (Line::Kind(kind), _) => part = Some(parts.entry(kind).or_default()),
            (Line::Owner(owner, keys), Some(part)) => drop(part.owners.insert(owner, keys)),
            (Line::Object(key, contact), Some(part)) => {
                let (_, json) = lines.next().ok_or(number)?;
                let json = Zeroizing::new(json.to_vec());
                let age = written.and_then(|written| written.duration_since(contact).ok());
                let age = age.unwrap_or_default();
                let kept = Arc::new(Kept { contact, age, json });
                part.objects.insert(key, kept);
            }
            _ => return Err(number),
        }
    }
    Ok((written.ok_or(1_usize)?, parts))
}

/// How many kinds a text holds, for the fuzzer; `None` if it is refused.
#[cfg(feature = "testing")]
pub(crate) fn kinds_in(text: &[u8]) -> Option<usize> {
    read(text).ok().map(|(_, parts)| parts.len())
}

enum Line {
    Written(SystemTime),
    Kind(String),
    Owner(Owner, Vec<ObjectKey>),
    Object(ObjectKey, SystemTime),
}

impl Line {
    fn of(value: &Value) -> Option<Self> {
        if let Some(written) = value.get("written") {
            return Some(Self::Written(time(written)?));
        }
        if let Some(kind) = value.get("kind") {
            return Some(Self::Kind(kind.as_str()?.to_owned()));
        }
        if let Some(object) = value.get("object") {
            return Some(Self::Object(key(object)?, time(value.get("contact")?)?));
        }
        let [kind, namespace, name, uid] = texts(value.get("owner")?)?;
        let keys = value.get("keys")?.as_array()?.iter().map(key);
        let owner = Owner::with_uid(kind.to_owned(), ObjectKey::new(namespace, name), uid);
        Some(Self::Owner(owner, keys.collect::<Option<_>>()?))
    }
}

fn key(value: &Value) -> Option<ObjectKey> {
    let [namespace, name] = texts(value)?;
    Some(ObjectKey::new(namespace, name))
}

fn texts<const COUNT: usize>(value: &Value) -> Option<[&str; COUNT]> {
    let texts: Option<Vec<_>> = value.as_array()?.iter().map(Value::as_str).collect();
    texts?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_is_no_part_of_it_is_named() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let owner = Owner::with_uid("Pod".to_owned(), ObjectKey::new("shop", "web"), "u-1");
        let keys = vec![ObjectKey::new("shop", "db"), ObjectKey::new("shop", "tls")];
        let owners = BTreeMap::from([(owner, keys)]);
        let mut text = Vec::new();
        write_head(&mut text, at(9)).unwrap();
        write_owners(&mut text, "v1/secrets", &owners).unwrap();
        write_object(&mut text, &ObjectKey::new("shop", "db"), at(7)).unwrap();
        text.extend_from_slice(b"{\"kind\":\"Secret\"}\n");
        write_owners(&mut text, "v1/configmaps", &BTreeMap::new()).unwrap();
        let (written, parts) = read(&text).unwrap();
        assert_eq!((written, parts.len()), (at(9), 2));
        let part = &parts["v1/secrets"];
        assert_eq!(part.owners, owners);
        let kept = &part.objects[&ObjectKey::new("shop", "db")];
        assert_eq!(
            (kept.contact, &**kept.json),
            (at(7), &b"{\"kind\":\"Secret\"}"[..])
        );

        for (text, line) in [
            ("", 1),
            ("{\"kind\":\"v1/secrets\"}\n", 1),
            ("{\"written\":1}\n{\"keys\":[]}\n", 2),
            (
                "{\"written\":1}\n{\"object\":[\"a\",\"b\"],\"contact\":1}\n",
                2,
            ),
            (
                "{\"written\":1}\n{\"kind\":\"k\"}\n{\"object\":[\"a\"],\"contact\":1}\n",
                3,
            ),
            ("{\"written\":1}\nno json\n", 2),
        ] {
            assert_eq!(read(text.as_bytes()).err(), Some(line), "{text}");
        }
    }
}
