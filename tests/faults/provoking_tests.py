"""The codes that no fault of the corpus provokes, each with a test in which convkit finds it."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from convkit.protocol.findings.finding import Finding

_TESTS = Path(__file__).parents[1]

# By file and test, the codes that the test, or one of its cases, provokes: it fails if convkit does
# not find them. A code that a fault provokes has no place here.
PROVOKED_BY: dict[str, dict[str, tuple[str, ...]]] = {
    "host/trials/test_fault_owner": {
        "test_a_file_that_one_release_computes_right_is_not_wrong": ("N411",)
    },
    "runtimes/coreai/test_coreai_target": {"test_narrowed_types_are_told_by_type": ("C304",)},
    "worker/survey/sizes/test_held_sizes": {
        "test_an_axis_that_only_1_works_for_is_named_with_its_node": ("C116",)
    },
    "runtimes/openvino/test_separate_operators": {"test_what_is_separated_is_told": ("E308",)},
    "worker/exporters/test_settled_branches_exported": {
        "test_experts_without_rows_are_skipped_in_the_original_only": ("E309",)
    },
    "worker/metrics/test_open_order": {
        "test_places_that_are_judged_as_equal_are_counted_once_for_each_output": ("N516",)
    },
    "worker/precision/quantization/test_channel_equalization": {
        "test_uneven_channels_are_made_alike_and_float32_stays_the_same": ("Q113",)
    },
    "runtimes/openvino/test_torch_source": {"test_falls_back_to_the_module": ("E307",)},
    "host/audit/test_waived_run": {"test_when_it_expires_the_stored_run_fails": ("R110",)},
    "host/bench/test_goals": {
        "test_what_noise_leaves_undecided_is_said_with_its_interval": ("E402",)
    },
    "host/fleet/test_fleet_parts": {"test_of_two_workers_on_one_key_the_first_stands": ("R101",)},
    "host/processes/test_worker_endings": {
        "test_a_full_disk_is_named_with_a_stand_in_worker": ("E420",)
    },
    "host/processes/test_worker_process": {
        "test_a_request_that_does_not_fit_is_a_broken_stage_with_a_finding": ("E204",),
        "test_a_worker_that_uses_other_tools_than_were_resolved_is_broken": ("V106",),
    },
    "host/run/test_diagnose_job": {
        "test_a_search_that_cannot_start_is_told_and_the_verdict_stands": ("E216",)
    },
    "host/run/test_run_command": {
        "test_a_worker_that_dies_is_a_finding_and_the_run_is_kept": ("E202",),
        "test_a_worker_that_hangs_is_stopped_at_the_limit": ("E203",),
    },
    "host/toolchain/versions/test_yanked_releases": {
        "test_a_yanked_release_is_found_remembered_and_reported_without_the_network": ("V105",)
    },
    "host/verdict/findings/test_nothing_judged": {
        "test_a_score_that_any_model_has_proves_nothing": ("N704",),
        "test_skipping_nearly_all_cases_proves_nothing": ("N511",),
    },
    "host/verdict/findings/test_device_and_simulation": {
        "test_one_verdict_is_a_note": ("N212",),
        "test_two_verdicts_are_a_warning": ("N211",),
    },
    "host/verdict/test_executed_beside": {
        "test_the_one_that_the_original_agrees_with_is_right": ("N216",)
    },
    "host/verdict/findings/test_doubtful_settings": {
        "test_a_low_precision_without_a_tolerance_is_judged_by_what_its_type_allows": ("N507",)
    },
    "host/verdict/findings/test_evaluation_verdict": {
        "test_a_score_that_is_not_a_number_never_passes": ("N703",)
    },
    "host/verdict/findings/test_results_verdict": {
        "test_a_margin_of_twice_the_tolerance_is_a_tie": ("C577",)
    },
    "host/verdict/test_padding_verdict": {
        "test_an_error_at_padding_alone_leads_and_suggests_a_mask": ("N506",)
    },
    "host/verdict/test_steps_verdict": {
        "test_a_correction_that_mends_every_call_is_the_cause": ("C505",),
        "test_a_package_s_tokens_are_judged_in_the_same_way": ("N621",),
        "test_tokens_that_differ_by_more_fail": ("N601",),
    },
    "host/verdict/test_waivers": {"test_a_waiver_that_matches_nothing_warns": ("R111",)},
    "runtimes/coreml/packages/test_runtime": {
        "test_verification_with_a_mocked_core_ml_judges_its_results_and_tells_the_cpu_s_apart": (
            "N213",
        )
    },
    "runtimes/coreml/test_float32_parity": {
        "test_a_number_beyond_int32_is_the_cause": ("T108",),
        "test_a_wrong_translation_is_traced_to_its_module_and_line": ("N408",),
        "test_what_was_followed_on_an_example_has_no_places": ("N402",),
    },
    "runtimes/given/test_given_models": {"test_tensors_without_a_name_are_listed": ("E320",)},
    "runtimes/onnxruntime/test_crash": {
        "test_a_run_whose_verification_crashes_says_why": ("E201",),
        "test_the_operator_is_named_with_a_remedy_that_has_been_tried": ("E321",),
    },
    "runtimes/onnxruntime/test_genai_package": {
        "TestGenerationThatDiffers::test_a_model_unlike_the_configuration_s_positions_is_n620": (
            "N620",
        ),
        "TestGenerationThatDiffers::test_what_genai_does_not_run_is_e311": ("E311",),
        "test_a_value_that_contradicts_the_model_is_named": ("E310",),
        "test_an_original_without_an_end_is_told": ("E312",),
    },
    "runtimes/onnxruntime/test_shared_buffers": {
        "test_a_graph_that_reads_the_old_cache_too_late_is_named": ("E323",)
    },
    "runtimes/test_onnxruntime": {"test_the_optimized_model_keeps_contract_and_results": ("R102",)},
    "whole_runs/models/test_custom_ops": {
        "test_a_library_that_does_not_load_is_refused": ("E322",)
    },
    "whole_runs/models/test_data_dependent": {
        "test_a_threshold_that_lets_nothing_through_proves_nothing": ("N104",),
        "test_another_threshold_in_the_converted_model_is_found": ("N105",),
    },
    "whole_runs/models/test_evaluate": {
        "test_a_build_of_cosine_0_999_that_loses_accuracy_fails": ("N701",),
        "test_too_few_rows_neither_pass_nor_fail": ("N702",),
    },
    "whole_runs/models/test_invariance": {
        "test_a_mask_dropped_from_the_attention_alone": ("N301",),
        "test_a_mean_over_the_batch": ("N302",),
        "test_zeros_within_the_tolerance_are_an_error_all_the_same": ("N304",),
    },
    "whole_runs/models/test_parts_run": {
        "test_a_part_that_overflows_on_what_the_others_produce_is_named": ("C514",),
        "test_a_tolerance_that_the_originals_miss_blames_no_part": ("C510",),
        "test_a_wrong_join_fails_every_target_and_names_the_wire": ("C511",),
        "test_goals_are_judged_on_the_joined_model_alone": ("E401",),
    },
    "whole_runs/models/test_steps_run": {
        "TestADecoder::test_exchanged_layers_are_named": ("C502",),
        "TestADecoder::test_positions_off_by_one_from_the_second_call_on_are_named": ("C504",),
        "TestARecognizer::test_a_state_that_became_constant_is_named": ("C506",),
    },
    "whole_runs/precision/test_auto_precision": {
        "test_a_tolerance_that_nothing_meets_is_an_error_and_nothing_is_built": ("N209",),
        "test_headroom_is_known_before_anything_is_built": ("N210",),
        "test_what_overflows_is_kept_and_the_plan_is_offered_to_the_recipe": ("N208",),
    },
    "whole_runs/precision/test_low_precision": {
        "TestBert::test_its_mask_is_beyond_float16_and_a_masked_row_shows_it": ("N205",),
        "TestOverflow::test_it_passes_on_the_cpu_and_fails_here_with_its_module_named": ("N102",),
        "test_a_plan_that_leaves_nothing_low_is_an_error": ("N207",),
        "test_a_simulation_stands_in_for_an_absent_device": ("E101",),
    },
    "whole_runs/precision/test_processor_families": {
        "test_without_a_word_weights_have_the_bits_that_are_right_everywhere": ("Q112",)
    },
    "whole_runs/precision/test_quantized": {
        "test_a_calibration_file_with_nan_or_another_shape_is_an_error": ("E412",),
        "test_packed_weights_are_not_quantized_again": ("Q103",),
    },
    "whole_runs/precision/test_rounding": {
        "test_rounding_is_judged_by_what_float32_resolves": ("N508",)
    },
    "whole_runs/targets/test_coreml": {
        "test_a_searched_precision_of_a_model_with_names_that_core_ml_changes": ("C303",),
        "test_what_is_traced_on_an_example_or_cannot_be_evaluated_is_told": ("E211", "E212"),
    },
    "whole_runs/test_doubtful_recipe": {
        "test_each_target_has_its_own_doubts": ("C401", "C402", "N501", "N502", "N503", "N504")
    },
    "worker/cause/explanations/test_frozen_values": {
        "test_the_line_that_reads_a_value_is_named": ("N510",)
    },
    "worker/cause/test_several": {
        "test_what_is_found_within_an_unexplained_place_is_kept_as_not_proven": ("N409",)
    },
    "worker/exporters/test_automatic_exporter": {
        "test_torch_is_taken_if_its_graph_is_right": ("E303",),
        "test_what_no_exporter_can_do_is_said_in_one_sentence": ("E304",),
    },
    "worker/graph/test_operators": {"test_what_cannot_be_typed_is_said_to_be_unchecked": ("T104",)},
    "worker/metrics/test_label_flips": {"test_a_near_tie": ("N505",)},
    "worker/original/probing/test_contract_probe": {
        "test_a_refusal_for_another_reason_shows_the_inputs_and_the_reason": ("E410",)
    },
    "worker/original/probing/test_refused_inputs": {
        "test_token_ids_of_a_model_without_a_vocabulary_are_explained": ("E411",)
    },
    "worker/original/probing/test_written_inputs": {
        "test_the_line_that_writes_to_an_input_is_named": ("N514",)
    },
    "worker/precision/quantization/test_half_precision_sources": {
        "test_it_is_quantized_as_its_float32_twin": ("Q110",)
    },
    "worker/precision/quantization/test_quantize": {
        "test_results_are_near_and_the_border_metadata_and_modules_stay": ("Q107",)
    },
    "worker/pre_and_postprocessing/test_image_differences": {
        "test_each_mistake_is_named_with_its_fix": ("C523",),
        "test_what_no_constant_explains_is_an_error_nevertheless": ("C520",),
    },
    "worker/pre_and_postprocessing/test_original_results": {
        "TestTheModelsConfiguration::test_a_model_of_several_labels_applies_sigmoid": ("C572",),
        "TestTransformersProcessors::test_detections_are_those_of_the_image_processor": ("C573",),
    },
    "worker/pre_and_postprocessing/test_result_differences": {
        "test_a_constant_that_differs_is_named_with_the_originals": ("C575",),
        "test_what_no_constants_explain_is_reported_as_such": ("C570",),
    },
    "worker/pre_and_postprocessing/test_sounds": {
        "test_each_mistake_is_named_with_its_fix": ("C526",)
    },
    "worker/reference/test_model_conditions": {
        "test_what_no_input_reaches_is_said_unless_a_case_does": ("N515",)
    },
    "worker/runtime_interface/test_refusal_causes": {
        "test_a_missing_locale_is_named_with_how_to_install_it": ("E215",)
    },
    "worker/stages/test_build": {
        "test_a_fixed_output_axis_is_found": ("C206",),
        "test_a_model_that_the_runtime_refuses_gives_its_message": ("E205",),
        "test_the_carried_contract_is_checked": ("C301",),
    },
    "worker/stages/test_join_stages": {
        "test_a_step_that_two_parts_do_is_named": ("C512",),
        "test_an_activation_is_applied_once": ("C518",),
        "test_another_factor_is_named": ("C578",),
    },
    "worker/stages/test_postprocessing": {
        "test_constants_that_nothing_could_be_compared_with_have_a_warning": ("C579",)
    },
    "worker/stages/test_preprocessing": {
        "TestSound::test_an_apps_sampling_rate_is_compared_with_the_originals": ("C525",),
        "TestTexts::test_an_apps_padding_is_compared_with_the_models_tokenizer": ("C527",),
        "TestTheBuiltModel::test_a_step_that_it_does_itself_is_named": ("C528",),
    },
    "worker/stages/test_shipped_departures": {
        "test_a_part_that_cannot_be_compared_inside_is_named_before_its_reader": ("C540",),
        "test_another_blank_symbol_is_named": ("C576",),
    },
    "worker/stages/test_shipped_joins": {
        "test_a_loop_that_carries_the_wrong_value_is_named": ("C541",),
        "test_anchors_that_are_not_the_original_s_are_named": ("C517",),
        "test_boxes_in_another_format_are_named": ("C516",),
        "test_layers_that_feed_each_other_s_cache_are_named": ("C513",),
        "test_positions_that_are_off_by_a_constant_are_named": ("C515",),
    },
    "worker/stages/test_step_stages": {
        "TestTheOriginal::test_an_original_whose_steps_cannot_work_is_reported": ("C501",),
        "TestTheOriginal::test_steps_that_feed_the_wrong_input_are_named": ("C503",),
    },
    "runtimes/tensorrt_rtx/test_asked_parser": {
        "test_zero_points_are_the_parsers_to_judge": ("E241",)
    },
    "runtimes/tensorrt_rtx/test_repeated_builds": {
        "test_the_layer_next_to_a_changed_byte_is_named": ("R103",)
    },
    "runtimes/tensorrt_rtx/test_rtx_stages": {
        "test_an_engine_is_built_twice_without_a_gpu": ("E240",)
    },
    "worker/stages/test_tensorrt_stages": {
        "TestUnderMockedTensorRT::test_an_engine_in_another_type_than_planned_is_an_error": (
            "E214",
        ),
        "TestUnderMockedTensorRT::test_an_engine_is_built_checked_and_its_own_order_told": (
            "C302",
        ),
        "TestUnderMockedTensorRT::test_the_parsers_refusal_names_the_node": ("E213",),
        "TestWithoutADevice::test_float64_is_warned_of_and_an_opset_out_of_range_refused": (
            "T106",
            "V104",
        ),
        "TestWithoutADevice::test_zero_points_other_than_zero_are_refused": ("T107",),
    },
    "worker/stages/test_verify_low_precision": {
        "test_the_modules_that_cost_most_are_named_if_the_memory_suffices": ("Q111",)
    },
    "worker/steps/test_earlier_calls": {"test_the_call_that_matters_is_named": ("N410",)},
    "worker/verification/test_fast_path": {
        "test_what_the_fast_path_leaves_out_is_the_originals": ("N512",)
    },
    "worker/verification/test_overlapping_copies": {
        "test_a_shift_within_one_tensor_is_the_models": ("N517",)
    },
    "worker/verification/test_ties": {
        "test_the_order_of_equals_is_the_originals_own_choice": ("N509",)
    },
    "worker/verification/test_wide_sums": {
        "test_a_large_mean_is_warned_of_with_the_devices": ("N215",)
    },
    "worker/verification/test_verify": {"test_fallbacks_become_warnings": ("E102",)},
}


def named_tests() -> dict[str, frozenset[str]]:
    """Return the codes by the test's node id, without its case."""
    return {
        f"tests/{file}.py::{test}": frozenset(codes)
        for file, tests in PROVOKED_BY.items()
        for test, codes in tests.items()
    }


class FoundCodes:
    """Records which codes convkit itself finds, in a test and in the fixtures of its file. Findings
    that tests make do not count. `listeners` are called with each finding.
    """

    listeners: ClassVar[list[Callable[[Finding], None]]] = []

    def __init__(self) -> None:
        self._named = named_tests()
        self._file: Path | None = None
        self._in_fixtures: set[str] = set()
        self._now = self._in_fixtures
        self._by_test: dict[str, set[str]] = {}
        self._left: Counter[str] = Counter()
        self._all = True

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record for as long as the context lasts."""
        made = Finding.__post_init__

        def noted(finding: Finding) -> None:
            made(finding)
            if not _made_by_a_test():
                self._now.add(finding.code)
                for listen in self.listeners:
                    listen(finding)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Finding, "__post_init__", noted)
            yield

    def collected(self, items: Iterable[pytest.Item], *, all_cases: bool) -> None:
        """Count the cases of each test that are to run. Without all of them, no code is missed."""
        self._left, self._all = Counter(map(_function, items)), all_cases

    def set_up(self, item: pytest.Item) -> None:
        if item.path != self._file:
            self._file, self._in_fixtures = item.path, set()
        self._now = self._in_fixtures

    def call(self, item: pytest.Item) -> None:
        self._now = self._by_test.setdefault(_function(item), set())

    def missing(self, item: pytest.Item) -> frozenset[str]:
        """Return the codes that a test is named for, and has not provoked by its last case."""
        function = _function(item)
        self._left[function] -= 1
        codes = self._named.get(function)
        if codes is None or self._left[function] > 0 or not self._all:
            return frozenset()
        return codes - self._by_test[function] - self._in_fixtures


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def runs_all_cases(config: pytest.Config) -> bool:
    """Say whether every case of each chosen test runs: nobody chose by keyword or case."""
    return not config.option.keyword and not any("[" in each for each in config.args)


def _made_by_a_test() -> bool:
    """Say whether the code that makes a finding is a test's: its own, or through dataclasses."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename in ("<string>", _DATACLASSES) and frame.f_back is not None:
        frame = frame.f_back
    return Path(frame.f_code.co_filename).is_relative_to(_TESTS)


_DATACLASSES = sys.modules["dataclasses"].__file__
