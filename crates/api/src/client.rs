//! The client of a running service, for the commands that ask it.

use crate::model::Problem;
use crate::{ExchangeError, exchange};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The largest answer that is accepted, in bytes.
const LARGEST: usize = 32 << 20;
/// The longest time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No service listens on the socket.
    #[error("no service is running ({path}: {source}); start it with `systemctl start longrun`, or with `sudo longrun daemon`", path = path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The service refused the request.
    #[error("{error}; {hint}")]
    Refused {
        /// The reason.
        error: String,
        /// The advice of the service.
        hint: String,
    },
    /// The answer is invalid or too late.
    #[error("the service at {path} gave no valid answer: {detail}; restart it", path = path.display())]
    Garbled {
        /// The socket.
        path: PathBuf,
        /// What is wrong with the answer.
        detail: String,
    },
}

/// A client of a running service.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the service that listens on `socket`.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// GET `path`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body = self.get_bytes(path)?;
        serde_json::from_slice(&body).map_err(|error| self.garbled(error.to_string()))
    }

    /// GET `path`, whose answer is no JSON.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get_bytes(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        self.send(&Method::GET, path, Bytes::new())
    }

    /// POST `body` to `path`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.garbled(error.to_string()))?;
        let answer = self.send(&Method::POST, path, body.into())?;
        serde_json::from_slice(&answer).map_err(|error| self.garbled(error.to_string()))
    }

    /// DELETE `path`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(&Method::DELETE, path, Bytes::new()).map(|_| ())
    }

    fn send(&self, method: &Method, path: &str, body: Bytes) -> Result<Vec<u8>, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.garbled(error.to_string()))?;
        let answer =
            runtime.block_on(async { tokio::time::timeout(PATIENCE, self.exchange(method, path, body)).await });
        let answer = answer.map_err(|_| self.garbled("it took too long".to_owned()))??;
        if answer.status().is_success() {
            return Ok(answer.into_body().to_vec());
        }
        match serde_json::from_slice::<Problem>(answer.body()) {
            Ok(Problem { error, hint }) => Err(ClientError::Refused { error, hint }),
            Err(_) => Err(self.garbled(format!("status {}", answer.status()))),
        }
    }

    async fn exchange(&self, method: &Method, path: &str, body: Bytes) -> Result<Response<Bytes>, ClientError> {
        let request = Request::builder().method(method).uri(path).header("host", "longrun");
        let request = request.body(Full::new(body)).map_err(|error| self.garbled(error.to_string()))?;
        exchange(&self.socket, request, LARGEST).await.map_err(|error| match error {
            ExchangeError::NotRunning(source) => ClientError::NotRunning { path: self.socket.clone(), source },
            ExchangeError::Garbled(detail) => self.garbled(detail),
        })
    }

    fn garbled(&self, detail: String) -> ClientError {
        ClientError::Garbled { path: self.socket.clone(), detail }
    }
}
