//! The files of the console, within this program.

/// A file that is served.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Its path, as in the address.
    pub path: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! pages {
    ($($kind:ident $name:literal,)+) => {
        &[$(Page { path: concat!("/", $name), kind: $kind, bytes: include_bytes!(concat!("../../../web/", $name)) },)+]
    };
}

static PAGES: &[Page] = pages![
    HTML "index.html",
    HTML "locked.html",
    STYLE "style.css",
    IMAGE "icon.svg",
    SCRIPT "app.js",
    SCRIPT "transport.js",
    SCRIPT "dom.js",
    SCRIPT "units.js",
    SCRIPT "charts.js",
    SCRIPT "overview.js",
    SCRIPT "map.js",
    SCRIPT "map_model.js",
    SCRIPT "activity.js",
    SCRIPT "trace.js",
    SCRIPT "trace_model.js",
    SCRIPT "history.js",
    SCRIPT "control.js",
    SCRIPT "jobs.js",
    SCRIPT "schedule.js",
    SCRIPT "settings.js",
    SCRIPT "config.js",
    SCRIPT "windows.js",
    SCRIPT "fleet.js",
    SCRIPT "fleet_policy.js",
];

/// The file at `path`.
#[must_use]
pub fn find(path: &str) -> Option<&'static Page> {
    let path = if path == "/" { "/index.html" } else { path };
    PAGES.iter().find(|page| page.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_file_of_the_console_is_served_and_nothing_else() {
        let web = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web"));
        let shipped = |kind: Option<&str>| matches!(kind, Some("js" | "css" | "html" | "svg"));
        let mut there = BTreeSet::new();
        for entry in fs::read_dir(web).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if shipped(Path::new(&name).extension().and_then(|e| e.to_str())) {
                there.insert(format!("/{name}"));
            }
        }
        let served: BTreeSet<String> = PAGES.iter().map(|page| page.path.to_owned()).collect();
        assert_eq!(served, there);
    }

    #[test]
    fn no_other_path_is_a_file() {
        assert_eq!(find("/").map(|page| page.path), Some("/index.html"));
        for path in [
            "",
            "/../Cargo.toml",
            "/tests/../index.html",
            "/tests",
            "//index.html",
            "/index.html/",
            "/%2e%2e/etc/passwd",
        ] {
            assert!(find(path).is_none(), "{path}");
        }
    }
}
