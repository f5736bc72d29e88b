//! Tests of the decoders: tables, every split, odd bodies, mutations.

mod events;
mod json;
mod lean;
mod lists;
mod mutations;
mod reasons;
mod representations;
mod selection;
mod sizes;
pub(crate) mod steps;
mod trimming;
mod whole;

use k8s_openapi::api::core::v1::{Pod, Secret};

use super::{
    DecodeOptions, EventDecoder, EventKind, ListDecoder, ListPage, Listed, ObjectEvent, Trim,
    WatchEvent,
};
use crate::error::Error;
use crate::object::Object;

/// The outcome of a body, in comparable words.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    items: Vec<String>,
    end: Result<ListPage, String>,
}

impl Outcome {
    fn error(&self) -> &str {
        self.end.as_ref().unwrap_err()
    }
}

fn describe<K: Object>(item: Listed<K>) -> String {
    match item {
        Listed::Object(object) => format!("{object:?}"),
        Listed::Undecodable(aside) => format!("aside {}: {}", aside.key, aside.error),
    }
}

fn describe_event<K: Object>(event: WatchEvent<K>) -> String {
    match event {
        WatchEvent::Object(ObjectEvent {
            kind,
            object: Listed::Undecodable(aside),
        }) => {
            let deleted = if kind == EventKind::Deleted {
                "deleted "
            } else {
                ""
            };
            format!("{deleted}aside {}: {}", aside.key, aside.error)
        }
        WatchEvent::Bookmark {
            resource_version,
            initial_events_end,
        } => format!(
            "bookmark @{resource_version}{}",
            if initial_events_end { " end" } else { "" }
        ),
        WatchEvent::Skipped {
            reason,
            resource_version,
        } => format!("skipped @{resource_version}: {reason}"),
        WatchEvent::Unselected {
            kind,
            resource_version,
        } => format!("unselected {kind:?} @{resource_version}"),
        other @ (WatchEvent::Object(_) | WatchEvent::Error(_)) => format!("{other:?}"),
    }
}

/// Feeds a list decoder.
fn feed<K: Object>(
    decoder: &mut ListDecoder<K>,
    mut bytes: &[u8],
    each: &mut dyn FnMut(Listed<K>),
) -> Result<(), Error> {
    while !bytes.is_empty() {
        let space = decoder.space();
        assert!(!space.is_empty());
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        decoder.filled(count, each)?;
    }
    Ok(())
}

/// Decodes a list body from these chunks.
fn list_of<K>(
    chunks: impl IntoIterator<Item = impl AsRef<[u8]>>,
    options: &DecodeOptions,
) -> Outcome
where
    K: Object,
{
    items_of(ListDecoder::<K>::new(options), chunks, options)
}

fn items_of<K: Object>(
    mut decoder: ListDecoder<K>,
    chunks: impl IntoIterator<Item = impl AsRef<[u8]>>,
    options: &DecodeOptions,
) -> Outcome {
    let mut items = Vec::new();
    let fed = chunks.into_iter().try_for_each(|chunk| {
        let fed = feed(&mut decoder, chunk.as_ref(), &mut |item| {
            items.push(describe(item));
        });
        // One item and the bytes read after it, in memory that grows by doubling, plus the list's
        // own members.
        let item = options.item_bytes_max.saturating_add(64 << 10);
        assert!(decoder.held_bytes() <= item.saturating_mul(4).saturating_add(512 << 10));
        fed
    });
    let end = fed.and_then(|()| decoder.finish());
    Outcome {
        items,
        end: end.map_err(|error| format!("{error:?}")),
    }
}

fn secrets(body: &[u8]) -> Outcome {
    list_of::<Secret>([body], &DecodeOptions::default())
}

/// Decodes the body of a watch from these chunks; the last line says how it ended.
fn watch_of<K>(
    chunks: impl IntoIterator<Item = impl AsRef<[u8]>>,
    options: &DecodeOptions,
) -> Vec<String>
where
    K: Object,
{
    events_of(EventDecoder::<K>::new(options), chunks, options)
}

fn events_of<K: Object>(
    mut decoder: EventDecoder<K>,
    chunks: impl IntoIterator<Item = impl AsRef<[u8]>>,
    options: &DecodeOptions,
) -> Vec<String> {
    let mut events = Vec::new();
    let mut decode = |decoder: &mut EventDecoder<K>| {
        loop {
            match decoder.next() {
                Ok(Some(event)) => events.push(describe_event(event)),
                Ok(None) => break,
                Err(error) => events.push(format!("failed: {error:?}")),
            }
        }
    };
    for chunk in chunks {
        let mut bytes = chunk.as_ref();
        while !bytes.is_empty() {
            let space = decoder.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            decoder.filled(count);
            let line = options.frame_bytes_max.saturating_add(16 << 10);
            assert!(decoder.held_bytes() <= line.saturating_mul(4));
            decode(&mut decoder);
        }
    }
    decoder.end_of_body();
    decode(&mut decoder);
    if let Some(error) = decoder.finish() {
        events.push(format!("cut: {error:?}"));
    }
    events
}

/// Splits a body in two at each position, and byte by byte.
fn each_split(body: &[u8], mut check: impl FnMut(Vec<&[u8]>)) {
    for split in 0..=body.len() {
        let (left, right) = body.split_at(split);
        check(vec![left, right]);
    }
    check(body.chunks(1).collect());
    check(body.chunks(3).collect());
}

/// Yields the same numbers for the same seed everywhere (splitmix64).
struct Random(u64);

impl Random {
    #[expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(limit).unwrap()).unwrap()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
