//! Publishes events of Rust's `tracing` as log records. It knows `tracing`'s types. It must not
//! know how records are transported.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use helio_bus::Bus;
//! use helio_logging::{LogOptions, Logging};
//! use tracing::{info, info_span, warn};
//! use tracing_subscriber::layer::SubscriberExt as _;
//!
//! let bus = Bus::connect("memory:")?;
//! let logging = Arc::new(Logging::start(bus, LogOptions::default())?);
//! let subscriber = tracing_subscriber::registry().with(helio_log_tracing::layer(&logging));
//! tracing::subscriber::with_default(subscriber, || {
//!     let _slew = info_span!("slew", axis = "azimuth").entered();
//!     warn!(encoder = 8_388_607, "{:.1} degrees off", 0.25);
//!     info!(level = "NOTICE", audience = "Operator", logger = "CONTROL/DV11", "on target");
//! });
//! assert!(logging.flush(Duration::from_secs(10)));
//! assert_eq!(logging.figures().published, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod callsites;
mod layer;
mod visitor;

pub use layer::layer;
