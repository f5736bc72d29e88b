//! Records what passes between a program and an API server, secret values replaced.
//!
//! ```text
//! record --out FILE [--kubeconfig FILE] [--context NAME] [--server-version V]
//!        [--day YYYY-MM-DD] [--port N] [-- program argument…]
//! ```
//!
//! The program finds the recorder's address in `KUBECACHE_RECORDER_URL`, and as `{}` in its
//! arguments; the recording ends with the program. Without a program it ends when its standard
//! input does.

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use kubecache::http::{Config, KubeconfigOptions};
use kubecache::testing::Recorder;

const USAGE: &str = "\
usage: record --out FILE [--kubeconfig FILE] [--context NAME]
              [--server-version V] [--day YYYY-MM-DD] [--port N]
              [-- program argument...]";

#[derive(Default)]
struct Arguments {
    out: PathBuf,
    connection: KubeconfigOptions,
    server_version: String,
    day: String,
    port: u16,
    program: Vec<String>,
}

fn main() -> ExitCode {
    if std::env::args()
        .nth(1)
        .is_some_and(|first| first == "--help" || first == "-h")
    {
        return match writeln!(io::stdout(), "{USAGE}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_gone) => ExitCode::FAILURE,
        };
    }
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            say(&format!("record: {why}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("record: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    while let Some(name) = arguments.next() {
        if name == "--" {
            parsed.program = arguments.collect();
            break;
        }
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--out" => parsed.out = value.into(),
            "--kubeconfig" => parsed.connection = parsed.connection.path(value),
            "--context" => parsed.connection = parsed.connection.context(value),
            "--server-version" => parsed.server_version = value,
            "--day" => parsed.day = value,
            "--port" => {
                let port = value.parse();
                parsed.port = port.map_err(|_not_a_port| format!("{value} is not a port"))?;
            }
            _ => return Err(format!("not understood: {name}")),
        }
    }
    if parsed.out.as_os_str().is_empty() {
        return Err("--out is missing".to_owned());
    }
    Ok(parsed)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let config = Config::from_kubeconfig(&arguments.connection)?;
    let recorder = Recorder::start(&config, arguments.port)?;
    let url = recorder.url();
    say(&format!(
        "record: {} is recorded at {url}",
        config.server_url()
    ));
    match arguments.program.split_first() {
        None => {
            io::stdin().read_to_end(&mut Vec::new())?;
        }
        Some((program, rest)) => {
            let status = Command::new(program)
                .args(rest.iter().map(|argument| argument.replace("{}", &url)))
                .env("KUBECACHE_RECORDER_URL", &url)
                .status()
                .map_err(|error| format!("{program}: {error}"))?;
            say(&format!("record: the program ended: {status}"));
        }
    }
    if let Some((count, last)) = recorder.failures() {
        say(&format!(
            "record: {count} requests did not reach the server; the last one: {last}"
        ));
    }
    let recording = recorder
        .finish()
        .of_server(&arguments.server_version, &arguments.day);
    if recording.exchanges().is_empty() {
        return Err("nothing was recorded".into());
    }
    std::fs::write(&arguments.out, recording.to_text())?;
    say(&format!(
        "record: {} exchanges in {}",
        recording.exchanges().len(),
        arguments.out.display()
    ));
    Ok(())
}

fn say(text: &str) {
    // With standard error gone there is nobody left to tell.
    let _told = writeln!(io::stderr(), "{text}");
}
