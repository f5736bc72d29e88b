//! The relist's decisions: the pods to inspect, without thread, clock, runtime or cache.

use std::collections::BTreeMap;

use super::runtime::RuntimePod;

/// The records of earlier relists, by uid, so that every relist visits the pods in the same order.
#[derive(Debug, Default)]
pub(super) struct Records {
    pods: BTreeMap<String, Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// The pod at its last good inspection; `None` before the first one.
    inspected: Option<RuntimePod>,
    /// How the last inspection ended.
    last: Inspection,
    /// Whether the program asked for an inspection.
    requested: bool,
}

/// How an inspection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Inspection {
    /// The cache has its status, or there was none yet.
    #[default]
    Stored,
    /// The cache has something newer than its status.
    Refused,
    Failed,
}

impl Records {
    /// Begins with the pods that the cache already holds. A list inspects them anew, or forgets
    /// them if it lacks them.
    pub(super) fn knowing(uids: impl IntoIterator<Item = String>) -> Self {
        let pods = uids.into_iter().map(|uid| (uid, Record::default()));
        Self {
            pods: pods.collect(),
        }
    }

    /// Compares a list with the records, and returns the pods to inspect: changed ones, marked ones
    /// (PL-2) and requested ones (PL-9). The records know the listed pods then, and no other.
    ///
    /// Only [`inspected`](Self::inspected) records work as done. So the next relist makes up for
    /// one that was cut off.
    pub(super) fn listed(&mut self, pods: Vec<RuntimePod>) -> Vec<RuntimePod> {
        let current = merged(pods);
        self.pods.retain(|uid, _| current.contains_key(uid));
        let pods = current.into_values();
        pods.filter(|pod| self.is_due(pod)).collect()
    }

    /// Whether the pod was listed last.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Compares the pods that were asked for, in this order, with the records (PL-9). Others in the
    /// list count for nothing, and a pod that is missing stays as it is. Returns each pod with
    /// whether it must be inspected.
    pub(super) fn found(
        &mut self,
        pods: Vec<RuntimePod>,
        asked: &[String],
    ) -> Vec<(bool, RuntimePod)> {
        let mut current = merged(pods);
        let found = asked.iter().filter_map(|uid| current.remove(uid));
        found.map(|pod| (self.is_due(&pod), pod)).collect()
    }

    /// Notes that the program asked for inspections of these pods. Others are inspected when they
    /// are first listed.
    pub(super) fn request(&mut self, uids: impl IntoIterator<Item = String>) {
        for uid in uids {
            if let Some(record) = self.pods.get_mut(&uid) {
                record.requested = true;
            }
        }
    }

    fn is_due(&mut self, pod: &RuntimePod) -> bool {
        let record = self.pods.entry(pod.uid().to_owned()).or_default();
        let before = record.inspected.as_ref();
        let unchanged = before.is_some_and(|before| before.looks_like(pod));
        record.last != Inspection::Stored || record.requested || !unchanged
    }

    /// Takes the end of an inspection. Only a stored status updates the record; any other
    /// inspection is repeated (PL-3). Returns whether that is news: the first failure after a
    /// success, or the first success after a failure.
    pub(super) fn inspected(&mut self, pod: RuntimePod, end: Inspection) -> bool {
        let record = self.pods.entry(pod.uid().to_owned()).or_default();
        if end == Inspection::Stored {
            record.inspected = Some(pod);
        }
        record.requested = false;
        let before = std::mem::replace(&mut record.last, end);
        (before == Inspection::Failed) != (end == Inspection::Failed)
    }

    /// The number of known pods, and of those whose last inspection failed and is due again.
    pub(super) fn count(&self) -> (usize, usize) {
        let records = self.pods.values();
        let failed = records.filter(|record| record.last == Inspection::Failed);
        (self.pods.len(), failed.count())
    }
}

/// The pods by uid; entries with the same uid are one pod.
fn merged(pods: Vec<RuntimePod>) -> BTreeMap<String, RuntimePod> {
    let mut current = BTreeMap::<String, RuntimePod>::new();
    for pod in pods {
        match current.get_mut(pod.uid()) {
            Some(same) => same.take_in(pod),
            None => drop(current.insert(pod.uid().to_owned(), pod)),
        }
    }
    current
}
