//! A call and its limits: its stop and deadlines, the order of requests, the memory of its answer,
//! the threads that work for it, and the texts of its errors.

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
