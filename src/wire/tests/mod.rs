//! Tests of the decoders: tables, every split, odd bodies, mutations.

mod lists;

use k8s_openapi::api::core::v1::Secret;

use super::{DecodeOptions, ListDecoder, ListPage, Listed};
use crate::error::Error;
use crate::object::Object;

/// What a body came to, in comparable words.
#[derive(Debug, PartialEq)]
struct Outcome {
    items: Vec<String>,
    end: Result<ListPage, String>,
}

fn describe<K: Object>(item: Listed<K>) -> String {
    match item {
        Listed::Object(object) => format!("{object:?}"),
        Listed::Undecodable(aside) => format!("aside {}: {}", aside.key, aside.error),
    }
}

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

/// Decodes a body that comes in these chunks.
fn list_of(chunks: &[&[u8]], options: &DecodeOptions) -> Outcome {
    let mut decoder = ListDecoder::<Secret>::new(options);
    let mut items = Vec::new();
    let fed = chunks
        .iter()
        .try_for_each(|chunk| feed(&mut decoder, chunk, &mut |item| items.push(describe(item))));
    let end = fed.and_then(|()| decoder.finish());
    Outcome {
        items,
        end: end.map_err(|error| format!("{error:?}")),
    }
}
