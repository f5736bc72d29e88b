//! A1: a dial that meets a dead server behind an address is left for another, as long as others
//! succeed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::ErrorKind;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::object::Scope;
use kubecache::testing::{Act, ApiServer, Fault, TestAuthority};
use kubecache::worker::StopToken;
use rustls::crypto::ring;

use super::{patient, watch_from};

fn server(authority: &TestAuthority) -> ApiServer {
    let server = ApiServer::builder().tls_by(authority).unwrap();
    server
        .token("made-up", "admin", &["system:masters"])
        .start()
        .unwrap()
}

fn client(server: &ApiServer, authority: &TestAuthority, options: ClientOptions) -> Client {
    let config = Config::for_server(&server.url()).unwrap();
    let config = config
        .with_authorities(authority.pem())
        .with_token("made-up")
        .unwrap();
    Client::new(&config, options).unwrap()
}

/// A request that needs a new connection, since the kept one has a watch.
fn with_the_kept_connection_in_use(client: &Client, then: impl FnOnce()) {
    let source = client.lister_watcher::<Secret>(Scope::namespace("shop"));
    let watch = source.watch(&watch_from("1"), &StopToken::never()).unwrap();
    then();
    drop(watch);
}

/// Of five servers behind one address two are dead. The limits of the request are far away.
#[test]
fn a1_a_dial_is_left_for_another_while_connections_are_made() {
    let authority = TestAuthority::new("redial", ring::default_provider().into()).unwrap();
    let server = server(&authority);
    let options = patient().connect_timeout(Duration::from_secs(20));
    let client = client(&server, &authority, options);
    with_the_kept_connection_in_use(&client, || {
        assert_eq!(server.connections(), 1);
        server.add_fault(Fault::new(Act::Silent).times(2));
        client.list::<Secret>(Scope::namespace("shop")).unwrap();
        assert_eq!(server.connections(), 4);
    });
}

/// Nobody knows how fast a server is that was never reached: it is not dialed faster and faster.
#[test]
fn a1_a_first_dial_has_the_whole_limit() {
    let authority = TestAuthority::new("redial", ring::default_provider().into()).unwrap();
    let server = server(&authority);
    server.add_fault(Fault::new(Act::Silent));
    let options = patient().connect_timeout(Duration::from_secs(2));
    let client = client(&server, &authority, options);
    let error = client.list::<Secret>(Scope::namespace("shop")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(
        error.to_string().contains("no connection within 2.0s"),
        "{error}"
    );
    assert_eq!(server.connections(), 1);
}
