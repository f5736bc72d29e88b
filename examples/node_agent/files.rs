//! The objects as files of a directory, and who is told when they change.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::clock::Deadline;
use kubecache::outlet::{Outlet, OutletOptions, Publisher, PublisherStatus};
use kubecache::{Error, ErrorKind};

use crate::declaration::Declaration;
use crate::managers::Managers;
use crate::plan::Plan;
use crate::teller::{self, HookRuns, Tellers, Tells};
use crate::told::Told;

/// The time after which a write of a file is told by the health.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// What the flags say of files.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileOptions {
    /// `None`: no files.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) owner: Option<(u32, u32)>,
    /// Whether a directory is taken that has other files.
    pub(crate) adopts: bool,
    /// Who is told of each change.
    pub(crate) tells: Tells,
}

/// The threads that write.
pub(crate) struct Files {
    secrets: Publisher<Secret>,
    config_maps: Publisher<ConfigMap>,
    // Last: they outlast those that write.
    tellers: Arc<Tellers>,
}

impl Files {
    /// Starts to write the objects of the managers; `None` without a directory. With a plan, their
    /// files are as it says.
    pub(crate) fn start(
        options: &FileOptions,
        managers: &Managers,
        plan: Option<&Plan>,
    ) -> Result<Option<Self>, Error> {
        let Some(directory) = &options.directory else {
            return Ok(None);
        };
        let mut outlet = OutletOptions::new(directory)
            .name("node_agent")
            .adopt(options.adopts);
        if let Some((user, group)) = options.owner {
            outlet = outlet.owner(user, group);
        }
        if let Some(plan) = plan.cloned() {
            outlet = outlet.layout(move |kind, key, presence| plan.lay_out(kind, key, presence));
        }
        let outlet = Arc::new(Outlet::open(outlet)?);
        let told = Told::read(directory);
        let left = [teller::FLAG, teller::FIELD].map(|label| {
            let left = told.left(&outlet, label);
            left.unwrap_or_else(|error| {
                log::warn!("{error}; what an earlier agent did not tell is not told");
                BTreeSet::new()
            })
        });
        let plan = plan.cloned().unwrap_or_default();
        let tellers = Arc::new(Tellers::start(&options.tells, plan, told, left)?);
        let hook = |kind| Some(tellers.hook(kind));
        let (secrets, config_maps) = managers.shared();
        Ok(Some(Self {
            secrets: Publisher::start(secrets, Arc::clone(&outlet), hook("Secret"))?,
            config_maps: Publisher::start(config_maps, outlet, hook("ConfigMap"))?,
            tellers,
        }))
    }

    /// The configuration has changed: those are told whom it names.
    pub(crate) fn declare(&self, declaration: &Declaration) -> Result<(), Error> {
        self.tellers.declare(declaration)
    }

    /// The plan has changed: each object is laid out again.
    pub(crate) fn lay_out_again(&self) {
        self.secrets.layouts_changed();
        self.config_maps.layouts_changed();
    }

    /// References came or went. What nobody references now may go, also what an earlier agent
    /// wrote. What that one did not tell is told.
    pub(crate) fn references_are_complete(&self) {
        self.tellers.tell_left();
        self.secrets.references_are_complete();
        self.config_maps.references_are_complete();
    }

    /// References came or went before all are known.
    pub(crate) fn look(&self) {
        self.secrets.look();
        self.config_maps.look();
    }

    /// Tells again what was told in vain.
    pub(crate) fn tell_again(&self) {
        self.tellers.tell_again();
    }

    /// Waits until all that is known has its files.
    pub(crate) fn write_by(&self, deadline: Deadline) -> Result<(), Error> {
        // Those of the other kind are written, too.
        let written = self.secrets.publish_by(deadline);
        written.and(self.config_maps.publish_by(deadline))
    }

    /// Asks the threads that write to end. Who waits for them waits no more.
    pub(crate) fn stop(&self) {
        self.secrets.stop();
        self.config_maps.stop();
        self.tellers.stop();
    }

    /// Waits until who is told of the changes so far has been told.
    pub(crate) fn tell_by(&self, deadline: Deadline) -> Result<(), Error> {
        self.tellers.tell_by(deadline)
    }

    /// Whether the last run of the hook was a success, and the present one is not too long; `None`
    /// without a hook.
    pub(crate) fn hook_health(&self) -> Option<Result<(), Error>> {
        self.tellers.health()
    }

    /// How the runs of the hook stand; `None` without one.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "a metric"))]
    pub(crate) fn hook_runs(&self) -> Option<HookRuns> {
        self.tellers.runs()
    }

    /// How many objects have their files, how many failed, and when none had last.
    pub(crate) fn readings(&self) -> (usize, usize, Option<SystemTime>) {
        let [one, other] = [self.secrets.status(), self.config_maps.status()];
        let failed = one.failed.len().saturating_add(other.failed.len());
        let written = one.published.saturating_add(other.published);
        let last = one.last_success.zip(other.last_success);
        (written, failed, last.map(|(one, other)| one.min(other)))
    }

    /// Says what is missing until so many objects have their files.
    pub(crate) fn missing(&self, objects: usize) -> Option<String> {
        let (written, failed, _) = self.readings();
        let missing = objects.saturating_sub(written).max(failed);
        (missing > 0).then(|| format!("the files of {missing} objects"))
    }

    /// Whether each object has its files, and no disk hangs.
    pub(crate) fn health(&self) -> Result<(), Error> {
        verdict([self.secrets.status(), self.config_maps.status()])
    }
}

fn verdict([one, other]: [PublisherStatus; 2]) -> Result<(), Error> {
    let longest = one.at_work.max(other.at_work);
    if let Some(long) = longest.filter(|long| *long > HANGS_AFTER) {
        let seconds = long.as_secs();
        let text = format!("a file has been written for {seconds}s: does its disk hang?");
        return Err(Error::new(ErrorKind::Timeout, text));
    }
    let mut failed = one.failed.into_values().chain(other.failed.into_values());
    match failed.next() {
        None => Ok(()),
        Some(error) => {
            let number = failed.count().saturating_add(1);
            let text = format!("objects that could not be written: {number}");
            Err(Error::new(ErrorKind::Resources, text).with_source(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_hangs_is_told_by_the_health() {
        let after = |seconds| {
            let mut hangs = PublisherStatus::default();
            hangs.at_work = Some(Duration::from_secs(seconds));
            verdict([PublisherStatus::default(), hangs])
        };
        assert!(after(60).is_ok());
        let told = after(61).unwrap_err().to_string();
        assert!(told.contains("a file has been written for 61s"), "{told}");
    }
}
