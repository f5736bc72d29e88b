//! A handler that sends every notification into a channel, for programs that receive from one.

use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};

use crate::error::debug_of;
use crate::informer::{Deleted, EventHandler, Notification};
use crate::object::{Object, StoredObject};
use crate::sync::Arc;
use crate::worker::StopToken;

/// Sends every notification into a crossbeam channel.
///
/// While the channel is full, only the handler's own thread waits. Its queue grows up to the bound
/// of every handler's queue. The wait ends when the receiver takes a notification, when the
/// receiver is gone, or when the handler is removed. In the last two cases the notification is
/// dropped. Once the receiver is gone, the handler ends at its next notification.
///
/// The channel closes when the handler ends, so `for notification in &receiver` ends with the
/// informer.
///
/// The handler counts as synced when the initial objects are *in the channel*. With room for 0
/// notifications that means: taken by the receiver.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::informer::{Forward, Notification};
/// use kubecache::object::StoredObject;
/// # use kubecache::testing::objects;
/// use k8s_openapi::api::core::v1::Pod;
/// use std::sync::Arc;
///
/// let (mut handler, notifications) = Forward::<Pod>::bounded(16);
///
/// // An informer does this, on the handler's thread.
/// let object = Arc::new(StoredObject::new(objects::pod("shop", "web-0", "node-1", &[], &[])));
/// Notification::Added { object, is_in_initial_list: true }.deliver(&mut handler);
///
/// match notifications.recv()? {
///     Notification::Added { object, .. } => println!("there is {object:?}"),
///     Notification::Updated { new, .. } => println!("now {new:?}"),
///     Notification::Deleted(gone) => println!("gone: {:?}", gone.last_known),
/// }
/// # }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a handler does nothing before it is added to an informer"]
pub struct Forward<K: Object> {
    sender: Sender<Notification<K>>,
    stop: StopToken,
    receiver_is_gone: bool,
}

impl<K: Object> Forward<K> {
    /// Makes a handler and the receiver of its notifications. The channel has room for
    /// `notifications_max`.
    ///
    /// Keep the room small. The handler's queue coalesces its notifications and shows its lag; the
    /// channel does neither.
    pub fn bounded(notifications_max: usize) -> (Self, Receiver<Notification<K>>) {
        let (sender, receiver) = bounded(notifications_max);
        (Self::from(sender), receiver)
    }

    /// Makes a handler and the receiver of its notifications. The channel has room for all of them.
    ///
    /// If the receiver is too slow, memory grows without bound, because the handler's queue never
    /// fills.
    pub fn unbounded() -> (Self, Receiver<Notification<K>>) {
        let (sender, receiver) = unbounded();
        (Self::from(sender), receiver)
    }

    fn send(&mut self, notification: Notification<K>) {
        select! {
            send(self.sender, notification) -> sent => self.receiver_is_gone = sent.is_err(),
            recv(self.stop.channel()) -> _ => {}
        }
    }
}

impl<K: Object> From<Sender<Notification<K>>> for Forward<K> {
    fn from(sender: Sender<Notification<K>>) -> Self {
        Self {
            sender,
            stop: StopToken::never(),
            receiver_is_gone: false,
        }
    }
}

impl<K: Object> EventHandler<K> for Forward<K> {
    fn on_start(&mut self, stop: &StopToken) {
        self.stop = stop.clone();
    }

    fn on_add(&mut self, object: &Arc<StoredObject<K>>, is_in_initial_list: bool) {
        self.send(Notification::Added {
            object: Arc::clone(object),
            is_in_initial_list,
        });
    }

    fn on_update(&mut self, old: &Arc<StoredObject<K>>, new: &Arc<StoredObject<K>>) {
        self.send(Notification::Updated {
            old: Arc::clone(old),
            new: Arc::clone(new),
        });
    }

    fn on_delete(&mut self, deleted: Deleted<K>) {
        self.send(Notification::Deleted(deleted));
    }

    fn is_finished(&self) -> bool {
        self.receiver_is_gone
    }
}

debug_of!([K: Object] Forward<K>, |it|
    queued: it.sender.len(), receiver_is_gone: it.receiver_is_gone, ..);
