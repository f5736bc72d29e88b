//! From a request to the bytes of its response: names, sockets, TLS, HTTP, and the threads, waits
//! and buffers of all requests of a client.

pub(super) mod agent;
pub(super) mod body;
pub(super) mod buffers;
pub(super) mod byte_stream;
pub(super) mod connection;
pub(super) mod connector;
mod dial_pace;
pub(super) mod dns;
#[cfg(feature = "gzip")]
pub(super) mod gunzip;
pub(super) mod proxy;
pub(super) mod tcp_connect;
