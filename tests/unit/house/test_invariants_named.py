"""Every invariant and every defect of the scheduler this one comes from has a test that names it.

I1 to I14 and S1 to S9 are those of ../shared/reference/scoot/invariants.md; the defects those of the issue. A name
here is a test, or a rule or invariant of the host's state machine, that fails where the original's behaviour comes
back.
"""

from importlib import import_module
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
HOST, COUNTED, DEFECTS = "test_host_invariants", "test_load_based_invariants", "test_load_based_defects"
HELD = {
    "I1": [(COUNTED, "test_i1_i2_i3_every_idle_worker_somebody_waits_for_is_used_and_no_other")],
    "I2": [
        (COUNTED, "test_i1_i2_i3_every_idle_worker_somebody_waits_for_is_used_and_no_other"),
        (COUNTED, "test_i2_classic_too_uses_every_idle_worker_that_a_class_with_a_percent_waits_for"),
    ],
    "I3": [(COUNTED, "test_i1_i2_i3_every_idle_worker_somebody_waits_for_is_used_and_no_other")],
    "I4": [
        (COUNTED, "test_i4_nobody_is_lent_a_worker_somebody_is_entitled_to"),
        (DEFECTS, "test_remainder_does_not_go_to_a_class_that_is_entitled_to_nothing"),
    ],
    "I5": [
        (COUNTED, "test_i5_no_percent_is_normalised_away"),
        (COUNTED, "test_i5_i13_one_percent_of_fifty_workers_runs_its_share_over_time"),
    ],
    "I6": [(COUNTED, "test_i6_targets_sum_to_the_workers_and_keep_the_quota")],
    "I7": [(COUNTED, "test_i7_order_of_classes_is_no_matter"), (DEFECTS, "test_ties_are_not_drawn_by_lot")],
    "I8": [
        (COUNTED, "test_i8_one_more_idle_worker_lowers_nobody"),
        (COUNTED, "test_i8_one_more_worker_lowers_no_target_whose_turn_it_ever_is"),
    ],
    "I9": [(COUNTED, "test_i9_no_loan_would_be_better_given_to_another")],
    "I10": [("test_load_based_turns", "test_i10_waiting_jobs_differ_by_one_unless_they_did_before")],
    "I11": [
        (COUNTED, "test_i11_what_stops_is_lent_and_makes_room_for_as_many_starts"),
        (COUNTED, "test_i11_rebalance_brings_the_needy_to_their_targets_when_all_workers_are_held"),
        (COUNTED, "test_i11_timer_resets_when_the_spread_drops"),
        ("test_scheduler_settings", "test_victims_run_again_without_using_up_a_retry"),
    ],
    "I12": [
        (COUNTED, "test_i12_settings_are_refused_or_can_be_planned_with"),
        ("test_scheduler_settings", "test_overlapping_expressions_are_reported"),
    ],
    "I13": [(COUNTED, "test_i13_everything_starts_after_finitely_many_rounds")],
    "I14": [(COUNTED, "test_i14_every_requestor_has_a_class_that_may_run")],
    "S1": [
        (HOST, "Host.a_worker_holds_one_gang_or_is_idle"),
        (HOST, "Host.the_mirror_says_what_the_store_says"),
        ("test_service_retries", "test_busy_worker_put_away_and_brought_back_is_used_again"),
    ],
    "S2": [
        (HOST, "Host.nothing_new_starts_on_what_is_not_ready"),
        ("test_service_retries", "test_heartbeat_of_an_offline_worker_alters_nothing"),
    ],
    "S3": [("test_service_admission", "test_limit_holds_however_many_submit_at_once")],
    "S4": [("test_service_steps", "test_end_that_could_not_be_stored_is_told_again_and_stored")],
    "S5": [
        (HOST, "Host.cancel"),
        ("test_service_steps", "test_task_that_is_stopped_twice_blocks_nobody"),
    ],
    "S6": [
        ("test_service_tags", "test_replayed_tag_is_refused"),
        ("test_service_tags", "test_requestor_and_basis_do_not_run_into_each_other"),
        ("test_service_tags", "test_repeats_use_up_no_place_in_the_history"),
    ],
    "S7": [("test_service_retries", "test_first_duration_is_the_mean_and_longest_starts_first")],
    "S8": [(HOST, "Host.all_tasks_are_somewhere"), (HOST, "Host.the_mirror_says_what_the_store_says")],
    "S9": [
        (HOST, "Host.what_completed_stays_so"),
        (HOST, "Host.server_is_killed_and_starts_again"),
        ("test_service_killed", "test_process_killed_in_a_step_loses_nothing_and_starts_nothing_twice"),
    ],
    "0/0 loans": [
        (DEFECTS, "test_loans_of_nothing_by_nothing_start_no_more_than_is_idle"),
        (DEFECTS, "test_one_idle_worker_is_lent_though_every_loan_is_exact"),
    ],
    "rebalance killing 421 to start 4": [(DEFECTS, "test_rebalance_stops_no_more_than_starts")],
    "starving 1 % class": [(DEFECTS, "test_class_of_one_percent_does_not_starve")],
    "worker leak": [("test_service_retries", "test_busy_worker_put_away_and_brought_back_is_used_again")],
    "double abort": [("test_service_steps", "test_task_that_is_stopped_twice_blocks_nobody")],
    "admission race": [("test_service_admission", "test_limit_holds_however_many_submit_at_once")],
    "tag history": [("test_service_tags", "test_replayed_tag_is_refused")],
}


@pytest.mark.parametrize("what", HELD)
def test_what_must_hold_has_a_test_of_its_name(what):
    for module, name in HELD[what]:
        [path] = TESTS.rglob(f"{module}.py")
        test = import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))
        for part in name.split("."):
            test = getattr(test, part)
        assert callable(test)


def test_nothing_is_left_out():
    assert {f"I{k}" for k in range(1, 15)} | {f"S{k}" for k in range(1, 10)} <= set(HELD)
