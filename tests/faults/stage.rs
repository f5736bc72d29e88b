//! A server with its users, and the way of each test: a fault comes, reads meet it, it goes, and
//! caches follow.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::{Clock, Deadline, FakeClock};
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::list_watch::ListerWatcher;
use kubecache::manager::{Cached, ChangeDetection, ManagerOptions, SecretManager};
use kubecache::object::{ObjectKey, Scope};
use kubecache::reflector::ReflectorOptions;
use kubecache::testing::{ApiServer, ApiServerBuilder, Fault, TestAuthority, objects};
use kubecache::{Error, ErrorKind};

use crate::support::until;

/// Far more than any step takes on a busy machine: it only ends a test that fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// What ends a read that would hang.
const SHORT: Duration = Duration::from_secs(1);

/// No error tells it, nor a log.
const TOKEN: &str = "canary-of-a-token";

pub(super) fn secret(name: &str, value: &str) -> Secret {
    objects::secret("shop", name, "", &[("k", value)])
}

pub(super) fn value_of(secret: &Secret) -> String {
    let data = secret.data.as_ref().and_then(|data| data.get("k"));
    let bytes = data.map(|value| value.0.clone()).unwrap_or_default();
    String::from_utf8(bytes).unwrap()
}

/// A client whose limits end a read that hangs, or a test that fails.
pub(super) fn client_of(config: &Config, hangs: bool) -> Client {
    let limit = if hangs { SHORT } else { PATIENCE };
    let options = ClientOptions::default()
        .connect_timeout(limit)
        .list_first_byte_timeout(limit)
        .watch_first_byte_timeout(limit)
        .object_list_first_byte_timeout(limit)
        .second_try_after(PATIENCE)
        .get_first_byte_timeout(limit)
        .body_idle_timeout(limit)
        .body_timeout(limit * 2)
        .rate(10_000.try_into().unwrap())
        .burst(10_000.try_into().unwrap());
    Client::new(config, options).unwrap()
}

/// A server and all users of it.
pub(super) struct Stage {
    pub(super) server: ApiServer,
    /// Of the server, and of those with a watch.
    pub(super) clock: FakeClock,
    /// Of managers without a watch: it goes on while they are read, and the server's does not.
    asking: FakeClock,
    in_tls: bool,
    pub(super) client: Client,
    pub(super) informer: SharedInformer<Secret>,
    pub(super) watching: SecretManager,
    pub(super) caching: SecretManager,
    pub(super) getting: SecretManager,
    /// Errors, in the order in which the informer's hook was told of them.
    pub(super) told: Receiver<Error>,
}

impl Stage {
    pub(super) fn new(hangs: bool) -> Self {
        Self::of(ApiServer::builder(), None, hangs)
    }

    /// With a server of that authority's, which its users trust.
    pub(super) fn of(
        builder: ApiServerBuilder,
        authority: Option<&TestAuthority>,
        hangs: bool,
    ) -> Self {
        let clock = FakeClock::new();
        let mut builder = builder
            .clock(clock.clone().into())
            .token(TOKEN, "test-agent", &[]);
        if let Some(authority) = authority {
            builder = builder.tls_by(authority).unwrap();
        }
        let server = builder.start().unwrap();
        let config = Config::for_server(&server.url()).unwrap();
        let mut config = config.with_token(TOKEN).unwrap();
        if let Some(authority) = authority {
            config = config.with_authorities(authority.pem());
        }
        server.apply(&secret("db", "one")).unwrap();
        server.apply(&secret("web", "one")).unwrap();
        let client = client_of(&config, hangs);
        let (tell, told) = unbounded();
        let source: Arc<dyn ListerWatcher<Secret>> =
            client.lister_watcher(Scope::namespace("shop"));
        let reflector = ReflectorOptions::default()
            .clock(clock.clone().into())
            .on_error(move |failed| tell.send(failed.error.clone()).unwrap_or_default());
        let options = InformerOptions::default().reflector(reflector);
        let informer = SharedInformer::new(source, options);
        informer.start().unwrap();
        let asking = FakeClock::new();
        let manager = |mode| {
            let clock = if mode == ChangeDetection::Watch {
                clock.clone()
            } else {
                asking.clone()
            };
            let options = ManagerOptions::default()
                .change_detection(mode)
                .ttl(Duration::ZERO)
                .idle_max(Duration::MAX)
                .clock(clock.into());
            let manager = SecretManager::new(client.clone(), options).unwrap();
            manager.register_pod(&objects::pod("shop", "web-0", "node-1", &["db"], &[]));
            manager
        };
        let stage = Self {
            watching: manager(ChangeDetection::Watch),
            caching: manager(ChangeDetection::Cache),
            getting: manager(ChangeDetection::Get),
            informer,
            client,
            server,
            clock,
            asking,
            in_tls: authority.is_some(),
            told,
        };
        stage.follow("one");
        stage
    }

    /// Waits until all caches have that value of the object, while the clock goes on.
    pub(super) fn follow(&self, value: &str) {
        self.until(&format!("all caches have {value}"), || {
            self.stored() == value && self.watched() == value
        });
        // Those without a watch ask; after a fault the connections may be dead once more.
        self.until("managers without a watch ask", || {
            [&self.caching, &self.getting]
                .iter()
                .all(|manager| self.read_of(manager) == value)
        });
    }

    pub(super) fn stored(&self) -> String {
        let found = self.informer.store().get("shop", "db");
        let found = found.map(|found| found.map(|secret| value_of(&secret)));
        read(found.map(|found| found.unwrap_or_else(|| "nothing".to_owned())))
    }

    /// What the manager with watches holds.
    pub(super) fn watched(&self) -> String {
        let held = self.watching.get_cached("shop", "db");
        read(held.map(|held| {
            let value = held.map(|secret| value_of(&secret));
            value.unwrap_or_else(|| "nothing".to_owned())
        }))
    }

    /// What a read of a manager gives while time passes.
    #[track_caller]
    pub(super) fn read_of(&self, manager: &SecretManager) -> String {
        value_in(self.try_read_of(manager))
    }

    /// The client's limits end the requests of the read.
    #[track_caller]
    pub(super) fn try_read_of(&self, manager: &SecretManager) -> Result<Cached<Secret>, Error> {
        std::thread::scope(|scope| {
            let read = scope.spawn(|| manager.get_by("shop", "db", Deadline::NEVER));
            pass_until(&self.asking, || read.is_finished());
            read.join().unwrap()
        })
    }

    /// Has new requests meet a fault: kept connections meet none of a handshake.
    pub(super) fn meet(&self, fault: &str) {
        for fault in Fault::list_from_json(fault).unwrap() {
            self.server.add_fault(fault);
        }
        if self.in_tls {
            self.server.crash();
            self.server.come_back().unwrap();
        }
    }

    /// Lets time pass until that holds.
    #[track_caller]
    pub(super) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let end = Clock::system().after(PATIENCE);
        pass_until(&self.clock, || {
            let is_so = holds();
            assert!(
                is_so || !Clock::system().has_passed(end),
                "not in time: {what}; told: {:?}, stored: {}, {:?}",
                self.told.try_iter().collect::<Vec<_>>(),
                self.stored(),
                self.informer.status()
            );
            is_so
        });
    }

    /// Lets time pass until the informer's hook was told of an error of that kind.
    #[track_caller]
    pub(super) fn until_told(&self, kind: ErrorKind) {
        let told = || self.told.try_iter().any(|told| told.kind() == kind);
        self.until(&format!("the hook is told of {kind:?}"), told);
    }

    /// Cuts the watches until the informer's hook was told of an error of that kind, and returns
    /// all that it was told. A watch that opens again on a kept connection meets no fault of new
    /// ones, so one cut is not enough.
    #[track_caller]
    pub(super) fn cut_until_told(&self, kind: ErrorKind) -> Vec<Error> {
        let told = RefCell::new(Vec::<Error>::new());
        self.until(&format!("the hook is told of {kind:?}"), || {
            told.borrow_mut().extend(self.told.try_iter());
            let is_told = told.borrow().iter().any(|told| told.kind() == kind);
            if !is_told {
                self.server.cut_watches();
            }
            is_told
        });
        told.take()
    }

    pub(super) fn forget_told(&self) {
        self.told.try_iter().for_each(drop);
    }

    /// What a read of each kind gives: a get, a list, a read through a cache, and one without.
    pub(super) fn reads(&self) -> [String; 4] {
        let key = ObjectKey::new("shop", "db");
        let got = self.client.get::<Secret>(&key);
        let listed = self.client.list::<Secret>(Scope::namespace("shop"));
        [
            read(got.map(|secret| value_of(&secret))),
            read(listed.map(|all| format!("{} objects", all.len()))),
            self.read_of(&self.caching),
            self.read_of(&self.getting),
        ]
    }
}

/// Lets time pass on a clock until it is so: a second for each look, and an hour more for each
/// second of the system's. One fault asks for an hour, and a busy machine gives few looks a second.
#[track_caller]
fn pass_until(clock: &FakeClock, mut is_so: impl FnMut() -> bool) {
    let second = Duration::from_secs(1);
    let system = Clock::system();
    let mut next_hour = system.after(second);
    until(|| {
        if is_so() {
            return true;
        }
        clock.advance(second);
        if system.has_passed(next_hour) {
            next_hour = system.after(second);
            clock.advance(second * 3600);
        }
        false
    });
}

fn value_in(cached: Result<Cached<Secret>, Error>) -> String {
    read(cached.map(|secret| value_of(&secret)))
}

/// A value, or kind and text of an error.
pub(super) fn read(result: Result<String, Error>) -> String {
    result.unwrap_or_else(|error| format!("{:?}: {error}", error.kind()))
}

/// What a fault does to each user.
pub(super) struct Row {
    /// As JSON.
    pub(super) fault: &'static str,
    /// Of a get, a list, a read through a cache with a time to live, and one without: the begin of
    /// what it gives, a value or the kind of an error.
    pub(super) reads: [&'static str; 4],
    /// What one of them says, besides that.
    pub(super) says: &'static str,
    /// What a cache may hold instead of the object as it was.
    pub(super) kept: &'static str,
    /// What the informer's hook is told, if it is told.
    pub(super) told: Option<ErrorKind>,
    /// Whether reads end by a limit of time alone.
    pub(super) hangs: bool,
}

/// A test for each fault, named as in the table of the docs, and all rows with their names.
macro_rules! faults {
    ($meet:ident($stage:expr); $($name:ident { $($row:tt)* })*) => {
        $(#[test]
        fn $name() {
            $meet($stage, &Row { $($row)* });
        })*
        pub(super) const ROWS: &[(&str, Row)] = &[$((stringify!($name), Row { $($row)* })),*];
    };
}
pub(super) use faults;

/// Puts all users through the fault.
pub(super) fn meet(stage: fn(bool) -> Stage, row: &Row) {
    let stage = stage(row.hangs);
    stage.meet(row.fault);
    assert_eq!(
        stage.read_of(&stage.watching),
        "one",
        "an open watch meets no new fault"
    );
    let reads = stage.reads();
    for (read, expected) in reads.iter().zip(row.reads) {
        assert!(read.starts_with(expected), "{reads:#?}");
        assert!(!read.contains(TOKEN), "a token is told");
        assert!(!read.contains(|c: char| c.is_control()), "{read:?}");
    }
    assert!(
        reads.iter().any(|read| read.contains(row.says)),
        "{reads:#?}"
    );
    // No cache lets go of what it holds, but for what the table says.
    stage.forget_told();
    stage.server.cut_watches();
    stage.server.apply(&secret("db", "two")).unwrap();
    if let Some(kind) = row.told {
        stage.cut_until_told(kind);
    }
    for kept in [
        stage.stored(),
        stage.watched(),
        stage.read_of(&stage.watching),
    ] {
        assert!(
            ["one", "two", row.kept]
                .iter()
                .any(|value| kept.starts_with(value)),
            "{kept}"
        );
    }

    stage.server.clear_faults();
    if row.told.is_none() {
        // A watch may wait on a connection that the fault still holds, by limits of minutes of the
        // system's clock (B11).
        stage.server.crash();
        stage.server.come_back().unwrap();
    }
    // Open watches have met the fault already.
    stage.server.cut_watches();
    stage.server.apply(&secret("db", "three")).unwrap();
    stage.follow("three");
    stage.server.apply(&secret("db", "four")).unwrap();
    stage.follow("four");
}
