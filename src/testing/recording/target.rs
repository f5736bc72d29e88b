//! The target of a request line: path and query, split for matching and joined again for the file.

use std::fmt;

/// A path and its query, with percent-encoding decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::testing) struct Target {
    pub(in crate::testing) path: String,
    pub(in crate::testing) query: Vec<(String, String)>,
}

impl Target {
    pub(in crate::testing) fn parse(text: &str) -> Self {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let query = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(name, true), decode(value, true))
            });
        Self {
            path: decode(path, false),
            query: query.collect(),
        }
    }

    pub(in crate::testing) fn value(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether the request opens a watch.
    pub(in crate::testing) fn is_watch(&self) -> bool {
        self.value("watch").is_some_and(is_true)
    }
}

/// Whether a parameter that is there says yes: the API server takes all but `0` and `false` for
/// that, also no value at all.
pub(in crate::testing) fn is_true(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        encode(&self.path, true, f)?;
        for (index, (name, value)) in self.query.iter().enumerate() {
            f.write_str(if index == 0 { "?" } else { "&" })?;
            encode(name, false, f)?;
            f.write_str("=")?;
            encode(value, false, f)?;
        }
        Ok(())
    }
}

fn encode(text: &str, keep_slashes: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use fmt::Write as _;
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if plain || (keep_slashes && byte == b'/') {
            f.write_char(char::from(byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

fn decode(text: &str, plus_is_space: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let (byte, tail) = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, tail),
                _ => (b'%', tail_of(rest)),
            },
            (b'+', tail) if plus_is_space => (b' ', tail),
            (byte, tail) => (*byte, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn tail_of(bytes: &[u8]) -> &[u8] {
    bytes.get(1..).unwrap_or_default()
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_survives_being_written_and_read() {
        let target = Target::parse(
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1&labelSelector=a+in+%28b%29&watch=1",
        );
        assert_eq!(target.value("fieldSelector"), Some("spec.nodeName=node-1"));
        assert_eq!(target.value("labelSelector"), Some("a in (b)"));
        assert!(target.is_watch());
        assert_eq!(Target::parse(&target.to_string()), target);
    }

    #[test]
    fn a_watch_is_asked_for_by_all_but_a_no() {
        for (query, expected) in [
            ("watch=1", true),
            ("watch=TRUE", true),
            ("watch=yes", true),
            ("watch=", true),
            ("watch", true),
            ("watch=tRuE&watch=0", true),
            ("watch=0", false),
            ("watch=False", false),
            ("watch=false", false),
            ("x=1", false),
        ] {
            let target = Target::parse(&format!("/api/v1/pods?{query}"));
            assert_eq!(target.is_watch(), expected, "{query}");
        }
    }

    #[test]
    fn a_percent_sign_that_encodes_nothing_is_itself() {
        assert_eq!(Target::parse("/a%zzb%4").path, "/a%zzb%4");
    }
}
