//! Reads at random of things with names, timed on one thread and on two: the same for each side of
//! a comparison.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Reads per repeat.
pub(crate) const READS: usize = 200_000;

/// Names in a random order, the same for all sides, in memory of their own.
pub(crate) fn at_random(names: &[String]) -> Vec<String> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..READS)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let index = usize::try_from(state % names.len() as u64).unwrap();
            names.get(index).unwrap().clone()
        })
        .collect()
}

/// CPU time of this thread: others on the machine do not count.
pub(crate) fn time(reads: &[String], read: impl Fn(&str)) -> Duration {
    let before = clock(ClockId::ThreadCPUTime);
    for name in reads {
        read(name);
    }
    clock(ClockId::ThreadCPUTime).saturating_sub(before)
}

/// Reads of each thread that are timed together: so few that a busy machine leaves some alone.
pub(crate) const TOGETHER: usize = 20_000;

/// Wall time of two threads that make the same reads at once from different ends: the median of
/// those rounds in which both ran side by side and the system took neither off its core. `None` if
/// no round was like that. A thread that waits for a lock spends no time of its own.
pub(crate) fn time_two(reads: &[String], read: impl Fn(&str) + Copy + Send) -> Option<Duration> {
    let rounds = reads.chunks_exact(TOGETHER);
    let mut times: Vec<Duration> = rounds.filter_map(|names| time_round(names, read)).collect();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied()?;
    Some(median * u32::try_from(reads.len() / TOGETHER).unwrap())
}

fn time_round(reads: &[String], read: impl Fn(&str) + Copy + Send) -> Option<Duration> {
    let at_start = &AtomicUsize::new(0);
    let run = move |names: [&[String]; 2]| {
        // What a thread's first reads cost is no part of it.
        names.iter().copied().flatten().for_each(|name| read(name));
        let before = times_taken_off();
        at_start.fetch_add(1, Ordering::SeqCst);
        while at_start.load(Ordering::SeqCst) < 2 {
            std::hint::spin_loop();
        }
        let begin = clock(ClockId::Monotonic);
        names.iter().copied().flatten().for_each(|name| read(name));
        (
            begin,
            clock(ClockId::Monotonic),
            times_taken_off() == before,
        )
    };
    let (first, second) = reads.split_at(reads.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || run([second, first]));
        let one = run([first, second]);
        let other = other.join().unwrap();
        let both = one.1.min(other.1).saturating_sub(one.0.max(other.0));
        let all = one.1.max(other.1).saturating_sub(one.0.min(other.0));
        (one.2 && other.2 && both * 10 > all * 9).then_some(all)
    })
}

/// How often the system has taken this thread off its core for another one.
fn times_taken_off() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// Nanoseconds of one of the reads.
pub(crate) fn nanos_each(total: Duration) -> f64 {
    total.as_secs_f64() * 1e9 / READS as f64
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}
