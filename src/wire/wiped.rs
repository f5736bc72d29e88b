//! Bytes that may be a secret: overwritten before their memory is given back.

use std::ops::{Deref, DerefMut};

/// Bytes that were read or are to be sent. What they held does not outlive them in freed memory.
///
/// It does not grow in place: a vector that grows leaves a copy behind.
#[derive(Default)]
pub(crate) struct Wiped(Vec<u8>);

impl Wiped {
    /// `size` bytes: `kept`, as far as it fits in, and zeros.
    pub(crate) fn beginning_with(kept: &[u8], size: usize) -> Self {
        let mut bytes = vec![0; size];
        let kept = kept.get(..size).unwrap_or(kept);
        if let Some(beginning) = bytes.get_mut(..kept.len()) {
            beginning.copy_from_slice(kept);
        }
        Self(bytes)
    }

    /// The memory held, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.0.capacity()
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
        // In one piece: a buffer is given back each time a connection falls quiet, and byte by byte costs tens of
        // microseconds for a large one. The barrier keeps the compiler from leaving it out.
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
}
