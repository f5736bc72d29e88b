//! The kubeconfig of an API server, for clients that read one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The text of a kubeconfig.
pub(super) fn text(url: &str, certificates: Option<&[u8]>, token: Option<&str>) -> String {
    let authority = certificates.map(|certificates| {
        format!(
            "    certificate-authority-data: {}\n",
            STANDARD.encode(certificates)
        )
    });
    let user = token.map_or_else(
        || " {}".to_owned(),
        |token| format!("\n    token: {token:?}"),
    );
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: test\n\
         clusters:\n\
         - name: test\n\
        \x20 cluster:\n\
        \x20   server: {url}\n\
         {}\
         contexts:\n\
         - name: test\n\
        \x20 context:\n\
        \x20   cluster: test\n\
        \x20   user: test\n\
         users:\n\
         - name: test\n\
        \x20 user:{user}\n",
        authority.unwrap_or_default()
    )
}
