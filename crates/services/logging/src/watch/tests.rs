use super::*;
use crate::record::{Audiences, audience};

const RULES: &str = r#"
machines:
  - name: slews
    each: antenna
    states:
      start:
        - {when: 'logger = CONTROL/*/Mount and "slew started"', to: slewing}
      slewing:
        - when: '"slew done"'
        - when: 'level >= ERROR and encoder'
          to: broken
          raise: {level: CRITICAL, message: 'the encoder of {antenna} failed in a slew'}
        - after: 60s
          raise: {message: 'a slew of {antenna} has not ended', audience: '*'}
      broken:
        - when: '"encoder reset"'
  - name: timeouts
    states:
      start:
        - {when: 'timeout', to: counting}
      counting:
        - {when: timeout, times: 3, raise: {level: ERROR, message: four timeouts in ten seconds}}
        - after: 10s
"#;

fn at(seconds: i64) -> Tai {
    Tai::from_nanos((1_790_000_037 + seconds) * 1_000_000_000)
}

fn watch() -> Watch {
    Watch::read(RULES, at(0), &Views::default()).unwrap()
}

fn record(seconds: i64, antenna: &str, level: Level, text: &str) -> Record {
    let logger = format!("CONTROL/{antenna}/Mount");
    Record { antenna: antenna.to_owned(), ..Record::new(at(seconds), level, &logger, text) }
}

/// A record counts as of its time.
fn see(watch: &mut Watch, record: &Record) -> Vec<Record> {
    watch.record(record, record.time)
}

fn messages(raised: &[Record]) -> Vec<String> {
    raised.iter().map(Record::message).collect()
}

#[test]
fn a_sequence_raises_an_alarm_that_says_what_led_to_it() {
    let mut watch = watch();
    assert!(see(&mut watch, &record(1, "DV11", Level::INFO, "slew started")).is_empty());
    assert!(see(&mut watch, &record(2, "DV12", Level::ERROR, "encoder lost")).is_empty());
    let raised = see(&mut watch, &record(3, "DV11", Level::ERROR, "encoder lost"));
    let [alarm] = raised.as_slice() else { panic!("{raised:?}") };
    assert_eq!(alarm.message(), "the encoder of DV11 failed in a slew");
    assert_eq!((alarm.level, alarm.time), (Level::CRITICAL, at(3)));
    assert_eq!((alarm.logger.as_str(), alarm.log_id.as_str()), ("watch/slews", "slews"));
    assert_eq!(alarm.antenna, "DV11");
    assert_eq!(alarm.audiences, Audiences::of([audience::OPERATOR]));
    let data = |name: &str| alarm.data.iter().find(|(known, _)| known == name).unwrap().1.clone();
    assert_eq!(data("watch.state"), Value::from("slewing"));
    assert_eq!(data("watch.antenna"), Value::from("DV11"));
    let Value::Array(records) = data("watch.records") else { panic!() };
    assert!(records[0].to_string().ends_with("INFO CONTROL/DV11/Mount: slew started"));
    assert_eq!(records.len(), 2);
    // It waits in its new state until the encoder was reset.
    assert!(see(&mut watch, &record(4, "DV11", Level::ERROR, "encoder lost")).is_empty());
    assert!(see(&mut watch, &record(5, "DV11", Level::INFO, "encoder reset")).is_empty());
    assert_eq!(watch.under_way(), 0);
}

#[test]
fn what_does_not_end_in_time_raises_an_alarm_at_its_time() {
    let mut watch = watch();
    see(&mut watch, &record(1, "DV11", Level::INFO, "slew started"));
    see(&mut watch, &record(2, "DV12", Level::INFO, "slew started"));
    see(&mut watch, &record(9, "DV12", Level::INFO, "slew done"));
    assert!(watch.at(at(60)).is_empty());
    let raised = watch.at(at(3_600));
    assert_eq!(messages(&raised), ["a slew of DV11 has not ended"]);
    assert_eq!((raised[0].time, raised[0].level), (at(61), Level::ALERT));
    assert_eq!(raised[0].audiences, Audiences::everyone());
    assert_eq!(watch.under_way(), 0);
    // Another record tells the time as well as a clock does.
    see(&mut watch, &record(4_000, "DV11", Level::INFO, "slew started"));
    let raised = see(&mut watch, &record(4_060, "DV13", Level::INFO, "idle"));
    assert_eq!(messages(&raised), ["a slew of DV11 has not ended"]);
}

#[test]
fn records_are_counted_within_a_time() {
    let mut watch = watch();
    let mut timeout = |seconds| see(&mut watch, &record(seconds, "DV11", Level::INFO, "timeout"));
    let raised: Vec<_> = [0, 5, 9, 12, 13, 14, 15].into_iter().flat_map(&mut timeout).collect();
    // The first three are over at 10; those at 12 to 15 are four.
    assert_eq!(messages(&raised), ["four timeouts in ten seconds"]);
    assert_eq!(raised[0].time, at(15));
}

#[test]
fn a_machine_for_all_may_wait_from_its_beginning() {
    let rules = "machines: [{name: silence, states: {start: [\
                 {when: heartbeat}, {after: 10s, raise: {message: nobody is there}}]}}]";
    let mut watch = Watch::read(rules, at(0), &Views::default()).unwrap();
    assert!(watch.at(at(0)).is_empty());
    assert!(see(&mut watch, &record(8, "DV11", Level::INFO, "heartbeat")).is_empty());
    assert!(watch.at(at(17)).is_empty());
    assert_eq!(messages(&watch.at(at(18))), ["nobody is there"]);
    assert_eq!(messages(&watch.at(at(28))), ["nobody is there"]);
}

#[test]
fn its_own_alarms_lead_nowhere() {
    let rules = "machines: [{name: all, states: {start: [{when: '', raise: {message: seen}}]}}]";
    let mut watch = Watch::read(rules, at(0), &Views::default()).unwrap();
    let raised = see(&mut watch, &record(1, "DV11", Level::INFO, "anything"));
    assert_eq!(messages(&raised), ["seen"]);
    assert!(see(&mut watch, &raised[0]).is_empty());
}

#[test]
fn machines_under_way_are_bounded_and_the_oldest_makes_room() {
    let mut watch = watch();
    for antenna in 0..=MAX_INSTANCES {
        see(&mut watch, &record(1, &format!("A{antenna}"), Level::INFO, "slew started"));
    }
    assert_eq!((watch.under_way(), watch.dropped()), (MAX_INSTANCES, 1));
}

#[test]
fn what_is_kept_goes_on_where_it_stood() {
    let mut watch = watch();
    see(&mut watch, &record(1, "DV11", Level::INFO, "slew started"));
    for second in 2..4 {
        see(&mut watch, &record(second, "DV12", Level::INFO, "timeout"));
    }
    let kept = watch.keep();
    let kept: serde_json::Value = serde_json::from_str(&kept.to_string()).unwrap();
    let mut again = Watch::read(RULES, at(0), &Views::default()).unwrap();
    assert_eq!(again.restore(&kept), Ok(0));
    for watch in [&mut watch, &mut again] {
        let mut raised = see(watch, &record(4, "DV12", Level::INFO, "timeout"));
        raised.extend(see(watch, &record(5, "DV12", Level::INFO, "timeout")));
        raised.extend(watch.at(at(100)));
        let expected = ["four timeouts in ten seconds", "a slew of DV11 has not ended"];
        assert_eq!(messages(&raised), expected);
    }
    assert_eq!(watch.keep(), again.keep());
    // Of machines that are declared no more nothing is left but their number.
    let mut other = Watch::read("machines: []", at(0), &Views::default()).unwrap();
    assert_eq!(other.restore(&kept), Ok(2));
    for wrong in ["{}", "[]", "{\"now\": 1}", "{\"now\": 1, \"machines\": {\"slews\": {\"\": 1}}}"]
    {
        let wrong: serde_json::Value = serde_json::from_str(wrong).unwrap();
        assert!(again.restore(&wrong).is_err(), "{wrong}");
    }
}

/// What a process has kept is read by the next one, which may be a newer one.
#[test]
fn the_names_of_what_is_kept_stay_as_they_are() {
    let mut watch = watch();
    see(&mut watch, &record(1, "DV11", Level::INFO, "slew started"));
    let kept = concat!(
        r#"{"machines":{"slews":{"DV11":{"antenna":"DV11","array":"","counts":[0,0,0],"#,
        r#""since":1790000038000000000,"state":"slewing","steps":"#,
        r#"[[1790000038000000000,4,"CONTROL/DV11/Mount","slew started"]]}},"timeouts":{}},"#,
        r#""now":1790000038000000000}"#
    );
    let kept: serde_json::Value = serde_json::from_str(kept).unwrap();
    assert_eq!(watch.keep(), kept);
    let mut again = self::watch();
    assert_eq!(again.restore(&kept), Ok(0));
    assert_eq!(again.keep(), watch.keep());
}

#[test]
fn what_declares_no_machines_is_refused_with_its_line() {
    let state = |way: &str| {
        let head = "machines:\n  - name: a\n    each: antenna\n    states:\n      start:\n";
        format!("{head}        - {way}\n")
    };
    for (text, line, cause) in [
        ("machine: []".to_owned(), Some(1), "machine"),
        (state("{when: 'levl > 3'}"), Some(6), "one of the fields"),
        (state("{when: a, to: away}"), Some(6), "no state \"away\""),
        (state("{when: a, after: 3s}"), Some(6), "no single cause"),
        (state("{to: start}"), None, "no single cause"),
        (state("{when: a, times: 0}"), Some(6), "`times` is 0"),
        (state("{after: 3s}"), Some(2), "never begins"),
        (state("{after: soon}"), Some(6), "invalid duration"),
        (state("{when: a, raise: {message: m, level: LOUD}}"), Some(6), "LOUD"),
        ("machines: [{name: a, states: {begin: []}}]".to_owned(), Some(1), "no state `start`"),
        (
            "machines:\n  - {name: a, states: {start: []}}\n  - {name: a, states: {start: []}}"
                .to_owned(),
            Some(3),
            "two machines \"a\"",
        ),
    ] {
        let error = Watch::read(&text, at(0), &Views::default()).unwrap_err();
        assert!(error.cause.contains(cause), "{error}");
        assert_eq!(error.line, line, "{error}");
    }
}
