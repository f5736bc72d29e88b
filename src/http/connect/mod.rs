//! A connection to the server, on which ureq speaks HTTP: the lookup of its name, the dial, the
//! proxy on the way, the buffers, and the body of the response.

pub(super) mod body;
pub(super) mod buffers;
mod byte_stream;
mod connection;
pub(super) mod connector;
mod dial_pace;
pub(super) mod dns;
#[cfg(feature = "gzip")]
mod gunzip;
pub(super) mod proxy;
mod session;
mod tcp_connect;
