//! Where the endpoints listen: addresses as controller-runtime's flags have them, bound before
//! anything else happens.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};

use kubecache::{Error, ErrorKind};

/// An address to listen at: `HOST:PORT`, or `:PORT` for all interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindAddress {
    /// The flag that says so, for messages.
    pub(crate) flag: &'static str,
    host: String,
    port: u16,
}

impl BindAddress {
    /// Reads the value of a flag; `0` and an empty one switch the endpoint off.
    pub(crate) fn parse(flag: &'static str, value: &str) -> Result<Option<Self>, String> {
        if matches!(value, "" | "0") {
            return Ok(None);
        }
        let wrong = || format!("--{flag} {value:?}: write HOST:PORT, :PORT, or 0 for none");
        let (host, port) = value.rsplit_once(':').ok_or_else(wrong)?;
        let bracketed = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        // An IPv6 address without brackets would lose its last group to the port.
        let host = match bracketed {
            Some(inside) => inside,
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        Ok(Some(Self {
            flag,
            host: host.to_owned(),
            port: port.parse().map_err(|_no_port| wrong())?,
        }))
    }

    /// Whether both are one place to listen at; ports of the system's choice are not.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        self.port != 0 && (&self.host, self.port) == (&other.host, other.port)
    }

    /// Listens there; who connects from now on waits to be served.
    pub(crate) fn bind(&self) -> Result<TcpListener, Error> {
        let listener = self.listen().and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        let (address, listener) = listener.map_err(|error| {
            let text = format!("--{}: listening at {self}", self.flag);
            Error::new(ErrorKind::Resources, text).with_source(error)
        })?;
        if self.port == 0 {
            // Nobody could find it otherwise.
            crate::tell(&format!("--{}: listening at {address}", self.flag));
        } else {
            log::info!("--{}: listening at {address}", self.flag);
        }
        Ok(listener)
    }

    fn listen(&self) -> io::Result<TcpListener> {
        if !self.host.is_empty() {
            let addresses: Vec<SocketAddr> =
                (self.host.as_str(), self.port).to_socket_addrs()?.collect();
            return TcpListener::bind(&addresses[..]);
        }
        // A socket of all IPv6 addresses takes IPv4 as well, where there is IPv6 at all.
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, self.port)).or_else(|error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                return Err(error);
            }
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, self.port))
        })
    }
}

impl std::fmt::Display for BindAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn parse(value: &str) -> Result<Option<BindAddress>, String> {
        BindAddress::parse("metrics-bind-address", value)
    }

    #[test]
    fn addresses_are_written_as_controller_runtime_reads_them() {
        for off in ["0", ""] {
            assert_eq!(parse(off), Ok(None));
        }
        for (value, host, port) in [
            (":8080", "", 8080),
            ("127.0.0.1:0", "127.0.0.1", 0),
            ("localhost:9", "localhost", 9),
            ("[::1]:8081", "::1", 8081),
        ] {
            let address = parse(value).unwrap().unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port));
            assert_eq!(address.to_string(), value);
        }
        for wrong in ["8080", "localhost", "::1:80", ":http", ":65536", ":-1"] {
            let expected =
                format!("--metrics-bind-address {wrong:?}: write HOST:PORT, :PORT, or 0 for none");
            assert_eq!(parse(wrong), Err(expected));
        }
    }

    #[test]
    fn no_host_is_every_interface() {
        let listener = parse(":0").unwrap().unwrap().bind().unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn an_address_that_is_taken_is_told_with_its_flag() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let value = taken.local_addr().unwrap().to_string();
        let error = parse(&value).unwrap().unwrap().bind().unwrap_err();
        let expected = format!("--metrics-bind-address: listening at {value}");
        assert_eq!(error.to_string(), expected);
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("in use"), "{why}");
    }

    #[test]
    fn one_port_for_both_is_one_place_unless_the_system_chooses_it() {
        let at = |value| parse(value).unwrap().unwrap();
        assert!(at(":80").is_same_place(&at(":80")));
        assert!(!at(":80").is_same_place(&at("localhost:80")));
        assert!(!at("127.0.0.1:0").is_same_place(&at("127.0.0.1:0")));
    }
}
