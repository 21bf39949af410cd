//! The OpenAPI document, generated from the code that answers. `docs/openapi.json` is a copy of it; a test checks that
//! it is current.

use super::{config, fleet, heat, jobs, maps, routes, traces};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Longrun",
        description = "The API of the service that prevents and mends fragmentation. The service listens on a Unix socket. \
             Root and the members of the group `group` (operators) may use the whole API. The members of the group `viewers` may read \
             everything, and are refused with 403 what changes something; so may the members of the group `longrun-fleet`, which may also permit work on shared \
             storage and set the policy. A sender who passes on the requests of others may give up \
             permissions by the header `longrun-role: viewer`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        routes::session,
        routes::status,
        routes::volumes,
        routes::volume,
        routes::load,
        routes::analyze,
        maps::levels,
        maps::cells,
        maps::heat,
        maps::extents,
        maps::owner,
        maps::file,
        heat::heat,
        heat::table,
        traces::read,
        traces::begin,
        traces::end,
        fleet::read,
        fleet::permit,
        fleet::set_policy,
        fleet::drop_policy,
        jobs::list,
        jobs::start,
        jobs::one,
        jobs::report,
        jobs::cancel,
        routes::events,
        routes::history,
        routes::report,
        routes::pause,
        routes::resume,
        routes::reload,
        config::read,
        config::change,
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
