//! The body of a response. A compressed one is decompressed as its bytes come.

use std::io::{self, Read};

use ureq::http::Response;
use ureq::http::header::CONTENT_ENCODING;

use super::super::calls::call_context;
#[cfg(feature = "gzip")]
use super::gunzip::Gunzip;

/// A body that is read without its compression.
pub(crate) enum ResponseBody {
    Plain(ureq::BodyReader<'static>),
    #[cfg(feature = "gzip")]
    Gzip(Box<Gunzip<ureq::BodyReader<'static>>>),
}

impl ResponseBody {
    /// The body of a response whose encoding the request accepts.
    pub(crate) fn of(response: Response<ureq::Body>) -> Self {
        #[cfg(feature = "gzip")]
        if is_decompressed(&response) {
            return Self::Gzip(Box::new(Gunzip::new(response.into_body().into_reader())));
        }
        Self::Plain(response.into_body().into_reader())
    }
}

/// Whether the body is decompressed as it is read, so that what the head says of it is not so.
pub(crate) fn is_decompressed(response: &Response<ureq::Body>) -> bool {
    let encoding = response.headers().get(CONTENT_ENCODING);
    let is_gzip = encoding.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"gzip"));
    cfg!(feature = "gzip") && is_gzip
}

impl Read for ResponseBody {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = match self {
            Self::Plain(body) => body.read(into),
            #[cfg(feature = "gzip")]
            Self::Gzip(body) => body.read(into),
        }?;
        if count > 0 {
            call_context::gave();
        }
        Ok(count)
    }
}
