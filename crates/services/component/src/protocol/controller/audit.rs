//! A component whose audit cannot be written.
//!
//! Every command and every outcome is in the audit. Where its records cannot be published they are
//! kept for later, which a full disk or a stopped neighbour may make long: then nothing more is
//! begun that nobody could account for.

use std::time::Duration;

use helio_core::Tai;

use super::{Controller, Effect, LeaseState, rules};
use crate::protocol::{Acknowledgement, Action, Request, SummaryState, span};

/// For how long commands are taken though the audit cannot be written: twice as long as a publish
/// waits for a partition's lock whose holder was stopped, so that one of those is no reason.
pub const AUDIT_PATIENCE: Duration = Duration::from_secs(10);

/// The error code of a component that goes to FAULT because its audit cannot be written. Codes of
/// components are positive.
pub const AUDIT_LOST: i32 = -1;

/// Whether the audit can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audit {
    /// As far as is known.
    Written,
    /// Its records have been kept back since then.
    Kept { since: Tai },
    /// That lasts for so long that commands are refused.
    Lost,
}

impl Controller {
    /// Records of the audit cannot be published from now on, and are kept. Where that lasts for
    /// [`AUDIT_PATIENCE`], commands are refused until [`audit_back`](Self::audit_back), and a
    /// component that is ENABLED goes to FAULT with the error code [`AUDIT_LOST`].
    pub fn audit_lost(&mut self, now: Tai) {
        if self.audit == Audit::Written {
            self.audit = Audit::Kept { since: now };
        }
    }

    /// All records of the audit have been published: commands are taken again. A FAULT stays, as
    /// any does, until a command leads out of it.
    pub fn audit_back(&mut self) {
        if std::mem::replace(&mut self.audit, Audit::Written) == Audit::Lost {
            let text = "the audit is written again; commands are taken";
            self.effects.push_back(Effect::Warn(text.to_owned()));
        }
    }

    /// When patience with the audit ends. While nobody can tell who has the lease nothing is begun,
    /// and there is no hurry.
    pub(super) fn audit_until(&self) -> Option<Tai> {
        match (self.audit, self.lease) {
            (Audit::Kept { .. }, LeaseState::Lapsed { .. }) => None,
            (Audit::Kept { since }, _) => Some(span::after(since, AUDIT_PATIENCE)),
            (Audit::Written | Audit::Lost, _) => None,
        }
    }

    /// Patience with the audit begins anew.
    pub(super) fn wait_for_audit(&mut self, now: Tai) {
        if let Audit::Kept { since } = &mut self.audit {
            *since = now;
        }
    }

    /// Refuses commands from now on, where patience has ended.
    pub(super) fn look_at_audit(&mut self, now: Tai) {
        if self.audit_until().is_none_or(|until| now < until) {
            return;
        }
        self.audit = Audit::Lost;
        let report = format!("{}; commands are refused", self.unwritten());
        if self.state != SummaryState::Enabled || self.lease == LeaseState::Lost {
            return self.effects.push_back(Effect::Warn(report));
        }
        let (code, text) = (AUDIT_LOST, report.clone());
        self.effects.push_back(Effect::Error { code, report: text });
        self.fault(now, code, &report);
    }

    /// Whether a request may be taken though the audit may not be written. What is cancelled was
    /// taken before, and ends sooner.
    pub(super) fn accountable(&self, request: &Request) -> Result<(), Acknowledgement> {
        match (self.audit, request.action) {
            (Audit::Lost, Action::Run | Action::Validate | Action::Lock { .. }) => {
                Err(rules::failed(format!("{}; try again when it can", self.unwritten())))
            }
            _ => Ok(()),
        }
    }

    fn unwritten(&self) -> String {
        format!("the audit of {} cannot be written", self.name())
    }
}
