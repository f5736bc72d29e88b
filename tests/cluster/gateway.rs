//! A way to the server that can be closed: connections break, and new ones end at once.

use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubecache::worker::Worker;
use parking_lot::Mutex;

/// Passes bytes on to the server; the server's certificate is for this address, too.
pub(crate) struct Gateway {
    port: u16,
    ways: Arc<Mutex<Ways>>,
    _accepting: Worker,
}

/// What passes now.
struct Ways {
    is_open: bool,
    is_over: bool,
    sockets: Vec<TcpStream>,
    copying: Vec<Worker>,
    answered: Arc<AtomicUsize>,
}

/// What is read, and how much it was.
struct Counted<'a>(&'a TcpStream, &'a AtomicUsize);

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(into)?;
        self.1.fetch_add(count, Ordering::Relaxed);
        Ok(count)
    }
}

impl Gateway {
    /// An open way to the cluster's server.
    pub(crate) fn start() -> Self {
        let server = std::env::var("KUBECACHE_CLUSTER_SERVER").expect("run tests/cluster/run");
        let server = server.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ways = Arc::new(Mutex::new(Ways {
            is_open: true,
            is_over: false,
            sockets: Vec::new(),
            copying: Vec::new(),
            answered: Arc::default(),
        }));
        let shared = Arc::clone(&ways);
        let accepting = Worker::spawn("t-gateway", move |_stop| {
            while let Ok((client, _)) = listener.accept() {
                let mut ways = shared.lock();
                if ways.is_over {
                    return;
                }
                // A client that is not let in sees its connection end.
                if ways.is_open
                    && let Ok(server) = TcpStream::connect(&server)
                {
                    ways.join(&client, &server);
                }
            }
        });
        Self {
            port,
            ways,
            _accepting: accepting.unwrap(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The bytes that have come from the server, those of TLS included.
    #[cfg(feature = "gzip")]
    pub(crate) fn answered_bytes(&self) -> usize {
        self.ways.lock().answered.load(Ordering::Relaxed)
    }

    /// Breaks what passes, and lets nobody in.
    pub(crate) fn close(&self) {
        let mut ways = self.ways.lock();
        ways.is_open = false;
        ways.cut();
    }

    pub(crate) fn open(&self) {
        self.ways.lock().is_open = true;
    }
}

impl Ways {
    fn join(&mut self, client: &TcpStream, server: &TcpStream) {
        let unread = Arc::default();
        let answered = &self.answered;
        for (from, to, count) in [(client, server, &unread), (server, client, answered)] {
            let (from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let count = Arc::clone(count);
            self.sockets.push(from.try_clone().unwrap());
            let copying = Worker::spawn("t-way", move |_stop| {
                // Whichever side ends first ends both.
                drop(io::copy(&mut Counted(&from, &count), &mut to));
                for socket in [from, to] {
                    drop(socket.shutdown(Shutdown::Both));
                }
            });
            self.copying.push(copying.unwrap());
        }
    }

    fn cut(&mut self) {
        for socket in self.sockets.drain(..) {
            drop(socket.shutdown(Shutdown::Both));
        }
        self.copying.clear();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let mut ways = self.ways.lock();
        ways.is_over = true;
        ways.cut();
        drop(ways);
        // Wakes the one that accepts.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}
