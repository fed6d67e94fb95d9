//! The authorization file, which a component reads again once a second.

use helio_component::protocol::{AckCode, SummaryState};
use helio_component::{Builder, Command, Component, Remote};

use crate::support::{HANG_TIMEOUT, Site, on_every_transport};

fn mount(site: &Site) -> Builder {
    Component::builder(&site.bus(), &site.mount(), 0).initial_state(SummaryState::Enabled)
}

fn remote(site: &Site) -> Remote {
    Remote::open(&site.bus(), &site.mount(), 0).unwrap()
}

#[test]
fn who_may_command_what_is_in_a_file_that_may_change() {
    on_every_transport(|site: &Site| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("who.yaml");
        let write = |text: &str| {
            let new = folder.path().join("new.yaml");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, &file).unwrap();
        };
        write("default: wrong\n");
        let built = || mount(site).inline("stop", |_: &Command| Ok(())).policy(&file);
        let told = built().start().unwrap_err().to_string();
        assert!(told.contains("who.yaml cannot be used: line 1"), "{told}");
        write(
            "default: deny\ntrust: declared\nroles:\n  all: ['*']\nidentities:\n  alice: [all]\n",
        );
        let component = built().start().unwrap();
        let remote = remote(site);
        let stop = |caller: &str| remote.command("stop").caller(caller).send().wait();
        stop("alice").unwrap();
        assert_eq!(stop("bob").unwrap_err().code(), Some(AckCode::NoPerm));
        // An invalid file changes nothing, and the component logs the error.
        let mut messages = remote.event("logMessage").unwrap();
        messages.flush().unwrap();
        write("default: [");
        let says = |word: &'static str| {
            move |reading: &helio_component::Reading| {
                reading.text("message").is_some_and(|text| text.contains(word))
            }
        };
        let told = messages.next_where(HANG_TIMEOUT, says("the last valid one stays")).unwrap();
        assert_eq!(told.integer("level"), Some(40));
        assert_eq!(stop("bob").unwrap_err().code(), Some(AckCode::NoPerm));
        write("default: allow\n");
        messages.next_where(HANG_TIMEOUT, says("is in force")).unwrap();
        stop("bob").unwrap();
        component.stop().unwrap();
    });
}
