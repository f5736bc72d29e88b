//! The short calls: one object, and all objects of a scope over all pages, with a deadline for the
//! whole call.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Secret};
use kubecache::clock::Clock;
use kubecache::http::DecodeOptions;
use kubecache::http::{Client, Config};
use kubecache::object::{ObjectKey, Scope, StoredObject};
use kubecache::{Error, ErrorKind};

use super::server::{Request, Server};
use super::{PATIENCE, client, patient, secret, secret_list};

const PAGE: &str = "/api/v1/namespaces/shop/secrets?limit=500";

/// Path and query of a request.
fn target(request: &Request) -> String {
    request.line.split(' ').nth(1).unwrap().to_owned()
}

/// A page with one Secret, after which another page follows.
fn first_page(next: &str) -> String {
    secret_list("5", &[secret("a", "1")]).replacen(
        "\"resourceVersion\":\"5\"",
        &format!("\"resourceVersion\":\"5\",\"continue\":\"{next}\""),
        1,
    )
}

/// Lists once while the server gives these answers; returns the names and the requests' targets.
fn list_against(answers: &[(u16, String)]) -> (Result<Vec<String>, Error>, Vec<String>) {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let listing = scope.spawn(|| client.list::<Secret>(Scope::namespace("shop")));
        let mut peer = server.accept();
        let answer = |(code, body): &(u16, String)| {
            let target = target(&peer.request());
            peer.json(*code, body);
            target
        };
        let targets = answers.iter().map(answer).collect();
        let name = |secret: &Arc<StoredObject<Secret>>| secret.metadata.name.clone().unwrap();
        let listed = listing.join().unwrap();
        (listed.map(|all| all.iter().map(name).collect()), targets)
    })
}

#[test]
fn a_list_follows_its_pages() {
    let last = secret_list("5", &[secret("b", "2")]);
    let (listed, targets) = list_against(&[(200, first_page("more")), (200, last)]);
    assert_eq!(listed.unwrap(), ["a", "b"]);
    assert_eq!(targets, [PAGE, &format!("{PAGE}&continue=more")]);
}

#[test]
fn a_list_whose_version_expires_between_pages_is_read_whole() {
    let expired = r#"{"kind":"Status","status":"Failure","reason":"Expired","code":410}"#;
    let whole = secret_list("9", &[secret("b", "2"), secret("c", "3")]);
    let answers = [
        (200, first_page("old")),
        (410, expired.to_owned()),
        (200, whole),
    ];
    let (listed, targets) = list_against(&answers);
    assert_eq!(listed.unwrap(), ["b", "c"]);
    assert_eq!(targets.last().unwrap(), "/api/v1/namespaces/shop/secrets");
}

#[test]
fn an_item_that_does_not_decode_is_an_error_that_names_it() {
    let odd = secret("odd", "1").replace("{\"name\":\"odd\"", "{\"labels\":7,\"name\":\"odd\"");
    let (listed, _) = list_against(&[(200, secret_list("5", &[odd]))]);
    let error = listed.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Undecodable, "{error}");
    assert!(error.to_string().contains("shop/odd"), "{error}");
}

/// Promise 6: a server whose pages never end does not fill the memory.
#[test]
fn a_list_without_end_is_too_large() {
    let server = Server::start();
    let decode = DecodeOptions::default().list_items_max(2);
    let config = Config::for_server(&server.url()).unwrap();
    let client = Client::new(&config, patient().decode(decode)).unwrap();
    thread::scope(|scope| {
        let listing = scope.spawn(|| client.list::<Secret>(Scope::namespace("shop")));
        let mut peer = server.accept();
        for _ in 0..3 {
            peer.request();
            peer.json(200, &first_page("more"));
        }
        let error = listing.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    });
}

#[test]
fn a_server_that_does_not_answer_costs_the_deadline_and_the_error_names_the_phase() {
    let server = Server::start();
    let client = client(&server.url());
    let listed = client.list_by::<Secret>(
        Scope::all(),
        Clock::system().after(Duration::from_millis(300)),
    );
    let error = listed.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(
        error.to_string().contains("waiting for the head"),
        "{error}"
    );
    let options = patient().request_timeout(Duration::from_millis(300));
    let client = Client::new(&Config::for_server(&server.url()).unwrap(), options).unwrap();
    let got = client.get::<Node>(&ObjectKey::new("", "node-1"));
    assert_eq!(got.unwrap_err().kind(), ErrorKind::Timeout);
}

#[test]
fn one_object_is_got_by_its_key() {
    let server = Server::start();
    let client = client(&server.url());
    let soon = Clock::system().after(PATIENCE);
    let key = ObjectKey::new("shop", "db");
    thread::scope(|scope| {
        let getting = scope.spawn(|| client.get_by::<Secret>(&key, soon));
        let mut peer = server.accept();
        let request = peer.request();
        assert_eq!(target(&request), "/api/v1/namespaces/shop/secrets/db");
        peer.json(200, &secret("db", "1"));
        let secret = getting.join().unwrap().unwrap();
        assert_eq!(secret.metadata.resource_version.as_deref(), Some("1"));
    });
}
