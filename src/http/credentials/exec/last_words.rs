//! The end of a plugin's standard error: passed on to the program's own, and kept for the error of
//! a plugin that fails.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ChildStderr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::super::authorization::MARK;
use crate::error::visible;
use crate::wire::Wiped;

/// The least that is kept of the end, to tell where a token begins.
const KEPT_BYTES: usize = 4096;

/// The bytes read at once: a writable pipe takes them without blocking.
const READ_BYTES: usize = 4096;

/// The maximum in an error.
const SHOWN_BYTES_MAX: usize = 1024;

/// Steps after the plugin's end: enough for the content of a pipe. A child of it may write for
/// ever.
const LAST_STEPS: usize = 64;

/// A shorter token may stand within words.
const TOKEN_BYTES_MIN: usize = 4;

/// The standard error of one plugin. No copy is left in freed memory.
pub(super) struct LastWords {
    /// `None` before the start and after the end.
    pub(super) from: Option<ChildStderr>,
    /// The program's standard error, without the lock of the standard library; `None` if it is
    /// closed.
    to: Option<OwnedFd>,
    bytes: Wiped,
    used: usize,
    /// How many of the last bytes are not passed on yet.
    unsent: usize,
    is_cut: bool,
}

/// Whether one descriptor is ready. Does not block.
pub(super) fn is_ready_now(descriptor: PollFd<'_>) -> bool {
    let now = Timespec::default();
    matches!(poll(&mut [descriptor], Some(&now)), Ok(1..))
}

impl LastWords {
    /// Passes on to the program's own standard error.
    pub(super) fn passed_on() -> Self {
        Self::new(io::stderr().as_fd().try_clone_to_owned().ok())
    }

    pub(super) fn new(to: Option<OwnedFd>) -> Self {
        Self {
            from: None,
            to,
            bytes: Wiped::beginning_with(&[], KEPT_BYTES.saturating_add(READ_BYTES)),
            used: 0,
            unsent: 0,
            is_cut: false,
        }
    }

    /// The descriptor that the next step waits for. Nothing is read before the earlier bytes are
    /// passed on, as if the plugin wrote to the program's standard error itself.
    pub(super) fn awaited(&self) -> Option<PollFd<'_>> {
        let from = self.from.as_ref();
        match &self.to {
            Some(to) if self.unsent > 0 => Some(PollFd::new(to, PollFlags::OUT)),
            _ => from.map(|from| PollFd::new(from, PollFlags::IN)),
        }
    }

    /// Passes on the earlier bytes, or reads the available ones. Does not block once
    /// [`awaited`](Self::awaited) is ready.
    pub(super) fn step(&mut self) {
        if let Some(to) = self.to.as_ref().filter(|_| self.unsent > 0) {
            let begin = self.used.saturating_sub(self.unsent);
            let unsent = self.bytes.get(begin..self.used).unwrap_or_default();
            match rustix::io::write(to, unsent) {
                Ok(count) => self.unsent = self.unsent.saturating_sub(count),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_closed) => self.to = None,
            }
            return;
        }
        if self.used > KEPT_BYTES {
            let begin = self.used.saturating_sub(KEPT_BYTES);
            self.bytes.copy_within(begin..self.used, 0);
            (self.used, self.is_cut) = (KEPT_BYTES, true);
        }
        let end = self.used.saturating_add(READ_BYTES);
        let room = self.bytes.get_mut(self.used..end).unwrap_or_default();
        match self.from.as_mut().map(|from| from.read(room)) {
            Some(Ok(count @ 1..)) => {
                self.used = self.used.saturating_add(count);
                self.unsent = count;
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => self.from = None,
        }
    }

    /// Reads the rest after the plugin's end, and passes on as much as it can without a wait.
    pub(super) fn drain(&mut self) {
        for _ in 0..LAST_STEPS {
            match (self.awaited().is_some_and(is_ready_now), self.unsent) {
                (true, _) => self.step(),
                (false, 0) => return,
                // Bytes that cannot be passed on now are only kept.
                (false, _) => self.unsent = 0,
            }
        }
    }

    /// Returns the end of the text for an error, without tokens, `token` included; `None` if there
    /// is none.
    pub(super) fn shown(&self, token: Option<Zeroizing<String>>) -> Option<String> {
        let kept = self.bytes.get(..self.used).unwrap_or_default();
        // The capacity suffices: a growing text leaves its bytes in freed memory.
        let mut text = Zeroizing::new(String::with_capacity(kept.len().saturating_mul(3)));
        for chunk in kept.utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend((!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER));
        }
        if text.contains("PRIVATE KEY") {
            return Some("[a private key is left out]".to_owned());
        }
        // The first word may be the end of a token.
        let whole = match text.split_once(char::is_whitespace) {
            Some((_cut, rest)) if self.is_cut => rest,
            None if self.is_cut => "",
            _ => text.as_str(),
        };
        let hidden = token
            .filter(|token| token.len() >= TOKEN_BYTES_MIN)
            .map(|token| Zeroizing::new(whole.replace(token.as_str(), MARK)));
        let shown = without_tokens(hidden.as_deref().map_or(whole, String::as_str));
        let shown = visible(shown.trim()).into_owned();
        let begin = shown.len().saturating_sub(SHOWN_BYTES_MAX);
        let begin = (begin..=shown.len()).find(|at| shown.is_char_boundary(*at));
        let shown = begin.and_then(|begin| shown.get(begin..));
        shown.filter(|shown| !shown.is_empty()).map(str::to_owned)
    }
}

/// Replaces each word that looks like a token, or that follows the name of a secret.
fn without_tokens(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let (mut before, mut rest) = ("", text);
    while !rest.is_empty() {
        let (gap, length, is_secret) = next_word(before, rest);
        let (between, from_word) = rest.split_at(gap);
        (before, rest) = from_word.split_at(length);
        shown.push_str(between);
        shown.push_str(if is_secret { MARK } else { before });
    }
    shown
}

/// Finds the next word or value behind `before`. Returns where it begins, its length, and whether
/// it is a secret.
fn next_word(before: &str, behind: &str) -> (usize, usize, bool) {
    let in_word = |char: char| char.is_ascii_alphanumeric() || "-._~+/%".contains(char);
    // A secret may contain any character.
    let unquoted = |text: &str| {
        let end = text.find(|char: char| char.is_whitespace() || "\"'".contains(char));
        end.unwrap_or(text.len())
    };
    let is_named = names_secret(before);
    if let Some((begin, quote)) = assigned(behind).filter(|_| is_named) {
        let value = behind.split_at(begin).1;
        let length = match quote {
            Some(quote) => quoted(value, quote),
            // The signs may belong to the name of another secret.
            None => value
                .split_at(unquoted(value))
                .0
                .trim_end_matches(['=', ':'])
                .len(),
        };
        return (begin, length, length > 0);
    }
    if let Some(value) = behind.strip_prefix(':')
        && let Some(at) = value.split_at(unquoted(value)).0.rfind('@')
    {
        // The password of a user.
        return (1, at, true);
    }
    let begin = behind.find(in_word).unwrap_or(behind.len());
    let rest = behind.split_at(begin).1;
    let (word, _) = rest.split_at(rest.find(|char| !in_word(char)).unwrap_or(rest.len()));
    if is_named && word.len() >= 8 && is_mixed(word) {
        return (begin, unquoted(rest), true);
    }
    (begin, word.len(), looks_like_token(word))
}

/// Where the value begins that is assigned to the name before this text, and its closing quote.
fn assigned(behind: &str) -> Option<(usize, Option<&str>)> {
    let named = behind.trim_start_matches(['\\', '"', '\'']);
    let value = named.trim_start_matches([' ', '\t', '=', ':', '>']);
    let (sign, _) = named.split_at(named.len().saturating_sub(value.len()));
    let quotes = ["\"", "'", "\\\"", "\\'"];
    let opened = value.trim_start_matches(['[', '(', '<', '$', ' ', '\r', '\n']);
    let quote = quotes.into_iter().find(|quote| opened.starts_with(quote));
    let value = if quote.is_some() { opened } else { value };
    let is_quoted = quote.is_some() || named != behind;
    let is_assigned = sign.contains('=') || sign.contains(':') && is_quoted;
    let begin = behind.len().saturating_sub(value.len());
    is_assigned.then(|| (begin.saturating_add(quote.map_or(0, str::len)), quote))
}

/// The length of a value up to its quote, or of the line.
fn quoted(value: &str, quote: &str) -> usize {
    let mut quotes = value.match_indices(quote).map(|(at, _)| at);
    let end = quotes.find(|at| !value.split_at(*at).0.ends_with('\\'));
    end.or_else(|| value.find('\n')).unwrap_or(value.len())
}

fn names_secret(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let names = [
        "token", "password", "passwd", "secret", "key", "bearer", "basic",
    ];
    names.iter().any(|name| word.ends_with(name))
}

fn is_mixed(word: &str) -> bool {
    let has = |test: fn(&u8) -> bool| word.as_bytes().iter().any(test);
    has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
}

/// Whether a word is as random as a token. Paths, names of hosts and versions are not.
fn looks_like_token(word: &str) -> bool {
    // Base64 has slashes, but then no dashes.
    let is_path = word.starts_with(['/', '.', '~']) || word.contains(['-', '_']);
    let pieces = word.split(move |char| char == '.' || is_path && char == '/');
    pieces.into_iter().any(|piece| {
        let longest = piece.split(['-', '_']).map(str::len).max();
        let has_both_cases =
            piece.to_ascii_lowercase() != piece && piece.to_ascii_uppercase() != piece;
        let is_long =
            longest >= Some(16) || piece.len() >= 36 || piece.len() >= 20 && has_both_cases;
        is_mixed(piece) && is_long || piece.len() >= 40
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8], is_cut: bool, token: Option<&str>) -> Option<String> {
        let words = LastWords {
            bytes: Wiped::from(text.to_vec()),
            used: text.len(),
            is_cut,
            ..LastWords::new(None)
        };
        words.shown(token.map(|token| Zeroizing::new(token.to_owned())))
    }

    #[test]
    fn what_looks_like_a_token_is_left_out_and_words_stay() {
        for told in [
            "error: cluster my-cluster-prod-01 not found in eu-central-1",
            "An error occurred (UnrecognizedClientException) when calling AssumeRole",
            "dial tcp 10.0.0.1:443: lookup sts.eu-central-1.amazonaws.com: no such host",
            "open /home/u1/.kube/cache/kubelogin/token-v2.json: permission denied",
            "2026-11-25T10:30:13.123456Z E1125 aws-cli/2.15.30: exit 255",
            "To sign in, open https://login.test/device and enter the code GJXK7Q2AB",
            "error refreshing token: oauth2: cannot fetch token: 401 Unauthorized",
            "kubelogin-v0.1.3: AADSTS700016: app not found",
            "gke_shop-project_europe-west3_shop: no such context",
        ] {
            assert_eq!(of(told.as_bytes(), false, None).as_deref(), Some(told));
        }
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1In0.c2lnbmF0dXJlLWNhbmFyeQ";
        for secret in [
            jwt,
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "xoxb-123456789012-abcdefABCDEF1234567890ab",
            "ya29.a0AfH6SMBx7kQ1234567890abcdef",
            "k8s-aws-v1.aHR0cHM6Ly9zdHMuYW1hem9uYXdzLmNvbS8_QWN0aW9u",
            "sha256~Zq3xk9LmN0pQrStUvWxYz1234567890",
            "abcdef.0123456789abcdef",
            "06e3fbd1-8de8-4a1b-9c2d-0123456789ab",
            "ThisIsALongSecretWithoutAnyDigitInItAtAll",
            "exactlyfortylettersofonecaseandnoneother",
        ] {
            for (before, behind) in [("", ""), ("got ", " back"), ("\"", "\","), ("(", ")")] {
                let text = format!("{before}{secret}{behind}");
                let shown = of(text.as_bytes(), false, None).unwrap();
                assert!(shown.contains(MARK), "{shown}");
                let kept = secret.split(['.', '~']).filter(|part| part.len() >= 12);
                assert!(
                    !kept.into_iter().any(|part| shown.contains(part)),
                    "{shown}"
                );
            }
        }
        assert_eq!(
            of(b"no canary today", false, Some("canary")).as_deref(),
            Some("no [credentials left out] today")
        );
        assert_eq!(of(b"a bat", false, Some("a")).as_deref(), Some("a bat"));
    }

    #[test]
    fn what_is_named_a_secret_is_hidden_whatever_its_characters() {
        for text in [
            "token=hunter",
            "{\"token\":\"hunter\"}",
            "id_token: 'hunter'",
            "AWS_SECRET_ACCESS_KEY=hunter",
            "Authorization: Bearer hunter2345",
            "password: hunter2345",
            "https://u:hunter@proxy.test/",
            "{\"password\":\"a!hunter\"}",
            "at http://u:S3!hunter@proxy:3128: refused",
            "token=abc$hunter",
            "password: \"it's two hunter\", again",
            "token=\"\" password=\"hunter\"",
            "api_key: \"\", password: \"hunter\"",
            "login(token=None,password='hunter')",
            "token=abc,password: hunter2345",
            "password='$ecret hunter'",
            "--password=\"!a hunter\"",
            "password=\"ab\\\"hunter\"",
            "{\\\"token\\\":\\\"!hunter\\\"}",
            "password=\u{441}\u{435}\u{43a}hunter next",
            "at http://u:!S3-hunter@proxy",
            "token='it hunter",
            "{\"X-Auth-Token\":[\"hunter\"]}",
            "password=[\"hunter\"]",
            "password=(\"hunter\")",
            "token=$\"hunter\"",
            "{\"password\":\n  \"hunter\"}",
        ] {
            let shown = of(text.as_bytes(), false, None).unwrap();
            assert!(shown.contains(MARK) && !shown.contains("hunter"), "{shown}");
        }
    }

    #[test]
    fn the_end_is_whole_words_made_visible_and_one_kibibyte() {
        assert_eq!(of(b"", false, None), None);
        assert_eq!(of(b" \r\n\0", false, None).as_deref(), Some("\\u{0}"));
        assert_eq!(
            of(b"one\r\n\x1b[31mtwo\xff\n", false, None).as_deref(),
            Some("one\\r\\n\\u{1b}[31mtwo\u{fffd}")
        );
        assert_eq!(
            of(b"end-of-token but this", true, None).as_deref(),
            Some("but this")
        );
        assert_eq!(of(&[b'x'; 5000], true, None), None);
        assert_eq!(
            of(b"-----BEGIN EC PRIVATE KEY-----\ncanary\n", false, None).as_deref(),
            Some("[a private key is left out]")
        );
        for letter in ["a ", "\u{fc} ", "\u{1} "] {
            let shown = of(letter.repeat(2000).as_bytes(), false, None).unwrap();
            assert!((1020..=1024).contains(&shown.len()), "{}", shown.len());
            assert!(shown.ends_with(visible(letter.trim_end_matches(' ')).as_ref()));
        }
    }
}
