//! The server of a demonstration: recordings that are part of the program, replayed on loopback.

use kubecache::Error;
use kubecache::testing::{FixtureServer, Recording, Speed};

/// Starts the server, which ends when it is dropped; a `speed` of 0 is everything at once.
pub(crate) fn serve(recordings: &[&str], speed: f64) -> Result<FixtureServer, Error> {
    let speed = if speed > 0.0 {
        Speed::Times(speed)
    } else {
        Speed::AtOnce
    };
    let mut server = FixtureServer::replaying(Recording::new());
    for text in recordings {
        server = server.and(Recording::parse("the embedded recording", text)?);
    }
    // A demonstration that is watched longer than its story goes on in silence.
    server.speed(speed).endless().start()
}
