//! A run: the informer and its two handlers, from the first list to the end.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use k8s_openapi::api::core::v1::Pod;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::Client;
use kubecache::informer::{
    FilteringHandler, Forward, HandlerOptions, Handlers, InformerOptions, Notification,
    SharedInformer,
};
use kubecache::object::{LabelMatcher, LabelSelector, Scope, StoredObject};
use kubecache::worker::Worker;
use kubecache::{Error, ErrorKind};

use crate::args::Options;
use crate::ending::{Cause, Ending};
use crate::pods::{self, LABEL_INDEX, NODE_INDEX, is_running};
use crate::print::{self, Printer};
use crate::table::NONE;
use crate::tell::tell;

/// How long the handlers may take for the call they are in when the informer stops.
const GRACE: Duration = Duration::from_secs(5);

/// What may wait in the channel; what is more waits in the handler's queue, where it can be
/// counted.
const CHANNEL_MAX: usize = 16;

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With all that was asked for.
    Complete,
    /// A signal came before the pods were known.
    Interrupted,
    /// Nobody reads what is printed any more.
    OutputClosed(std::io::Error),
}

/// Follows the pods until a signal comes; with `--once`, until the first list is printed.
pub(crate) fn play(
    options: &Options,
    client: &Client,
    namespace: &str,
    signals: &Receiver<()>,
) -> Result<Ended, Error> {
    let (printer, failure) = Printer::new(options);
    let printer = Arc::new(printer);
    let (handler, running) = Forward::bounded(CHANNEL_MAX);
    // Before the informer: it ends with the channel, and that with the informer's handler.
    let puller = pull(&printer, running)?;
    let informer = Arc::new(informer(options, client, namespace));
    let clock = Clock::system();

    let every = HandlerOptions::default().name("pods");
    let every = informer.add_handler_with(printing(&printer), every)?;
    let handler = FilteringHandler::new(is_running, handler);
    let second = HandlerOptions::default()
        .name("running")
        .resync_period(Duration::ZERO);
    let second = informer.add_handler_with(handler, second)?;
    // A stopped informer has no handlers any more; what was counted of them can still be read here.
    let handlers = [every, second];

    informer.start()?;
    let ending = Ending::watch(&informer, signals, failure).map_err(|error| {
        Error::new(ErrorKind::Resources, "a thread that waits for signals").with_source(error)
    })?;
    let deadline = options
        .timeout
        .map_or(Deadline::NEVER, |limit| clock.after(limit));
    // The server's refusal, or why it has not answered in time, comes out of this.
    let synced = informer.wait_until_synced(deadline);
    let mut waits = handlers.iter();
    let synced = synced.and_then(|()| waits.try_for_each(|it| it.wait_until_synced(deadline)));
    let known = match (synced, ending.cause()) {
        (Ok(()), None) => true,
        (_, Some(Cause::OutputClosed(error))) => return Ok(Ended::OutputClosed(error)),
        (_, Some(Cause::Signal)) => false,
        (Err(error), None) => return Err(error),
    };
    if known {
        printer.initial_list();
        show(&informer, options, &printer)?;
        print::handlers(&printer, &handlers);
        if !options.once {
            drop(puller);
        }
    }
    informer.shutdown(clock.after(GRACE))?;
    if known && !options.once {
        show(&informer, options, &printer)?;
        print::handlers(&printer, &handlers);
    }
    Ok(match ending.cause() {
        Some(Cause::OutputClosed(error)) => Ended::OutputClosed(error),
        Some(Cause::Signal) | None if known || !options.once => Ended::Complete,
        Some(Cause::Signal) | None => Ended::Interrupted,
    })
}

fn informer(options: &Options, client: &Client, namespace: &str) -> SharedInformer<Pod> {
    let scope = if options.all_namespaces {
        Scope::all()
    } else {
        Scope::namespace(options.namespace.as_deref().unwrap_or(namespace))
    };
    let scope = scope.labels(LabelSelector::new(&*options.selector));
    let settings = InformerOptions::default()
        .indexers(pods::indexers(&options.index_label))
        .resync_period(options.resync);
    SharedInformer::new(client.lister_watcher(scope), settings)
}

/// A handler of closures, which the informer calls on the handler's own thread.
fn printing(printer: &Arc<Printer>) -> Handlers<Pod> {
    let [added, updated, deleted] = [(); 3].map(|()| Arc::clone(printer));
    Handlers::new()
        .on_add(move |pod, is_in_initial_list| {
            let object = Arc::clone(pod);
            let told = Notification::Added {
                object,
                is_in_initial_list,
            };
            added.told("pods", &told);
        })
        .on_update(move |old, new| {
            let (old, new) = (Arc::clone(old), Arc::clone(new));
            updated.told("pods", &Notification::Updated { old, new });
        })
        .on_delete(move |pod| deleted.told("pods", &Notification::Deleted(pod)))
}

/// A thread that tells of what comes through the channel; dropping it waits until the channel
/// closes.
fn pull(printer: &Arc<Printer>, running: Receiver<Notification<Pod>>) -> Result<Worker, Error> {
    let printer = Arc::clone(printer);
    let puller = Worker::spawn("running", move |_| {
        running.iter().for_each(|told| tell_of(&printer, &told));
    });
    puller.map_err(|error| {
        Error::new(ErrorKind::Resources, "a thread that reads the channel").with_source(error)
    })
}

/// What came through the channel. Which pods ran at the start is in the first table already.
fn tell_of(printer: &Printer, told: &Notification<Pod>) {
    let is_initial = matches!(
        told,
        Notification::Added {
            is_in_initial_list: true,
            ..
        }
    );
    if !is_initial {
        printer.told("running", told);
    }
}

/// What stands in the indices, and how far the handlers are.
fn show(informer: &SharedInformer<Pod>, options: &Options, printer: &Printer) -> Result<(), Error> {
    let store = informer.store();
    let mut lines = Vec::new();
    for (index, name) in [(NODE_INDEX, "node"), (LABEL_INDEX, &*options.index_label)] {
        let mut values = store.index_values(index);
        values.sort();
        for value in values {
            let pods = store.by_index(index, &value)?;
            lines.push(counted(name, &value, &pods));
        }
    }
    // A lister chooses by labels; pods without the label stand under no value of the index.
    let without = LabelSelector::new(format!("!{}", options.index_label));
    let without = store.lister().list(&LabelMatcher::parse(&without)?);
    if !without.is_empty() {
        lines.push(counted(&options.index_label, NONE, &without));
    }
    if store.is_empty() {
        tell("No pods found.");
    }
    printer.table(["INDEX", "VALUE", "PODS", "RUNNING"], &lines);
    log::info!(
        "informer {} is at version {}",
        informer.name(),
        informer.status().resource_version,
    );
    Ok(())
}

fn counted(index: &str, value: &str, pods: &[Arc<StoredObject<Pod>>]) -> [String; 4] {
    let running = pods.iter().filter(|pod| is_running(pod)).count();
    [
        index.to_owned(),
        value.to_owned(),
        pods.len().to_string(),
        running.to_string(),
    ]
}
