//! kubecache beside kube-rs and client-go, in one run and in turns: see benches/peers/README.md.

#[path = "../../../bodies/mod.rs"]
#[expect(unused_imports, reason = "what decodes bodies is for other programs")]
mod bodies;
mod cases;
#[path = "../../../informer/history.rs"]
mod history;
#[path = "../../marks.rs"]
mod marks;
mod program;
mod quiet;
mod server;
mod table;
#[path = "../../../tls_server/mod.rs"]
mod tls_server;
mod workload;

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use cases::{Case, Places};
use quiet::{Beginning, NOISE_MAX};
use table::{Results, Spread};

const USAGE: &str = "\
usage: benches/peers/run [--quick] [--rounds N] [--count N] [row...]
  row       events, paced, sync, growth, watches (with bookmarks and stops), many, gets,
            waiters, readers; default: all
  --quick   smaller and once: shows that it works, its figures say nothing
  --rounds  how often each side is measured, instead of the usual number
  --count   how many objects or watches there are, to see how costs grow with them
A measurement does not count if other work took more than a tenth of a core beside it.";

struct Options {
    is_quick: bool,
    rounds: Option<usize>,
    count: Option<usize>,
    rows: Vec<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            is_quick: false,
            rounds: None,
            count: None,
            rows: Vec::new(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => options.is_quick = true,
                "--rounds" | "--count" => {
                    let number = arguments.next().and_then(|text| text.parse().ok());
                    let number = Some(number.filter(|number| *number > 0).ok_or(USAGE)?);
                    if argument == "--rounds" {
                        options.rounds = number;
                    } else {
                        options.count = number;
                    }
                }
                "bookmarks" | "stops" => options.rows.push("watches".to_owned()),
                row if cases::all(false).iter().any(|case| case.row == row) => {
                    options.rows.push(row.to_owned());
                }
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = arguments.as_slice()
        && first == "serve"
    {
        return server::run(rest);
    }
    let options = Options::parse(&arguments).unwrap_or_else(|usage| {
        eprintln!("{usage}");
        std::process::exit(2);
    });
    let programs = std::env::current_exe().unwrap();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let places = Places {
        programs: programs.parent().unwrap().to_owned(),
        client_go: std::env::var_os("PEERS_CLIENT_GO").map_or_else(
            || programs.parent().unwrap().join("client-go"),
            PathBuf::from,
        ),
        authority: root.join("fixtures/certs/authority.pem"),
    };
    let mut results = Results::default();
    let (mut noise, mut left_out) = (Vec::new(), 0);
    let begun = Instant::now();
    for mut case in cases::all(options.is_quick) {
        if !options.rows.is_empty() && !options.rows.iter().any(|row| row == case.row) {
            continue;
        }
        case.rounds = options.rounds.unwrap_or(case.rounds);
        case.count = options.count.unwrap_or(case.count);
        eprintln!("{:>4.0} s  {}", begun.elapsed().as_secs_f64(), case.name);
        match run(&case, &places, options.is_quick, &mut results, &mut noise) {
            Ok(busy) => left_out += busy,
            Err(error) => eprintln!("        {}: {error}", case.name),
        }
    }
    table::print(&results);
    if let Some(noise) = Spread::of(&noise) {
        println!(
            "The machine: the same work of one thread, before each measurement, took {:.1} ms \
             ({:.1} to {:.1}). The run took {:.0} s.",
            noise.median,
            noise.least,
            noise.most,
            begun.elapsed().as_secs_f64(),
        );
    }
    if left_out > 0 {
        println!("Other work ran beside {left_out} measurements, which do not count.");
    }
    if options.is_quick {
        println!("--quick: the figures say nothing.");
    }
    if options.is_quick || options.count.is_some() {
        println!("The lines name the counts of a full run.");
    }
}

/// All sides in turns, every other round from the last one to the first. Returns how many
/// measurements other work has spoilt.
fn run(
    case: &Case,
    places: &Places,
    is_quick: bool,
    results: &mut Results,
    noise: &mut Vec<f64>,
) -> Result<u32, String> {
    let (mut server, url) = case.serve(places)?;
    let mut left_out = 0;
    for round in 0..case.rounds {
        let mut sides = case.sides.clone();
        if round % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            noise.push(spin());
            let name = format!("{} {}", side.program, side.way);
            let beginning = Beginning::now(&server);
            match case.measure(side, places, &mut server, &url) {
                Ok(measured) => {
                    let busy = beginning.noise(&server);
                    let counts = is_quick || busy <= NOISE_MAX;
                    left_out += u32::from(!counts);
                    let mut text = String::new();
                    for (what, value) in measured {
                        text += &format!("  {what} {value:.3}");
                        if counts {
                            results.add(case.name, side, what, value);
                        }
                    }
                    if !counts {
                        text += &format!("  other work took {busy:.2} of a core: not counted");
                    }
                    eprintln!("        {name:<29}{text}");
                }
                Err(error) => eprintln!("        {name:<29}  {error}"),
            }
        }
    }
    Ok(left_out)
}

/// Milliseconds of a fixed piece of work.
fn spin() -> f64 {
    let begun = Instant::now();
    let mut random = bodies::Random(1);
    for _ in 0..10_000_000_u32 {
        black_box(random.next());
    }
    begun.elapsed().as_secs_f64() * 1e3
}
