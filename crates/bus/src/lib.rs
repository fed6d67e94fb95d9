//! What applications hold: Bus, Publisher, Subscriber; the Transport trait and its conformance suite.
