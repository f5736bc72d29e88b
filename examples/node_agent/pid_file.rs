//! `--signal-on-change`: the process whose number a file holds.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Sends SIGHUP to the process whose number the file holds.
pub(crate) fn signal(file: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let pid = process(text.trim())?;
    let number = pid.as_raw_nonzero();
    kill_process(pid, Signal::HUP).map_err(|error| format!("process {number}: {error}"))
}

/// To the system, 0 and negative numbers are groups of processes or all of them, and 1 is the
/// process that starts the others.
fn process(text: &str) -> Result<Pid, String> {
    let number = text.parse().ok().filter(|number: &i32| *number > 1);
    number.and_then(Pid::from_raw).ok_or_else(|| {
        let start: String = text.chars().take(20).collect();
        format!("it holds {start:?}, and no number of a process: write one from 2 on")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_number_from_2_on() {
        assert_eq!(process("1234").unwrap().as_raw_nonzero().get(), 1234);
        for wrong in ["", "0", "1", "-1", "-1234", "2147483648", "12 13", "sshd"] {
            let error = process(wrong).unwrap_err();
            assert!(
                error.starts_with(&format!("it holds {wrong:?}, ")),
                "{error}"
            );
        }
    }
}
