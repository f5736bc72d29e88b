//! What an idle TLS watch costs: resident bytes per watch, thread included, after a list, one
//! MODIFIED and a reopening.
//!
//! The servers run in processes of their own (this program started again), so that only the
//! client's memory is counted.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a benchmark prints, and fails by panicking"
)]

mod cluster;
mod memory;
mod server;
#[path = "../tls_server/mod.rs"]
mod tls_server;
mod watches;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

/// Resident KiB per idle watch, thread included.
const BUDGET_KIB: f64 = 40.0;

/// This program in another role, told what to do by lines.
pub(crate) struct Other {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Other {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { child, to, from }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, question: &str) -> String {
        writeln!(self.to, "{question}").unwrap();
        self.line()
    }

    fn end(self) {
        drop(self.to);
        let mut child = self.child;
        child.wait().unwrap();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve"] => server::run(),
        ["watch", count, port] => watches::run(count.parse().unwrap(), port),
        [.., "cluster"] => cluster::run(),
        // `cargo bench` and `cargo test --benches` add arguments of their own.
        [.., count] if count.parse::<usize>().is_ok() => {
            return verdict(measure(count.parse().unwrap()));
        }
        _ => return verdict(measure(1000) & measure(4000)),
    }
    ExitCode::SUCCESS
}

fn verdict(met: bool) -> ExitCode {
    ExitCode::from(u8::from(!met))
}

fn measure(count: usize) -> bool {
    let mut server = Other::start(&["serve"]);
    let port = server.line();
    let mut watches = Other::start(&["watch", &count.to_string(), &port]);
    let before = memory::Kernel::now();
    let report = watches.line();
    let kernel = memory::Kernel::now().since(&before);
    let numbers: Vec<f64> = report
        .split(' ')
        .map(|text| text.parse().unwrap())
        .collect();
    let per_watch = numbers[0] / count as f64;
    println!(
        "{count} idle TLS watches, each with its thread, one Secret held, after list + MODIFIED + \
         reopening:"
    );
    println!(
        "  {per_watch:.1} KiB resident per watch (budget {BUDGET_KIB}: {})",
        if per_watch <= BUDGET_KIB {
            "met"
        } else {
            "MISSED"
        }
    );
    println!(
        "    of it {:.1} KiB in stacks, {:.1} KiB in heaps; {:.1} MiB before the first watch",
        numbers[1] / count as f64,
        (numbers[0] - numbers[1]) / count as f64,
        numbers[2] / 1024.0
    );
    println!(
        "  kernel: {:.1} KiB page tables, {:.0} descriptors; both ends together {:.1} KiB stacks, \
         {:.1} KiB slab",
        numbers[3] / count as f64,
        numbers[4] / count as f64,
        kernel.stacks / count as f64,
        kernel.slab / count as f64,
    );
    let accepted: f64 = server.ask("connections").parse().unwrap();
    println!(
        "  {:.2} connections and handshakes per watch",
        accepted / count as f64
    );
    let stopped = watches.ask("stop");
    println!("  all stopped and joined in {stopped}");
    watches.end();
    server.end();
    per_watch <= BUDGET_KIB
}
