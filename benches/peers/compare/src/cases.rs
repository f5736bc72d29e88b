//! What is measured, and who takes part.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::marks::pause;
use crate::program::Program;

/// One of the sides, in one of its ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) program: &'static str,
    pub(crate) way: &'static str,
}

const fn side(program: &'static str, way: &'static str) -> Side {
    Side { program, way }
}

const OURS: &str = "peer-kubecache";
const KUBE_RS: &str = "peer-kube-rs";
const GO: &str = "client-go";

pub(crate) const STORE: Side = side(OURS, "store");
pub(crate) const COMPACT: Side = side(OURS, "compact");
pub(crate) const INFORMER: Side = side(OURS, "informer");
pub(crate) const MANAGER: Side = side(OURS, "manager");
pub(crate) const MANAGER_LOOKS: Side = side(OURS, "manager-looks");
pub(crate) const STORE_LOOKS: Side = side(OURS, "store-looks");
pub(crate) const PODS: Side = side(OURS, "pods");
pub(crate) const REFLECTORS: Side = side(OURS, "reflectors");
pub(crate) const CACHE: Side = side(OURS, "cache");
pub(crate) const TYPED: Side = side(OURS, "typed");
pub(crate) const RAW: Side = side(OURS, "raw");
pub(crate) const THREADS: Side = side(OURS, "threads");
pub(crate) const MUTEX: Side = side(OURS, "mutex");
pub(crate) const CONDVAR: Side = side(OURS, "condvar");
pub(crate) const REFLECT: Side = side(KUBE_RS, "reflect");
pub(crate) const REFLECT_LOOKS: Side = side(KUBE_RS, "reflect-looks");
pub(crate) const STRIPPED: Side = side(KUBE_RS, "stripped");
pub(crate) const GO_STORE: Side = side(GO, "store/json");
pub(crate) const GO_STORE_PROTOBUF: Side = side(GO, "store/protobuf");
pub(crate) const GO_INFORMER: Side = side(GO, "informer/json");
pub(crate) const GO_INFORMER_PROTOBUF: Side = side(GO, "informer/protobuf");
pub(crate) const GO_MANAGER: Side = side(GO, "manager/json");
pub(crate) const GO_MANAGER_PROTOBUF: Side = side(GO, "manager/protobuf");
pub(crate) const GO_MANAGER_LOOKS: Side = side(GO, "manager-looks/json");
pub(crate) const GO_STORE_LOOKS: Side = side(GO, "store-looks/json");
pub(crate) const GO_PODS: Side = side(GO, "pods/json");
pub(crate) const GO_PODS_PROTOBUF: Side = side(GO, "pods/protobuf");
pub(crate) const GO_REFLECTORS: Side = side(GO, "reflectors/json");
pub(crate) const GO_REFLECTORS_PROTOBUF: Side = side(GO, "reflectors/protobuf");
pub(crate) const GO_CACHE: Side = side(GO, "cache");

/// What a side is put through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// A collection is listed, then its watch tells of so many events: as fast as they are taken,
    /// or so many a second.
    Collection { events: usize, rate: Option<usize> },
    /// Objects are watched one by one, until each has been read; then bookmarks, then the stop.
    Watches,
    /// The watches of [`Course::Watches`], read at random; or a store of as many objects.
    Reads,
    /// Only until each watch is open.
    Open,
    /// Threads wait for the status of pods.
    Waiters,
    /// A store that many read while one writes.
    Readers,
}

/// One thing that is measured, in turns, of all that take part.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The row by which it is asked for.
    pub(crate) row: &'static str,
    pub(crate) name: &'static str,
    pub(crate) course: Course,
    pub(crate) resource: &'static str,
    pub(crate) count: usize,
    pub(crate) is_tls: bool,
    pub(crate) rounds: usize,
    pub(crate) sides: Vec<Side>,
}

/// All of them, or smaller ones, once, to see that they work.
pub(crate) fn all(is_quick: bool) -> Vec<Case> {
    let size = |full, quick| if is_quick { quick } else { full };
    let case = |row, name, course, resource, count, rounds, sides: &[Side]| Case {
        row,
        name,
        course,
        resource,
        count,
        is_tls: name.contains("TLS"),
        rounds: if is_quick { 1 } else { rounds },
        sides: sides.to_vec(),
    };
    let events = [
        STORE,
        REFLECT,
        GO_STORE,
        GO_STORE_PROTOBUF,
        INFORMER,
        GO_INFORMER,
        GO_INFORMER_PROTOBUF,
        COMPACT,
        TYPED,
        RAW,
    ];
    let sync = [
        STORE,
        COMPACT,
        REFLECT,
        STRIPPED,
        GO_STORE,
        GO_STORE_PROTOBUF,
        TYPED,
        RAW,
    ];
    let watches = [
        MANAGER,
        REFLECT,
        GO_MANAGER,
        GO_MANAGER_PROTOBUF,
        REFLECTORS,
        GO_REFLECTORS,
        GO_REFLECTORS_PROTOBUF,
        PODS,
        GO_PODS,
        GO_PODS_PROTOBUF,
    ];
    let plain = [watches.as_slice(), &[THREADS]].concat();
    let open = [MANAGER, REFLECT, GO_MANAGER_PROTOBUF];
    let growth = [STORE, REFLECT, GO_STORE_PROTOBUF];
    let reads = [
        MANAGER,
        GO_MANAGER,
        STORE,
        REFLECT,
        GO_STORE,
        MUTEX,
        MANAGER_LOOKS,
        GO_MANAGER_LOOKS,
        STORE_LOOKS,
        REFLECT_LOOKS,
        GO_STORE_LOOKS,
    ];
    let collection = |events| Course::Collection { events, rate: None };
    let paced = |events, rate| Course::Collection {
        events,
        rate: Some(rate),
    };
    let config_maps = collection(size(40_000, 8_000));
    let pods = collection(size(8_000, 2_000));
    let many = size(20_000, 4_000);
    let some = size(1_000, 200);
    vec![
        case(
            "events",
            "events of ConfigMaps",
            config_maps,
            "configmaps",
            many,
            3,
            &events,
        ),
        case(
            "events",
            "events of pods",
            pods,
            "pods",
            size(4_000, 400),
            3,
            &events,
        ),
        case(
            "paced",
            "ConfigMaps at a pace",
            paced(size(8_000, 800), 2_000),
            "configmaps",
            size(2_000, 200),
            3,
            &events,
        ),
        case(
            "paced",
            "pods at a pace",
            paced(size(2_000, 200), 500),
            "pods",
            size(2_000, 200),
            3,
            &events,
        ),
        case(
            "sync",
            "list of ConfigMaps",
            collection(0),
            "configmaps",
            many,
            3,
            &sync,
        ),
        case(
            "sync",
            "list of pods",
            collection(0),
            "pods",
            many,
            3,
            &sync,
        ),
        case(
            "growth",
            "5,000 ConfigMaps",
            collection(0),
            "configmaps",
            size(5_000, 1_000),
            3,
            &growth,
        ),
        case(
            "growth",
            "80,000 ConfigMaps",
            collection(0),
            "configmaps",
            size(80_000, 16_000),
            2,
            &growth,
        ),
        case(
            "growth",
            "250 TLS watches",
            Course::Open,
            "secrets",
            size(250, 50),
            3,
            &open,
        ),
        case(
            "watches",
            "watches",
            Course::Watches,
            "secrets",
            some,
            3,
            &plain,
        ),
        case(
            "watches",
            "TLS watches",
            Course::Watches,
            "secrets",
            some,
            3,
            &watches,
        ),
        case(
            "many",
            "many TLS watches",
            Course::Open,
            "secrets",
            size(8_000, 800),
            2,
            &open,
        ),
        case("gets", "reads", Course::Reads, "secrets", some, 3, &reads),
        case(
            "waiters",
            "waiters",
            Course::Waiters,
            "-",
            1,
            5,
            &[CACHE, GO_CACHE, CONDVAR],
        ),
        case(
            "readers",
            "readers",
            Course::Readers,
            "-",
            size(100_000, 10_000),
            3,
            &[STORE, GO_STORE, MUTEX],
        ),
    ]
}

/// Where the programs and files are.
pub(crate) struct Places {
    pub(crate) programs: PathBuf,
    pub(crate) client_go: PathBuf,
    pub(crate) authority: PathBuf,
}

impl Places {
    fn program(&self, name: &str) -> PathBuf {
        if name == GO {
            self.client_go.clone()
        } else {
            self.programs.join(name)
        }
    }
}

/// How often a bookmark is sent to each watch.
const BOOKMARKS: usize = 5;

/// A measured value and its name.
pub(crate) type Measured = (&'static str, f64);

impl Case {
    /// The server of all its rounds, and where it answers.
    pub(crate) fn serve(&self, places: &Places) -> Result<(Program, String), String> {
        let transport = if self.is_tls { "tls" } else { "plain" };
        let events = match self.course {
            Course::Collection { events, .. } => events,
            _ => 0,
        };
        // Some ask the server for nothing.
        let (resource, count) = match self.course {
            Course::Waiters | Course::Readers => ("secrets", 1),
            _ => (self.resource, self.count),
        };
        let needs = |side: &Side| side.way.ends_with("protobuf");
        let encoder = if self.sides.iter().any(needs) {
            places.client_go.to_str().unwrap()
        } else {
            "-"
        };
        let (count, events) = (count.to_string(), events.to_string());
        let arguments = ["serve", transport, resource, &count, &events, encoder];
        let server = Program::start(&places.programs.join("peers"), &arguments);
        let port = server.line()?;
        let scheme = if self.is_tls { "https" } else { "http" };
        Ok((server, format!("{scheme}://127.0.0.1:{port}")))
    }

    /// One side, once.
    pub(crate) fn measure(
        &self,
        side: Side,
        places: &Places,
        server: &mut Program,
        url: &str,
    ) -> Result<Vec<Measured>, String> {
        // A watch that the side before has left is closed by now.
        self.wait_for_watches(server, 0)?;
        let path = places.program(side.program);
        let is_store = side.way.starts_with("store") || side == MUTEX;
        let scenario = match self.course {
            Course::Collection { .. } => "collection",
            Course::Reads if is_store || side.program == KUBE_RS => "store",
            Course::Watches | Course::Reads | Course::Open => "watches",
            Course::Waiters => "waiters",
            Course::Readers => "readers",
        };
        let (authority, count) = (places.authority.to_str().unwrap(), self.count.to_string());
        let arguments = [scenario, side.way, self.resource, url, authority, &count];
        let mut program = Program::start(Path::new(&path), &arguments);
        program.expect("up")?;
        match self.course {
            Course::Collection { events: 0, .. } => self.list(&mut program),
            Course::Collection { events, rate } => follow(&mut program, server, events, rate),
            Course::Watches => self.watch(&mut program, server, side),
            Course::Open => self.open(&mut program, server),
            Course::Reads => reads(&mut program),
            Course::Waiters => waiters(&mut program),
            Course::Readers => readers(&mut program),
        }
    }

    fn wait_for_watches(&self, server: &mut Program, count: usize) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            server.order("watches")?;
            let open: usize = server.line()?.parse().unwrap();
            if open == count {
                return Ok(());
            }
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(format!("{open} watches instead of {count}"));
            }
            pause(Duration::from_millis(5));
        }
    }

    /// Until each has been read, and its watch is open: CPU time, and bytes each.
    fn open(&self, program: &mut Program, server: &mut Program) -> Result<Vec<Measured>, String> {
        let (cpu, resident) = (program.cpu_at_rest(), program.resident());
        program.order("go")?;
        program.expect("read")?;
        self.wait_for_watches(server, self.count)?;
        let open = program.cpu() - cpu;
        program.cpu_at_rest();
        let each = (program.resident() - resident) / self.count as f64;
        let us_each = open * 1e6 / self.count as f64;
        Ok(vec![("cpu", open), ("us", us_each), ("kib", each / 1024.0)])
    }

    fn list(&self, program: &mut Program) -> Result<Vec<Measured>, String> {
        let (cpu, resident) = (program.cpu_at_rest(), program.resident());
        program.order("go")?;
        program.expect("synced")?;
        let cpu = program.cpu_at_rest() - cpu;
        let more = program.resident() - resident;
        let count = self.count as f64;
        Ok(vec![
            ("cpu", cpu),
            ("mb", more / 1e6),
            ("us", cpu * 1e6 / count),
            ("kib", more / 1024.0 / count),
        ])
    }

    fn watch(
        &self,
        program: &mut Program,
        server: &mut Program,
        side: Side,
    ) -> Result<Vec<Measured>, String> {
        let mut measured = self.open(program, server)?;
        let before = program.cpu_at_rest();
        let mut after = before;
        for _ in 0..BOOKMARKS {
            server.order("bookmark")?;
            after = program.cpu_at_rest();
        }
        let bookmarks = (BOOKMARKS * self.count) as f64;
        measured.push(("bookmark", (after - before) * 1e6 / bookmarks));
        for _ in 0..BOOKMARKS {
            server.order("spread")?;
            server.expect("spread")?;
        }
        let spread = program.cpu_at_rest() - after;
        measured.push(("spread", spread * 1e6 / bookmarks));
        // The kubelet's managers cannot be joined.
        if side.program != GO || side.way.starts_with("reflectors") {
            program.order("stop")?;
            measured.push(("stop", program.expect("stopped")?[0]));
        }
        Ok(measured)
    }
}

fn follow(
    program: &mut Program,
    server: &mut Program,
    events: usize,
    rate: Option<usize>,
) -> Result<Vec<Measured>, String> {
    program.order("go")?;
    program.expect("synced")?;
    while {
        server.order("watches")?;
        server.line()? != "1"
    } {
        pause(Duration::from_millis(5));
    }
    let before = program.cpu_at_rest();
    let order = rate.map_or("events".to_owned(), |rate| format!("paced {rate}"));
    program.order(&order)?;
    let begun = Instant::now();
    server.order(&order)?;
    program.expect("done")?;
    let wall = begun.elapsed().as_secs_f64();
    let cpu = program.cpu_at_rest() - before;
    let events = events as f64;
    Ok(vec![("each", cpu * 1e6 / events), ("rate", events / wall)])
}

fn reads(program: &mut Program) -> Result<Vec<Measured>, String> {
    program.order("go")?;
    program.expect("read")?;
    program.cpu_at_rest();
    program.order("get")?;
    let got = program.expect("got")?;
    Ok(vec![("one", got[0]), ("two", got[1])])
}

fn waiters(program: &mut Program) -> Result<Vec<Measured>, String> {
    program.order("go")?;
    let waited = program.expect("waited")?;
    Ok(vec![("one", waited[0]), ("all", waited[1])])
}

fn readers(program: &mut Program) -> Result<Vec<Measured>, String> {
    program.order("go")?;
    let waited = program.expect("waited")?;
    let names = ["rate", "write", "paced", "list", "get"];
    Ok(names.into_iter().zip(waited).collect())
}
