//! Finds the proxy that the environment names for a server, by the rules of Go's `httpproxy`.

use std::net::{IpAddr, Ipv6Addr};

use super::super::environment::Environment;
use super::proxy_url::ProxyUrl;
use super::server_url::ServerUrl;
use crate::error::Error;

/// The variables for a server; the first that is set counts. Go's `httpproxy` does not read the
/// last two.
const OF_HTTPS: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
const OF_HTTP: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

impl Environment {
    /// Returns the proxy for `server`, and the variable that names it; `None` if there is none, or
    /// if `NO_PROXY` excepts the server. A server on this machine has no proxy.
    ///
    /// # Errors
    ///
    /// `Config` names the unusable variable, without its value.
    pub(crate) fn proxy(
        &self,
        server: &ServerUrl,
    ) -> Result<Option<(ProxyUrl, &'static str)>, Error> {
        let variables = if server.https { OF_HTTPS } else { OF_HTTP };
        let mut variables = variables.into_iter();
        let set = variables.find_map(|name| Some((name, self.text(name)?)));
        let Some((variable, text)) = set else {
            return Ok(None);
        };
        let exceptions = ["NO_PROXY", "no_proxy"];
        let exceptions = exceptions.into_iter().find_map(|name| self.text(name));
        if is_excepted(server, &exceptions.unwrap_or_default()) {
            return Ok(None);
        }
        if variable == "HTTP_PROXY" && self.var("REQUEST_METHOD").is_some() {
            return Err(Error::config(
                "HTTP_PROXY is not used in a CGI program, where a request may set it",
            ));
        }
        let whole = if text.contains("://") {
            text
        } else {
            format!("http://{text}")
        };
        let proxy = ProxyUrl::parse(&whole)
            .map_err(|why| Error::config(format!("the proxy in {variable}: {why}")))?;
        Ok(Some((proxy, variable)))
    }
}

/// Whether the client needs no proxy for `server`: it is on this machine, or `exceptions` (the
/// value of `NO_PROXY`) names it.
fn is_excepted(server: &ServerUrl, exceptions: &str) -> bool {
    let host = server.name().to_ascii_lowercase();
    let address = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let exceptions = exceptions.split(',').map(str::trim);
    exceptions
        .filter(|text| !text.is_empty())
        .any(|text| excepts(&text.to_ascii_lowercase(), &host, address, server.port))
}

/// Whether one exception names the host: `*`, a CIDR, or an address or a domain with or without a
/// port.
fn excepts(exception: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if exception == "*" {
        return true;
    }
    if let Some((network, prefix)) = cidr(exception) {
        return address.is_some_and(|address| is_within(address, network, prefix));
    }
    let (name, its_port) = split_port(exception);
    if its_port.is_some_and(|its_port| its_port != port.to_string()) {
        return false;
    }
    match (name.parse::<IpAddr>(), address) {
        (Ok(named), Some(address)) => named.to_canonical() == address,
        (Ok(_), None) | (Err(_), Some(_)) => false,
        (Err(_), None) => {
            let any = name.strip_prefix('*').filter(|rest| rest.starts_with('.'));
            let name = any.unwrap_or(name);
            let parent = host.strip_suffix(name).filter(|_| !name.is_empty());
            let has_dot = name.starts_with('.');
            parent.is_some_and(|parent| has_dot || parent.is_empty() || parent.ends_with('.'))
        }
    }
}

fn cidr(text: &str) -> Option<(IpAddr, u32)> {
    let (network, prefix) = text.split_once('/')?;
    let network: IpAddr = network.parse().ok()?;
    if !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let prefix = prefix.parse().ok()?;
    let bits = if network.is_ipv4() { 32 } else { 128 };
    (prefix <= bits).then_some((network, prefix))
}

fn is_within(address: IpAddr, network: IpAddr, prefix: u32) -> bool {
    // How many bits both begin with.
    let same = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    same >= prefix
}

/// Splits `host:port` or `[address]:port`. Returns a text without a port whole.
fn split_port(text: &str) -> (&str, Option<&str>) {
    let split = text.rsplit_once(':');
    let split = split.filter(|_| text.parse::<Ipv6Addr>().is_err());
    let Some((host, port)) = split else {
        return (text, None);
    };
    let bare = host.strip_prefix('[');
    let bare = bare.and_then(|host| host.strip_suffix(']'));
    let port = Some(port).filter(|port| !port.is_empty());
    (bare.unwrap_or(host), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(server: &str, variables: &[(&str, &str)]) -> String {
        let server = ServerUrl::parse(server, true).unwrap();
        let environment = Environment::from_pairs(variables.iter().copied());
        match environment.proxy(&server) {
            Ok(Some((proxy, variable))) => format!("{variable}: {proxy}"),
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// A server, the variables, and the proxy.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

    #[test]
    fn the_variable_is_chosen_by_the_servers_scheme() {
        let https = ("HTTPS_PROXY", "http://a:1");
        let http = ("http_proxy", "b:2");
        let all = ("ALL_PROXY", "socks5://c");
        let rows: [Row<'_>; 10] = [
            ("https://x", &[https, http, all], "HTTPS_PROXY: http://a:1"),
            ("http://x", &[https, http, all], "http_proxy: http://b:2"),
            ("https://x", &[http], "none"),
            ("http://x", &[https], "none"),
            ("https://x", &[http, all], "ALL_PROXY: socks5://c:1080"),
            (
                "https://x",
                &[("HTTPS_PROXY", ""), ("https_proxy", "d:4")],
                "https_proxy: http://d:4",
            ),
            (
                "https://x",
                &[("HTTPS_PROXY", "ftp://u:canary@p")],
                "the proxy in HTTPS_PROXY: its scheme is none of http, https and socks5",
            ),
            ("https://localhost:6443", &[https], "none"),
            ("https://127.1.2.3:6443", &[https], "none"),
            (
                "http://x",
                &[("HTTP_PROXY", "p"), ("REQUEST_METHOD", "GET")],
                "HTTP_PROXY is not used in a CGI program, where a request may set it",
            ),
        ];
        for (server, variables, expected) in rows {
            assert_eq!(
                chosen(server, variables),
                expected,
                "{server} {variables:?}"
            );
        }
    }

    /// `NO_PROXY`, the server, and whether it is excepted: as Go's `httpproxy` has it.
    #[test]
    fn no_proxy_names_servers_as_in_go() {
        let rows = [
            ("*", "https://api.test", true),
            ("api.test", "https://api.test", true),
            ("api.test", "https://API.test", true),
            ("API.Test", "https://api.test", true),
            ("api.test", "https://v1.api.test", true),
            ("api.test", "https://myapi.test", false),
            (".api.test", "https://v1.api.test", true),
            (".api.test", "https://api.test", false),
            ("*.api.test", "https://v1.api.test", true),
            ("*.api.test", "https://api.test", false),
            ("*api.test", "https://myapi.test", false),
            ("api.test:443", "https://api.test", true),
            ("api.test:6443", "https://api.test", false),
            ("api.test:", "https://api.test", true),
            (":443", "https://api.test", false),
            ("a.test, ,api.test ", "https://api.test", true),
            ("10.0.0.1", "https://10.0.0.1:6443", true),
            ("10.0.0.1:6443", "https://10.0.0.1:6443", true),
            ("10.0.0.1:443", "https://10.0.0.1:6443", false),
            ("10.0.0.0/8", "https://10.9.9.9:6443", true),
            ("10.0.0.0/8", "https://11.0.0.1:6443", false),
            ("0.0.0.0/0", "https://11.0.0.1", true),
            ("10.0.0.0/33", "https://10.0.0.1", false),
            ("10.0.0.0/8", "https://api.test", false),
            ("fd00::/8", "https://[fd00::1]:6443", true),
            ("::/0", "https://[fd00::1]:6443", true),
            ("fd00::1", "https://[fd00::1]:6443", true),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
            ("[fd00::1]", "https://[fd00::1]:6443", false),
            ("0.0.1", "https://10.0.0.1", false),
            ("test", "https://[fe80::1%25eth0.test]:6443", false),
            ("x", "https://[::1]:6443", true),
            ("x", "https://[::ffff:127.0.0.1]:6443", true),
            ("x", "https://localhost", true),
            ("x", "https://localhost.test", false),
        ];
        for (exceptions, server, expected) in rows {
            let server = ServerUrl::parse(server, true).unwrap();
            let found = is_excepted(&server, exceptions);
            assert_eq!(found, expected, "NO_PROXY={exceptions} {server}");
        }
    }
}
