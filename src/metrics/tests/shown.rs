//! The text: once as a whole, and the readings as they change.

use std::time::SystemTime;

use super::*;
use crate::clock::Deadline;
use crate::hooks::{Hook, Telemetry};
use crate::http::{
    Client, ClientCertificate, ClientMetric, ClientOptions, ClientState, Config, PluginEnd,
    PluginRun, WriteOptions,
};
use crate::informer::{HandlerOptions, Handlers};
use crate::object::{Object as _, Status};
use crate::testing::{ApiServer, RequestKind, SourceFault};
use crate::tests::until::until;

/// The whole text of an informer, a reflector, a manager and a client, against one checked by hand.
#[test]
fn rf_51_rf_52_the_whole_text() {
    let stage = Stage::new();
    stage.set("a");
    stage.source.set_undecodable("shop", "odd");
    let informer = stage.informer("settings");
    let (told, was_told) = crossbeam_channel::unbounded();
    let handler = Handlers::new().on_add(move |_, _| told.send(()).unwrap());
    let options = HandlerOptions::default().name("printer");
    let registration = informer.add_handler_with(handler, options).unwrap();
    stage.run(&informer);
    registration.wait_until_synced(Deadline::NEVER).unwrap();
    assert!(was_told.recv().is_ok());
    // The reflector's thread counts a change after all handlers have got it.
    let pops = || stage.of("informer_processing_latency_seconds_count", "settings");
    until(|| pops().unwrap() != "0");
    let (secrets, manager) = stage.manager(ChangeDetection::Cache);
    secrets.set(objects::secret(
        "shop",
        "db",
        "",
        &[("password", "made-up")],
    ));
    manager.register_pod(&objects::pod("shop", "till", "node", &["db", "gone"], &[]));
    manager.get("shop", "db").unwrap();
    manager.get("shop", "gone").unwrap_err();
    let client = stage.exposition.client("agent").unwrap();
    for (exit_code, end) in [
        (0, PluginEnd::Success),
        (3, PluginEnd::ExitCode),
        (1, PluginEnd::Denied),
    ] {
        let run = PluginRun {
            exit_code,
            end,
            took: Duration::ZERO,
            valid_for: None,
            replaced_certificate_age: (exit_code == 0).then_some(seconds(90_000)),
        };
        client.tell("t", &ClientMetric::PluginRun(run));
    }
    for metric in requests() {
        client.tell("t", &metric);
    }
    let text = stage.exposition.text();
    assert_eq!(text, include_str!("golden.txt"));
}

/// A list that is retried after a 401, and a connection that is refused.
fn requests() -> [ClientMetric; 9] {
    let host: Arc<str> = "10.0.0.1:6443".into();
    let method = "GET";
    let limited = |millis| ClientMetric::RateLimited {
        host: Arc::clone(&host),
        method,
        waited: Duration::from_millis(millis),
    };
    let sent = |code, is_retry| ClientMetric::RequestSent {
        host: Arc::clone(&host),
        method,
        code,
        is_retry,
    };
    let ended = |millis, body_bytes| ClientMetric::RequestEnded {
        host: Arc::clone(&host),
        method,
        took: Duration::from_millis(millis),
        body_bytes,
    };
    let decoded = |bytes, skipped_bytes| ClientMetric::BodyDecoded {
        host: Arc::clone(&host),
        bytes,
        skipped_bytes,
    };
    [
        limited(0),
        sent(Some(401), false),
        sent(Some(200), true),
        decoded(65_536, 20_000),
        decoded(4_464, 1_000),
        ended(20, Some(70_000)),
        limited(1_500),
        sent(None, false),
        ended(1_510, None),
    ]
}

/// A server chooses the code. It cannot make series without bound.
#[test]
fn codes_that_http_does_not_have_share_a_series() {
    let stage = Stage::new();
    let client = stage.exposition.client("agent").unwrap();
    for code in 0..=u16::MAX {
        let host = "10.0.0.1:6443".into();
        let (code, is_retry) = (Some(code), true);
        client.tell(
            "t",
            &ClientMetric::RequestSent {
                host,
                method: "GET",
                code,
                is_retry,
            },
        );
    }
    let text = stage.exposition.text();
    for name in ["requests_total", "request_retries_total"] {
        let name = format!("rest_client_{name}{{");
        let series = text.lines().filter(|line| line.starts_with(&name)).count();
        assert!(series < 80, "{series}");
    }
}

/// A client with these credentials, as far as its hook knows.
fn started(
    client: &Hook<ClientMetric>,
    state: ClientState,
) -> Telemetry<ClientMetric, ClientState> {
    let (hook, clock) = (Some(client.clone()), Clock::system());
    let look = move || state.clone();
    Telemetry::start(hook, "t", &clock, look, ClientMetric::Started).unwrap()
}

#[test]
fn the_first_certificate_that_expires_is_shown_for_as_long_as_its_client_lives() {
    let stage = Stage::new();
    let client = stage.exposition.client("agent").unwrap();
    let of = |name: &str| -> Option<f64> {
        let value = stage.value(&format!("{name}{{name=\"agent\"}}"))?;
        Some(value.parse().unwrap())
    };
    let all = || {
        [
            of("rest_client_exec_plugin_ttl_seconds"),
            of("kubecache_client_certificate_ttl_seconds"),
            of("kubecache_client_credentials_ttl_seconds"),
        ]
    };
    assert_eq!(all(), [None; 3]);
    let nothing = ClientState {
        certificate: None,
        credentials: None,
    };
    let of_certificate = |expires, is_of_plugin| ClientState {
        certificate: Some(ClientCertificate {
            expires,
            is_of_plugin,
        }),
        ..nothing.clone()
    };
    let _bare = started(&client, nothing.clone());
    assert_eq!(all(), [Some(f64::INFINITY); 3]);
    let long_ago = SystemTime::UNIX_EPOCH;
    let expired = started(&client, of_certificate(long_ago, false));
    let hour = SystemTime::now().checked_add(seconds(3_600)).unwrap();
    let _good = started(&client, of_certificate(hour, true));
    let [Some(of_plugin), Some(of_all), Some(credentials)] = all() else {
        panic!("all are there");
    };
    assert!((3_000.0..=3_600.0).contains(&of_plugin), "{of_plugin}");
    assert!(of_all < -1e9 && credentials.is_infinite(), "{of_all}");
    drop(expired);
    let of_all = of("kubecache_client_certificate_ttl_seconds").unwrap();
    assert!((3_000.0..=3_600.0).contains(&of_all), "{of_all}");
}

#[test]
fn b14_silence_grows_until_the_server_is_heard_again() {
    let stage = Stage::new();
    let (store, _reflector) = stage.reflector("settings", 1);
    let silence = || {
        stage
            .of("kubecache_reflector_silence_seconds", "settings")
            .unwrap()
    };
    assert_eq!(silence(), "0");
    stage.fake.advance(seconds(90));
    assert_eq!(silence(), "90");
    stage.set("a");
    store
        .wait_until_at_least(&"2".into(), Deadline::NEVER)
        .unwrap();
    // The store has the object first; the reflector shows its state before it waits again.
    until(|| silence() == "0");
}

#[test]
fn b14_a_server_that_never_answers_is_silent_since_the_start() {
    let stage = Stage::new();
    let error = crate::Error::from_status(Status::new(500, "made up"));
    stage
        .source
        .fail_next(RequestKind::List, SourceFault::Fail(error));
    let mut options = stage.options();
    options.metrics = Some(stage.exposition.reflector::<ConfigMap>("settings").unwrap());
    let source = Arc::new(stage.source.clone());
    let (_store, _reflector) = Store::spawn("t", source, Indexers::new(), options).unwrap();
    stage.fake.wait_for_timer(Duration::from_millis(800));
    stage.fake.advance(Duration::from_millis(500));
    assert_eq!(
        stage
            .of("kubecache_reflector_silence_seconds", "settings")
            .unwrap(),
        "0.5"
    );
    assert_eq!(
        stage
            .of("kubecache_reflector_consecutive_failures", "settings")
            .unwrap(),
        "1"
    );
    assert_eq!(
        stage
            .of("reflector_last_resource_version", "settings")
            .unwrap(),
        "0"
    );
    stage.fake.advance(Duration::from_millis(300));
    stage.source.wait_for_watches(1);
    stage.fake.wait_for_next_timer();
    assert_eq!(
        stage
            .of("kubecache_reflector_consecutive_failures", "settings")
            .unwrap(),
        "0"
    );
    assert_eq!(
        stage
            .of("reflector_last_resource_version", "settings")
            .unwrap(),
        "1"
    );
}

#[test]
fn rf_52_si_18_a_handler_that_is_slow_or_panics_is_seen() {
    let stage = Stage::new();
    stage.set("a");
    let informer = stage.informer("settings");
    let (enter, entered) = crossbeam_channel::unbounded();
    let (leave, may_leave) = crossbeam_channel::unbounded::<bool>();
    let handler = Handlers::new().on_add(move |_, _| {
        enter.send(()).unwrap();
        assert!(may_leave.recv().unwrap(), "made up");
    });
    let options = HandlerOptions::default().name("slow");
    let registration = informer.add_handler_with(handler, options).unwrap();
    stage.run(&informer);
    entered.recv().unwrap();
    stage.set("b");
    informer
        .store()
        .wait_until_at_least(&"3".into(), Deadline::NEVER)
        .unwrap();
    until(|| registration.readings().queued != 0);
    stage.fake.advance(seconds(4));
    let of = |metric: &str| {
        let labels =
            r#"{group="",handler="slow",name="settings",resource="configmaps",version="v1"}"#;
        stage
            .value(&format!("kubecache_informer_handler_{metric}{labels}"))
            .unwrap()
    };
    assert_eq!(
        [of("queued_items"), of("lag_seconds"), of("panics_total")],
        ["1", "4", "0"]
    );
    leave.send(false).unwrap();
    leave.send(true).unwrap();
    entered.recv().unwrap();
    until(|| registration.readings().delivered >= 2);
    assert_eq!(
        [of("queued_items"), of("lag_seconds"), of("panics_total")],
        ["0", "0", "1"]
    );
    informer.shutdown(Deadline::NEVER).unwrap();
}

/// SI-18: lost notifications stay counted while a handler of that name is there, and handlers
/// without a name share one series.
#[test]
fn rf_52_si_18_panics_go_with_their_handlers_and_those_without_a_name_are_one_series() {
    let stage = Stage::new();
    stage.set("a");
    let informer = stage.informer("settings");
    let of = |handler: &str, metric: &str| {
        let labels = format!(
            r#"{{group="",handler="{handler}",name="settings",resource="configmaps",version="v1"}}"#
        );
        stage.value(&format!("kubecache_informer_handler_{metric}{labels}"))
    };
    let bad = || Handlers::<ConfigMap>::new().on_add(|_, _| panic!("made up"));
    let options = HandlerOptions::default().name("bad");
    let named = informer.add_handler_with(bad(), options).unwrap();
    let unnamed = [(); 2].map(|()| informer.add_handler(bad()).unwrap());
    stage.run(&informer);
    named.wait_until_synced(Deadline::NEVER).unwrap();
    for handler in &unnamed {
        handler.wait_until_synced(Deadline::NEVER).unwrap();
        assert_eq!(of(handler.name(), "panics_total"), None);
    }
    assert_eq!(of("bad", "panics_total").unwrap(), "1");
    assert_eq!(of("unnamed", "panics_total").unwrap(), "2");
    assert_eq!(of("unnamed", "queued_items").unwrap(), "0");
    named.remove(Deadline::NEVER).unwrap();
    unnamed[0].remove(Deadline::NEVER).unwrap();
    assert_eq!(
        of("bad", "panics_total"),
        None,
        "a series for each name ever"
    );
    assert_eq!(of("unnamed", "panics_total").unwrap(), "2");
    assert_eq!(of("bad", "queued_items"), None, "a reading of nobody");
    informer.shutdown(Deadline::NEVER).unwrap();
    assert_eq!(stage.exposition.text(), "");
}

/// Reads from memory and waits share a histogram; failures are split by kind, never by object.
#[test]
fn reads_of_a_manager_are_counted_by_strategy_and_reason() {
    let stage = Stage::new();
    let (secrets, manager) = stage.manager(ChangeDetection::Watch);
    secrets.set(objects::secret(
        "shop",
        "db",
        "",
        &[("password", "made-up")],
    ));
    manager.register_pod(&objects::pod("shop", "till", "node", &["db", "gone"], &[]));
    for _ in 0..3 {
        manager.get("shop", "db").unwrap();
    }
    manager.get("shop", "gone").unwrap_err();
    manager.get("shop", "unknown").unwrap_err();
    let of = |metric: &str, labels: &str| {
        stage.value(&format!(
            "kubecache_object_cache_{metric}{{kind=\"Secret\",{labels}}}"
        ))
    };
    let watch = r#"strategy="Watch""#;
    assert_eq!(of("get_duration_seconds_count", watch).unwrap(), "5");
    for reason in ["NotFound", "NotRegistered"] {
        let labels = format!(r#"reason="{reason}",{watch}"#);
        assert_eq!(of("get_errors_total", &labels).unwrap(), "1");
    }
    assert_eq!(of("watches", watch).unwrap(), "2");
    assert_eq!(of("references", watch).unwrap(), "2");
    let lists =
        r#"reflector_lists_total{group="",name="object-cache",resource="secrets",version="v1"}"#;
    assert_eq!(stage.value(lists).unwrap(), "2");
    let text = stage.exposition.text();
    for secret in ["shop", "\"db", "gone", "unknown", "made-up", "till"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

/// Seen: creates and deletes were counted as gets.
#[test]
fn requests_are_counted_by_their_method() {
    let (server, exposition) = (ApiServer::new().unwrap(), Exposition::new());
    let config = Config::for_server(&server.url()).unwrap();
    let options = ClientOptions::default().metrics(exposition.client("agent").unwrap());
    let client = Client::new(&config, options).unwrap();
    let map = objects::config_map("default", "m", "", &[("a", "1")]);
    let options = WriteOptions::default();
    client.create(&map, &options, Deadline::NEVER).unwrap();
    client.get::<ConfigMap>(&map.key()).unwrap();
    let text = exposition.text();
    let host = server.address();
    for (method, code) in [("POST", "201"), ("GET", "200")] {
        let labels = format!(r#"code="{code}",host="{host}",method="{method}",name="agent""#);
        let by = format!(r#"host="{host}",name="agent",verb="{method}""#);
        for series in [
            format!("requests_total{{{labels}}} 1\n"),
            format!("request_duration_seconds_count{{{by}}} 1\n"),
            format!("rate_limiter_duration_seconds_count{{{by}}} 1\n"),
        ] {
            let series = format!("rest_client_{series}");
            assert!(text.contains(&series), "{series} in {text}");
        }
    }
}
