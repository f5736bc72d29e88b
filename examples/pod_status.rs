//! Pods of child processes: a relist loop keeps the pod-status cache, and a worker per pod waits on
//! it, as in the kubelet.
//!
//! `cargo run --example pod_status` plays a short story and ends by itself. It needs no cluster and
//! no container runtime: the containers are processes of this very program, which it starts and
//! ends.

#[path = "pod_status/args.rs"]
mod args;
#[path = "pod_status/container.rs"]
mod container;
#[path = "pod_status/pod_worker.rs"]
mod pod_worker;
#[path = "pod_status/processes.rs"]
mod processes;
#[path = "node_agent/signals.rs"]
mod signals;
#[path = "pod_status/story.rs"]
mod story;

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use args::Command;

const USAGE: u8 = 2;

fn main() -> ExitCode {
    let options = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Container(run)) => return container::live(run),
        Ok(Command::Help) => {
            // Where stdout is gone there is nobody to help.
            drop(io::stdout().write_all(args::HELP.as_bytes()));
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            tell(&format!(
                "error: {wrong}\nSee 'pod_status --help' for usage."
            ));
            return ExitCode::from(USAGE);
        }
    };
    match story::play(&options) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough (`| head`) is no failure worth a message.
        Err(error) if is_broken_pipe(&*error) => ExitCode::FAILURE,
        Err(error) => {
            let mut text = format!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                text.push_str(": ");
                text.push_str(&cause.to_string());
                source = cause.source();
            }
            tell(&text);
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn tell(text: &str) {
    // Where stderr is gone there is nobody to tell.
    drop(writeln!(io::stderr(), "{text}"));
}

/// What ends the program before its end: the library's errors, and those of the system.
type Failure = Box<dyn Error + Send + Sync>;
