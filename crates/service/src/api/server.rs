//! Accepts connections, within limits that no client can exceed.

use super::peer::{Groups, Peer};
use super::room::{Guest, Place, Room};
use super::routes;
use crate::hub::Hub;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// So often it says that it is alive.
const BEAT: Duration = Duration::from_secs(30);
/// So long may a request take to arrive.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// So long may a connection stay, whatever it does.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(60);
/// The same for who may ask for nothing: long enough to be told so.
const STRANGER_PATIENCE: Duration = Duration::from_secs(1);

/// The server, ready to run.
pub struct Server {
    runtime: Runtime,
    hub: Arc<Hub>,
    local: tokio::net::UnixListener,
}

impl Server {
    /// Serves the API at `socket`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(hub: Arc<Hub>, socket: &UnixListener) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
        let guard = runtime.enter();
        let local = tokio::net::UnixListener::from_std(socket.try_clone()?)?;
        drop(guard);
        Ok(Self { runtime, hub, local })
    }

    /// Serves to the end of the service.
    pub fn run(self) {
        let Self { runtime, hub, local } = self;
        runtime.block_on(async move {
            let room = Arc::new(Room::default());
            let api = routes::router(Arc::clone(&hub));
            let stop = async {
                while !hub.threads.stopping() {
                    hub.threads.beat("the API");
                    // Whichever comes first; the loop asks which it was.
                    _ = tokio::time::timeout(BEAT, hub.threads.stopped()).await;
                }
            };
            let serve_local = async {
                loop {
                    match local.accept().await {
                        Ok((stream, _)) => {
                            let peer = Peer::of(&stream);
                            let guest = guest(&hub, &peer);
                            // Who gets no place is sent away: no other process waits because of them.
                            if let Some(place) = room.place(guest) {
                                let patience =
                                    if guest == Guest::Stranger { STRANGER_PATIENCE } else { CONNECTION_PATIENCE };
                                tokio::spawn(serve(TokioIo::new(stream), api.clone(), peer, place, patience));
                            }
                        }
                        Err(error) => pause(&error).await,
                    }
                }
            };
            tokio::select! {
                () = stop => {}
                () = serve_local => {}
            }
        });
        // What is being read from the ledger for a caller is no longer needed.
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

async fn serve(stream: TokioIo<UnixStream>, router: Router, peer: Peer, place: Place, patience: Duration) {
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE).max_buf_size(64 << 10);
    let served = tokio::time::timeout(patience, builder.serve_connection(stream, service)).await;
    if let Ok(Err(error)) = served {
        tracing::debug!("a connection failed: {error}");
    }
    drop(place);
}

fn guest(hub: &Hub, peer: &Peer) -> Guest {
    let config = hub.config();
    peer.guest(&config.service, Groups::of(&config.service))
}

/// Accepting fails when files run out: trying again at once would only burn time.
async fn pause(error: &io::Error) {
    tracing::warn!("accepting a connection failed: {error}");
    tokio::time::sleep(Duration::from_millis(200)).await;
}
