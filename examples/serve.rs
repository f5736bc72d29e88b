//! An API server in memory as a program, for tests in any language: its state comes from manifests,
//! its faults and its time through a control port.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use kubecache::clock::{Clock, FakeClock};
use kubecache::rustls::crypto::ring;
use kubecache::testing::{
    ApiServer, ApiServerBuilder, ControlServer, Fault, Recording, TestAuthority,
};

const HELP: &str = "\
serve is a Kubernetes API server in memory, for the tests of programs in any
language. It has the common kinds, the state of the files that it loads, and the
faults that it is told to have.

Usage: serve [flags]

When it is ready, it prints one line of JSON: its `url`, the `control` port's
URL, and the path of the `kubeconfig`. It then serves until it is killed.

      --load FILE           objects to begin with: manifests in YAML or JSON, or
                            the lists of a recording (.jsonl); repeatable
      --port N              the port on loopback (default 0: a free one)
      --control-port N      the port of the control server (default 0: a free
                            one)
      --kubeconfig FILE     writes a kubeconfig for clients there
      --tls                 speaks TLS; the kubeconfig has the authority and a
                            token
      --token TOKEN=USER    takes this token for that user, and no client
                            without one; repeatable. The user admin may do all
      --faults FILE         faults from the start: a JSON array, as POST /faults
                            takes them
      --stopped-clock       lets no time pass but what POST /clock/SECONDS says
      --until-stdin-ends    ends with its standard input, so that no server
                            outlives a test
  -h, --help                prints this

The control port, by HTTP and JSON, for programs (a request with an Origin is
refused):
  GET  /kubeconfig /faults /requests /watches /version
  GET  /wait/watches/N /wait/requests/N   answers at N, or after 60 s
  POST /objects                           writes manifests
  POST /faults; DELETE /faults[/N]        adds and removes faults
  POST /compact /expire-watches /cut-watches /restore/VERSION /crash /come-back
  POST /rotate-tls/NAME /clock/SECONDS
";

/// The user who may do everything.
const ADMIN: &str = "admin";

/// The token of the kubeconfig when TLS asks for one and no flag names one.
const TOKEN: (&str, &str) = ("made-up-token", ADMIN);

#[derive(Default)]
struct Options {
    load: Vec<PathBuf>,
    port: u16,
    control_port: u16,
    kubeconfig: Option<PathBuf>,
    has_tls: bool,
    tokens: Vec<(String, String)>,
    faults: Option<PathBuf>,
    has_stopped_clock: bool,
    ends_with_stdin: bool,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            // With standard output gone there is nobody who wants to read it.
            let _printed = io::stdout().write_all(HELP.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            say(&format!("{why}; --help tells the flags"));
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&why.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Reads the arguments after the program's name; `None` asks for help.
fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::{Long, Short, Value, ValueExt as _};

    let mut parser = lexopt::Parser::from_args(arguments);
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("load") => options.load.push(parser.value()?.into()),
            Long("port") => options.port = parser.value()?.parse_with(port)?,
            Long("control-port") => options.control_port = parser.value()?.parse_with(port)?,
            Long("kubeconfig") => options.kubeconfig = Some(parser.value()?.into()),
            Long("tls") => options.has_tls = true,
            Long("token") => options
                .tokens
                .push(parser.value()?.parse_with(token_and_user)?),
            Long("faults") => options.faults = Some(parser.value()?.into()),
            Long("stopped-clock") => options.has_stopped_clock = true,
            Long("until-stdin-ends") => options.ends_with_stdin = true,
            other @ (Short(_) | Long(_) | Value(_)) => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

fn port(text: &str) -> Result<u16, &'static str> {
    text.parse()
        .map_err(|_no_port| "a port is a number from 0 to 65535")
}

fn token_and_user(text: &str) -> Result<(String, String), &'static str> {
    let (token, user) = text
        .split_once('=')
        .ok_or("a token is given as TOKEN=USER")?;
    Ok((token.to_owned(), user.to_owned()))
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let fake = options.has_stopped_clock.then(FakeClock::new);
    let server = Arc::new(start(
        options,
        fake.clone().map_or_else(Clock::system, Clock::from),
    )?);
    for path in &options.load {
        load(&server, path).map_err(|why| format!("loading {}: {why}", path.display()))?;
    }
    if let Some(path) = &options.faults {
        add_faults(&server, path).map_err(|why| format!("faults of {}: {why}", path.display()))?;
    }
    if let Some(path) = &options.kubeconfig {
        std::fs::write(path, server.kubeconfig())
            .map_err(|why| format!("writing {}: {why}", path.display()))?;
    }
    let control = ControlServer::start(Arc::clone(&server), fake, options.control_port)?;
    let ready = serde_json::json!({
        "url": server.url(), "control": control.url(), "kubeconfig": options.kubeconfig,
    });
    let mut stdout = io::stdout();
    writeln!(stdout, "{ready}")?;
    stdout.flush()?;
    if options.ends_with_stdin {
        io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    loop {
        std::thread::park();
    }
}

fn start(options: &Options, clock: Clock) -> Result<ApiServer, kubecache::Error> {
    let mut builder = ApiServer::builder().port(options.port).clock(clock);
    if options.has_tls {
        let authority = TestAuthority::new("serve", ring::default_provider().into())?;
        builder = builder.tls_by(&authority)?;
        if options.tokens.is_empty() {
            builder = with_token(builder, TOKEN.0, TOKEN.1);
        }
    }
    let tokens = options.tokens.iter();
    let builder = tokens.fold(builder, |builder, (token, user)| {
        with_token(builder, token, user)
    });
    builder.start()
}

fn with_token(builder: ApiServerBuilder, token: &str, user: &str) -> ApiServerBuilder {
    let groups: &[&str] = if user == ADMIN {
        &["system:masters"]
    } else {
        &[]
    };
    builder.token(token, user, groups)
}

/// Writes the objects of a file. A recording is one by its name.
fn load(server: &ApiServer, path: &Path) -> Result<usize, Box<dyn Error>> {
    if path
        .extension()
        .is_some_and(|extension| extension == "jsonl")
    {
        return Ok(server.load_recording(&Recording::load(path)?)?);
    }
    Ok(server.load(&read(path)?)?)
}

fn add_faults(server: &ApiServer, path: &Path) -> Result<(), Box<dyn Error>> {
    for fault in Fault::list_from_json(&read(path)?)? {
        server.add_fault(fault);
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Box<dyn Error>> {
    Ok(std::fs::read_to_string(path)?)
}

fn say(text: &str) {
    // With standard error gone there is nobody left to tell.
    let _told = writeln!(io::stderr(), "serve: {text}");
}
