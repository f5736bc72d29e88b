//! The endpoints as a whole: which addresses serve which pages, bound early, and served once there
//! is something to tell.

use std::net::TcpListener;

use kubecache::Error;

use crate::args::Options;
use crate::bind::BindAddress;
use crate::exchange::{Asked, Page, Pages};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::serve::Server;
use crate::zpages::ZPages;

/// The addresses of a run, bound and not served yet: who connects waits.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    bound: Vec<Bound>,
    pub(crate) metrics: Option<Metrics>,
}

#[derive(Debug)]
struct Bound {
    address: BindAddress,
    listener: TcpListener,
    health: bool,
    metrics: bool,
}

impl Endpoints {
    /// Binds what the flags ask for. One address for both serves both.
    pub(crate) fn bind(options: &Options) -> Result<Self, Error> {
        let mut bound: Vec<Bound> = Vec::new();
        let metrics = Metrics::at(options.metrics_bind_address.as_ref());
        let health = options.health_probe_bind_address.iter();
        let health = health.map(|address| (address, true, false));
        let scraped = options.metrics_bind_address.iter();
        let scraped = scraped.map(|address| (address, false, true));
        for (address, health, metrics) in health.chain(scraped) {
            let same = bound
                .iter_mut()
                .find(|one| one.address.is_same_place(address));
            if let Some(one) = same {
                one.health |= health;
                one.metrics |= metrics;
                continue;
            }
            bound.push(Bound {
                address: address.clone(),
                listener: address.bind()?,
                health,
                metrics,
            });
        }
        Ok(Self { bound, metrics })
    }

    /// Serves from now on, until what it returns is dropped.
    pub(crate) fn serve(self, health: &Health, options: &Options) -> Result<Vec<Server>, Error> {
        let Self { bound, metrics } = self;
        let about = ZPages::new(options);
        let servers = bound.into_iter().map(|one| {
            let name = if one.health {
                "agent-probes"
            } else {
                "agent-metrics"
            };
            let pages = Served {
                health: health.clone(),
                about: one.health.then(|| about.clone()),
                metrics: metrics.clone().filter(|_| one.metrics),
            };
            Server::start(name, one.listener, pages)
        });
        servers.collect()
    }
}

/// What one address serves.
struct Served {
    health: Health,
    /// Where the probes are served.
    about: Option<ZPages>,
    metrics: Option<Metrics>,
}

impl Pages for Served {
    fn answer(&self, asked: Asked<'_>) -> Page {
        if let Some(metrics) = self.metrics.as_ref().filter(|_| asked.path == "/metrics") {
            return metrics.page(&self.health);
        }
        let page = self.about.as_ref().and_then(|about| {
            let probe = self.health.page(asked);
            probe.or_else(|| about.page(asked.path))
        });
        page.unwrap_or_else(|| Page::text(404, "404 page not found\n"))
    }
}
