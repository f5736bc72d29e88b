//! Faults on purpose, instead of or on top of the backend's answers.

mod act;
mod answers;
mod board;
mod content;
mod fault;
mod json;
mod objects;
mod table;
mod wire;

pub use self::act::{Act, CertificateFlaw, Part, Unfinished};
pub(super) use self::answers::instead;
pub(super) use self::board::{FaultBoard, Met};
pub(super) use self::content::changed;
pub use self::fault::{Fault, FaultId};
pub use self::table::{FAULTS, FaultDescription, SERVER_FAULTS};
pub(super) use self::wire::{Flow, Sent, WireFault};

#[cfg(test)]
mod tests;
