//! Through proxies that others wrote: the kube-apiserver is reached, a wrong password is told, and
//! an informer goes on when the proxy has restarted.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::ErrorKind;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::object::Scope;
use kubecache::worker::{StopToken, Worker};

use super::support::*;

/// Between two reads.
const TICK: Duration = Duration::from_millis(100);

/// A proxy, as a process of its own.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) address: String,
    asked: Receiver<String>,
    _reading: Worker,
}

impl Proxy {
    pub(crate) fn start(kind: &str, address: &str) -> Self {
        let program = std::env::var("KUBECACHE_CLUSTER_PROXY").expect("run tests/cluster/run");
        let mut child = Command::new(program)
            .args([kind, address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It tells of each connection that it cannot make.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.next().unwrap().unwrap();
        let (tell, asked) = channel();
        let reading = Worker::spawn("t-proxy", move |_stop| {
            for line in lines.map_while(Result::ok) {
                drop(tell.send(line));
            }
        });
        Self {
            child,
            address,
            asked,
            _reading: reading.unwrap(),
        }
    }

    /// Ends the process and starts another one at the same address.
    pub(crate) fn restart(self, kind: &str) -> Self {
        let address = self.address.clone();
        drop(self);
        Self::start(kind, &address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn client(kind: &str, proxy: &Proxy, password: &str) -> Client {
    let url = format!("{kind}://jane:{password}@{}", proxy.address);
    let options = KubeconfigOptions::default().path(directory().join("kubeconfig/admin.yaml"));
    let config = Config::from_kubeconfig(&options).unwrap();
    let options = ClientOptions::default().user_agent(of_this_run("proxies"));
    Client::new(&config.with_proxy(&url).unwrap(), options).unwrap()
}

/// A namespace with one object.
fn objects(namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n---\n{}",
        object(namespace, "first")
    )
}

fn object(namespace: &str, name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\n")
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn an_informer_goes_on_when_its_proxy_has_restarted() {
    let _up = cluster();
    let clock = Clock::system();
    for kind in ["http", "socks5"] {
        let namespace = format!("behind-{kind}");
        apply(&objects(&namespace));
        let mut proxy = Proxy::start(kind, "127.0.0.1:0");
        let client = client(kind, &proxy, "canary");
        let source = watcher::<ConfigMap>(&client, Scope::namespace(&namespace));
        let informer = SharedInformer::new(source, InformerOptions::default());
        informer.start().unwrap();
        informer.wait_until_synced(clock.after(PATIENCE)).unwrap();
        let server = std::env::var("KUBECACHE_CLUSTER_SERVER").unwrap();
        let asked = proxy.asked.recv_timeout(PATIENCE).unwrap();
        assert_eq!(asked, server.trim_start_matches("https://"));

        for change in ["second", "third"] {
            proxy = proxy.restart(kind);
            apply(&object(&namespace, change));
            let came = clock.after(PATIENCE);
            let store = informer.store();
            let held = |name: &str| store.get(&namespace, name).unwrap().is_some();
            while !held(change) {
                assert!(!clock.has_passed(came), "the informer follows no more");
                assert!(held("first"));
                StopToken::never().wait_until(&clock, clock.after(TICK));
            }
            let asked = proxy.asked.recv_timeout(PATIENCE);
            assert!(asked.is_ok(), "{change} came another way");
        }
        informer.shutdown(clock.after(PATIENCE)).unwrap();
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_wrong_password_is_told_by_the_proxy_and_never_shown() {
    let _up = cluster();
    for (kind, words) in [
        ("http", "407 Proxy Authentication Required"),
        ("socks5", "it does not accept the user and the password"),
    ] {
        let proxy = Proxy::start(kind, "127.0.0.1:0");
        let refused = get::<ConfigMap>(&client(kind, &proxy, "wrong-canary"), "shop", "x");
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unreachable);
        let text = refused.to_string();
        assert!(
            text.contains(words) && !text.contains("wrong-canary"),
            "{text}"
        );
        assert!(
            text.contains(&format!("{kind}://{}", proxy.address)),
            "{text}"
        );
    }
}
