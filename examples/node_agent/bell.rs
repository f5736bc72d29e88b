//! A bell that wakes a thread out of poll(2).

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use kubecache::worker::Wake;

/// Wakes a thread out of its poll.
pub(crate) struct Bell(UnixStream);

impl Bell {
    /// The bell, and what its ring makes readable.
    pub(crate) fn pair() -> io::Result<(Arc<Self>, UnixStream)> {
        let (ring, heard) = UnixStream::pair()?;
        ring.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok((Arc::new(Self(ring)), heard))
    }
}

impl Wake for Bell {
    fn wake(&self) {
        // A full pipe has woken it already.
        let _rung = (&self.0).write(&[1]);
    }
}
