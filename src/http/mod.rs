//! The adapter to a real server: the only room that knows ureq and rustls.
//!
//! One part says where the server is and who asks (configuration, kubeconfig, credentials, the limiter); the other
//! one dials, speaks TLS and HTTP, and answers through the port of [`list_watch`](crate::list_watch).
