//! The pod-status cache: from a set to the return of the wait it ends, beside a bare condvar; from
//! a request for a relist to the worker; a get, beside a bare map.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a program for people, which fails by panicking"
)]

mod reads;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use kubecache::clock::Clock;
use kubecache::pod_status::{
    CachedStatus as _, ContainerState, PodStatus, PodStatusCache, Relist, RelistOptions, Runtime,
    RuntimeError, RuntimePod, SandboxState, Timestamp,
};
use kubecache::worker::{StopToken, Worker};
use parking_lot::{Condvar, Mutex};

use reads::{READS, at_random, nanos_each, time, time_two};

/// Pods in memory in the measurement of `get`.
const PODS: usize = 1_000;

/// Repeats per side, in turns; the least counts, as the one that was disturbed least.
const REPEATS: usize = 15;

/// The budget: our time of a `get` over the bare map's.
const RATIO_MAX: f64 = 1.5;

/// Hand-overs per series; the median counts.
const HANDOVERS: usize = 4_000;

/// How long the giver lets the waiter, once that is about to wait, so that it sleeps in the kernel.
const SETTLE: Duration = Duration::from_micros(50);

/// Waiters whom one call answers, and how often that is done.
const EVERYBODY: usize = 1_000;
const EVERYBODY_REPEATS: usize = 9;

/// The budgets of the median, by the number of waiters on other pods.
const BUDGETS: [(usize, Duration); 2] = [
    (0, Duration::from_micros(10)),
    (1_000, Duration::from_micros(15)),
];

/// Pods of a node with as many as a kubelet takes, and the requests that are measured one by one.
const NODE_PODS: usize = 110;
const REQUESTS: usize = 2_200;

/// The budget of the 99th percentile from a request for a relist to its worker.
const REQUEST_BUDGET: Duration = Duration::from_millis(5);

fn main() {
    let handovers_pass = handovers();
    everybody();
    let requests_pass = requests();
    let gets_pass = gets();
    std::process::exit(i32::from(!(handovers_pass && requests_pass && gets_pass)));
}

/// A runtime that answers at once. Each pod has a sandbox and two containers; one of them is new
/// with each generation. A list is of all pods, as for a runtime without a search.
struct Node(Arc<Vec<AtomicUsize>>);

impl Runtime for Node {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        let pods = self.0.iter().enumerate().map(|(number, generation)| {
            let generation = generation.load(Ordering::SeqCst);
            RuntimePod::new(uid(number), "shop", format!("web-{number}"))
                .sandbox("s-1", SandboxState::Ready)
                .container("c-1", ContainerState::Running)
                .container(format!("d-{generation}"), ContainerState::Running)
        });
        Ok(pods.collect())
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        Ok(PodStatus::with_id(pod.uid()))
    }
}

/// Workers change their pods, ask for relists and wait for a newer status: one worker at a time,
/// then all at once.
fn requests() -> bool {
    let clock = Clock::system();
    let cache = PodStatusCache::<PodStatus>::new(clock.clone());
    let generations: Vec<_> = (0..NODE_PODS).map(|_| AtomicUsize::new(0)).collect();
    let generations = Arc::new(generations);
    // No relist of all pods comes in between, which would answer some for nothing.
    let options = RelistOptions::default().period(Duration::from_secs(3600));
    let relist = Relist::spawn(Node(Arc::clone(&generations)), cache.clone(), options).unwrap();
    cache.get_newer_than(&uid(0), Timestamp::ZERO).unwrap();
    let (tell, told) = crossbeam_channel::unbounded();
    let workers = (0..NODE_PODS).map(|number| {
        let (go, gone) = crossbeam_channel::bounded::<()>(1);
        let (cache, clock, tell) = (cache.clone(), clock.clone(), tell.clone());
        let (requests, generations) = (relist.requests().clone(), Arc::clone(&generations));
        let worker = Worker::spawn("b-pod", move |_| {
            let uid = uid(number);
            while gone.recv().is_ok() {
                generations
                    .get(number)
                    .unwrap()
                    .fetch_add(1, Ordering::SeqCst);
                let end_of_sync = Timestamp::now(&clock);
                assert!(requests.request_relist(&uid));
                let reading = cache.get_newer_than(&uid, end_of_sync).unwrap();
                let end = clock.now();
                assert!(
                    reading.modified_time() >= Some(end_of_sync),
                    "an old status"
                );
                let begin = end_of_sync.instant().unwrap();
                tell.send(end.saturating_duration_since(begin)).unwrap();
            }
        });
        (go, worker.unwrap())
    });
    let workers: Vec<_> = workers.collect();
    let one_by_one = workers.iter().cycle().take(REQUESTS).map(|(go, _)| {
        // As often as the loop serves requests for long without a pause.
        let pause = crossbeam_channel::after(Duration::from_millis(1));
        pause.recv().unwrap();
        go.send(()).unwrap();
        told.recv().unwrap()
    });
    let one_by_one = Spread::of(one_by_one.collect());
    let mut together = Vec::new();
    for _ in 0..REQUESTS / NODE_PODS {
        for (go, _) in &workers {
            go.send(()).unwrap();
        }
        together.extend(told.iter().take(NODE_PODS));
    }
    let together = Spread::of(together);
    for (go, worker) in workers {
        drop(go);
        worker.join().unwrap();
    }
    request_times_pass(one_by_one, together)
}

/// Prints the times from a request to its worker; whether they are within the budget.
fn request_times_pass(one_by_one: Spread, together: Spread) -> bool {
    let floor = micros(bare_handovers().most_of_hundred);
    println!(
        "a request for a relist to the worker of its pod, {NODE_PODS} pods, {REQUESTS} times (a \
         bare condvar's 99th percentile now: {floor:.0} us)"
    );
    let mut pass = true;
    for (how, spread) in [("one at a time", one_by_one), ("all at once", together)] {
        let within = spread.most_of_hundred < REQUEST_BUDGET;
        pass &= within;
        println!(
            "{how:>13}: {spread}, 99th percentile {:.0} us (budget {:.0} us)  {}",
            micros(spread.most_of_hundred),
            micros(REQUEST_BUDGET),
            verdict(within),
        );
    }
    pass
}

/// The pod that the measured thread waits for.
const POD: &str = "0b3a8f5e-7d0c-4e4e-9a53-6f1f7a1c2d3e";

fn handovers() -> bool {
    println!(
        "set to a blocked get_newer_than returning, median of {HANDOVERS} (least and 90th \
         percentile in brackets)"
    );
    let mut pass = true;
    for (others, budget) in BUDGETS {
        let crowd = Crowd::new(others);
        // In turns, so that both see the same machine; the better median of each, as the one that
        // was disturbed least.
        let (mut floor, mut ours) = (Spread::MAX, Spread::MAX);
        for _ in 0..3 {
            floor = floor.least(bare_handovers());
            ours = ours.least(crowd.handovers());
        }
        let within = ours.median < budget;
        pass &= within;
        // Where a wake-up goes to a core that sleeps, the machine alone can take longer than the
        // budget.
        let remark = if within || floor.median < budget {
            ""
        } else {
            " (the bare condvar, too: try again under `taskset -c 0`)"
        };
        println!(
            "{others:>5} waiters on other pods: bare condvar {floor}  set {ours}  ratio {:.2}  \
             budget {:.1} us  {}{remark}",
            ours.median.as_secs_f64() / floor.median.as_secs_f64(),
            micros(budget),
            verdict(within),
        );
    }
    pass
}

/// A cache with so many threads that wait for other pods.
struct Crowd {
    clock: Clock,
    cache: PodStatusCache,
    others: Vec<Worker>,
}

impl Crowd {
    fn new(others: usize) -> Self {
        let clock = Clock::system();
        let cache = PodStatusCache::new(clock.clone());
        let workers = (0..others).map(|number| {
            let (cache, uid) = (cache.clone(), uid(number));
            let worker = Worker::spawn("b-other", move |_| {
                drop(cache.get_newer_than(&uid, Timestamp::ZERO));
            });
            worker.unwrap()
        });
        let others = workers.collect::<Vec<_>>();
        while cache.waiting().len() < others.len() {
            std::thread::yield_now();
        }
        Self {
            clock,
            cache,
            others,
        }
    }

    fn handovers(&self) -> Spread {
        let (cache, clock) = (self.cache.clone(), self.clock.clone());
        let mut last = Timestamp::now(&clock);
        let wait = move || {
            let reading = cache.get_newer_than(POD, last).unwrap();
            last = reading.modified_time().unwrap();
        };
        let status = Arc::new(PodStatus::default());
        handovers_of(wait, || {
            let (status, now) = (Arc::clone(&status), Timestamp::now(&self.clock));
            self.cache.set(POD, Some(status), None, now);
        })
    }
}

/// The global time answers everybody at once: how long the call takes, and how long until the last
/// one is back.
fn everybody() {
    let (mut calls, mut returns) = (Vec::new(), Vec::new());
    for _ in 0..EVERYBODY_REPEATS {
        let mut crowd = Crowd::new(EVERYBODY);
        let before = crowd.clock.now();
        crowd.cache.update_time(Timestamp::from(before));
        calls.push(crowd.clock.now().saturating_duration_since(before));
        crowd
            .others
            .drain(..)
            .for_each(|other| other.join().unwrap());
        returns.push(crowd.clock.now().saturating_duration_since(before));
    }
    println!(
        "update_time that answers {EVERYBODY} waiters of as many pods, median of \
         {EVERYBODY_REPEATS}: the call {:.0} us, the \
         last thread ended after {:.0} us",
        micros(Spread::of(calls).median),
        micros(Spread::of(returns).median),
    );
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.cache.close();
        self.others.clear();
    }
}

/// The floor: a value under a mutex, one condvar.
fn bare_handovers() -> Spread {
    let shared = Arc::new((Mutex::new(None), Condvar::new()));
    let waiting = Arc::clone(&shared);
    let wait = move || {
        let (slot, changed) = &*waiting;
        let mut slot = slot.lock();
        while slot.is_none() {
            changed.wait(&mut slot);
        }
        black_box(slot.take());
    };
    let clock = Clock::system();
    handovers_of(wait, || {
        let (slot, changed) = &*shared;
        *slot.lock() = Some(clock.now());
        changed.notify_all();
    })
}

/// The times from the call of `give` to the return of `wait`, which another thread is blocked in by
/// then.
fn handovers_of(mut wait: impl FnMut() + Send + 'static, give: impl Fn()) -> Spread {
    let (tell, told) = crossbeam_channel::bounded(1);
    let rounds = Arc::new(AtomicUsize::new(0));
    let (begun, clock) = (Arc::clone(&rounds), Clock::system());
    let (tell_sleeps, slept) = crossbeam_channel::bounded(1);
    let waiter = Worker::spawn("b-waiter", move |_| {
        let before = sleeps();
        for _ in 0..HANDOVERS {
            begun.fetch_add(1, Ordering::Release);
            wait();
            tell.send(clock.now()).unwrap();
        }
        tell_sleeps.send(sleeps() - before).unwrap();
    });
    let clock = Clock::system();
    let mut times = Vec::with_capacity(HANDOVERS);
    for round in 1..=HANDOVERS {
        while rounds.load(Ordering::Acquire) < round {
            std::hint::spin_loop();
        }
        settle(&clock);
        let before = clock.now();
        give();
        let after: Instant = told.recv().unwrap();
        times.push(after.saturating_duration_since(before));
    }
    drop(waiter);
    // Else it would be something else that was measured.
    let slept: usize = slept.recv().unwrap();
    assert!(
        slept * 10 >= HANDOVERS * 9,
        "slept {slept} times in {HANDOVERS} waits"
    );
    Spread::of(times)
}

/// How often this thread has gone to sleep in the kernel.
fn sleeps() -> usize {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

fn settle(clock: &Clock) {
    let begin = clock.now();
    while clock.now().saturating_duration_since(begin) < SETTLE {
        std::hint::spin_loop();
    }
}

#[derive(Clone, Copy)]
struct Spread {
    least: Duration,
    median: Duration,
    most_of_ten: Duration,
    most_of_hundred: Duration,
}

impl Spread {
    const MAX: Self = Self {
        least: Duration::MAX,
        median: Duration::MAX,
        most_of_ten: Duration::MAX,
        most_of_hundred: Duration::MAX,
    };

    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |part: usize| *times.get(times.len() * part / 100).unwrap();
        Self {
            least: at(0),
            median: at(50),
            most_of_ten: at(90),
            most_of_hundred: at(99),
        }
    }

    fn least(self, other: Self) -> Self {
        if other.median < self.median {
            other
        } else {
            self
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.1} us ({:.1}, {:.1})",
            micros(self.median),
            micros(self.least),
            micros(self.most_of_ten)
        )
    }
}

/// A bare map behind a lock: one `parking_lot` mutex around one hashbrown map with the hasher we
/// use ourselves, the `Arc` cloned under the lock.
struct Bare(Mutex<HashMap<Arc<str>, Arc<PodStatus>>>);

impl Bare {
    fn get(&self, uid: &str) -> Option<Arc<PodStatus>> {
        self.0.lock().get(uid).cloned()
    }
}

fn gets() -> bool {
    let uids: Vec<String> = (0..PODS).map(uid).collect();
    let clock = Clock::system();
    let cache = PodStatusCache::new(clock.clone());
    let mut map = HashMap::new();
    for uid in &uids {
        let status = Arc::new(PodStatus::default());
        cache.set(uid, Some(Arc::clone(&status)), None, Timestamp::now(&clock));
        map.insert(Arc::from(uid.as_str()), status);
    }
    let bare = Bare(Mutex::new(map));
    let reads = at_random(&uids);
    let read_bare = |uid: &str| drop(black_box(bare.get(uid).unwrap()));
    let read_ours = |uid: &str| drop(black_box(cache.get(uid)));
    let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
    let (mut ours_of_two, mut theirs_of_two) = (Duration::MAX, Duration::MAX);
    for _ in 0..REPEATS {
        theirs = theirs.min(time(&reads, read_bare));
        ours = ours.min(time(&reads, read_ours));
        theirs_of_two = theirs_of_two.min(time_two(&reads, read_bare).unwrap_or(Duration::MAX));
        ours_of_two = ours_of_two.min(time_two(&reads, read_ours).unwrap_or(Duration::MAX));
    }
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let within = ratio <= RATIO_MAX;
    println!("get of {PODS} pods at random, least of {REPEATS} x {READS} reads");
    println!(
        "one thread (CPU time): bare map {:.1} ns  get {:.1} ns  ratio {ratio:.2} (budget \
         {RATIO_MAX:.2})  {}",
        nanos_each(theirs),
        nanos_each(ours),
        verdict(within),
    );
    if ours_of_two.max(theirs_of_two) == Duration::MAX {
        println!("two threads at once: in no round did both run side by side");
        return within;
    }
    println!(
        "two threads at once (wall time per read of each): bare map {:.1} ns  get {:.1} ns  ratio \
         {:.2}",
        nanos_each(theirs_of_two),
        nanos_each(ours_of_two),
        ours_of_two.as_secs_f64() / theirs_of_two.as_secs_f64(),
    );
    within
}

/// As long as a pod's UID is.
fn uid(number: usize) -> String {
    format!("5f0c8f0e-2d43-4c46-b0de-{number:012}")
}

fn verdict(within: bool) -> &'static str {
    if within { "PASS" } else { "OVER BUDGET" }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
