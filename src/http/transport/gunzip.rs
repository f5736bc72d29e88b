//! Decompresses gzip as its bytes come, member by member.
//!
//! kube-apiserver makes a member of what it flushes: of each burst of a streamed list, and later of
//! each event. All of a member can be read before the next one begins, and between two members
//! there is neither a buffer nor a window. So an idle stream costs no more than a plain one.

use std::io::{self, BufRead as _, BufReader, Read};

use flate2::bufread::GzDecoder;

use super::interrupt::Interrupt;
use crate::error::{Error, ErrorKind};

/// So many compressed bytes are read at once.
const INPUT_BYTES: usize = 16 * 1024;

/// So many compressed bytes in a row may hold nothing: headers, trailers, empty blocks.
const DRY_BYTES_MAX: usize = 1024 * 1024;

/// Reads what the gzip members in `R` hold.
pub(crate) struct Gunzip<R> {
    /// `None` only after a panic in `R`.
    position: Option<Position<R>>,
}

enum Position<R> {
    /// At the end of a member, and of the bytes that have come.
    Between(Compressed<R>),
    Member(Box<GzDecoder<BufReader<Compressed<R>>>>),
}

/// What is compressed. Its "would block" has the kind that the decompressor knows.
struct Compressed<R> {
    compressed: R,
    /// The bytes read since one was decompressed.
    dry: usize,
}

impl<R: Read> Gunzip<R> {
    pub(crate) fn new(compressed: R) -> Self {
        Self {
            position: Some(Position::Between(Compressed { compressed, dry: 0 })),
        }
    }

    /// Whether it holds a decompressor.
    #[cfg(test)]
    fn is_in_a_member(&self) -> bool {
        matches!(self.position, Some(Position::Member(_)))
    }
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let (next, read) = match self.position.take() {
                Some(Position::Between(input)) => begin(input),
                Some(Position::Member(mut member)) => match member.read(into) {
                    Ok(0) => (end(*member), None),
                    Ok(count) => {
                        member.get_mut().get_mut().dry = 0;
                        (Position::Member(member), Some(Ok(count)))
                    }
                    Err(error) => (Position::Member(member), Some(Err(told(error)))),
                },
                None => return Ok(0),
            };
            self.position = Some(next);
            if let Some(read) = read {
                return read;
            }
        }
    }
}

/// Begins the next member if there are bytes of it. 0 bytes are the end.
fn begin<R: Read>(input: Compressed<R>) -> (Position<R>, Option<io::Result<usize>>) {
    let mut input = BufReader::with_capacity(INPUT_BYTES, input);
    match input.fill_buf() {
        Ok([]) => (Position::Between(input.into_inner()), Some(Ok(0))),
        Ok(_) => (Position::Member(Box::new(GzDecoder::new(input))), None),
        Err(error) => (
            Position::Between(input.into_inner()),
            Some(Err(told(error))),
        ),
    }
}

/// Ends a member. Its input may hold the beginning of the next one.
fn end<R: Read>(member: GzDecoder<BufReader<Compressed<R>>>) -> Position<R> {
    let input = member.into_inner();
    if input.buffer().is_empty() {
        Position::Between(input.into_inner())
    } else {
        Position::Member(Box::new(GzDecoder::new(input)))
    }
}

impl<R: Read> Read for Compressed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.dry >= DRY_BYTES_MAX {
            let text = format!("{} compressed bytes hold nothing", self.dry);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let read = self.compressed.read(into);
        let count = read.map_err(|error| {
            let interrupt = Interrupt::from(error);
            if matches!(interrupt, Interrupt::WouldBlock) {
                return io::ErrorKind::WouldBlock.into();
            }
            wrapped(interrupt)
        })?;
        self.dry = self.dry.saturating_add(count);
        Ok(count)
    }
}

/// Returns the error of a read in the form in which it passes through [`Interrupt`].
fn told(error: io::Error) -> io::Error {
    let kind = error.kind();
    if kind == io::ErrorKind::WouldBlock {
        return wrapped(Interrupt::WouldBlock);
    }
    // The decompressor's own kinds.
    if ![io::ErrorKind::InvalidInput, io::ErrorKind::InvalidData].contains(&kind) {
        return error;
    }
    let broken = format!("the gzip data is broken: does a proxy change it? ({error})");
    let broken = Error::new(ErrorKind::Protocol, broken).with_source(error);
    wrapped(Interrupt::Failed(broken))
}

fn wrapped(interrupt: Interrupt) -> io::Error {
    io::Error::other(ureq::Error::from(interrupt))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Gives these pieces; an empty one is "would block".
    struct Pieces(VecDeque<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(mut piece) = self.0.pop_front() else {
                return Ok(0);
            };
            if piece.is_empty() {
                return Err(wrapped(Interrupt::WouldBlock));
            }
            let count = piece.len().min(into.len());
            into[..count].copy_from_slice(&piece[..count]);
            let rest = piece.split_off(count);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
            Ok(count)
        }
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(text).unwrap();
        out.finish().unwrap()
    }

    fn of(pieces: impl IntoIterator<Item = Vec<u8>>) -> Gunzip<Pieces> {
        Gunzip::new(Pieces(pieces.into_iter().collect()))
    }

    /// Reads to the end; "would block" is a `|`.
    fn read(mut gunzip: Gunzip<Pieces>) -> Result<String, Interrupt> {
        let mut text = Vec::new();
        let mut into = [0; 7];
        loop {
            match gunzip.read(&mut into).map_err(Interrupt::from) {
                Ok(0) => return Ok(String::from_utf8(text).unwrap()),
                Ok(count) => text.extend(&into[..count]),
                Err(Interrupt::WouldBlock) => text.push(b'|'),
                Err(interrupt) => return Err(interrupt),
            }
        }
    }

    #[test]
    fn what_a_member_holds_is_read_before_the_next_one_comes() {
        let members = [gzip(b"one "), vec![], gzip(b"two "), vec![], gzip(b"three")];
        assert_eq!(read(of(members)).unwrap(), "one |two |three");
        let together = [gzip(b"one "), gzip(b"two "), gzip(b"three")].concat();
        assert_eq!(read(of([together])).unwrap(), "one two three");
    }

    #[test]
    fn members_may_be_split_at_each_byte() {
        let bytes = [gzip(b"one, "), gzip(b""), gzip(b"two")].concat();
        for split in 1..bytes.len() {
            let (first, second) = bytes.split_at(split);
            let read = read(of([first.to_vec(), vec![], second.to_vec()])).unwrap();
            assert_eq!(read.replacen('|', "", 1), "one, two", "{split}");
        }
        let each = bytes.iter().flat_map(|byte| [vec![*byte], vec![]]);
        assert_eq!(read(of(each)).unwrap().replace('|', ""), "one, two");
    }

    #[test]
    fn nothing_is_held_between_two_members() {
        let mut gunzip = of([gzip(b"one"), vec![], gzip(b"two"), vec![]]);
        let mut into = [0; 16];
        for _ in 0..2 {
            assert_eq!(gunzip.read(&mut into).unwrap(), 3);
            assert!(gunzip.is_in_a_member());
            let blocked = gunzip.read(&mut into).map_err(Interrupt::from);
            assert!(matches!(blocked, Err(Interrupt::WouldBlock)));
            assert!(!gunzip.is_in_a_member());
        }
    }

    #[test]
    fn an_end_within_a_member_is_an_unexpected_end() {
        let bytes = gzip(b"one and two");
        for length in 1..bytes.len() {
            let cut = read(of([bytes[..length].to_vec()])).unwrap_err();
            assert!(cut.is_closed_by_peer(), "{length}: {cut:?}");
        }
    }

    #[test]
    fn broken_data_is_an_error_that_says_so() {
        let good = gzip(b"one and two");
        let mut wrong_sum = good.clone();
        let sum_at = wrong_sum.len() - 8;
        wrong_sum[sum_at] ^= 1;
        let mut wrong_data = good.clone();
        wrong_data[10] = 0xff;
        let rows = [
            b"{\"kind\":\"Status\"}".to_vec(),
            [good, b"{\"kind\":\"Status\"}".to_vec()].concat(),
            wrong_sum,
            wrong_data,
        ];
        for bytes in rows {
            let broken = read(of([bytes])).unwrap_err();
            assert!(matches!(broken, Interrupt::Failed(_)), "{broken:?}");
            let text = broken.to_string();
            assert!(text.starts_with("the gzip data is broken"), "{text}");
        }
    }

    #[test]
    fn what_ends_the_reading_below_passes_through() {
        struct Stopped;
        impl Read for Stopped {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(wrapped(Interrupt::Stopped))
            }
        }
        let stopped = Gunzip::new(Stopped).read(&mut [0; 8]);
        let stopped = stopped.map_err(Interrupt::from);
        assert!(matches!(stopped, Err(Interrupt::Stopped)));
    }
}
