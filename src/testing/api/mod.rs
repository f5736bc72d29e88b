//! An API server in memory for any client. Its state, history and watches are real, not recorded.

mod access;
mod backend;
mod builder;
mod defaults;
mod definitions;
mod discovery;
mod garbage;
mod impersonation;
mod kubeconfig;
mod list_options;
mod load;
mod openapi;
mod patches;
mod reads;
mod refusal;
mod representation;
mod resources;
mod routes;
mod selectors;
mod server;
mod storage;
mod tables;
mod validation;
mod watches;
mod write_options;
mod writes;

pub use self::access::AccessRule;
pub use self::builder::ApiServerBuilder;
pub use self::representation::DropParameter;
pub use self::resources::ApiResource;
pub use self::server::ApiServer;

#[cfg(test)]
mod tests;
