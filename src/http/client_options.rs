//! The options of a client: its limits, its rate, and the fields that it decodes.

use std::num::NonZeroU32;
use std::time::Duration;

use super::calls::limiter::{BURST, PER_SECOND};
use super::client_metric::ClientMetric;
use crate::clock::Clock;
use crate::hooks::Hook;
use crate::setters::setters;
use crate::wire::DecodeOptions;

/// The options of a [`Client`](super::Client). The defaults suit a node agent.
///
/// # Examples
///
/// ```
/// use kubecache::http::ClientOptions;
/// use std::time::Duration;
///
/// let options = ClientOptions::default()
///     .connect_timeout(Duration::from_secs(3))
///     .user_agent("my-agent/1.0");
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientOptions {
    pub(crate) request_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) list_first_byte_timeout: Duration,
    pub(crate) object_list_first_byte_timeout: Duration,
    pub(crate) watch_first_byte_timeout: Duration,
    pub(crate) get_first_byte_timeout: Duration,
    pub(crate) second_try_after: Duration,
    pub(crate) body_idle_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) gzip: bool,
    pub(crate) rate: NonZeroU32,
    pub(crate) burst: NonZeroU32,
    pub(crate) decode: DecodeOptions,
    pub(crate) buffered_bytes_max: usize,
    pub(crate) watch_list: bool,
    pub(crate) user_agent: Option<String>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Option<Hook<ClientMetric>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            // A server answers a list within 60 s or not at all.
            request_timeout: Duration::from_secs(60),
            // client-go's default for the handshake alone.
            connect_timeout: Duration::from_secs(10),
            // A server may read a list from etcd and sort it first. It gives up after 60 s.
            list_first_byte_timeout: Duration::from_secs(60),
            // A server finds one object at once.
            object_list_first_byte_timeout: Duration::from_secs(20),
            // A server answers a streamed list as soon as its watch cache is ready.
            watch_first_byte_timeout: Duration::from_secs(30),
            // A server reads one object at once or not at all.
            get_first_byte_timeout: Duration::from_secs(10),
            // A healthy server has nearly always begun its answer by then, and a second request
            // costs little.
            second_try_after: Duration::from_secs(5),
            body_idle_timeout: Duration::from_secs(30),
            // Enough for the largest list that is decoded by default, over a line of 30 Mbit/s.
            body_timeout: Duration::from_secs(10 * 60),
            gzip: cfg!(feature = "gzip"),
            rate: PER_SECOND,
            burst: BURST,
            decode: DecodeOptions::default(),
            // Enough for sixteen of the largest objects, or a few small ones of each of thousands
            // of watches.
            buffered_bytes_max: 256 * 1024 * 1024,
            watch_list: true,
            user_agent: None,
            clock: Clock::system(),
            metrics: None,
        }
    }
}

setters! { [] ClientOptions;
    /// Sets the limit of one call of [`Client::get`](super::Client::get) or
    /// [`Client::list`](super::Client::list), all requests of the call together. Default: 60 s.
    request_timeout(request_timeout: Duration);

    /// Sets the limit of name lookup, connect and TLS handshake together, over all addresses of the
    /// server. Default: 10 s.
    connect_timeout(connect_timeout: Duration);

    /// Sets the limit from sending a list of a collection to the first byte of the answer. Default:
    /// 60 s. It also applies to the program's own requests.
    list_first_byte_timeout(list_first_byte_timeout: Duration);

    /// Sets the limit from sending a list of one object, by its name, to the first byte of the
    /// answer. Default: 20 s.
    object_list_first_byte_timeout(object_list_first_byte_timeout: Duration);

    /// Sets the limit from sending a streamed list (`sendInitialEvents`) to the first byte of the
    /// answer. Default: 30 s.
    ///
    /// The bytes that follow have no limit here. The head of any other watch may come as late as
    /// its first event, because a proxy may hold it back. Its limit is
    /// [`WatchRequest::head_timeout`](crate::list_watch::WatchRequest::head_timeout).
    watch_first_byte_timeout(watch_first_byte_timeout: Duration);

    /// Sets the limit from sending a get to the first byte of the answer. Default: 10 s.
    ///
    /// The network path of a kept connection may be dead. On such a connection a get waits for half
    /// of this limit, or for half of the time to its deadline if that is shorter. Then the client
    /// sends the get once more on a new connection, with another permit of the rate limit. There is
    /// no second try if the last answer took more than half of that wait.
    get_first_byte_timeout(get_first_byte_timeout: Duration);

    /// Sets how long the server may be silent before the client tries once more on a new
    /// connection. Default: 5 s.
    ///
    /// This applies to gets, to lists of one object and to the opening of watches. Lists of
    /// collections are not tried again. The client measures the silence until the connection is
    /// made, and again from then until the first byte.
    second_try_after(second_try_after: Duration);

    /// Sets the limit of silence within the body of a list or a get. Default: 30 s.
    body_idle_timeout(body_idle_timeout: Duration);

    /// Sets the limit of the whole body of a list or a get, however slowly it comes. Default: 10
    /// minutes.
    body_timeout(body_timeout: Duration);

    /// Sets whether the server may compress lists and streamed lists. Default: whether the feature
    /// `gzip` is on.
    ///
    /// kube-apiserver compresses lists of more than 128 KiB, and from 1.37 on streamed lists with
    /// the events after them. Each event still comes at once. Other watches are never compressed.
    /// While a compressed answer comes, it holds some 63 KiB more.
    gzip(gzip: bool);

    /// Sets how many requests per second this client sends. Default: 50. Openings of watches do not
    /// count.
    ///
    /// Requests that a caller waits for go first: gets, and lists of caches that a reader waits
    /// for. One permit in eight is left to background requests.
    rate(rate: NonZeroU32);

    /// Sets how many requests this client may send at once after a quiet time. Default: 100.
    burst(burst: NonZeroU32);

    /// Sets which fields lists and watches decode, and how large an object may be. A get through a
    /// [`Getter`](crate::list_watch::Getter) always decodes all fields.
    decode(decode: DecodeOptions);

    /// Sets how many bytes the unfinished answers of this client hold together. Default: 256 MiB.
    ///
    /// An unfinished answer is an event of a watch, an item of a list, or the body of a get that
    /// has not come whole. Past the limit the client closes the largest of those that hold more
    /// than the growing one, or else the growing one. The error has the kind
    /// [`TooLarge`](crate::ErrorKind::TooLarge). The other answers go on. An answer of up to 16 KiB
    /// does not count. If its head says such a length, its buffer may have any size. A growing
    /// buffer counts twice while its bytes are moved. Decoded objects do not count.
    ///
    /// glibc may keep part of the freed memory for the process. With the environment variable
    /// `MALLOC_MMAP_THRESHOLD_=65536`, set before the process starts, glibc gives it back at once.
    buffered_bytes_max(buffered_bytes_max: usize);

    /// Sets whether collections may be listed as a stream (`sendInitialEvents`) where the server
    /// supports it, and the options of a reflector
    /// [ask for it](crate::reflector::ReflectorOptions::watch_list). Default: true.
    watch_list(watch_list: bool);

    /// Sets the first part of the `User-Agent` header. Default: the file name of the program.
    user_agent(program: impl Into<String>) = Some(program.into());

    /// Sets the clock that the rate limit uses. Default: the system clock.
    clock(clock: Clock);

    /// Sets the hook that receives the client's events. Default: none.
    ///
    /// An exposition makes one: `Exposition::client`, with the feature `metrics`.
    metrics(metrics: Hook<ClientMetric>) = Some(metrics);
}

impl ClientOptions {
    /// Names the program in the server's log: `program (linux/x86_64) kubecache/0.1.0`.
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
        let options = ClientOptions::default().user_agent("agent/1\r\nX: y");
        let header = options.user_agent_header();
        assert!(header.starts_with("agent/1X: y ("), "{header}");
        assert!(header.ends_with(concat!(" kubecache/", env!("CARGO_PKG_VERSION"))));
    }

    #[test]
    fn without_a_user_agent_the_program_is_named_by_its_file() {
        let header = ClientOptions::default().user_agent_header();
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap().to_str().unwrap();
        assert!(header.starts_with(&format!("{program} (")), "{header}");
    }
}
