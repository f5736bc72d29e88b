//! The weather of one run: which faults and habits it has, and how often. A seed draws it.

use std::time::Duration;

use crate::policy::Chance;

/// What can happen in a run. Each seed switches a random part of it on, so that rare meetings of
/// two faults are not drowned by all the others.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, which a seed sets"
)]
pub(super) struct Weather {
    /// The server's side.
    pub(super) deletes: bool,
    pub(super) undecodable: bool,
    pub(super) bookmarks: bool,
    pub(super) skips: bool,
    pub(super) compacts: bool,
    pub(super) expires: bool,
    pub(super) ends: bool,
    pub(super) lags: bool,
    pub(super) repeats: bool,
    pub(super) odd_events: bool,
    pub(super) restores: bool,
    pub(super) silent_futures: bool,
    pub(super) streams: bool,
    pub(super) pages_at_zero: bool,
    /// The network's side. One request in so many fails; 0 for none.
    pub(super) fault_rate: u64,
    /// The codes that failing requests get.
    pub(super) codes: Vec<u16>,
    pub(super) cuts: bool,
    pub(super) silences: bool,
    pub(super) outages: bool,
    pub(super) latency: Duration,
    pub(super) bursts: bool,
    /// The clock's side.
    pub(super) jumps: bool,
    /// The program's side.
    pub(super) page_size: Option<u32>,
    pub(super) waits: bool,
    pub(super) late_handlers: bool,
    pub(super) removals: bool,
    pub(super) slow: bool,
    pub(super) panics: bool,
    pub(super) resync: Option<Duration>,
    pub(super) queue_max: Option<usize>,
    /// Objects that exist when the run begins.
    pub(super) objects: u64,
    pub(super) caches: u64,
    pub(super) manager: bool,
    pub(super) pods: bool,
    /// Parts stop in the midst of all.
    pub(super) stops: bool,
    /// Events bring the status of pods between two relists.
    pub(super) pod_events: bool,
    /// Some objects are immutable.
    pub(super) immutables: bool,
    /// A watch may bring only the last of what happened to one name.
    pub(super) joins: bool,
    /// Informers begin anew, with the position that the last one stored.
    pub(super) restarts: bool,
}

/// The answers that a failing request may get.
const CODES: [u16; 9] = [400, 401, 403, 404, 410, 422, 429, 500, 503];

impl Weather {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let storm = chance.below(4);
        let mut coin = || chance.below(4) < storm.max(1);
        let (deletes, undecodable, bookmarks, skips) = (coin() || coin(), coin(), coin(), coin());
        let (compacts, expires, ends, lags) = (coin(), coin(), coin(), coin());
        let (repeats, odd_events, streams, pages_at_zero) = (coin(), coin(), coin(), coin());
        let (restores, silent_futures) = (coin() && coin(), coin());
        let (fails, cuts, silences, outages) = (coin(), coin(), coin(), coin());
        let (is_slow_network, bursts, jumps, waits) = (coin(), coin(), coin(), coin());
        let (late_handlers, removals, slow, panics) = (coin(), coin(), coin(), coin());
        let (resyncs, bounded, pages) = (coin(), coin(), coin());
        let manager = chance.below(2) == 0;
        let kinds = 1 + chance.below(4);
        let codes = (0..kinds).filter_map(|_| {
            let at = usize::try_from(chance.below(9)).ok()?;
            CODES.get(at).copied()
        });
        let codes = codes.collect();
        // A manager keeps the newest version that it has read, also of a lost future.
        let restores = restores && !manager;
        Self {
            codes,
            deletes,
            undecodable,
            bookmarks,
            skips,
            compacts,
            expires,
            ends,
            lags,
            repeats,
            odd_events,
            restores,
            silent_futures,
            streams,
            pages_at_zero,
            fault_rate: if fails { 2 + chance.below(8) } else { 0 },
            cuts,
            silences,
            outages,
            latency: if is_slow_network {
                Duration::from_millis(1 << chance.below(13))
            } else {
                Duration::ZERO
            },
            bursts,
            jumps,
            page_size: pages.then_some(2),
            waits,
            late_handlers,
            removals,
            slow,
            panics,
            resync: resyncs.then(|| Duration::from_secs(5 + chance.below(60))),
            queue_max: bounded.then(|| 1 + usize::try_from(chance.below(4)).unwrap_or_default()),
            objects: chance.below(8),
            caches: if manager {
                chance.below(2)
            } else {
                1 + chance.below(3)
            },
            manager,
            pods: chance.below(4) == 0,
            stops: Chance::new(chance.clone().below(u64::MAX)).below(3) == 0,
            pod_events: chance.below(3) == 0,
            immutables: chance.below(3) == 0,
            // What was lost is nowhere else: no cache lags behind it.
            joins: chance.below(4) == 0 && !lags,
            restarts: chance.below(4) == 0,
        }
    }
}
