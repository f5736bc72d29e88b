//! A call and its limits: what ends its waits, which request comes next, how much its answer may
//! hold, which threads work for it, and the words of its errors.

pub(super) mod admission;
pub(super) mod byte_budget;
pub(super) mod call_context;
pub(super) mod channel;
pub(super) mod errors;
pub(super) mod helper_threads;
pub(super) mod interrupt;
pub(super) mod limiter;
pub(super) mod request_threads;
pub(super) mod slots;
mod wakeup;
