//! Bytes that may be secret. They are overwritten before their memory is freed.

use std::ops::{Deref, DerefMut};

/// The address space of a buffer that grows in place. When a program frees a block of up to 32 MiB,
/// glibc keeps later blocks of that size for the process. It returns larger blocks at once.
const GROWING_BYTES: usize = 33 * 1024 * 1024;

/// Bytes that were read or are to be sent. No copy of them is left in freed memory.
///
/// It does not grow in place: a vector that grows leaves a copy behind.
#[derive(Clone, Default)]
pub(crate) struct Wiped(Vec<u8>);

impl Wiped {
    /// `size` bytes: as much of `kept` as fits, then zeros.
    pub(crate) fn beginning_with(kept: &[u8], size: usize) -> Self {
        let mut bytes = vec![0; size];
        let kept = kept.get(..size).unwrap_or(kept);
        if let Some(beginning) = bytes.get_mut(..kept.len()) {
            beginning.copy_from_slice(kept);
        }
        Self(bytes)
    }

    /// The same, with address space to grow in place if the system has it. Only the size takes
    /// memory.
    pub(crate) fn growing(kept: &[u8], size: usize) -> Self {
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(GROWING_BYTES.max(size)).is_err() {
            return Self::beginning_with(kept, size);
        }
        bytes.extend_from_slice(kept.get(..size).unwrap_or(kept));
        bytes.resize(size, 0);
        Self(bytes)
    }

    /// The size up to which it can grow in place.
    pub(crate) fn space(&self) -> usize {
        self.0.capacity()
    }

    /// Grows to `size` in place, or to the space if that is less. Never shrinks.
    pub(crate) fn grow(&mut self, size: usize) {
        let size = size.min(self.0.capacity());
        if size > self.0.len() {
            self.0.resize(size, 0);
        }
    }

    /// The memory held, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.0.len()
    }
}

impl From<Vec<u8>> for Wiped {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Deref for Wiped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Wiped {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        // In one piece: a connection frees its buffer each time it falls quiet, and byte by byte a
        // large one costs tens of microseconds. The barrier keeps the compiler from removing the
        // write.
        self.0.fill(0);
        zeroize::optimization_barrier(self.0.as_slice());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stands_first() {
        assert_eq!(*Wiped::beginning_with(b"ab", 4), *b"ab\0\0");
        assert_eq!(*Wiped::beginning_with(b"abc", 2), *b"ab");
        assert_eq!(Wiped::default().held(), 0);
    }

    /// Memory that grows in place never moves, so it leaves no copy behind.
    #[test]
    fn what_grows_in_place_stays_where_it_is() {
        let mut bytes = Wiped::growing(b"ab", 1000);
        let place = bytes.as_ptr();
        assert_eq!((bytes.held(), bytes.get(..3)), (1000, Some(&b"ab\0"[..])));
        bytes.grow(1 << 20);
        assert_eq!((bytes.held(), bytes.as_ptr()), (1 << 20, place));
        bytes.grow(10);
        assert_eq!(bytes.held(), 1 << 20, "it does not shrink");
        bytes.grow(usize::MAX);
        assert_eq!((bytes.held(), bytes.as_ptr()), (bytes.space(), place));
    }
}
