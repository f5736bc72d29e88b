//! The manual: pages for readers, compiled with the crate so that their links are checked. No code.

#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("behaviours.md")]
pub mod behaviours {}

#[doc = include_str!("contributing.md")]
pub mod contributing {}

// Its program needs kube-rs: the crate in `tests/derived` compiles and runs it.
#[cfg_attr(not(doctest), doc = include_str!("derived_types.md"))]
pub mod derived_types {}

#[doc = include_str!("differences.md")]
pub mod differences {}

#[doc = include_str!("excluded.md")]
pub mod excluded {}

#[doc = include_str!("failures.md")]
pub mod failures {}

#[doc = include_str!("first_tasks.md")]
pub mod first_tasks {}

#[doc = include_str!("from_client_go.md")]
pub mod from_client_go {}

#[doc = include_str!("from_kube_rs.md")]
pub mod from_kube_rs {}

#[doc = include_str!("glossary.md")]
pub mod glossary {}

#[doc = include_str!("kubelet_pods.md")]
pub mod kubelet_pods {}

#[doc = include_str!("other_languages.md")]
pub mod other_languages {}

#[doc = include_str!("owners.md")]
pub mod owners {}

#[doc = include_str!("policy.md")]
pub mod policy {}

#[doc = include_str!("programs.md")]
pub mod programs {}

#[doc = include_str!("security.md")]
pub mod security {}

#[doc = include_str!("test_servers.md")]
pub mod test_servers {}

#[doc = include_str!("threads_and_locks.md")]
pub mod threads_and_locks {}

#[doc = include_str!("tls.md")]
pub mod tls {}
