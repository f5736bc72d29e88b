//! The table: a line for each thing that is compared, medians with the least and the most.

use std::collections::HashMap;

use crate::cases::{
    CACHE, CONDVAR, GO_CACHE, GO_INFORMER, GO_INFORMER_PROTOBUF, GO_MANAGER, GO_MANAGER_PROTOBUF,
    GO_REFLECTORS, GO_REFLECTORS_PROTOBUF, GO_STORE, GO_STORE_PROTOBUF, INFORMER, MANAGER, MUTEX,
    RAW, REFLECT, REFLECTORS, STORE, STRIPPED, Side, THREADS, TYPED,
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
| of kube-rs | of client-go |
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
        let of_go = line
            .go
            .iter()
            .filter_map(|side| ratio(*side))
            .reduce(f64::max);
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
            text(ratio(line.kube_rs)),
            text(of_go),
        );
    }
    println!();
    println!(
        "Medians (least-most of the rounds). The last two columns: kubecache's cost over the \
         peer's, of client-go's encodings the better one; above 1 the peer is ahead."
    );
}

fn lines() -> Vec<Line> {
    let line = |text, case, what, ours, kube_rs, go, floors, goal| Line {
        text,
        case,
        what,
        ours,
        kube_rs,
        go,
        floors,
        goal,
    };
    let stores = [Some(GO_STORE), Some(GO_STORE_PROTOBUF)];
    let informers = [Some(GO_INFORMER), Some(GO_INFORMER_PROTOBUF)];
    let managers = [Some(GO_MANAGER), Some(GO_MANAGER_PROTOBUF)];
    let reflectors = [Some(GO_REFLECTORS), Some(GO_REFLECTORS_PROTOBUF)];
    let floors = [Some(TYPED), Some(RAW)];
    let threads = [Some(THREADS), None];
    let none = [None; 2];
    let (kube_rs, stripped) = (Some(REFLECT), Some(STRIPPED));
    let [config_maps, pods] = ["events of ConfigMaps", "events of pods"];
    let [listed_maps, listed_pods] = ["list of ConfigMaps", "list of pods"];
    let [plain, tls, many] = ["watches", "TLS watches", "many TLS watches"];
    vec![
        line(
            "an event of a ConfigMap into a store, CPU us",
            config_maps,
            "each",
            STORE,
            kube_rs,
            stores,
            floors,
            Some(9.0),
        ),
        line(
            "the same, events/s",
            config_maps,
            "rate",
            STORE,
            kube_rs,
            stores,
            floors,
            Some(110_000.0),
        ),
        line(
            "through an informer, CPU us",
            config_maps,
            "each",
            INFORMER,
            None,
            informers,
            none,
            None,
        ),
        line(
            "the same, events/s",
            config_maps,
            "rate",
            INFORMER,
            None,
            informers,
            none,
            None,
        ),
        line(
            "an event of a pod with managedFields, CPU us",
            pods,
            "each",
            STORE,
            kube_rs,
            stores,
            floors,
            Some(45.0),
        ),
        line(
            "the same, events/s",
            pods,
            "rate",
            STORE,
            kube_rs,
            stores,
            floors,
            Some(23_000.0),
        ),
        line(
            "through an informer, CPU us",
            pods,
            "each",
            INFORMER,
            None,
            informers,
            none,
            None,
        ),
        line(
            "the same, events/s",
            pods,
            "rate",
            INFORMER,
            None,
            informers,
            none,
            None,
        ),
        line(
            "a bookmark on an idle watch of a manager, CPU us",
            plain,
            "bookmark",
            MANAGER,
            kube_rs,
            managers,
            threads,
            Some(12.0),
        ),
        line(
            "the same, TLS",
            tls,
            "bookmark",
            MANAGER,
            kube_rs,
            managers,
            none,
            None,
        ),
        line(
            "on an idle watch of a reflector, CPU us",
            plain,
            "bookmark",
            REFLECTORS,
            kube_rs,
            reflectors,
            threads,
            Some(12.0),
        ),
        line(
            "20,000 ConfigMaps synced, CPU s",
            listed_maps,
            "cpu",
            STORE,
            kube_rs,
            stores,
            floors,
            Some(0.16),
        ),
        line(
            "the same, MB resident",
            listed_maps,
            "mb",
            STORE,
            kube_rs,
            stores,
            floors,
            Some(65.0),
        ),
        line(
            "20,000 pods synced, CPU s",
            listed_pods,
            "cpu",
            STORE,
            kube_rs,
            stores,
            floors,
            Some(0.85),
        ),
        line(
            "the same, MB resident",
            listed_pods,
            "mb",
            STORE,
            kube_rs,
            stores,
            floors,
            Some(400.0),
        ),
        line(
            "the same pods, kube-rs stripping managedFields, CPU s",
            listed_pods,
            "cpu",
            STORE,
            stripped,
            none,
            none,
            None,
        ),
        line(
            "the same, MB resident",
            listed_pods,
            "mb",
            STORE,
            stripped,
            none,
            none,
            None,
        ),
        line(
            "1,000 TLS watches of a manager, KiB each",
            tls,
            "kib",
            MANAGER,
            kube_rs,
            managers,
            none,
            Some(36.0),
        ),
        line(
            "the same, CPU s until read",
            tls,
            "cpu",
            MANAGER,
            kube_rs,
            managers,
            none,
            Some(0.40),
        ),
        line(
            "1,000 TLS watches of reflectors, KiB each",
            tls,
            "kib",
            REFLECTORS,
            kube_rs,
            reflectors,
            none,
            None,
        ),
        line(
            "the same, CPU s until read",
            tls,
            "cpu",
            REFLECTORS,
            kube_rs,
            reflectors,
            none,
            None,
        ),
        line(
            "1,000 watches of a manager without TLS, KiB each",
            plain,
            "kib",
            MANAGER,
            kube_rs,
            managers,
            threads,
            Some(30.0),
        ),
        line(
            "the same, CPU s until read",
            plain,
            "cpu",
            MANAGER,
            kube_rs,
            managers,
            threads,
            Some(0.15),
        ),
        line(
            "8,000 TLS watches of a manager, CPU s until open",
            many,
            "cpu",
            MANAGER,
            kube_rs,
            managers,
            none,
            Some(3.0),
        ),
        line(
            "the same, KiB each",
            many,
            "kib",
            MANAGER,
            kube_rs,
            managers,
            none,
            None,
        ),
        line(
            "a cached get of a manager, ns",
            "reads",
            "one",
            MANAGER,
            None,
            [Some(GO_MANAGER), None],
            [Some(MUTEX), None],
            Some(60.0),
        ),
        line(
            "the same, each of two threads",
            "reads",
            "two",
            MANAGER,
            None,
            [Some(GO_MANAGER), None],
            [Some(MUTEX), None],
            Some(80.0),
        ),
        line(
            "a get from a store, ns",
            "reads",
            "one",
            STORE,
            kube_rs,
            [Some(GO_STORE), None],
            [Some(MUTEX), None],
            Some(60.0),
        ),
        line(
            "the same, each of two threads",
            "reads",
            "two",
            STORE,
            kube_rs,
            [Some(GO_STORE), None],
            [Some(MUTEX), None],
            Some(80.0),
        ),
        line(
            "a pod status set to its waiter that runs, us",
            "waiters",
            "one",
            CACHE,
            None,
            [Some(GO_CACHE), None],
            [Some(CONDVAR), None],
            Some(18.0),
        ),
        line(
            "1,000 waiters released at once, ms",
            "waiters",
            "all",
            CACHE,
            None,
            [Some(GO_CACHE), None],
            [Some(CONDVAR), None],
            Some(2.8),
        ),
        line(
            "1,000 watches stopped and joined, s",
            plain,
            "stop",
            MANAGER,
            kube_rs,
            reflectors,
            threads,
            Some(0.05),
        ),
        line(
            "the same, TLS",
            tls,
            "stop",
            MANAGER,
            kube_rs,
            reflectors,
            none,
            Some(0.06),
        ),
        line(
            "1,000 reflectors stopped and joined, s",
            plain,
            "stop",
            REFLECTORS,
            kube_rs,
            reflectors,
            threads,
            Some(0.05),
        ),
        line(
            "the same, TLS",
            tls,
            "stop",
            REFLECTORS,
            kube_rs,
            reflectors,
            none,
            Some(0.06),
        ),
    ]
}
