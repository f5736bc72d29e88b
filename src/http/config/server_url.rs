//! The server's URL, with its base path and never with credentials.

use std::fmt;
use std::net::Ipv6Addr;

/// The URL of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// Whether the server speaks TLS.
    pub(crate) https: bool,
    /// A name or an address. An IPv6 address has no brackets here and may have a zone
    /// (`fe80::1%eth0`).
    pub(crate) host: String,
    /// The TCP port.
    pub(crate) port: u16,
    /// The part of each path before `/api`. It is empty, or starts with a slash and ends without.
    pub(crate) path: String,
}

impl ServerUrl {
    /// Parses a URL, or `host:port`, whose scheme is https if `tls` settings are given, as in
    /// client-go.
    ///
    /// The error does not repeat the text, which may hold a password.
    pub(crate) fn parse(text: &str, tls: bool) -> Result<Self, String> {
        let (https, rest, has_scheme) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest, true),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest, true),
            Some(_) => return Err("its scheme is neither https nor http".to_owned()),
            None => (tls, text, false),
        };
        if rest.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err("it holds a space or a character that is not ASCII".to_owned());
        }
        // A query or a fragment has no meaning in a base URL. client-go drops both.
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = clean(path);
        if authority.contains('@') {
            return Err(
                "user and password do not belong into it: use the user's fields".to_owned(),
            );
        }
        if !has_scheme && !path.is_empty() {
            return Err("it must be a URL (https://host:port/path) or host:port".to_owned());
        }
        let (host, port) = split_authority(authority)?;
        let default_port = if https { 443 } else { 80 };
        Ok(Self {
            https,
            host,
            port: port.unwrap_or(default_port),
            path,
        })
    }

    /// The host without the zone, which counts on this machine alone.
    pub(crate) fn name(&self) -> &str {
        let host = &self.host;
        let zoned = host.split_once('%').filter(|_| host.contains(':'));
        zoned.map_or(host, |(address, _zone)| address)
    }

    /// `host:port`, with brackets around an IPv6 address, for `Host` headers and messages.
    pub(crate) fn authority(&self) -> String {
        authority(self.name(), self.port)
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// Resolves `.` and `..` and drops empty segments, as client-go does before it sends a path.
/// Returns a slash before each segment that is left.
fn clean(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        // A server takes an escaped dot for a dot.
        match segment.replace("%2e", ".").replace("%2E", ".").as_str() {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    let slashed = segments.into_iter().flat_map(|segment| ["/", segment]);
    slashed.collect()
}

/// Splits `host[:port]`, whose IPv6 address stands in brackets.
pub(super) fn split_authority(authority: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest
            .split_once(']')
            .ok_or_else(|| "the bracket of its IPv6 address is not closed".to_owned())?;
        let (address, zone) = host
            .split_once('%')
            .map_or((host, None), |(address, zone)| {
                // In a URL the percent sign is written as %25 (RFC 6874).
                let decoded = zone.strip_prefix("25").filter(|zone| !zone.is_empty());
                (address, Some(decoded.unwrap_or(zone)))
            });
        if address.parse::<Ipv6Addr>().is_err() || zone.is_some_and(|zone| !is_zone(zone)) {
            return Err("between its brackets stands no IPv6 address".to_owned());
        }
        let host = zone.map_or_else(|| address.to_owned(), |zone| format!("{address}%{zone}"));
        match port.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if port.is_empty() => (host, None),
            None => return Err("after its bracket stands something other than a port".to_owned()),
        }
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address needs brackets: https://[::1]:6443".to_owned());
            }
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (authority.to_owned(), None),
        }
    };
    if host.is_empty() {
        return Err("it names no host".to_owned());
    }
    let port = match port {
        None | Some("") => None,
        Some(port) => Some(
            port.parse()
                .map_err(|_not_a_number| "its port is not a number from 0 to 65535".to_owned())?,
        ),
    };
    Ok((host, port))
}

/// Whether `zone` can be the name or number of a network interface.
fn is_zone(zone: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    !zone.is_empty() && zone.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_and_how_it_is_written() {
        let rows = [
            ("https://shop.example", false, "https://shop.example:443"),
            ("http://127.0.0.1:8080/", false, "http://127.0.0.1:8080"),
            ("HTTPS://[::1]:6443", false, "https://[::1]:6443"),
            ("https://[fd00::1]", false, "https://[fd00::1]:443"),
            (
                "https://front/k8s/clusters/c-1/",
                false,
                "https://front:443/k8s/clusters/c-1",
            ),
            ("https://front?x=1#y", false, "https://front:443"),
            ("https://front//a//b//", false, "https://front:443/a/b"),
            ("https://front/a/./b/../c", false, "https://front:443/a/c"),
            ("https://front/../../a/..", false, "https://front:443"),
            (
                "https://front/a/%2e%2E/..b/c.",
                false,
                "https://front:443/..b/c.",
            ),
            ("localhost:8080", false, "http://localhost:8080"),
            ("localhost:6443", true, "https://localhost:6443"),
            ("localhost", false, "http://localhost:80"),
        ];
        for (text, tls, expected) in rows {
            let server = ServerUrl::parse(text, tls).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(server.to_string(), expected);
        }
    }

    /// F21: the zone counts on this machine alone: it is looked up, and neither sent nor checked
    /// against a certificate.
    #[test]
    fn an_address_may_have_a_zone() {
        for text in [
            "https://[fe80::1%25eth0]:6443",
            "https://[fe80::1%eth0]:6443",
        ] {
            let server = ServerUrl::parse(text, false).unwrap();
            assert_eq!(server.host, "fe80::1%eth0");
            assert_eq!(server.to_string(), "https://[fe80::1]:6443");
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        let rows = [
            ("", "it names no host"),
            ("https://", "it names no host"),
            ("https://:443", "it names no host"),
            ("ftp://x", "its scheme is neither https nor http"),
            (
                "https://a b",
                "it holds a space or a character that is not ASCII",
            ),
            (
                "https://::1:6443",
                "an IPv6 address needs brackets: https://[::1]:6443",
            ),
            (
                "https://[::1",
                "the bracket of its IPv6 address is not closed",
            ),
            (
                "https://[shop]",
                "between its brackets stands no IPv6 address",
            ),
            (
                "https://[::1]6443",
                "after its bracket stands something other than a port",
            ),
            (
                "https://x:65536",
                "its port is not a number from 0 to 65535",
            ),
            (
                "x/y",
                "it must be a URL (https://host:port/path) or host:port",
            ),
            (
                "https://u:canary@x",
                "user and password do not belong into it: use the user's fields",
            ),
        ];
        for (text, why) in rows {
            assert_eq!(ServerUrl::parse(text, false), Err(why.to_owned()), "{text}");
        }
    }
}
