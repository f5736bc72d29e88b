//! How long a reflector takes from its stop to its thread's end, blocked in each phase of its work:
//! 1,000 stops each.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a benchmark prints, and fails by panicking"
)]

mod tls_server;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use k8s_openapi::api::core::v1::Secret;
use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::ObjectEvent;
use kubecache::object::{ResourceVersion, Scope};
use kubecache::reflector::{
    Phase, Reflector, ReflectorOptions, ReflectorStatus, Replacement, Sink,
};
use kubecache::worker::Worker;

/// All stops of a phase.
type Run = fn() -> Vec<Duration>;

const STOPS: usize = 1000;

/// Of the slowest but one in a hundred.
const BUDGET: Duration = Duration::from_millis(10);

/// Tells that the watch is open, or that the reflector rests.
struct Told(Sender<()>);

impl Sink<Secret> for Told {
    type Staging = ();

    fn begin(&mut self) {}

    fn stage(&mut self, (): &mut (), _: ObjectEvent<Secret>) {}

    fn commit(&mut self, (): (), _: &Replacement) -> Result<(), Error> {
        Ok(())
    }

    fn apply(&mut self, _: ObjectEvent<Secret>) -> Result<(), Error> {
        Ok(())
    }

    fn bookmark(&mut self, _: &ResourceVersion) {
        self.0.send(()).unwrap();
    }

    fn report(&mut self, status: &ReflectorStatus) {
        if status.phase == Phase::BackingOff {
            self.0.send(()).unwrap();
        }
    }
}

fn main() -> ExitCode {
    println!("stop to joined, {STOPS} stops each, budget p99 < {BUDGET:?}");
    println!(
        "{:<22} {:>9} {:>9} {:>9}",
        "blocked in", "p50", "p99", "max"
    );
    let phases: [(&str, Run); 8] = [
        ("name lookup", lookup),
        ("connect", connect),
        ("TLS handshake", handshake),
        ("waiting for headers", headers),
        ("headers, TLS", headers_of_tls),
        ("body of a watch", body),
        ("body of a watch, TLS", body_of_tls),
        ("backing off", backing_off),
    ];
    let mut met = true;
    for (name, run) in phases {
        let mut times = run();
        times.sort_unstable();
        let p99 = times[STOPS * 99 / 100];
        met &= p99 < BUDGET;
        println!(
            "{name:<22} {:>9.1?} {p99:>9.1?} {:>9.1?}",
            times[STOPS / 2],
            times[STOPS - 1]
        );
    }
    println!("{}", if met { "met" } else { "MISSED" });
    ExitCode::from(u8::from(!met))
}

/// Stops reflectors of `client`, each when it is where `blocked` has waited for.
fn stops(client: &Client, blocked: impl Fn(&Receiver<()>), after: impl Fn()) -> Vec<Duration> {
    let clock = Clock::system();
    let stop = |_| {
        let source = client.lister_watcher(Scope::namespace("shop"));
        let (tell, told) = unbounded();
        let options = ReflectorOptions::default();
        let reflector = Reflector::spawn("bench", source, Told(tell), options).unwrap();
        blocked(&told);
        let begun = clock.now();
        reflector.join().unwrap();
        let took = clock.now() - begun;
        after();
        took
    };
    (0..STOPS).map(stop).collect()
}

fn client(url: &str) -> Client {
    let config = Config::for_server(url).unwrap();
    let config = if url.starts_with("https") {
        config.with_insecure_skip_tls_verify()
    } else {
        config
    };
    Client::new(&config, options()).unwrap()
}

fn options() -> ClientOptions {
    let rate = 1_000_000.try_into().unwrap();
    ClientOptions::default().rate(rate).burst(rate)
}

fn lookup() -> Vec<Duration> {
    let (begun, started) = bounded(1);
    let (open, gate) = bounded::<()>(1);
    let config = Config::for_server("http://api.test:6443").unwrap();
    let client = Client::with_lookup(&config, options(), move |_: &str, _| {
        begun.send(()).unwrap();
        gate.recv().unwrap();
        Ok(Vec::new())
    });
    stops(
        &client.unwrap(),
        |_| started.recv().unwrap(),
        || open.send(()).unwrap(),
    )
}

fn connect() -> Vec<Duration> {
    // The queue of this listener holds one connection, which is there: the next one's packets are
    // dropped.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let _queued = TcpStream::connect(address).unwrap();
    let connecting = format!(":{:04X} 02 ", address.port());
    let blocked = |_: &Receiver<()>| {
        while !std::fs::read_to_string("/proc/net/tcp")
            .unwrap()
            .contains(&connecting)
        {}
    };
    stops(&client(&format!("http://{address}")), blocked, || ())
}

fn handshake() -> Vec<Duration> {
    let (address, reached) = serve(|mut socket, reached| {
        let mut hello = [0];
        socket.read_exact(&mut hello).unwrap();
        reached.send(()).unwrap();
        until_closed(&mut socket);
    });
    let blocked = |_: &Receiver<()>| reached.recv().unwrap();
    stops(&client(&format!("https://{address}")), blocked, || ())
}

fn headers() -> Vec<Duration> {
    let (address, reached) = serve(|socket, reached| mute(BufReader::new(socket), reached));
    let blocked = |_: &Receiver<()>| reached.recv().unwrap();
    stops(&client(&format!("http://{address}")), blocked, || ())
}

fn headers_of_tls() -> Vec<Duration> {
    let (address, reached) = serve(|socket, reached| mute(BufReader::new(tls(socket)), reached));
    let blocked = |_: &Receiver<()>| reached.recv().unwrap();
    stops(&client(&format!("https://{address}")), blocked, || ())
}

fn body() -> Vec<Duration> {
    let (address, _reached) = serve(|socket, _| watch(BufReader::new(socket)));
    let blocked = |told: &Receiver<()>| told.recv().unwrap();
    stops(&client(&format!("http://{address}")), blocked, || ())
}

fn body_of_tls() -> Vec<Duration> {
    let (address, _reached) = serve(|socket, _| watch(BufReader::new(tls(socket))));
    let blocked = |told: &Receiver<()>| told.recv().unwrap();
    stops(&client(&format!("https://{address}")), blocked, || ())
}

fn backing_off() -> Vec<Duration> {
    // Nobody listens there any more.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let blocked = |told: &Receiver<()>| told.recv().unwrap();
    stops(&client(&format!("http://{address}")), blocked, || ())
}

/// Serves one connection after the other until the process ends.
fn serve(each: impl Fn(TcpStream, &Sender<()>) + Send + 'static) -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (reached, reach) = unbounded();
    let serving = Worker::spawn("serve", move |_| {
        for socket in listener.incoming() {
            each(socket.unwrap(), &reached);
        }
    });
    // It blocks in accept(2), which no stop reaches: it ends with the process.
    Box::leak(Box::new(serving.unwrap()));
    (address, reach)
}

fn tls(socket: TcpStream) -> rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    let connection = rustls::ServerConnection::new(tls_server::config()).unwrap();
    rustls::StreamOwned::new(connection, socket)
}

/// Reads a request and answers nothing.
fn mute(mut stream: BufReader<impl Read + Write>, reached: &Sender<()>) {
    request(&mut stream);
    reached.send(()).unwrap();
    until_closed(stream.get_mut());
}

/// Answers a list and opens a watch.
fn watch(mut stream: BufReader<impl Read + Write>) {
    request(&mut stream);
    let list = "{\"kind\":\"SecretList\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}";
    let length = list.len();
    let out = stream.get_mut();
    write!(
        out,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{list}"
    )
    .unwrap();
    request(&mut stream);
    let event = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\
                 \"metadata\":{\"resourceVersion\":\"2\"}}}\n";
    let length = event.len();
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let out = stream.get_mut();
    write!(out, "{head}{length:x}\r\n{event}\r\n").unwrap();
    until_closed(out);
}

fn request(stream: &mut impl BufRead) {
    let mut line = String::new();
    while stream.read_line(&mut line).unwrap() > 2 {
        line.clear();
    }
}

fn until_closed(stream: &mut impl Read) {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
}
