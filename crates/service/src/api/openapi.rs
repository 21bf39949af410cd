//! The OpenAPI document, generated from the code that answers. `docs/openapi.json` is a copy of it; a test checks that
//! it is current.

use super::{maps, routes};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Longrun",
        description = "The API of the service that prevents and mends fragmentation. The service listens on a Unix socket. \
             Root and the members of the configured group may use the whole API.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        routes::status,
        routes::volumes,
        routes::volume,
        routes::load,
        routes::analyze,
        maps::levels,
        maps::cells,
        maps::extents,
        maps::owner,
        maps::file,
        routes::events,
        routes::history,
        routes::report,
        routes::reload,
        routes::prometheus,
        routes::openapi,
    )
)]
struct Api;

/// The document as JSON.
#[must_use]
pub fn document() -> String {
    // Strings and numbers can always be written as JSON.
    Api::openapi().to_pretty_json().unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn the_committed_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let made = super::document();
        assert!(made.contains("/v1/volumes/{id}/analyze"), "{made}");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(path, &made).unwrap();
        }
        let committed = fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == made,
            "docs/openapi.json is out of date: run UPDATE=1 cargo test -p longrun-service document"
        );
    }
}
