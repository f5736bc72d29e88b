//! Decompresses gzip as its bytes come, member by member.
//!
//! kube-apiserver makes one member of each flush: of each burst of a streamed list, and later of
//! each event. All flushed bytes can be read before more bytes come. Between two members there is
//! neither a buffer nor a window, so an idle stream costs no more than a plain one.
//!
//! The readers of flate2 do not fit: they ask for more bytes before they return what they hold.

use std::io::{self, Read};

use flate2::{Decompress, FlushDecompress, Status};
use zeroize::Zeroizing;

use super::super::calls::interrupt::Interrupt;
use crate::error::{Error, ErrorKind};

/// The number of compressed bytes read at once.
const INPUT_BYTES: usize = 16 * 1024;

/// The largest window that gzip has, as a power of two.
const WINDOW_BITS: u8 = 15;

/// The most compressed bytes in a row without content: headers, trailers, empty blocks.
const DRY_BYTES_MAX: usize = 1024 * 1024;

/// Reads the content of the gzip members in `R`.
pub(crate) struct Gunzip<R> {
    compressed: R,
    /// The bytes that were read last.
    input: Zeroizing<Vec<u8>>,
    /// How many of them are decompressed.
    taken: usize,
    /// `None` between two members.
    member: Option<Decompress>,
    /// The bytes read since one was decompressed.
    dry: usize,
}

impl<R: Read> Gunzip<R> {
    pub(crate) fn new(compressed: R) -> Self {
        Self {
            compressed,
            input: Zeroizing::default(),
            taken: 0,
            member: None,
            dry: 0,
        }
    }

    /// Decompresses the bytes that were read. 0 means that they yield no more.
    fn decompress(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let input = self.input.get(self.taken..).unwrap_or_default();
            if self.member.is_none() && input.is_empty() {
                return Ok(0);
            }
            let begin = || Decompress::new_gzip(WINDOW_BITS);
            let member = self.member.get_or_insert_with(begin);
            let (before_in, before_out) = (member.total_in(), member.total_out());
            let status = member.decompress(input, into, FlushDecompress::None);
            let status = status.map_err(|error| broken(&error.to_string()))?;
            let taken = difference(before_in, member.total_in());
            let given = difference(before_out, member.total_out());
            self.taken = self.taken.saturating_add(taken);
            if matches!(status, Status::StreamEnd) {
                self.member = None;
            } else if taken == 0 && given == 0 {
                return Ok(0);
            }
            if given > 0 {
                self.dry = 0;
                return Ok(given);
            }
        }
    }

    /// Reads once more. `false` is the end.
    fn fill(&mut self) -> io::Result<bool> {
        if self.dry >= DRY_BYTES_MAX {
            let text = format!("{} compressed bytes hold nothing", self.dry);
            return Err(broken(&text));
        }
        self.taken = 0;
        self.input.resize(INPUT_BYTES, 0);
        let read = self.compressed.read(&mut self.input);
        let count = *read.as_ref().unwrap_or(&0);
        self.input.truncate(count);
        self.dry = self.dry.saturating_add(count);
        if count == 0 && self.member.is_none() {
            self.input = Zeroizing::default();
        }
        read.map(|count| count > 0)
    }
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let given = self.decompress(into)?;
            if given > 0 {
                return Ok(given);
            }
            if !self.fill()? {
                return match self.member {
                    Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
                    None => Ok(0),
                };
            }
        }
    }
}

fn difference(before: u64, after: u64) -> usize {
    usize::try_from(after.saturating_sub(before)).unwrap_or(usize::MAX)
}

fn broken(why: &str) -> io::Error {
    let text = format!("the gzip data is broken: does a proxy change it? ({why})");
    Interrupt::Failed(Error::new(ErrorKind::Protocol, text)).into()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Returns these pieces; an empty one is "would block".
    struct Pieces(VecDeque<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(mut piece) = self.0.pop_front() else {
                return Ok(0);
            };
            if piece.is_empty() {
                return Err(interrupted(Interrupt::WouldBlock));
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

    fn interrupted(interrupt: Interrupt) -> io::Error {
        io::Error::other(ureq::Error::from(interrupt))
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

    /// A proxy that compresses may flush within a member.
    #[test]
    fn what_was_flushed_within_a_member_is_read_before_more_comes() {
        let text = vec![b'x'; 60_000];
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(&text).unwrap();
        member.flush().unwrap();
        let mut gunzip = of([member.get_ref().clone(), vec![]]);
        let (mut into, mut count) = ([0; 2048], 0);
        while let Ok(read @ 1..) = gunzip.read(&mut into) {
            count += read;
        }
        assert_eq!(count, text.len());
    }

    #[test]
    fn nothing_is_held_between_two_members() {
        let mut gunzip = of([gzip(b"one"), vec![], gzip(b"two"), vec![]]);
        let mut into = [0; 16];
        for _ in 0..2 {
            assert_eq!(gunzip.read(&mut into).unwrap(), 3);
            let blocked = gunzip.read(&mut into).map_err(Interrupt::from);
            assert!(matches!(blocked, Err(Interrupt::WouldBlock)));
            assert!(gunzip.member.is_none());
            assert_eq!(gunzip.input.capacity(), 0);
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
                Err(interrupted(Interrupt::Stopped))
            }
        }
        let stopped = Gunzip::new(Stopped).read(&mut [0; 8]);
        let stopped = stopped.map_err(Interrupt::from);
        assert!(matches!(stopped, Err(Interrupt::Stopped)));
    }
}
