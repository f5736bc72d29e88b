//! The URL of a proxy. No text shows its user and password.

use std::fmt;

use zeroize::Zeroizing;

use super::super::credentials::Authorization;
use super::server_url::{authority, split_authority};
use crate::error::debug_of;
use crate::sync::Arc;

/// The longest user and password that SOCKS5 can carry.
const SOCKS_TEXT_BYTES_MAX: usize = 255;

/// The protocol by which a proxy makes a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyScheme {
    /// By CONNECT.
    Http,
    /// By CONNECT, inside TLS.
    Https,
    /// By the handshake of SOCKS5. The proxy looks up the server's name.
    Socks5,
}

/// The user and the password of a proxy.
pub(crate) struct ProxyUser {
    pub(crate) name: Zeroizing<String>,
    pub(crate) password: Zeroizing<String>,
    /// Both as a header, which also hides them where the proxy quotes them.
    pub(crate) authorization: Authorization,
}

/// The URL of a proxy.
#[derive(Clone)]
pub(crate) struct ProxyUrl {
    pub(crate) scheme: ProxyScheme,
    /// As in a [`ServerUrl`](super::ServerUrl).
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<Arc<ProxyUser>>,
}

impl ProxyUrl {
    /// Parses `http://[user[:password]@]host[:port]`, or the same with `https` or `socks5`. User
    /// and password may be percent-encoded.
    ///
    /// The error does not repeat the text, which may hold a password.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let unknown = || "its scheme is none of http, https and socks5".to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(unknown)?;
        let (scheme, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (ProxyScheme::Http, 80),
            "https" => (ProxyScheme::Https, 443),
            "socks5" | "socks5h" => (ProxyScheme::Socks5, 1080),
            _ => return Err(unknown()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err("it holds a space or a character that is not ASCII".to_owned());
        }
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(ProxyUser::parse(user, scheme)?), authority),
            None => (None, authority),
        };
        let (host, port) = split_authority(authority)?;
        Ok(Self {
            scheme,
            host,
            port: port.unwrap_or(default_port),
            user: user.map(Arc::new),
        })
    }
}

impl ProxyUser {
    fn parse(text: &str, scheme: ProxyScheme) -> Result<Self, String> {
        let (name, password) = text.split_once(':').unwrap_or((text, ""));
        let (name, password) = (percent_decoded(name)?, percent_decoded(password)?);
        let fits = |text: &str| text.len() <= SOCKS_TEXT_BYTES_MAX;
        if scheme == ProxyScheme::Socks5 && (name.is_empty() || !fits(&name) || !fits(&password)) {
            return Err(format!(
                "its user or its password is empty or longer than the {SOCKS_TEXT_BYTES_MAX} \
                 bytes of SOCKS5"
            ));
        }
        let authorization = Authorization::basic(Some(&name), Some(&password));
        let authorization = authorization.map_err(|why| format!("its user: {why}"))?;
        Ok(Self {
            name,
            password,
            authorization,
        })
    }
}

fn percent_decoded(text: &str) -> Result<Zeroizing<String>, String> {
    let wrong = || "a percent sign in its user or password encodes no text: write %25".to_owned();
    let mut pieces = text.split('%');
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let (hex, rest) = piece.split_at_checked(2).ok_or_else(wrong)?;
        if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        bytes.push(u8::from_str_radix(hex, 16).map_err(|_no_number| wrong())?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let text = std::str::from_utf8(&bytes).map_err(|_quotes_bytes| wrong())?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Shows the URL without user and password.
impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            ProxyScheme::Http => "http",
            ProxyScheme::Https => "https",
            ProxyScheme::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}", authority(&self.host, self.port))
    }
}

debug_of!([] ProxyUrl, |it| url: it.to_string(), ..);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_and_how_it_is_shown() {
        let rows = [
            ("http://proxy.test", "http://proxy.test:80", None),
            ("HTTPS://proxy.test/x?y#z", "https://proxy.test:443", None),
            ("socks5://[fd00::1]", "socks5://[fd00::1]:1080", None),
            ("socks5h://10.0.0.1:9", "socks5://10.0.0.1:9", None),
            (
                "http://jane:can%61ry%40@proxy.test:3128",
                "http://proxy.test:3128",
                Some(("jane", "canary@")),
            ),
            (
                "http://jane@home@proxy.test",
                "http://proxy.test:80",
                Some(("jane@home", "")),
            ),
        ];
        for (text, shown, user) in rows {
            let proxy = ProxyUrl::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(proxy.to_string(), shown);
            assert!(!format!("{proxy:?}").contains("jane"), "{proxy:?}");
            let found = proxy.user.as_ref();
            let found = found.map(|user| (user.name.as_str(), user.password.as_str()));
            assert_eq!(found, user);
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        let rows = [
            ("proxy:3128", "its scheme is none of http, https and socks5"),
            ("socks4://x", "its scheme is none of http, https and socks5"),
            (
                "http://a b",
                "it holds a space or a character that is not ASCII",
            ),
            ("http://", "it names no host"),
            ("http://u:canary@", "it names no host"),
            (
                "http://u:canary%x@h",
                "a percent sign in its user or password encodes no text: write %25",
            ),
            (
                "http://u:canary%ff@h",
                "a percent sign in its user or password encodes no text: write %25",
            ),
            (
                "http://u%3Av:canary@h",
                "its user: a user name with a colon cannot be sent",
            ),
            (
                "socks5://:canary@h",
                "its user or its password is empty or longer than the 255 bytes of SOCKS5",
            ),
            ("http://h:x", "its port is not a number from 0 to 65535"),
        ];
        for (text, why) in rows {
            assert_eq!(ProxyUrl::parse(text).unwrap_err(), why, "{text}");
        }
    }
}
