//! A shared informer at work: the pods of a namespace, indexed by node and by a label, and what its
//! handlers are told.
//!
//! `cargo run --features testing --example informer` runs it on recordings of a real
//! kube-apiserver.

#[path = "informer/args.rs"]
mod args;
#[path = "informer/demo.rs"]
mod demo;
#[path = "node_agent/duration.rs"]
mod duration;
#[path = "informer/ending.rs"]
mod ending;
#[path = "node_agent/flags.rs"]
mod flags;
#[expect(dead_code, reason = "the node agent passes on what programs write")]
#[path = "node_agent/log_format.rs"]
mod log_format;
#[path = "node_agent/logger.rs"]
mod logger;
#[expect(dead_code, reason = "the node agent writes its rows so too")]
#[path = "node_agent/outflow.rs"]
mod outflow;
#[path = "informer/pods.rs"]
mod pods;
#[path = "informer/print.rs"]
mod print;
#[path = "node_agent/replay.rs"]
mod replay;
#[path = "node_agent/signals.rs"]
mod signals;
#[path = "informer/story.rs"]
mod story;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the node agent has more flags for a table")
)]
#[path = "node_agent/table.rs"]
mod table;
#[path = "node_agent/tell.rs"]
mod tell;
#[path = "node_agent/usage.rs"]
mod usage;

use std::io;
use std::process::{ExitCode, exit};

use kubecache::http::{Client, Config};
use kubecache::{Error, ErrorKind};

use args::{Command, Options};
use demo::Demo;
use signals::Stop;
use story::Ended;
use tell::tell;

/// What the server of the demonstration has to say is for its tests.
const TOLD_OTHERWISE: [&str; 1] = ["kubecache::testing"];

const USER_AGENT: &str = concat!("informer/", env!("CARGO_PKG_VERSION"));

fn main() -> ExitCode {
    let code = start();
    outflow::STDERR.end();
    code
}

fn start() -> ExitCode {
    let options = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Print(text)) => return tell::print(&text),
        Err(wrong) => return tell::usage("informer", &wrong),
    };
    logger::install(options.verbosity, options.log_format, &TOLD_OTHERWISE);
    match run(&options) {
        Ok(Ended::Complete) => return ExitCode::SUCCESS,
        Ok(Ended::Interrupted) => tell("error: interrupted before the pods were known"),
        // A reader that has seen enough (`| head`) is no failure worth a message.
        Ok(Ended::OutputClosed(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Ok(Ended::OutputClosed(error)) => tell(&format!("error: writing the output: {error}")),
        Err(error) => fail(&error),
    }
    ExitCode::FAILURE
}

fn fail(error: &Error) {
    tell::error(error);
    if error.kind() == ErrorKind::NotConfigured {
        tell("To see the informer at work without a cluster, run it with --demo.");
    }
}

fn run(options: &Options) -> Result<Ended, Error> {
    let demo = if options.demo {
        let server = Demo::serve(options.demo_speed)?;
        tell(&format!(
            "Demo: no cluster is asked; recordings of one are at {}",
            server.url()
        ));
        Some(server)
    } else {
        None
    };
    let config = match &demo {
        Some(server) => server.config()?,
        None => Config::from_kubeconfig(&options.connection)?,
    };
    let signals = Stop::listen(None, |code| exit(code)).map_err(|error| {
        Error::new(ErrorKind::Resources, "listening for signals").with_source(error)
    })?;
    let client = flags::client_options(USER_AGENT, options.request_timeout);
    let client = Client::new(&config, client)?;
    signals.is_listened_to();
    story::play(options, &client, config.namespace(), &signals.came)
}
