//! The value of an `Authorization` header, and its removal from texts of a server that quote it.

use std::mem;

use base64::Engine as _;
use zeroize::Zeroizing;

use crate::error::debug_of;

/// Replaces the client's credentials where a server quoted them.
pub(super) const MARK: &str = "[credentials left out]";

/// A shorter password is hidden only together with its user name, because it may stand within
/// words.
const PASSWORD_BYTES_MIN: usize = 4;

/// The value of an `Authorization` header, and its parts that no text may show.
pub(crate) struct Authorization {
    header: Zeroizing<String>,
    /// In the forms in which answers quote text, the longest first.
    secrets: Vec<Zeroizing<String>>,
}

impl Authorization {
    fn new(header: Zeroizing<String>, secrets: &[&str]) -> Self {
        let forms = secrets.iter().flat_map(|secret| quoted_forms(secret));
        let mut forms: Vec<_> = forms.collect();
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self {
            header,
            secrets: forms,
        }
    }

    /// Makes the header of a token. The error never repeats the token.
    pub(crate) fn bearer(token: &str) -> Result<Self, String> {
        if token.is_empty() {
            return Err("is empty".to_owned());
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("holds a space or another character that no token has".to_owned());
        }
        let header = Zeroizing::new(["Bearer ", token].concat());
        Ok(Self::new(header, &[token]))
    }

    /// Makes the header of HTTP basic authentication.
    pub(crate) fn basic(username: Option<&str>, password: Option<&str>) -> Result<Self, String> {
        let (username, password) = (username.unwrap_or_default(), password.unwrap_or_default());
        if username.contains(':') {
            return Err("a user name with a colon cannot be sent".to_owned());
        }
        let plain = Zeroizing::new([username, ":", password].concat());
        let encoded =
            Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(plain.as_bytes()));
        let header = Zeroizing::new(["Basic ", encoded.as_str()].concat());
        let mut secrets = vec![encoded.as_str(), plain.as_str()];
        if password.len() >= PASSWORD_BYTES_MIN {
            secrets.push(password);
        }
        Ok(Self::new(header, &secrets))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.header
    }

    /// Returns a server's `text` with a mark wherever it quotes the token or the password.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut hidden = Zeroizing::new(text.to_owned());
        for secret in &self.secrets {
            if hidden.contains(secret.as_str()) {
                hidden = replaced(&hidden, secret, MARK);
            }
        }
        mem::take(&mut *hidden)
    }

    /// Redacts a text that may end in the middle of the token or the password.
    pub(crate) fn redact_part(&self, text: &str) -> String {
        let mut hidden = self.redact(text);
        let ends = |secret: &Zeroizing<String>| {
            let parts = (PASSWORD_BYTES_MIN..secret.len()).rev();
            let mut parts = parts.filter_map(|end| secret.get(..end));
            hidden
                .len()
                .checked_sub(parts.find(|part| hidden.ends_with(part))?.len())
        };
        if let Some(begin) = self.secrets.iter().filter_map(ends).min() {
            hidden.replace_range(begin.., MARK);
        }
        hidden
    }
}

/// Returns a secret as plain text, JSON, Go's JSON and HTML write it.
fn quoted_forms(secret: &str) -> [Zeroizing<String>; 4] {
    let plain = || Zeroizing::new(secret.to_owned());
    let json = [("\\", "\\\\"), ("\"", "\\\"")];
    let go = [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")];
    let html = [
        ("&", "&amp;"),
        ("\"", "&#34;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("'", "&#39;"),
    ];
    let quoted = |text: Zeroizing<String>, escapes: &[(&str, &str)]| {
        let escape = |text: Zeroizing<String>, (from, to): &(&str, &str)| replaced(&text, from, to);
        escapes.iter().fold(text, escape)
    };
    let json = quoted(plain(), &json);
    let go = quoted(json.clone(), &go);
    [plain(), json, go, quoted(plain(), &html)]
}

/// Returns `text` with `to` in place of each `from`. The result never grows, so no copy is left in
/// freed memory.
fn replaced(text: &str, from: &str, to: &str) -> Zeroizing<String> {
    let longer = text.matches(from).count().saturating_mul(to.len());
    let room = text.len().saturating_add(longer);
    let mut replaced = Zeroizing::new(String::with_capacity(room));
    let mut between = "";
    for piece in text.split(from) {
        replaced.push_str(between);
        replaced.push_str(piece);
        between = to;
    }
    replaced
}

debug_of!([] Authorization, |_it| ..);
