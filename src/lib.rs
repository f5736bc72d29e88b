//! The kubelet's object caches as a synchronous, thread-based library. No async runtime, no unsafe code.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(windows)]
compile_error!(
    "kubecache runs on Linux (tested) and other Unix systems (untested), not on Windows"
);

mod sync;

pub mod clock;
pub mod worker;

mod error;
pub mod object;

pub mod wire;

pub mod list_watch;

pub mod http;

pub mod reflector;

pub mod store;

pub mod manager;

pub mod manual;

#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;

pub use error::{Error, ErrorKind, FailedSync};
