//! What is shown of a pod, and what it is indexed by.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use kubecache::store::Indexers;

/// The index by node.
pub(crate) const NODE_INDEX: &str = "node";

/// The index by the value of a label.
pub(crate) const LABEL_INDEX: &str = "label";

/// The indices: by namespace, by node, by the value of a label.
pub(crate) fn indexers(label: &str) -> Indexers<Pod> {
    let label = label.to_owned();
    Indexers::new()
        .by_namespace()
        .with(NODE_INDEX, |pod: &Pod| {
            node(pod).map(str::to_owned).into_iter().collect()
        })
        .with(LABEL_INDEX, move |pod: &Pod| {
            label_of(pod, &label)
                .map(str::to_owned)
                .into_iter()
                .collect()
        })
}

/// The node it is bound to.
pub(crate) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The value of a label.
pub(crate) fn label_of<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

/// Whether its containers run.
pub(crate) fn is_running(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

/// One word for how it stands, as kubectl finds it: what a container waits for says more than the
/// phase.
pub(crate) fn status(pod: &Pod) -> &str {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating";
    }
    let Some(status) = &pod.status else {
        return "Unknown";
    };
    let mut containers = status.container_statuses.iter().flatten();
    let waits = containers.find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        waiting.reason.as_deref()
    });
    let told = waits.or(status.reason.as_deref());
    told.or(status.phase.as_deref()).unwrap_or("Unknown")
}

/// Since it was made.
pub(crate) fn age(pod: &Pod, now: SystemTime) -> Option<Duration> {
    let created = pod.metadata.creation_timestamp.as_ref()?;
    let seconds = u64::try_from(created.0.as_second()).ok()?;
    let created = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    Some(now.duration_since(created).unwrap_or_default())
}
