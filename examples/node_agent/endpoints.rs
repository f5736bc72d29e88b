//! The endpoints as a whole: which addresses serve which pages, bound early, and served once there
//! is something to tell.

use kubecache::Error;
use kubecache::endpoints::Endpoints;

use crate::args::Options;
use crate::bind::BindAddress;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::zpages::ZPages;

/// The addresses of a run, bound and not served yet: who connects waits.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    bound: Vec<Bound>,
    pub(crate) metrics: Option<Metrics>,
}

#[derive(Debug)]
struct Bound {
    address: BindAddress,
    endpoints: Endpoints,
    health: bool,
    metrics: bool,
}

impl Addresses {
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
                endpoints: address.bind(health)?,
                health,
                metrics,
            });
        }
        Ok(Self { bound, metrics })
    }

    /// Serves from now on, until what it returns is dropped.
    pub(crate) fn serve(self, health: &Health, options: &Options) -> Result<Served, Error> {
        let about = ZPages::new(options);
        for one in &self.bound {
            let metrics = self.metrics.clone().filter(|_| one.metrics);
            if let Some(metrics) = metrics {
                let health = health.clone();
                one.endpoints
                    .add_page("/metrics", move || metrics.page(&health))?;
            }
            if one.health {
                health.add_to(&one.endpoints)?;
                about.add_to(&one.endpoints)?;
            }
            one.endpoints.start();
        }
        Ok(Served {
            bound: self.bound,
            health: health.clone(),
        })
    }
}

/// The endpoints that are served.
pub(crate) struct Served {
    bound: Vec<Bound>,
    health: Health,
}

impl Served {
    /// Adds and removes the checks that come and go with the configuration.
    pub(crate) fn follow_configuration(&self) {
        for probes in self.bound.iter().filter(|one| one.health) {
            self.health.follow_configuration(&probes.endpoints);
        }
    }
}
