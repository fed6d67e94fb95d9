//! An HTTP server in threads of its own.
//!
//! It knows axum's router. It must not know what is served, nor the bus.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How long pending requests get when a server ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that answers requests until it is dropped.
pub struct Server {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Server {
    /// The address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    /// Accepts no more requests; pending ones get 5 s.
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_TIMEOUT);
        }
    }
}

/// An address to listen at, before its routes are known: they may name it.
pub struct Listening {
    address: SocketAddr,
    listener: TcpListener,
    runtime: tokio::runtime::Runtime,
}

/// Listens at an address such as `127.0.0.1:8081`, in threads of a name.
///
/// # Errors
/// If the system refuses the address.
pub fn listen(address: &str, thread_name: &str) -> io::Result<Listening> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(thread_name)
        .enable_all()
        .build()?;
    let listener = runtime.block_on(TcpListener::bind(address))?;
    Ok(Listening { address: listener.local_addr()?, listener, runtime })
}

impl Listening {
    /// The address; with its port, if the system chose one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves routes.
    #[must_use]
    pub fn serve(self, routes: Router) -> Server {
        let Self { address, listener, runtime } = self;
        let (end, ended) = oneshot::channel::<()>();
        runtime.spawn(async move {
            let ended = async { drop(ended.await) };
            axum::serve(listener, routes).with_graceful_shutdown(ended).await
        });
        Server { address, end: Some(end), runtime: Some(runtime) }
    }
}
