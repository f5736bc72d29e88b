//! TLS with a server or a proxy: the configuration, which is made again as its files and the
//! client's certificate change, and the explanation of a failure.

mod current;
mod doctor;
mod errors;
mod file_stamps;
mod verifier;

pub(super) use self::current::Tls;
pub(super) use self::doctor::speaks_tls;
