//! A client takes its threads along: alone in its process, so that the count is of this test's
//! threads only.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Deadline;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::{ListRequest, ListerWatcher, Next, WatchRequest};
use kubecache::object::{ResourceVersion, Scope};
use kubecache::worker::{StopSource, live_workers};

use crate::support::alone;

fn answer(stream: &mut BufReader<TcpStream>, answer: &str) {
    let mut line = String::new();
    while stream.read_line(&mut line).unwrap() > 2 {
        line.clear();
    }
    stream.get_mut().write_all(answer.as_bytes()).unwrap();
}

#[test]
fn after_a_list_a_watch_and_a_stop_no_thread_is_left() {
    alone(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config =
            Config::for_server(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let client = Client::new(&config, ClientOptions::default()).unwrap();
        let source: Arc<dyn ListerWatcher<Secret>> =
            client.lister_watcher(Scope::namespace("shop"));
        let stop = StopSource::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                let list = "{\"kind\":\"SecretList\",\"metadata\":{\"resourceVersion\":\"1\"},\
                        \"items\":[]}";
                let length = list.len();
                answer(
                    &mut stream,
                    &format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: \
                {length}\r\n\r\n{list}"
                    ),
                );
                let event = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Secret\",\
                         \"apiVersion\":\"v1\",\
                         \"metadata\":{\"resourceVersion\":\"2\"}}}\n";
                let length = event.len();
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                answer(&mut stream, &format!("{head}{length:x}\r\n{event}\r\n"));
                // The client's end of the connection goes with its owner.
                assert_eq!(stream.read_line(&mut String::new()).unwrap_or_default(), 0);
            });
            source
                .list(&ListRequest::default(), &stop.token(), &mut drop)
                .unwrap();
            let request = WatchRequest {
                resource_version: ResourceVersion::from("1"),
                timeout: std::time::Duration::from_secs(5 * 60),
                head_timeout: std::time::Duration::from_secs(5 * 60),
                bookmarks: true,
                send_initial_events: false,
                urgent: true,
            };
            let mut watch = source.watch(&request, &stop.token()).unwrap();
            assert!(matches!(
                watch.next(Deadline::NEVER).unwrap(),
                Next::Event(_)
            ));
            stop.stop();
            assert!(watch.next(Deadline::NEVER).unwrap_err().is_stopped());
            assert!(live_workers() > 0, "the reader waits for more");
            drop(watch);
            drop(source);
            drop(client);
            assert_eq!(live_workers(), 0);
        });
    });
}
