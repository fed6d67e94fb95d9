//! Brokers that cannot be reached.

use helio_bus::Bus;

#[test]
fn brokers_that_do_not_answer_are_said_at_once() {
    helio_kafka::register();
    // No server listens on the discard port.
    let refused = Bus::connect("kafka://127.0.0.1:9");
    let told = refused.map(drop).unwrap_err().to_string();
    assert!(told.contains("127.0.0.1:9") && told.contains("cannot reach"), "{told}");
}
