//! What a kubeconfig's text says of its user: read again once the server rejects it.

use super::super::transport::thread_pool::JobKind;
use super::source::{CredentialSource, FetchReason, Fetched, RenewalPolicy};
use crate::error::Error;
use crate::policy::KUBECONFIG;

const POLICY: RenewalPolicy = RenewalPolicy {
    thread: "kubeconfig",
    jobs: JobKind::Hang,
    row: &KUBECONFIG,
    hang_hint: "does the kubeconfig's file system hang?",
};

/// Reads and resolves the files of a kubeconfig. Blocks for local files.
pub(crate) type ReadUser = Box<dyn Fn() -> Result<Fetched, Error> + Send + Sync>;

pub(super) struct KubeconfigUser {
    /// Such as `context "shop" in /home/jane/.kube/config`.
    pub(super) name: String,
    pub(super) read: ReadUser,
}

impl CredentialSource for KubeconfigUser {
    fn name(&self) -> &str {
        &self.name
    }

    fn policy(&self) -> &RenewalPolicy {
        &POLICY
    }

    fn fetch(&self, _: &FetchReason<'_>) -> Result<Fetched, Error> {
        (self.read)()
    }
}
