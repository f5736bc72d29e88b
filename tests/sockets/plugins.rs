//! Credentials that are fetched again: credential plugins behind TLS, and token sources of the
//! program.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Sender, unbounded};
use kubecache::clock::Clock;
use kubecache::hooks::Hook;
use kubecache::http::{
    Client, ClientMetric, ClientOptions, Config, KubeconfigOptions, Token, TokenSource,
};
use kubecache::worker::StopSource;
use kubecache::{Error, ErrorKind};
use log::{LevelFilter, Log, Metadata, Record};

use super::server::Server;
use super::tls::{accept, der, of_all_names, pem, refuse, refusing};
use super::{client_of, eventually, get, get_by, secret};
use crate::support::{TempDirectory, alone};

/// A kubeconfig with a plugin, which is a script.
struct Stage {
    directory: TempDirectory,
    config: Config,
}

impl Stage {
    /// `$DIR` in the script is the directory; `answer STATUS` answers.
    fn new(name: &str, server: &Server, script: &str) -> Self {
        let directory = TempDirectory::new(name);
        let path = directory.join("plugin");
        let text = format!(
            "#!/bin/sh\nDIR={}\nanswer() {{\nprintf '%s' \"{{\\\"apiVersion\\\":\
             \\\"client.authentication.k8s.io/v1\\\",\\\"kind\\\":\\\"ExecCredential\\\",\
             \\\"status\\\":$1}}\"\n}}\necho >>$DIR/runs\nRUN=$(wc -l <$DIR/runs)\n{script}\n",
            directory.display()
        );
        fs::write(directory.join("text"), text).unwrap();
        // Another process writes the file, so that no fork of this one has it open for writing.
        let copied = Command::new("cp")
            .arg(directory.join("text"))
            .arg(&path)
            .status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(directory.join("ca.crt"), pem("authority.pem")).unwrap();
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, \
             interactiveMode: Never, command: ./plugin, args: [canary-argument], \
             env: [{{name: C, value: canary-variable}}]}}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            server.tls_url()
        );
        let kubeconfig = directory.join("config");
        fs::write(&kubeconfig, text).unwrap();
        let options = KubeconfigOptions::default().path(kubeconfig);
        let config = Config::from_kubeconfig(&options).unwrap();
        Self { directory, config }
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.directory.join("runs"))
            .unwrap_or_default()
            .len()
    }
}

/// The head of an answer in which a server quotes the request.
const REJECTION: &str = "{\"kind\":\"Status\",\"code\":401,\"reason\":\"Unauthorized\",\
    \"message\":\"Unauthorized\"}";

/// Answers gets on one connection, and returns the tokens that came.
fn serve(server: &Server, codes: &[u16]) -> Vec<String> {
    let mut peer = accept(server, &of_all_names());
    let mut tokens = Vec::new();
    for code in codes {
        let request = peer.request();
        tokens.push(request.header("Authorization").unwrap_or("none").to_owned());
        let body = if *code == 200 {
            secret("db", "1")
        } else {
            REJECTION.to_owned()
        };
        peer.json(*code, &body);
    }
    tokens
}

#[test]
fn a_plugin_runs_with_the_first_request_and_once_more_after_a_401() {
    let server = Server::start();
    let stage = Stage::new("plugin-401", &server, "answer '{\"token\":\"t'$RUN'\"}'");
    let client = client_of(&stage.config);
    assert_eq!(stage.runs(), 0, "a client that asks nothing runs nothing");
    thread::scope(|scope| {
        let getting = scope.spawn(|| [(); 3].map(|()| get(&client, "db").map(drop)));
        let tokens = serve(&server, &[200, 401, 200, 401]);
        assert_eq!(tokens, ["Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"]);
        let [first, second, third] = getting.join().unwrap();
        assert!(first.is_ok() && second.is_ok());
        // The server rejects what it accepted a moment ago: ten seconds pass before the next run.
        let error = third.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
        assert!(
            error
                .to_string()
                .contains("the server rejects the newest credentials of ")
        );
    });
    let status = client.credentials_status().unwrap();
    assert_eq!((status.runs, status.failures, stage.runs()), (2, 0, 2));
    assert!(status.source.ends_with("plugin\""), "{status:?}");
}

/// Each token is tried once: what the plugin gives again was rejected already.
#[test]
fn a_token_that_a_plugin_gives_again_is_not_sent_again_at_once() {
    let server = Server::start();
    let stage = Stage::new("plugin-same", &server, "answer '{\"token\":\"same\"}'");
    let client = client_of(&stage.config);
    thread::scope(|scope| {
        let getting = scope.spawn(|| [(); 2].map(|()| get(&client, "db").map(drop)));
        // The second get tries it anew: the server may accept by then what it rejected.
        assert_eq!(serve(&server, &[401, 200]), ["Bearer same", "Bearer same"]);
        let [first, second] = getting.join().unwrap();
        let error = first.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        let hint = "the server rejects the newest credentials of ";
        assert!(error.to_string().contains(hint), "{error}");
        second.unwrap();
    });
    assert_eq!(stage.runs(), 2);
}

#[test]
fn clients_of_one_configuration_share_the_plugins_run() {
    let server = Server::start();
    let stage = Stage::new("plugin-shared", &server, "answer '{\"token\":\"t'$RUN'\"}'");
    let clients = [client_of(&stage.config), client_of(&stage.config.clone())];
    for client in &clients {
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(client, "db").map(drop));
            assert_eq!(serve(&server, &[200]), ["Bearer t1"]);
            getting.join().unwrap().unwrap();
        });
    }
    assert_eq!(stage.runs(), 1);
}

/// client-go's names and labels; nothing of what the plugin wrote.
#[cfg(feature = "metrics")]
#[test]
fn the_runs_of_a_plugin_are_counted_under_client_gos_names() {
    let server = Server::start();
    let script = "if [ $RUN = 1 ]; then echo canary; exit 3; fi; answer '{\"token\":\"canary\",\
                  \"expirationTimestamp\":\"2999-01-01T00:00:00Z\"}'";
    let stage = Stage::new("plugin-metrics", &server, script);
    let exposition = kubecache::metrics::Exposition::new();
    let options = super::patient().metrics(exposition.client("agent").unwrap());
    let client = Client::new(&stage.config, options).unwrap();
    get(&client, "db").map(drop).unwrap_err();
    thread::scope(|scope| {
        // A second passes before the next run.
        let getting = scope.spawn(|| {
            crate::support::until(|| get(&client, "db").is_ok());
        });
        serve(&server, &[200]);
        getting.join().unwrap();
    });
    let text = exposition.text();
    no_canary(&text);
    let total = "rest_client_exec_plugin_call_total";
    for labels in [
        "{call_status=\"no_error\",code=\"0\",name=\"agent\"}",
        "{call_status=\"plugin_execution_error\",code=\"3\",name=\"agent\"}",
    ] {
        assert!(text.contains(&format!("{total}{labels} 1\n")), "{text}");
    }
    let value = |series: &str| -> f64 {
        let series = format!("{series}{{name=\"agent\"}} ");
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(&series));
        value.unwrap().parse().unwrap()
    };
    // client-go's is of certificates; the token expires in 2999.
    assert!(value("rest_client_exec_plugin_ttl_seconds").is_infinite());
    assert!(value("kubecache_client_certificate_ttl_seconds").is_infinite());
    let left = value("kubecache_client_credentials_ttl_seconds");
    assert!(left > 1e9 && left.is_finite(), "{left}");
}

/// A script that answers the client certificate of that name, with escapes as JSON has them.
fn certificate(name: &str) -> String {
    let text = |name: String| {
        let text = String::from_utf8(pem(&name)).unwrap();
        text.replace('\n', "\\n")
    };
    format!(
        "{{\"clientCertificateData\":\"{}\",\"clientKeyData\":\"{}\"}}",
        text(format!("{name}.pem")),
        text(format!("{name}.key"))
    )
}

#[test]
fn a_plugins_certificate_is_shown_and_its_next_one_on_a_new_connection() {
    let server = Server::start();
    let script = format!(
        "if [ $RUN = 1 ]; then answer '{}'; else answer '{}'; fi",
        certificate("client-one"),
        certificate("client-two")
    );
    let stage = Stage::new("plugin-certificate", &server, &script);
    let (send, told) = unbounded();
    let hook = Hook::new(move |metric: &ClientMetric| drop(send.send(metric.clone())));
    let client = Client::new(&stage.config, super::patient().metrics(hook)).unwrap();
    let Ok(ClientMetric::Started(reading)) = told.recv() else {
        panic!("a client tells of its start first");
    };
    assert_eq!(reading.state().unwrap().certificate, None);
    let tls = of_all_names();
    thread::scope(|scope| {
        let getting = scope.spawn(|| [(); 2].map(|()| get(&client, "db").map(drop)));
        let mut peer = accept(&server, &tls);
        let request = peer.request();
        assert_eq!(request.header("Authorization"), None);
        let shown = peer.stream().conn.peer_certificates().unwrap();
        assert_eq!(shown[0], der("client-one.pem"));
        peer.json(200, &secret("db", "1"));
        peer.request();
        peer.json(401, REJECTION);
        let mut next = accept(&server, &tls);
        next.request();
        let shown = next.stream().conn.peer_certificates().unwrap();
        assert_eq!(shown[0], der("client-two.pem"));
        next.json(200, &secret("db", "1"));
        for got in getting.join().unwrap() {
            got.unwrap();
        }
    });
    let certificate = reading.state().unwrap().certificate.unwrap();
    assert!(certificate.is_of_plugin && certificate.expires > SystemTime::now());
    let runs = told.try_iter().filter_map(|metric| match metric {
        ClientMetric::PluginRun(run) => Some(run.replaced_certificate_age),
        _ => None,
    });
    let [None, Some(age)] = *runs.collect::<Vec<_>>() else {
        panic!("the second run replaced the certificate of the first");
    };
    assert!(
        age > Duration::from_secs(60),
        "since it became valid: {age:?}"
    );
    drop(client);
    assert!(reading.state().is_none());
}

/// The alert comes in the handshake of TLS 1.2, and after that of TLS 1.3, with the first read.
#[test]
fn a_plugin_whose_certificate_the_server_refuses_runs_once_more() {
    let server = Server::start();
    let script = format!(
        "if [ $RUN = 1 ]; then answer '{}'; else answer '{}'; fi",
        certificate("client-one"),
        certificate("client-two")
    );
    let same = format!("answer '{}'", certificate("client-one"));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let stage = Stage::new("plugin-refused", &server, &script);
        let client = client_of(&stage.config);
        let first = refusing(&["client-one.pem"], version);
        let both = refusing(&["client-one.pem", "client-two.pem"], version);
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop));
            refuse(&server, &first);
            let mut next = accept(&server, &first);
            next.request();
            next.json(200, &secret("db", "1"));
            getting.join().unwrap().unwrap();
        });
        assert_eq!(stage.runs(), 2);

        let stage = Stage::new("plugin-refused-twice", &server, &script);
        let client = client_of(&stage.config);
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop));
            refuse(&server, &both);
            refuse(&server, &both);
            let error = getting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
            let text = error.to_string();
            assert!(text.contains("refuses the client certificate"), "{text}");
        });
        assert!(!server.has_visitors());
        assert_eq!(stage.runs(), 2);

        // The same one again is not shown again.
        let stage = Stage::new("plugin-refused-same", &server, &same);
        let client = client_of(&stage.config);
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop));
            refuse(&server, &first);
            let error = getting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
        });
        assert!(!server.has_visitors());
        assert_eq!(stage.runs(), 2);
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_told_with_plugin_and_field() {
    let server = Server::start();
    let script = "answer '{\"clientCertificateData\":\"canary\",\"clientKeyData\":\"canary\"}'";
    let stage = Stage::new("plugin-bad-certificate", &server, script);
    let error = get(&client_of(&stage.config), "db").map(drop).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("plugin\": its answer's status.clientCertificateData: "),
        "{text}"
    );
    assert!(!text.contains("canary"), "{text}");
}

/// The deadline of a caller ends its wait, and not the run, which others will need.
#[test]
fn a_callers_deadline_and_stop_end_its_wait_for_a_plugin() {
    let server = Server::start();
    let script = "while [ ! -e $DIR/go ]; do sleep 0.02; done; answer '{\"token\":\"t\"}'";
    let stage = Stage::new("plugin-deadline", &server, script);
    let client = client_of(&stage.config);
    let (never, stop) = (StopSource::new(), StopSource::new());
    eventually(
        "the plugin still runs: does it wait for somebody, or ",
        || {
            let soon = Clock::system().after(Duration::from_millis(30));
            let late = get_by(&client, "db", soon, &never.token()).map(drop);
            let late = late.unwrap_err();
            assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
            late
        },
    );
    stop.stop();
    let stopped = get_by(
        &client,
        "db",
        kubecache::clock::Deadline::NEVER,
        &stop.token(),
    );
    assert!(stopped.map(drop).unwrap_err().is_stopped());
    fs::write(stage.directory.join("go"), "").unwrap();
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        assert_eq!(serve(&server, &[200]), ["Bearer t"]);
        getting.join().unwrap().unwrap();
    });
    assert_eq!(stage.runs(), 1);
}

/// Gives token after token, and counts the rejections.
#[derive(Default)]
struct Counting {
    given: AtomicUsize,
    rejected: AtomicUsize,
}

impl TokenSource for Counting {
    fn token(&self) -> Result<Token, Error> {
        let number = self.given.fetch_add(1, Ordering::SeqCst);
        assert!(number < 2, "no more tokens");
        Ok(Token::new(format!("t{number}")).valid_for(Duration::from_secs(5 * 60)))
    }

    fn rejected(&self) {
        self.rejected.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_programs_token_source_is_told_of_a_401_and_gives_another_token() {
    let server = Server::start();
    let source = Arc::new(Counting::default());
    let given: Arc<dyn TokenSource> = Arc::<Counting>::clone(&source);
    let config = Config::for_server(&server.url())
        .unwrap()
        .with_token_source(given);
    let client = client_of(&config);
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let mut peer = server.accept();
        assert_eq!(peer.request().header("Authorization"), Some("Bearer t0"));
        peer.json(401, REJECTION);
        assert_eq!(peer.request().header("Authorization"), Some("Bearer t1"));
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap().unwrap();
    });
    assert_eq!(source.rejected.load(Ordering::SeqCst), 1);
    let status = client.credentials_status().unwrap();
    assert!(
        status.expires_in.unwrap() > Duration::from_secs(4 * 60),
        "{status:?}"
    );
}

#[test]
fn a_token_that_a_source_gives_again_is_not_sent_again_at_once() {
    let server = Server::start();
    let source = || Ok(Token::new("same").valid_for(Duration::from_secs(5 * 60)));
    let config = Config::for_server(&server.url()).unwrap();
    let client = client_of(&config.with_token_source(Arc::new(source)));
    thread::scope(|scope| {
        let getting = scope.spawn(move || get(&client, "db").map(drop));
        let mut peer = server.accept();
        assert_eq!(peer.request().header("Authorization"), Some("Bearer same"));
        peer.json(401, REJECTION);
        assert!(peer.request_or_close().is_none(), "it asks once more");
        let error = getting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    });
}

#[test]
fn a_token_source_that_panics_fails_or_gives_no_token_is_the_error_of_the_request() {
    let server = Server::start();
    let error = |source: Arc<dyn TokenSource>| {
        let config = Config::for_server(&server.url())
            .unwrap()
            .with_token_source(source);
        get(&client_of(&config), "db").map(drop).unwrap_err()
    };
    let panicked = error(Arc::new(|| -> Result<Token, Error> { panic!("no cloud") }));
    assert_eq!(panicked.kind(), ErrorKind::Panicked);
    assert!(
        panicked
            .to_string()
            .ends_with("the program's token source panicked: no cloud")
    );
    let failed = error(Arc::new(|| {
        Err(Error::new(ErrorKind::Unreachable, "no cloud"))
    }));
    assert_eq!(failed.kind(), ErrorKind::Credentials);
    assert!(
        failed
            .to_string()
            .ends_with("the program's token source: no cloud"),
        "{failed}"
    );
    let empty = error(Arc::new(|| Ok(Token::new(""))));
    assert_eq!(empty.kind(), ErrorKind::Credentials);
    assert!(
        empty.to_string().ends_with("gave a token that is empty"),
        "{empty}"
    );
    let old = error(Arc::new(|| {
        Ok(Token::new("canary").expires_at(SystemTime::UNIX_EPOCH))
    }));
    assert!(
        old.to_string().contains("gave a token that expired "),
        "{old}"
    );
    assert!(!server.has_visitors());
}

#[test]
fn a_fixed_token_that_is_rejected_says_that_it_cannot_be_renewed() {
    let server = Server::start();
    let config = Config::for_server(&server.url())
        .unwrap()
        .with_token("old")
        .unwrap();
    let client = client_of(&config);
    assert!(client.credentials_status().is_none());
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap_err());
        let mut peer = server.accept();
        peer.request();
        peer.json(401, REJECTION);
        let error = getting.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
        let told = "secrets/db: Unauthorized: the token or password is fixed, and the client \
                    cannot renew it: configure one that is valid, a token file, a credential \
                    plugin or a TokenSource";
        assert!(error.to_string().ends_with(told), "{error}");
        assert!(!server.has_visitors(), "the same token is not sent twice");
    });
}

/// Keeps what the crate logs.
struct Lines(OnceLock<Sender<String>>);

static LOGGER: Lines = Lines(OnceLock::new());

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.target().starts_with("ureq_proto")
    }

    fn log(&self, record: &Record<'_>) {
        if let (Some(lines), true) = (self.0.get(), self.enabled(record.metadata())) {
            lines.send(record.args().to_string()).unwrap();
        }
    }

    fn flush(&self) {}
}

fn no_canary(shown: &str) {
    assert!(!shown.contains("canary"), "{shown}");
}

/// What shows a client and its configuration.
fn all_of(config: &Config, client: &Client) -> String {
    format!("{config:?} {client:?} {:?}", client.credentials_status())
}

#[test]
fn nothing_a_plugin_writes_is_in_a_log_an_error_or_a_debug_text() {
    alone(|| {
        let (send, lines) = unbounded();
        LOGGER.0.set(send).unwrap();
        log::set_logger(&LOGGER).unwrap();
        log::set_max_level(LevelFilter::Trace);
        let server = Server::start();
        let bad = [
            "echo canary; exit 7",
            "echo canary",
            "answer '\"canary\"'",
            "answer '{\"token\":\"can ary canary\"}'",
            "answer '{\"token\":\"canary\",\"expirationTimestamp\":\"canary\"}'",
            "answer '{\"clientCertificateData\":\"canary\"}'",
            "answer '{\"clientCertificateData\":\"canary\",\"clientKeyData\":\"canary\"}'",
            "while :; do echo canary; done",
        ];
        for (number, script) in bad.into_iter().enumerate() {
            let stage = Stage::new(&format!("plugin-bad-{number}"), &server, script);
            let client = client_of(&stage.config);
            let error = get(&client, "db").map(drop).unwrap_err();
            no_canary(&format!(
                "{error} {error:?} {}",
                all_of(&stage.config, &client)
            ));
        }
        let script = "if [ $RUN = 1 ]; then answer '{\"token\":\"canary\"}'; else exit 1; fi";
        let stage = Stage::new("plugin-secret", &server, script);
        let client = Client::new(&stage.config, ClientOptions::default()).unwrap();
        thread::scope(|scope| {
            let getting = scope.spawn(|| [(); 2].map(|()| get(&client, "db").map(drop)));
            let mut peer = accept(&server, &of_all_names());
            peer.request();
            peer.json(
                403,
                "{\"kind\":\"Status\",\"code\":403,\"message\":\"Bearer canary\"}",
            );
            peer.request();
            peer.json(401, "who is canary?");
            for got in getting.join().unwrap() {
                let error = got.unwrap_err();
                no_canary(&format!("{error} {error:?}"));
            }
        });
        no_canary(&all_of(&stage.config, &client));
        drop((client, stage));
        let lines: Vec<_> = lines.try_iter().collect();
        assert!(
            lines.iter().any(|line| line.contains("GET https://")),
            "{lines:?}"
        );
        for line in &lines {
            no_canary(line);
        }
    });
}

/// The recorder sends the credentials of its configuration on, and keeps none.
#[cfg(feature = "testing")]
#[test]
fn no_recording_holds_a_token_of_a_source() {
    use kubecache::testing::Recorder;
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let config = config.with_token_source(Arc::new(|| Ok(Token::new("canary"))));
    let recorder = Recorder::start(&config, 0).unwrap();
    let client = client_of(&Config::for_server(&recorder.url()).unwrap());
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let mut peer = server.accept();
        assert_eq!(
            peer.request().header("Authorization"),
            Some("Bearer canary")
        );
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap().unwrap();
    });
    let recording = recorder.finish().to_text();
    assert!(recording.contains("/secrets/db"), "{recording}");
    no_canary(&recording);
}
