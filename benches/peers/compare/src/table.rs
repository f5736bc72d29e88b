//! The table: a line for each thing that is compared, medians with the least and the most.

use std::collections::HashMap;

use crate::cases::{
    CACHE, COMPACT, CONDVAR, GO_CACHE, GO_INFORMER, GO_INFORMER_PROTOBUF, GO_MANAGER,
    GO_MANAGER_LOOKS, GO_MANAGER_PROTOBUF, GO_PODS, GO_PODS_PROTOBUF, GO_REFLECTORS,
    GO_REFLECTORS_PROTOBUF, GO_STORE, GO_STORE_LOOKS, GO_STORE_PROTOBUF, INFORMER, MANAGER,
    MANAGER_LOOKS, MUTEX, PODS, RAW, REFLECT, REFLECT_LOOKS, REFLECTORS, STORE, STORE_LOOKS,
    STRIPPED, Side, THREADS, TYPED,
};

/// All that was measured.
#[derive(Default)]
pub(crate) struct Results(
    HashMap<(&'static str, &'static str, &'static str, &'static str), Vec<f64>>,
);

impl Results {
    pub(crate) fn add(&mut self, case: &'static str, side: Side, what: &'static str, value: f64) {
        let key = (case, side.program, side.way, what);
        self.0.entry(key).or_default().push(value);
    }

    fn of(&self, line: &Line, side: Option<Side>) -> Option<Spread> {
        let side = side?;
        let key = (line.case, side.program, side.way, line.what);
        Spread::of(self.0.get(&key)?)
    }
}

/// The median, and how far the others were from it.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        Some(Self {
            median: *values.get(values.len() / 2)?,
            least: *values.first()?,
            most: *values.last()?,
        })
    }

    fn text(self) -> String {
        let [median, least, most] = [self.median, self.least, self.most].map(short);
        if least == most {
            median
        } else {
            format!("{median} ({least}-{most})")
        }
    }
}

/// Three digits that matter.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        large if large >= 100.0 => format!("{value:.0}"),
        large if large >= 10.0 => format!("{value:.1}"),
        large if large >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A line of the table.
struct Line {
    text: &'static str,
    case: &'static str,
    what: &'static str,
    ours: Side,
    kube_rs: Option<Side>,
    /// JSON, and protobuf.
    go: [Option<Side>; 2],
    floors: [Option<Side>; 2],
    goal: Option<f64>,
}

pub(crate) const HEAD: &str = "\
| work | kubecache | goal | kube-rs | client-go JSON | protobuf | floor: typed | raw \
| of the floor | of the best peer |
|---|---|---|---|---|---|---|---|---|---|";

/// The table of what was measured.
pub(crate) fn print(results: &Results) {
    println!("{HEAD}");
    for line in lines() {
        let Some(ours) = results.of(&line, Some(line.ours)) else {
            continue;
        };
        let cell = |side| results.of(&line, side).map_or("-".to_owned(), Spread::text);
        let is_rate = line.what == "rate";
        // Above 1 the peer is better, whichever way the figure counts.
        let ratio = |side| {
            let other = results.of(&line, side)?.median;
            let ratio = ours.median / other;
            Some(if is_rate { 1.0 / ratio } else { ratio })
        };
        let text = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let peers = [line.kube_rs, line.go[0], line.go[1]].into_iter();
        let of_best = peers.filter_map(ratio).reduce(f64::max);
        let goal = line.goal.map_or("-".to_owned(), |goal| {
            let is_met = if is_rate {
                ours.median >= goal
            } else {
                ours.median <= goal
            };
            let verdict = if is_met { "met" } else { "**missed**" };
            format!("{}: {verdict}", short(goal))
        });
        println!(
            "| {} | {} | {goal} | {} | {} | {} | {} | {} | {} | {} |",
            line.text,
            ours.text(),
            cell(line.kube_rs),
            cell(line.go[0]),
            cell(line.go[1]),
            cell(line.floors[0]),
            cell(line.floors[1]),
            text(ratio(line.floors[0])),
            text(of_best),
        );
    }
    println!();
    println!(
        "Medians (least-most of the rounds). The last two columns: kubecache's cost over that of \
         the floor, and of whichever peer and encoding is best; above 1 that one is ahead."
    );
}

/// What a line says, the measured value that it shows, and its goal.
type Row = (&'static str, &'static str, Option<f64>);

/// Who is compared.
#[derive(Clone, Copy)]
struct Sides {
    ours: Side,
    kube_rs: Option<Side>,
    go: [Option<Side>; 2],
    floors: [Option<Side>; 2],
}

impl Sides {
    const fn of(ours: Side) -> Self {
        Self {
            ours,
            kube_rs: Some(REFLECT),
            go: [None; 2],
            floors: [None; 2],
        }
    }

    const fn with_go(mut self, json: Side, protobuf: Side) -> Self {
        self.go = [Some(json), Some(protobuf)];
        self
    }

    const fn with_floors(mut self, one: Side, other: Option<Side>) -> Self {
        self.floors = [Some(one), other];
        self
    }
}

fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |case, sides: &Sides, rows: &[Row]| {
        lines.extend(rows.iter().map(|(text, what, goal)| Line {
            text,
            case,
            what,
            ours: sides.ours,
            kube_rs: sides.kube_rs,
            go: sides.go,
            floors: sides.floors,
            goal: *goal,
        }));
    };
    let store = Sides::of(STORE)
        .with_go(GO_STORE, GO_STORE_PROTOBUF)
        .with_floors(TYPED, Some(RAW));
    let compact = Sides::of(COMPACT);
    let informer = Sides {
        kube_rs: None,
        ..Sides::of(INFORMER).with_go(GO_INFORMER, GO_INFORMER_PROTOBUF)
    };
    let stripped = Sides {
        kube_rs: Some(STRIPPED),
        ..Sides::of(STORE)
    };
    let manager = Sides::of(MANAGER).with_go(GO_MANAGER, GO_MANAGER_PROTOBUF);
    let reflectors = Sides::of(REFLECTORS).with_go(GO_REFLECTORS, GO_REFLECTORS_PROTOBUF);
    // The kubelet's managers cannot be joined.
    let stops = Sides::of(MANAGER).with_go(GO_REFLECTORS, GO_REFLECTORS_PROTOBUF);
    let by_pods = Sides {
        kube_rs: None,
        ..Sides::of(PODS).with_go(GO_PODS, GO_PODS_PROTOBUF)
    };
    let manager_looks = Sides {
        kube_rs: None,
        go: [Some(GO_MANAGER_LOOKS), None],
        ..Sides::of(MANAGER_LOOKS)
    };
    let store_looks = Sides {
        kube_rs: Some(REFLECT_LOOKS),
        go: [Some(GO_STORE_LOOKS), None],
        ..Sides::of(STORE_LOOKS)
    };
    let manager_reads = Sides {
        kube_rs: None,
        go: [Some(GO_MANAGER), None],
        ..Sides::of(MANAGER).with_floors(MUTEX, None)
    };
    let store_reads = Sides {
        go: [Some(GO_STORE), None],
        ..Sides::of(STORE).with_floors(MUTEX, None)
    };
    let waiters = Sides {
        kube_rs: None,
        go: [Some(GO_CACHE), None],
        ..Sides::of(CACHE).with_floors(CONDVAR, None)
    };
    let readers = Sides {
        kube_rs: None,
        go: [Some(GO_STORE), None],
        ..Sides::of(STORE).with_floors(MUTEX, None)
    };

    let [maps, pods] = ["events of ConfigMaps", "events of pods"];
    let event = "an event of a ConfigMap into a store, CPU us";
    let rate = "the same, events/s";
    add(
        maps,
        &store,
        &[(event, "each", Some(9.0)), (rate, "rate", Some(110_000.0))],
    );
    let through = "through an informer, CPU us";
    add(
        maps,
        &informer,
        &[(through, "each", None), (rate, "rate", None)],
    );
    add(
        maps,
        &compact,
        &[("into a store of `Compact`, CPU us", "each", None)],
    );
    let event = "an event of a pod with managedFields, CPU us";
    add(
        pods,
        &store,
        &[(event, "each", Some(45.0)), (rate, "rate", Some(23_000.0))],
    );
    add(
        pods,
        &informer,
        &[(through, "each", None), (rate, "rate", None)],
    );
    add(
        pods,
        &compact,
        &[("into a store of `Compact`, CPU us", "each", Some(20.0))],
    );

    let [maps, pods] = ["ConfigMaps at a pace", "pods at a pace"];
    let compactly = "into a store of `Compact`, CPU us";
    let event = "a ConfigMap event at 2,000 a second, CPU us";
    add(maps, &store, &[(event, "each", Some(26.0))]);
    add(maps, &informer, &[(through, "each", None)]);
    add(maps, &compact, &[(compactly, "each", None)]);
    let event = "a pod event at 500 a second, CPU us";
    add(pods, &store, &[(event, "each", Some(150.0))]);
    add(pods, &informer, &[(through, "each", None)]);
    add(pods, &compact, &[(compactly, "each", None)]);

    let [maps, pods] = ["list of ConfigMaps", "list of pods"];
    let resident = "the same, MB resident";
    let synced = "20,000 ConfigMaps synced, CPU s";
    add(
        maps,
        &store,
        &[(synced, "cpu", Some(0.16)), (resident, "mb", Some(65.0))],
    );
    let compactly = "the same as `Compact`, CPU s";
    add(
        maps,
        &compact,
        &[(compactly, "cpu", Some(0.10)), (resident, "mb", Some(30.0))],
    );
    let synced = "20,000 pods synced, CPU s";
    add(
        pods,
        &store,
        &[(synced, "cpu", Some(0.85)), (resident, "mb", Some(400.0))],
    );
    add(
        pods,
        &compact,
        &[(compactly, "cpu", Some(0.40)), (resident, "mb", Some(90.0))],
    );
    let strips = "the same pods, kube-rs stripping managedFields, CPU s";
    add(
        pods,
        &stripped,
        &[(strips, "cpu", None), (resident, "mb", None)],
    );

    let [plain, tls, many] = ["watches", "TLS watches", "many TLS watches"];
    let bookmark = "a bookmark on an idle watch of a manager, CPU us";
    let [plain_manager, plain_reflectors, plain_stops] =
        [manager, reflectors, stops].map(|sides| sides.with_floors(THREADS, None));
    let spread = "the same, one after another within a second";
    add(
        plain,
        &plain_manager,
        &[(bookmark, "bookmark", Some(12.0)), (spread, "spread", None)],
    );
    add(
        tls,
        &manager,
        &[
            ("the same, TLS", "bookmark", None),
            (spread, "spread", None),
        ],
    );
    let bookmark = "on an idle watch of a reflector, CPU us";
    add(
        plain,
        &plain_reflectors,
        &[(bookmark, "bookmark", Some(12.0))],
    );
    let until_read = "the same, CPU s until read";
    let each = "1,000 TLS watches of a manager, KiB each";
    add(
        tls,
        &manager,
        &[(each, "kib", Some(36.0)), (until_read, "cpu", Some(0.40))],
    );
    let each = "1,000 TLS watches of reflectors, KiB each";
    add(
        tls,
        &reflectors,
        &[(each, "kib", None), (until_read, "cpu", None)],
    );
    let each = "1,000 watches of a manager without TLS, KiB each";
    add(
        plain,
        &plain_manager,
        &[(each, "kib", Some(30.0)), (until_read, "cpu", Some(0.15))],
    );
    let each = "1,000 watches by pods of ten Secrets, KiB each";
    add(
        plain,
        &by_pods.with_floors(THREADS, None),
        &[(each, "kib", None), (until_read, "cpu", None)],
    );
    add(
        tls,
        &by_pods,
        &[("the same, TLS", "kib", None), (until_read, "cpu", None)],
    );
    let open = "8,000 TLS watches of a manager, CPU s until open";
    add(
        many,
        &manager,
        &[
            (open, "cpu", Some(3.0)),
            ("the same, KiB each", "kib", None),
        ],
    );

    let two = "the same, each of two threads";
    let get = "a cached get of a manager, ns";
    add(
        "reads",
        &manager_reads,
        &[(get, "one", Some(60.0)), (two, "two", Some(80.0))],
    );
    let get = "a get from a store, ns";
    add(
        "reads",
        &store_reads,
        &[(get, "one", Some(60.0)), (two, "two", Some(80.0))],
    );
    let look = "a cached get of a manager and a look at its data, ns";
    add(
        "reads",
        &manager_looks,
        &[(look, "one", None), (two, "two", None)],
    );
    let look = "a get from a store and a look at its data, ns";
    add(
        "reads",
        &store_looks,
        &[(look, "one", None), (two, "two", None)],
    );
    let one = "a pod status set to its waiter that runs, us";
    let all = "1,000 waiters released at once, ms";
    add(
        "waiters",
        &waiters,
        &[(one, "one", Some(18.0)), (all, "all", Some(2.8))],
    );

    let write = "a write to 100,000 objects beside 50 readers, p99.9, us";
    add(
        "readers",
        &readers,
        &[
            (write, "write", Some(1000.0)),
            ("the same, at 2,000 writes a second", "paced", Some(1000.0)),
            ("writes/s at full rate", "rate", None),
            ("a list beside it, p99.9, us", "list", None),
            ("a get beside it, p99.9, us", "get", None),
        ],
    );

    let tls_too = "the same, TLS";
    let stopped = "1,000 watches stopped and joined, s";
    add(plain, &plain_stops, &[(stopped, "stop", Some(0.05))]);
    add(tls, &stops, &[(tls_too, "stop", Some(0.06))]);
    let stopped = "1,000 reflectors stopped and joined, s";
    add(plain, &plain_reflectors, &[(stopped, "stop", Some(0.05))]);
    add(tls, &reflectors, &[(tls_too, "stop", Some(0.06))]);

    let kib = "the same, KiB each";
    add(
        "5,000 ConfigMaps",
        &store,
        &[
            ("5,000 ConfigMaps, CPU us each", "us", None),
            (kib, "kib", None),
        ],
    );
    add(
        "80,000 ConfigMaps",
        &store,
        &[
            ("80,000 ConfigMaps, CPU us each", "us", None),
            (kib, "kib", None),
        ],
    );
    add(
        "250 TLS watches",
        &manager,
        &[
            ("250 TLS watches, CPU us each", "us", None),
            (kib, "kib", None),
        ],
    );
    add(
        many,
        &manager,
        &[
            ("8,000 TLS watches, CPU us each", "us", None),
            (kib, "kib", None),
        ],
    );
    lines
}
