//! A node agent: keeps the Secrets and ConfigMaps that the pods of its node name, as the kubelet
//! does, and shows them.
//!
//! `cargo run --features testing --example node_agent -- --demo` runs it on recordings of a real
//! kube-apiserver. All it stands on is the library's public API.

mod agent;
mod agent_flags;
mod args;
mod bell;
mod bind;
mod credentials;
mod declaration;
#[cfg_attr(not(feature = "testing"), path = "no_demo.rs")]
mod demo;
mod duration;
mod endpoints;
mod files;
mod flags;
mod follow;
mod health;
mod hook;
mod kubelet;
mod layout;
mod log_format;
mod logger;
mod managers;
#[cfg_attr(not(feature = "metrics"), path = "no_metrics.rs")]
mod metrics;
mod node;
mod notify;
mod outflow;
mod own_node;
mod pid_file;
mod plan;
mod pod;
mod pods;
mod presence;
mod print;
#[cfg(feature = "metrics")]
mod process;
mod reads;
mod references;
#[cfg(feature = "testing")]
mod replay;
mod rights;
mod rows;
mod selections;
mod signals;
#[cfg_attr(not(feature = "snapshot"), path = "no_snapshot.rs")]
mod snapshot;
mod socket_file;
mod table;
mod tell;
mod teller;
#[cfg(test)]
#[path = "../../src/tests/temp_directory.rs"]
mod temp_directory;
mod told;
mod usage;
mod users;
mod wait_line;
mod wanted;
mod watched_file;
mod yaml;
mod zpages;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use crossbeam_channel::bounded;
use kubecache::clock::Clock;
use kubecache::http::{Client, Config, Environment};
use kubecache::{Error, ErrorKind};

use agent::{Agent, Ended};
use args::{Command, Options, Output};
use demo::Demo;
use endpoints::Addresses;
use notify::{Notifier, VARIABLES};
use outflow::{Pieces, STDERR, STDOUT};
use print::Printer;
use signals::Stop;
use tell::tell;
use wait_line::WaitLine;
use watched_file::WatchedFile;

/// How the objects stand is in the rows, and of the pods the agent tells itself.
const TOLD_OTHERWISE: [&str; 2] = ["kubecache::reflector", "kubecache::testing"];

const USER_AGENT: &str = concat!("node_agent/", env!("CARGO_PKG_VERSION"));

/// The code where nobody takes the output any more.
const OUTPUT_CLOSED: u8 = 3;

fn main() -> ExitCode {
    let code = start();
    STDOUT.end();
    STDERR.end();
    code
}

fn start() -> ExitCode {
    let options = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Print(text)) => return tell::print(&text),
        Err(wrong) => return usage(&wrong),
    };
    if let Some(name) = &options.node_name
        && options.demo
        && name != demo::NODE
    {
        let node = demo::NODE;
        return usage(&format!(
            "--demo shows the recorded node {node}, not {name}"
        ));
    }
    if options.demo && !options.wanted.is_empty() {
        let why = "--demo shows recorded pods: leave --secret, --configmap, --references and \
                   --config out";
        return usage(why);
    }
    if options.demo && options.snapshot.is_some() {
        return usage("--demo shows recordings: leave --snapshot out");
    }
    if options.demo && (options.namespace.is_some() || !options.selector.is_empty()) {
        return usage("--demo shows all recorded pods: leave --namespace and --selector out");
    }
    let declaration = options.wanted.declaration.as_ref();
    let has_pods = declaration.is_some_and(|declaration| declaration.pods().is_some());
    let without_pods = !options.wanted.is_empty() && !has_pods;
    let named = options.node_name.clone().or_else(|| {
        let name = std::env::var("NODE_NAME").ok()?;
        (!name.is_empty() && !without_pods).then_some(name)
    });
    let node_name = match (named, options.demo) {
        (_, true) => Some(demo::NODE.to_owned()),
        (None, false) if !without_pods => {
            return usage("which node? give --node-name, or set NODE_NAME");
        }
        (named, false) => named,
    };
    if node_name.is_none() && (options.namespace.is_some() || !options.selector.is_empty()) {
        return usage("--namespace and --selector choose pods: give --node-name");
    }
    if node_name.is_none() && options.kubelet.is_asked {
        return usage("--pods-from kubelet asks for the pods of a node: give --node-name");
    }
    logger::install(options.verbosity, options.log_format, &TOLD_OTHERWISE);
    match run(&options, node_name.as_deref()) {
        Ok(ended) => report(ended),
        Err(error) => {
            fail(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, node_name: Option<&str>) -> Result<Ended, Error> {
    let endpoints = Addresses::bind(options)?;
    let demo = if options.demo {
        let server = Demo::serve(options.demo_speed)?;
        announce(&server, options.output);
        Some(server)
    } else {
        None
    };
    let config = if let Some(server) = &demo {
        server.config()?
    } else {
        // A credential plugin gets all that is in it.
        let environment = VARIABLES
            .into_iter()
            .fold(Environment::process(), |rest, name| rest.variable(name, ""));
        Config::from_kubeconfig(&options.connection.clone().environment(environment))?
    };
    log::info!(
        "{}, {} ({})",
        node_name.map_or_else(|| "no node".to_owned(), |name| format!("node {name}")),
        config.server_url(),
        config.source()
    );
    raise_descriptor_limit();
    let (hang_up, hang_ups) = bounded(1);
    let stop = Stop::listen(Some(hang_up), hook::exit).map_err(|error| {
        Error::new(ErrorKind::Resources, "listening for signals").with_source(error)
    })?;
    let mut client_options = flags::client_options(USER_AGENT, options.request_timeout);
    if let Some(metrics) = &endpoints.metrics {
        client_options = metrics.client(client_options)?;
    }
    let client = Client::new(&config, client_options)?;
    let now = Clock::system().now();
    let notifier = Notifier::from_environment(options.ready_timeout, now)
        .map_err(|wrong| Error::new(ErrorKind::Config, wrong))?;
    let config_file = options.sources.config.clone().filter(|_| !options.once);
    let config_file = config_file.map(|file| WatchedFile::start(file, options.config_stamp));
    let agent = Agent {
        options,
        node_name,
        server: &config.server_url(),
        printer: printer(options, node_name),
        signals: &stop,
        hang_ups: &hang_ups,
        is_on_terminal: io::stdout().is_terminal(),
        config: config_file.transpose()?,
        reading: None,
        repeats: false,
        endpoints,
        wait_line: WaitLine::on_stderr(),
        notifier,
    };
    agent.run(&client)
}

/// A printer as the flags have it. Only a terminal gets colours, unless `NO_COLOR` is set.
fn printer(options: &Options, node_name: Option<&str>) -> Printer<Pieces> {
    let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let in_colour = io::stdout().is_terminal() && !wants_none && wait_line::can_move_cursor();
    let mut printer = Printer::new(options.output, node_name, !options.once, STDOUT.writer());
    if options.no_headers {
        printer = printer.without_headers();
    }
    if in_colour {
        printer = printer.in_colour();
    }
    printer
}

/// One socket per watched object: the default limit of 1,024 descriptors is soon reached on a full
/// node.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        log::info!("the descriptor limit stays as it is: {error}");
    }
}

fn announce(server: &Demo, output: Output) {
    let line = format!(
        "Demo: no cluster is asked; recordings of one are at {}",
        server.url()
    );
    // What a program reads on stdout has to stay that.
    if output.is_table() {
        STDOUT.push(format!("{line}\n").into_bytes());
    } else {
        tell(&line);
    }
}

fn report(ended: Ended) -> ExitCode {
    match ended {
        Ended::Complete => return ExitCode::SUCCESS,
        Ended::Failed(error) => fail(&error),
        Ended::Missing { missing, of } => {
            tell(&format!("error: {missing} of {of} rows have no answer"));
        }
        Ended::Unknown(entries) => {
            let entries = entries.join(", ");
            tell(&format!("error: the objects are not known of {entries}"));
        }
        Ended::Absent(absent) => {
            tell(&format!(
                "error: {absent} objects are not there, or may not be read"
            ));
        }
        Ended::Interrupted => tell("error: interrupted before each object had its answer"),
        Ended::OutputClosed(error) => {
            tell(&format!("error: the output is not taken any more: {error}"));
            return ExitCode::from(OUTPUT_CLOSED);
        }
    }
    ExitCode::FAILURE
}

fn fail(error: &Error) {
    tell::error(error);
    if error.kind() == ErrorKind::NotConfigured {
        demo::HINT.into_iter().for_each(tell);
    }
}

fn usage(wrong: &str) -> ExitCode {
    tell::usage("node_agent", wrong)
}
