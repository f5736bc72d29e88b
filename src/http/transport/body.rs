//! The body of a response. A compressed one is decompressed as its bytes come.

use std::io::{self, Read};

use ureq::http::Response;

use super::call_context;
#[cfg(feature = "gzip")]
use super::gunzip::Gunzip;

/// A body that is read as the server had it before it compressed it.
pub(crate) enum ResponseBody {
    Plain(FramedBody),
    #[cfg(feature = "gzip")]
    Gzip(Gunzip<FramedBody>),
}

/// A body without its framing. It tells the call that the body goes on.
pub(crate) struct FramedBody(pub(crate) ureq::BodyReader<'static>);

impl Read for FramedBody {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(into)?;
        if count > 0 {
            let told = call_context::current(|call| {
                call.gave();
                Ok(())
            });
            told.map_err(|interrupt| io::Error::other(ureq::Error::from(interrupt)))?;
        }
        Ok(count)
    }
}

impl ResponseBody {
    /// The body of a response whose encoding the request accepts.
    pub(crate) fn of(response: Response<ureq::Body>) -> Self {
        #[cfg(feature = "gzip")]
        let is_gzip = is_gzip(&response);
        let body = FramedBody(response.into_body().into_reader());
        #[cfg(feature = "gzip")]
        if is_gzip {
            return Self::Gzip(Gunzip::new(body));
        }
        Self::Plain(body)
    }
}

#[cfg(feature = "gzip")]
fn is_gzip(response: &Response<ureq::Body>) -> bool {
    let encoding = response.headers().get(ureq::http::header::CONTENT_ENCODING);
    encoding.is_some_and(|encoding| encoding == "gzip")
}

impl Read for ResponseBody {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(body) => body.read(into),
            #[cfg(feature = "gzip")]
            Self::Gzip(body) => body.read(into),
        }
    }
}
