//! Asking a running service, as `status` and `top` do.

use crate::model::Problem;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// No answer is longer.
const LARGEST: usize = 32 << 20;
/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no service is running ({path}: {source}); start it with `systemctl start longrun`, or with `sudo longrun daemon`", path = path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The service does not want to.
    #[error("{error}; {hint}")]
    Refused {
        /// What it says.
        error: String,
        /// What it advises.
        hint: String,
    },
    /// What came is no answer.
    #[error("the service at {path} gave no sensible answer: {detail}; restart it", path = path.display())]
    Garbled {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
}

/// A way to a running service.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// To the service that listens at `socket`.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// GET `path`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body = self.ask(&Method::GET, path)?;
        serde_json::from_slice(&body).map_err(|error| self.garbled(error.to_string()))
    }

    /// The bytes of the answer to a request.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask(&self, method: &Method, path: &str) -> Result<Vec<u8>, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.garbled(error.to_string()))?;
        let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, self.exchange(method, path)).await });
        let (status, body) = answer.map_err(|_| self.garbled("it takes too long".to_owned()))??;
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(Problem { error, hint }) => Err(ClientError::Refused { error, hint }),
            Err(_) => Err(self.garbled(format!("status {status}"))),
        }
    }

    async fn exchange(&self, method: &Method, path: &str) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::NotRunning { path: self.socket.clone(), source })?;
        let garbled = |error: &dyn std::fmt::Display| self.garbled(error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| garbled(&e))?;
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "longrun");
        let request = request.body(Empty::<Bytes>::new()).map_err(|e| garbled(&e))?;
        let response = sender.send_request(request).await.map_err(|e| garbled(&e))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await.map_err(|e| garbled(&e))?;
        Ok((status, body.to_bytes().to_vec()))
    }

    fn garbled(&self, detail: String) -> ClientError {
        ClientError::Garbled { path: self.socket.clone(), detail }
    }
}
