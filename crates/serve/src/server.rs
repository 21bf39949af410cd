//! Accepts connections, within limits that no client can exceed.

use crate::peer::Peer;
use crate::room::{Guest, Place, Room};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// So long may a request take to arrive.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// So long may a connection stay, whatever it does.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(60);
/// The same for who may ask for nothing: long enough to be told so.
const STRANGER_PATIENCE: Duration = Duration::from_secs(1);

/// Serves without end; `guest` says for whom a connection is.
pub async fn serve(listener: &UnixListener, router: &Router, guest: impl Fn(&Peer) -> Guest) {
    let room = Arc::new(Room::default());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let peer = Peer::of(&stream);
                let guest = guest(&peer);
                // Who gets no place is sent away: no other process waits because of them.
                if let Some(place) = room.place(guest) {
                    let patience = if guest == Guest::Stranger { STRANGER_PATIENCE } else { CONNECTION_PATIENCE };
                    tokio::spawn(answer(TokioIo::new(stream), router.clone(), peer, place, patience));
                }
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn answer(stream: TokioIo<UnixStream>, router: Router, peer: Peer, place: Place, patience: Duration) {
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE).max_buf_size(64 << 10);
    let served = tokio::time::timeout(patience, builder.serve_connection(stream, service)).await;
    if let Ok(Err(error)) = served {
        tracing::debug!("a connection failed: {error}");
    }
    drop(place);
}

/// Accepting fails when files run out: trying again at once would only burn time.
async fn pause(error: &io::Error) {
    tracing::warn!("accepting a connection failed: {error}");
    tokio::time::sleep(Duration::from_millis(200)).await;
}
