//! The command line: kubectl's flags for the connection and the pods, and the informer's own.

use std::ffi::OsString;
use std::time::Duration;

use kubecache::http::KubeconfigOptions;

use crate::demo;
use crate::flags::{self, Group, Parser, Program, flag};
use crate::log_format::LogFormat;
use crate::usage;

/// How long the first list may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The story was recorded with pauses that nobody wants to sit through.
const DEMO_SPEED: f64 = 6.0;

static PROGRAM: Program = Program {
    name: "informer",
    about: "informer follows the pods of a namespace with a shared informer, and prints what two \
        handlers are told: `pods`, made of closures, of every pod; `running`, which sends into a \
        channel, of the pods that pass a filter: those that run. When the pods are known, and at \
        the end, it prints what stands in the indices and how far the handlers are. Without a flag \
        for the connection it asks no cluster: it serves embedded recordings to itself on \
        loopback.",
    groups: &[Group {
        title: "The informer",
        flags: &[
            flag("namespace", "NAME", "whose pods")
                .short('n')
                .default("the context's; the recording is of shop"),
            flag("all-namespaces", "", "the pods of all namespaces").short('A'),
            flag(
                "selector",
                "SELECTOR",
                "only pods with these labels, chosen by the server",
            )
            .short('l'),
            flag(
                "index-label",
                "KEY",
                "the label that is indexed, beside the node",
            )
            .default("app"),
            flag(
                "resync",
                "DURATION",
                "how often `pods` is told of each pod once more",
            )
            .default("0: never; else a second or more"),
            flag("wide", "", "all columns, as wide as they are"),
            flag("once", "", "end when the handlers have seen the first list"),
            flag(
                "timeout",
                "DURATION",
                "how long the first list may take; 0 waits without end",
            )
            .default("30s"),
            flag(
                "demo",
                "",
                "the recordings; --demo=false asks a cluster without a flag for the connection",
            ),
            flag(
                "demo-speed",
                "FACTOR",
                "how many times as fast as recorded; 0 is everything at once",
            )
            .default("6"),
        ],
    }],
    notes: &[(
        "Exit codes",
        "0 the first list is known (--once), or a clean stop by a signal\n\
         1 the server cannot be reached or refuses us, or does not answer in time\n\
         2 wrong usage",
    )],
};

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Box<Options>),
    /// A text instead.
    Print(String),
}

/// The flags of a run.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) connection: KubeconfigOptions,
    /// `None`: the client's own limits.
    pub(crate) request_timeout: Option<Duration>,
    /// `None`: the connection's.
    pub(crate) namespace: Option<String>,
    pub(crate) all_namespaces: bool,
    pub(crate) selector: String,
    pub(crate) index_label: String,
    /// Zero: never.
    pub(crate) resync: Duration,
    /// How wide a line may be; `None`: as wide as all columns are.
    pub(crate) width: Option<usize>,
    pub(crate) once: bool,
    /// `None`: without end.
    pub(crate) timeout: Option<Duration>,
    pub(crate) demo: bool,
    pub(crate) demo_speed: f64,
    pub(crate) verbosity: u8,
    /// `None`: as standard error is.
    pub(crate) log_format: Option<LogFormat>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connection: KubeconfigOptions::default(),
            request_timeout: None,
            namespace: None,
            all_namespaces: false,
            selector: String::new(),
            index_label: "app".to_owned(),
            resync: Duration::ZERO,
            width: Some(usage::COLUMNS),
            once: false,
            timeout: Some(TIMEOUT),
            demo: true,
            demo_speed: DEMO_SPEED,
            verbosity: 0,
            log_format: None,
        }
    }
}

impl Options {
    /// What the recording has no answer for.
    fn beyond_the_recording(&self) -> Option<&'static str> {
        let named = self.namespace.as_deref().unwrap_or(demo::NAMESPACE);
        let rows = [
            (named != demo::NAMESPACE, "--namespace"),
            (self.all_namespaces, "--all-namespaces"),
            (!self.selector.is_empty(), "--selector"),
        ];
        let asked = rows.into_iter().find(|(asked, _)| *asked && self.demo);
        asked.map(|(_, flag)| flag)
    }
}

/// Reads the arguments after the program's name; the error is one line that says what is wrong.
pub(crate) fn parse<I>(arguments: I) -> Result<Command, String>
where
    I: IntoIterator<Item: Into<OsString>>,
{
    let mut parser = Parser::new(&PROGRAM, arguments);
    let mut options = Options::default();
    let mut demo = None;
    let mut connects = false;
    while let Some(name) = parser.next()? {
        if let Some(page) = usage::page(name, &mut parser)? {
            return Ok(Command::Print(page));
        }
        match name {
            "demo" => demo = Some(flags::switch(name, &mut parser)?),
            _ if own_flag(name, &mut parser, &mut options)? => {}
            _ if flags::connection_flag(
                name,
                &mut parser,
                &mut options.connection,
                &mut options.request_timeout,
            )? =>
            {
                connects |= name != "request-timeout";
            }
            _ => return Err(format!("--{name} is not read")),
        }
    }
    options.demo = demo.unwrap_or(!connects);
    match options.beyond_the_recording() {
        None => Ok(Command::Run(Box::new(options))),
        Some(flag) => Err(format!(
            "{flag}: the recording is of namespace {}; name a cluster, such as with --kubeconfig, \
             or give --demo=false",
            demo::NAMESPACE
        )),
    }
}

fn own_flag(name: &str, parser: &mut Parser, options: &mut Options) -> Result<bool, String> {
    match name {
        "namespace" => options.namespace = Some(flags::text(name, parser)?),
        "all-namespaces" => options.all_namespaces = flags::switch(name, parser)?,
        "selector" => options.selector = flags::text(name, parser)?,
        "index-label" => options.index_label = flags::text(name, parser)?,
        "resync" => {
            let period = flags::limit(name, parser)?;
            if period.is_some_and(|period| period < Duration::from_secs(1)) {
                return Err(format!("--{name}: write 0, or a second or more"));
            }
            options.resync = period.unwrap_or_default();
        }
        "wide" => options.width = (!flags::switch(name, parser)?).then_some(usage::COLUMNS),
        "once" => options.once = flags::switch(name, parser)?,
        "timeout" => options.timeout = flags::limit(name, parser)?,
        "demo-speed" => options.demo_speed = flags::speed(name, parser)?,
        "log-format" => options.log_format = Some(flags::log_format(name, parser)?),
        "v" => options.verbosity = flags::verbosity(options.verbosity, parser)?,
        _ => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> Options {
        match parse(line.split_whitespace()) {
            Ok(Command::Run(options)) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_flag_for_the_connection_leaves_the_recordings() {
        for line in [
            "",
            "-n shop",
            "--request-timeout 5s",
            "--demo",
            "-s http://x --demo",
        ] {
            assert!(run(line).demo, "{line}");
        }
        for line in [
            "--demo=false",
            "--kubeconfig /k -A",
            "--context c",
            "-s http://x -l app=web",
        ] {
            assert!(!run(line).demo, "{line}");
        }
    }

    #[test]
    fn what_is_said_of_the_informer() {
        let options = run("--resync 90s --index-label tier --once --timeout 0");
        assert_eq!(options.resync, Duration::from_secs(90));
        assert_eq!(options.index_label, "tier");
        assert!(options.once && options.timeout.is_none());
    }

    #[test]
    fn each_mistake_is_one_line_that_names_the_flag() {
        let elsewhere = "the recording is of namespace shop; name a cluster, such as with \
            --kubeconfig, or give --demo=false";
        let rows = [
            ("-A", format!("--all-namespaces: {elsewhere}")),
            ("-n ops", format!("--namespace: {elsewhere}")),
            ("-l app=web", format!("--selector: {elsewhere}")),
            (
                "--resync 10ms",
                "--resync: write 0, or a second or more".to_owned(),
            ),
            ("-o json", "unknown flag -o".to_owned()),
        ];
        for (line, expected) in rows {
            assert_eq!(parse(line.split_whitespace()).unwrap_err(), expected);
        }
    }

    #[test]
    fn each_flag_of_the_table_is_read() {
        for flag in PROGRAM.flags() {
            let given = parse([format!("--{}=0", flag.name)]);
            assert!(
                !given.is_err_and(|why| why.ends_with("is not read")),
                "{}",
                flag.name
            );
        }
    }
}
