//! A page of the endpoints, and the bytes that send it.

use crate::setters::setters;

/// An answer of the endpoints: a code, a content type and a body.
///
/// # Examples
///
/// ```
/// use kubecache::endpoints::WebPage;
///
/// let page = WebPage::text("{\"pods\":3}").content_type("application/json");
/// # drop(page);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a page is sent by the endpoints that it is returned to"]
pub struct WebPage {
    code: u16,
    content_type: &'static str,
    body: String,
}

setters! { [] WebPage;
    /// Sets the status code: 200, or an error's, from 400 to 599. Any other becomes 500.
    code(code: u16) = if matches!(code, 200 | 400..=599) { code } else { 500 };

    /// Sets the media type. Default: `text/plain; charset=utf-8`.
    content_type(content_type: &'static str);
}

impl WebPage {
    /// Makes a page of plain text with the code 200.
    pub fn text(body: impl Into<String>) -> Self {
        Self {
            code: 200,
            content_type: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }

    /// The response, whose connection ends with it.
    pub(super) fn response(&self, with_body: bool) -> Vec<u8> {
        // The header that comes with a code stands behind its reason.
        let reason = match self.code {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed\r\nAllow: GET, HEAD",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            _ => "",
        };
        let mut text = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: \
             no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            self.code,
            self.content_type,
            self.body.len()
        );
        if with_body {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}
