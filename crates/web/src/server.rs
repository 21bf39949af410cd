//! Answers connections within limits that no client can exceed.
//!
//! Owns the headers that bind a browser: what pages may load, who may show them in a frame, what is kept.

use crate::door::Door;
use crate::files::{self, Page};
use crate::listen::Listeners;
use crate::pass::{Answer, Daemon, problem};
use crate::trust;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue, LOCATION, SET_COOKIE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// So many connections are served at a time by each listener; others wait.
const CONNECTIONS: usize = 64;
/// So long may the head of a request take to arrive.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// So long may a connection stay; then it ends after the request that is under way.
const STAY: Duration = Duration::from_secs(300);
/// So long may that request take.
const LAST_REQUEST: Duration = Duration::from_secs(40);

const COOKIE_NAME: &str = "longrun-session";

const SECURITY: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action \
         'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Everything that is served.
#[derive(Debug)]
pub struct Site {
    /// Tokens and sessions.
    pub door: Door,
    /// The service.
    pub daemon: Daemon,
    /// The console of a fleet.
    pub fleet: Daemon,
    /// Host names beside those of this machine.
    pub names: Vec<String>,
    /// Where the console is.
    pub address: SocketAddr,
}

/// Serves to the end of the process.
///
/// # Errors
/// The system's, before the first connection.
pub fn run(site: Site, listeners: Listeners) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let adopt = |listener: std::net::TcpListener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let console = adopt(listeners.console)?;
        let metrics = listeners.metrics.map(adopt).transpose()?;
        let site = Arc::new(site);
        if let Some(listener) = &metrics {
            writeln!(io::stdout(), "Metrics are served at http://{}/metrics", listener.local_addr()?)?;
        }
        site.announce()?;
        let pages = {
            let site = Arc::clone(&site);
            serve(console, move |request| console_answer(Arc::clone(&site), request))
        };
        let figures = async {
            match metrics {
                Some(listener) => serve(listener, move |request| metrics_answer(Arc::clone(&site), request)).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(pages, figures);
        Ok(())
    })
}

async fn serve<F>(listener: TcpListener, answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static)
where
    F: Future<Output = Answer> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let answer = answer.clone();
                tokio::spawn(async move {
                    connection(stream, answer).await;
                    drop(permit);
                });
            }
            Err(error) => {
                // Files run out: trying again at once would only burn time.
                tracing::warn!("accepting a connection failed: {error}");
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn connection<F>(stream: TcpStream, answer: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = Answer>,
{
    let service = service_fn(|request| {
        let answer = answer(request);
        async { Ok::<_, Infallible>(secured(answer.await)) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE).max_buf_size(64 << 10);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = serving.as_mut() => {}
        () = sleep(STAY) => {
            serving.as_mut().graceful_shutdown();
            _ = timeout(LAST_REQUEST, serving).await;
        }
    }
}

fn secured(mut answer: Answer) -> Answer {
    for (name, value) in SECURITY {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    // Pages change with the program, figures each second.
    answer.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

async fn console_answer(site: Arc<Site>, request: Request<Incoming>) -> Answer {
    let path = request.uri().path();
    if let Err(distrust) = trust::check(request.method(), path, request.headers(), &site.names) {
        return problem(StatusCode::FORBIDDEN, &distrust.to_string(), "open the link that longrun-web prints");
    }
    if path == "/"
        && let Some(token) = request.uri().query().and_then(|query| query.strip_prefix("token="))
    {
        return site.enter(token);
    }
    if !session(request.headers()).any(|secret| site.door.knows(secret, Instant::now())) {
        return site.turn_away(path);
    }
    if path.starts_with("/v1/") {
        return site.daemon.pass(request).await;
    }
    if path.starts_with("/fleet/") {
        if site.fleet.is_there() {
            return site.fleet.pass(request).await;
        }
        // Every page asks for it, whether there is a fleet or not: that there is none is no error.
        if path == "/fleet/v1/session" {
            let mut none = Response::new(Full::new(Bytes::new()));
            *none.status_mut() = StatusCode::NO_CONTENT;
            return none;
        }
        return problem(StatusCode::NOT_FOUND, "no fleet is shown here", "see `longrun fleet console --help`");
    }
    match files::find(path) {
        Some(page) if request.method() == Method::GET => show(StatusCode::OK, page),
        Some(_) => problem(StatusCode::METHOD_NOT_ALLOWED, "a page can only be read", "use GET"),
        None => problem(StatusCode::NOT_FOUND, "no such page", "begin at /"),
    }
}

async fn metrics_answer(site: Arc<Site>, request: Request<Incoming>) -> Answer {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => site.daemon.pass(request).await,
        (_, "/metrics") => problem(StatusCode::METHOD_NOT_ALLOWED, "metrics can only be read", "use GET"),
        _ => problem(StatusCode::NOT_FOUND, "no such page", "use GET /metrics"),
    }
}

impl Site {
    /// Prints a link that opens the console once, unless the last one is still valid.
    fn announce(&self) -> io::Result<()> {
        let Some(token) = self.door.new_token(Instant::now())? else { return Ok(()) };
        let address = self.address;
        writeln!(
            io::stdout(),
            "Open the console (the link works once, within 10 minutes): http://{address}/?token={token}"
        )
    }

    fn enter(&self, token: &str) -> Answer {
        match self.door.enter(token, Instant::now()) {
            Ok(Some(secret)) => {
                let cookie = format!("{COOKIE_NAME}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200");
                let mut answer = Response::new(Full::new(Bytes::new()));
                *answer.status_mut() = StatusCode::SEE_OTHER;
                answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
                if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                    answer.headers_mut().insert(SET_COOKIE, cookie);
                }
                answer
            }
            Ok(None) => self.turn_away("/"),
            Err(error) => {
                problem(StatusCode::INTERNAL_SERVER_ERROR, &format!("making a session failed: {error}"), "try again")
            }
        }
    }

    /// Who has no session is told where the link is; a new one is printed if the last one has been used.
    fn turn_away(&self, path: &str) -> Answer {
        if let Err(error) = self.announce() {
            tracing::error!("printing a link failed: {error}");
        }
        if path == "/" || path == "/index.html" {
            return show(StatusCode::UNAUTHORIZED, &files::LOCKED);
        }
        problem(StatusCode::UNAUTHORIZED, "no session", "open the link that longrun-web prints")
    }
}

fn show(status: StatusCode, page: &'static Page) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(page.bytes)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(page.kind));
    answer
}

/// The values of the session's cookie.
fn session(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookies = texts.flat_map(|text| text.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    cookies.filter(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value)
}
