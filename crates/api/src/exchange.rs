//! One request to a Unix socket, and its answer: what the clients of the service, and those who pass on requests to it, share.
//!
//! Owns the connection, and the limit on the answer. Waits without end: the time limit is the caller's.

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::fmt::Display;
use std::io;
use std::path::Path;
use tokio::net::UnixStream;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Connecting failed.
    #[error("{0}")]
    NotRunning(io::Error),
    /// The connection or the answer is not valid: the request may have been carried out.
    #[error("{0}")]
    Garbled(String),
}

/// Sends `request` to the socket, and returns the answer with its body, which may have at most `largest` bytes.
///
/// # Errors
/// [`ExchangeError`].
pub async fn exchange(
    socket: &Path,
    request: Request<Full<Bytes>>,
    largest: usize,
) -> Result<Response<Bytes>, ExchangeError> {
    let garbled = |error: &dyn Display| ExchangeError::Garbled(error.to_string());
    let stream = UnixStream::connect(socket).await.map_err(ExchangeError::NotRunning)?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|e| garbled(&e))?;
    // It ends with `sender`.
    tokio::spawn(connection);
    let (parts, body) = sender.send_request(request).await.map_err(|e| garbled(&e))?.into_parts();
    let body = Limited::new(body, largest).collect().await.map_err(|e| garbled(&e))?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}
