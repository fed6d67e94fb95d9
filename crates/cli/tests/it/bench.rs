//! What benches and the demo of logging refuse.

use crate::support::run;

#[test]
fn one_process_is_not_enough() {
    let ran = run(&["bench", "latency", "--url", "memory:", "--count", "1"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""));
}

#[test]
fn what_cannot_be_is_refused() {
    for command in [&["log", "demo"][..], &["bench", "logging"]] {
        let ran = run(&[command, &["--url", "memory:"]].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""), "{command:?}");
    }
    for wrong in [["--rate", "0"], ["--batch", "0"], ["--qos", "colour=blue"]] {
        assert_eq!(run(&[&["bench", "logging"][..], &wrong].concat()).code, Some(2), "{wrong:?}");
    }
}
