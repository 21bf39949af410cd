//! Passes requests on to the socket of the service, or of a fleet's console, as its peer.
//!
//! Owns which parts of a request and of its answer are passed, and the limits on both.

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, Request, Response, StatusCode};
use longrun_api::model::Problem;
use longrun_api::{ExchangeError, ROLE_HEADER, exchange};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The longest time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// At most so many requests are under way at a time: the service and the fleet's console give each user 16 connections.
const AT_A_TIME: usize = 12;

/// The answer to a browser.
pub type Answer = Response<Full<Bytes>>;

/// Whoever answers, as users know it.
#[derive(Debug)]
pub struct Answerer {
    /// What it is called.
    name: &'static str,
    /// How it is started.
    start: &'static str,
    /// The longest body of a request that it takes, in bytes.
    largest: usize,
    /// The longest answer, in bytes.
    largest_answer: usize,
}

/// The service.
pub const SERVICE: Answerer =
    Answerer { name: "the service", start: "systemctl start longrun", largest: 64 << 10, largest_answer: 16 << 20 };
/// The console of a fleet, which takes documents of 64 KiB, and tells up to 16 KiB of each of thousands of hosts.
pub const FLEET: Answerer = Answerer {
    name: "the fleet's console",
    start: "systemctl start longrun-fleet-console",
    largest: 256 << 10,
    largest_answer: 128 << 20,
};

/// The way to a socket.
#[derive(Debug)]
pub struct Daemon {
    answerer: Answerer,
    socket: PathBuf,
    read_only: bool,
    room: Semaphore,
}

impl Daemon {
    /// To `answerer` at `socket`; `read_only` passes on nothing that changes something, and gives up the permission for it.
    #[must_use]
    pub fn new(answerer: Answerer, socket: PathBuf, read_only: bool) -> Self {
        Self { answerer, socket, read_only, room: Semaphore::new(AT_A_TIME) }
    }

    /// Whether there is a socket: it may be that nobody answers at it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.socket.exists()
    }

    /// The answer to `request`, or what is wrong.
    pub async fn pass(&self, request: Request<Incoming>) -> Answer {
        let reads = request.method() == Method::GET;
        if !reads && !matches!(*request.method(), Method::POST | Method::PUT | Method::DELETE) {
            return problem(StatusCode::METHOD_NOT_ALLOWED, "this method is not passed on", "use GET or POST");
        }
        if self.read_only && !reads {
            return problem(StatusCode::FORBIDDEN, "permission denied", "longrun-web was started with --read-only");
        }
        match timeout(PATIENCE, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                let error = format!("{} has not answered in {} s", self.answerer.name, PATIENCE.as_secs());
                problem(StatusCode::GATEWAY_TIMEOUT, &error, "try again later")
            }
        }
    }

    async fn exchange(&self, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        let Ok(body) = Limited::new(body, self.answerer.largest).collect().await else {
            let error = format!("the body is incomplete, or longer than {} bytes", self.answerer.largest);
            return problem(StatusCode::PAYLOAD_TOO_LARGE, &error, "send less");
        };
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut passed = Request::builder().method(parts.method).uri(target).header(HOST, "longrun");
        for name in [ACCEPT, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH] {
            if let Some(value) = parts.headers.get(&name) {
                passed = passed.header(name, value);
            }
        }
        if self.read_only {
            passed = passed.header(ROLE_HEADER, HeaderValue::from_static("viewer"));
        }
        let _place = self.room.acquire().await;
        let answer = match passed.body(Full::new(body.to_bytes())) {
            Ok(passed) => self.ask(passed).await,
            Err(error) => Err(ExchangeError::Garbled(error.to_string())),
        };
        answer.unwrap_or_else(|error| self.no_answer(&error))
    }

    fn no_answer(&self, error: &ExchangeError) -> Answer {
        let Answerer { name, start, .. } = self.answerer;
        let (what, hint) = match error {
            ExchangeError::NotRunning(source) if source.kind() == std::io::ErrorKind::PermissionDenied => {
                ("cannot be reached", "check the permissions of the directory of the socket".to_owned())
            }
            ExchangeError::NotRunning(_) => ("cannot be reached", format!("start it with `{start}`")),
            ExchangeError::Garbled(_) => ("gave no valid answer", "restart it".to_owned()),
        };
        problem(StatusCode::BAD_GATEWAY, &format!("{name} {what}: {error}"), &hint)
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Answer, ExchangeError> {
        let (parts, body) = exchange(&self.socket, request, self.answerer.largest_answer).await?.into_parts();
        let mut answer = Response::new(Full::new(body));
        *answer.status_mut() = parts.status;
        for name in [CONTENT_TYPE, CONTENT_ENCODING, ETAG] {
            if let Some(value) = parts.headers.get(&name) {
                answer.headers_mut().insert(name, value.clone());
            }
        }
        Ok(answer)
    }
}

/// An error in the form of the API.
pub fn problem(status: StatusCode, error: &str, hint: &str) -> Answer {
    let problem = Problem { error: error.to_owned(), hint: hint.to_owned() };
    let mut answer = Response::new(Full::new(serde_json::to_vec(&problem).unwrap_or_default().into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
