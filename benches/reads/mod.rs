//! Reads at random of things with names, timed on one thread and on two: the same for each side of
//! a comparison.

use std::sync::Barrier;
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

/// Wall time of two threads that make the same reads from different ends, from the first one's
/// begin to the last one's end: a thread that waits for the lock spends no time of its own.
pub(crate) fn time_two(reads: &[String], read: impl Fn(&str) + Copy + Send) -> Duration {
    let start = &Barrier::new(2);
    let run = move |names: [&[String]; 2]| {
        start.wait();
        let begin = clock(ClockId::Monotonic);
        for name in names.into_iter().flatten() {
            read(name);
        }
        (begin, clock(ClockId::Monotonic))
    };
    let (first, second) = reads.split_at(reads.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || run([second, first]));
        let (begin, end) = run([first, second]);
        let (other_begin, other_end) = other.join().unwrap();
        end.max(other_end).saturating_sub(begin.min(other_begin))
    })
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
