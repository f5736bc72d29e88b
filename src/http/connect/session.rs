//! A TLS session with the server, or with the proxy on the way to it. No method blocks.

use std::io::{self, Read, Write};

use rustls::{ClientConfig, ClientConnection};

use super::super::calls::call_context;
use super::super::calls::interrupt::{Interrupt, attempt};
use super::super::tls::Tls;
use crate::sync::Arc;

/// A TLS session. The stream below it belongs to the session's owner.
pub(crate) struct Session {
    pub(crate) connection: Box<ClientConnection>,
    /// Explains failures, and tells whether `config` is still current.
    tls: Arc<Tls>,
    config: Arc<ClientConfig>,
}

impl Session {
    /// A session before its handshake.
    ///
    /// # Errors
    ///
    /// The failure of TLS, explained.
    pub(crate) fn new(tls: &Arc<Tls>) -> Result<Self, Interrupt> {
        let config = tls.current();
        let connection = ClientConnection::new(Arc::clone(&config), tls.server_name.clone());
        let connection = connection.map_err(|error| tls.explain(error));
        let mut connection = connection.map_err(Interrupt::Failed)?;
        // A request is small, apart from its bearer token, and is written whole.
        connection.set_buffer_limit(None);
        Ok(Self {
            connection: Box::new(connection),
            tls: Arc::clone(tls),
            config,
        })
    }

    /// Whether new sessions get the same configuration.
    pub(crate) fn is_current(&self) -> bool {
        Arc::ptr_eq(&self.config, &self.tls.current())
    }

    /// Reads the available bytes. `WouldBlock` if there are none; 0 is the end.
    pub(crate) fn read(
        &mut self,
        stream: &mut (impl Read + Write),
        into: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            // A reply of TLS itself may wait. Its loss shows when data is sent.
            drop(self.flush(stream));
            // Trying before polling also makes rustls free the memory that a large record needed.
            self.connection.read_tls(stream)?;
            self.process()?;
            // Records without data can go on without end.
            call_context::current(|call| call.check())??;
        }
    }

    /// Sends pending records. `WouldBlock` if some are left.
    pub(crate) fn flush(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(stream)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Processes the records that were read.
    ///
    /// # Errors
    ///
    /// The failure of TLS, explained.
    pub(crate) fn process(&mut self) -> Result<(), Interrupt> {
        let processed = self.connection.process_new_packets();
        let processed = processed.map_err(|error| self.tls.explain(error));
        processed.map(drop).map_err(Interrupt::Failed)
    }

    /// Reads the peer's last bytes on a connection that can no longer be written to: often the
    /// alert that says why.
    pub(crate) fn last_words(&mut self, stream: &mut impl Read) -> Option<Interrupt> {
        while let Ok(Some(1..)) = attempt(|| self.connection.read_tls(stream)) {
            if let Err(alert) = self.process() {
                return Some(alert);
            }
        }
        None
    }
}
