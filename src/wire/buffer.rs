//! A buffer of bytes that were read and not yet consumed. It grows and shrinks with the need.

use super::wiped::Wiped;
use crate::error::Error;

/// Up to this size a buffer doubles. A larger buffer grows by a quarter, so that it does not hold
/// twice the need.
const DOUBLED_BYTES_MAX: usize = 64 * 1024;

/// From this size on a buffer gets space to grow in place: only its filled part takes memory, and
/// the allocator keeps none of it.
const IN_PLACE_BYTES_MIN: usize = 1024 * 1024;

/// The step of growth in place. It may be small, because nothing is moved.
const IN_PLACE_STEP_BYTES: usize = 64 * 1024;

/// The least space for a read after a release: a bookmark fits. glibc keeps freed blocks of up to
/// 1,032 bytes for each thread.
const READ_BYTES_LEAST: usize = 1100;

/// A request for a larger buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// The current size.
    pub(crate) held: usize,
    /// Whether the old buffer is held along with the new one while bytes are moved.
    pub(crate) moves: bool,
    /// The minimum of the new size.
    pub(crate) least: usize,
    /// The preferred new size, which makes further growth rare.
    pub(crate) most: usize,
}

/// Decides how large the new buffer may be, or refuses it.
pub(crate) type Grant<'a> = &'a mut dyn FnMut(Growth) -> Result<usize, Error>;

/// Bytes that were read and not yet consumed. It holds no memory while it is empty and released.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Wiped,
    start: usize,
    end: usize,
    /// The largest `end` since the last release.
    peak: usize,
    /// The space for the next read. A read that fills it doubles it, up to `read_max`.
    read: usize,
    read_min: usize,
    read_max: usize,
}

impl Buffer {
    /// Creates a buffer that offers between `read_min` and `read_max` bytes to a read; after a
    /// [release](Self::release) it may begin with less.
    pub(crate) fn new(read_min: usize, read_max: usize) -> Self {
        Self {
            read: read_min,
            read_min,
            read_max,
            ..Self::default()
        }
    }

    /// The space for the next read, behind the pending bytes; never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        // A grant that never refuses cannot fail.
        let _granted = self.reserve(&mut |growth| Ok(growth.most));
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Makes room for the next call of [`space`](Self::space), within the memory that `grant`
    /// allows.
    ///
    /// # Errors
    ///
    /// The error of `grant`. The buffer is then unchanged.
    pub(crate) fn reserve(&mut self, grant: Grant<'_>) -> Result<(), Error> {
        self.make_room(self.read, grant)
    }

    fn make_room(&mut self, least: usize, grant: Grant<'_>) -> Result<(), Error> {
        let pending = self.pending().len();
        let needed = pending.saturating_add(least);
        let length = self.bytes.len();
        let oversized = length > needed.saturating_mul(4);
        if length.saturating_sub(self.end) >= least && !oversized {
            return Ok(());
        }
        let extended = self.end.saturating_add(least);
        let space = self.bytes.space();
        if space > length && space >= extended && !oversized {
            let size = grant(Growth {
                held: length,
                moves: false,
                least: extended,
                most: extended.saturating_add(IN_PLACE_STEP_BYTES).min(space),
            })?;
            self.bytes.grow(size);
            return Ok(());
        }
        // Moving the pending bytes pays off if there are none, or half of the buffer was consumed.
        let roomy = length >= needed && (pending == 0 || self.start >= length / 2);
        if roomy && !oversized {
            self.bytes.copy_within(self.start..self.end, 0);
        } else {
            let size = grant(Growth {
                held: length,
                moves: true,
                least: needed,
                most: grown(pending, needed),
            })?;
            self.bytes = if size < IN_PLACE_BYTES_MIN {
                Wiped::beginning_with(self.pending(), size)
            } else {
                Wiped::growing(self.pending(), size)
            };
        }
        self.start = 0;
        self.end = pending;
        Ok(())
    }

    /// Notes that `count` bytes of the space were filled.
    pub(crate) fn filled(&mut self, count: usize) {
        if count >= self.read {
            self.read = self.read.saturating_mul(2).min(self.read_max);
        }
        self.end = self.end.saturating_add(count).min(self.bytes.len());
        self.peak = self.peak.max(self.end);
    }

    pub(crate) fn pending(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Consumes `count` bytes and returns them. They stay in place until the next call of `space`.
    pub(crate) fn take(&mut self, count: usize) -> &[u8] {
        let from = self.start;
        self.start = from.saturating_add(count).min(self.end);
        self.bytes.get(from..self.start).unwrap_or_default()
    }

    /// Frees the memory when no byte is pending. The next read gets space for as much as came since
    /// the last release, and at most `read_min`. Space costs time: zeros are written to it when it
    /// is made, and before it is freed.
    pub(crate) fn release(&mut self) {
        if self.start == self.end && self.held() > 0 {
            let came = self.peak.saturating_add(self.peak / 4);
            *self = Self {
                read: came.max(READ_BYTES_LEAST).min(self.read_min),
                ..Self::new(self.read_min, self.read_max)
            };
        }
    }

    /// The memory held, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.bytes.held()
    }
}

/// The size of a new buffer that rarely has to grow.
fn grown(pending: usize, needed: usize) -> usize {
    match pending {
        0 => needed,
        _ if needed <= DOUBLED_BYTES_MAX => needed.saturating_mul(2),
        _ => needed.saturating_add(needed / 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(buffer: &mut Buffer, bytes: &[u8]) {
        buffer
            .make_room(bytes.len(), &mut |growth| Ok(growth.most))
            .unwrap();
        let space = &mut buffer.bytes[buffer.end..];
        space[..bytes.len()].copy_from_slice(bytes);
        buffer.filled(bytes.len());
    }

    #[test]
    fn what_is_pending_survives_every_move() {
        let mut buffer = Buffer::new(512, 16 * 1024);
        let mut expected = Vec::new();
        for round in 0..300_usize {
            let chunk: Vec<u8> = (0..round % 37).map(|n| u8::try_from(n).unwrap()).collect();
            put(&mut buffer, &chunk);
            expected.extend_from_slice(&chunk);
            let used = expected.len().min(round % 23);
            assert_eq!(buffer.take(used), &expected[..used]);
            expected.drain(..used);
            assert_eq!(buffer.pending(), expected);
        }
    }

    #[test]
    fn a_buffer_grows_to_what_is_granted_and_is_untouched_by_a_refusal() {
        let mut buffer = Buffer::new(512, 16 * 1024);
        put(&mut buffer, &vec![7; 100_000]);
        let held = buffer.held();
        let refuse = &mut |_| Err(Error::new(crate::error::ErrorKind::TooLarge, "full"));
        assert!(buffer.make_room(1000, refuse).is_err());
        assert_eq!((buffer.pending().len(), buffer.held()), (100_000, held));
        let mut asked = None;
        let grant = &mut |growth: Growth| {
            asked = Some(growth);
            Ok(growth.least)
        };
        buffer.make_room(1000, grant).unwrap();
        let growth = Growth {
            held,
            moves: true,
            least: 101_000,
            most: 126_250,
        };
        assert_eq!((asked, buffer.held()), (Some(growth), 101_000));
        buffer
            .make_room(1000, &mut |_| panic!("there is room"))
            .unwrap();
        assert_eq!(buffer.held() - buffer.end, 1000);
        assert!(buffer.pending().iter().all(|byte| *byte == 7));
    }

    /// A large buffer that keeps growing is not moved, and takes memory only for bytes that have
    /// come.
    #[test]
    fn a_large_buffer_grows_in_place() {
        let mut buffer = Buffer::new(512, 16 * 1024);
        let chunk = vec![7; 16 * 1024];
        let mut moves = 0;
        for _ in 0..1000 {
            buffer
                .make_room(chunk.len(), &mut |growth| {
                    moves += usize::from(growth.moves && growth.held >= IN_PLACE_BYTES_MIN);
                    Ok(growth.most)
                })
                .unwrap();
            put(&mut buffer, &chunk);
            let spare = buffer.held() - buffer.pending().len();
            assert!(
                buffer.pending().len() < 2 * IN_PLACE_BYTES_MIN || spare <= 2 * IN_PLACE_STEP_BYTES
            );
        }
        assert_eq!((moves, buffer.pending().len()), (0, 16_384_000));
        assert!(buffer.pending().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_large_piece_leaves_no_large_memory_behind() {
        let mut buffer = Buffer::new(512, 16 * 1024);
        put(&mut buffer, &vec![7; 1 << 20]);
        buffer.take((1 << 20) - 10);
        assert!(!buffer.space().is_empty());
        assert!(buffer.held() <= 4096, "{}", buffer.held());
        assert_eq!(buffer.pending(), [7; 10]);
        buffer.take(10);
        buffer.release();
        assert_eq!(buffer.held(), 0);
    }

    #[test]
    fn after_a_release_a_read_gets_space_for_as_much_as_came_before() {
        let mut buffer = Buffer::new(4096, 16 * 1024);
        for (came, space) in [(300, 1100), (2000, 2500), (9000, 4096)] {
            put(&mut buffer, &vec![7; came]);
            buffer.release();
            assert_eq!(buffer.take(came).len(), came, "pending bytes stay");
            buffer.release();
            buffer.release();
            assert_eq!((buffer.held(), buffer.space().len()), (0, space));
        }
    }
}
