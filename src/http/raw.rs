//! Answers as they come, undecoded: for the recorder, which passes on and keeps what the server says.

use std::io::Read as _;

use super::agent::Ask;
use super::blocking::{Blocking, Until};
use super::client::{Client, no_descriptor};
use super::failure::{self, Phase};
use super::halt::{Halt, Outcome};
use super::wakeup::{WakeUp, Wakeable};
use crate::error::Error;
use crate::worker::StopToken;

