//! Which requests come from our own pages: `Host`, `Origin`, `Sec-Fetch-Site`. Pure.
//!
//! Without the first check a foreign site whose name resolves to 127.0.0.1 could read the console (DNS rebinding); without
//! the others its pages could send requests in the name of the user.

use hyper::Method;
use hyper::header::{HOST, HeaderMap, HeaderName, ORIGIN};

/// Names of this machine for itself. The port is not looked at: that of an SSH tunnel differs.
const LOCAL: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// What is below these is for our own pages only.
const API: [&str; 3] = ["/v1/", "/fleet/", "/session"];

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// the request was sent to a foreign host name
    #[error("the host name is not that of this machine: use http://localhost or http://127.0.0.1, or --host NAME")]
    Host,
    /// the request comes from a page of another origin
    #[error("the request comes from another site")]
    Origin,
}

/// Whether a request with these headers comes from a page that we served, or from the user who typed the address.
///
/// # Errors
/// [`Distrust`].
pub fn check(method: &Method, path: &str, headers: &HeaderMap, names: &[String]) -> Result<(), Distrust> {
    let host = only(headers, &HOST)?.ok_or(Distrust::Host)?;
    let bare = without_port(host);
    let named = names.iter().any(|name| bare.eq_ignore_ascii_case(name));
    if !named && !LOCAL.iter().any(|local| bare.eq_ignore_ascii_case(local)) {
        return Err(Distrust::Host);
    }
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match only(headers, &ORIGIN)? {
        None if reads => {}
        None => return Err(Distrust::Origin),
        Some(origin) => {
            let same = |scheme: &str| origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host));
            // A proxy with a name of its own speaks TLS.
            if !(same("http://") || named && same("https://")) {
                return Err(Distrust::Origin);
            }
        }
    }
    let site = only(headers, &FETCH_SITE)?;
    if API.iter().any(|api| path.starts_with(api)) && site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(Distrust::Origin);
    }
    Ok(())
}

/// The value of a header that must not be there twice.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Distrust> {
    let wrong = if *name == HOST { Distrust::Host } else { Distrust::Origin };
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str().map_err(|_| wrong)).transpose()?;
    if values.next().is_some() { Err(wrong) } else { Ok(value) }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn asked(method: Method, path: &str, headers: &[(&str, &str)]) -> Result<(), Distrust> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        check(&method, path, &map, &["console.example".to_owned()])
    }

    #[test]
    fn only_names_of_this_machine_and_configured_ones_are_hosts() {
        for host in ["localhost", "localhost:9818", "127.0.0.1:1", "[::1]:9818", "LOCALHOST:80", "console.example:443"]
        {
            assert_eq!(asked(Method::GET, "/", &[("host", host)]), Ok(()), "{host}");
        }
        let foreign = [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9818",
            "127.0.0.1@evil.example",
            "::1",
            "0.0.0.0:9818",
            "console.example.evil.example",
            "localhost:evil",
        ];
        for host in foreign {
            assert_eq!(asked(Method::GET, "/", &[("host", host)]), Err(Distrust::Host), "{host}");
        }
        assert_eq!(asked(Method::GET, "/", &[]), Err(Distrust::Host));
        assert_eq!(asked(Method::GET, "/", &[("host", "localhost"), ("host", "evil.example")]), Err(Distrust::Host));
    }

    #[test]
    fn changes_come_from_our_own_pages_only() {
        let post = |headers: &[(&str, &str)]| asked(Method::POST, "/v1/pause", headers);
        let host = ("host", "localhost:9818");
        assert_eq!(post(&[host, ("origin", "http://localhost:9818")]), Ok(()));
        assert_eq!(post(&[host, ("origin", "http://localhost:9818"), ("sec-fetch-site", "same-origin")]), Ok(()));
        assert_eq!(post(&[("host", "console.example"), ("origin", "https://console.example")]), Ok(()));
        let foreign = [
            "http://evil.example",
            "null",
            "",
            "http://localhost:9819",
            "https://localhost:9818",
            "http://127.0.0.1:9818",
            "http://localhost:9818.evil.example",
        ];
        for origin in foreign {
            assert_eq!(post(&[host, ("origin", origin)]), Err(Distrust::Origin), "{origin}");
            assert_eq!(
                asked(Method::GET, "/v1/status", &[host, ("origin", origin)]),
                Err(Distrust::Origin),
                "{origin}"
            );
        }
        assert_eq!(post(&[host]), Err(Distrust::Origin));
        for site in ["cross-site", "same-site"] {
            let headers = [host, ("sec-fetch-site", site)];
            for path in ["/v1/status", "/fleet/v1/hosts"] {
                assert_eq!(asked(Method::GET, path, &headers), Err(Distrust::Origin), "{path}");
            }
            assert_eq!(asked(Method::GET, "/", &headers), Ok(()), "a link from elsewhere opens the page");
        }
    }
}
