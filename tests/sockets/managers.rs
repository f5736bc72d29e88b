//! A fetching manager over sockets: what its reads look like on the wire, and what answers and
//! deadlines make of them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::{Clock, Deadline};
use kubecache::list_watch::{
    Api, ListRequest, ListerWatcher, Next, Selection, WatchEvent, WatchRequest,
};
use kubecache::manager::{ChangeDetection, ManagerOptions, SecretManager};
use kubecache::object::Scope;
use kubecache::worker::StopToken;
use kubecache::{Error, ErrorKind};

use super::server::{Peer, Server};
use super::{PATIENCE, client, eventually, secret, secret_list};

fn manager(server: &Server) -> SecretManager {
    let options = ManagerOptions::default().change_detection(ChangeDetection::Get);
    SecretManager::new(client(&server.url()), options).unwrap()
}

fn soon() -> Deadline {
    Clock::system().after(PATIENCE)
}

fn too_large(current: u32) -> String {
    format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\
         \"reason\":\"Timeout\",\"code\":504,\
         \"message\":\"Too large resource version: 20, current: {current}\",\
         \"details\":{{\"causes\":\
         [{{\"reason\":\"ResourceVersionTooLarge\",\"message\":\"Too large resource \
             version\"}}]}}}}\n"
    )
}

fn asked(peer: &mut Peer) -> String {
    let request = peer.request();
    let line = request.line.strip_prefix("GET ").unwrap();
    line.strip_suffix(" HTTP/1.1").unwrap().to_owned()
}

/// SC-2, R11: the version goes over the wire as the caller gave it, again while the server has not
/// come so far.
#[test]
fn sc_2_r11_reads_on_the_wire() {
    const PATH: &str = "/api/v1/namespaces/shop/secrets/db";
    let server = Server::start();
    let manager = manager(&server);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let plain = manager.get_by("shop", "db", soon())?;
            let later = manager.get_at_least("shop", "db", &"20".into(), soon())?;
            let refused = manager.get_at_least("shop", "db", &"o d".into(), soon());
            let versions = [plain, later].map(|found| found.metadata.resource_version.clone());
            Ok::<_, Error>((versions, refused.unwrap_err()))
        });
        let mut peer = server.accept();
        assert_eq!(asked(&mut peer), PATH);
        peer.json(200, &secret("db", "9"));
        for current in [15, 19] {
            assert_eq!(asked(&mut peer), format!("{PATH}?resourceVersion=20"));
            peer.json(504, &too_large(current));
        }
        assert_eq!(asked(&mut peer), format!("{PATH}?resourceVersion=20"));
        peer.json(200, &secret("db", "12"));
        assert_eq!(asked(&mut peer), format!("{PATH}?resourceVersion=o%20d"));
        let words = "resourceVersion: Invalid value: \"o d\"";
        let status = serde_json::json!({
            "kind": "Status", "code": 400, "reason": "BadRequest", "message": words,
        });
        peer.json(400, &status.to_string());
        let (versions, refused) = reading.join().unwrap().unwrap();
        assert_eq!(versions, [Some("9".to_owned()), Some("12".to_owned())]);
        let told = format!("{PATH}: {words}");
        assert!(refused.to_string().ends_with(&told), "{refused}");
    });
}

/// SC-2, B2: a server that says nothing costs the caller's deadline, and the error says what was
/// waited for.
#[test]
fn sc_2_a_silent_server_ends_at_the_callers_deadline() {
    // Nobody accepts: on a busy machine the deadline may pass before there is a connection.
    let server = Server::start();
    let manager = manager(&server);
    let text = eventually("the caller's deadline passed", || {
        let deadline = Clock::system().after(Duration::from_millis(50));
        let error = manager.get_by("shop", "db", deadline).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        error
    });
    assert!(
        text.starts_with("timed out waiting for secret shop/db\n1 attempt in "),
        "{text}"
    );
}

/// OC-25, promise 4: a shutdown ends a read that waits for the server's answer.
#[test]
fn a_shutdown_ends_a_read_on_the_wire() {
    let server = Server::start();
    let manager = manager(&server);
    thread::scope(|scope| {
        let reading = scope.spawn(|| manager.get_fresh("shop", "db", Deadline::NEVER));
        let mut peer = server.accept();
        peer.request();
        manager.stop();
        assert!(reading.join().unwrap().unwrap_err().is_stopped());
        peer.wait_for_close();
    });
}

/// Selects one Secret.
struct OnlyDb;

impl Selection for OnlyDb {
    fn selects(&self, namespace: &str, name: &str, _version: &str) -> bool {
        (namespace, name) == ("shop", "db")
    }
}

/// B7: lists and watches of a client pass over what is not selected.
#[test]
fn b7_what_is_not_selected_is_passed_over_on_the_wire() {
    let server = Server::start();
    let client = client(&server.url());
    let scope = Scope::namespace("shop");
    let source: Arc<dyn ListerWatcher<Secret>> = client.lister_watcher_of(scope, Arc::new(OnlyDb));
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (stop, mut names) = (StopToken::never(), Vec::new());
            let mut each = |item: kubecache::list_watch::Listed<Secret>| {
                names.push(item.key().to_string());
            };
            let page = source.list(&ListRequest::default(), &stop, &mut each)?;
            assert_eq!(page.unselected, 2);
            let request = WatchRequest {
                resource_version: page.resource_version,
                timeout: PATIENCE,
                head_timeout: PATIENCE,
                bookmarks: true,
                send_initial_events: false,
                urgent: false,
            };
            let mut watch = source.watch(&request, &stop)?;
            let events = [watch.next(soon())?, watch.next(soon())?];
            Ok::<_, Error>((names, events))
        });
        let mut peer = server.accept();
        peer.request();
        let items = ["db", "other", "more"].map(|name| secret(name, "3"));
        peer.json(200, &secret_list("5", &items));
        peer.request();
        let event = |name| {
            let object = secret(name, "7");
            format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n")
        };
        peer.json(200, &[event("other"), event("db")].concat());
        let (names, events) = reading.join().unwrap().unwrap();
        assert_eq!(names, ["shop/db"]);
        let [passed, selected] = events;
        assert!(
            matches!(&passed, Next::Event(WatchEvent::Unselected { resource_version, .. })
                if resource_version.as_str() == "7"),
            "{passed:?}"
        );
        assert!(
            matches!(&selected, Next::Event(WatchEvent::Object(_))),
            "{selected:?}"
        );
    });
}
