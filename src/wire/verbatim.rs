//! The text of an object as it was sent, copied in one piece without what is passed over.

use super::scan::Span;

/// The name by which a type asks for its text.
pub(super) const VERBATIM: &str = "$kubecache::verbatim";

/// What a decoder notes of a value that is to be copied.
#[derive(Default)]
pub(super) struct TextCuts {
    /// What is passed over, in order.
    cuts: Vec<Span>,
    /// The metadata of the object. The last of several counts.
    pub(super) metadata: Span,
}

impl TextCuts {
    /// Leaves these bytes out.
    pub(super) fn cut(&mut self, start: usize, end: usize) {
        self.cuts.push(Span { start, end });
    }

    /// Copies the value, which lies there in `bytes`.
    pub(super) fn copy(self, bytes: &[u8], (start, end): (usize, usize)) -> Verbatim {
        let Self { cuts, metadata } = self;
        let part = |start, end| Span { start, end }.of(bytes);
        // Text that grows leaves its bytes in freed memory. Two places stand behind it.
        let room = size_of::<usize>().wrapping_mul(2);
        let kept = end.wrapping_sub(start).wrapping_sub(length_of(&cuts));
        let mut text = Vec::with_capacity(kept.wrapping_add(room));
        let mut from = start;
        for cut in &cuts {
            text.extend_from_slice(part(from, cut.start));
            from = cut.end;
        }
        text.extend_from_slice(part(from, end));
        let placed = |at: usize| {
            let before = cuts.partition_point(|cut| cut.end <= at);
            let cut = length_of(cuts.get(..before).unwrap_or_default());
            at.saturating_sub(start).saturating_sub(cut)
        };
        let metadata = Span {
            start: placed(metadata.start),
            end: placed(metadata.end),
        };
        Verbatim { text, metadata }
    }
}

/// The copy of a value, and the place of its metadata in it; an empty one without metadata.
pub(super) struct Verbatim {
    pub(super) text: Vec<u8>,
    pub(super) metadata: Span,
}

impl Verbatim {
    /// Appends the place to the text, because a visitor takes nothing but bytes.
    pub(super) fn packed(mut self) -> Vec<u8> {
        for at in [self.metadata.start, self.metadata.end] {
            self.text.extend_from_slice(&at.to_le_bytes());
        }
        self.text
    }

    /// Takes the place from the end of the bytes; `None` if they are too short.
    pub(super) fn unpacked(mut text: Vec<u8>) -> Option<Self> {
        let (rest, end) = text.split_last_chunk()?;
        let (rest, start) = rest.split_last_chunk()?;
        let [start, end] = [start, end].map(|bytes| usize::from_le_bytes(*bytes));
        let length = rest.len();
        text.truncate(length);
        Some(Self {
            text,
            metadata: Span { start, end },
        })
    }
}

/// How many bytes are passed over.
fn length_of(cuts: &[Span]) -> usize {
    let lengths = cuts.iter().map(|cut| cut.end.wrapping_sub(cut.start));
    lengths.fold(0, usize::wrapping_add)
}
