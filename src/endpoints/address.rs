//! An address to listen at, as controller-runtime's flags write it.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

use crate::error::{Error, ErrorKind};

/// How many clients may wait to be accepted, as with the standard library.
const CLIENTS_WAITING_MAX: i32 = 128;

/// An address to listen at: `HOST:PORT`, or `:PORT` for all interfaces.
///
/// The host is a name, an IPv4 address, or an IPv6 address in brackets. Port 0 is a free port,
/// which [`Endpoints::address`](super::Endpoints::address) tells.
///
/// # Examples
///
/// ```
/// use kubecache::endpoints::BindAddress;
///
/// let address: BindAddress = "[::1]:8081".parse()?;
/// assert_eq!((address.port(), &*address.to_string()), (8081, "[::1]:8081"));
///
/// let error = "8081".parse::<BindAddress>().unwrap_err();
/// let told = "address \"8081\": write HOST:PORT, or :PORT for all interfaces";
/// assert_eq!(error.to_string(), told);
/// # Ok::<(), kubecache::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindAddress {
    text: String,
    port: u16,
}

impl BindAddress {
    /// Returns the port; 0 lets the system choose one.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Listens there, without blocking accepts. Clients that connect wait until they are served.
    pub(super) fn listen(&self) -> Result<(SocketAddr, TcpListener), Error> {
        let opened = self.open().and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        opened.map_err(|error| {
            Error::new(ErrorKind::Resources, format!("listening at {self}")).with_source(error)
        })
    }

    fn open(&self) -> io::Result<TcpListener> {
        if !self.text.starts_with(':') {
            return TcpListener::bind(&self.text);
        }
        // A socket of all IPv6 addresses takes IPv4 as well, where there is IPv6 at all.
        self.open_to_all().or_else(|error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                return Err(error);
            }
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, self.port))
        })
    }

    /// As the standard library's bind, but for IPv4, too, whatever the system's default is.
    fn open_to_all(&self) -> io::Result<TcpListener> {
        let listener = socket(AddressFamily::INET6, SocketType::STREAM, None)?;
        fcntl_setfd(&listener, FdFlags::CLOEXEC)?;
        sockopt::set_ipv6_v6only(&listener, false)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.port));
        bind(&listener, &all)?;
        listen(&listener, CLIENTS_WAITING_MAX)?;
        Ok(listener.into())
    }
}

impl FromStr for BindAddress {
    type Err = Error;

    /// # Errors
    ///
    /// `Config` for a text without a port, or an IPv6 address without brackets.
    fn from_str(text: &str) -> Result<Self, Error> {
        let port = text.rsplit_once(':').and_then(|(host, port)| {
            // An IPv6 address without brackets would lose its last group to the port.
            let is_whole = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
            port.parse().ok().filter(|_port| is_whole)
        });
        let port = port.ok_or_else(|| {
            let hint = "write HOST:PORT, or :PORT for all interfaces";
            Error::config(format!("address {text:?}: {hint}"))
        })?;
        let text = text.to_owned();
        Ok(Self { text, port })
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::net::TcpStream;

    use super::*;

    fn parse(text: &str) -> Result<BindAddress, String> {
        text.parse().map_err(|error: Error| error.to_string())
    }

    #[test]
    fn addresses_are_written_as_controller_runtime_reads_them() {
        for (text, port) in [
            (":8080", 8080),
            ("127.0.0.1:0", 0),
            ("localhost:9", 9),
            ("[::1]:8081", 8081),
        ] {
            let address = parse(text).unwrap();
            assert_eq!((address.to_string().as_str(), address.port()), (text, port));
        }
        for wrong in [
            "",
            "0",
            "8080",
            "localhost",
            "::1:80",
            "[::1:80",
            ":http",
            ":65536",
            ":-1",
        ] {
            let hint = "write HOST:PORT, or :PORT for all interfaces";
            assert_eq!(parse(wrong), Err(format!("address {wrong:?}: {hint}")));
        }
    }

    #[test]
    fn no_host_is_every_interface() {
        let (address, listener) = parse(":0").unwrap().listen().unwrap();
        TcpStream::connect(("127.0.0.1", address.port())).unwrap();
        // Not every machine has IPv6.
        if address.is_ipv6() {
            assert!(!sockopt::ipv6_v6only(&listener).unwrap());
        }
    }

    #[test]
    fn an_address_that_is_taken_is_named_with_the_reason() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = parse(&address).unwrap().listen().unwrap_err();
        assert_eq!(error.to_string(), format!("listening at {address}"));
        let why = error.source().unwrap().to_string();
        assert!(why.contains("in use"), "{why}");
    }
}
