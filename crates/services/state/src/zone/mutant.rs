//! Rules that can be switched off, so that tests show that each is needed and checked.

macro_rules! mutants { ($($name:ident = $text:literal),* $(,)?) => {
    /// A rule of the protocol that is broken on purpose; the names are the shared model's.
    #[allow(non_camel_case_types)]
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Mutant { $(#[doc = $text] $name),* }

    impl Mutant {
        /// All of them.
        pub const ALL: &[Mutant] = &[$(Mutant::$name),*];

        /// The name, as in the shared model.
        #[must_use]
        pub fn name(self) -> &'static str {
            match self { $(Mutant::$name => stringify!($name)),* }
        }
    }
} }

mutants! {
    alone_before_evidence = "S1: a leader acknowledges alone on silence under any policy.",
    alone_without_sync = "S1: alone, acknowledges before the record is on disk.",
    expose_before_commit = "S1: a pair shows a record before the peer has it.",
    lease_from_arrival = "S2: the lease counts from the arrival of the answer.",
    no_lease = "S2: the leader reads without a lease.",
    confirm_reuses_answer = "S2: an answer to a heartbeat from before the read confirms it.",
    no_drift_margin = "S3: T_promote = T_lease.",
    serve_at_once = "S3: serves after promotion without waiting.",
    restart_forgets_promise = "S3: the start of the process is no promise.",
    restart_serves_at_once = "S3: a zone that was alone serves at once after a restart.",
    ack_after_promotion = "S4: a zone that continued alone still acknowledges the old epoch.",
    no_sync_at_promotion = "N1: the log is not synced before the header.",
    removal_not_durable = "N1: acknowledges alone before the header is on disk.",
    removal_not_at_witness = "N1: the leader removes its peer on its own disk only.",
    member_leads_after_restart = "N2: a pair's member leads in JOIN.",
    same_epoch_after_restart = "N3: the epoch is resumed.",
    grant_before_durable = "N4: EPOCH is sent before the own header is on disk.",
    member_before_copied = "N4: a zone becomes a member before it has all.",
    resign_crossing = "V1: takes the peer's RESIGN after its own in the session.",
    old_session = "V1: messages of an earlier session are taken.",
    reset_is_evidence = "V2: a TCP reset is evidence.",
    ended_without_epoch = "V2: ENDED does not name the epoch.",
    ended_in_join = "V2: ENDED counts in JOIN.",
    silence_for_both = "V3: the other zone, too, continues by silence.",
    preferred_in_join = "V3: silence counts in JOIN.",
    fence_without_status = "V4: the command's success counts before the status.",
    join_fences = "V4: a zone in JOIN fences.",
    evidence_outlives_session = "V4: evidence outlives its session.",
    fence_answer_late = "V4: a fence's answer counts in a later session.",
    witness_without_set = "V5: the swap asks for no membership.",
    release_any = "V5: on RESIGN, swaps from any child of the peer.",
    witness_init_in_sync = "V6: a pair fills a blank witness with its epoch.",
    witness_init_by_consent = "V6: RESIGN or ENDED fills a blank witness.",
    dirty_is_member = "D1: a dirty zone stays a member.",
    blackout_counts_on = "D1: leads after a blackout without a jump.",
    blank_resigns = "J3: a blank zone resigns.",
    excess_ignored = "J4: what is above an unsafe child counts as unacknowledged.",
    join_longest = "J4: the longest line wins.",
    epoch_by_number = "J4: epochs are the same if their numbers are.",
    operator_counts_on = "6: the operator's epoch has no jump.",
    jump_keeps_tail = "6: the tail keeps its revisions across a jump.",
    assumed_counts_on = "6: a follower assumes without a jump.",
    heal_without_resign = "7: the loser continues.",
    heal_discards_first = "7: the loser forgets its line before the merge.",
    heal_again = "7: the second parent is ignored.",
    heal_no_jump = "7: the merge has no jump.",
}
