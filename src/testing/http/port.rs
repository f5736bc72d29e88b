//! A loopback port that a server keeps while it does not listen.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

/// While this lives, the system gives the port neither to a program that asks for any port, nor to
/// an outgoing connection. Only on Linux: elsewhere a crashed server may find its port taken
/// (untested).
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    #[cfg(target_os = "linux")]
    _bound: OwnedFd,
}

impl Port {
    /// Reserves that port, or a free one for 0.
    #[cfg(target_os = "linux")]
    pub(super) fn keep(number: u16) -> io::Result<Self> {
        use rustix::net;
        use std::net::{Ipv4Addr, SocketAddr};

        let flags = net::SocketFlags::CLOEXEC;
        let (family, kind) = (net::AddressFamily::INET, net::SocketType::STREAM);
        let bound = net::socket_with(family, kind, flags, None)?;
        // A socket that does not listen shares its port with one that does, if both agree.
        net::sockopt::set_socket_reuseaddr(&bound, true)?;
        net::bind(&bound, &SocketAddr::from((Ipv4Addr::LOCALHOST, number)))?;
        let address = SocketAddr::try_from(net::getsockname(&bound)?)?;
        Ok(Self {
            number: address.port(),
            _bound: bound,
        })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn keep(number: u16) -> io::Result<Self> {
        Ok(Self { number })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }
}
