//! The thread that answers, until the service stops.

use super::routes;
use crate::hub::Hub;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// So often it says that it is alive.
const BEAT: Duration = Duration::from_secs(30);

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
            let api = routes::router(Arc::clone(&hub));
            let stop = async {
                while !hub.threads.stopping() {
                    hub.threads.beat("the API");
                    // Whichever comes first; the loop asks which it was.
                    _ = tokio::time::timeout(BEAT, hub.threads.stopped()).await;
                }
            };
            tokio::select! {
                () = stop => {}
                () = longrun_serve::serve(&local, &api, |peer| peer.guest(routes::groups(&hub))) => {}
            }
        });
        // What is being read from the ledger for a caller is no longer needed.
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}
