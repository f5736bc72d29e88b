//! A kubeconfig whose credentials are replaced while the agent runs, as a kubelet does with its
//! own. From then on the server takes the new ones alone.

use std::fs;
use std::os::unix::fs::symlink;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubecache::rustls::crypto::ring::default_provider;
use kubecache::testing::{ApiServer, TestAuthority, objects};
use rustix::process::Signal;

use super::AGENT;
use crate::support::TempDirectory;

/// The kubelet's user and group.
const USER: &str = "system:node:n1";
const GROUPS: [&str; 1] = ["system:nodes"];

/// A machine with a kubeconfig of this name, which is the agent's.
struct Machine(TempDirectory);

impl Machine {
    fn new() -> Self {
        Self(TempDirectory::new("agent-rotation"))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Replaces the kubeconfig in one step.
    fn write(&self, server: &ApiServer, user: &str) {
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            server.url()
        );
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path("kubelet.conf")).unwrap();
    }

    /// Runs the agent, and ends each connection after `renew`: what changes then has to come.
    fn goes_on(&self, server: &ApiServer, renew: impl FnOnce()) {
        let set = |password: &str| {
            let secret = objects::secret("shop", "db", "", &[("password", password)]);
            let version = server.apply(&secret).unwrap().metadata.resource_version;
            format!("\"resourceVersion\":\"{}\"", version.unwrap())
        };
        let pod = objects::pod("shop", "web", "n1", &["db"], &[]);
        server.apply(&pod).unwrap();
        let first = set("one");
        let kubeconfig = self.path("kubelet.conf");
        let flags = ["--kubeconfig", &kubeconfig, "--node-name", "n1"];
        let mut agent = AGENT.start(&[&flags[..], &["-o", "json"]].concat());
        agent.wait_for("the Secret", |line| line.contains(&first));

        renew();
        server.crash();
        server.come_back().unwrap();
        let second = set("two");
        agent.wait_for("its change", |line| line.contains(&second));
        let ended = agent.stop(Signal::TERM);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
}

/// Two authorities, of which the server takes the first one's clients, and a machine that trusts
/// both.
fn authorities() -> ([TestAuthority; 2], ApiServer, Machine) {
    let authorities = ["first", "second"];
    let authorities =
        authorities.map(|name| TestAuthority::new(name, default_provider().into()).unwrap());
    let server = ApiServer::builder().tls_by(&authorities[0]).unwrap();
    let machine = Machine::new();
    let trusted = authorities.each_ref().map(TestAuthority::pem);
    fs::write(machine.path("ca.crt"), trusted.concat()).unwrap();
    (authorities, server.start().unwrap(), machine)
}

#[test]
fn the_agent_goes_on_with_the_token_of_a_rotated_kubeconfig() {
    let (_, server, machine) = authorities();
    server.add_token("first", USER, &GROUPS);
    machine.write(&server, "token: first");
    machine.goes_on(&server, || {
        machine.write(&server, "token: second");
        server.add_token("second", USER, &GROUPS);
        server.remove_token("first");
    });
}

#[test]
fn the_agent_goes_on_with_the_certificate_in_a_rotated_kubeconfig() {
    let ([first, second], server, machine) = authorities();
    let show = |authority: &TestAuthority| {
        let (certificate, key) = authority.client(USER, &GROUPS).unwrap();
        let [certificate, key] = [certificate, key].map(|pem| STANDARD.encode(pem));
        let user = format!("client-certificate-data: {certificate}, client-key-data: {key}");
        machine.write(&server, &user);
    };
    show(&first);
    machine.goes_on(&server, || {
        show(&second);
        server.rotate_tls(&second).unwrap();
    });
}

/// The kubelet writes certificate and key to one file, and has a link to the newest.
#[test]
fn the_agent_goes_on_with_the_certificate_that_a_kubelet_has_linked_anew() {
    let ([first, second], server, machine) = authorities();
    let link = |authority: &TestAuthority, file: &str| {
        let (certificate, key) = authority.client(USER, &GROUPS).unwrap();
        fs::write(machine.path(file), certificate + &key).unwrap();
        symlink(file, machine.path("link")).unwrap();
        let current = machine.path("kubelet-client-current.pem");
        fs::rename(machine.path("link"), current).unwrap();
    };
    link(&first, "kubelet-client-2026-01-01.pem");
    let current = "kubelet-client-current.pem";
    let user = format!("client-certificate: {current}, client-key: {current}");
    machine.write(&server, &user);
    machine.goes_on(&server, || {
        link(&second, "kubelet-client-2026-02-01.pem");
        server.rotate_tls(&second).unwrap();
    });
}
