//! Where the endpoints listen: addresses as controller-runtime's flags have them, bound before
//! anything else happens.

use std::time::Duration;

use kubecache::Error;
use kubecache::endpoints::{self, Endpoints, EndpointsOptions};

/// The checks look and never wait, but a busy machine may hold up their threads.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// An address to listen at, and the flag that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindAddress {
    pub(crate) flag: &'static str,
    address: endpoints::BindAddress,
}

impl BindAddress {
    /// Reads the value of a flag; `0` and an empty one switch the endpoint off.
    pub(crate) fn parse(flag: &'static str, value: &str) -> Result<Option<Self>, String> {
        if matches!(value, "" | "0") {
            return Ok(None);
        }
        let address = value.parse().map_err(|_wrong| {
            format!("--{flag} {value:?}: write HOST:PORT, :PORT, or 0 for none")
        })?;
        Ok(Some(Self { flag, address }))
    }

    /// Whether both are one place to listen at; ports of the system's choice are not.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        self.address.port() != 0 && self.address == other.address
    }

    /// Listens there; who connects from now on waits to be served.
    pub(crate) fn bind(&self, has_probes: bool) -> Result<Endpoints, Error> {
        let options = EndpointsOptions::default().check_limit(CHECK_LIMIT);
        let options = options.probes(has_probes);
        let flag = format!("--{}", self.flag);
        let endpoints = Endpoints::new(&self.address, options);
        let endpoints = endpoints.map_err(|error| error.context(&flag))?;
        let told = format!("{flag}: listening at {}", endpoints.address());
        if self.address.port() == 0 {
            // Nobody could find it otherwise.
            crate::tell(&told);
        } else {
            log::info!("{told}");
        }
        Ok(endpoints)
    }
}

impl std::fmt::Display for BindAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn parse(value: &str) -> Result<Option<BindAddress>, String> {
        BindAddress::parse("metrics-bind-address", value)
    }

    #[test]
    fn a_flag_has_an_address_or_switches_off() {
        for off in ["0", ""] {
            assert_eq!(parse(off), Ok(None));
        }
        assert_eq!(
            parse("[::1]:8081").unwrap().unwrap().to_string(),
            "[::1]:8081"
        );
        let wrong = "--metrics-bind-address \"8080\": write HOST:PORT, :PORT, or 0 for none";
        assert_eq!(parse("8080"), Err(wrong.to_owned()));
    }

    #[test]
    fn an_address_that_is_taken_is_told_with_its_flag() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let value = taken.local_addr().unwrap().to_string();
        let error = parse(&value).unwrap().unwrap().bind(true).unwrap_err();
        let expected = format!("--metrics-bind-address: listening at {value}");
        assert_eq!(error.to_string(), expected);
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("in use"), "{why}");
    }

    #[test]
    fn one_port_for_both_is_one_place_unless_the_system_chooses_it() {
        let at = |value| parse(value).unwrap().unwrap();
        assert!(at(":80").is_same_place(&at(":80")));
        assert!(!at(":80").is_same_place(&at("localhost:80")));
        assert!(!at("127.0.0.1:0").is_same_place(&at("127.0.0.1:0")));
    }
}
