//! What a client tells the program's hook of its requests, and the series that an exposition makes
//! of it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use kubecache::clock::Deadline;
use kubecache::hooks::Hook;
use kubecache::http::{Client, ClientMetric, ClientOptions, Config, Request, Token};
use kubecache::worker::StopToken;
use kubecache::{Error, ErrorKind};

use super::server::Server;
use super::{bookmark, get, list, next_bookmark, open, patient, secret, secret_list, secrets};
use crate::support::TempDirectory;

/// It must not be seen anywhere.
const CANARY: &str = "canary-token";

/// What a hook was told, in short words.
struct Told(Receiver<String>);

impl Told {
    fn new() -> (Hook<ClientMetric>, Self) {
        let (send, told) = unbounded();
        (
            Hook::new(move |metric| {
                // Bytes that were decoded have tests of their own.
                if !matches!(metric, ClientMetric::BodyDecoded { .. }) {
                    drop(send.send(words(metric)));
                }
            }),
            Self(told),
        )
    }

    fn take(&self) -> Vec<String> {
        self.0.try_iter().collect()
    }
}

fn words(metric: &ClientMetric) -> String {
    match metric {
        ClientMetric::Started(_) => "started".to_owned(),
        ClientMetric::RateLimited { waited, .. } if *waited >= Duration::from_secs(1) => {
            format!("limited {waited:?}")
        }
        ClientMetric::RateLimited { .. } => "limited".to_owned(),
        ClientMetric::RequestSent { code, is_retry, .. } => {
            let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
            format!("sent {code}{}", if *is_retry { " again" } else { "" })
        }
        ClientMetric::RequestEnded { body_bytes, .. } => match body_bytes {
            Some(bytes) => format!("ended {bytes}"),
            None => "failed".to_owned(),
        },
        other => format!("{other:?}"),
    }
}

/// What an exposition counted: the series of requests that are not zero, without the buckets.
#[cfg(feature = "metrics")]
fn counted(exposition: &kubecache::metrics::Exposition, host: &str) -> Vec<String> {
    let text = exposition.text();
    assert!(!text.contains(CANARY) && !text.contains("shop"), "{text}");
    let is_shown = |line: &&str| {
        let is_count = line.contains("_total{") || line.contains("_count{");
        line.starts_with("rest_client_re") && is_count && !line.ends_with(" 0")
            || line.starts_with("rest_client_rate_limiter_duration_seconds_count{")
    };
    let shown = text.lines().filter(is_shown);
    shown
        .map(|line| {
            let line = line.strip_prefix("rest_client_").unwrap();
            line.replace(host, "HOST")
                .replace("name=\"t\",", "")
                .replace(",name=\"t\"", "")
        })
        .collect()
}

/// Status codes and headers of a server's answers, in turn, on one connection.
type Answers = &'static [(u16, &'static str)];

struct Case {
    answers: Answers,
    told: &'static [&'static str],
    #[cfg_attr(
        not(feature = "metrics"),
        expect(dead_code, reason = "without the feature there are none")
    )]
    series: &'static [&'static str],
}

const RETRY_AFTER: &str = "Retry-After: 7\r\n";

/// One get each.
const CASES: [Case; 7] = [
    Case {
        answers: &[(200, "")],
        told: &["limited", "sent 200", "ended 134"],
        series: &[
            "rate_limiter_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "request_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "requests_total{code=\"200\",host=\"HOST\",method=\"GET\"} 1",
            "response_size_bytes_count{host=\"HOST\",verb=\"GET\"} 1",
        ],
    },
    Case {
        answers: &[(401, ""), (200, "")],
        told: &["limited", "sent 401", "sent 200 again", "ended 134"],
        series: &[
            "rate_limiter_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "request_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "request_retries_total{code=\"200\",host=\"HOST\",verb=\"GET\"} 1",
            "requests_total{code=\"200\",host=\"HOST\",method=\"GET\"} 1",
            "requests_total{code=\"401\",host=\"HOST\",method=\"GET\"} 1",
            "response_size_bytes_count{host=\"HOST\",verb=\"GET\"} 1",
        ],
    },
    Case {
        answers: &[(401, ""), (401, "")],
        told: &["limited", "sent 401", "sent 401 again", "failed"],
        series: &[
            "rate_limiter_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "request_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "request_retries_total{code=\"401\",host=\"HOST\",verb=\"GET\"} 1",
            "requests_total{code=\"401\",host=\"HOST\",method=\"GET\"} 2",
        ],
    },
    Case {
        answers: &[(403, "")],
        told: &["limited", "sent 403", "failed"],
        series: &[
            "rate_limiter_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "request_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "requests_total{code=\"403\",host=\"HOST\",method=\"GET\"} 1",
        ],
    },
    Case {
        answers: &[(429, RETRY_AFTER)],
        told: &["limited", "sent 429", "failed"],
        series: &[
            "rate_limiter_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "request_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "requests_total{code=\"429\",host=\"HOST\",method=\"GET\"} 1",
        ],
    },
    Case {
        answers: &[(503, RETRY_AFTER)],
        told: &["limited", "sent 503", "failed"],
        series: &[
            "rate_limiter_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "request_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "requests_total{code=\"503\",host=\"HOST\",method=\"GET\"} 1",
        ],
    },
    // A server may send any number: it makes no series of its own.
    Case {
        answers: &[(799, "")],
        told: &["limited", "sent 799", "failed"],
        series: &[
            "rate_limiter_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "request_duration_seconds_count{host=\"HOST\",verb=\"GET\"} 1",
            "requests_total{code=\"<other>\",host=\"HOST\",method=\"GET\"} 1",
        ],
    },
];

/// Does a get by a client with `hook` of a server that answers so. Returns the server's host.
fn get_once(hook: Hook<ClientMetric>, answers: Answers) -> String {
    let server = Server::start();
    let directory = TempDirectory::new("metrics");
    let file = directory.join("token");
    std::fs::write(&file, CANARY).unwrap();
    let config = Config::for_server(&server.url()).unwrap();
    let config = config.with_token_file(&file);
    let client = Client::new(&config, patient().metrics(hook)).unwrap();
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let mut peer = server.accept();
        for (number, (code, headers)) in answers.iter().enumerate() {
            peer.request();
            // Each token is tried once.
            std::fs::write(&file, format!("{CANARY}-{number}")).unwrap();
            let body = match code {
                200 => secret("db", "1"),
                _ => format!("{CANARY} in shop"),
            };
            peer.answer(
                *code,
                &format!("Content-Type: application/json\r\n{headers}"),
                body,
            );
        }
        let is_success = answers.last().unwrap().0 == 200;
        assert_eq!(getting.join().unwrap().is_ok(), is_success);
    });
    format!("127.0.0.1:{}", server.port())
}

#[test]
fn b21_each_answer_is_told_with_its_retries_and_its_end() {
    for case in CASES {
        let (hook, told) = Told::new();
        get_once(hook, case.answers);
        assert_eq!(told.take(), [&["started"], case.told].concat());
    }
}

#[cfg(feature = "metrics")]
#[test]
fn b21_each_answer_is_counted_under_client_gos_names() {
    for case in CASES {
        let exposition = kubecache::metrics::Exposition::new();
        let kept = exposition.client("t").unwrap();
        let host = get_once(kept, case.answers);
        assert_eq!(
            counted(&exposition, &host),
            Vec::<String>::new(),
            "gone with the client"
        );
        let kept = exposition.client("t").unwrap();
        let host = get_once(kept.clone(), case.answers);
        assert_eq!(
            counted(&exposition, &host),
            case.series,
            "{:?}",
            case.answers
        );
    }
}

fn client_told(url: &str, options: ClientOptions) -> (Client, Told) {
    let (hook, told) = Told::new();
    let config = Config::for_server(url).unwrap();
    let config = config.with_token(CANARY).unwrap();
    let client = Client::new(&config, options.metrics(hook)).unwrap();
    assert_eq!(told.take(), ["started"]);
    (client, told)
}

#[test]
fn a_refused_connection_is_a_request_without_a_code() {
    let url = Server::start().url();
    let (client, told) = client_told(&url, patient());
    let refused = get(&client, "db").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable);
    assert_eq!(told.take(), ["limited", "sent <error>", "failed"]);
}

#[test]
fn a_request_without_credentials_to_send_has_no_code() {
    let (hook, told) = Told::new();
    let source = || -> Result<Token, Error> { Err(Error::new(ErrorKind::Config, "no cloud")) };
    let config = Config::for_server(&Server::start().url()).unwrap();
    let config = config.with_token_source(Arc::new(source));
    let client = Client::new(&config, patient().metrics(hook)).unwrap();
    get(&client, "db").unwrap_err();
    assert_eq!(
        told.take(),
        ["started", "limited", "sent <error>", "failed"]
    );
}

/// A watch is a request, as in client-go: it waits for no permit, and its length is nobody's.
#[test]
fn lists_are_measured_and_of_a_watch_its_opening_alone() {
    let server = Server::start();
    let (client, told) = client_told(&server.url(), patient());
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let source = secrets(&client);
            list(&*source, &StopToken::never()).unwrap();
            let listed = told.take();
            assert_eq!(next_bookmark(&mut *open(&*source)), "7");
            listed
        });
        let mut peer = server.accept();
        peer.request();
        let body = secret_list("5", &[secret("db", "1")]);
        peer.json(200, &body);
        peer.request();
        peer.begin_with(&bookmark("7"));
        let ended = format!("ended {}", body.len());
        assert_eq!(calls.join().unwrap(), ["limited", "sent 200", &ended]);
    });
    assert_eq!(told.take(), ["sent 200"]);
}

/// B21: requests of the program's own and writes are told as gets are, once each: no refusal is
/// repeated. A stream has no end of its own.
#[test]
fn requests_of_the_programs_own_are_told() {
    const PATH: &str = "/api/v1/namespaces/shop/secrets";
    let answers = [
        (200, "", "sent 200", "ended 2"),
        (409, "", "sent 409", "failed"),
        (429, "Retry-After: 1\r\n", "sent 429", "failed"),
        (503, "", "sent 503", "failed"),
    ];
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        for (code, headers, sent, ended) in answers {
            let server = Server::start();
            let (client, told) = client_told(&server.url(), patient());
            let request = Request::new(method, PATH);
            thread::scope(|scope| {
                let sending = scope.spawn(|| client.send(&request, Deadline::NEVER).map(drop));
                let mut peer = server.accept();
                peer.request();
                peer.answer(code, headers, "{}");
                assert_eq!(sending.join().unwrap().is_ok(), code == 200);
            });
            assert_eq!(told.take(), ["limited", sent, ended], "{method} {code}");
        }
        let server = Server::start();
        let (client, told) = client_told(&server.url(), patient());
        let request = Request::new(method, PATH);
        thread::scope(|scope| {
            let sending = scope.spawn(|| client.send(&request, Deadline::NEVER).map(drop));
            server.accept().request();
            sending.join().unwrap().unwrap_err();
        });
        let cut = ["limited", "sent <error>", "failed"];
        assert_eq!(told.take(), cut, "{method}");
        thread::scope(|scope| {
            let streaming = scope.spawn(|| client.stream(&request, Deadline::NEVER).map(drop));
            let mut peer = server.accept();
            peer.request();
            peer.begin_with("one");
            streaming.join().unwrap().unwrap();
        });
        assert_eq!(told.take(), ["limited", "sent 200"], "{method}");
    }
    let server = Server::start();
    let (client, told) = client_told(&server.url(), patient());
    let request = Request::new("BREW", PATH);
    client.send(&request, Deadline::NEVER).unwrap_err();
    assert_eq!(told.take(), ["failed"], "it was never sent");
}

#[test]
fn a_second_try_after_silence_is_a_retry_with_a_permit_of_its_own() {
    let server = Server::start();
    let options = patient().second_try_after(Duration::from_millis(30));
    let (client, told) = client_told(&server.url(), options);
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let silent = server.accept();
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap().unwrap();
        drop(silent);
    });
    let expected = [
        "limited",
        "sent <error>",
        "limited",
        "sent 200 again",
        "ended 134",
    ];
    assert_eq!(told.take(), expected);
}

/// client-go's transport hides that, too.
#[test]
fn a_kept_connection_that_the_server_closed_is_no_request_of_its_own() {
    let server = Server::start();
    let (client, told) = client_told(&server.url(), patient());
    thread::scope(|scope| {
        let getting = scope.spawn(|| [(); 2].map(|()| get(&client, "db").map(drop)));
        for _ in 0..2 {
            let mut peer = server.accept();
            peer.request();
            peer.json(200, &secret("db", "1"));
        }
        for got in getting.join().unwrap() {
            got.unwrap();
        }
    });
    let once = ["limited", "sent 200", "ended 134"];
    assert_eq!(told.take(), [once, once].concat());
}

#[cfg(feature = "testing")]
#[test]
fn the_wait_for_the_rate_limit_is_told() {
    use std::num::NonZeroU32;

    let fake = kubecache::clock::FakeClock::new();
    let server = Server::start();
    let one = NonZeroU32::MIN;
    let options = patient().rate(one).burst(one).clock(fake.clone().into());
    let (client, told) = client_told(&server.url(), options);
    thread::scope(|scope| {
        let getting = scope.spawn(|| [(); 2].map(|()| get(&client, "db").map(drop)));
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret("db", "1"));
        fake.wait_for_next_timer();
        fake.advance(Duration::from_secs(1));
        peer.request();
        peer.json(200, &secret("db", "1"));
        for got in getting.join().unwrap() {
            got.unwrap();
        }
    });
    let expected = [
        "limited",
        "sent 200",
        "ended 134",
        "limited 1s",
        "sent 200",
        "ended 134",
    ];
    assert_eq!(told.take(), expected);
}

#[test]
fn a_hook_that_panics_harms_no_request() {
    let hook = Hook::new(|metric| assert!(matches!(metric, ClientMetric::Started(_)), "made up"));
    get_once(hook, &[(401, ""), (200, "")]);
}

#[test]
fn a_hook_that_panics_at_the_start_is_an_error_of_the_start() {
    let hook = Hook::new(|_: &ClientMetric| panic!("made up"));
    let config = Config::for_server("http://127.0.0.1:1").unwrap();
    let refused = Client::new(&config, patient().metrics(hook))
        .map(drop)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Panicked);
    assert_eq!(
        refused.to_string(),
        "the metrics of a client panicked: made up"
    );
}
