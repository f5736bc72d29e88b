//! A relist loop takes its thread along: alone in its process, so that the count is of this test's
//! threads only.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use kubecache::clock::{Clock, Deadline};
use kubecache::pod_status::{
    CachedStatus as _, PodStatus, PodStatusCache, Relist, RelistOptions, Runtime, RuntimeError,
    RuntimePod,
};
use kubecache::worker::{StopToken, live_workers};

use crate::support::{alone, until};

/// A runtime that tells when it is asked, and returns from a list when it is told to.
struct Slow {
    asked: Sender<()>,
    go_on: Receiver<()>,
}

impl Runtime for Slow {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.asked.send(())?;
        self.go_on.recv()?;
        Ok(vec![RuntimePod::new("uid-1", "shop", "web")])
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        Ok(PodStatus::with_id(pod.uid()))
    }
}

fn start() -> (Relist, Receiver<()>, Sender<()>) {
    let (asked, ask) = bounded(0);
    let (go, go_on) = bounded(0);
    let cache = PodStatusCache::new(Clock::system());
    // Never twice in this test: nobody would take its second question.
    let options = RelistOptions::default().period(Duration::MAX);
    let relist = Relist::spawn(Slow { asked, go_on }, cache, options).unwrap();
    (relist, ask, go)
}

#[test]
fn no_thread_is_left_when_a_relist_loop_has_ended() {
    alone(|| {
        let clock = Clock::system();

        let (relist, ask, go) = start();
        ask.recv().unwrap();
        go.send(()).unwrap();
        assert_eq!(live_workers(), 1);
        relist.shutdown(Deadline::NEVER).unwrap();
        assert_eq!(live_workers(), 0, "after a shutdown");

        let (relist, ask, go) = start();
        ask.recv().unwrap();
        go.send(()).unwrap();
        drop(relist);
        assert_eq!(live_workers(), 0, "after a drop");

        // A runtime that does not return keeps its thread, and nobody else's; with the call the
        // thread ends.
        let (relist, ask, go) = start();
        ask.recv().unwrap();
        let error = relist.shutdown(clock.after(Duration::ZERO)).unwrap_err();
        assert!(
            error.to_string().starts_with("thread relist has not ended"),
            "{error}"
        );
        assert_eq!(live_workers(), 1);
        go.send(()).unwrap();
        assert!(
            ask.recv().is_err(),
            "the runtime is dropped with the thread"
        );
        until(|| live_workers() == 0);
    });
}
