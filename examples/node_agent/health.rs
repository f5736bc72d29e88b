//! What the health probes answer: kube components' paths and words, by whether the server keeps
//! confirming what is known.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kubecache::Error;
use kubecache::reflector::Reflector;

use crate::credentials::Credentials;
use crate::exchange::{Asked, Page};
use crate::files::Files;
use crate::managers::Managers;
use crate::selections::Followed;
use crate::snapshot::Keeper;

/// What is looked at when a probe asks. Looking never waits.
#[derive(Clone)]
pub(crate) struct Health {
    /// Where pods are followed.
    pub(crate) pods: Option<Arc<Reflector>>,
    /// Where objects have a time to live.
    pub(crate) own_node: Option<Arc<Reflector>>,
    pub(crate) managers: Managers,
    /// Where objects are written.
    pub(crate) files: Option<Arc<Files>>,
    /// Where units of systemd get values.
    pub(crate) credentials: Option<Arc<Credentials>>,
    /// What selects objects by their labels.
    pub(crate) selections: Followed,
    /// Whether everything was answered once; that stays so.
    pub(crate) synced: Flag,
    /// Where there is a snapshot.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "metrics"))]
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// Where there is a snapshot: whether something of it waits for the server's word.
    pub(crate) restored: Option<Flag>,
}

/// What the agent's loop tells the probes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(crate) fn set(&self, value: bool) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn check(&self, wanted: bool, otherwise: &str) -> Verdict {
        if self.0.load(Ordering::Relaxed) == wanted {
            Ok(())
        } else {
            Err(otherwise.to_owned())
        }
    }
}

/// Well, or what is wrong. No object's name and no word of the server: whoever reaches the port can
/// read it.
type Verdict = Result<(), String>;

/// One line of `?verbose`.
type Check = (&'static str, Verdict);

impl Health {
    /// The probes' pages; `None` for another path.
    pub(crate) fn page(&self, asked: Asked<'_>) -> Option<Page> {
        let path = asked.path.strip_prefix('/')?;
        let (probe, one) = path.split_once('/').unwrap_or((path, ""));
        let checks = match probe {
            "livez" => vec![ping()],
            "healthz" => self.fresh(),
            "readyz" => {
                let mut checks = self.fresh();
                let synced = self
                    .synced
                    .check(true, "not every object has had its first answer");
                checks.push(("synced", synced));
                checks
            }
            _ => return None,
        };
        Some(if one.is_empty() {
            all(probe, checks, asked.query)
        } else {
            let check = checks.into_iter().find(|(name, _)| *name == one)?;
            all(path, vec![check], asked.query)
        })
    }

    /// Whether the server keeps confirming all that is followed.
    fn fresh(&self) -> Vec<Check> {
        let mut checks = vec![ping()];
        if let Some(pods) = &self.pods {
            checks.push(("pods", told("pods", followed(pods))));
        }
        if let Some(own) = &self.own_node {
            checks.push(("node", told("node", followed(own))));
        }
        let (secrets, config_maps) = self.managers.health();
        checks.push(("secrets", told("secrets", secrets)));
        checks.push(("configmaps", told("configmaps", config_maps)));
        let selections = self.selections.lock().clone();
        if !selections.is_empty() {
            let all = selections.iter().try_for_each(|one| followed(one));
            checks.push(("selections", told("selections", all)));
        }
        if let Some(restored) = &self.restored {
            let waits = "the server has not confirmed all that the snapshot brought";
            checks.push(("snapshot", restored.check(false, waits)));
        }
        if let Some(files) = &self.files {
            checks.push(("files", told("files", files.health())));
            let hook = files.hook_health();
            checks.extend(hook.map(|hook| ("hook", told("hook", hook))));
        }
        if let Some(credentials) = &self.credentials {
            checks.push(("credentials", told("credentials", credentials.health())));
        }
        checks
    }
}

/// That there is an answer is the answer.
fn ping() -> Check {
    ("ping", Ok(()))
}

/// A thread that ended before the agent, which only a panic leads to, owes nothing to the library;
/// to the agent it does.
fn followed(reflector: &Reflector) -> Result<(), Error> {
    if reflector.is_finished() {
        return Err(Error::stopped("the thread that follows the server"));
    }
    reflector.health()
}

/// The library's own words, and of the last failure only its kind; the rest is in the log.
fn told(what: &str, health: Result<(), Error>) -> Verdict {
    health.map_err(|error| {
        let cause = error
            .source()
            .and_then(|cause| cause.downcast_ref::<Error>());
        if let Some(cause) = cause {
            log::debug!("{what}: {error}: {cause}");
            return format!("{error} (last failure: {:?})", cause.kind());
        }
        let Some(last) = error.last_error() else {
            return error.to_string();
        };
        log::debug!("{what}: {error}");
        let kind = format!("{:?}", last.kind());
        error.to_string().replace(&last.to_string(), &kind)
    })
}

/// A page as kube components write it: `ok`, or each check where one failed or `?verbose` asks for
/// them.
fn all(probe: &str, mut checks: Vec<Check>, query: &str) -> Page {
    let parameters = || query.split('&').filter(|parameter| !parameter.is_empty());
    let verbose = parameters().any(|one| one == "verbose" || one.starts_with("verbose="));
    let excluded = |name: &str| parameters().any(|one| one.strip_prefix("exclude=") == Some(name));
    let mut text = String::new();
    let mut failed = false;
    for (name, verdict) in &mut checks {
        let line = match verdict {
            _ if excluded(name) => format!("[+]{name} excluded: ok\n"),
            Ok(()) => format!("[+]{name} ok\n"),
            Err(why) => {
                failed = true;
                format!("[-]{name} failed: {why}\n")
            }
        };
        text.push_str(&line);
    }
    match (failed, verbose) {
        (true, _) => Page::text(500, format!("{text}{probe} check failed\n")),
        (false, true) => Page::text(200, format!("{text}{probe} check passed\n")),
        (false, false) => Page::text(200, "ok"),
    }
}

#[cfg(test)]
mod tests {
    use kubecache::ErrorKind;

    use super::*;

    fn checks(secrets: Verdict) -> Vec<Check> {
        vec![ping(), ("pods", Ok(())), ("secrets", secrets)]
    }

    #[test]
    fn a_page_is_ok_or_lists_the_checks_as_kube_components_do() {
        let page = |secrets, query| all("healthz", checks(secrets), query);
        assert_eq!(page(Ok(()), ""), Page::text(200, "ok"));
        let listed = "[+]ping ok\n[+]pods ok\n[+]secrets ok\nhealthz check passed\n";
        for verbose in ["verbose", "verbose=1", "x=y&verbose"] {
            assert_eq!(page(Ok(()), verbose), Page::text(200, listed));
        }
        let failed = "[+]ping ok\n[+]pods ok\n[-]secrets failed: old\nhealthz check failed\n";
        for query in ["", "verbose", "exclude=pods", "exclude"] {
            let page = page(Err("old".to_owned()), query);
            let failed = match query {
                "exclude=pods" => failed.replace("pods ok", "pods excluded: ok"),
                _ => failed.to_owned(),
            };
            assert_eq!(page, Page::text(500, failed));
        }
        let excluded = "[+]ping ok\n[+]pods ok\n[+]secrets excluded: ok\nhealthz check passed\n";
        let query = "verbose&exclude=secrets";
        assert_eq!(
            page(Err("old".to_owned()), query),
            Page::text(200, excluded)
        );
    }

    /// B14 asks the owner of a reflector whether its end is well: here it is not.
    #[cfg(feature = "testing")]
    #[test]
    fn b14_a_thread_that_ended_while_the_agent_runs_fails_its_check() {
        use kubecache::store::{Indexers, Store};
        use kubecache::testing::FakeSource;

        let source = Arc::new(FakeSource::<k8s_openapi::api::core::v1::Node>::new());
        let options = kubecache::reflector::ReflectorOptions::default();
        let (_store, reflector) = Store::spawn("node", source, Indexers::new(), options).unwrap();
        assert_eq!(told("node", followed(&reflector)), Ok(()));
        reflector.stop();
        while !reflector.is_finished() {
            std::thread::yield_now();
        }
        let why = "the thread that follows the server: stopped".to_owned();
        assert_eq!(told("node", followed(&reflector)), Err(why));
    }

    #[test]
    fn of_a_failure_its_kind_is_told_and_none_of_its_words() {
        let why = Error::new(ErrorKind::Unreachable, "connecting to canary.example:6443");
        let error = Error::new(ErrorKind::Timeout, "the server last confirmed it 131s ago");
        assert_eq!(
            told("pods", Err(error.clone().with_source(why))),
            Err("the server last confirmed it 131s ago (last failure: Unreachable)".to_owned())
        );
        assert_eq!(told("pods", Err(error.clone())), Err(error.to_string()));
        assert_eq!(told("pods", Ok(())), Ok(()));
    }
}
