//! Shared informers: what follows the reflector on its way to handlers. One queue, any number of handlers.

mod deleted;

pub use deleted::Deleted;
