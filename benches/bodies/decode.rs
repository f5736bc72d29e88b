//! A list's body, decoded as a client does it: read by read, each object kept.

use std::sync::Arc;

use kubecache::http::DecodeOptions;
use kubecache::list_watch::Listed;
use kubecache::object::{Object, StoredObject};
use kubecache::testing::ListDecoder;

pub(crate) fn decode<K: Object>(mut body: &[u8]) -> Vec<Arc<StoredObject<K>>> {
    let mut kept = Vec::new();
    let mut decoder = ListDecoder::<K>::new(&DecodeOptions::default());
    while !body.is_empty() {
        let space = decoder.space();
        let count = space.len().min(body.len());
        space[..count].copy_from_slice(&body[..count]);
        body = &body[count..];
        decoder
            .filled(count, &mut |item| match item {
                Listed::Object(object) => kept.push(object),
                Listed::Undecodable(aside) => panic!("{}", aside.error),
            })
            .unwrap();
    }
    decoder.finish().unwrap();
    kept
}
