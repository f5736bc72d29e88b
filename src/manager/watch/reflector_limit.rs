//! How many reflectors there may be: the option, and what the process can bear, whichever is least.

use std::fs;
// Counters that nobody waits for: a model checker has nothing to see here, and a static of its own
// cannot outlive a run.
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Mutex, Rank};

/// The kernel's default of `vm.max_map_count`, for systems that do not tell.
const MAPS_DEFAULT: usize = 65_530;
/// A thread's stack takes two mappings, guard page included, and a connection's share of the heap
/// some more.
const MAPS_PER_REFLECTOR: usize = 8;
/// A socket and a wake-up descriptor.
const DESCRIPTORS_PER_REFLECTOR: usize = 2;
/// Descriptors and threads that are left to the program itself.
const RESERVE: usize = 32;

/// Watching reflectors of all managers of the process: what the limits of the process are held
/// against.
static IN_PROCESS: AtomicUsize = AtomicUsize::new(0);

/// The most reflectors there may be, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    reflectors: usize,
    reason: String,
}

/// What the system grants this process.
#[derive(Clone, Copy, Debug)]
struct Grants {
    descriptors: Option<usize>,
    maps: usize,
    threads: Option<usize>,
}

/// Grants or refuses room for one more reflector.
#[derive(Debug)]
pub(crate) struct ReflectorLimit {
    option: Limit,
    grants: fn() -> Grants,
    /// As it was when it last bound: an operator may raise the limits of a running process.
    process: Mutex<Limit>,
    in_use: AtomicUsize,
}

/// Room for one reflector; given back when dropped, which is after its thread has ended.
#[derive(Debug)]
pub(crate) struct Permit(Arc<ReflectorLimit>);

impl ReflectorLimit {
    pub(crate) fn new(reflectors_max: usize) -> Self {
        Self::with(reflectors_max, Grants::of_this_process)
    }

    fn with(reflectors_max: usize, grants: fn() -> Grants) -> Self {
        let option = Limit {
            reflectors: reflectors_max,
            reason: "the option reflectors_max".to_owned(),
        };
        Self {
            option,
            process: Mutex::ranked(Rank::REFLECTOR_LIMIT, grants().limit()),
            grants,
            in_use: AtomicUsize::new(0),
        }
    }

    /// Room for one more.
    ///
    /// # Errors
    ///
    /// `TooManyReflectors`, naming the limit.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Permit, Error> {
        take_one(&self.in_use, &self.option)?;
        if let Err(error) = self.take_of_process() {
            self.in_use.fetch_sub(1, Ordering::SeqCst);
            return Err(error);
        }
        Ok(Permit(Arc::clone(self)))
    }

    fn take_of_process(&self) -> Result<(), Error> {
        let known = self.process.lock().clone();
        let Err(refused) = take_one(&IN_PROCESS, &known) else {
            return Ok(());
        };
        let now = (self.grants)().limit();
        if now == known {
            return Err(refused);
        }
        self.process.lock().clone_from(&now);
        take_one(&IN_PROCESS, &now)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::SeqCst);
        IN_PROCESS.fetch_sub(1, Ordering::SeqCst);
    }
}

fn take_one(count: &AtomicUsize, limit: &Limit) -> Result<(), Error> {
    let taken = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
        (count < limit.reflectors).then(|| count.saturating_add(1))
    });
    match taken {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(
            ErrorKind::TooManyReflectors,
            format!(
                "too many reflectors: {} allows {}; tried again when one has ended",
                limit.reason, limit.reflectors
            ),
        )),
    }
}

impl Grants {
    fn of_this_process() -> Self {
        let limit = |resource| getrlimit(resource).current.map(clamp);
        let maps = read_number("/proc/sys/vm/max_map_count").unwrap_or(MAPS_DEFAULT);
        let group = read_number("/sys/fs/cgroup/pids.max");
        let user = limit(Resource::Nproc);
        Self {
            descriptors: limit(Resource::Nofile),
            maps,
            threads: group.into_iter().chain(user).min(),
        }
    }

    /// Past these numbers the system refuses sockets, and the standard library may abort when it
    /// starts a thread.
    fn limit(self) -> Limit {
        let mut limits = vec![Limit {
            reflectors: self.maps.checked_div(MAPS_PER_REFLECTOR).unwrap_or(0),
            reason: format!("an eighth of vm.max_map_count ({})", self.maps),
        }];
        limits.extend(self.descriptors.map(|descriptors| {
            Limit {
                reflectors: descriptors
                    .saturating_sub(RESERVE)
                    .checked_div(DESCRIPTORS_PER_REFLECTOR)
                    .unwrap_or(0),
                reason: format!(
                    "half of the descriptor limit ({descriptors}, {RESERVE} kept free)"
                ),
            }
        }));
        limits.extend(self.threads.map(|threads| Limit {
            reflectors: threads.saturating_sub(RESERVE),
            reason: format!("the process limit ({threads}, {RESERVE} kept free)"),
        }));
        let least = limits.into_iter().min_by_key(|limit| limit.reflectors);
        least.unwrap_or(Limit {
            reflectors: usize::MAX,
            reason: "no limit".to_owned(),
        })
    }
}

fn clamp(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// `max` and files that are not there give nothing.
fn read_number(path: &str) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(descriptors: usize, maps: usize, threads: usize) -> Grants {
        Grants {
            descriptors: Some(descriptors),
            maps,
            threads: Some(threads),
        }
    }

    #[test]
    fn the_least_of_the_process_limits_binds_and_is_named() {
        let rows = [
            (
                grants(1024, 65_530, 4_096),
                496,
                "half of the descriptor limit (1024, 32 kept free)",
            ),
            (
                grants(1 << 20, 800, 4_096),
                100,
                "an eighth of vm.max_map_count (800)",
            ),
            (
                grants(1 << 20, 65_530, 64),
                32,
                "the process limit (64, 32 kept free)",
            ),
        ];
        for (grants, reflectors, reason) in rows {
            let reason = reason.to_owned();
            assert_eq!(grants.limit(), Limit { reflectors, reason });
        }
        let open = Grants {
            descriptors: None,
            maps: 80,
            threads: None,
        };
        assert_eq!(open.limit().reflectors, 10);
    }

    #[test]
    fn room_is_given_back_with_the_permit() {
        let limit = Arc::new(ReflectorLimit::with(1, || {
            grants(1 << 20, 1 << 20, 1 << 20)
        }));
        let permit = limit.reserve().unwrap();
        let error = limit.reserve().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooManyReflectors);
        assert_eq!(
            error.to_string(),
            "too many reflectors: the option reflectors_max allows 1; tried again when one has ended"
        );
        drop(permit);
        drop(limit.reserve().unwrap());
    }

    /// F21: `ulimit -n` of a running process, as prlimit(1) raises it.
    #[test]
    fn a_raised_limit_of_the_process_is_followed() {
        static DESCRIPTORS: AtomicUsize = AtomicUsize::new(0);
        let granted = || grants(DESCRIPTORS.load(Ordering::SeqCst), 1 << 20, 1 << 20);
        let limit = Arc::new(ReflectorLimit::with(9, granted));
        assert!(limit.reserve().is_err());
        DESCRIPTORS.store(1 << 20, Ordering::SeqCst);
        let permit = limit.reserve().unwrap();
        // A limit that was lowered binds from the next refusal on, and takes nothing back.
        drop(permit);
    }

    #[test]
    fn a_refusal_of_the_process_takes_nothing_of_the_option() {
        let limit = Arc::new(ReflectorLimit::with(1, || grants(0, 1 << 20, 1 << 20)));
        for _ in 0..3 {
            let error = limit.reserve().unwrap_err();
            assert!(error.to_string().contains("descriptor limit (0"), "{error}");
        }
        assert_eq!(limit.in_use.load(Ordering::SeqCst), 0);
    }
}
