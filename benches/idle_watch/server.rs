//! The server's process: a list, a watch that tells of one change and ends, and then watches that
//! stay open.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubecache::worker::Worker;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::tls_server;

type Stream = BufReader<StreamOwned<ServerConnection, TcpStream>>;

static ACCEPTED: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn run() {
    let config = tls_server::config();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 4096).unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let accepting = Worker::spawn("accept", move |_| accept(&listener, &config)).unwrap();
    for line in std::io::stdin().lock().lines() {
        assert_eq!(line.unwrap(), "connections");
        // The client's warm-up has one.
        println!("{}", ACCEPTED.load(Ordering::SeqCst) - 1);
    }
    // Its threads block in sockets: the process ends with them.
    drop(accepting.token());
    std::process::exit(0);
}

fn accept(listener: &TcpListener, config: &Arc<ServerConfig>) {
    let mut workers = Vec::new();
    for socket in listener.incoming() {
        let connection = ServerConnection::new(Arc::clone(config)).unwrap();
        let stream = BufReader::new(StreamOwned::new(connection, socket.unwrap()));
        ACCEPTED.fetch_add(1, Ordering::SeqCst);
        workers.push(Worker::spawn("serve", move |_| drop(serve(stream))).unwrap());
    }
}

fn serve(mut stream: Stream) -> std::io::Result<()> {
    stream.get_ref().sock.set_nodelay(true)?;
    let mut changed = HashSet::new();
    loop {
        let Some(line) = request(&mut stream)? else {
            return Ok(());
        };
        let name = line.split("name%3D").nth(1).unwrap_or("x");
        let name = name.split(['&', ' ']).next().unwrap_or("x").to_owned();
        let out = stream.get_mut();
        if line.contains("watch=true") {
            write!(
                out,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: \
                 chunked\r\n\r\n"
            )?;
            let again = !changed.insert(name.clone());
            let event = if again {
                "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\
                 \"metadata\":{\"resourceVersion\":\"3\"}}}\n"
                    .to_owned()
            } else {
                format!(
                    "{{\"type\":\"MODIFIED\",\"object\":{}}}\n",
                    secret(&name, 2)
                )
            };
            let end = if again { "" } else { "0\r\n\r\n" };
            write!(out, "{:x}\r\n{event}\r\n{end}", event.len())?;
        } else {
            let body = format!(
                "{{\"kind\":\"SecretList\",\"apiVersion\":\"v1\",\
                 \"metadata\":{{\"resourceVersion\":\"1\"}},\
                 \"items\":[{}]}}",
                secret(&name, 1)
            );
            write!(
                out,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: \
                 {}\r\n\r\n{body}",
                body.len()
            )?;
        }
        out.flush()?;
    }
}

fn request(stream: &mut Stream) -> std::io::Result<Option<String>> {
    let mut first = String::new();
    if stream.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut line = String::new();
    while stream.read_line(&mut line)? > 2 {
        line.clear();
    }
    Ok(Some(first))
}

/// As a real server sends one: managed fields, an annotation, a few values.
fn secret(name: &str, version: usize) -> String {
    let value = "c2VjcmV0LXZhbHVlLW9mLXR3ZW50eS1mb3VyLWJ5dGVz";
    format!(
        "{{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\
         \"namespace\":\"shop\",\
         \"uid\":\"6cd92a2e-6a5f-4a86-8f6a-7b1d4a7e1a11\",\"resourceVersion\":\"{version}\",\
         \"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"labels\":{{\"app\":\"shop\"}},\
         \"managedFields\":[{{\
         \"manager\":\"kubectl\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\
         \"time\":\"2026-01-01T00:00:00Z\",\
         \"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{\"f:data\":{{\".\":{{}},\"f:username\":{{}},\
         \"f:password\":{{}},\
         \"f:host\":{{}}}},\"f:metadata\":{{\"f:labels\":{{\".\":{{}},\"f:app\":{{}}}}}},\
         \"f:type\":{{}}}}}}]}},\
         \"data\":{{\"username\":\"{value}\",\"password\":\"{value}\",\"host\":\"{value}\"}},\
           \"type\":\"Opaque\"}}"
    )
}
