//! Answers connections within limits that no client can exceed.
//!
//! Owns the headers that bind a browser: what pages may load, who may show them in a frame, what is kept.

use crate::door::Door;
use crate::files::{self, Page};
use crate::listen::Listeners;
use crate::pass::{Answer, Daemon, problem};
use crate::room::{HasSession, Room};
use crate::trust;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
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
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// So long may the head of a request take to arrive.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// So long may a connection stay; then it ends after the request that is under way.
const STAY: Duration = Duration::from_secs(300);
/// So long may that request take.
const LAST_REQUEST: Duration = Duration::from_secs(40);

/// The header with the secret of the session. No cookie: a browser sends cookies to all ports of a host, and another user of this machine may
/// listen on one.
const SESSION: &str = "longrun-session";
/// A token is shorter.
const LONGEST_TOKEN: usize = 256;

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
            serve(console, move |request, has_session| console_answer(Arc::clone(&site), request, has_session))
        };
        let figures = async {
            match metrics {
                Some(listener) => serve(listener, move |request, _| metrics_answer(Arc::clone(&site), request)).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(pages, figures);
        Ok(())
    })
}

async fn serve<F>(
    listener: TcpListener,
    answer: impl Fn(Request<Incoming>, HasSession) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Answer> + Send + 'static,
{
    let mut room = Room::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (answer, has_session) = (answer.clone(), HasSession::default());
                let of_connection = Arc::clone(&has_session);
                let task = tokio::spawn(async move {
                    connection(stream, |request| answer(request, Arc::clone(&of_connection))).await;
                });
                room.admit(task.abort_handle(), has_session);
                // Its request is usually there: it is read before further connections can close this one.
                tokio::task::yield_now().await;
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

async fn console_answer(site: Arc<Site>, request: Request<Incoming>, has_session: HasSession) -> Answer {
    let path = request.uri().path();
    if let Err(distrust) = trust::check(request.method(), path, request.headers(), &site.names) {
        return problem(StatusCode::FORBIDDEN, &distrust.to_string(), "open the link that longrun-web prints");
    }
    // The pages are the same everywhere: what they show needs a session.
    match (files::find(path), request.method()) {
        (Some(page), &Method::GET) => return show(page),
        (Some(_), _) => return problem(StatusCode::METHOD_NOT_ALLOWED, "a page can only be read", "use GET"),
        _ => {}
    }
    if path == "/session" {
        return site.enter(request).await;
    }
    let is_fleet = path.starts_with("/fleet/");
    if !is_fleet && !path.starts_with("/v1/") {
        return problem(StatusCode::NOT_FOUND, "no such page", "begin at /");
    }
    let secret = request.headers().get(SESSION).and_then(|secret| secret.to_str().ok());
    if !secret.is_some_and(|secret| site.door.knows(secret, Instant::now())) {
        return site.turn_away();
    }
    has_session.store(true, Ordering::Relaxed);
    if !is_fleet {
        return site.daemon.pass(request).await;
    }
    if site.fleet.is_there() {
        return site.fleet.pass(request).await;
    }
    // Every page asks for it, whether there is a fleet or not: that there is none is no error.
    if path == "/fleet/v1/session" {
        let mut none = Response::new(Full::new(Bytes::new()));
        *none.status_mut() = StatusCode::NO_CONTENT;
        return none;
    }
    problem(StatusCode::NOT_FOUND, "no fleet is shown here", "see `longrun fleet console --help`")
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

    /// Answers a token with the secret of a new session.
    async fn enter(&self, request: Request<Incoming>) -> Answer {
        if request.method() != Method::POST {
            return problem(StatusCode::METHOD_NOT_ALLOWED, "a session begins with a token", "use POST");
        }
        let body = Limited::new(request.into_body(), LONGEST_TOKEN).collect().await;
        let token = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
        match self.door.enter(&token, Instant::now()) {
            Ok(Some(secret)) => {
                let answer = serde_json::json!({ "session": secret }).to_string();
                answer_of("application/json", answer.into())
            }
            Ok(None) => self.turn_away(),
            Err(error) => {
                problem(StatusCode::INTERNAL_SERVER_ERROR, &format!("making a session failed: {error}"), "try again")
            }
        }
    }

    /// Who has no session is told where the link is; a new one is printed if the last one has been used.
    fn turn_away(&self) -> Answer {
        if let Err(error) = self.announce() {
            tracing::error!("printing a link failed: {error}");
        }
        problem(StatusCode::UNAUTHORIZED, "no session", "open the link that longrun-web prints")
    }
}

fn show(page: &'static Page) -> Answer {
    answer_of(page.kind, Bytes::from_static(page.bytes))
}

fn answer_of(kind: &'static str, content: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(content));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
