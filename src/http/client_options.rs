//! How a client behaves: its limits, its rate, what it decodes.

use std::num::NonZeroU32;
use std::time::Duration;

use super::limiter::{BURST, PER_SECOND};
use crate::clock::Clock;
use crate::wire::DecodeOptions;

/// Name lookup, connect and handshake together: as much as client-go's default for the handshake alone.
const CONNECT: Duration = Duration::from_secs(10);

/// A list may have to be read from etcd and sorted before its first byte: a server gives up after 60 s itself.
const LIST_FIRST_BYTE: Duration = Duration::from_mins(1);

/// One object is found at once: who waits for it is told soon.
const OBJECT_LIST_FIRST_BYTE: Duration = Duration::from_secs(20);

/// A server answers a streamed list when it has taken its place in the event stream.
const WATCH_FIRST_BYTE: Duration = Duration::from_secs(30);

/// One object is read at once or not at all.
const GET_FIRST_BYTE: Duration = Duration::from_secs(10);

/// A server that lives has begun its answer by then, nearly always; a second request costs it
/// little.
const SECOND_TRY: Duration = Duration::from_secs(5);

/// Between two reads of a body that has an end.
const BODY_IDLE: Duration = Duration::from_secs(30);

/// The largest list that is decoded by default, at the speed of a slow line: 30 Mbit/s.
const BODY: Duration = Duration::from_mins(10);

/// Sixteen of the largest objects at once, or a few small ones of each of thousands of watches.
const BUFFERED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How a [`Client`](super::Client) behaves. The defaults suit a node agent.
///
/// # Examples
///
/// ```
/// use kubecache::http::ClientOptions;
/// use std::time::Duration;
///
/// let mut options = ClientOptions::default();
/// options.connect_timeout = Duration::from_secs(3);
/// options.user_agent = Some("my-agent/1.0".to_owned());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The limit of name lookup, connect and TLS handshake together, over all addresses of the server; 10 s.
    pub connect_timeout: Duration,
    /// The limit from sending a list of a collection to the first byte of its answer; 60 s.
    pub list_first_byte_timeout: Duration,
    /// The limit from sending a list of one object, by its name, to the first byte of its answer;
    /// 20 s.
    pub object_list_first_byte_timeout: Duration,
    /// The limit from sending a streamed list (`sendInitialEvents`) to the first byte of its
    /// answer; 30 s. What comes then has no limit here. The head of another watch may come as late
    /// as its first event: a proxy may hold it back, so that
    /// [`WatchRequest::head_timeout`](crate::list_watch::WatchRequest::head_timeout) is its limit.
    pub watch_first_byte_timeout: Duration,
    /// The limit from sending a get to the first byte of its answer; 10 s.
    ///
    /// On a kept connection, whose path may have died unseen, a get waits for half of that, or of
    /// what its deadline leaves. Then it goes out once more on a new connection, with another
    /// permit of the rate. This second try is left out while the server is slow: when the last
    /// answer took more than half of that wait.
    pub get_first_byte_timeout: Duration,
    /// After so much silence a get, a list of one object or the opening of a watch is tried once
    /// more on a new connection;
    /// 5 s. The silence is measured until the connection is there, and from then until the first byte. Lists of
    /// collections are not tried again.
    pub second_try_after: Duration,
    /// The limit of silence in the middle of the body of a list or a get; 30 s.
    pub body_idle_timeout: Duration,
    /// The limit of the whole body of a list or a get, however it trickles in; 10 min.
    pub body_timeout: Duration,
    /// Whether lists may come gzipped; on when the feature `gzip` is. Watches never are: each event would wait for
    /// a block of the compressor.
    pub gzip: bool,
    /// Requests per second of this client, watch openings not counted (RS-1); 50.
    ///
    /// Requests that somebody waits for (gets, and lists of caches that a reader waits for) go
    /// before background ones, to which one permit in eight is left.
    pub rate: NonZeroU32,
    /// Requests that may go out at once after a quiet time; 100.
    pub burst: NonZeroU32,
    /// What lists and watches decode, and how large an object may be. A plain get decodes all fields.
    pub decode: DecodeOptions,
    /// The most bytes that the unfinished answers of this client hold together; 256 MiB.
    ///
    /// Unfinished are events of watches, items of lists and bodies of gets that have not come
    /// whole. Past the limit
    /// the client closes the largest of those that hold more than the one that grows, or else that
    /// one, with an error
    /// of kind `TooLarge`. The others go on. An
    /// answer counts from 16 KiB on; a buffer that grows counts twice while its bytes are moved.
    /// Decoded objects do
    /// not count.
    ///
    /// glibc may keep part of what was freed for the process. The environment variable
    /// `MALLOC_MMAP_THRESHOLD_=65536`, set before the process starts, makes glibc give it back at
    /// once.
    pub buffered_bytes_max: usize,
    /// Whether collections may be listed as a stream (`sendInitialEvents`) where the server can; on (B8).
    pub watch_list: bool,
    /// The first part of the `User-Agent`; by default the program's file name.
    pub user_agent: Option<String>,
    /// What the rate is measured with.
    pub clock: Clock,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: CONNECT,
            list_first_byte_timeout: LIST_FIRST_BYTE,
            object_list_first_byte_timeout: OBJECT_LIST_FIRST_BYTE,
            watch_first_byte_timeout: WATCH_FIRST_BYTE,
            get_first_byte_timeout: GET_FIRST_BYTE,
            second_try_after: SECOND_TRY,
            body_idle_timeout: BODY_IDLE,
            body_timeout: BODY,
            gzip: cfg!(feature = "gzip"),
            rate: PER_SECOND,
            burst: BURST,
            decode: DecodeOptions::default(),
            buffered_bytes_max: BUFFERED_BYTES_MAX,
            watch_list: true,
            user_agent: None,
            clock: Clock::system(),
        }
    }
}

impl ClientOptions {
    /// `program (linux/x86_64) kubecache/0.1.0`: who asks, for the server's log.
    pub(crate) fn user_agent_header(&self) -> String {
        let program = self.user_agent.clone().or_else(program_name);
        let program = program.unwrap_or_else(|| "unknown".to_owned());
        let visible = |char: &char| char.is_ascii_graphic() || *char == ' ';
        let program: String = program.chars().filter(visible).collect();
        format!(
            "{program} ({}/{}) kubecache/{}",
            std::env::consts::OS,
            std::env::consts::ARCH,
            env!("CARGO_PKG_VERSION")
        )
    }
}

fn program_name() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    Some(program.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_agent_names_program_system_and_library_and_fits_a_header() {
        let options = ClientOptions {
            user_agent: Some("agent/1\r\nX: y".to_owned()),
            ..ClientOptions::default()
        };
        let header = options.user_agent_header();
        assert!(header.starts_with("agent/1X: y ("), "{header}");
        assert!(header.ends_with(concat!(" kubecache/", env!("CARGO_PKG_VERSION"))));
    }
}
