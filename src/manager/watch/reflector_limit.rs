//! How many reflectors there may be: the option, and the limits of the process, whichever is least.

use std::fs;
// No thread waits for these counters, so a model checker has nothing to see here. A static of its
// own cannot outlive a run.
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

use crate::error::{Error, ErrorKind};
use crate::sync::{Mutex, Rank};

/// The kernel's default of `vm.max_map_count`, for systems that do not tell.
const MAPS_DEFAULT: usize = 65_530;
/// A thread's stack takes two mappings, guard page included, and a connection's share of the heap
/// some more.
const MAPS_PER_REFLECTOR: usize = 8;
/// A socket and a wake-up descriptor.
const DESCRIPTORS_PER_REFLECTOR: usize = 2;
/// Descriptors and threads that are left to the program itself.
const RESERVE: usize = 32;

/// The watching reflectors of all managers of the process, which the limits of the process apply
/// to.
static IN_PROCESS: AtomicUsize = AtomicUsize::new(0);

/// The most reflectors that there may be, and the source of that limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProcessLimit {
    reflectors: usize,
    reason: String,
}

/// Grants or refuses room for one more reflector.
#[derive(Debug)]
pub(crate) struct ReflectorLimit {
    option: ProcessLimit,
    read_process: fn() -> ProcessLimit,
    /// As it was when it last bound: an operator may raise the limits of a running process.
    process: Mutex<ProcessLimit>,
}

impl ReflectorLimit {
    pub(crate) fn new(watches_max: usize) -> Self {
        Self::with(watches_max, limit_of_this_process)
    }

    fn with(watches_max: usize, read_process: fn() -> ProcessLimit) -> Self {
        let option = ProcessLimit {
            reflectors: watches_max,
            reason: "the option watches_max".to_owned(),
        };
        Self {
            option,
            process: Mutex::ranked(Rank::REFLECTOR_LIMIT, read_process()),
            read_process,
        }
    }

    /// Takes room in the process for one more than the `in_use` of this manager.
    ///
    /// # Errors
    ///
    /// `TooManyReflectors`, naming the limit.
    pub(crate) fn reserve(&self, in_use: usize) -> Result<(), Error> {
        if in_use >= self.option.reflectors {
            return Err(self.option.refusal());
        }
        let mut known = self.process.lock();
        known.take_one().or_else(|_refusal| {
            *known = (self.read_process)();
            known.take_one()
        })
    }

    /// Gives back the room of one reflector, whose thread has ended.
    pub(crate) fn release() {
        IN_PROCESS.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ProcessLimit {
    fn take_one(&self) -> Result<(), Error> {
        let more = |count: usize| (count < self.reflectors).then(|| count.saturating_add(1));
        let taken = IN_PROCESS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.map(|_before| ()).map_err(|_full| self.refusal())
    }

    fn refusal(&self) -> Error {
        let text = format!(
            "too many reflectors: {} allows {}; tried again when one has ended",
            self.reason, self.reflectors
        );
        Error::new(ErrorKind::TooManyReflectors, text)
    }
}

fn limit_of_this_process() -> ProcessLimit {
    let current = |resource| getrlimit(resource).current.map(clamp);
    let maps = read_number("/proc/sys/vm/max_map_count").unwrap_or(MAPS_DEFAULT);
    let group = read_number("/sys/fs/cgroup/pids.max");
    let threads = group.into_iter().chain(current(Resource::Nproc)).min();
    least_limit(current(Resource::Nofile), maps, threads)
}

/// Past these numbers the system refuses sockets, and the standard library may abort when it starts
/// a thread.
fn least_limit(descriptors: Option<usize>, maps: usize, threads: Option<usize>) -> ProcessLimit {
    let free = |granted: usize| granted.saturating_sub(RESERVE);
    let of_maps = ProcessLimit {
        reflectors: maps / MAPS_PER_REFLECTOR,
        reason: format!("an eighth of vm.max_map_count ({maps})"),
    };
    let of_descriptors = descriptors.map(|all| ProcessLimit {
        reflectors: free(all) / DESCRIPTORS_PER_REFLECTOR,
        reason: format!("half of the descriptor limit ({all}, {RESERVE} kept free)"),
    });
    let of_threads = threads.map(|all| ProcessLimit {
        reflectors: free(all),
        reason: format!("the process limit ({all}, {RESERVE} kept free)"),
    });
    let others = of_descriptors.into_iter().chain(of_threads);
    let lower = others.filter(|other| other.reflectors < of_maps.reflectors);
    let lowest = lower.min_by_key(|limit| limit.reflectors);
    lowest.unwrap_or(of_maps)
}

fn clamp(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Reads a number. `None` for the word `max` and for a file that is not there.
fn read_number(path: &str) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(descriptors: usize, maps: usize, threads: usize) -> ProcessLimit {
        least_limit(Some(descriptors), maps, Some(threads))
    }

    #[test]
    fn the_least_of_the_process_limits_binds_and_is_named() {
        let rows = [
            (
                limit(1024, 65_530, 4_096),
                496,
                "half of the descriptor limit (1024, 32 kept free)",
            ),
            (
                limit(1 << 20, 800, 4_096),
                100,
                "an eighth of vm.max_map_count (800)",
            ),
            (
                limit(1 << 20, 65_530, 64),
                32,
                "the process limit (64, 32 kept free)",
            ),
        ];
        for (least, reflectors, reason) in rows {
            let reason = reason.to_owned();
            assert_eq!(least, ProcessLimit { reflectors, reason });
        }
        assert_eq!(least_limit(None, 80, None).reflectors, 10);
    }

    #[test]
    fn the_option_binds() {
        let limit = ReflectorLimit::with(1, || limit(1 << 20, 1 << 20, 1 << 20));
        limit.reserve(0).unwrap();
        let error = limit.reserve(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooManyReflectors);
        assert_eq!(
            error.to_string(),
            "too many reflectors: the option watches_max allows 1; tried again when one has \
             ended"
        );
        ReflectorLimit::release();
    }

    /// F21: `ulimit -n` of a running process, as prlimit(1) raises it.
    #[test]
    fn a_raised_limit_of_the_process_is_followed() {
        static DESCRIPTORS: AtomicUsize = AtomicUsize::new(0);
        let granted = || limit(DESCRIPTORS.load(Ordering::SeqCst), 1 << 20, 1 << 20);
        let limit = ReflectorLimit::with(9, granted);
        let error = limit.reserve(0).unwrap_err();
        assert!(error.to_string().contains("descriptor limit (0"), "{error}");
        DESCRIPTORS.store(1 << 20, Ordering::SeqCst);
        limit.reserve(0).unwrap();
        // A limit that was lowered binds from the next refusal on, and takes nothing back.
        ReflectorLimit::release();
    }
}
