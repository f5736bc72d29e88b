//! The options of endpoints.

use std::time::Duration;

use crate::setters::setters;

/// Options of [`Endpoints`](super::Endpoints). Start from the default and change what you need.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use kubecache::endpoints::EndpointsOptions;
///
/// let options = EndpointsOptions::default().check_limit(Duration::from_secs(3));
/// # drop(options);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing before endpoints are made with them"]
pub struct EndpointsOptions {
    pub(super) check_limit: Option<Duration>,
    pub(super) without_probes: bool,
}

setters! { [] EndpointsOptions;
    /// Sets how long a check may take before it counts as failed. Default: 800 ms, within the
    /// second that a kubelet waits by default for the answer to a probe.
    check_limit(limit: Duration) = Some(limit);

    /// Sets whether the probes are served. Default: true. Endpoints for metrics alone, at a port of
    /// their own, leave them out.
    probes(are_served: bool) in without_probes = !are_served;
}
