//! Compares readings with client-go's, which a program in Go tells.
//!
//! Selectors must be read alike. Of kubeconfigs, only those that both take: each refuses some that
//! the other takes, as the manual's page on differences says, and their numbers are printed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use kubecache::testing::{FuzzTarget, fuzz_reading};

use crate::dice::Dice;
use crate::rounds::{Inputs, Options, tell};

/// So few that neither pipe fills while the other side writes.
const BATCH: usize = 32;

/// After so many differences the rest is more of the same.
const TOLD_MAX: usize = 20;

struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// Returns whether there was no difference. Where there is no Go, it says so, and compares nothing.
pub fn compare(target: &FuzzTarget, options: &Options) -> Result<bool, String> {
    let mut go = Command::new("go");
    let go = go.arg("version").stdout(Stdio::null()).status();
    if !go.is_ok_and(|status| status.success()) {
        println!("{}: NOT COMPARED: Go is not installed", target.name);
        return Ok(true);
    }
    let mut peer = Peer::start(target.name).map_err(|why| format!("the peer: {why}"))?;
    let outcome = play(target, options, &mut peer).map_err(|why| format!("the peer: {why}"));
    drop(peer.child.kill());
    drop(peer.child.wait());
    outcome
}

fn play(target: &FuzzTarget, options: &Options, peer: &mut Peer) -> std::io::Result<bool> {
    let inputs = Inputs::new(target.name);
    let mut dice = Dice::seeded(options.seed);
    let (began, until) = (
        Instant::now(),
        Duration::from_secs(options.seconds.min(1 << 40)),
    );
    let (mut rounds, mut taken, mut told) = (0, 0_u64, 0);
    let (mut only_ours, mut only_theirs) = (0_u64, 0_u64);
    let both_refuse_alike = target.name == "selector";
    while rounds < options.rounds && began.elapsed() < until && told < TOLD_MAX {
        let batch: Vec<_> = (0..BATCH).map(|_| inputs.next(&mut dice)).collect();
        // Client-go reads bytes, and a zero byte ends a selector; a text of this crate is UTF-8.
        let batch = batch
            .into_iter()
            .filter(|input| std::str::from_utf8(input).is_ok() && !input.contains(&0));
        let batch: Vec<_> = batch.collect();
        for (input, theirs) in batch.iter().zip(peer.ask(&batch)?) {
            rounds += 1;
            let ours = fuzz_reading(target.name, input);
            let is_refused = theirs.starts_with("refused");
            let are_same = match &ours {
                None if is_refused => true,
                Some(_) if is_refused => {
                    only_ours += 1;
                    !both_refuse_alike
                }
                None => {
                    only_theirs += 1;
                    !both_refuse_alike
                }
                Some(ours) => {
                    taken += 1;
                    *ours == theirs
                }
            };
            if !are_same {
                told += 1;
                tell(
                    target,
                    &format!("ours: {ours:?}\ntheirs: {theirs:?}"),
                    input,
                );
            }
        }
    }
    println!(
        "{}: seed {}, {rounds} inputs compared with client-go, {told} differ; taken by both \
         {taken}, here only {only_ours}, there only {only_theirs}",
        target.name, options.seed
    );
    Ok(told == 0)
}

impl Peer {
    fn start(reader: &str) -> std::io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = root.join("target/fuzz/parsers");
        let built = Command::new("go")
            .args([
                "build",
                "-mod=readonly",
                "-buildvcs=false",
                "-trimpath",
                "-o",
            ])
            .arg(std::path::absolute(&program)?)
            .arg("./parsers")
            .envs([
                ("CGO_ENABLED", "0"),
                ("GOWORK", "off"),
                ("GOTOOLCHAIN", "local"),
            ])
            .current_dir(root.join("tests/cluster/gotools"))
            .status()?;
        if !built.success() {
            return Err(std::io::Error::other("it does not build"));
        }
        let mut child = Command::new(program)
            .arg(reader)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or_else(|| std::io::Error::other("no pipes"))?;
        let from = BufReader::new(from);
        Ok(Self { child, to, from })
    }

    fn ask(&mut self, inputs: &[Vec<u8>]) -> std::io::Result<Vec<String>> {
        let mut frames = Vec::new();
        for input in inputs {
            writeln!(frames, "{}", input.len())?;
            frames.extend_from_slice(input);
        }
        self.to.write_all(&frames)?;
        inputs.iter().map(|_| self.answer()).collect()
    }

    fn answer(&mut self) -> std::io::Result<String> {
        let mut head = String::new();
        self.from.read_line(&mut head)?;
        let length = head.trim_end().parse();
        let mut answer = vec![0; length.map_err(std::io::Error::other)?];
        self.from.read_exact(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}
