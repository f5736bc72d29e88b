//! A thundering restart: 2,000 watches whose server goes for a minute and comes back, once whole,
//! once as five servers behind a balancer, two of which are dead.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kubecache::http::{Client, ClientOptions, Config};
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::rustls::crypto::ring;
use kubecache::testing::{Act, ApiServer, Fault, TestAuthority, objects};

use super::{now, pause};

const WATCHES: usize = 2_000;
const AWAY: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(3 * 60);
/// The limiter's defaults: so many requests a second, and so many at once.
const RATE: usize = 50;
const BURST: usize = 100;
const SECOND: Duration = Duration::from_secs(1);

/// What happened in one second after the server came back.
#[derive(Clone, Copy, Default)]
struct Second {
    /// Those that pass the limiter: all but the openings of watches.
    lists: usize,
    watches: usize,
    handshakes: usize,
    open: usize,
}

/// One of the numbers of a second.
type Count = fn(&Second) -> usize;

pub(crate) fn run() -> bool {
    let whole = scenario("one server", &[]);
    let dead = [1, 2].map(|first| Fault::new(Act::Silent).from(first).every(5));
    let halved = scenario("five behind a balancer, two dead", &dead);
    let picture = picture(&[&whole.1, &halved.1]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/herd.svg");
    fs::write(&path, picture).unwrap();
    println!("  the picture: {}", path.display());
    whole.0 && halved.0
}

/// Runs one restart; whether it met its bounds, and what it was like.
fn scenario(name: &str, faults: &[Fault]) -> (bool, Vec<Second>) {
    let authority = TestAuthority::new("herd", ring::default_provider().into()).unwrap();
    let server = ApiServer::builder().tls_by(&authority).unwrap();
    let server = server
        .token("made-up", "admin", &["system:masters"])
        .start()
        .unwrap();
    let config = Config::for_server(&server.url()).unwrap();
    let config = config
        .with_authorities(authority.pem())
        .with_token("made-up")
        .unwrap();
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    let options = ManagerOptions::default();
    let options = options
        .idle_max(Duration::from_secs(60 * 60))
        .watches_max(WATCHES);
    let manager = SecretManager::new(client, options).unwrap();
    for number in 0..WATCHES {
        let name = format!("s-{number}");
        server
            .apply(&objects::secret("shop", &name, "", &[("key", "value")]))
            .unwrap();
        manager.register_pod(&objects::pod("shop", &name, "node-1", &[&name], &[]));
    }
    until(&server, now(), |_| {});
    server.crash();
    pause(AWAY);
    for fault in faults {
        server.add_fault(fault.clone());
    }
    let (before, handshakes_before) = (server.requests().len(), server.connections());
    server.come_back().unwrap();
    let since = now();
    let mut seconds: Vec<Second> = Vec::new();
    let mut told = handshakes_before;
    let took = until(&server, since, |second| {
        let connections = server.connections();
        let handshakes = usize::try_from(connections - told).unwrap();
        told = connections;
        seconds.resize(second, Second::default());
        seconds.push(Second {
            lists: 0,
            watches: 0,
            handshakes,
            open: server.open_watches(),
        });
    });
    for request in &server.requests()[before..] {
        let second = request.at().saturating_duration_since(since).as_secs();
        let second = usize::try_from(second).unwrap().min(seconds.len() - 1);
        let second = &mut seconds[second];
        if request.is_watch() {
            second.watches += 1;
        } else {
            second.lists += 1;
        }
    }
    let bound = SECOND * u32::try_from(WATCHES / RATE).unwrap() + 5 * SECOND;
    let (most, allowed) = (
        seconds.iter().map(|second| second.lists).max().unwrap_or(0),
        RATE + BURST,
    );
    println!(
        "  {name}: all {WATCHES} watches are open again after {took:.1?} (bound {bound:.0?}); at \
         most {most} lists in a second (bound {allowed})"
    );
    table(&seconds);
    (took <= bound && most <= allowed, seconds)
}

/// Waits until all watches are open, and calls `each` once a second with the number of that
/// second; how long it took.
fn until(server: &ApiServer, since: Instant, mut each: impl FnMut(usize)) -> Duration {
    let mut next = 0_usize;
    loop {
        let is_open = server.open_watches() == WATCHES;
        let passed = since.elapsed();
        if is_open || passed >= SECOND * u32::try_from(next + 1).unwrap() {
            each(next);
            next += 1;
        }
        if is_open {
            return passed;
        }
        assert!(
            passed < PATIENCE,
            "{} of {WATCHES} are open",
            server.open_watches()
        );
        pause(Duration::from_millis(20));
    }
}

/// Five seconds a line.
fn table(seconds: &[Second]) {
    println!("    seconds    lists/s  watches/s  handshakes/s  open watches");
    for (number, part) in seconds.chunks(5).enumerate() {
        let mean = |of: Count| part.iter().map(of).sum::<usize>() / part.len();
        println!(
            "    {:>3} to {:<3} {:>7} {:>10} {:>13} {:>13}",
            number * 5,
            number * 5 + part.len(),
            mean(|second| second.lists),
            mean(|second| second.watches),
            mean(|second| second.handshakes),
            part.last().map_or(0, |second| second.open),
        );
    }
}

/// Both restarts as one picture: lists and handshakes per second, and open watches.
fn picture(runs: &[&[Second]]) -> String {
    const WIDTH: usize = 720;
    const HEIGHT: usize = 200;
    let longest = runs.iter().map(|run| run.len()).max().unwrap_or(1).max(2);
    let most = RATE + BURST;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n",
        WIDTH + 60,
        runs.len() * (HEIGHT + 50),
    );
    for (index, run) in runs.iter().enumerate() {
        let top = index * (HEIGHT + 50) + 20;
        let title = ["one server", "five behind a balancer, two dead"][index];
        writeln!(
            svg,
            "<text x=\"40\" y=\"{}\">{title}: per second, lists (blue), handshakes (orange); \
             open watches of {WATCHES} (grey)</text>\n\
             <rect x=\"40\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" \
             stroke=\"#ccc\"/>\n<text x=\"4\" y=\"{}\">{most}/s</text>\n\
             <text x=\"{}\" y=\"{}\">{longest} s</text>",
            top - 6,
            top + 10,
            WIDTH + 20,
            top + HEIGHT + 14,
        )
        .unwrap();
        let lines: [(&str, Count, usize); 3] = [
            ("#999", |second| second.open, WATCHES),
            ("#1f77b4", |second| second.lists, most),
            ("#ff7f0e", |second| second.handshakes, most),
        ];
        for (colour, value, full) in lines {
            let points = run.iter().enumerate().map(|(second, counts)| {
                let x = 40 + second * WIDTH / (longest - 1);
                let y = top + HEIGHT - value(counts).min(full) * HEIGHT / full;
                format!("{x},{y}")
            });
            let points = points.collect::<Vec<_>>().join(" ");
            writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{points}\"/>"
            )
            .unwrap();
        }
    }
    svg.push_str("</svg>\n");
    svg
}
