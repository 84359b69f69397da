#!/usr/bin/env python3
"""Runs the guests of the stand-in for PyTorch, each case in a process of its own. Reports in TAP.

usage: check.py GUESTS VERSION [rules]      the folder with the loader and the versions' folders; v206, v211, v215, bound or
                                            alone; only what is told of blocks, and not their bytes
From the environment: TEST_PRELOAD (libvpool.so, a sanitizer's runtime before it) and TEST_BUILD (where sim/ is).
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "common"))
import tap

GUESTS, VERSION = Path(sys.argv[1]).resolve(), sys.argv[2]
SIM = Path(os.environ["TEST_BUILD"], "sim")
*BEFORE, LIBRARY = os.environ["TEST_PRELOAD"].split(":")
TOLD = GUESTS / "libvpool-told.so"
NEVER = "PyTorch's cache keeps its memory to itself"
PAST = "binds its calls past libvpool.so"
HANDS_OVER = "this build of PyTorch does not report its blocks"


def guest(case, library=LIBRARY, linked=False, folder=GUESTS / VERSION, **settings):
    """What a case says, which must be right by itself; of a program that loads PyTorch, or is linked with it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VPOOL_", "PYTORCH_"))}
    environment |= {"LD_LIBRARY_PATH": f"{folder}:{SIM}", "LD_PRELOAD": ":".join([*BEFORE, str(library)]),
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",  # the cache is never taken down
                    "VPOOL_ADOPT": "bare", "VPOOL_SIM": "capacity=256M,devices=2", "VPOOL_PAGE": "0"} | settings
    program = [folder / "linked"] if linked else [GUESTS / "loader", folder / "libguest.so"]
    done = subprocess.run([*program, case], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == 0, f"{case}: {done.returncode}\n{done.stdout}"
    return done.stdout


def told(case, **settings):
    def run():
        said = guest(case, TOLD, **settings)
        assert not said, said
    run.__name__ = case
    return run


def served(case, **settings):
    def run():
        said = guest(case, **settings)
        assert not said, said
    run.__name__ = "_".join([case, *settings.values()])
    return run


def another_order(word):
    def run():
        said = guest("nothing_is_told", TOLD, STANDIN_ORDER=word)
        assert said.count(NEVER) == 1, said
    run.__name__ = f"another_order_is_never_believed_{word}"
    return run


def what_binds_past_the_library_has_memory():
    said = guest("nothing_is_told", TOLD)
    assert said.count(PAST) == 1, said


def where_the_driver_makes_nothing_the_cache_is_served_by_it():
    """As some virtual GPUs' drivers do."""
    for refused in "cuMemCreate", "cuMemMap", "cuMemSetAccess":
        said = guest(DATA[0], VPOOL_ADOPT="auto", VPOOL_SIM=f"capacity=256M,devices=2,fail={refused}:1+:801")
        assert said.count("CUDA's own allocator serves") == said.count("vpool:"), (refused, said)


def choices(**how):
    for choice, wanted in (("bare", "native"), ("async", "hands_over"), ("0", "native"), ("auto", "native"), ("1", "native")):
        said = guest("the_cache_is_native" if wanted == "native" else "the_cache_hands_over", VPOOL_ADOPT=choice, **how)
        assert not said, (choice, said)


def the_choice_falls_as_it_loads():
    choices()


def the_choice_falls_where_it_is_linked():
    choices(linked=True)
    guest("the_cache_hands_over", linked=True, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    told = guest("the_stream_is_told", TOLD, linked=True)
    assert not told, told


def what_the_other_backend_refuses_has_a_word():
    """Once, and where the library has set it."""
    unseen = VERSION == "v205"  # that it is PyTorch's memory that is asked for
    for case in ["features_are_refused", "a_feature_is_refused", "foreign_memory_is_refused"] + ["memory_is_shown_to_nobody"] * (not unseen):
        said = guest(case, VPOOL_ADOPT="async")
        assert said.count("VPOOL_ADOPT=bare") == 1 and "docs/pytorch.md" in said, (case, said)
        said = guest(case, VPOOL_ADOPT="auto", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        assert not said, (case, said)
    for choice in "bare", "0":
        said = guest("other_failures_are_let_be", VPOOL_ADOPT=choice)
        assert not said, (choice, said)


def an_allocator_of_the_programs_meets_no_backend_of_ours():
    for choice in "auto", "async", "bare", "0":
        said = guest("the_allocator_is_changed", VPOOL_ADOPT=choice)
        assert not said, (choice, said)


def after_an_error_a_free_throws_nothing():
    """Where the library has chosen the backend; PyTorch's cache would not have asked."""
    guest("a_free_after_an_error", VPOOL_ADOPT="async")
    for choice, setting in ("auto", "backend:cudaMallocAsync"), ("bare", ""), ("0", ""):
        guest("a_free_after_an_error", VPOOL_ADOPT=choice, STANDIN_THROWS="1", PYTORCH_CUDA_ALLOC_CONF=setting)


def a_graphs_block_that_is_freed_outside_has_a_word():
    """Once, and where the library has set the backend."""
    said = guest("a_graphs_block_is_freed_outside", VPOOL_ADOPT="async")
    assert said.count("VPOOL_ADOPT=bare") == 1 and "docs/frameworks.md" in said, said
    said = guest("a_graphs_block_is_freed_outside", STANDIN_THROWS="1", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    assert not said, said


def captures_forbid_no_block_that_the_cache_would_have():
    """Where the library has set the backend."""
    guest("blocks_come_and_go_beside_a_capture", VPOOL_ADOPT="async")
    guest("blocks_come_and_go_beside_a_capture", STANDIN_REFUSED="1", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")


def after_an_error_a_library_beside_pytorch_is_told_of_it():
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "libtorch-app")
        folder.symlink_to(GUESTS / VERSION)
        guest("a_free_after_an_error", folder=folder, VPOOL_ADOPT="async")


def after_an_error_all_else_is_told_of_it():
    for choice in "auto", "bare", "0":
        said = guest("errors_are_told", VPOOL_ADOPT=choice)
        assert not said, (choice, said)


def out_of_memory_is_said_as_by_the_cache():
    """Where the library has chosen the backend."""
    guest("out_of_memory_is_said_alike", VPOOL_ADOPT="async", STANDIN_REWORDED="1")
    for choice, setting in ("auto", "backend:cudaMallocAsync"), ("bare", ""), ("0", ""):
        guest("out_of_memory_is_said_alike", VPOOL_ADOPT=choice, PYTORCH_CUDA_ALLOC_CONF=setting)


def a_setting_of_the_users_is_kept():
    guest("the_cache_hands_over", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    said = guest("the_cache_is_native", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert not said, said
    for name in "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF":  # by the program, before PyTorch is loaded
        said = guest("the_cache_is_native", VPOOL_ADOPT="auto", LOADER_SETS=f"{name}=expandable_segments:True")
        assert not said, said


def a_build_that_does_not_tell_hands_over():
    said = guest("the_cache_hands_over")
    assert said.count(HANDS_OVER) == 1, said


def a_build_that_does_not_tell_can_be_kept():
    said = guest("nothing_is_told", TOLD, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:512")
    assert said.count(HANDS_OVER) == 1, said


def a_lock_that_is_released_keeps_memory_to_the_cache():
    for name, value in (("PYTORCH_CUDA_ALLOC_CONF", "release_lock_on_cudamalloc:True"),
                        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:512, release_lock_on_cudamalloc : True")):
        said = guest("nothing_is_told", TOLD, **{name: value})
        assert said.count(NEVER) == 1, said
    said = guest("the_stream_is_told", TOLD, PYTORCH_CUDA_ALLOC_CONF="release_lock_on_cudamalloc:False")
    assert not said, said
    said = guest("a_lock_that_is_released_leaves_no_block_without_memory", TOLD)
    assert said.count(NEVER) == 1, said


def what_is_held_is_accounted_for():
    """Pages that the cache has in no block, and chunks that are mapped nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        names = {name: Path(folder, name) for name in ("stats", "dump.json", "trace.csv")}
        for case in DATA[0], FULL[0]:
            guest(case, VPOOL_STATS=str(names["stats"]), VPOOL_TRACE=str(names["trace.csv"]), VPOOL_DUMP="exit",
                  VPOOL_DUMP_FILE=f"{folder}/dump.json", VPOOL_LOG="quiet")
            told = json.loads(names["stats"].read_text())["devices"][0]
            dump = json.loads(names["dump.json"].read_text())["devices"][0]
            assert dump["live_bytes"] + sum(dump["waste"].values()) == dump["held_bytes"] and dump["waste"]["cached"] > 0, dump["waste"]
            assert sum(kind["size"] * kind["count"] for kind in dump["chunks"]) == dump["held_bytes"], dump["chunks"]
            said = [line.split(",") for line in names["trace.csv"].read_text().splitlines() if line.startswith("v,0,")]
            assert told["peak_addressed_bytes"] == dump["peak_addressed_bytes"] == max(int(line[2]) for line in said) > 0, (told, dump)
            assert told["addressed_bytes"] == dump["addressed_bytes"] == int(said[-1][2]), (told, dump)


def another_interposer_hears_of_the_cache():
    """Preloaded in front of us or behind, as torch_memory_saver is, or loaded before PyTorch, though that has libcudart for itself."""
    tells = os.path.join(os.environ["TEST_BUILD"], "tests/process/faults/libtells.so")
    for choice in "bare", "0":
        said = [guest(DATA[0], library=pair, VPOOL_ADOPT=choice) for pair in (f"{tells}:{LIBRARY}", f"{LIBRARY}:{tells}")]
        said += [guest(DATA[0], VPOOL_ADOPT=choice, LOADER_FIRST=tells)]
        assert all("cudaMalloc\n" in heard and "cudaFree\n" in heard and "back" not in heard for heard in said), said
        assert said[1] == said[2] and (choice == "bare" or said[0] == said[1]), said  # behind another one no segment is bare


def segments_are_bare_in_front_of_another_interposer():
    """Such as torch_memory_saver behind us; UCX's jumps in the driver's functions, too, keep cudaMalloc from the short way."""
    tells = os.path.join(os.environ["TEST_BUILD"], "tests/process/faults/libtells.so")
    for case in "the_first_segment_has_memory", "the_stream_is_told", "a_refusal_without_a_place_is_its_own":
        guest(case, library=f"{TOLD}:{tells}", VPOOL_LOG="quiet")
        guest(case, TOLD, LOADER_FIRST=tells, VPOOL_LOG="quiet")


def a_refusal_says_whose_it_is():
    said = guest("a_batch_size_is_found")
    assert "asked for by PyTorch's cache" in said and "asked for by cudaMalloc" not in said, said


ORDER = ["the_first_segment_has_memory", "each_device_is_armed_by_itself", "tiny_blocks_are_told",
         "what_goes_past_the_cache_has_memory", "the_stream_is_told", "a_named_stream_is_unknown",
         "a_stream_asked_for_by_the_way_is_not_taken", "threads_do_not_meet", "a_use_on_another_stream_makes_a_barrier",
         "once_pools_are_in_use_every_free_has_a_barrier", "a_mempool_counts", "a_capture_counts",
         "a_refusal_changes_nothing", "a_refusal_without_a_place_is_its_own", "with_shared_memory_a_refusal_is_ours", "restored_pools_are_told", "an_address_is_asked_for",
         "shared_memory_is_pinned", "a_whole_segment_is_copied"]
DATA = ["blocks_keep_their_bytes", "blocks_of_threads_keep_their_bytes", "graphs_keep_their_bytes",
        "restored_pools_keep_their_bytes"]
HOARD = ["a_cache_that_hoards_gives_back", "a_cache_with_pools_is_let_be"]
ORDERS = ["late", "silent", "moved"]
FULL = ["pools_that_no_capture_has_seen_keep_their_bytes", "a_batch_size_is_found", "a_refusal_holds_nothing", "small_blocks_are_had_where_larger_are_refused",
        "the_smallest_blocks_are_refused_where_there_is_no_memory", "the_smallest_blocks_are_refused_after_what_a_capture_refused"]
QUIET = {"VPOOL_LOG": "quiet"}
EXPANDS = "blocks_keep_their_bytes_where_segments_are_expandable_now_and_then"


def later_runs_by_their_plans_keep_their_bytes():
    with tempfile.TemporaryDirectory() as folder:
        for case in DATA:
            plan, figures = Path(folder, case), Path(folder, "figures.json")
            for run in range(3):
                said = guest(case, VPOOL_PLAN=str(plan), VPOOL_STATS=str(figures), VPOOL_CHECK="1")
                assert not said, said
                told = json.loads(figures.read_text())["devices"][0]["plan"]
                assert told["used"] == bool(run) and (told["made_bytes"] > 0 or not run), (case, run, told)


def room():
    unsplit = "room_is_for_a_block_that_is_not_split"
    return [told("room_is_for_the_size_that_is_rounded_up", STANDIN_DIVISIONS="4"),
            told(unsplit, STANDIN_UNSPLIT="40", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:40"),
            told(unsplit, STANDIN_UNSPLIT="40", TOLD_LATER="1"),
            told("settings_are_obeyed_while_they_last"),
            told("a_lock_that_is_released_leaves_no_block_without_memory", **QUIET), served("what_stays_under_no_block_is_not_free", **QUIET),
            told("room_is_for_what_a_pool_does_not_split", STANDIN_NO_SPLIT="1"),
            told("a_block_that_is_not_split_has_what_was_asked_for", STANDIN_NO_SPLIT="1", **QUIET),
            told("what_it_refuses_after_all_keeps_nothing", STANDIN_FRACTION="125")]


if sys.argv[2:] == [VERSION, "rules"]:
    tests = [told(case) for case in ORDER] + [served(case) for case in HOARD] + room()
    tests += [*map(another_order, ORDERS), the_choice_falls_as_it_loads, after_an_error_a_free_throws_nothing,
              after_an_error_all_else_is_told_of_it, after_an_error_a_library_beside_pytorch_is_told_of_it,
              served(EXPANDS, **QUIET), served(FULL[-1], **QUIET)]
elif VERSION == "bound":
    tests = [a_build_that_does_not_tell_hands_over, a_build_that_does_not_tell_can_be_kept]
    tests += [served(case, VPOOL_ADOPT="0") for case in DATA]
elif VERSION == "alone":
    tests = [what_binds_past_the_library_has_memory] + [served(case, VPOOL_ADOPT="0") for case in DATA]
else:
    tests = [told(case) for case in ORDER] + [told("its_own_refusal_is_its_own", **QUIET)]
    tests += [where_the_driver_makes_nothing_the_cache_is_served_by_it, what_is_held_is_accounted_for, a_refusal_says_whose_it_is]
    tests += [] if BEFORE else [another_interposer_hears_of_the_cache, segments_are_bare_in_front_of_another_interposer]
    tests += [served(case) for case in DATA] + [served(case, **QUIET) for case in FULL] + [served(DATA[0], VPOOL_ADOPT="0"), served(DATA[0], VPOOL_CHECK="1")]
    tests += [later_runs_by_their_plans_keep_their_bytes]
    tests += [served("an_emptied_cache_is_the_devices", VPOOL_SIM="capacity=2G,devices=2")]
    tests += [served("expandable_segments_need_no_room")] + [served(EXPANDS, **QUIET), served(EXPANDS, VPOOL_CHECK="1", **QUIET)]
    tests += [served(case) for case in HOARD] + room()
    tests += [*map(another_order, ORDERS), the_choice_falls_as_it_loads, a_setting_of_the_users_is_kept,
              what_the_other_backend_refuses_has_a_word, an_allocator_of_the_programs_meets_no_backend_of_ours, after_an_error_a_free_throws_nothing,
              a_graphs_block_that_is_freed_outside_has_a_word, captures_forbid_no_block_that_the_cache_would_have,
              after_an_error_all_else_is_told_of_it, after_an_error_a_library_beside_pytorch_is_told_of_it,
              out_of_memory_is_said_as_by_the_cache, a_lock_that_is_released_keeps_memory_to_the_cache]
    tests += [the_choice_falls_where_it_is_linked] if VERSION == "v215" else []
tap.run(tests)
