//! What 200 watches hold, each with an unfinished line of 15 MiB, while they are open and after
//! their end.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::list_watch::{ListerWatcher, Next, WatchRequest};
use kubecache::object::{ResourceVersion, Scope};
use kubecache::worker::{StopSource, Worker};

use super::{client, now, pause, server};

const WATCHES: usize = 200;
const LINE_BYTES: usize = 15 * 1024 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;
/// The budget of unfinished bytes is 256 MiB, and what is in passing comes on top.
const BUDGET_MIB: f64 = 400.0;
const PATIENCE: Duration = Duration::from_secs(2 * 60);

fn resident_mib() -> f64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024.0
}

pub(crate) fn run() -> bool {
    let settled = Arc::new(AtomicUsize::new(0));
    let sent = Arc::clone(&settled);
    let url = server::start(move |_, request, socket| {
        if !server::is_watch(request) {
            server::answer(request, socket);
            return true;
        }
        server::begin_watch(socket);
        let begin = br#"{"type":"MODIFIED","object":{"kind":"Secret","data":{"key":""#;
        let mut open = server::chunk(socket, begin);
        let filling = vec![b'a'; CHUNK_BYTES];
        let mut left = LINE_BYTES;
        while open && left > 0 {
            open = server::chunk(socket, &filling);
            left = left.saturating_sub(CHUNK_BYTES);
        }
        drop(socket.flush());
        sent.fetch_add(1, Ordering::SeqCst);
        false
    });
    let client = client(&url);
    let stop = StopSource::new();
    let before = resident_mib();
    let ended = Arc::new(AtomicUsize::new(0));
    let watch = |number: usize| {
        let scope = Scope::namespace(format!("ns-{number}"));
        let source: Arc<dyn ListerWatcher<Secret>> = client.lister_watcher(scope);
        let (stop, ended) = (stop.token(), Arc::clone(&ended));
        Worker::spawn(format!("w-{number}"), move |_| {
            let request = WatchRequest {
                resource_version: ResourceVersion::from("7"),
                timeout: Duration::from_secs(5 * 60),
                head_timeout: Duration::from_secs(5 * 60),
                bookmarks: true,
                send_initial_events: false,
                urgent: false,
            };
            let mut stream = source.watch(&request, &stop).unwrap();
            let deadline = Clock::system().after(PATIENCE);
            if let Ok(Next::Ended(_) | Next::Event(_)) | Err(_) = stream.next(deadline)
                && !stop.is_stopped()
            {
                ended.fetch_add(1, Ordering::SeqCst);
            }
        })
        .unwrap()
    };
    let workers: Vec<Worker> = (0..WATCHES).map(watch).collect();
    let begun = now();
    let mut peak = before;
    let mut quiet = 0;
    // What a server sent last is still on its way: a second without growth is the end of it.
    while quiet < 20 && begun.elapsed() < PATIENCE {
        pause(Duration::from_millis(50));
        let now = resident_mib();
        let done = settled.load(Ordering::SeqCst) >= WATCHES && now <= peak;
        quiet = if done { quiet + 1 } else { 0 };
        peak = peak.max(now);
    }
    let closed = ended.load(Ordering::SeqCst);
    stop.stop();
    drop(workers);
    drop(client);
    let after = resident_mib() - before;
    let peak = peak - before;
    println!(
        "  {WATCHES} watches with an unfinished line of 15 MiB each: {peak:.0} MiB at the peak \
         (budget {BUDGET_MIB:.0}), {closed} closed, {after:.0} MiB after the end"
    );
    peak <= BUDGET_MIB
}
