//! Commands while the audit cannot be written.
//!
//! The audit contains every command and every outcome. Records that cannot be published are queued.
//! A full disk or a stopped neighbour may delay them for long; then no further command starts,
//! because it would not be accounted for.

use std::time::Duration;

use helio_core::Tai;

use super::{Controller, Effect, LeaseState, rules};
use crate::protocol::{Acknowledgement, Action, Request, SummaryState, interval};

/// How long commands are accepted while the audit cannot be written: twice as long as a publish
/// waits for a partition's lock whose holder is stopped, so that one such wait does not stop the
/// component.
pub const AUDIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The error code of a component that enters FAULT because its audit cannot be written. Codes of
/// components are positive.
pub const AUDIT_LOST_CODE: i32 = -1;

/// Whether the audit can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuditStatus {
    /// Yes, as far as known.
    Written,
    /// Its records have been queued since then.
    Delayed { since: Tai },
    /// The timeout has passed; commands are refused.
    Lost,
}

impl Controller {
    /// Reports that audit records cannot be published and are queued. After [`AUDIT_TIMEOUT`],
    /// commands are refused until [`audit_back`](Self::audit_back), and an ENABLED component enters
    /// FAULT with the error code [`AUDIT_LOST_CODE`].
    pub fn audit_lost(&mut self, now: Tai) {
        if self.audit == AuditStatus::Written {
            self.audit = AuditStatus::Delayed { since: now };
        }
    }

    /// Reports that all audit records are published: commands are accepted again. FAULT remains, as
    /// always, until a command leaves it.
    pub fn audit_back(&mut self) {
        if std::mem::replace(&mut self.audit, AuditStatus::Written) == AuditStatus::Lost {
            let text = "the audit is written again; commands are taken";
            self.effects.push_back(Effect::Warn(text.to_owned()));
        }
    }

    /// When the audit timeout ends. While the lease is unconfirmed no command starts, so there is
    /// no timeout.
    pub(super) fn audit_until(&self) -> Option<Tai> {
        match (self.audit, self.lease) {
            (AuditStatus::Delayed { .. }, LeaseState::Lapsed { .. }) => None,
            (AuditStatus::Delayed { since }, _) => Some(interval::after(since, AUDIT_TIMEOUT)),
            (AuditStatus::Written | AuditStatus::Lost, _) => None,
        }
    }

    /// Restarts the audit timeout.
    pub(super) fn restart_audit_timeout(&mut self, now: Tai) {
        if let AuditStatus::Delayed { since } = &mut self.audit {
            *since = now;
        }
    }

    /// Refuses commands from now on if the audit timeout has passed.
    pub(super) fn check_audit(&mut self, now: Tai) {
        if self.audit_until().is_none_or(|until| now < until) {
            return;
        }
        self.audit = AuditStatus::Lost;
        let report = format!("{}; commands are refused", self.unwritten());
        if self.state != SummaryState::Enabled || self.lease == LeaseState::Lost {
            return self.effects.push_back(Effect::Warn(report));
        }
        let (code, text) = (AUDIT_LOST_CODE, report.clone());
        self.effects.push_back(Effect::Error { code, report: text });
        self.fault(now, code, &report);
    }

    /// Whether a request may be accepted although the audit may not be written. Cancelling is
    /// permitted: it ends a command that was accepted before.
    pub(super) fn accountable(&self, request: &Request) -> Result<(), Acknowledgement> {
        match (self.audit, request.action) {
            (AuditStatus::Lost, Action::Run | Action::Validate | Action::Lock { .. }) => {
                Err(rules::failed(format!("{}; try again when it can", self.unwritten())))
            }
            _ => Ok(()),
        }
    }

    fn unwritten(&self) -> String {
        format!("the audit of {} cannot be written", self.name())
    }
}
