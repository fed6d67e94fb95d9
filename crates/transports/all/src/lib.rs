//! The transports that are crates of their own, in one list for every door.
//!
//! It knows their names and features, and nothing else of them. A new transport is its crate, its
//! feature in this crate's `Cargo.toml` (with the dependency), and a line below.

macro_rules! transports {
    ($($scheme:literal => $transport:ident,)*) => {
        /// The URL schemes of all transports of this crate, also of those that this build lacks.
        pub const SCHEMES: &[&str] = &[$($scheme),*];

        /// Registers the transports of this build with the bus, for this process. Further calls
        /// change nothing.
        pub fn register_all() {
            $(
                #[cfg(feature = $scheme)]
                $transport::register();
            )*
        }
    };
}

transports! {
    "dds" => helio_dds,
    "kafka" => helio_kafka,
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(all(feature = "dds", feature = "kafka"))]
    fn all_transports_are_registered() {
        super::register_all();
        let known = helio_bus::transport::schemes();
        for scheme in super::SCHEMES {
            assert!(known.iter().any(|one| one == scheme), "{scheme} in {known:?}");
        }
    }
}
