//! The pages of probes: their lines, their parameters, and checks that fail, panic or hang.

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::*;
use crate::sync::atomic::AtomicBool;

type Checked = Result<(), &'static str>;

#[test]
fn a_page_is_ok_or_lists_the_checks_as_kube_components_do() {
    let endpoints = endpoints(LONG);
    let is_old = Arc::new(AtomicBool::new(false));
    let old = Arc::clone(&is_old);
    let check = move || (!old.load(Ordering::SeqCst)).then_some(()).ok_or("old");
    let passes = || Checked::Ok(());
    endpoints.add_check(Probe::Live, "loop", passes).unwrap();
    endpoints
        .add_check(Probe::Health, "secrets", check)
        .unwrap();
    endpoints.add_check(Probe::Ready, "synced", passes).unwrap();
    endpoints.start();
    let get = |target: &str| get(endpoints.address(), target);

    for target in [
        "/livez",
        "/healthz",
        "/readyz",
        "/readyz/synced",
        "/livez/ping",
    ] {
        assert_eq!(get(target), ok(), "{target}");
    }
    let listed = "[+]ping ok\n[+]loop ok\n[+]secrets ok\nhealthz check passed\n";
    for query in ["verbose", "verbose=1", "x=y&verbose"] {
        assert_eq!(get(&format!("/healthz?{query}")), (200, listed.to_owned()));
    }
    for target in [
        "/",
        "/metrics",
        "/readyz/nope",
        "/livez/secrets",
        "/livezz",
        "livez",
    ] {
        assert_eq!(
            get(target),
            (404, "404 page not found\n".to_owned()),
            "{target}"
        );
    }

    is_old.store(true, Ordering::SeqCst);
    let failed = "[+]ping ok\n[+]loop ok\n[-]secrets failed: old\nhealthz check failed\n";
    for query in ["", "verbose", "exclude=loop", "exclude"] {
        let failed = match query {
            "exclude=loop" => failed.replace("loop ok", "loop excluded: ok"),
            _ => failed.to_owned(),
        };
        assert_eq!(get(&format!("/healthz?{query}")), (500, failed));
    }
    assert_eq!(get("/livez"), ok());
    assert_eq!(get("/readyz/synced"), ok());
    assert_eq!(get("/readyz").0, 500);
    let listed = "[+]ping ok\n[+]loop excluded: ok\n[+]secrets excluded: ok\n\
        healthz check passed\n";
    let target = "/healthz?verbose&exclude=secrets&exclude=loop";
    assert_eq!(get(target), (200, listed.to_owned()));

    assert!(endpoints.remove_check("secrets"));
    assert!(!endpoints.remove_check("secrets"));
    assert_eq!(get("/healthz"), ok());
}

/// The server's words, and a line that a check makes up, stay off the page.
#[test]
fn of_an_error_the_cause_is_told_by_its_kind_and_no_line_is_forged() {
    let endpoints = endpoints(LONG);
    let why = Error::new(ErrorKind::Unreachable, "connecting to canary.example:6443");
    let error = Error::new(ErrorKind::Timeout, "the server last confirmed it 131s ago");
    let caused = error.clone().with_source(why);
    let pods = move || Err::<(), _>(caused.clone());
    endpoints.add_check(Probe::Health, "pods", pods).unwrap();
    let plain = move || Err::<(), _>(error.clone());
    endpoints.add_check(Probe::Health, "plain", plain).unwrap();
    let forges = || Err::<(), _>("old\n[+]pods ok".to_owned());
    endpoints
        .add_check(Probe::Health, "forges", forges)
        .unwrap();
    endpoints.start();
    let lines = "[+]ping ok\n\
        [-]pods failed: the server last confirmed it 131s ago (last failure: Unreachable)\n\
        [-]plain failed: the server last confirmed it 131s ago\n\
        [-]forges failed: old\\n[+]pods ok\nhealthz check failed\n";
    assert_eq!(
        get(endpoints.address(), "/healthz"),
        (500, lines.to_owned())
    );
}

#[test]
fn a_check_or_a_page_that_panics_fails_by_its_name() {
    let endpoints = endpoints(LONG);
    let panics = || -> Checked { panic!("out of order") };
    endpoints
        .add_check(Probe::Health, "broken", panics)
        .unwrap();
    let secret = "hunter2";
    let tells = move || -> Checked { panic!("at {secret}") };
    endpoints.add_check(Probe::Health, "tells", tells).unwrap();
    endpoints.add_page("/broken", || panic!("no page")).unwrap();
    endpoints.start();
    let lines = "[+]ping ok\n[-]broken failed: check \"broken\" panicked: out of order\n\
        [-]tells failed: check \"tells\" panicked\nhealthz check failed\n";
    for _ in 0..2 {
        assert_eq!(
            get(endpoints.address(), "/healthz"),
            (500, lines.to_owned())
        );
    }
    let told = "page \"/broken\" panicked: no page\n".to_owned();
    assert_eq!(get(endpoints.address(), "/broken"), (500, told));
}

/// A check that tells of each call, and blocks in it until the gate opens.
fn gated() -> (
    Sender<()>,
    Receiver<()>,
    impl Fn() -> Checked + Send + Sync + 'static,
) {
    let (open, gate): (_, Receiver<()>) = bounded(0);
    let (call, calls) = unbounded();
    let check = move || {
        let _is_read = call.send(());
        let _open = gate.recv();
        Ok(())
    };
    (open, calls, check)
}

#[test]
fn a_check_that_hangs_fails_by_its_name_and_holds_up_nothing() {
    let endpoints = endpoints(Duration::from_millis(10));
    let (open, calls, stuck) = gated();
    endpoints.add_check(Probe::Health, "stuck", stuck).unwrap();
    endpoints
        .add_check(Probe::Health, "pods", || Checked::Ok(()))
        .unwrap();
    endpoints
        .add_page("/hello", || WebPage::text("hello"))
        .unwrap();
    endpoints.start();
    let address = endpoints.address();
    for _ in 0..3 {
        let (code, text) = get(address, "/healthz");
        assert_eq!(code, 500, "{text}");
        assert!(text.contains("\n[-]stuck failed: no answer for "), "{text}");
    }
    assert_eq!(get(address, "/hello"), (200, "hello".to_owned()));
    wait_for(address, "/healthz?exclude=stuck", &ok());
    until(|| !calls.is_empty());
    assert_eq!(calls.len(), 1, "it is not called while it runs");
    drop(open);
    wait_for(address, "/healthz", &ok());
}

#[test]
fn requests_share_the_call_that_runs() {
    let endpoints = endpoints(LONG);
    let (open, calls, check) = gated();
    endpoints.add_check(Probe::Ready, "slow", check).unwrap();
    endpoints.start();
    let mut clients = [(); 3].map(|()| {
        let mut client = TcpStream::connect(endpoints.address()).unwrap();
        client.write_all(b"GET /readyz HTTP/1.1\r\n\r\n").unwrap();
        client
    });
    // An answer that comes after theirs were asked for.
    assert_eq!(get(endpoints.address(), "/livez"), ok());
    drop(open);
    for client in &mut clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    }
    assert_eq!(calls.len(), 1);
}

#[test]
fn names_and_paths_that_cannot_be_asked_for_or_are_taken_are_refused() {
    let endpoints = endpoints(LONG);
    let add = |name: &str| endpoints.add_check(Probe::Ready, name, || Checked::Ok(()));
    let error = |refused: Result<(), Error>| refused.unwrap_err().to_string();
    add("a-b_c.9").unwrap();
    for taken in ["a-b_c.9", "ping"] {
        assert_eq!(
            error(add(taken)),
            format!("check {taken:?} is there already")
        );
    }
    let rule = "use ASCII letters, digits, `-`, `_` and `.`, and begin a path with `/`";
    for wrong in ["", "a/b", "/a", "a b", "a&b", "ä", "a\n"] {
        assert_eq!(error(add(wrong)), format!("check {wrong:?}: {rule}"));
    }
    let add = |path: &str| endpoints.add_page(path, || WebPage::text(""));
    add("/").unwrap();
    add("/debug/statusz").unwrap();
    for taken in ["/debug/statusz", "/livez", "/readyz/x"] {
        assert_eq!(
            error(add(taken)),
            format!("page {taken:?} is there already")
        );
    }
    for wrong in ["", "statusz", "/a?b", "/a b", "/ä"] {
        assert_eq!(error(add(wrong)), format!("page {wrong:?}: {rule}"));
    }
    assert!(!endpoints.remove_check("/"), "that is a page");
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_are_a_page_of_their_own_type() {
    let exposition = Exposition::new();
    let _hook = exposition.client("agent").unwrap();
    let endpoints = endpoints(LONG);
    endpoints.add_metrics(&exposition).unwrap();
    endpoints.add_metrics(&exposition).unwrap_err();
    endpoints.start();
    let mut client = TcpStream::connect(endpoints.address()).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
    assert!(answer.starts_with(head), "{answer}");
    assert!(answer.ends_with(&exposition.text()), "{answer}");
}
