//! Finds the end of a JSON value across refills, and the spans that a cache does not keep.
//!
//! The scanner looks at quotes and brackets only. The decoder checks whether the value is JSON.

use memchr::memchr;

/// Open containers whose members matter: the object itself, its metadata, its annotations.
const OBJECT: usize = 1;
const METADATA: usize = 2;
const ANNOTATIONS: usize = 3;

/// The annotation in which `kubectl apply` keeps a second copy of the object.
const LAST_APPLIED: &[u8] = b"kubectl.kubernetes.io/last-applied-configuration";

/// Words of eight bytes in which a quote is looked for before `memchr` is called.
const NEAR_WORDS: usize = 3;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const QUOTES: u64 = 0x2222_2222_2222_2222;

/// A half-open range of bytes, from the first byte of the scanned value on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Span {
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }
}

/// What is cut out of an object before it is decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cutting {
    /// What a cache does not keep (B19).
    pub(super) trim: bool,
    /// The values of a Secret, which are decoded apart.
    pub(super) secret_data: bool,
}

/// What the scanner saw of an object.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// What to cut, in order; without them the object is as well-formed as it was with them.
    pub(super) cuts: Vec<Span>,
    /// The object's `kind`, where it is a string, quotes included.
    pub(super) kind: Option<Span>,
    /// The object's `apiVersion`, likewise.
    pub(super) api_version: Option<Span>,
    /// The member `data` where that is cut, its key and all behind it up to the comma; the last one
    /// of several.
    pub(super) secret_data: Option<Span>,
}

/// A byte that cannot stand where it stands; none if the bytes end too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson(pub(super) Option<u8>);

/// What a member of an open container means to us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Meaning {
    /// The key has not come yet.
    #[default]
    Unnamed,
    Kind,
    ApiVersion,
    Metadata,
    Annotations,
    Cut,
    /// The values of a Secret: cut as well, and noted.
    SecretData,
    Other,
}

impl Meaning {
    fn is_cut(self) -> bool {
        matches!(self, Self::Cut | Self::SecretData)
    }
}

/// Where we are in a container whose members matter.
#[derive(Clone, Copy, Debug, Default)]
struct OpenContainer {
    member: Meaning,
    member_start: usize,
    /// The comma behind the last member that stays.
    kept_comma: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Token {
    /// Nothing of the value has come yet.
    #[default]
    Before,
    /// Inside a container, between strings.
    Between,
    /// In a string; `escaped` when its next byte follows a backslash.
    Text { start: usize, escaped: bool },
    /// In a number or a word at the top.
    Scalar,
}

/// One value being scanned. The same bytes are handed in again with more behind them until its end
/// is found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    at: usize,
    token: Token,
    /// Open containers.
    depth: usize,
    /// Open containers whose members matter; they are the outermost ones.
    level: usize,
    frame: OpenContainer,
    /// The frames around that one, from none on.
    outer: [OpenContainer; ANNOTATIONS],
    track: bool,
    cutting: Cutting,
    shape: Shape,
}

impl Scan {
    /// Begins a value of which only the end is wanted.
    pub(super) fn begin(&mut self) {
        self.at = 0;
        self.token = Token::Before;
        self.depth = 0;
        self.level = 0;
        self.track = false;
    }

    /// Begins an object of the API; the spans that are to be cut out of it are noted.
    pub(super) fn begin_object(&mut self, cutting: Cutting) {
        self.begin();
        self.track = true;
        self.cutting = cutting;
        self.shape.secret_data = None;
        self.shape.cuts.clear();
        self.shape.kind = None;
        self.shape.api_version = None;
    }

    /// Whether the bytes that came last stand in a string.
    pub(super) fn is_in_text(&self) -> bool {
        matches!(self.token, Token::Text { .. })
    }

    /// What was seen of the object since `begin_object`.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Gives back the memory of an object that had much to cut.
    pub(super) fn release(&mut self) {
        self.shape.cuts = Vec::new();
    }

    /// The memory held, in bytes.
    pub(super) fn held(&self) -> usize {
        self.shape.cuts.capacity().saturating_mul(size_of::<Span>())
    }

    /// The first `count` bytes are gone: for values that are passed over, not kept.
    pub(super) fn forget(&mut self, count: usize) {
        self.at = self.at.saturating_sub(count);
    }

    /// Goes on in `bytes`, the value from its first byte on; `None` asks for more of it, `Some` is
    /// its length.
    ///
    /// A number or a word ends at the byte behind it, which must be there.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotJson> {
        loop {
            let done = match self.token {
                Token::Before => match bytes.get(self.at) {
                    None => return Ok(None),
                    Some(&byte) => self.open(byte)?,
                },
                Token::Text { start, escaped } => {
                    if !self.text(bytes, start, escaped) {
                        return Ok(None);
                    }
                    self.depth == 0
                }
                Token::Scalar => {
                    let rest = bytes.get(self.at..).unwrap_or_default();
                    let length = rest.iter().position(|byte| !is_scalar(*byte));
                    self.at = self.at.saturating_add(length.unwrap_or(rest.len()));
                    if length.is_none() {
                        return Ok(None);
                    }
                    true
                }
                Token::Between => {
                    if !self.inside(bytes) {
                        return Ok(None);
                    }
                    true
                }
            };
            if done {
                return Ok(Some(self.at));
            }
        }
    }

    /// The first byte of the value. Never the end of it.
    fn open(&mut self, byte: u8) -> Result<bool, NotJson> {
        self.token = match byte {
            b'"' => Token::Text {
                start: self.at,
                escaped: false,
            },
            b'{' | b'[' => {
                self.depth = 1;
                if self.track && byte == b'{' {
                    self.enter(OBJECT, self.at.saturating_add(1));
                }
                Token::Between
            }
            _ if is_scalar(byte) => Token::Scalar,
            _ => return Err(NotJson(Some(byte))),
        };
        self.at = self.at.saturating_add(1);
        Ok(false)
    }

    /// To the end of the string that began at `start`; false when the bytes end first.
    fn text(&mut self, bytes: &[u8], start: usize, escaped: bool) -> bool {
        let from = self.at.saturating_add(usize::from(escaped));
        if escaped && from > bytes.len() {
            return false;
        }
        match string_end(bytes, from) {
            Ok(end) => {
                self.at = end;
                self.token = Token::Between;
                if self.depth > 0 && self.depth == self.level {
                    self.named(bytes, Span { start, end });
                }
                true
            }
            Err(escaped) => {
                self.at = bytes.len();
                self.token = Token::Text { start, escaped };
                false
            }
        }
    }

    /// Through containers to the end of the value; false when the bytes end first.
    fn inside(&mut self, bytes: &[u8]) -> bool {
        let mut at = self.at;
        let mut depth = self.depth;
        while let Some(&byte) = bytes.get(at) {
            let next = at.saturating_add(1);
            // What stands deeper than the last container that matters is passed over.
            let matters = depth == self.level;
            match byte {
                b'"' => match string_end(bytes, next) {
                    Ok(end) => {
                        if matters {
                            self.named(bytes, Span { start: at, end });
                        }
                        at = end;
                        continue;
                    }
                    Err(escaped) => {
                        self.token = Token::Text { start: at, escaped };
                        at = bytes.len();
                        break;
                    }
                },
                b'{' | b'[' => {
                    depth = depth.saturating_add(1);
                    match (self.frame.member, byte) {
                        (Meaning::Metadata, b'{') if matters => self.enter(METADATA, next),
                        (Meaning::Annotations, b'{') if matters => self.enter(ANNOTATIONS, next),
                        _ => {}
                    }
                }
                b'}' | b']' => {
                    if matters {
                        self.leave(at);
                    }
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        self.at = next;
                        self.depth = 0;
                        return true;
                    }
                }
                b',' if matters => self.comma(at),
                _ => {}
            }
            at = next;
        }
        self.at = at;
        self.depth = depth;
        false
    }

    fn enter(&mut self, level: usize, member_start: usize) {
        if let Some(outer) = self.outer.get_mut(self.level) {
            *outer = self.frame;
        }
        self.level = level;
        self.frame = OpenContainer {
            member_start,
            ..OpenContainer::default()
        };
    }

    /// A whole string stands directly in a container that matters: a key, or the value of one.
    fn named(&mut self, bytes: &[u8], text: Span) {
        match self.frame.member {
            Meaning::Unnamed => {
                self.frame.member = meaning(self.level, self.cutting, text.of(bytes));
            }
            Meaning::Kind => self.shape.kind = Some(text),
            Meaning::ApiVersion => self.shape.api_version = Some(text),
            Meaning::Metadata
            | Meaning::Annotations
            | Meaning::Cut
            | Meaning::SecretData
            | Meaning::Other => {}
        }
    }

    fn comma(&mut self, at: usize) {
        let end = at.saturating_add(1);
        self.note_data(at);
        if self.frame.member.is_cut() {
            let start = self.frame.member_start;
            self.cut(Span { start, end });
        } else {
            self.frame.kept_comma = Some(at);
        }
        self.frame.member = Meaning::Unnamed;
        self.frame.member_start = end;
    }

    fn leave(&mut self, at: usize) {
        let frame = self.frame;
        self.note_data(at);
        if frame.member.is_cut() {
            // The last member takes the comma before it along, and with it all that was cut since.
            let start = frame.kept_comma.unwrap_or(frame.member_start);
            self.shape.cuts.retain(|cut| cut.start < start);
            self.cut(Span { start, end: at });
        } else if frame.member == Meaning::Unnamed
            && let Some(last) = self.shape.cuts.last_mut()
            && last.end == frame.member_start
        {
            // A comma behind which nothing comes is wrong: it stays for the decoder to see.
            last.end = last.end.saturating_sub(1);
        }
        self.level = self.level.saturating_sub(1);
        self.frame = self.outer.get(self.level).copied().unwrap_or_default();
    }

    /// A member ends here.
    fn note_data(&mut self, end: usize) {
        if self.frame.member == Meaning::SecretData {
            let start = self.frame.member_start;
            self.shape.secret_data = Some(Span { start, end });
        }
    }

    fn cut(&mut self, cut: Span) {
        match self.shape.cuts.last_mut() {
            Some(last) if last.end == cut.start => last.end = cut.end,
            _ => self.shape.cuts.push(cut),
        }
    }
}

fn meaning(level: usize, cutting: Cutting, key: &[u8]) -> Meaning {
    let plain = inner(key).unwrap_or_default();
    if !plain.contains(&b'\\') {
        return plain_meaning(level, cutting, plain);
    }
    let key = serde_json::from_slice::<String>(key).unwrap_or_default();
    plain_meaning(level, cutting, key.as_bytes())
}

fn plain_meaning(level: usize, cutting: Cutting, key: &[u8]) -> Meaning {
    let Cutting { trim, secret_data } = cutting;
    match (level, key) {
        (OBJECT, b"metadata") => Meaning::Metadata,
        (OBJECT, b"data") if secret_data => Meaning::SecretData,
        (OBJECT, b"kind") => Meaning::Kind,
        (OBJECT, b"apiVersion") => Meaning::ApiVersion,
        (METADATA, b"managedFields") if trim => Meaning::Cut,
        (METADATA, b"annotations") if trim => Meaning::Annotations,
        (ANNOTATIONS, LAST_APPLIED) => Meaning::Cut,
        _ => Meaning::Other,
    }
}

/// Whether a JSON string, quotes included, spells `text`, in whatever way.
pub(super) fn spells(quoted: &[u8], text: &str) -> bool {
    let Some(inner) = inner(quoted) else {
        return false;
    };
    if inner == text.as_bytes() {
        return true;
    }
    // Each escape is longer than what it stands for.
    inner.len() > text.len()
        && memchr(b'\\', inner).is_some()
        && serde_json::from_slice::<String>(quoted).is_ok_and(|key| key == text)
}

fn inner(quoted: &[u8]) -> Option<&[u8]> {
    quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Where the string ends whose inside goes on at `from`. If it ends behind the bytes: whether its
/// next byte follows a backslash.
fn string_end(bytes: &[u8], mut from: usize) -> Result<usize, bool> {
    loop {
        let rest = bytes.get(from..).unwrap_or_default();
        let Some(quote) = quote_in(rest) else {
            return Err(is_escaped(rest));
        };
        let before = rest.get(..quote).unwrap_or_default();
        from = from.saturating_add(quote).saturating_add(1);
        if !is_escaped(before) {
            return Ok(from);
        }
    }
}

/// Where the first quote stands. Most strings are short: a look at the next words costs less than a
/// call.
#[inline]
fn quote_in(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    for (nth, word) in words.iter().take(NEAR_WORDS).enumerate() {
        // A zero byte borrows from its top bit; bytes below the first zero borrow nothing.
        let differs = u64::from_le_bytes(*word) ^ QUOTES;
        let zeros = differs.wrapping_sub(LOW_BITS) & !differs & HIGH_BITS;
        if zeros != 0 {
            let byte = usize::try_from(zeros.trailing_zeros() / 8).unwrap_or_default();
            return Some(nth.saturating_mul(8).saturating_add(byte));
        }
    }
    let near = words.len().min(NEAR_WORDS).saturating_mul(8);
    memchr(b'"', bytes.get(near..)?).map(|found| found.saturating_add(near))
}

/// Whether what follows `text` stands behind an odd number of backslashes.
fn is_escaped(text: &[u8]) -> bool {
    let backslashes = text.iter().rev().take_while(|byte| **byte == b'\\').count();
    backslashes % 2 == 1
}

fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

/// JSON's white space.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
