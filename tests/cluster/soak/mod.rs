//! The soak: caches of all sorts in one process follow objects that change all the time, while the
//! servers, the way to them and the program itself fail. After each trouble has healed, every cache
//! and every file equals a consistent list, within the bound that the page on failures names.
//!
//! `tests/cluster/run -- soak` runs it.

mod caches;
mod content;
mod program;
mod table;
mod trouble;
mod writer;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use kubecache::clock::{Clock, Deadline};
use kubecache::fence::WriteFence;
use kubecache::http::Client;
use kubecache::worker::StopToken;
use log::{LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::churn::State;
use super::proxies::Proxy;
use super::site::{Rotation, site};
use super::support::*;
use caches::{Caches, Reader};
use content::Content;
use table::Table;
use trouble::{Site, Trouble};
use writer::{NAMES, Writer, name_of};

const NAMESPACE: &str = "soak";
const NODE: &str = "soak-node";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Between two writes.
const WRITES: Duration = Duration::from_millis(25);

/// How long all is well, at least, before the next trouble.
const CALM: u64 = 2_000;

const MINUTES: &str = "KUBECACHE_SOAK_MINUTES";
const SEED: &str = "KUBECACHE_TEST_SEED";

/// Who is behind the proxy, whose rights come and go.
const ACCOUNT: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: soak}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: soak}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: soak-user, namespace: soak}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: soak-user, namespace: soak}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: soak-user, namespace: soak}]
";

/// Numbers from a seed.
#[derive(Clone)]
struct Random(u64);

impl Random {
    /// Below the limit, which is not 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(u64::try_from(last + 1).unwrap());
            items.swap(last, usize::try_from(other).unwrap());
        }
    }
}

fn pause(time: Duration) {
    let clock = Clock::system();
    StopToken::never().wait_until(&clock, clock.after(time));
}

/// The lines of the crate's log, for whoever looks into a failure.
struct LogFile(Mutex<File>, Instant);

impl Log for LogFile {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("kubecache") || metadata.target().contains("soak")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let at = self.1.elapsed().as_secs_f64();
            let (level, text) = (record.level(), record.args());
            drop(writeln!(self.0.lock(), "{at:.3} {level} {text}"));
        }
    }

    fn flush(&self) {}
}

static LOG: OnceLock<LogFile> = OnceLock::new();

fn log_to_a_file(seed: u64) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{seed}.log"));
    let file = || {
        LogFile(
            Mutex::new(File::create(&path).unwrap()),
            Clock::system().now(),
        )
    };
    log::set_logger(LOG.get_or_init(file)).unwrap();
    log::set_max_level(LevelFilter::Debug);
    path
}

/// Of this process: resident KiB, and threads.
fn usage() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let of = |field: &str| -> u64 {
        let found = status.lines().find_map(|line| line.strip_prefix(field));
        let number = found.unwrap().split_whitespace().next().unwrap();
        number.parse().unwrap()
    };
    (of("VmRSS:"), of("Threads:"))
}

/// The number in a variable of the environment.
fn given(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number")),
    )
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run -- soak"]
fn all_caches_are_equal_after_each_trouble() {
    let _alone = cluster_alone();
    let seed = given(SEED).unwrap_or_else(|| RandomState::new().hash_one(()));
    let minutes = given(MINUTES).unwrap_or(5);
    let log = log_to_a_file(seed);
    println!("{SEED}={seed} {MINUTES}={minutes}; log: {}", log.display());
    let soak = Soak::start(seed);
    let end = Clock::system().after(Duration::from_secs(minutes * 60));
    let stop = AtomicBool::new(false);
    let table = thread::scope(|scope| {
        scope.spawn(|| soak.write_until(&stop));
        scope.spawn(|| soak.read_until(&stop));
        // The threads end with a failure, too.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| soak.run(end)));
        stop.store(true, Ordering::SeqCst);
        ended
    });
    match table {
        Ok(table) => println!("{}", table.text()),
        Err(failure) => std::panic::resume_unwind(failure),
    }
}

struct Soak {
    seed: u64,
    started: Instant,
    admin: Client,
    site: Mutex<Site>,
    caches: Caches,
    writer: Mutex<Writer>,
    fence: Arc<WriteFence>,
    /// What readers saw that must not be.
    wrong: Mutex<Vec<String>>,
    reads: Mutex<u64>,
}

impl Soak {
    fn start(seed: u64) -> Self {
        apply(ACCOUNT);
        let admin = client_of("admin.yaml");
        let proxy = Proxy::start("http", "127.0.0.1:0");
        let rotation = Rotation::new("soak-trusted.crt");
        let stage = site("soak", (NAMESPACE, "soak-user"), &proxy, &rotation);
        let mut caches = Caches::start(&client_of("admin.yaml"), &stage.client("soak"));
        let fence = Arc::new(WriteFence::new(Clock::system()));
        let writer = Writer {
            client: client_of("admin.yaml"),
            random: Random(seed),
            fence: Arc::clone(&fence),
            fenced: std::mem::take(&mut caches.fenced),
            answers: BTreeMap::new(),
            writes: 0,
            failures: 0,
        };
        let site = Site {
            admin: admin.clone(),
            proxy: Some(proxy),
            rotation,
            binding: binding(),
        };
        Self {
            seed,
            started: Clock::system().now(),
            admin,
            site: Mutex::new(site),
            caches,
            writer: Mutex::new(writer),
            fence,
            wrong: Mutex::default(),
            reads: Mutex::default(),
        }
    }

    fn write_until(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            self.writer.lock().write();
            pause(WRITES);
        }
    }

    /// No read of a cache goes back.
    fn read_until(&self, stop: &AtomicBool) {
        let mut last = BTreeMap::<(usize, String), State>::new();
        while !stop.load(Ordering::SeqCst) {
            for (number, reader) in self.caches.readers.iter().enumerate() {
                for name in (0..NAMES).map(|number| name_of(reader.prefix, number)) {
                    let Some(state) = (reader.read)(&name) else {
                        continue;
                    };
                    *self.reads.lock() += 1;
                    let before = last.insert((number, name.clone()), state.clone());
                    if let Some(before) = before
                        && before.0 == state.0
                        && before.1 > state.1
                    {
                        let cache = &reader.cache;
                        let text = format!("{cache}: {name} went from {before:?} to {state:?}");
                        self.wrong.lock().push(text);
                    }
                }
            }
            pause(Duration::from_millis(20));
        }
    }

    /// One trouble after the other, each kind once before any comes again.
    fn run(&self, end: Deadline) -> Table {
        let clock = Clock::system();
        let mut random = Random(self.seed ^ 1);
        let mut ahead = Vec::new();
        let mut table = Table::new();
        pause(Duration::from_secs(3));
        self.be_equal("the start", Duration::from_secs(120), &mut table);
        let (before, mut used) = (usage(), Vec::new());
        let of = |part: &[u64]| u64::try_from(part.len()).unwrap();
        while !clock.has_passed(end) {
            if ahead.is_empty() {
                ahead.extend(Trouble::ALL);
                random.shuffle(&mut ahead);
            }
            let trouble = ahead.pop().unwrap();
            pause(Duration::from_millis(CALM + random.below(4_000)));
            let long = random.below(4) == 0;
            let away = if long {
                20_000 + random.below(25_000)
            } else {
                500 + random.below(8_000)
            };
            let away = Duration::from_millis(away);
            log::info!(target: "soak", "{trouble:?} for {away:.1?}");
            let program = self.caches.program.as_ref().unwrap();
            let restart = || program.restart();
            self.site.lock().befall(trouble, away, &restart);
            log::info!(target: "soak", "{trouble:?} is over");
            let name = format!("{trouble:?}");
            let took = self.be_equal(&name, trouble.bound(), &mut table);
            let (at, (memory, threads)) = (self.started.elapsed(), usage());
            println!(
                "{at:6.1?}  {name} for {away:.1?}: all equal {took:.1?} later; {memory} KiB, \
                 {threads} threads"
            );
            used.push(memory);
        }
        let after = usage();
        table.add_line(format!(
            "at the start {} KiB and {} threads, at the end {} KiB and {} threads",
            before.0, before.1, after.0, after.1
        ));
        let quarters = used.chunks(used.len().div_ceil(4).max(1));
        let quarters: Vec<_> = quarters
            .map(|part| part.iter().sum::<u64>() / of(part))
            .collect();
        table.add_line(format!("resident KiB in each quarter: {quarters:?}"));
        let (writer, reads) = (self.writer.lock(), *self.reads.lock());
        table.add_line(format!(
            "{} writes, of which {} failed; {reads} reads, none of which went back",
            writer.writes, writer.failures
        ));
        table
    }

    /// Blocks until every cache equals a consistent list, while no one writes. It fails with what
    /// is otherwise after the bound.
    fn be_equal(&self, after: &str, bound: Duration, table: &mut Table) -> Duration {
        let healed = Clock::system().now();
        let mut writer = self.writer.lock();
        while let Err(error) = writer.refer_anew() {
            assert!(healed.elapsed() < bound, "no new pod: {error}");
            pause(Duration::from_millis(100));
        }
        let writer = &*writer;
        let mut late: BTreeMap<&str, Duration> = BTreeMap::new();
        thread::scope(|scope| {
            let seen = scope.spawn(|| {
                let seen = Writer::wait_until_seen(&self.fence, bound);
                (seen, healed.elapsed(), self.behind_the_fence(writer))
            });
            loop {
                let content = self.content(healed, bound);
                let mut unequal = Vec::new();
                for cache in &self.caches.all {
                    late.entry(&cache.name).or_default();
                    if let Some(difference) = cache.difference(&content) {
                        let waited = healed.elapsed();
                        late.insert(&cache.name, waited);
                        let is_over = waited > bound + cache.extra;
                        unequal.push((is_over, format!("{}: {difference}", cache.name)));
                    }
                }
                if unequal.iter().any(|(is_over, _)| *is_over) {
                    self.fail(after, healed, unequal.into_iter().map(|(_, text)| text));
                }
                if unequal.is_empty() {
                    break;
                }
                pause(Duration::from_millis(50));
            }
            let (seen, took, behind) = seen.join().unwrap();
            let unseen = seen.err().map(|error| format!("the fence: {error}"));
            let wrong = std::mem::take(&mut *self.wrong.lock());
            let all: Vec<_> = unseen.into_iter().chain(behind).chain(wrong).collect();
            if !all.is_empty() {
                self.fail(after, healed, all.into_iter());
            }
            late.insert("fence", took);
        });
        for (cache, late) in &late {
            table.add(after, cache, *late);
        }
        late.values().copied().max().unwrap_or_default()
    }

    fn content(&self, healed: Instant, bound: Duration) -> Content {
        loop {
            match Content::list(&self.admin) {
                Ok(content) => return content,
                Err(error) => assert!(healed.elapsed() < bound, "no list: {error}"),
            }
            pause(Duration::from_millis(100));
        }
    }

    /// What a cache has not seen, although the fence says so.
    fn behind_the_fence(&self, writer: &Writer) -> Vec<String> {
        let fenced = self.caches.readers.iter().filter(|reader| reader.is_fenced);
        let mut behind = Vec::new();
        for Reader {
            cache,
            prefix,
            read,
            ..
        } in fenced
        {
            for ((_, name), (uid, version)) in &writer.answers {
                if !name.starts_with(prefix) {
                    continue;
                }
                let held = read(name);
                let is_seen = match (version, &held) {
                    (Some(_), None) => false,
                    (Some(version), Some((of, held))) => of != uid || held >= version,
                    (None, held) => held.as_ref().is_none_or(|(of, _)| of != uid),
                };
                if !is_seen {
                    let wrote = version.map_or("its end".to_owned(), |it| format!("version {it}"));
                    behind.push(format!(
                        "{cache}: {name} of {uid}: expected {wrote} behind the fence, held {held:?}"
                    ));
                }
            }
        }
        behind
    }

    fn fail(&self, after: &str, healed: Instant, what: impl Iterator<Item = String>) -> ! {
        let what: Vec<_> = what.collect();
        panic!(
            "{:.1?} after the start ({SEED}={}), {:.1?} after {after} was over:\n{}",
            self.started.elapsed(),
            self.seed,
            healed.elapsed(),
            what.join("\n")
        );
    }
}

/// Gives the rights back.
fn binding() -> Value {
    let role = json!({"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": RBAC});
    let subject = json!({"kind": "ServiceAccount", "name": "soak-user", "namespace": NAMESPACE});
    json!({"metadata": {"name": "soak-user"}, "roleRef": role, "subjects": [subject]})
}
