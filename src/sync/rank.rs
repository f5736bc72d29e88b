//! The order of locks: the rank of each lock, and its check in debug builds.

/// The place of a lock in the order. A thread takes locks only upwards: each must have a higher
/// number than all that the thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    order: u8,
    name: &'static str,
}

macro_rules! ranks {
    ($($order:literal $constant:ident $name:literal)*) => {
        impl Rank {
            $(pub(crate) const $constant: Self = Self { order: $order, name: $name };)*

            #[cfg(all(test, not(shuttle)))]
            const ALL: &[Self] = &[$(Self::$constant),*];
        }

        // Each is used, whatever the features.
        $(const _: Rank = Rank::$constant;)*
    };
}

// The manual's page on threads and locks has the same table; a test compares them.
ranks! {
    10 ROUNDS "the rounds of a publisher and of a snapshot"
    10 SNAPSHOT "the managers of a snapshot"
    10 FOLLOWED_PODS "the pods that a manager follows"
    20 REFERENCES "a manager's references: which owner references what"
    30 REFLECTOR_STATUS "a reflector's status"
    30 RELIST_PROGRESS "a relist loop's progress"
    35 OWN_WRITES "a mutation cache's own writes"
    35 FENCE "the writes that a fence notes"
    36 INFORMER_SET "a set's list of informers"
    38 INFORMER_LIFE "an informer's life: not started, running, stopped"
    39 NAMESPACES "the namespaces of a manager, and which of them are watched as a whole"
    40 STORE "a store's content"
    40 ENTRY "the entry of one object in a manager"
    40 POD_STATUS "the pod-status cache"
    41 POD_ANSWER "the answer to one wait for a pod's status"
    42 SEEDS "where a manager finds the objects of the process before"
    42 SNAPSHOT_PARTS "what a snapshot has of the process before"
    45 READY_OBJECTS "the objects of a manager that are ready to be read"
    46 READ_COPIES "the copies that groups of reading threads have of objects"
    47 NAMESPACE_OBJECTS "the objects that a namespace's watch hands on"
    47 HELD_LIST "the list of a successor whose watch is not open yet"
    47 NEWEST "the newest version that a manager has seen"
    48 HANDLERS "an informer's table of handlers"
    49 CHECKS "a manager's checks: those that wait, and their threads"
    49 POLLS "the objects that a manager polls"
    49 WORKER_GROUP "threads that end together"
    50 DELTA_FIFO "a delta FIFO"
    50 WORK_QUEUE "a work queue"
    50 HANDLER_QUEUE "a handler's queue"
    50 HOUSEKEEPER "what waits for the housekeeper"
    50 SUBSCRIPTIONS "subscriptions to changes"
    50 ADMISSION "the queues of a client's rate limit and of its slots"
    50 RELIST_REQUESTS "the requests to a relist loop"
    50 HELPERS "the questions of helper threads"
    51 WAITERS "who waits for a first sync"
    51 SUBSCRIBER "what one subscriber has not taken yet"
    52 OLD_STATES "an informer's old states"
    53 BYTE_BUDGET "a client's byte budget"
    54 JOBS "the jobs of a client's threads"
    54 CHANNEL "the item of a channel between two threads"
    54 HELD_SLOT "a request's hold on its slot"
    54 CONNECTIONS "a client's kept connections"
    54 CREDENTIALS "the credentials that a source gave"
    54 DIAL_PACE "the last connection that a client made"
    54 TLS_CONFIG "the TLS configuration in use"
    54 STORED_POSITION "the stored position of a source, until it is used"
    54 KUBELET_PODS "the pods that a kubelet last listed"
    54 RESOURCE_SET "the resources of which a server told something"
    54 REFLECTOR_LIMIT "the limit of a manager's reflectors"
    54 OUTLET "the directory of an outlet"
    55 STOP "a stop token's state"
    55 WORKER_END "how a worker has ended"
    56 REQUEST_PHASE "where a request is on its way to an answer"
    57 METRICS "the tables of metrics"
    57 ENDPOINTS "the checks and pages of endpoints"
    58 FAILURE_LOG "what the log was told of failures"
    60 FAKE_CLOCK "the fake clock"
}

pub(crate) use check::held;

/// A lock's knowledge of its rank: none in builds without checks, or for a lock without a rank.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order(check::Known);

/// A rank that the thread holds until this is dropped.
#[derive(Debug)]
pub(super) struct HeldRank(check::Known);

impl Order {
    /// Notes that the thread is about to take the lock.
    ///
    /// # Panics
    ///
    /// In debug builds: if the thread holds a lock of the same or a higher rank.
    #[track_caller]
    pub(super) fn enter(self) -> HeldRank {
        check::enter(self.0);
        HeldRank(self.0)
    }
}

impl Drop for HeldRank {
    fn drop(&mut self) {
        check::leave(self.0);
    }
}

#[cfg(all(debug_assertions, not(shuttle)))]
mod check {
    use std::cell::Cell;

    use super::Rank;

    pub(super) type Known = Option<Rank>;

    /// The maximum number of locks that one thread may hold.
    const HELD_MAX: usize = 8;

    impl super::Order {
        pub(in crate::sync) fn of(rank: Rank) -> Self {
            Self(Some(rank))
        }
    }

    thread_local! {
        static HELD: Cell<[Known; HELD_MAX]> = const { Cell::new([None; HELD_MAX]) };
    }

    /// The locks that the calling thread holds.
    pub(crate) fn held() -> impl Iterator<Item = &'static str> {
        HELD.get().into_iter().flatten().map(|rank| rank.name)
    }

    #[track_caller]
    pub(super) fn enter(known: Known) {
        let Some(rank) = known else { return };
        let mut held = HELD.get();
        let highest = held.iter().flatten().max_by_key(|held| held.order);
        if let Some(highest) = highest {
            // A second panic would end the process, and hide the first.
            assert!(
                rank.order > highest.order || std::thread::panicking(),
                "the lock of {} (rank {}) is taken under the lock of {} (rank {})",
                rank.name,
                rank.order,
                highest.name,
                highest.order
            );
        }
        if let Some(free) = held.iter_mut().find(|held| held.is_none()) {
            *free = known;
        }
        HELD.set(held);
    }

    pub(super) fn leave(known: Known) {
        let mut held = HELD.get();
        if let Some(left) = held.iter_mut().find(|held| **held == known) {
            *left = None;
        }
        HELD.set(held);
    }
}

#[cfg(not(all(debug_assertions, not(shuttle))))]
mod check {
    use super::Rank;

    pub(super) type Known = ();

    impl super::Order {
        pub(in crate::sync) fn of(rank: Rank) -> Self {
            let Rank { order: _, name: _ } = rank;
            Self(())
        }
    }

    pub(crate) fn held() -> impl Iterator<Item = &'static str> {
        std::iter::empty()
    }

    pub(super) fn enter(_known: Known) {}

    pub(super) fn leave(_known: Known) {}
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::sync::Mutex;

    /// The list of the page: rank and locks.
    fn page() -> Vec<(u8, Vec<String>)> {
        let page = include_str!("../manual/threads_and_locks.md");
        let entries = page.split("\n- **").filter_map(|entry| {
            let (order, locks) = entry.split_once("**: ")?;
            let locks = locks.split("\n\n").next()?.replace("\n  ", " ");
            let locks = locks.trim_end().split("; ").map(str::to_owned);
            Some((order.parse().ok()?, locks.collect()))
        });
        entries.collect()
    }

    #[test]
    fn the_page_on_locks_has_the_ranks_of_the_code_and_no_others() {
        let of_code: Vec<_> = Rank::ALL
            .chunk_by(|one, next| one.order == next.order)
            .map(|same| {
                let names = same.iter().map(|rank| rank.name.to_owned());
                (same[0].order, names.collect())
            })
            .collect();
        assert_eq!(page(), of_code);
        assert!(of_code.is_sorted());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(
        expected = "the lock of the pod-status cache (rank 40) is taken under the lock of the \
            tables of metrics (rank 57)"
    )]
    fn a_lock_that_is_taken_downwards_is_named() {
        let (low, high) = (
            Mutex::ranked(Rank::POD_STATUS, ()),
            Mutex::ranked(Rank::METRICS, ()),
        );
        let _upwards = (low.lock(), high.lock());
        let _downwards = low.lock();
    }

    #[test]
    fn locks_are_free_again_in_any_order() {
        let (low, high) = (
            Mutex::ranked(Rank::POD_STATUS, ()),
            Mutex::ranked(Rank::METRICS, ()),
        );
        for _ in 0..20 {
            let (first, second) = (low.lock(), high.lock());
            drop(first);
            drop(second);
        }
        drop(high.lock());
        drop(low.lock());
    }
}
