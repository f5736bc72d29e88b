//! The descriptor that a stop makes readable, to wake a thread in poll(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sync::{Arc, Wake};

/// A wake-up descriptor: an eventfd on Linux, a socket pair elsewhere. It stays readable until it
/// is cleared, so that each thread that polls it sees it.
#[derive(Debug)]
pub(crate) struct WakeUp {
    readable: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    writable: OwnedFd,
}

impl WakeUp {
    /// # Errors
    ///
    /// The system's error when it has no free descriptor.
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        use rustix::event::{EventfdFlags, eventfd};
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { readable }))
    }

    /// # Errors
    ///
    /// The system's error when it has no free descriptor.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        use std::os::unix::net::UnixStream;
        let (readable, writable) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        writable.set_nonblocking(true)?;
        Ok(Arc::new(Self {
            readable: readable.into(),
            writable: writable.into(),
        }))
    }

    /// Makes it unreadable until the next wake-up.
    #[cfg(feature = "endpoints")]
    pub(crate) fn clear(&self) {
        // An eventfd is empty after the first read.
        while matches!(rustix::io::read(&self.readable, &mut [0; 64]), Ok(count) if count > 0) {}
    }

    #[cfg(target_os = "linux")]
    fn writable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    #[cfg(not(target_os = "linux"))]
    fn writable(&self) -> BorrowedFd<'_> {
        self.writable.as_fd()
    }
}

/// The descriptor to poll beside the socket.
impl AsFd for WakeUp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

impl Wake for WakeUp {
    fn wake(&self) {
        // A write fails only when the descriptor is full of wake-ups, and so readable.
        let _written = rustix::io::write(self.writable(), &1_u64.to_ne_bytes());
    }
}
